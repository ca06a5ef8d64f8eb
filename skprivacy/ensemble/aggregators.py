"""PATE aggregators: noisy arg-max of teachers' votes (Papernot et al. 2017 and 2018).

:class:`InteractiveGNMax` releases the teachers' answer only where they contradict the student.
Start reading at :class:`GNMax`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import is_number, whole
from ..accounting import ComposedEvent, Event, VoteBlockEvent, calibrate_noise_multiplier
from ..accounting.events import NonPrivateEvent
from ..mechanisms import Gaussian, Laplace, SecureRandom
from ..mechanisms.base import StatesArithmetic

# Up to this number, and with noise of at least one vote, counts in steps of the noise's grid are
# integers that float64 holds. The proof of the winners' cost counts on ties being that rare.
MAX_TEACHERS = 1 << 18
UNANSWERED = -1  # scikit-learn's mark of a record without a label
Counts = NDArray[np.int64]
Labels = NDArray[np.int64]
Student = Callable[[Labels], NDArray[np.float64]]


class Aggregator(StatesArithmetic, ABC):
    """Base class of rules that turn votes into labels, with noise.

    An aggregator is a frozen object with its own noise, or the estimator gives it one.

    Attributes
    ----------
    asks_student : bool
        Whether :meth:`release` asks a student, which then needs ``predict_proba``.
    arithmetic : {"exact", "floating_point", "unspecified"}
        Arithmetic of the noise, stated by each class.
    """

    asks_student: ClassVar[bool] = False

    noise: float | None

    @abstractmethod
    def _with_noise(self, noise: float) -> Aggregator:
        """Return a copy with this noise, in the unit of the parameter ``noise``."""

    @abstractmethod
    def event(self, n_queries: int, moved: int) -> Event:
        """Return the event of at most ``n_queries`` queries.

        Parameters
        ----------
        n_queries : int
            Number of queries, declared beforehand.
        moved : int
            Number of votes on each query that a neighbouring data set moves.

        Returns
        -------
        Event
            The release, whatever the votes are.
        """

    @abstractmethod
    def release(
        self, votes: Counts, moved: int, random: SecureRandom, student: Student | None = None
    ) -> Labels:
        """Return the noisy label of each query.

        Parameters
        ----------
        votes : ndarray of shape (n_queries, n_classes)
            Private counts.
        moved : int
            Number of votes on each query that a neighbouring data set moves.
        random : SecureRandom
            Source of all noise.
        student : callable, default=None
            Maps the labels so far, of shape (n_queries,), to the expected votes, of shape
            (n_queries, n_classes). These are the probabilities of a student trained on the labels,
            times the number of teachers. It must not depend on anything else that is private.
            Ignored unless ``asks_student``.

        Returns
        -------
        ndarray of shape (n_queries,)
            Indices of classes; -1 for queries without an answer.
        """

    def _calibrated(
        self,
        n_queries: int,
        moved: int,
        epsilon: float,
        delta: float,
        relation: str,
        beside: Event | None = None,
    ) -> Aggregator:
        """Return a copy with the least noise for a target, which also covers ``beside``."""
        if self.noise is not None:
            return self
        if math.isinf(epsilon):
            return self._with_noise(0.0)

        def make(noise: float) -> Event:
            votes = self._with_noise(noise).event(n_queries, moved)
            return votes if beside is None else ComposedEvent((beside, votes))

        noise = calibrate_noise_multiplier(make, epsilon, delta, relation)
        return self._with_noise(noise)


@dataclass(frozen=True)
class _NoisyMax(Aggregator):
    """Base of aggregators that answer every query by the noisy arg-max."""

    _kind: ClassVar[str]  # of the votes, in their event

    noise: float | None = None

    def __post_init__(self) -> None:
        _check_noise("noise", self.noise)

    def _with_noise(self, noise: float) -> _NoisyMax:
        return replace(self, noise=noise)

    def event(self, n_queries: int, moved: int) -> Event:
        return _vote_block_event(self._kind, _require_noise(self.noise), n_queries, moved)


@dataclass(frozen=True)
class GNMax(_NoisyMax):
    """Gaussian noisy arg-max (Papernot et al. 2018): the class with most votes after noise.

    Parameters
    ----------
    noise : float, default=None
        Standard deviation of the noise on each count, in votes. ``None`` derives it from the
        epsilon and delta of the estimator.

    Notes
    -----
    Only the winners are released and charged (:class:`~skprivacy.accounting.VoteBlockEvent`). If a
    neighbour moves two votes of a query, all noisy counts are charged.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018.

    Examples
    --------
    >>> from skprivacy.accounting import epsilon_of
    >>> from skprivacy.ensemble import GNMax
    >>> round(epsilon_of(GNMax(noise=40.0).event(n_queries=50, moved=1), delta=1e-5), 2)
    0.74
    """

    arithmetic = "exact"
    _kind = "gnmax"

    def release(
        self, votes: Counts, moved: int, random: SecureRandom, student: Student | None = None
    ) -> Labels:
        return _noisy_winners(votes, _require_noise(self.noise), moved, random)


@dataclass(frozen=True)
class LNMax(_NoisyMax):
    """Laplace noisy arg-max (Papernot et al. 2017): the class with most votes after noise.

    It reproduces the first paper. :class:`GNMax` gives better labels at equal cost.

    Parameters
    ----------
    noise : float, default=None
        Scale of the noise on each count, in votes. ``None`` derives it from the epsilon and delta
        of the estimator.

    Notes
    -----
    As with :class:`GNMax`, only the winners are charged. With ``delta=0`` a query costs
    2 / ``noise``, as if the counts were public.

    References
    ----------
    N. Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training
    data", ICLR 2017.
    """

    arithmetic = "exact"
    _kind = "lnmax"

    def release(
        self, votes: Counts, moved: int, random: SecureRandom, student: Student | None = None
    ) -> Labels:
        # Papernot et al. 2017, noisy max: Laplace noise on each count. A vote that moves changes
        # two counts by one each, hence the L1 sensitivity of 2.
        mechanism = Laplace(_require_noise(self.noise) / (2.0 * moved), 2.0 * moved)
        return np.array([mechanism.release(counts, random).argmax() for counts in votes])


@dataclass(frozen=True)
class ThresholdedGNMax(Aggregator):
    """Base of aggregators that run GNMax on queries that pass a noisy threshold test."""

    threshold: float
    max_answers: int
    threshold_noise: float | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        _check_noise("threshold_noise", self.threshold_noise)
        _check_noise("noise", self.noise)
        if not (is_number(self.threshold) and math.isfinite(self.threshold)):
            raise ValueError(f"threshold={self.threshold!r} must be a finite number of votes.")
        whole("max_answers", self.max_answers)

    def _with_noise(self, noise: float) -> ThresholdedGNMax:
        ready = replace(self, noise=noise)
        return replace(ready, threshold_noise=ready.test_noise)

    def event(self, n_queries: int, moved: int) -> Event:
        n_answers = min(self.max_answers, n_queries)
        tests = _vote_block_event("threshold", self.test_noise, n_queries, moved)
        answers = _vote_block_event("gnmax", _require_noise(self.noise), n_answers, moved)
        return ComposedEvent((tests, answers))

    @property
    def test_noise(self) -> float:
        """Standard deviation of the noise of a test, in votes."""
        given = self.threshold_noise
        return 4.0 * _require_noise(self.noise) if given is None else given

    def _pass_threshold(
        self, largest: Counts, moved: int, random: SecureRandom
    ) -> NDArray[np.bool_]:
        """Return which numbers pass the test; a neighbour changes each by at most ``moved``."""
        spread = math.sqrt(len(largest)) * moved  # L2 sensitivity of all tests as one vector
        noisy = Gaussian(self.test_noise / spread, spread).release(largest, random)
        return np.asarray(noisy >= self.threshold)

    def _release_winners(
        self, votes: Counts, chosen: NDArray[np.intp], n_rows: int, moved: int, random: SecureRandom
    ) -> Labels:
        """Return the noisy winners of the chosen queries, as one release of ``n_rows`` rows.

        ``n_rows`` is public, the number of chosen queries need not be: spare rows have no votes.
        """
        asked = np.zeros((n_rows, votes.shape[1]), np.int64)
        asked[: len(chosen)] = votes[chosen]
        return _noisy_winners(asked, _require_noise(self.noise), moved, random)[: len(chosen)]


@dataclass(frozen=True)
class ConfidentGNMax(ThresholdedGNMax):
    """Confident-GNMax: answer only if the largest noisy count passes a threshold.

    Each query costs a threshold test, answered or not, and each answer costs a :class:`GNMax` vote
    on top. The charge is declared beforehand: a test of each query, and ``max_answers`` votes.

    Parameters
    ----------
    threshold : float
        Noisy number of votes that the leading class needs at least.
    max_answers : int
        Largest number of answers. The first queries that pass are answered.
    threshold_noise : float, default=None
        Standard deviation of the noise on the largest count, in votes. ``None``: 4 times ``noise``.
    noise : float, default=None
        Standard deviation of the noise on each count, in votes. ``None`` derives it from the
        epsilon and delta of the estimator.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, Algorithm 1.
    """

    arithmetic = "exact"

    def release(
        self, votes: Counts, moved: int, random: SecureRandom, student: Student | None = None
    ) -> Labels:
        # Papernot et al. 2018, Algorithm 1, line 1: is the largest noisy count at least T?
        passed = np.flatnonzero(self._pass_threshold(votes.max(axis=1), moved, random))
        answered = passed[: self.max_answers]
        # Papernot et al. 2018, Algorithm 1, line 4: no answer
        labels = np.full(len(votes), UNANSWERED, np.int64)
        n_rows = min(self.max_answers, len(votes))
        # Papernot et al. 2018, Algorithm 1, line 2: the noisy arg-max
        labels[answered] = self._release_winners(votes, answered, n_rows, moved, random)
        return labels


@dataclass(frozen=True)
class InteractiveGNMax(ThresholdedGNMax):
    """Interactive-GNMax: answer only if the teachers, after noise, contradict the student.

    Queries are put in rounds. After each round, the student learns from the labels so far. A query
    is answered by :class:`GNMax` if some class has, after noise, ``threshold`` more votes than the
    student expects. Otherwise the query gets the student's own label, at no further cost, if the
    student is sure of it, and no label if not.

    Parameters
    ----------
    threshold : float
        Noisy number of votes by which a class must exceed the student's expectation.
    max_answers : int
        Largest number of answers. The first queries that pass are answered.
    threshold_noise : float, default=None
        Standard deviation of the noise of a test, in votes. ``None`` means 4 times ``noise``.
    noise : float, default=None
        Standard deviation of the noise on each count, in votes. ``None`` derives it from the
        epsilon and delta of the estimator.
    reinforce : float, default=0.9
        Probability that the student must give its own label for it to be used. 1 uses almost none.
    n_rounds : int, default=4
        Number of rounds. In the first round the student expects no votes, and the test is the one
        of :class:`ConfidentGNMax` at the same threshold.

    Notes
    -----
    **Guarantees.** The cost equals :class:`ConfidentGNMax`'s: a test of each query, and
    ``max_answers`` votes, all declared before the first. The student's expectation follows from
    released labels, hence is public when it is subtracted from the counts; the number of teachers
    is a parameter, and the same for neighbours. A neighbour that moves m votes changes each count
    by at most m, hence also the largest excess over fixed numbers. The queries of a round depend on
    earlier answers. A :class:`~skprivacy.accounting.VoteBlockEvent` allows this, and so do two
    alternating blocks: each query may be chosen after all answers so far, of either block.

    **Edge cases.** Expected votes are rounded to integers, so that excesses are exact. A student
    that has seen fewer than two classes expects no votes and is sure of no label. A query that
    passes after the last answer gets no label, since the teachers contradict the student.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, Algorithm 2.

    Examples
    --------
    >>> from skprivacy.accounting import epsilon_of
    >>> from skprivacy.ensemble import ConfidentGNMax, InteractiveGNMax
    >>> ask = InteractiveGNMax(60.0, max_answers=20, threshold_noise=120.0, noise=30.0)
    >>> event = ask.event(n_queries=50, moved=1)
    >>> event == ConfidentGNMax(60.0, 20, threshold_noise=120.0, noise=30.0).event(50, 1)
    True
    >>> round(epsilon_of(event, delta=1e-5), 2)
    0.65
    """

    arithmetic = "exact"

    reinforce: float = 0.9
    n_rounds: int = 4

    asks_student: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.reinforce) and 0 < self.reinforce <= 1):
            raise ValueError(f"reinforce={self.reinforce!r} must be a probability in (0, 1].")
        whole("n_rounds", self.n_rounds)

    def release(
        self, votes: Counts, moved: int, random: SecureRandom, student: Student | None = None
    ) -> Labels:
        if student is None:
            raise ValueError("student=None: InteractiveGNMax needs a student. Pass a function.")
        labels = np.full(len(votes), UNANSWERED, np.int64)
        left = self.max_answers
        for asked in np.array_split(np.arange(len(votes)), min(self.n_rounds, len(votes))):
            # Papernot et al. 2018, Algorithm 2, line 1: ask the student
            expected = student(labels.copy())[asked]
            excess = (votes[asked] - np.rint(expected).astype(np.int64)).max(axis=1)
            # Papernot et al. 2018, Algorithm 2, line 2: the noisy test of the largest excess
            passed = self._pass_threshold(excess, moved, random)
            # Papernot et al. 2018, Algorithm 2, lines 4 to 7: the student's label if it is sure
            labels[asked] = np.where(passed, UNANSWERED, self._own_labels(expected))
            answered = asked[passed][:left]
            # Papernot et al. 2018, Algorithm 2, line 3: the noisy arg-max. The release has a row
            # for each query; the labels reveal how many are answered.
            labels[answered] = self._release_winners(votes, answered, len(asked), moved, random)
            left -= len(answered)
        return labels

    def _own_labels(self, expected: NDArray[np.float64]) -> Labels:
        """Return the student's label of each query, or -1 where it is not sure enough."""
        all_votes, most = expected.sum(axis=1), expected.max(axis=1)
        sure = (all_votes > 0) & (most >= self.reinforce * all_votes)
        return np.where(sure, expected.argmax(axis=1), UNANSWERED)


def _check_noise(name: str, value: float | None) -> None:
    if value is not None and not (is_number(value) and 0 <= value < math.inf):
        raise ValueError(
            f"{name}={value!r} must be a finite number of votes >= 0, or None to derive it from "
            "epsilon and delta."
        )


def _vote_block_event(kind: str, noise: float, n_queries: int, moved: int) -> Event:
    """Return the event of queries that release nothing but their winners."""
    return VoteBlockEvent(kind, noise, n_queries, moved) if noise > 0 else NonPrivateEvent()


def _require_noise(noise: float | None) -> float:
    if noise is None:
        raise ValueError("noise=None is not calibrated. Set it, or let the estimator do so.")
    return float(noise)


def _noisy_winners(votes: Counts, noise: float, moved: int, random: SecureRandom) -> Labels:
    """Return the class with most votes after Gaussian noise; all queries are one release.

    The noisy counts must not leave this function: only the winners are charged.
    """
    # Papernot et al. 2018, GNMax: Gaussian noise on each count, then the arg-max. A vote that moves
    # changes two counts of each query by one, hence the L2 sensitivity of sqrt(2 queries).
    spread = math.sqrt(2.0 * len(votes)) * moved
    noisy = Gaussian(noise / spread, spread).release(votes, random)
    return np.asarray(noisy).argmax(axis=1)
