"""A cap on what may be released about a data set, and the ledger that remembers what was.

``privacy_budget`` charges events; ``admission`` asks every cap on the way, ``filters`` decides by
the ``rules`` of composition what still fits, and ``refusals`` says why something does not.
``scopes`` adds up, ``statement`` reads and shows, ``terms`` is what all charges have in common,
``handle`` is the place in a ledger that all copies share, ``ledger`` and ``postgres`` keep it.
"""

from .log import LedgerError
from .privacy_budget import PrivacyBudget, charge

__all__ = ["LedgerError", "PrivacyBudget", "charge"]
