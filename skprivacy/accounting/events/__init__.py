"""Privacy events by family: frozen descriptions of releases with the known bounds on their cost.

A file holds the event classes of one family and all their bounds. A new event changes only that
file; a new family also adds its name here. See "How to add an event" in the documentation.
"""

from .._checks import RELATIONS as RELATIONS
from .._checks import check_relation as check_relation
from .._checks import positive as positive
from .._checks import probability as probability
from .._event import Event as Event
from .._event import flatten as flatten
from . import (
    choice,
    composition,
    gaussian,
    generic,
    laplace,
    logistic,
    mixture,
    response,
    sampled_group,
    sampling,
    selection,
    smooth,
    streams,
    vote_block,
    votes,
)
from .choice import *
from .composition import *
from .gaussian import *
from .generic import *
from .laplace import *
from .logistic import *
from .mixture import *
from .response import *
from .sampled_group import *
from .sampling import *
from .selection import *
from .smooth import *
from .streams import *
from .vote_block import *
from .votes import *

__all__: list[str] = []
__all__ += choice.__all__
__all__ += composition.__all__
__all__ += gaussian.__all__
__all__ += generic.__all__
__all__ += laplace.__all__
__all__ += logistic.__all__
__all__ += mixture.__all__
__all__ += response.__all__
__all__ += sampled_group.__all__
__all__ += sampling.__all__
__all__ += selection.__all__
__all__ += smooth.__all__
__all__ += streams.__all__
__all__ += vote_block.__all__
__all__ += votes.__all__
