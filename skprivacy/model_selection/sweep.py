"""Utility and leakage over a range of privacy levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from joblib.parallel import get_active_backend
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import validate_data
from tqdm.auto import tqdm

from .._sklearn import num_samples
from .._validation import as_frame
from ..accounting import NonPrivate, PrivacyGuarantee
from ..accounting.budget import LedgerError
from ..attacks import ShadowPool
from ..audit import Claim, claim_of
from ..audit.claims import total
from ..exceptions import BudgetExceededError
from ._attacked import Split, checked_attack, fit_and_attack
from ._baselines import checked_baselines, fit_baseline
from ._checks import checked_epsilons, checked_models, checked_refit, checked_scorers
from ._parameters import epsilon_parameter
from ._refitted import RefittedMixin
from ._results import as_grid_search
from ._shown import ShownMixin

__all__ = ["PrivacySweepCV"]


class PrivacySweepCV(ShownMixin, RefittedMixin, MetaEstimatorMixin, BaseEstimator):
    """Cross-validated utility and membership leakage of a model at several privacy levels.

    For each epsilon and each split, one model is trained on the training folds. It is scored on
    the test fold and attacked with the training folds as members and the test fold as
    non-members. Nothing is trained twice: shadow models, if the attack needs them, are trained
    once per epsilon on all of ``(X, y)`` and shared by all splits.

    Parameters
    ----------
    estimator : estimator or dict of estimators
        A classifier or pipeline with a parameter ``epsilon``, or several by their names. They are
        cloned, never fitted themselves.
    epsilons : sequence of float
        The privacy levels, positive; ``numpy.inf`` requests a model without privacy.
    attack : MembershipAttack, default=None
        The attack, without a target, such as ``LiRA(n_shadows=64)``. ``None`` means
        :class:`~skprivacy.attacks.LossThreshold`, which needs no shadow models. For models that
        protect labels alone it is a :class:`~skprivacy.attacks.LabelInferenceAttack`, which trains
        two more models for each; attacks on membership are refused.
    param_name : str, default=None
        Name of the parameter to vary, as in ``get_params``. ``None`` selects the only parameter
        called ``epsilon``, nested (``dpsgdclassifier__epsilon``) or not.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`.
    scoring : str, callable, list of str or dict, default=None
        The utility; ``None`` means the estimator's ``score``. Several, by a list of names or a dict
        of names and scorers, have the keys ``test_<name>``; the first is the one that is drawn.
    n_jobs : int, default=None
        Number of models to train in parallel with joblib.
    verbose : int, default=0
        Whether to show a progress bar.
    refit : float or tuple (str, float), default=None
        The epsilon (one of ``epsilons``) at which a final model is trained on all data; of several
        estimators, the name of one and an epsilon. It is never
        chosen by the scores: the best score would usually select the least privacy.
    baseline : "auto", estimator, dict of estimators or None, default="auto"
        What privacy is paid for with: models that are fitted on the same splits without protection.
        "auto" is histogram gradient boosting, with text and categories as they are, and the model
        itself at ``epsilon=inf``; one that does not take the records is left out. A dict has names.

    Attributes
    ----------
    cv_results_ : dict of ndarray
        As in :class:`~sklearn.model_selection.GridSearchCV`, with one entry per epsilon:
        ``params``, ``param_<name>``, ``mean_fit_time``, ``split<i>_test_score``, ``mean_``,
        ``std_`` and ``rank_test_score``; the same for ``train_score``, ``attack_auc``,
        ``attack_tpr_at_0.01`` (TPR at 1% FPR; NaN if the test folds are too small),
        ``claimed_epsilon``, the claim of a model with all of its private steps, and
        ``attack_auc_bound``, the highest AUC that this claim allows for any attack; the last two
        are NaN if nothing is proved for the model as a whole.
    scores_ : list of str
        Names of the scores, as in the keys of ``cv_results_``: "score", or those of ``scoring``.
    best_index_, best_score_, best_params_
        The candidate with the highest mean test score, the first one of several.
    baseline_results_ : dict of ndarray
        The same keys for the baselines, named in ``param_baseline``; empty if there are none. They
        are attacked if the attack needs no shadow models, and otherwise have NaN.
    charged_ : PrivacyGuarantee
        Joint cost of ALL trained private models, see Notes. There is no ``privacy_``: no guarantee
        covers the scores, nor a model that was chosen by them.
    guarantees_ : list of PrivacyGuarantee
        For each epsilon, the joint cost of the models of all its splits.
    attack_name_ : str
        Name of the attack.
    n_samples_, n_splits_ : int
        Number of records and of splits.
    test_per_train_ : float
        How many test records a split has for a training record, in the mean.
    estimator_ : estimator
        The model trained on all data, if ``refit`` is given. Its claim is the one that it would
        have without the sweep, provided that ``refit`` was chosen without looking at any scores.

    Raises
    ------
    ValueError
        If an epsilon, the parameter, the splits or the labels are invalid. Raised before training.

    Notes
    -----
    **Guarantees.** A sweep is a tool for people who may see the data. Its models compose: releasing
    all of them costs candidates times folds (plus the refit), each with all of its private steps,
    as stated by ``charged_``; its delta is the sum of all deltas. Shadow models and baselines are
    never returned and are not counted. Test scores, attack results and the choice of an epsilon by
    them are computed from the private data without noise; NO guarantee covers ``cv_results_`` and
    ``baseline_results_``. Publishing them, or tuning by them, leaks beyond every epsilon in the
    table.

    **Edge cases.** A sweep with ``numpy.inf``, or over a model that makes no claim, costs
    epsilon = infinity, and ``charged_`` states the reason. It is an estimate if a step of the model
    read private data outside any guarantee.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skprivacy.datasets import load_demo
    >>> from skprivacy.model_selection import PrivacySweepCV
    >>> from skprivacy.neural_network import DPSGDClassifier
    >>> from skprivacy.preprocessing import SchemaTransformer
    >>> digits = load_demo()
    >>> model = make_pipeline(
    ...     SchemaTransformer(digits.schema),
    ...     DPSGDClassifier(epsilon=1.0, delta=1e-4, classes=digits.classes),
    ... )
    >>> sweep = PrivacySweepCV(model, epsilons=[1, 10], cv=2).fit(digits.data, digits.target)
    >>> sweep.cv_results_["param_dpsgdclassifier__epsilon"].tolist()
    [1.0, 10.0]
    >>> bool(np.diff(sweep.cv_results_["mean_test_score"])[0] > 0)
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        epsilons: Iterable[float],
        attack: Any = None,
        param_name: str | None = None,
        cv: Any = 5,
        scoring: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        refit: float | None = None,
        baseline: Any = "auto",
    ) -> None:
        self.estimator = estimator
        self.epsilons = epsilons
        self.attack = attack
        self.param_name = param_name
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.refit = refit
        self.baseline = baseline

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> PrivacySweepCV:
        """Train, score and attack a model for each epsilon and split.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            The data.
        y : array-like of shape (n_samples,)
            Class labels.
        groups : array-like of shape (n_samples,), default=None
            Groups for the splitter.

        Returns
        -------
        self
        """
        models, epsilons = checked_models(self.estimator), checked_epsilons(self.epsilons)
        refit = checked_refit(self.refit, list(models), epsilons)
        names = [epsilon_parameter(model, self.param_name) for model in models.values()]
        first = next(iter(models.values()))
        scorers = checked_scorers(first, self.scoring)
        attack = checked_attack(self.attack, models.values())
        X, y, groups = indexable(as_frame(X), y, groups)
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise ValueError("y must have at least two classes; got one class. Check the labels.")
        cv = check_cv(self.cv, y, classifier=is_classifier(first))
        splits = list(cv.split(X, y, groups))
        baselines = checked_baselines(self.baseline, models, names, epsilons, X)

        params = [
            {param: epsilon} | ({"estimator": name} if name else {})
            for name, param in zip(models, names, strict=True)
            for epsilon in epsilons
        ]
        candidates = [
            clone(model).set_params(**{param: epsilon})
            for model, param in zip(models.values(), names, strict=True)
            for epsilon in epsilons
        ]
        pools = self._pools(candidates, attack, X, y)
        rows = self._all(
            "models",
            (
                delayed(_in_split)(
                    fit_and_attack, X, y, *split, clone(model), scorers, attack, pool
                )
                for model, pool in zip(candidates, pools, strict=True)
                for split in splits
            ),
            len(candidates) * len(splits),
        )
        self.n_samples_, self.n_splits_ = num_samples(X), len(splits)
        self.test_per_train_ = float(np.mean([len(test) / len(train) for train, test in splits]))
        self.attack_name_ = type(attack).__name__
        self.cv_results_ = as_grid_search(rows, params, len(splits))
        self.scores_ = list(scorers)
        main = self.scores_[0]
        self.best_index_ = int(np.argmin(self.cv_results_[f"rank_test_{main}"]))
        self.best_score_ = float(self.cv_results_[f"mean_test_{main}"][self.best_index_])
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.baseline_results_ = self._compared(baselines, splits, X, y, scorers, attack)
        claims = [row["claim"] for row in rows]
        n = self.n_splits_
        self.guarantees_ = [_together(claims[i : i + n]) for i in range(0, len(claims), n)]
        if refit is not None:
            with _saying_what_stays_charged(rows, len(rows) + 1):
                self.estimator_ = candidates[refit].fit(X, y)
            claims.append(claim_of(self.estimator_, X))
        self.charged_ = _together(claims)
        return self

    def _pools(self, candidates: list[Any], attack: Any, X: Any, y: Any) -> list[ShadowPool | None]:
        """Return shadow models for each candidate, if the attack needs them."""
        if not hasattr(attack, "n_shadows"):
            return [None] * len(candidates)
        progress = tqdm(candidates, disable=not self.verbose, desc="shadow models", unit="pool")
        return [
            ShadowPool(
                model,
                n_shadows=attack.n_shadows,
                n_jobs=self.n_jobs,
                random_state=attack.random_state,
            ).fit(X, y)
            for model in progress
        ]

    def _compared(
        self,
        baselines: dict[str, Any],
        splits: list[Any],
        X: Any,
        y: Any,
        scorers: Any,
        attack: Any,
    ) -> dict[str, Any]:
        """Return the results of the baselines; one that cannot be fitted is left out."""
        optional = isinstance(self.baseline, str)
        rows = self._all(
            "baselines",
            (
                delayed(_in_split)(
                    fit_baseline, X, y, *split, clone(model), scorers, attack, name, optional
                )
                for name, model in baselines.items()
                for split in splits
            ),
            len(baselines) * len(splits),
        )
        n = len(splits)
        each = {name: rows[n * i : n * i + n] for i, name in enumerate(baselines)}
        fitted = {name: found for name, found in each.items() if None not in found}
        if not fitted:
            return {}
        params = [{"baseline": name} for name in fitted]
        return as_grid_search([row for found in fitted.values() for row in found], params, n)

    def _all(self, what: str, tasks: Iterable[Any], total: int) -> list[Any]:
        """Return the results of all tasks; one that is refused does not undo the earlier ones."""
        rows: list[Any] = []
        backend, _ = get_active_backend()  # that of Ray has results all at once
        how = "generator" if backend.supports_return_generator else "list"
        done = Parallel(n_jobs=self.n_jobs, return_as=how)(tasks)
        with _saying_what_stays_charged(rows, total):
            for row in tqdm(
                done, total=total, disable=not (self.verbose and total), desc=what, unit="fit"
            ):
                rows.append(row)
        return rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(next(iter(checked_models(self.estimator).values())))
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        if self.refit is not None:  # only then can it predict
            tags.estimator_type = inner.estimator_type
            tags.classifier_tags = inner.classifier_tags
        return tags


@contextmanager
def _saying_what_stays_charged(done: Sized, total: int) -> Iterator[None]:
    """Let the refusal of one model say that it does not undo the earlier ones."""
    try:
        yield
    except (BudgetExceededError, LedgerError) as error:
        raise type(error)(
            f"The sweep ended after at least {len(done)} of its {total} models had been trained; "
            "what they were charged stays charged, and no result is kept. Give the sweep a budget "
            f"for all of its models, or sweep with budget=None on public data. Then: {error}"
        ) from error


def _in_split(
    fit: Callable[..., Any], X: Any, y: Any, train: Any, test: Any, model: Any, *how: Any
) -> Any:
    """Run a fit on one split; records are divided where it runs."""
    return fit(model, Split.of(X, y, train, test), *how)


def _together(claims: list[Claim]) -> PrivacyGuarantee:
    """Return the joint cost of all trained models; one without a claim is not private."""
    whole = total(claims)
    note = "it covers the trained models together, never the scores and attacks in cv_results_"
    if whole.charged is None:
        return PrivacyGuarantee(NonPrivate(), assumptions=(whole.reason, note))
    return replace(whole.charged, assumptions=(*whole.charged.assumptions, note))
