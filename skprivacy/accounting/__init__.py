"""Privacy accounting: events, accountants, guarantees, budgets and calibration.

Files, in reading order:

- ``event``: base class of events: fields, JSON, bounds on the cost; relations
- ``events/``: the event classes by family, each with all its bounds
- ``accountants``: epsilon and delta of an event by RDP, PLD, zCDP, GDP, and the best proved
- ``renyi``: Renyi divergence, also of Poisson samples
- ``pld/``: privacy loss distributions, the tightest accountant
- ``guarantee``: PrivacyGuarantee, group privacy, bounds on attacks
- ``calibration``: least noise for a target; analytic and classic Gaussian multiplier
- ``noise_arithmetic``: exact, floating-point or unspecified arithmetic of noise
- ``smooth_sensitivity``: local and smooth sensitivity of data-dependent costs
- ``work_limit``: limit on the computing work of an event's bounds
- ``budget/``: privacy budgets and their ledgers
"""

from . import events
from .accountants import (
    ACCOUNTANTS,
    compare_accountants,
    delta_of,
    epsilon_of,
    gdp_mu,
    rdp_delta,
    rdp_epsilon,
    zcdp,
)
from .budget import LedgerError, PrivacyBudget, Receipt, Reservation
from .calibration import calibrate_noise_multiplier, calibrate_to_advantage, calibrate_to_tpr
from .event import RELATIONS, Event, NoLossDistributionError, check_delta, flatten
from .events.choice import *
from .events.composition import *
from .events.matrix_factorization import *
from .events.matrix_factorization import square_root_band
from .events.mixtures import *
from .events.noise import *
from .events.votes import *
from .guarantee import PrivacyGuarantee
from .noise_arithmetic import weakest_arithmetic
from .pld import PrivacyLossDistribution, pld
from .renyi import DEFAULT_ORDERS, rdp, renyi_divergence
from .smooth_sensitivity import Smoothed, local_sensitivity, smoothed_cost
from .work_limit import WorkLimitError

__all__ = [
    "ACCOUNTANTS",
    "DEFAULT_ORDERS",
    "RELATIONS",
    "Event",
    "LedgerError",
    "NoLossDistributionError",
    "PrivacyBudget",
    "PrivacyGuarantee",
    "PrivacyLossDistribution",
    "Receipt",
    "Reservation",
    "Smoothed",
    "WorkLimitError",
    "calibrate_noise_multiplier",
    "calibrate_to_advantage",
    "calibrate_to_tpr",
    "check_delta",
    "compare_accountants",
    "delta_of",
    "epsilon_of",
    "flatten",
    "gdp_mu",
    "local_sensitivity",
    "pld",
    "rdp",
    "rdp_delta",
    "rdp_epsilon",
    "renyi_divergence",
    "smoothed_cost",
    "square_root_band",
    "weakest_arithmetic",
    "zcdp",
]
__all__ += events.__all__
