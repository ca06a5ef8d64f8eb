"""Interactive-GNMax (Papernot et al. 2018): teachers answer where they contradict the student."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import is_number
from ..mechanisms import SecureRandom
from .aggregators import UNANSWERED, Student, ThresholdedGNMax, check_positive_integer

__all__ = ["InteractiveGNMax"]


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
    earlier answers. A :class:`~skprivacy.accounting.VoteBlock` allows this, and so do two
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
        check_positive_integer("n_rounds", self.n_rounds)

    def release(
        self,
        votes: NDArray[np.int64],
        moved: int,
        random: SecureRandom,
        student: Student | None = None,
    ) -> NDArray[np.int64]:
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

    def _own_labels(self, expected: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the student's label of each query, or -1 where it is not sure enough."""
        all_votes, most = expected.sum(axis=1), expected.max(axis=1)
        sure = (all_votes > 0) & (most >= self.reinforce * all_votes)
        return np.where(sure, expected.argmax(axis=1), UNANSWERED)
