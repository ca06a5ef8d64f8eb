"""Selection of a privacy level and of hyper-parameters, with the privacy that it costs.

Files, in reading order:

- ``sweep``: `PrivacySweepCV`: parameters, and fit = plan, run, collect
- ``sweep_plan``: Checked parameters, splits, routing, groups and budgets
- ``sweep_records``: Records, splits, candidates and baselines; the shared stateless first step
- ``sweep_runner``: Fit, score and attack every candidate and baseline on every split, in parallel,
  resumed
- ``sweep_store``: Results on disk, keyed by digest
- ``sweep_results``: cv_results_, plots and pages of a fitted sweep
- ``sweep_intervals``: `EpsilonInterval`: smallest epsilon, knee, and cost by subgroup, over splits
- ``sweep_report``: Table, text and page, with its brief
- ``search``: `PrivateSearchCV`
- ``search_plan``: `SearchPlan`, law of the number of trials, event, calibration, run
- ``search_trials``: Settings, what a fit of each would claim, held-out records and bounded scores
- ``leakage``: `make_leakage_scorer`
- ``model_choice``: `suggest_model`, the model to begin with
"""

from .leakage import make_leakage_scorer
from .model_choice import suggest_model
from .search import PrivateSearchCV
from .sweep import PrivacySweepCV

__all__ = ["PrivacySweepCV", "PrivateSearchCV", "make_leakage_scorer", "suggest_model"]
