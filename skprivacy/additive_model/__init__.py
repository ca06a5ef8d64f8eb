"""Private additive models of tables with one and two columns, whose shapes users can read.

Files, in reading order:

- ``losses``: derivatives of a loss by the score, with their bounds
- ``gradient_plan``: mechanisms of a fit, their sensitivities, event and noise
- ``shrinkage``: Newton steps shrunk by empirical Bayes
- ``effects``: bins of columns from noisy tables; sums of steps over them, and their lookup
- ``row_plan``: plans of exact sums of derivatives over cells
- ``rounds``: private choice and measurement of one table after another
- ``regression``: the same for numbers, between a release of totals and a last step, which finds
  the slope of the effects: 0 where noise hides them
- ``additive_models``: PrivateAdditiveClassifier, PrivateAdditiveRegressor
"""

from .additive_models import PrivateAdditiveClassifier, PrivateAdditiveRegressor

__all__ = ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]
