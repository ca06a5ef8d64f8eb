"""Privacy budgets: a cap on the releases about a data set, and the ledger of their charges.

``privacy_budget`` charges events, and ``receipt`` describes one charge. ``admission`` checks every
enclosing cap. ``filters`` decides by the ``rules`` of composition whether a charge fits, and
``refusals`` explains a refusal. ``scopes`` adds up charges, and ``scope_names`` checks the names of
scopes. ``statement`` reads and displays charges, and ``terms`` holds their relation and unit.
``handle`` is the reference to a ledger and a scope that all copies of a budget share. ``ledger``,
``log``, ``sqlite`` and ``postgres`` store the ledger, and ``counter`` stores its last line
elsewhere.

Files, in reading order:

- ``budget``: PrivacyBudget: open, scope, partition, reserve, commit
- ``statement``: the half that only reads: ledger and scope, relation and unit, sum, table, plot,
  file
- ``admission``: caps along a path of scopes; sums over scopes, maximum over partitions
- ``filters``: composition rules and the stopping rules made of them
- ``refusals``: messages of refused charges
- ``ledger``: hash-chained lines, transactions, cache
- ``stores``: SQLite and PostgreSQL; open a ledger by URL scheme; fork guard
- ``snapshot``: exported lines as a ledger: verify, dry-run charges
- ``receipts``: Receipt of a charge, and the reservation that records the outcome of its release
- ``signals``: Hold SIGINT and SIGTERM from the commit of a charge until the paid model is saved
"""

from .budget import PrivacyBudget
from .ledger import LedgerError
from .receipts import Receipt, Reservation

__all__ = ["LedgerError", "PrivacyBudget", "Receipt", "Reservation"]
