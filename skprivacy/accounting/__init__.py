"""Privacy accounting: events, accountants, guarantees, budgets and calibration."""

from . import events
from ._checks import RELATIONS
from ._event import Event, NoLossDistributionError, flatten
from ._work import WorkLimitError
from .accountants import ACCOUNTANTS, compare_accountants, gdp_mu, zcdp
from .budget import LedgerError, PrivacyBudget, Receipt, Reservation
from .calibration import calibrate_noise_multiplier, calibrate_to_advantage, calibrate_to_tpr
from .divergence import renyi_divergence
from .events.choice import *
from .events.composition import *
from .events.gaussian import *
from .events.generic import *
from .events.laplace import *
from .events.logistic import *
from .events.mixture import *
from .events.response import *
from .events.sampled_group import *
from .events.sampling import *
from .events.selection import *
from .events.smooth import *
from .events.streams import *
from .events.vote_block import *
from .events.votes import *
from .guarantee import PrivacyGuarantee, check_delta, delta_of, epsilon_of
from .matrix import square_root_band
from .noise_arithmetic import weakest_arithmetic
from .pld import PrivacyLossDistribution, pld
from .rdp import DEFAULT_ORDERS, rdp, rdp_delta, rdp_epsilon
from .smooth import Smoothed, local_sensitivity, smoothed_cost

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
