"""Private fine-tuning: a head trained with differential privacy on a public encoder's features.

Start with ``alm.py`` (the estimator) and ``head.py`` (the interface of heads). Heads are in
``gradient.py``, ``prototypes.py``, ``least_squares.py``, ``softmax.py`` and ``network.py``.

Files, in reading order:

- ``alm``: the fine-tuner
- ``head``: Task, rows, Head, OneRelease
- ``heads``: least squares, prototypes, softmax, gradient descent; choice by public facts
- ``network_head``: NetworkHead
- ``encoding``: public encoders, half whitening
- ``sensitivity``: Sensitivity and the least noise for it
- ``sampled_sensitivity``: sensitivities sampled from records or a sampler
- ``leave_one_out``: minimisers without one record
- ``features``: Encoding of records to features, and their scaling to rows in the unit ball
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
