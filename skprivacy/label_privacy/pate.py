"""PATE for labels: the records whose labels are private are the public ones that are voted on."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression

from .._docs import fill_docs
from .._groups import check_order, protected
from .._jobs import N_JOBS
from .._sklearn import HasMethods, num_samples, safe_indexing
from .._validation import Interval, check_random_state
from ..accounting import PrivacyBudget, check_delta
from ..ensemble import Aggregator
from ..ensemble._taught import StudentClassifier, scatter_labels
from ..ensemble.aggregators import MAX_TEACHERS
from ..ensemble.partition import partition_by_index
from ..ensemble.public_records import choose_queries
from ..ensemble.teachers import check_teacher, count_votes
from ..mechanisms import SecureRandom
from ..public_facts import public_classes
from ._base import GROUPS_ARE_PUBLIC

__all__ = ["LabelPATEClassifier"]

_MOVED_VOTES = 1  # votes: with its features a record stays with its teacher, whatever its label


@fill_docs
class LabelPATEClassifier(StudentClassifier):
    """Private aggregation of teacher ensembles for labels: no public records are needed.

    Teachers learn from parts of the records and vote on some of these very records, whose features
    are public; a student learns from all features and the noisy winners.

    Parameters
    ----------
    teacher : classifier or pipeline, default=None
        Is cloned and fitted on each part. ``None`` means logistic regression.
    student : classifier or pipeline, default=None
        As in :class:`~skprivacy.ensemble.PATEClassifier`, with all records as the public ones.
    n_teachers : int, default=100
        More teachers drown the noise better, and each has fewer records.
    aggregator : Aggregator, default=None
        How votes become labels. ``None`` means :class:`~skprivacy.ensemble.GNMax`.
    n_queries : int, default=100
        Records whose labels are voted on; each costs. At most as many as there are.
    epsilon : float, default=1.0
        Privacy loss of a label, in nats. ``numpy.inf`` fits without noise **and without any
        guarantee**, to compare against.
    delta : float, default=1e-5
        In (0, 1).
    %(classes)s
    keep_labels : bool, default=False
        Whether the noisy labels are kept as ``labels_``. They are released anyway.
    n_jobs : int, default=None
        Teachers trained at once, through joblib.
    device : str, default="cpu"
        Where teachers are trained that are an ``MLPClassifier(solver="adam",
        early_stopping=False)`` and no pipeline: "cuda" trains all at once on a GPU, "auto" if there
        is one. Others need "cpu".
    random_state : int, RandomState instance or None, default=None
        Drives the cut, the teachers' and the student's seeds and the choice of queries, never the
        noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    student_ : classifier
        The fitted student. It predicts indices of ``classes_``.
    aggregator_ : Aggregator
        The aggregator with the noise that was used.
    labels_ : ndarray of shape (n_samples,)
        With ``keep_labels``: indices of classes, -1 for records that were not voted on.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of each label, whatever the
    teachers do. A label, or all labels of a group, take part in one teacher, which moves one vote
    of each query. Features are public and unprotected, and so is that a record takes part: a label
    guarantee says nothing about membership.

    **Edge cases.** As of :class:`~skprivacy.ensemble.PATEClassifier`. A record that is voted on may
    be one of its own teacher's: that costs nothing more.

    References
    ----------
    M. Malek, I. Mironov, K. Prasad, I. Shilov and F. Tramer, "Antipodes of label differential
    privacy: PATE and ALIBI", NeurIPS 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skprivacy.label_privacy import LabelPATEClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 3))
    >>> y = X[:, 0] > 0
    >>> model = LabelPATEClassifier(GaussianNB(), GaussianNB(), classes=[False, True], epsilon=3.0)
    >>> model.fit(X[:3000], y[:3000]).score(X[3000:], y[3000:]) > 0.7
    True
    """

    _protects_labels = True  # and nothing else: who attacks membership is told so before a fit
    _parameter_constraints: dict = {
        "teacher": [HasMethods(["fit", "predict"]), None],
        "student": [HasMethods(["fit", "predict"]), None],
        "n_teachers": [Interval(Integral, 2, MAX_TEACHERS, closed="both")],
        "aggregator": [Aggregator, None],
        "n_queries": [Interval(Integral, 1, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "classes": ["array-like", None],
        "keep_labels": ["boolean"],
        "n_jobs": N_JOBS,
        "device": [str],
        "random_state": ["random_state"],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        teacher: Any = None,
        student: Any = None,
        *,
        n_teachers: int = 100,
        aggregator: Aggregator | None = None,
        n_queries: int = 100,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        classes: ArrayLike | None = None,
        keep_labels: bool = False,
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
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.keep_labels = keep_labels
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> LabelPATEClassifier:
        """Train teachers on parts of the records, and a student on all features.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Features, which are public, as teacher and student take them.
        y : array-like of shape (n_samples,)
            Private labels, each one of ``classes``.
        groups : array-like of shape (n_samples,), default=None
            Whom each label belongs to. All records of a group go to one teacher, so that the
            guarantee is that of all labels of a group.

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
            check_order(groups, X)
            X, y = self._check_data(X, y)
            n, who = num_samples(X), protected(groups, X)
            check_delta(self.delta, who.n)
            if groups is not None:
                fit.assume(GROUPS_ARE_PUBLIC)
            self.classes_, _ = public_classes(fit, y, self.classes)
            random = check_random_state(self.random_state)
            queries = choose_queries(X, min(self.n_queries, n), random)
            self._check_student()
            teacher = LogisticRegression(max_iter=1000) if self.teacher is None else self.teacher
            check_teacher(teacher, X, self.classes_, self.device)
            self._try_student(X, queries)
            seeds = random.randint(np.iinfo(np.int32).max, size=self.n_teachers)
            self.aggregator_ = self._calibrate_aggregator(len(queries), _MOVED_VOTES, "label")
            event = self.aggregator_.event(len(queries), _MOVED_VOTES)
            with fit.charged(
                event,
                relation="label",
                at_delta=self.delta,
                unit=who.unit,
                arithmetic=self.aggregator_.arithmetic,
            ):
                parts = partition_by_index(who.n, self.n_teachers, random)[who.codes]
                votes = count_votes(
                    teacher, X, y, parts, self.n_teachers,
                    safe_indexing(X, queries), self.classes_, seeds, self.n_jobs,
                    self.device,
                )  # fmt: skip
                answers = self.aggregator_.release(
                    votes,
                    _MOVED_VOTES,
                    SecureRandom(self.noise_seed),
                    self._make_vote_predictor(X, queries, self.n_teachers),
                )
            labels = scatter_labels(answers, queries, n)
            self.student_ = self._fit_student(X, labels)
            if self.keep_labels:
                self.labels_ = labels
        return self
