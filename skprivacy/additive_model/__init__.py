"""Private additive models of tables with one and two columns, whose shapes users can read.

Files, in reading order:

- ``losses``: derivatives of a loss by the score, with their bounds
- ``gradient_plan``: mechanisms of a fit, their sensitivities, event and noise
- ``column_bins``: bins of a column at several resolutions, from noisy tables
- ``shrinkage``: Newton steps shrunk by empirical Bayes
- ``last_step``: the slope of a regression's effects, which is 0 where noise hides them
- ``effects``: sums of steps over bins, and their lookup for records
- ``row_plan``: plans of exact sums of derivatives over cells
- ``rounds``: private choice and measurement of one table after another
- ``regression``: the same for numbers, between a release of totals and a last step
- ``additive_models``: PrivateAdditiveClassifier, PrivateAdditiveRegressor
"""

from .additive_models import PrivateAdditiveClassifier, PrivateAdditiveRegressor

__all__ = ["PrivateAdditiveClassifier", "PrivateAdditiveRegressor"]
