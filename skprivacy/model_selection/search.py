"""Private search for hyper-parameters."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._clones import DelegatingMixin, delegates_to
from .._config import warn_caller
from .._groups import check_groups
from .._input_data import as_frame, check_y, column_or_1d, indexable, validate_data
from .._validation import Interval, check_delta_is_small, num_samples
from ..accounting import PrivacyBudget
from ..accounting.event import check_delta
from ..audit import claim_of
from ..base import PrivateEstimatorMixin
from ..mechanisms import SecureRandom
from .search_plan import MAX_TRIALS, NumberOfTrials, PreparedSearch, SearchPlan
from .search_trials import Candidates, HeldOut, list_settings, record_score
from .sweep_plan import epsilon_parameter

_NOISY = 0.05  # share of a score's range that its noise may have before the search warns
_GIVEN_TO_SEARCH = {
    "budget": "each trial would be charged to",
    "n_records": "counts all records, of which a trial is fitted on some",
    "noise_multiplier": "leaves a trial no epsilon to set",
    "noise_seed": "would give all trials the same noise",
}


class PrivateSearchCV(DelegatingMixin, PrivateEstimatorMixin, MetaEstimatorMixin, BaseEstimator):
    """Hyper-parameter search that is itself differentially private.

    Each trial draws hyper-parameters uniformly, fits the private estimator on most of the records,
    and scores it on the others with noise. The number of trials is random. The search releases the
    model, the settings and the noisy score of the best trial, and discards everything else.
    ``privacy_`` covers the release.

    Parameters
    ----------
    estimator : estimator
        A private estimator of this library, or a pipeline that ends with one. The other steps must
        learn nothing from private records. The estimator is cloned, never fitted itself. Each trial
        replaces its ``epsilon`` and ``delta`` by the trial's share.
    param_grid : dict or list of dict
        The settings, as in :class:`~sklearn.model_selection.GridSearchCV`: names and lists of
        values. They must be public. Parameters that determine the guarantee, such as ``epsilon``,
        are refused.
    epsilon : float, default=1.0
        Privacy loss of the **whole search**, in nats.
    delta : float, default=1e-5
        The delta of the whole search, below 1 / number of records. 0 means pure differential
        privacy, which costs a search much more.
    n_trials : float, default=10
        Mean number of trials, above 1. More trials leave less epsilon for each.
    scoring : {"accuracy", "neg_mean_absolute_error", "neg_mean_squared_error"} or callable, \
default=None
        The score to maximise: a mean over held-out records. ``None`` means the accuracy of
        classifiers, and the squared error of regressors. Errors are clipped to the estimator's
        ``target_bounds``. A callable ``scoring(y_true, y_pred)`` returns a number from 0 to 1 for
        each record, independently of the other records.
    test_size : float, default=0.2
        Share of the records held out for scoring, in (0, 1). They are drawn once, independently of
        the data.
    n_records : int, default=None
        A public figure for the number of records, or of groups if ``fit`` is given ``groups``. It
        is required if the guarantee hides this number (add/remove). It sets the estimator's
        ``n_records``, if there is one, to its share.
    budget : PrivacyBudget, default=None
        Charged once for the whole search, before the first trial.
    noise_seed : int, default=None
        Makes trials, noise and sampling reproducible **and the guarantee void**. For tests only.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best trial, which has learned from ``1 - test_size`` of the records. Its
        ``privacy_`` equals the ``privacy_`` of the search.
    best_params_ : dict
        Its hyper-parameters.
    best_score_ : float
        Its noisy score. The best of several noisy scores is too high on average.
    plan_ : SearchPlan
        How epsilon and delta were divided.
    candidates_ : list of dict
        The settings that trials drew from.
    privacy_ : PrivacyGuarantee
        The guarantee, with its relation and assumptions.
    privacy_event_ : Event
        The release, for composition with other releases.
    epsilon_, delta_ : float
        The guaranteed epsilon, and the delta at which it holds.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, when all of them are strings.

    Raises
    ------
    TypeError
        If the estimator is not private, or the guarantee of its fit is not known.
    ValueError
        If a parameter is invalid, a step learns from private records outside any guarantee, or
        candidates claim different relations. Raised before anything is charged.

    Notes
    -----
    **Guarantees.** All fitted attributes, hence all predictions, have the guarantee ``privacy_``.
    The search finds the claim of each candidate by rehearsing its fit up to the charge. A trial
    with a different claim ends the search.

    The number of trials K is random (geometric). K, the losing trials, the held-out records and all
    seeds must stay secret: for a known K, the guarantee would be the composition of K trials. So
    there are no ``cv_results_``, and warnings and progress of trials are not shown. The duration of
    a search is **not** protected, and roughly reveals K.

    **Edge cases.** K has no upper limit: with a mean of 10, one search in a hundred takes more than
    43 trials. A record that a model cannot predict, such as one with NaN, counts as wrong. An error
    in a trial ends the search, which stays charged.

    References
    ----------
    J. Liu and K. Talwar, "Private selection from private candidates", STOC 2019.

    N. Papernot and T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from skprivacy.datasets import load_demo
    >>> from skprivacy.linear_model import OutputPerturbationClassifier
    >>> from skprivacy.model_selection import PrivateSearchCV
    >>> from skprivacy.preprocessing import SchemaTransformer
    >>> digits = load_demo()
    >>> model = make_pipeline(
    ...     SchemaTransformer(digits.schema),
    ...     OutputPerturbationClassifier(
    ...         bounds=(-1, 1), classes=digits.classes, relation="zero_out"
    ...     ),
    ... )
    >>> search = PrivateSearchCV(
    ...     model, {"outputperturbationclassifier__alpha": [0.001, 0.1, 10.0]}, epsilon=8.0
    ... )
    >>> search.fit(digits.data, digits.target).privacy_
    (7.9..., 1e-05)-DP, zero-out, exact noise, proved assuming ...
    >>> sorted(search.best_params_)
    ['outputperturbationclassifier__alpha']
    """

    _wrapped = "best_estimator_"
    # attributes that save_model writes; see persistence.attribute_states for the words
    _saved_state = {
        "privacy_": "guarantee",
        "plan_": "plan",
        "candidates_": "values",
        "best_params_": "values",
        "best_score_": "number",
        "best_estimator_": "model best_estimator",
    }

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "n_trials": [Interval(Real, 1, MAX_TRIALS, closed="neither")],
        "scoring": [str, callable, None],
        "test_size": [Interval(Real, 0, 1, closed="neither")],
        "n_records": [Interval(Integral, 1, None, closed="left"), None],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        n_trials: float = 10,
        scoring: Any = None,
        test_size: float = 0.2,
        n_records: int | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.n_trials = n_trials
        self.scoring = scoring
        self.test_size = test_size
        self.n_records = n_records
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any, *, groups: Any = None, **fit_params: Any) -> PrivateSearchCV:
        """Search, and keep the best trial.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Private labels or targets.
        groups : array-like of shape (n_samples,), default=None
            Group of each record, such as a patient. Whole groups are then held out and passed to
            fits that take groups. A group adds the mean of its records to a score. The guarantee is
            for groups, and ``n_records`` counts them. A Series' name is the unit.
        **fit_params : dict
            Passed to every fit unchanged; must be public, such as a PATE model's ``X_public``.

        Returns
        -------
        PrivateSearchCV
            Itself, fitted.
        """
        with self._private_fit() as fit:
            random = self._random()
            trials = self._checked()
            candidates = self._candidates()
            drawn = random.integers(len(candidates.settings), trials.draw(random))
            search = self._prepare(trials, candidates, X, y, fit_params, random, groups)
            whole = search.plan.guarantee
            fit.assume(*whole.assumptions)
            with fit.charged(
                whole.event,
                relation=whole.relation,
                at_delta=self.delta,
                unit=whole.unit,
                arithmetic=whole.arithmetic,
            ):
                best = search.best_of(drawn, random)
            self.plan_, self.candidates_ = search.plan, candidates.settings
            self.best_estimator_, self.best_params_ = best.model, best.params
            self.best_score_ = search.score.mean(best.noisy_sum, search.data.expected)
            # The released model carries the cost of the whole search.
            part = candidates.private_part(best.model)
            for name in ("privacy_", "privacy_event_", "epsilon_", "delta_"):
                setattr(part, name, getattr(self, name))
            part.budget = self.budget  # later fits are charged, too
        return self

    def plan(self, X: Any, y: Any, *, groups: Any = None, **fit_params: Any) -> SearchPlan:
        """Return the plan and the privacy cost of a search, without charging or releasing anything.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            As for :meth:`fit`. Only public facts are used, such as the number of features.
        y : array-like of shape (n_samples,)
            As for :meth:`fit`.
        groups : array-like of shape (n_samples,), default=None
            As for :meth:`fit`.
        **fit_params : dict
            As for :meth:`fit`.

        Returns
        -------
        SearchPlan
            Its trials and its guarantee.
        """
        copy = clone(self)
        trials, candidates = copy._checked(), copy._candidates()
        return copy._prepare(trials, candidates, X, y, fit_params, SecureRandom(), groups).plan

    @delegates_to("score")
    def score(self, X: Any, y: Any) -> float:
        """Return the best model's score on these records, which is not protected.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        float
        """
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)

    def _finish_loading(self) -> None:
        """Take a search from a file as one among its candidates, and compare its parts."""
        self.candidates_ = list(self.candidates_)
        of_names = all(isinstance(setting, dict) for setting in self.candidates_)
        if not of_names or self.best_params_ not in self.candidates_:
            raise ValueError("its best parameters are not among the candidates")
        part = claim_of(self.best_estimator_).guarantee
        if part is None or part.event != self.privacy_.event:
            raise ValueError("its best model states another guarantee than the search")
        width = getattr(self.best_estimator_, "n_features_in_", self.n_features_in_)
        if not hasattr(self.best_estimator_, "predict") or width != self.n_features_in_:
            raise ValueError("its best model does not predict from its features")
        self.estimator = clone(self.best_estimator_)
        if self.param_grid is None:  # it held code
            self.param_grid = [
                {name: [value] for name, value in setting.items()} for setting in self.candidates_
            ]

    def _random(self) -> SecureRandom:
        """Return the generator of the trials, the held-out records and the noise."""
        return SecureRandom(self.noise_seed)

    def _checked(self) -> NumberOfTrials:
        self._validate_params()
        check_delta_is_small(self.delta)
        return NumberOfTrials(float(self.n_trials))

    def _candidates(self) -> Candidates:
        prefix = epsilon_parameter(self.estimator).removesuffix("epsilon")
        params = self.estimator.get_params()
        for name, instead in _GIVEN_TO_SEARCH.items():
            if params.get(prefix + name) is not None:
                raise ValueError(
                    f"The estimator has {prefix + name}={params[prefix + name]!r}, which {instead}."
                    f" Pass {name} to PrivateSearchCV instead."
                )
        fixed = {}
        if self.n_records is not None:
            fixed["n_records"] = max(1, round((1 - self.test_size) * self.n_records))
        settings = list_settings(self.param_grid)
        candidates = Candidates(self.estimator, prefix, settings, fixed)
        candidates.check()
        return candidates

    def _prepare(
        self,
        trials: NumberOfTrials,
        candidates: Candidates,
        X: Any,
        y: Any,
        fit_params: dict[str, Any],
        random: SecureRandom,
        groups: Any = None,
    ) -> PreparedSearch:
        """Return a search within the budget; nothing has been charged or released."""
        for name, value in fit_params.items():
            if value is not None and name.rpartition("__")[2] == "groups":
                raise ValueError(
                    f"{name} is given to one step alone, but people have to be held out and "
                    "scored as well. Pass groups itself: fit(X, y, groups=...)."
                )
            if getattr(value, "X", value) is X or value is y:
                raise ValueError(
                    f"{name} holds the records that the search protects, but trials treat it as "
                    "public. Pass public records."
                )
        X = as_frame(X)
        num_samples(X)  # refuses what holds none
        check_y(y)
        X, y = indexable(X, y)
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        part = candidates.private_part(candidates.estimator)
        score = record_score(self.scoring, self.estimator, getattr(part, "target_bounds", None))
        groups = None if groups is None else check_groups(groups, X)
        data = HeldOut.draw(X, y, self.test_size, self.n_records, random, groups)
        check_delta(self.delta, self.n_records or (groups.n if groups else num_samples(X)))
        search = PreparedSearch.calibrate_to(
            self.epsilon, self.delta, trials, candidates, score, data, fit_params
        )
        relation = search.plan.guarantee.relation
        if (relation == "add_remove") != (self.n_records is not None):
            raise ValueError(
                f"n_records={self.n_records!r} does not fit relation={relation!r}: the number of "
                "records is private under 'add_remove' alone, and a public figure for it is needed "
                "there. Set n_records, or the estimator's relation."
            )
        if search.plan.score_std > _NOISY * (score.high - score.low):
            warn_caller(
                f"The scores ({score.name}) by which the search chooses carry noise of standard "
                f"deviation {search.plan.score_std:.2g}: it chooses nearly at random, and each "
                f"trial has an epsilon of {search.plan.trial_epsilon:.2g} instead of "
                f"{self.epsilon:g}. Searching does not pay here: fit the estimator once, with its "
                "defaults.",
                UserWarning,
            )
        return search

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type, tags.classifier_tags = inner.estimator_type, inner.classifier_tags
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags, tags.target_tags = inner.input_tags, inner.target_tags
        return tags
