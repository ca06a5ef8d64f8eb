"""PATE: private aggregation of teacher ensembles (Papernot et al. 2017 and 2018)."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from .._docs import fill_docs
from .._environment import N_JOBS
from .._groups import Groups
from .._sklearn import HasMethods, StrOptions, safe_indexing
from .._validation import Interval, check_random_state, num_samples
from ..accounting import Event, PrivacyBudget, epsilon_of, weakest_arithmetic
from ..accounting.event import check_delta
from ..base import PrivateFit, public_classes
from ..mechanisms import SecureRandom
from ..preprocessing import Schema
from .aggregators import MAX_TEACHERS, Aggregator, GNMax, Student
from .drawn_records import Marginals
from .student_classifier import (
    N_DRAWN,
    STUDENT_DOCS,
    StudentClassifier,
    check_not_private,
    choose_queries,
    compose_with_marginals,
    draw_records,
    scatter_labels,
    to_container_of,
    with_public_categories,
)
from .teachers import (
    MOVED_VOTES,
    PARTITIONS,
    check_teacher,
    count_votes,
    partition_by_group,
    partition_by_hash,
    partition_by_index,
)


class TeacherEnsembleClassifier(StudentClassifier):
    """Base of PATE classifiers: teachers of partitions vote on records, and a student learns."""

    _LABEL_REMEDY = (
        "Use a teacher that learns from n_samples / n_teachers records, fewer teachers, or a "
        "larger epsilon"
    )

    teacher: Any
    n_teachers: int
    aggregator: Aggregator | None
    n_jobs: int | None
    device: str

    _parameter_constraints: dict = {
        **StudentClassifier._parameter_constraints,
        "teacher": [HasMethods(["fit", "predict"]), None],
        "n_teachers": [Interval(Integral, 2, MAX_TEACHERS, closed="both")],
        "aggregator": [Aggregator, None],
        "n_jobs": N_JOBS,
        "device": [str],
    }

    def _check_models(self, public: Any, queries: NDArray[np.intp]) -> Any:
        """Return the teacher; refuse it, or the student, before any label is paid for."""
        asks = self.aggregator is not None and self.aggregator.asks_student
        if asks and not hasattr(self._unfitted_model(), "predict_proba"):
            raise ValueError(
                f"student={self.student!r} has no predict_proba, which "
                f"aggregator={self.aggregator!r} needs. Use a student that has one, or another "
                "aggregator."
            )
        teacher = LogisticRegression(max_iter=1000) if self.teacher is None else self.teacher
        check_teacher(teacher, public, self.classes_, self.device)
        self._try_student(public, queries)
        return teacher

    def _calibrate_aggregator(
        self, n_queries: int, moved: int, relation: str, beside: Event | None = None
    ) -> Aggregator:
        """Return the aggregator with its noise; refuse one whose cost exceeds ``epsilon``."""
        aggregator = GNMax() if self.aggregator is None else self.aggregator
        target = float(self.epsilon), float(self.delta)
        ready = aggregator._calibrated(n_queries, moved, *target, relation, beside)
        if aggregator.noise is not None and math.isfinite(self.epsilon):
            event = compose_with_marginals(beside, ready.event(n_queries, moved))
            cost = epsilon_of(event, self.delta, relation)
            if cost > self.epsilon:
                asked = f"{n_queries} queries{'' if beside is None else ' and the marginals'}"
                raise ValueError(
                    f"aggregator={aggregator!r} costs epsilon={cost:.4g} for {asked}, above "
                    f"epsilon={self.epsilon!r}. Give more noise, fewer queries or a larger "
                    "epsilon, or leave the aggregator's noise None."
                )
        return ready

    def _answer_queries(
        self,
        teacher: Any,
        X: Any,
        y: NDArray[Any],
        parts: NDArray[np.int64],
        seeds: NDArray[np.int64],
        public: Any,
        queries: NDArray[np.intp],
        moved: int,
        noise: SecureRandom,
    ) -> NDArray[np.int64]:
        """Return the noisy label of each query by the teachers of the partitions."""
        # Papernot et al. 2017, PATE: teachers on disjoint partitions, then noisy votes
        votes = count_votes(
            teacher, X, y, parts, self.n_teachers, safe_indexing(public, queries), self.classes_,
            seeds, self.n_jobs, self.device,
        )  # fmt: skip
        # Papernot et al. 2017 and 2018: the noisy aggregation of the votes
        expected = self._make_vote_predictor(public, queries, self.n_teachers)
        return self.aggregator_.release(votes, moved, noise, expected)

    def _make_vote_predictor(self, public: Any, queries: NDArray[np.intp], n_votes: int) -> Student:
        """Return a function from released labels to the votes that a student of them expects."""
        asked = safe_indexing(public, queries)

        def expected(answers: NDArray[np.int64]) -> NDArray[np.float64]:
            shares = np.zeros((len(queries), len(self.classes_)))
            student = self._fit_student(
                public, scatter_labels(answers, queries, num_samples(public))
            )
            if not isinstance(student, DummyClassifier):
                shares[:, student.classes_] = student.predict_proba(asked)
            return n_votes * np.clip(np.nan_to_num(shares), 0.0, 1.0)

        return expected


@fill_docs(STUDENT_DOCS)
class PATEClassifier(TeacherEnsembleClassifier):
    """PATE classifier: any classifier, made private by noisy votes (Papernot et al. 2018).

    The private records are partitioned, and a teacher is trained on each partition. The teachers
    vote on the labels of a few public records, noise is added to the votes, and a student learns
    from the winners. The fitted model holds the student only.

    PATE needs public records without labels, of the same kind as the private ones. It also needs
    many private records, since each teacher learns from one partition only. For tables, and without
    public records, :class:`~skprivacy.neural_network.DPSGDClassifier` is the better choice.

    Parameters
    ----------
    %(teacher)s
        An ``MLPClassifier(solver="adam", early_stopping=False)``, alone or at the end of a
        pipeline, is trained in single precision, which is two to three times as fast.
    student : classifier or pipeline, default=None
        Classifier cloned and fitted on the answered public records. A classifier of
        ``sklearn.semi_supervised``, or with ``semi_supervised = True``, gets all public records,
        with label -1 where unanswered. ``None`` cross-validates :class:`PropagationStudent` and
        logistic regression on the released labels, and takes the better one, at no privacy cost.
        For both, columns that are not numbers are one-hot encoded.
    n_teachers : int, default=250
        Number of teachers. With more teachers noise matters less, but each has fewer records. A
        rule of thumb is at most a few hundred records for each.
    aggregator : GNMax, LNMax, ConfidentGNMax or InteractiveGNMax, default=None
        Rule that turns votes into labels. ``None`` means :class:`GNMax`.
    n_queries : int, default=100
        Number of public records to label; each costs privacy. If there are fewer, all are labelled.
    partition : {"hash", "index"}, default="hash"
        How records are assigned to teachers: "hash" by a keyed hash of the record, or of its
        group; "index" by position, in equal parts.
    relation : {"add_remove", "zero_out", "replace_one"}, default=None
        Neighbouring relation. ``None`` means "add_remove" for "hash" and "zero_out" for "index".
        "add_remove" needs "hash". Under "hash", "replace_one" changes two teachers and costs
        accordingly.
    %(epsilon)s
    delta : float, default=1e-5
        In (0, 1).
    %(classes)s
    schema : Schema, default=None
        Public ranges and categories of the columns. Records are drawn from it if ``fit`` gets no
        public ones.
    marginal_share : float, default=0.0
        Share of ``epsilon``, in [0, 1), for noisy counts of the private records by column and
        class. If ``fit`` gets no public records, they are drawn from these counts instead of from
        the schema alone. 0.2 is a good start for tables of some dozen columns.
    %(store_labels)s
    %(training_of_teachers)s
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(student_)s
    %(aggregator_)s
    labels_ : ndarray of shape (n_public,)
        With ``store_labels``: indices of classes, -1 for records without an answer.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of the student, for any teachers.
    The unit is a record or, with ``groups``, a group. The claim is independent of the votes, and
    covers all declared queries and answers, made or not. A teacher cannot be trained if its
    partition is empty, has one class, or makes it fail. It then votes by a public rule, and this is
    not reported.

    **Edge cases.** A record with NaN is passed to its teacher, since refusing it would reveal its
    presence. With few records and many teachers, most votes come from the public rule. The student
    is then private, but useless. A teacher that cannot learn from its few records, such as boosting
    with ``min_samples_leaf=20`` on 30 of them, votes for one class, and for the first class in a
    tie. If all answers are of one class, the student predicts that class; without any answer, the
    first class. If neither default student ranks the answered records in cross-validation better
    than a guess, the student predicts the most frequent answer. Both cause a
    :class:`~skprivacy.exceptions.PrivacyWarning`, computed from the released answers. The types of
    a DataFrame's columns are assumed public, because one record, such as a text among numbers,
    changes the type of a whole column.

    References
    ----------
    N. Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training
    data", ICLR 2017.
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skprivacy.ensemble import PATEClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6000, 3))
    >>> y = X[:, 0] > 0
    >>> model = PATEClassifier(GaussianNB(), n_teachers=200, epsilon=5.0, classes=[False, True])
    >>> model = model.fit(X[:4000], y[:4000], X_public=X[4000:5000])
    >>> model.privacy_
    (5.00, 1e-05)-DP, add-remove, exact noise, proved assuming the public records and their
    choice depend on no private record
    >>> model.score(X[5000:], y[5000:]) > 0.6
    True
    """

    _REMEDY = (
        "pass real public records, or marginal_share=0.2, which draws them from noisy counts of "
        "the private ones, paid out of the same epsilon"
    )
    _parameter_constraints: dict = {
        **TeacherEnsembleClassifier._parameter_constraints,
        "partition": [StrOptions(set(PARTITIONS))],
        "relation": [StrOptions({"add_remove", "zero_out", "replace_one"}), None],
        "schema": [Schema, None],
        "marginal_share": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        teacher: Any = None,
        student: Any = None,
        *,
        n_teachers: int = 250,
        aggregator: Aggregator | None = None,
        n_queries: int = 100,
        partition: str = "hash",
        relation: str | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        classes: ArrayLike | None = None,
        schema: Schema | None = None,
        marginal_share: float = 0.0,
        store_labels: bool = False,
        n_jobs: int | None = None,
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.n_teachers = n_teachers
        self.aggregator = aggregator
        self.n_queries = n_queries
        self.partition = partition
        self.relation = relation
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.schema = schema
        self.marginal_share = marginal_share
        self.store_labels = store_labels
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(
        self, X: Any, y: ArrayLike, *, X_public: Any = None, groups: ArrayLike | None = None
    ) -> PATEClassifier:
        """Train teachers on private records, and a student on public records.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Private records, in the form that the teacher takes.
        y : array-like of shape (n_samples,)
            Their labels, each one of ``classes``.
        X_public : array-like, DataFrame or PublicRecords of shape (n_public, n_features), \
                default=None
            Public records without labels. In a cross-validation wrap them in
            :class:`PublicRecords`. In a pipeline set ``transform_input=["X_public"]``, with
            metadata routing enabled and ``set_fit_request(X_public=True)``. ``None`` draws records
            from ``schema``, see ``marginal_share``.
        groups : array-like of shape (n_samples,), default=None
            Group of each record. All records of a group go to one teacher, so that the guarantee
            protects the group. Needs ``partition="hash"``.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        %(votes_raises)s
        """
        with self._private_fit() as fit:
            check_not_private(X_public, X)
            X, y, units = self._read_records(X, y, groups)
            relation, moved = self._relation_and_moved_votes(groups)
            self._assume_schemas(fit)
            self.classes_, codes = public_classes(fit, y, self.classes)
            random = check_random_state(self.random_state)
            public, marginals = self._choose_public_records(fit, X, X_public, relation, random)
            X = with_public_categories(X, public)
            queries = choose_queries(public, min(self.n_queries, num_samples(public)), random)
            teacher = self._check_models(public, queries)
            seeds = random.randint(np.iinfo(np.int32).max, size=self.n_teachers)
            if relation != "add_remove":
                check_delta(self.delta, units.n)
            beside = None if marginals is None else marginals.mechanism.event
            self.aggregator_ = self._calibrate_aggregator(len(queries), moved, relation, beside)
            event = compose_with_marginals(beside, self.aggregator_.event(len(queries), moved))
            arithmetic = self.aggregator_.arithmetic
            if marginals is not None:
                arithmetic = weakest_arithmetic((arithmetic, marginals.mechanism.arithmetic))
            with fit.charged(
                event,
                relation=relation,
                at_delta=self.delta,
                unit=units.unit,
                arithmetic=arithmetic,
            ):
                noise = SecureRandom(self.noise_seed)
                if marginals is not None:
                    counts = marginals.counts(X, codes, units.exact_shares())
                    counts = marginals.mechanism.release(counts, noise)
                    public = to_container_of(X, marginals.draw_records(counts, N_DRAWN, random))
                    queries = choose_queries(public, len(queries), random)
                parts = self._partition(X, y, units, random)
                answers = self._answer_queries(
                    teacher, X, y, parts, seeds, public, queries, moved, noise
                )
            # Papernot et al. 2017, PATE: the student sees public records and noisy labels only
            self._learn(public, queries, answers)
        return self

    def _choose_public_records(
        self,
        fit: PrivateFit,
        X: Any,
        X_public: Any,
        relation: str,
        random: np.random.RandomState,
    ) -> tuple[Any, Marginals | None]:
        """Return public records, or stand-ins from the schema and the marginals to draw from."""
        if X_public is not None or self.marginal_share == 0:
            return self._check_public(fit, X, X_public, random), None
        schema = self._schema_of_records(fit, X)
        target = float(self.marginal_share) * float(self.epsilon), float(self.delta)
        marginals = Marginals(schema, len(self.classes_), *target, relation)
        return to_container_of(X, draw_records(schema, N_DRAWN, random)), marginals

    def _relation_and_moved_votes(self, groups: Any) -> tuple[str, int]:
        """Return the relation, and the number of votes of a query that a neighbour moves."""
        if groups is not None and self.partition != "hash":
            raise ValueError(
                f"groups are given with partition={self.partition!r}, which would split them. Use "
                "partition='hash', which gives each group to one teacher."
            )
        relation = self.relation or ("add_remove" if self.partition == "hash" else "zero_out")
        if (self.partition, relation) not in MOVED_VOTES:
            raise ValueError(
                f"relation={relation!r} does not hold for partition={self.partition!r}: removing a "
                "record would move later ones to other teachers. Use partition='hash', or "
                "relation='zero_out'."
            )
        return relation, MOVED_VOTES[self.partition, relation]

    def _partition(
        self, X: Any, y: NDArray, units: Groups, random: np.random.RandomState
    ) -> NDArray[np.int64]:
        if self.partition == "index":
            return partition_by_index(num_samples(X), self.n_teachers, random)
        if units.unit != "record":
            return partition_by_group(units, self.n_teachers, random)
        return partition_by_hash(X, y, self.n_teachers, random)
