"""What private releases cost: events, their interpreters, guarantees and calibration."""

from .accountants import ACCOUNTANTS, compare_accountants, gdp_mu, zcdp
from .budget import PrivacyBudget, charge
from .calibration import calibrate_noise_multiplier, calibrate_to_advantage, calibrate_to_tpr
from .divergence import renyi_divergence
from .events import (
    RELATIONS,
    ApproxDP,
    Composed,
    Event,
    Gaussian,
    Laplace,
    Logistic,
    NonPrivate,
    PoissonSampled,
    Repeated,
    flatten,
)
from .guarantee import PrivacyGuarantee, check_delta, delta_of, epsilon_of
from .ledger import LedgerError
from .matrix import BandedFactorization, MatrixFactorization, TreeAggregation, square_root_band
from .mixture import Mixture
from .pld import NoLossDistributionError, PrivacyLossDistribution, pld
from .rdp import DEFAULT_ORDERS, rdp, rdp_delta, rdp_epsilon
from .releases import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    RandomizedResponse,
    ReportNoisyMax,
)
from .selection import PrivateSelection
from .smooth import Smoothed, SmoothGaussian, local_sensitivity, smoothed_cost
from .votes import GNMaxVote, LNMaxVote, VoteThreshold

__all__ = [
    "ACCOUNTANTS",
    "DEFAULT_ORDERS",
    "RELATIONS",
    "ApproxDP",
    "BandedFactorization",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Exponential",
    "GNMaxVote",
    "Gaussian",
    "LNMaxVote",
    "Laplace",
    "LedgerError",
    "Logistic",
    "MatrixFactorization",
    "Mixture",
    "NoLossDistributionError",
    "NonPrivate",
    "PoissonSampled",
    "PrivacyBudget",
    "PrivacyGuarantee",
    "PrivacyLossDistribution",
    "PrivateSelection",
    "RandomizedResponse",
    "Repeated",
    "ReportNoisyMax",
    "SmoothGaussian",
    "Smoothed",
    "TreeAggregation",
    "VoteThreshold",
    "calibrate_noise_multiplier",
    "calibrate_to_advantage",
    "calibrate_to_tpr",
    "charge",
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
    "zcdp",
]
