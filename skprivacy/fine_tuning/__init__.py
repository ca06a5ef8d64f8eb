"""Private fine-tuning: a head trained with differential privacy on a public encoder's features.

Start with ``alm.py`` (the estimator) and ``head.py`` (the interface of heads). Heads are in
``gradient.py``, ``prototypes.py``, ``least_squares.py``, ``softmax.py`` and ``network.py``.
"""

from .alm import ALMFineTuner
from .gradient import GradientHead
from .head import Head
from .least_squares import LeastSquaresHead
from .network import NetworkHead
from .prototypes import PrototypeHead
from .release import Sensitivity
from .sensitivity import SampledSensitivity
from .softmax import SoftmaxHead
from .whitening import HalfWhitening

__all__ = [
    "ALMFineTuner",
    "GradientHead",
    "HalfWhitening",
    "Head",
    "LeastSquaresHead",
    "NetworkHead",
    "PrototypeHead",
    "SampledSensitivity",
    "Sensitivity",
    "SoftmaxHead",
]
