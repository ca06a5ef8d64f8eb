"""PATE with label privacy (Malek et al. 2021): teachers vote on the records themselves."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression

from .._docs import fill_docs
from .._environment import N_JOBS
from .._sklearn import HasMethods, num_samples, safe_indexing
from .._validation import Interval, check_random_state
from ..accounting import PrivacyBudget, check_delta
from ..base import public_classes
from ..ensemble import Aggregator
from ..ensemble.aggregators import MAX_TEACHERS
from ..ensemble.student_classifier import StudentClassifier, choose_queries, scatter_labels
from ..ensemble.teachers import check_teacher, count_votes, partition_by_index
from ..mechanisms import SecureRandom
from .base import GROUPS_ARE_PUBLIC

__all__ = ["LabelPATEClassifier"]

_MOVED_VOTES = 1  # of each query: a record has the same teacher, whatever its label


@fill_docs
class LabelPATEClassifier(StudentClassifier):
    """PATE for label privacy, which needs no public records (Malek et al. 2021).

    Teachers learn from partitions of the records and vote on some of the same records, whose
    features are public. A student learns from all features and the noisy winners.

    Parameters
    ----------
    teacher : classifier or pipeline, default=None
        Classifier cloned and fitted on each partition. ``None`` means logistic regression.
    student : classifier or pipeline, default=None
        As in :class:`~skprivacy.ensemble.PATEClassifier`, with all records as the public ones.
    n_teachers : int, default=100
        Number of teachers. With more teachers noise matters less, but each has fewer records.
    aggregator : Aggregator, default=None
        Rule that turns votes into labels. ``None`` means :class:`~skprivacy.ensemble.GNMax`.
    n_queries : int, default=100
        Number of records to label by vote; each costs privacy. More than there are means all.
    epsilon : float, default=1.0
        Privacy loss of a label, in nats. Smaller is more private. ``numpy.inf`` fits without noise
        **and without any guarantee**, for comparison.
    delta : float, default=1e-5
        In (0, 1).
    %(classes)s
    keep_labels : bool, default=False
        Whether to keep the noisy labels as ``labels_``. They are released anyway.
    n_jobs : int, default=None
        Number of teachers trained at once, through joblib.
    device : str, default="cpu"
        Device that trains the teachers. "cuda" trains all of them at once on a GPU, "auto" does so
        if there is one; both need ``MLPClassifier(solver="adam", early_stopping=False)`` without a
        pipeline.
    random_state : int, RandomState instance or None, default=None
        Seed of the partition, the teachers, the student and the choice of queries, never of the
        noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    student_ : classifier
        The fitted student. It predicts indices of ``classes_``.
    aggregator_ : Aggregator
        The aggregator, with the noise that was used.
    labels_ : ndarray of shape (n_samples,)
        With ``keep_labels``: indices of classes, -1 for records that were not voted on.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of each label, whatever the
    teachers do. A label, or all labels of a group, reach one teacher, which has one vote on each
    query. Features and membership are public and unprotected.

    **Edge cases.** Those of :class:`~skprivacy.ensemble.PATEClassifier`. A teacher may vote on
    records that it learned from, at no extra cost.

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

    _protects_labels = True  # and nothing else; membership attacks warn about it before a fit
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
        """Train teachers on partitions of the records, and a student on all features.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Public features, in the form that teacher and student take.
        y : array-like of shape (n_samples,)
            Private labels, each one of ``classes``.
        groups : array-like of shape (n_samples,), default=None
            Group of each label. All records of a group go to one teacher, so that the guarantee
            protects all labels of a group together.

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
            X, y, who = self._read_records(X, y, groups)
            n = num_samples(X)
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
                # Malek et al. 2021, PATE for labels: features are public, so the teachers can vote
                # on the records themselves
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
