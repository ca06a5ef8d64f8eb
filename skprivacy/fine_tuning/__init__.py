"""Private fine-tuning: a head trained with differential privacy on a public encoder's features.

Files, in reading order:

- ``alm``: ALMFineTuner, the estimator
- ``head``: the interface of heads
- ``heads``: gradient descent, least squares, prototypes and softmax regression; the choice
- ``head_sums``: fits to sums, of a table in its engine or computed elsewhere
- ``network_head``: a perceptron trained by DP-SGD
- ``features``: public encoders, and features of records, scaled to rows in the unit ball
- ``sensitivity``: the mechanism with the least noise for one vector
- ``sampled_sensitivity``: sensitivities sampled from private or public records
- ``leave_one_out``: weights without one record, a thousand at once
"""

from .alm import ALMFineTuner
from .features import HalfWhitening
from .heads import SoftmaxHead
from .network_head import NetworkHead
from .sampled_sensitivity import SampledSensitivity

__all__ = [
    "ALMFineTuner",
    "HalfWhitening",
    "NetworkHead",
    "SampledSensitivity",
    "SoftmaxHead",
]
