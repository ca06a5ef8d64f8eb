"""Events: frozen descriptions of releases, in one file per family.

A file holds the classes of its events and all known bounds on their cost, and is the only file to
change for a new event of the family; a new family also adds its name here. See "How to add an
event" in the documentation.
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
