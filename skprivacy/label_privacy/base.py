"""Base of label-private classifiers: release noisy labels once, then learn from them."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._clones import WrappedClassifier, trial_fit
from .._docs import fill_docs
from .._groups import Groups
from .._input_data import check_cells, read_records, validate_data
from .._sklearn import HasMethods, safe_indexing
from .._validation import Interval, check_random_state, num_samples
from ..accounting import Event, PrivacyBudget
from ..accounting.events import NonPrivateEvent
from ..accounting.guarantee import UNSPECIFIED
from ..base import PrivateEstimatorMixin, public_classes
from ..mechanisms import SecureRandom
from .posterior import fit_on_posterior, fit_on_weights

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
LABEL_DOCS = {
    "label_model": """\
estimator : classifier or pipeline, default=None
    Classifier cloned and fitted to indices of classes, with a sample weight for each class of a
    record. If it takes no ``sample_weight``, labels are drawn with these weights. ``None`` means
    logistic regression on min-max scaled features.
%(label_epsilon)s
n_rounds : int, default=3
    Number of times that the probabilities of the true labels are estimated. All rounds use the
    labels released once, so more rounds cost time, not privacy.
n_folds : int, default=3
    Folds of the cross-fitting between rounds: a record's label is estimated by a model that was
    fitted without it.""",
    "label_epsilon": """\
epsilon : float, default=1.0
    Privacy loss of a label, in nats. Smaller is more private. ``numpy.inf`` fits without noise
    **and without any guarantee**, for comparison.""",
    "label_run": """\
%(classes)s
store_labels : bool, default=False
    Whether to keep the released labels as ``labels_``.
random_state : int, RandomState instance or None, default=None
    Seed of the estimator and of all choices of records, never of the noise.
%(budget)s
%(noise_seed)s""",
    "label_attributes": """\
labelled_ : ndarray of shape (n_groups,)
    With ``store_labels``: positions of the records of ``labels_``, one record of each group.
%(classes_)s
estimator_ : classifier
    The fitted estimator. It predicts indices of ``classes_``.
%(guarantee_attributes)s
%(feature_attributes)s""",
    "label_notes": """\
With ``groups`` all labels of a group are protected together, and one of them is released. Features
and membership are public and unprotected.

**Edge cases.** If all noisy labels are of one class, that class is always predicted. With an
estimator that has neither ``predict_proba`` nor ``decision_function``, rounds gain little.""",
}
GROUPS_ARE_PUBLIC = "whose labels they are is public"

LARGEST_EPSILON = 699.0  # responses are true but for a negligible probability; exp(699) is finite
_N_TRIAL_RECORDS = 200  # records on which the estimator is tried before any label is released


@fill_docs
class NoisyLabelClassifier(PrivateEstimatorMixin, WrappedClassifier, BaseEstimator):
    """Classifier that releases each label once, with noise, and learns from the noisy labels."""

    # attributes that save_model writes; persistence.attribute_states explains the words
    _saved_state = {
        "classes_": "labels",
        "privacy_": "guarantee",
        "estimator_": "learner learner",
    }
    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "n_folds": [Interval(Integral, 2, None, closed="left")],
        "classes": ["array-like", None],
        "store_labels": ["boolean"],
        "random_state": ["random_state"],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    _arithmetic = UNSPECIFIED  # of the noise; a subclass states it
    _protects_labels = True  # and nothing else; membership attacks warn about it before a fit

    def __init__(
        self,
        estimator: Any = None,
        *,
        epsilon: float = 1.0,
        n_rounds: int = 3,
        n_folds: int = 3,
        classes: ArrayLike | None = None,
        store_labels: bool = False,
        random_state: int | np.random.RandomState | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.epsilon = epsilon
        self.n_rounds = n_rounds
        self.n_folds = n_folds
        self.classes = classes
        self.store_labels = store_labels
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None) -> Any:
        """Release the labels once, with noise, and learn from them.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Public features, in the form that the estimator takes.
        y : array-like of shape (n_samples,)
            Private labels, each one of ``classes``.
        groups : array-like of shape (n_samples,), default=None
            Group of each label. The guarantee then protects all labels of a group together. One
            record of each group is drawn at random, and the labels of the others are not used.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        ValueError
            If a parameter, a shape or a label is not as described. Nothing has been released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.
        """
        with self._private_fit() as fit:
            X, y, units = self._read_records(X, y, groups)
            if units.n < 2:
                raise ValueError(
                    f"groups holds {units.n} group; it needs at least 2, since one record of each "
                    "takes part. Pass the records of more groups."
                )
            self.classes_, codes = public_classes(fit, y, self.classes)
            random = check_random_state(self.random_state)
            drawn = units.at_most(1, SecureRandom(self.noise_seed))
            if groups is not None:
                fit.assume(GROUPS_ARE_PUBLIC)
                X, codes = safe_indexing(X, drawn), codes[drawn]
            self._try_estimator(X)
            k = len(self.classes_)
            event = NonPrivateEvent() if np.isinf(self.epsilon) else self._event(k)
            with fit.charged(
                event,
                relation="label",
                at_delta=0.0,
                unit=units.unit,
                arithmetic=self._arithmetic,
            ):
                noise = SecureRandom(self.noise_seed)
                labels, likelihood, prior = self._release_labels(X, codes, random, noise)
            self.estimator_ = fit_on_posterior(
                self._unfitted_model(X), X, likelihood, prior, self.n_rounds, self.n_folds, random
            )
            if self.store_labels:
                self.labels_, self.labelled_ = labels, drawn
        return self

    @abstractmethod
    def _event(self, n_classes: int) -> Event:
        """Return the event of the release of one label."""

    @abstractmethod
    def _release_labels(
        self, X: Any, codes: NDArray[np.int64], random: np.random.RandomState, noise: SecureRandom
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
        """Release each label once; return the noisy labels, their likelihoods and a prior."""

    def _unfitted_model(self, X: Any = None) -> Any:
        """Return the estimator to clone. It may scale features, since they are public."""
        if self.estimator is not None:
            return self.estimator
        scale = MaxAbsScaler() if sparse.issparse(X) else MinMaxScaler()
        return make_pipeline(scale, LogisticRegression(max_iter=1000))

    def _read_records(self, X: Any, y: Any, groups: Any) -> tuple[Any, NDArray, Groups]:
        self._validate_params()
        records = read_records(self, X, y, groups, ensure_min_samples=2, **self._input_checks())
        if isinstance(records.rows, pd.DataFrame):
            check_cells(records.rows)
        return records

    def _input_checks(self) -> dict[str, Any]:
        """Return the checks of features that the estimator needs."""
        tags = self.__sklearn_tags__().input_tags
        return {
            "tables": "keep",
            "accept_sparse": "csr" if tags.sparse else False,
            "ensure_all_finite": not tags.allow_nan,
        }

    def _try_estimator(self, X: Any) -> None:
        """Fit the estimator to made-up labels, so that it fails before any label is released."""
        some = _probe_rows(X)
        made_up = np.eye(len(self.classes_))[np.arange(len(some)) % len(self.classes_)]
        estimator = self._unfitted_model(X)
        remedy = "Pass a classifier that takes these features, for instance a pipeline."
        with trial_fit(f"estimator={estimator!r}", "X", remedy):
            fit_on_weights(estimator, safe_indexing(X, some), made_up, np.random.RandomState(0))

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        return validate_data(self, X, reset=False, **self._input_checks())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a check has too few records for this noise
        base = LogisticRegression() if self.estimator is None else self.estimator
        tags.input_tags.sparse = get_tags(base).input_tags.sparse
        first = base.steps[0][1] if isinstance(base, Pipeline) else base
        tags.input_tags.allow_nan = get_tags(first).input_tags.allow_nan
        return tags


def _probe_rows(X: Any) -> NDArray[np.intp]:
    """Return rows to try an estimator on: the first ones, and one with a NaN for each column."""
    first = np.arange(min(num_samples(X), _N_TRIAL_RECORDS))
    if sparse.issparse(X):
        return first
    missing = np.asarray(pd.isna(X))
    return np.union1d(first, missing.argmax(axis=0)[missing.any(axis=0)])
