"""Privacy budgets: a cap on the releases about a data set, and the ledger of their charges.

``privacy_budget`` charges events, and ``receipt`` describes one charge. ``admission`` checks every
enclosing cap. ``filters`` decides by the ``rules`` of composition whether a charge fits, and
``refusals`` explains a refusal. ``scopes`` adds up charges, and ``scope_names`` checks the names of
scopes. ``statement`` reads and displays charges, and ``terms`` holds their relation and unit.
``handle`` is the reference to a ledger and a scope that all copies of a budget share. ``ledger``,
``log``, ``sqlite`` and ``postgres`` store the ledger, and ``counter`` stores its last line
elsewhere.
"""

from .budget import PrivacyBudget
from .ledger import LedgerError
from .receipts import Receipt, Reservation

__all__ = ["LedgerError", "PrivacyBudget", "Receipt", "Reservation"]
