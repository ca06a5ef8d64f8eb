"""Privacy budgets: a cap on the releases about a data set, and the ledger of their charges.

Files, in reading order:

- ``budget``: PrivacyBudget: open, scope, partition, reserve, commit
- ``statement``: the half of a budget that only reads: sum, table, plot, file; relation and unit
- ``admission``: check of a charge against all enclosing caps; sums over scopes and partitions
- ``filters``: composition rules, and the stopping rules made of them
- ``refusals``: refused charges: another relation or unit, or a cap that would be exceeded
- ``receipts``: receipt of a charge, and the reservation that records its outcome
- ``ledger``: hash-chained log of charges, its transactions, and the counter outside it
- ``stores``: ledgers in SQLite and PostgreSQL, and their addresses
- ``snapshot``: exported ledgers: verify, sum, and charge on trial
- ``signals``: SIGINT and SIGTERM held from the commit of a charge until the model is saved
"""

from .budget import PrivacyBudget
from .ledger import LedgerError

__all__ = ["LedgerError", "PrivacyBudget"]
