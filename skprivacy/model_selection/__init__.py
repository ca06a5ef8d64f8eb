"""Selection of a privacy level and of hyper-parameters, with the privacy that it costs.

Files, in reading order:

- ``sweep``: `PrivacySweepCV`: parameters, and fit = plan, run, collect
- ``sweep_plan``: Checked parameters, splits, routing, groups, budgets: one frozen plan
- ``sweep_records``: Records, splits, the shared stateless first step
- ``sweep_baselines``: Models without privacy to compare with, and the constant predictor
- ``sweep_runner``: Fit, score and attack every candidate and baseline on every split, in parallel,
  resumed
- ``sweep_store``: Results on disk, keyed by digest
- ``sweep_results``: cv_results_, plots and pages of a fitted sweep
- ``sweep_curve``: `EpsilonInterval`: smallest epsilon and knee with intervals over splits
- ``sweep_groups``: Cost and exposure by subgroup
- ``sweep_brief``: Opening of the page: cost, success of the attack, ceiling
- ``sweep_report``: Table, text and page
- ``search``: `PrivateSearchCV`
- ``search_plan``: `SearchPlan`, law of the number of trials, event, calibration, run
- ``search_candidates``: Settings and what a fit of each would claim
- ``search_scores``: Held-out records and bounded record scores
- ``delegation``: predict, score, classes_ of the chosen model (search and sweep)
- ``leakage``: `make_leakage_scorer`
- ``model_choice``: `suggest_model`, the model to begin with
"""

from .leakage import loss_auc, make_leakage_scorer
from .model_choice import suggest_model
from .search import PrivateSearchCV
from .sweep import PrivacySweepCV

__all__ = [
    "PrivacySweepCV",
    "PrivateSearchCV",
    "loss_auc",
    "make_leakage_scorer",
    "suggest_model",
]
