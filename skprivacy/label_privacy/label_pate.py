"""PATE with label privacy (Malek et al. 2021): teachers vote on the records themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._docs import fill_docs
from .._validation import check_random_state, num_samples
from ..accounting import PrivacyBudget
from ..accounting.event import check_delta
from ..base import public_classes
from ..ensemble.aggregators import Aggregator
from ..ensemble.pate import TeacherEnsembleClassifier
from ..ensemble.student_classifier import STUDENT_DOCS, choose_queries
from ..ensemble.teachers import partition_by_index
from ..mechanisms import SecureRandom
from .base import GROUPS_ARE_PUBLIC, LABEL_DOCS

_MOVED_VOTES = 1  # of each query: a record has the same teacher, whatever its label


@fill_docs({**LABEL_DOCS, **STUDENT_DOCS})
class LabelPATEClassifier(TeacherEnsembleClassifier):
    """PATE for label privacy, which needs no public records (Malek et al. 2021).

    Teachers learn from partitions of the records and vote on some of the same records, whose
    features are public. A student learns from all features and the noisy winners.

    Parameters
    ----------
    %(teacher)s
    student : classifier or pipeline, default=None
        As in :class:`~skprivacy.ensemble.PATEClassifier`, with all records as the public ones.
    n_teachers : int, default=100
        Number of teachers. With more teachers noise matters less, but each has fewer records.
    aggregator : GNMax, LNMax or ConfidentGNMax, default=None
        Rule that turns votes into labels. ``None`` means :class:`~skprivacy.ensemble.GNMax`.
    n_queries : int, default=100
        Number of records to label by vote; each costs privacy. If there are fewer, all are
        labelled.
    %(label_epsilon)s
    delta : float, default=1e-5
        In (0, 1).
    %(classes)s
    %(store_labels)s
    %(training_of_teachers)s
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(student_)s
    %(aggregator_)s
    labels_ : ndarray of shape (n_samples,)
        With ``store_labels``: indices of classes, -1 for records that were not voted on.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of each label, for any teachers. A
    label, or all labels of a group, reach one teacher, which has one vote on each query. Features
    and membership are public and unprotected.

    **Edge cases.** As for :class:`~skprivacy.ensemble.PATEClassifier`. A teacher may vote on
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
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.store_labels = store_labels
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None) -> LabelPATEClassifier:
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
        %(votes_raises)s
        """
        with self._private_fit() as fit:
            X, y, units = self._read_records(X, y, groups)
            n = num_samples(X)
            check_delta(self.delta, units.n)
            if groups is not None:
                fit.assume(GROUPS_ARE_PUBLIC)
            self.classes_, _ = public_classes(fit, y, self.classes)
            random = check_random_state(self.random_state)
            queries = choose_queries(X, min(self.n_queries, n), random)
            teacher = self._check_models(X, queries)
            seeds = random.randint(np.iinfo(np.int32).max, size=self.n_teachers)
            self.aggregator_ = self._calibrate_aggregator(len(queries), _MOVED_VOTES, "label")
            event = self.aggregator_.event(len(queries), _MOVED_VOTES)
            with fit.charged(
                event,
                relation="label",
                at_delta=self.delta,
                unit=units.unit,
                arithmetic=self.aggregator_.arithmetic,
            ):
                # Malek et al. 2021, PATE for labels: features are public, so the teachers can vote
                # on the records themselves
                shards = partition_by_index(units.n, self.n_teachers, random)[units.codes]
                answers = self._answer_queries(
                    teacher, X, y, shards, seeds, X, queries, _MOVED_VOTES,
                    SecureRandom(self.noise_seed),
                )  # fmt: skip
            self._learn(X, queries, answers)
        return self
