"""Privacy accounting: events, accountants, guarantees, budgets and calibration.

Files, in reading order:

- ``event``: base class of events: fields, JSON, bounds on the cost; relations
- ``events/``: the event classes by family, each with all its bounds
- ``accountants``: epsilon and delta of an event by RDP, PLD, zCDP, GDP, and the best proved
- ``renyi``: Renyi divergence, also of Poisson samples
- ``pld/``: privacy loss distributions, the tightest accountant
- ``group_privacy``: the cost for groups, from a privacy curve alone
- ``guarantee``: PrivacyGuarantee, arithmetic of noise, bounds on attacks
- ``calibration``: least noise for a target; analytic Gaussian multiplier
- ``smooth_sensitivity``: local and smooth sensitivity of data-dependent costs
- ``work_limit``: limit on the computing work of an event's bounds
- ``budget/``: privacy budgets and their ledgers
"""

from .accountants import compare_accountants, epsilon_of
from .budget import LedgerError, PrivacyBudget
from .calibration import calibrate_noise_multiplier, calibrate_to_attack
from .event import Event
from .events import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    VoteBlockEvent,
)
from .guarantee import PrivacyGuarantee, weakest_arithmetic

__all__ = [
    "ApproxDPEvent",
    "ComposedEvent",
    "Event",
    "GNMaxEvent",
    "GaussianEvent",
    "LaplaceEvent",
    "LedgerError",
    "PoissonSampledEvent",
    "PrivacyBudget",
    "PrivacyGuarantee",
    "RepeatedEvent",
    "VoteBlockEvent",
    "calibrate_noise_multiplier",
    "calibrate_to_attack",
    "compare_accountants",
    "epsilon_of",
    "weakest_arithmetic",
]
