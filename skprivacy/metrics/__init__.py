"""Metrics of membership attacks (functions of two samples of scores) and of utility.

For attacks, ``scores_in`` are scores of members and ``scores_out`` scores of non-members. HIGHER
means MEMBER: a record is called a member if its score is at least the threshold.

Files, in reading order:

- ``rates``: true and false positive rates, ROC curve and its area, adjusted p-values
- ``evidence``: simultaneous bounds on test rates and on the AUC; lower bounds on epsilon
- ``coin_guesses``: lower bounds on epsilon from guessed coins in one run
- ``repeated_runs``: tests of a trade-off curve by counts in independent runs
- ``utility``: utility_loss
"""

from .coin_guesses import bound_from_guesses
from .evidence import epsilon_lower_bound
from .rates import auc, tpr_at_fpr

__all__ = ["auc", "bound_from_guesses", "epsilon_lower_bound", "tpr_at_fpr"]
