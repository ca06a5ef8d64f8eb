"""Base of PATE-like classifiers: a student fitted to noisy votes on public records.

:class:`PublicRecords` holds the public records, which may be drawn from a schema, and
:func:`choose_queries` chooses those that are voted on.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.dummy import DummyClassifier
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted

from .. import _config
from .._clones import WrappedClassifier, constant_model, trial_fit
from .._environment import one_thread
from .._groups import Groups
from .._input_data import as_frame, check_array, check_readable, read_records, validate_data
from .._sklearn import HasMethods, safe_indexing
from .._validation import Interval, check_delta_is_small, check_random_state, num_samples
from ..accounting import ComposedEvent, Event, PrivacyBudget
from ..base import PrivateEstimatorMixin, PrivateFit
from ..exceptions import PrivacyWarning
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema
from ..preprocessing.columns import Column
from ..preprocessing.transformer import check_columns
from .aggregators import UNANSWERED
from .students import PropagationStudent, default_students, fit_student, select_student

# Paragraphs of docstrings that PATE and Private-kNN share, see skprivacy/_docs.py.
STUDENT_DOCS = {
    "teacher": """\
teacher : classifier or pipeline, default=None
    Classifier cloned and fitted on each partition. ``None`` means logistic regression.""",
    "store_labels": """\
store_labels : bool, default=False
    Whether to keep the noisy labels as ``labels_``. They are released anyway.""",
    "training_of_teachers": """\
n_jobs : int, default=None
    Number of teachers trained at once, through joblib.
device : str, default="cpu"
    Device that trains the teachers. "cuda" trains all of them at once on a GPU, "auto" does so if
    there is one; both need ``MLPClassifier(solver="adam", early_stopping=False)`` without a
    pipeline.
random_state : int, RandomState instance or None, default=None
    Seed of the partition, the teachers, the student and the choice of queries, never of the
    noise.""",
    "student_": """\
student_ : classifier
    The fitted student. It predicts indices of ``classes_``.""",
    "aggregator_": """\
aggregator_ : object
    The aggregator, with the noise that was used.""",
    "votes_raises": """\
ValueError
    If a parameter, a shape or a label is not as described. Nothing has been released then.
BudgetExceededError
    If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.""",
}
N_DRAWN = 2000  # records drawn from a schema if no public ones are given
_N_TRIAL_RECORDS = 200  # public records on which the student is tried before anything is charged


class StudentClassifier(PrivateEstimatorMixin, WrappedClassifier, BaseEstimator):
    """Classifier that predicts by a student, fitted to noisy labels of public records."""

    _wrapped = "student_"
    _REMEDY = "pass real public records"
    _LABEL_REMEDY: ClassVar[str]
    # attributes that save_model writes; persistence.attribute_states explains the words
    _saved_state = {
        "classes_": "labels",
        "privacy_": "guarantee",
        "student_": "learner learner",
    }

    student: Any
    schema: Schema | None
    store_labels: bool
    random_state: Any
    epsilon: float
    delta: float

    _parameter_constraints: dict = {
        "student": [HasMethods(["fit", "predict"]), None],
        "n_queries": [Interval(Integral, 1, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "classes": ["array-like", None],
        "store_labels": ["boolean"],
        "random_state": ["random_state"],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a check has too few records for an ensemble
        return tags

    def _read_records(
        self, X: Any, y: Any, groups: Any, **checks: Any
    ) -> tuple[Any, NDArray, Groups]:
        self._validate_params()
        records = read_records(self, X, y, groups, **{"tables": "keep_text", **checks})
        check_delta_is_small(self.delta)
        return records

    def _check_public(
        self, fit: PrivateFit, X: Any, given: Any, random: np.random.RandomState
    ) -> Any:
        fit.assume("the public records and their choice depend on no private record")
        if given is None:
            schema = self._schema_of_records(fit, X)
            _config.warn_caller(
                "X_public=None: queries are drawn from the schema, each column independently. They "
                f"look like no real records, so their labels teach little; {self._REMEDY}.",
                PrivacyWarning,
            )
            return to_container_of(X, draw_records(schema, N_DRAWN, random))
        public = given.X if isinstance(given, PublicRecords) else given
        if isinstance(public, pd.DataFrame):
            check_readable(public, "X_public")
        else:
            public = check_array(
                public, dtype=None, order="C", input_name="X_public", ensure_all_finite=False
            )
        n_features = public.shape[1]
        if n_features != self.n_features_in_:
            raise ValueError(
                f"X_public has {n_features} features and X has {self.n_features_in_}. A pipeline "
                "transforms public records only if it is made as "
                "Pipeline(steps, transform_input=['X_public'])."
            )
        names = list(getattr(self, "feature_names_in_", []))
        if names and isinstance(public, pd.DataFrame) and list(public.columns) != names:
            raise ValueError(
                f"X_public has the columns {list(public.columns)} and X has {names}: teachers "
                "could not label it. Pass the same columns in the same order, X_public[X.columns]."
            )
        return public

    def _assume_schemas(self, fit: PrivateFit) -> None:
        """Add the assumptions of the schemas that are part of the teacher or the student."""
        for name, value in self.get_params().items():
            if name != "schema" and isinstance(value, Schema):
                value.warn_if_unconfirmed()
                fit.assume(*value.assumptions)

    def _schema_of_records(self, fit: PrivateFit, X: Any) -> Schema:
        """Return the schema from which to draw records that resemble ``X``."""
        schema = self.schema
        if schema is None:
            schema = Schema.infer(X if isinstance(X, pd.DataFrame) else pd.DataFrame(X))
        else:
            schema.warn_if_unconfirmed()
        fit.assume(*schema.assumptions)
        if len(schema) != self.n_features_in_:
            raise ValueError(
                f"schema has {len(schema)} columns and X has {self.n_features_in_}. Give the "
                "schema of the records that reach the teacher, or X_public."
            )
        check_columns(schema, X)
        schema._check_kinds(type(self).__name__, missing=True)
        return schema

    def _unfitted_model(self) -> Any:
        """Return an unfitted student with the methods of the one that will be fitted."""
        return PropagationStudent() if self.student is None else clone(self.student)

    def _try_student(self, public: Any, queries: NDArray[np.intp]) -> None:
        """Fit a student to made-up labels, so that it fails before any label is paid for."""
        if len(queries) < 2:
            return
        made_up = np.full(num_samples(public), UNANSWERED, np.int64)
        made_up[queries] = np.arange(len(queries)) % len(self.classes_)
        some = np.union1d(
            queries[:_N_TRIAL_RECORDS], np.arange(min(_N_TRIAL_RECORDS, num_samples(public)))
        )
        remedy = (
            "Pass a student that takes them, for instance a pipeline that begins with "
            "SchemaTransformer."
        )
        with trial_fit(f"student={self.student!r}", "the public records", remedy):
            records = safe_indexing(public, some)
            given = self.student is not None
            for student in [self._unfitted_model()] if given else default_students(records):
                fit_student(student, records, made_up[some])

    def _learn(self, public: Any, queries: NDArray[np.intp], answers: NDArray[np.int64]) -> None:
        """Fit the student to noisy labels of the queries, the only figures of private records."""
        labels = scatter_labels(answers, queries, num_samples(public))
        self.student_ = self._fit_student(public, labels)
        if isinstance(self.student_, DummyClassifier):
            _config.warn_caller(
                "The student predicts one class for all records: the released labels do not "
                f"separate the records. {self._LABEL_REMEDY}.",
                PrivacyWarning,
            )
        if self.store_labels:
            self.labels_ = labels

    def _fit_student(self, public: Any, labels: NDArray[np.int64]) -> Any:
        """Return a fitted student; a constant one if the labels do not separate the records."""
        counts = np.bincount(labels[labels != UNANSWERED], minlength=1)
        student = None
        if np.count_nonzero(counts) > 1:
            given = self.student is not None
            student = self._unfitted_model() if given else select_student(public, labels)
        if student is None:
            return constant_model(int(counts.argmax()))
        for name in student.get_params():
            if name.split("__")[-1] == "random_state" and self.random_state is not None:
                student.set_params(**{name: check_random_state(self.random_state).randint(1 << 31)})
        return fit_student(student, public, labels)

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "student_")
        X = as_frame(X)
        rows = validate_data(self, X, tables="keep_text", reset=False)
        # A student fitted to a DataFrame looks its columns up by name.
        named = isinstance(X, pd.DataFrame) and hasattr(self.student_, "feature_names_in_")
        return X if named else rows


class PublicRecords:
    """Public records as one object, which a cross-validation does not split.

    scikit-learn's cross-validation splits any array with as many rows as ``X`` into folds. It would
    split public records of the same number, unless they are wrapped in this class.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_public, n_features)
        Public records, or records of people who consented.

    Notes
    -----
    The object caches encoders: :class:`~skprivacy.fine_tuning.ALMFineTuner` fits each encoder once
    for equal parameters, however many folds and candidates a search has. A search in several
    processes fits it in each process. Pass a fitted encoder there, as
    ``sklearn.frozen.FrozenEstimator(encoder)``.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.ensemble import PublicRecords
    >>> PublicRecords(np.zeros((5, 2)))
    PublicRecords(5 records)
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        self._encoders: dict[str, Any] = {}

    def _encoder_like(self, encoder: Any, X: Any) -> Any:
        """Return a clone fitted to ``X``, these records, from the cache if parameters are equal."""
        fresh = clone(encoder)
        key = joblib.hash(fresh)
        if key not in self._encoders:
            self._encoders[key] = fresh.fit(X)
        return self._encoders[key]

    def __repr__(self) -> str:
        return f"PublicRecords({num_samples(self.X)} records)"


def to_container_of(X: Any, drawn: pd.DataFrame) -> Any:
    """Return drawn records in the container of ``X``."""
    return drawn[list(X.columns)] if isinstance(X, pd.DataFrame) else drawn.to_numpy(np.float64)


def compose_with_marginals(beside: Event | None, votes: Event) -> Event:
    """Return the event of the votes, composed with the marginals' event if there is one."""
    return votes if beside is None else ComposedEvent((beside, votes))


def scatter_labels(
    answers: NDArray[np.int64], queries: NDArray[np.intp], n_public: int
) -> NDArray[np.int64]:
    """Return the label of each public record; -1 for records without an answer."""
    labels = np.full(n_public, UNANSWERED, np.int64)
    labels[queries] = answers
    return labels


def draw_records(schema: Schema, n: int, random: np.random.RandomState) -> pd.DataFrame:
    """Return records drawn from the ranges and categories of a schema, each column by itself."""
    columns = {name: _draw_column(fact, n, random) for name, fact in schema.items()}
    return pd.DataFrame(columns)


def with_public_categories(X: Any, public: Any) -> Any:
    """Give categorical columns of private records the categories of the public records, if any."""
    # pandas lists the categories of all records, so one record with a unique category would
    # renumber the categories of the others. Values outside the public categories become missing.
    if not isinstance(X, pd.DataFrame):
        return X
    listed = dict(public.dtypes) if isinstance(public, pd.DataFrame) else {}
    X = X.copy(deep=False)
    for name, dtype in X.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            known = listed.get(name)
            X[name] = (
                X[name].cat.set_categories(known.categories, ordered=known.ordered)
                if isinstance(known, pd.CategoricalDtype)
                else X[name].astype(object)
            )
    return X


def check_not_private(public: Any, X: Any) -> None:
    """Refuse private records passed as public ones, by identity of the object: copies pass."""
    if (public.X if isinstance(public, PublicRecords) else public) is X:
        raise ValueError(
            "X_public must not be X: public records must come from people outside the guarantee. "
            "Pass other records."
        )


def choose_queries(X: Any, n: int, random: np.random.RandomState) -> NDArray[np.intp]:
    """Return ``n`` public records to query, in random order: those nearest to cluster centres."""
    n_public = num_samples(X)
    matrix = _as_finite_matrix(X)
    if matrix is None or n >= n_public:
        return random.permutation(n_public)[:n]
    with one_thread(matrix.size):
        clusters = MiniBatchKMeans(n, n_init=1, batch_size=4096, random_state=random).fit(matrix)
        nearest = np.unique(pairwise_distances_argmin(clusters.cluster_centers_, matrix))
    others = np.setdiff1d(random.permutation(n_public), nearest)
    chosen = np.concatenate([nearest, random.permutation(others)[: n - len(nearest)]])
    return random.permutation(chosen)


def _draw_column(fact: Column, n: int, random: np.random.RandomState) -> NDArray[Any]:
    if isinstance(fact, BoundedColumn):
        return random.uniform(fact.lower, fact.upper, n)
    assert isinstance(fact, CategoricalColumn)
    return np.array(fact.values, dtype=object)[random.randint(len(fact.values), size=n)]


def _as_finite_matrix(X: Any) -> NDArray[np.float64] | None:
    try:
        matrix = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return matrix if np.isfinite(matrix).all() else None
