"""Cross-validated utility and membership leakage over a range of privacy levels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.utils import get_tags

from .._clones import (
    DelegatingMixin,
    check_weights,
    delegates_to,
    group_names,
    name_failing_model,
    weight_name,
)
from .._environment import check_n_jobs
from .._files import as_path
from .._groups import check_groups, warn_of_identifiers
from .._input_data import as_frame, check_one_type, check_y, indexable, validate_data
from .._validation import num_samples
from ..accounting import PrivacyGuarantee
from ..accounting.events import NonPrivateEvent
from ..audit import claim_of
from ..audit.inspection.claims import Claim, joint_claim
from ..base import rolls_back_on_error
from .sweep_intervals import resolve_subgroups
from .sweep_plan import (
    RoutedMixin,
    check_affordable,
    check_first_fits,
    check_groups_apart,
    check_scorers,
    choose_splitter,
    epsilon_parameter,
    split_weights,
    validate_epsilons,
    validate_models,
    validate_refit,
    validate_scorers,
    validate_splits,
    validate_targets,
    warn_of_unprotected_groups,
)
from .sweep_records import (
    Candidate,
    Records,
    make_constant,
    name_constant,
    share_first_steps,
    sibling_name,
    validate_baselines,
    warn_of_gaps,
)
from .sweep_results import ResultsMixin, arrange_results, collect_groups
from .sweep_runner import SweepRunner, check_fit_arguments, validate_attack
from .sweep_store import ResultStore, describe_sweep


class PrivacySweepCV(ResultsMixin, DelegatingMixin, RoutedMixin, MetaEstimatorMixin, BaseEstimator):
    """Cross-validated utility and membership leakage of a model at several privacy levels.

    For each epsilon and each split, one model is trained on the training folds. It is scored on
    the test fold and attacked with the training folds as members and the test fold as
    non-members. Nothing is trained twice: shadow models, if the attack needs them, are trained
    once per epsilon on all of ``(X, y)`` and shared by all splits.

    Parameters
    ----------
    estimator : estimator or dict of estimators
        A classifier, regressor or pipeline with a parameter ``epsilon``, or several by their
        names. They are cloned, never fitted themselves.
    epsilons : sequence of float
        The privacy levels, positive; ``numpy.inf`` requests a model without privacy.
    attack : MembershipAttack, default=None
        The attack, without a target, such as ``LiRA(pool=64)``. ``None`` means
        :class:`~skprivacy.attacks.LossThreshold`, which needs no shadow models. For models that
        protect only labels, it means :class:`~skprivacy.attacks.LabelInferenceAttack`, which trains
        two more models per fit. Membership attacks are refused there. For regressors, attacks use
        the residuals. To keep the shadow models, which are private, give the attack an unfitted
        pool: ``LiRA(pool=ShadowPool(None, n_shadows=64, path="shadows"))``.
    param_name : str, default=None
        Name of the parameter to vary, as in ``get_params``. ``None`` selects the only parameter
        called ``epsilon``, nested (``dpsgdclassifier__epsilon``) or not.
    cv : int, splitter or iterable, default=5
        As in :class:`~sklearn.model_selection.GridSearchCV`.
    scoring : str, callable, list of str or dict, default=None
        The utility; ``None`` means the estimator's ``score``. Several scorers are a list of names,
        or a dict of names and scorers. Their keys are ``test_<name>``. Plots show the first one.
    n_jobs : int, default=None
        Number of models to train in parallel with joblib.
    verbose : int, default=0
        Whether to show a progress bar.
    refit : float or tuple (str, float), default=None
        The epsilon (one of ``epsilons``) at which a final model is trained on all data. With
        several estimators, give the name of one and an epsilon. Scores never choose it: the best
        score usually has the least privacy.
    baseline : "auto", estimator, dict of estimators or None, default="auto"
        Models without protection that are fitted on the same splits, for comparison. "auto" means
        histogram gradient boosting, and the model itself at ``epsilon=inf``. A baseline that cannot
        take the records is left out. A dict names the baselines.
    path : str or path-like, default=None
        Folder for the results of every fit. A later ``fit`` of the same sweep takes these results,
        and fits and charges only the rest: an interrupted sweep resumes. ``cv`` must split alike
        each time. The folder holds no model, but scores of private records: keep it as private as
        the records.

    Attributes
    ----------
    cv_results_ : dict of ndarray
        As in :class:`~sklearn.model_selection.GridSearchCV`, with one entry per epsilon:
        ``params``, ``param_<name>``, ``mean_fit_time``, ``split<i>_test_score``, ``mean_``,
        ``std_`` and ``rank_test_score``. The same keys exist for ``train_score``, ``attack_auc``,
        ``attack_tpr_at_0.01`` (TPR at 1% FPR; NaN if the test folds are too small),
        ``claimed_epsilon`` (the claim of a model with all of its private steps) and
        ``attack_auc_bound`` (the highest AUC that this claim allows for any attack). The last two
        are NaN if nothing is proved for the model as a whole.
    group_results_ : dict of list
        Figures of the ``subgroups`` for each candidate and split, as :meth:`by_group` reads them.
    scores_ : list of str
        Names of the scores, as in the keys of ``cv_results_``: "score", or the names in
        ``scoring``.
    best_index_, best_score_, best_params_
        The candidate with the highest mean test score, the first one of several.
    baseline_results_ : dict of ndarray
        The same keys for the baselines, named in ``param_baseline``. Empty if there are none. They
        are attacked if the attack needs no shadow models, and otherwise have NaN.
    constant_results_ : dict of ndarray
        The same keys for the constant predictor: the most frequent class, or the mean target, of
        the training folds. A model whose mean score is not higher is useless.
    charged_ : PrivacyGuarantee
        Joint cost of ALL trained private models, see Notes. There is no ``privacy_``, because no
        guarantee covers the scores, or a model that was chosen by them. With ``path``, all models
        with results in the folder count. An interrupted fit counts only in its budget.
    guarantees_ : list of PrivacyGuarantee
        For each epsilon, the joint cost of the models of all its splits.
    attack_name_ : str
        Name of the attack.
    n_samples_, n_splits_ : int
        Number of records and of splits.
    scorer_ : dict
        The scorers, by their names.
    subgroups_ : str or None
        Name of the subgroups.
    test_per_train_ : float
        Mean number of test records of a split per training record.
    estimator_ : estimator
        The model trained on all data, if ``refit`` is given. Its claim is the one that it would
        have without the sweep, provided that ``refit`` was chosen without looking at any scores.

    Raises
    ------
    ValueError
        If an epsilon, the splits, the labels or a parameter of the model, such as ``delta``, are
        invalid. Raised before training.
    BudgetExceededError
        If a budget cannot pay for all models. Raised before training if the cost of a fit is known
        beforehand: for an estimator of this library, alone or after a ``SchemaTransformer``.

    Warns
    -----
    PrivacyWarning
        If a step reads private records outside the guarantee, or ``delta`` is not below 1/n.

    Notes
    -----
    **Guarantees.** A sweep is a tool for people who may see the data. ``charged_`` is the cost of
    releasing all of its models: candidates times folds, plus the refit, each with all private
    steps. Its delta is the sum of all deltas. Shadow models and baselines are never returned and
    are not counted. NO guarantee covers ``cv_results_``, ``baseline_results_`` and
    ``constant_results_``, because scores and attack results are computed from the private data
    without noise. Publishing them, or tuning by them, leaks beyond every epsilon in the table.

    A :class:`~skprivacy.preprocessing.SchemaTransformer` at the start of a pipeline learns nothing,
    if its schema was not read off data. It runs once for all models, and ``fit_time`` does not
    include it. All other steps are fitted for every model. Up to eight classifiers by DP-SGD at a
    time are charged one by one and trained side by side; ``fit_time`` is the share of each by its
    number of steps.

    **Edge cases.** The figures of a scorer or an attack that fails are NaN, with a warning: the
    model has been paid for. A sweep with ``numpy.inf``, or over a model without a claim, costs
    epsilon = infinity, and ``charged_`` states the reason. ``charged_`` is an estimate if a step of
    the model read private data outside any guarantee.

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
    >>> sweep = PrivacySweepCV(model, epsilons=[1, 10], cv=2, baseline=None)
    >>> sweep = sweep.fit(digits.data, digits.target)
    >>> sweep.cv_results_["param_dpsgdclassifier__epsilon"].tolist()
    [1.0, 10.0]
    >>> bool(np.diff(sweep.cv_results_["mean_test_score"])[0] > 0)
    True
    """

    estimator_: Any
    _wrapped = "estimator_"

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
        refit: float | tuple[str, float] | None = None,
        baseline: Any = "auto",
        path: Any = None,
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
        self.path = path

    @rolls_back_on_error
    def fit(
        self, X: Any, y: Any, *, groups: Any = None, subgroups: Any = None, **params: Any
    ) -> PrivacySweepCV:
        """Train, score and attack a model for each epsilon and split.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            The data.
        y : array-like of shape (n_samples,)
            Class labels, or numbers for regressors.
        groups : array-like of shape (n_samples,), default=None
            Group of each record, such as a patient; a Series' name is the unit. No group is then
            in both the training and the test records of a split: a number of folds means
            :class:`sklearn.model_selection.GroupKFold`. Groups are passed to the ``fit`` of the
            estimator, or of the pipeline's steps that take them. Its guarantees are then for
            groups; a warning names the steps that protect single records. Attacks join all
            records of a group.
        subgroups : str, int or array-like of shape (n_samples,), default=None
            Subgroups for :meth:`by_group`: a column of ``X``, or the subgroup of each record. At
            most 100 different values.
        **params
            Further arguments of the estimator's ``fit``, such as ``sample_weight``. With
            ``enable_metadata_routing`` they go where they are asked for.

        Returns
        -------
        PrivacySweepCV
            Itself, fitted.
        """
        check_n_jobs(self.n_jobs)
        models, epsilons = validate_models(self.estimator), validate_epsilons(self.epsilons)
        path = None if self.path is None else as_path("path", self.path)
        refit = validate_refit(self.refit, list(models), epsilons)
        names = [epsilon_parameter(model, self.param_name) for model in models.values()]
        first = next(iter(models.values()))
        scorers = validate_scorers(first, self.scoring)
        attack = validate_attack(self.attack, models.values())
        X, y = indexable(as_frame(X), y)
        checked_groups = None if groups is None else check_groups(groups, X)
        X, groups = indexable(X, groups)
        validate_data(self, X, skip_check_array=True)
        y = validate_targets(models.values(), y)
        by, of_each = (None, None) if subgroups is None else resolve_subgroups(subgroups, X)
        routed = self._routed_to_fit(groups, params)
        units = (
            None
            if checked_groups is None
            else checked_groups.to_series(np.arange(len(checked_groups.codes)))
        )
        records = {
            name: Records(X, y, of_each, routed.fit[name], routed.score, units) for name in models
        }
        check_scorers(scorers, next(iter(records.values())), of_numbers=is_regressor(first))
        splitter = choose_splitter(
            self.cv, y, classifier=is_classifier(first), grouped=checked_groups is not None
        )
        splits = validate_splits(splitter, self.cv, X, y, **routed.split)
        check_groups_apart(splits, checked_groups, self.cv)
        for name, model in models.items():
            check_fit_arguments(attack, records[name], model)
        if checked_groups is not None:
            warn_of_unprotected_groups(models, checked_groups)
        elif hasattr(self, "feature_names_in_"):
            warn_of_identifiers(self.feature_names_in_, "What a sweep shows")
        warn_of_gaps(models.values(), X)
        compared = validate_baselines(self.baseline, models, names, epsilons, X)
        members = splits[0][0]
        n_train = (
            len(members)
            if checked_groups is None
            else len(np.unique(checked_groups.codes[members]))
        )
        candidates = [
            Candidate(
                name,
                clone(model).set_params(**{param: epsilon}),
                records[name],
                {param: epsilon} | ({"estimator": name} if name else {}),
            )
            for (name, model), param in zip(models.items(), names, strict=True)
            for epsilon in epsilons
        ]
        others = [
            _baseline_candidate(name, model, models, records) for name, model in compared.items()
        ]
        shared = share_first_steps(candidates + others, n_train)
        candidates, others = shared[: len(candidates)], shared[len(candidates) :]
        constant = _baseline_candidate(
            name_constant(is_regressor(first)), make_constant(is_regressor(first)), models, records
        )
        kept = None
        if path is not None:
            again = validate_splits(splitter, self.cv, X, y, **routed.split)
            plan = describe_sweep(self, models, names, records, [splits, again])
            kept = ResultStore.at(path, plan)
        fits = SweepRunner(splits, scorers, attack, kept, self.n_jobs, self.verbose)
        total = len(candidates) * len(splits) + (refit is not None)
        last = [] if refit is None else [(candidates[refit], np.arange(num_samples(X)))]
        unpaid = [*fits.iter_unpaid(candidates), *last]
        check_first_fits(unpaid)
        check_affordable(unpaid)
        free = fits.baselines(others, isinstance(self.baseline, str))  # nothing is charged yet
        floor = fits.score_constant(constant)
        rows = fits.models(candidates, total)
        beside = fits.list_earlier_claims(candidates)
        if refit is not None:
            final = candidates[refit]
            with fits.note_remaining_charges(total):
                model = clone(final.model).fit(X, y, **final.records.fit_params)
            beside.append(claim_of(model, X))
            if kept is not None:
                kept.keep_refit(beside[-1])

        if hasattr(self, "estimator_"):  # of an earlier fit
            del self.estimator_
        self.n_samples_, self.n_splits_ = num_samples(X), len(splits)
        self.test_per_train_ = float(np.mean([len(test) / len(train) for train, test in splits]))
        self.attack_name_, self.scorer_ = type(attack).__name__, scorers
        self.scores_, self.subgroups_ = list(scorers), by
        self.cv_results_ = arrange_results(rows, [c.params for c in candidates], len(splits))
        self.baseline_results_, fitted = _collect_baselines(others, free, len(splits))
        self.constant_results_ = arrange_results(floor, [constant.params], len(splits))
        self.group_results_ = {
            "models": collect_groups(rows, len(splits)),
            "baselines": collect_groups(fitted, len(splits)),
        }
        main = self.scores_[0]
        self.best_index_ = int(np.argmin(self.cv_results_[f"rank_test_{main}"]))
        self.best_score_ = float(self.cv_results_[f"mean_test_{main}"][self.best_index_])
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        claims = [row["claim"] for row in rows]
        n = self.n_splits_
        self.guarantees_ = [_joint_cost(claims[i : i + n]) for i in range(0, len(claims), n)]
        self.charged_ = _joint_cost([*claims, *beside])
        if refit is not None:
            self.estimator_ = model
        return self

    def _unfitted_model(self) -> Any:
        raise AttributeError(
            "PrivacySweepCV keeps no model with refit=None. Set refit=<epsilon> to keep one."
        )

    @delegates_to("score")
    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Score the refitted model by ``scoring``, the first of several.

        ``params`` are routed to the scorer, with ``enable_metadata_routing``.
        """
        check_y(y)
        if y is not None:
            check_one_type("y", y)
        name, scorer = next(iter(validate_scorers(self.estimator_, self.scoring).items()))
        routed = self._routed_to_score(name, params)
        with name_failing_model(self.estimator_, "scored on X and y"):
            return scorer(self.estimator_, X, y, **routed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(next(iter(validate_models(self.estimator).values())))
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        if self.refit is not None:  # only then can it predict
            tags.estimator_type = inner.estimator_type
            tags.classifier_tags = inner.classifier_tags
            tags.regressor_tags = inner.regressor_tags
        return tags


def _baseline_candidate(
    name: str, model: Any, models: dict[str, Any], records: dict[str, Records]
) -> Candidate:
    """Return a baseline, with the fit arguments of its private sibling, or weights."""
    own = _baseline_records(name, model, models, records)
    return Candidate(name, model, own, {"baseline": name}, repr(model))


def _baseline_records(
    name: str, model: Any, models: dict[str, Any], records: dict[str, Records]
) -> Records:
    for owner, own in records.items():
        if name == sibling_name(owner):
            return own
    owner, own = next(iter(records.items()))
    weights = check_weights(
        model, split_weights(own.fit_params, models[owner])[0], num_samples(own.X)
    )
    given = {} if weights is None else {weight_name(model): weights}
    if own.groups is not None:
        given |= dict.fromkeys(group_names(model), own.groups)
    return replace(own, fit_params=given)


def _collect_baselines(
    others: list[Candidate], rows: list[Any], n_splits: int
) -> tuple[dict[str, Any], list[Any]]:
    """Return the results of the baselines that could be fitted on all splits, and their rows."""
    each = [rows[i : i + n_splits] for i in range(0, len(rows), n_splits)]
    fitted = [i for i, found in enumerate(each) if None not in found]
    if not fitted:
        return {}, []
    kept = [row for i in fitted for row in each[i]]
    return arrange_results(kept, [others[i].params for i in fitted], n_splits), kept


def _joint_cost(claims: list[Claim]) -> PrivacyGuarantee:
    """Return the joint cost of all trained models; one without a claim is not private."""
    whole = joint_claim(claims)
    note = "the joint guarantee covers the trained models, not their scores or attacks on them"
    if whole.charged is None:
        return PrivacyGuarantee(NonPrivateEvent(), assumptions=(whole.reason, note))
    return replace(whole.charged, assumptions=(*whole.charged.assumptions, note))
