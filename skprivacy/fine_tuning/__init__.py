"""Private fine-tuning: a head trained with differential privacy on a public encoder's features.

Start with ``alm.py`` (the estimator) and ``head.py`` (the interface of heads). Heads are in
``gradient.py``, ``prototypes.py``, ``least_squares.py``, ``softmax.py`` and ``network.py``.
"""

from .alm import ALMFineTuner
from .features import HalfWhitening
from .head import Head
from .heads import GradientHead, LeastSquaresHead, PrototypeHead, SoftmaxHead
from .network_head import NetworkHead
from .sampled_sensitivity import SampledSensitivity
from .sensitivity import Sensitivity

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
