"""Metrics of membership attacks (functions of two samples of scores) and of utility.

For attacks, ``scores_in`` are scores of members and ``scores_out`` scores of non-members. HIGHER
means MEMBER: a record is called a member if its score is at least the threshold.

Files, in reading order:

- ``rates``: Clopper-Pearson, ROC, TPR at FPR, advantage, `OperatingPoint`; checks of scores, delta
  and alpha
- ``epsilon``: Epsilon from counts and from scores
- ``evidence``: Simultaneous bounds of rates and area; mean bound
- ``resampling``: Many splits, bootstrap
- ``coin_guesses``: Bounds from guessed coins in one run; trade-off curves and bisection
- ``repeated_runs``: Threshold counts of independent runs against a curve
- ``utility``: `utility_loss`
- ``roc_area``: Area under the ROC curve (AUC), with its confidence interval and p-value
"""

from .coin_guesses import GuessBound, bound_from_guesses
from .epsilon import epsilon_from_counts, epsilon_from_guesses, epsilon_lower_bound
from .rates import OperatingPoint, advantage, clopper_pearson, roc, tpr_at_fpr
from .resampling import EpsilonEstimate, bootstrap_epsilon, multi_split_bound
from .roc_area import auc, auc_interval
from .utility import UtilityLoss, utility_loss

__all__ = [
    "EpsilonEstimate",
    "GuessBound",
    "OperatingPoint",
    "UtilityLoss",
    "advantage",
    "auc",
    "auc_interval",
    "bootstrap_epsilon",
    "bound_from_guesses",
    "clopper_pearson",
    "epsilon_from_counts",
    "epsilon_from_guesses",
    "epsilon_lower_bound",
    "multi_split_bound",
    "roc",
    "tpr_at_fpr",
    "utility_loss",
]
