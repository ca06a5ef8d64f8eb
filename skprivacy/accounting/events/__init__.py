"""Privacy events by family: frozen descriptions of releases with the known bounds on their cost.

A file holds the event classes of one family and all their bounds. A new event changes only that
file; a new family also adds its name here. ``doc/extending.rst`` has the recipe.

Files, in reading order:

- ``noise``: additive noise; releases known by (epsilon, delta) alone, or without protection
- ``composition``: ComposedEvent, RepeatedEvent, PoissonSampledEvent, SampledGroupEvent
- ``choice``: exponential mechanism, report noisy max, randomised response
- ``mixtures``: MixtureEvent (public random choice), PrivateSelectionEvent (best of several runs)
- ``matrix_factorization``: streams with correlated noise; sensitivity and error
- ``votes``: GNMaxEvent, LNMaxEvent, VoteThresholdEvent, VoteBlockEvent
- ``gnmax``: data-dependent cost of GNMax and its local sensitivity
"""

from . import choice, composition, matrix_factorization, mixtures, noise, votes
from .choice import *
from .composition import *
from .matrix_factorization import *
from .mixtures import *
from .noise import *
from .votes import *

__all__: list[str] = []
__all__ += choice.__all__
__all__ += composition.__all__
__all__ += matrix_factorization.__all__
__all__ += mixtures.__all__
__all__ += noise.__all__
__all__ += votes.__all__
