"""A privacy budget: a cap on what is released about a data set, and the ledger of the releases.

``privacy_budget`` charges events, and ``receipt`` describes one charge. ``admission`` checks every
enclosing cap, ``filters`` decides by the ``rules`` of composition whether a charge fits, and
``refusals`` explains why one does not. ``scopes`` adds charges up, ``scope_names`` checks their
names, ``statement`` reads and displays them, and ``terms`` holds the relation and unit that all
charges share. ``handle`` is the reference to a ledger and a scope that all copies
share; ``ledger``, ``log``, ``sqlite`` and ``postgres`` store it, and ``counter``
remembers its last line at another place.
"""

from .log import LedgerError
from .privacy_budget import PrivacyBudget
from .receipt import Receipt, Reservation

__all__ = ["LedgerError", "PrivacyBudget", "Receipt", "Reservation"]
