"""Privacy accounting: events, accountants, guarantees, budgets and calibration.

Files, in reading order:

- ``event``: Event: fields, tag, bounds; relations
- ``renyi``: closed forms of Renyi divergences, also of Poisson samples
- ``accountants``: event -> epsilon or delta: RDP, PLD, zCDP, GDP, the best proved,
  compare_accountants
- ``guarantee``: PrivacyGuarantee, group privacy, trade-off bounds
- ``calibration``: least noise for a target; analytic and classic Gaussian multiplier
- ``smooth_sensitivity``: local and smooth sensitivity of data-dependent costs
- ``noise_arithmetic``: Arithmetic of noise: exact, floating point or unspecified
- ``work_limit``: Limit on the computing work of an event's bounds, checked before they are computed
- ``budget/``: Privacy budgets: a cap on the releases about a data set, and the ledger of their char
- ``events/``: Privacy events by family: frozen descriptions of releases with the known bounds on th
- ``pld/``: Privacy loss distributions (PLD): tight numerical accounting of composed events
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
