"""Private-kNN (Zhu et al. 2020): nearest private records vote on public records, with noise."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._sklearn import StrOptions, safe_indexing
from .._validation import Interval, check_random_state, num_samples
from ..accounting import (
    Event,
    GaussianEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    RepeatedEvent,
    calibrate_noise_multiplier,
)
from ..accounting.event import check_delta
from ..accounting.events import NonPrivateEvent
from ..base import public_classes
from ..mechanisms import Gaussian, PoissonSampler, SecureRandom
from ..preprocessing import Schema
from .student_classifier import STUDENT_DOCS, StudentClassifier, check_not_private, choose_queries

# Removing a neighbour admits the next one: one vote less, one more.
_L2_SENSITIVITY = math.sqrt(2.0)


@fill_docs(STUDENT_DOCS)
class PrivateKNNClassifier(StudentClassifier):
    """Private-kNN classifier (Zhu et al. 2020): the nearest private records vote.

    For each of a few public records a Poisson sample of the private records is drawn. Its nearest
    records vote with their labels, noise is added to the votes, and a student learns from the
    winners. Sampling reduces the cost of an answer, and replaces the partitions of PATE. The
    distance must be public: it is Euclidean, on the features as given.

    Parameters
    ----------
    student : classifier or pipeline, default=None
        As in :class:`PATEClassifier`.
    n_neighbors : int, default=100
        Number of records of the sample that vote.
    sampling_rate : float, default=0.2
        Probability with which each record is in the sample of a query.
    n_queries : int, default=200
        Number of public records to label; each costs privacy. If there are fewer, all are labelled.
    relation : {"add_remove", "zero_out"}, default="add_remove"
        Neighbouring relation.
    %(epsilon)s
    delta : float, default=1e-5
        In (0, 1).
    %(classes)s
    schema : Schema, default=None
        As in :class:`PATEClassifier`.
    %(store_labels)s
    random_state : int, RandomState instance or None, default=None
        Drives the choice of queries and the student's seeds, never the sampling or the noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(student_)s
    noise_ : float
        Standard deviation of the noise on each count, in votes.
    labels_ : ndarray of shape (n_public,)
        With ``store_labels``: indices of classes, -1 for records that were not queried.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of the student. The unit is a
    record or, with ``groups``, a group: one record of each group, drawn once by a secure generator,
    takes part in all queries. A record added to the sample replaces the last neighbour. One vote is
    added and one removed, an L2 sensitivity of sqrt(2). Each query is a Poisson-sampled Gaussian
    mechanism. Records at the same distance are sorted by class, so votes do not depend on the order
    of records.

    **Edge cases.** A record with NaN or infinity has no distance and never votes. A sample of fewer
    than ``n_neighbors`` records votes as a whole.

    References
    ----------
    Y. Zhu, X. Yu, M. Chandraker and Y.-X. Wang, "Private-kNN: practical differential privacy for
    computer vision", CVPR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.ensemble import PrivateKNNClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(6000, 3))
    >>> y = X[:, 0] > 0
    >>> model = PrivateKNNClassifier(classes=[False, True], epsilon=5.0)
    >>> model = model.fit(X[:4000], y[:4000], X_public=X[4000:5000])
    >>> model.score(X[5000:], y[5000:]) > 0.6
    True
    """

    _LABEL_REMEDY = "Use a larger sampling_rate, more neighbours, or a larger epsilon"
    _parameter_constraints: dict = {
        **StudentClassifier._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "sampling_rate": [Interval(Real, 0, 1, closed="right")],
        "relation": [StrOptions({"add_remove", "zero_out"})],
        "schema": [Schema, None],
    }

    def __init__(
        self,
        student: Any = None,
        *,
        n_neighbors: int = 100,
        sampling_rate: float = 0.2,
        n_queries: int = 200,
        relation: str = "add_remove",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        classes: ArrayLike | None = None,
        schema: Schema | None = None,
        store_labels: bool = False,
        random_state: int | np.random.RandomState | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.student = student
        self.n_neighbors = n_neighbors
        self.sampling_rate = sampling_rate
        self.n_queries = n_queries
        self.relation = relation
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.schema = schema
        self.store_labels = store_labels
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_public: Any = None,
        groups: ArrayLike | None = None,
    ) -> PrivateKNNClassifier:
        """Let private records vote on public ones, and fit a student to the noisy labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Their labels, each one of ``classes``.
        X_public : array-like or PublicRecords of shape (n_public, n_features), default=None
            As in :meth:`PATEClassifier.fit`.
        %(groups)s

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        %(votes_raises)s
        """
        with self._private_fit() as fit:
            check_not_private(X_public, X)
            rows, y, units = self._read_records(X, y, groups, dtype=np.float64, tables="convert")
            self._assume_schemas(fit)
            if self.relation != "add_remove":
                check_delta(self.delta, units.n)
            self.classes_, codes = public_classes(fit, y, self.classes)
            random = check_random_state(self.random_state)
            public = self._check_public(fit, rows, X_public, random)
            queries = choose_queries(public, min(self.n_queries, num_samples(public)), random)
            self._try_student(public, queries)
            asked = np.asarray(safe_indexing(public, queries), dtype=np.float64)
            self.noise_ = self._calibrate_noise(len(queries))
            event = self._event(self.noise_ / _L2_SENSITIVITY, len(queries))
            with fit.charged(
                event,
                relation=self.relation,
                at_delta=self.delta,
                unit=units.unit,
                arithmetic=Gaussian.arithmetic,  # see _answer_queries
            ):
                drawn = units.at_most(1, SecureRandom(self.noise_seed))
                noise = SecureRandom(self.noise_seed)
                answers = self._answer_queries(rows, codes, drawn, asked, noise)
            self._learn(public, queries, answers)
        return self

    def _event(self, noise_multiplier: float, n_queries: int) -> Event:
        if noise_multiplier == 0:
            return NonPrivateEvent()
        sampled = PoissonSampledEvent(float(self.sampling_rate), GaussianEvent(noise_multiplier))
        return RepeatedEvent(sampled, n_queries)

    def _calibrate_noise(self, n_queries: int) -> float:
        if math.isinf(self.epsilon):
            return 0.0
        return _L2_SENSITIVITY * calibrate_noise_multiplier(
            lambda z: self._event(z, n_queries), self.epsilon, self.delta, self.relation
        )

    def _answer_queries(
        self,
        rows: NDArray,
        codes: NDArray,
        taking_part: NDArray[np.intp],
        asked: NDArray,
        random: SecureRandom,
    ) -> NDArray[np.int64]:
        sampler = PoissonSampler(float(self.sampling_rate))
        mechanism = Gaussian(self.noise_ / _L2_SENSITIVITY, _L2_SENSITIVITY)
        found = []
        for query in asked:
            # Zhu et al. 2020, Private-kNN: sample, count the neighbours' labels, noisy arg-max
            drawn = taking_part[sampler.draw(len(taking_part), random)]
            votes = _count_neighbor_votes(
                rows[drawn], codes[drawn], query, self.n_neighbors, len(self.classes_)
            )
            found.append(int(np.argmax(mechanism.release(votes, random))))
        return np.array(found, np.int64)


def _count_neighbor_votes(
    rows: NDArray, codes: NDArray, query: NDArray, n_neighbors: int, n_classes: int
) -> NDArray[np.int64]:
    """Count the labels of the nearest records."""
    # Each distance is a separate sum: in a matrix product its last bits would depend on the others.
    with np.errstate(over="ignore", invalid="ignore"):
        distances = ((rows - query) ** 2).sum(axis=1)
    reached = np.flatnonzero(np.isfinite(distances))
    nearest = np.lexsort((codes[reached], distances[reached]))[:n_neighbors]
    return np.bincount(codes[reached][nearest], minlength=n_classes)
