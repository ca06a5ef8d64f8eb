"""Metrics of membership attacks (functions of two samples of scores) and of utility.

For attacks, ``scores_in`` are scores of members and ``scores_out`` scores of non-members. HIGHER
means MEMBER: a record is called a member if its score is at least the threshold.

Files, in reading order:

- ``rates``: true and false positive rates with intervals, ROC curve, advantage
- ``roc_area``: area under the ROC curve, and adjusted p-values
- ``epsilon``: lower bounds on epsilon from counts and from scores
- ``evidence``: simultaneous bounds on test rates and on the AUC
- ``resampling``: bounds over many splits, and the bootstrap
- ``coin_guesses``: lower bounds on epsilon from guessed coins in one run
- ``repeated_runs``: tests of a trade-off curve by counts in independent runs
- ``utility``: utility_loss
"""

from .coin_guesses import bound_from_guesses
from .epsilon import epsilon_lower_bound
from .rates import tpr_at_fpr
from .roc_area import auc

__all__ = [
    "auc",
    "bound_from_guesses",
    "epsilon_lower_bound",
    "tpr_at_fpr",
]
