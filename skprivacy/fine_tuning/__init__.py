"""Public encoders with a private head: fine-tuning whose result may be published."""

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
