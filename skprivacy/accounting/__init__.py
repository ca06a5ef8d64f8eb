"""What private releases cost: events, their interpreters, guarantees and calibration."""

from .calibration import calibrate_noise_multiplier
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
from .votes import GNMaxVote, LNMaxVote, VoteThreshold

__all__ = [
    "DEFAULT_ORDERS",
    "RELATIONS",
    "ApproxDP",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Event",
    "Exponential",
    "GNMaxVote",
    "Gaussian",
    "LNMaxVote",
    "Laplace",
    "Logistic",
    "NoLossDistributionError",
    "NonPrivate",
    "PoissonSampled",
    "PrivacyGuarantee",
    "PrivacyLossDistribution",
    "PrivateSelection",
    "RandomizedResponse",
    "Repeated",
    "ReportNoisyMax",
    "VoteThreshold",
    "calibrate_noise_multiplier",
    "check_delta",
    "delta_of",
    "epsilon_of",
    "flatten",
    "pld",
    "rdp",
    "rdp_delta",
    "rdp_epsilon",
]
