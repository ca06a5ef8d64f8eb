"""Privacy events by family: frozen descriptions of releases with the known bounds on their cost.

A file holds the event classes of one family and all their bounds. A new event changes that file and
adds its name here. ``doc/development/extending.rst`` has the recipe.

Files, in reading order:

- ``noise``: additive noise; releases known by (epsilon, delta) alone, or without protection
- ``composition``: ComposedEvent, RepeatedEvent, PoissonSampledEvent, SampledGroupEvent
- ``choice``: exponential mechanism, report noisy max, randomised response
- ``mixtures``: MixtureEvent (public random choice), PrivateSelectionEvent (best of several runs)
- ``matrix_factorization``: streams with correlated noise; sensitivity and error
- ``votes``: GNMaxEvent, LNMaxEvent, VoteThresholdEvent, VoteBlockEvent
- ``gnmax``: data-dependent cost of GNMax and its local sensitivity
"""

from .choice import ExponentialEvent, RandomizedResponseEvent, ReportNoisyMaxEvent
from .composition import ComposedEvent, PoissonSampledEvent, RepeatedEvent, SampledGroupEvent
from .matrix_factorization import (
    BandedFactorizationEvent,
    MatrixFactorizationEvent,
    TreeAggregationEvent,
)
from .mixtures import MixtureEvent, PrivateSelectionEvent
from .noise import (
    ApproxDPEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    GaussianEvent,
    LaplaceEvent,
    LogisticEvent,
    NonPrivateEvent,
    SmoothGaussianEvent,
)
from .votes import GNMaxEvent, LNMaxEvent, VoteBlockEvent, VoteThresholdEvent

__all__ = [
    "ApproxDPEvent",
    "BandedFactorizationEvent",
    "ComposedEvent",
    "DiscreteGaussianEvent",
    "DiscreteLaplaceEvent",
    "ExponentialEvent",
    "GNMaxEvent",
    "GaussianEvent",
    "LNMaxEvent",
    "LaplaceEvent",
    "LogisticEvent",
    "MatrixFactorizationEvent",
    "MixtureEvent",
    "NonPrivateEvent",
    "PoissonSampledEvent",
    "PrivateSelectionEvent",
    "RandomizedResponseEvent",
    "RepeatedEvent",
    "ReportNoisyMaxEvent",
    "SampledGroupEvent",
    "SmoothGaussianEvent",
    "TreeAggregationEvent",
    "VoteBlockEvent",
    "VoteThresholdEvent",
]
