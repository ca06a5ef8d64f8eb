"""Votes in rounds, in which a student that learns meanwhile says what it expects."""

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
    """Answer only where the teachers, after noise, contradict the student.

    Queries are put in rounds. After each, the student learns from the labels so far. A query is
    answered by :class:`GNMax` if some class has, after noise, ``threshold`` more votes than the
    student expects. Else the student's own label is kept, at no further cost, if it is sure of it.
    Else the query goes without a label.

    Parameters
    ----------
    threshold : float
        Least noisy number of votes by which a class must exceed what the student expects for it.
    max_answers : int
        Most queries that are answered; the first that pass.
    threshold_noise : float, default=None
        Standard deviation of the noise of a test, in votes. ``None``: 4 times ``noise``.
    noise : float, default=None
        Standard deviation of the noise on each count, in votes. ``None`` derives it from the
        epsilon and delta of the estimator.
    reinforce : float, default=0.9
        Least probability, by the student, with which its own label is kept; 1 keeps next to none.
    n_rounds : int, default=4
        Rounds into which the queries are cut. In the first one the student expects nothing, and the
        test is that of :class:`ConfidentGNMax` at the same threshold.

    Notes
    -----
    **Guarantees.** It costs what :class:`ConfidentGNMax` does: the test of each query, and
    ``max_answers`` votes, all declared before the first. What the student expects follows from
    labels that were released before, hence is public by the time it is taken off the counts; the
    number of teachers is a parameter, and the same for neighbours. A neighbour that moves m votes
    changes each count by at most m, hence the largest of their excesses over fixed numbers too.
    That the numbers of one round depend on the answers of those before is what a
    :class:`~skprivacy.accounting.VoteBlock` allows for, and two of them in turn as well: each query
    may be chosen after all answers so far, whichever of the two they came from.

    **Edge cases.** Expected votes are rounded to whole ones, so that excesses are exact. A student
    that has met fewer than two classes expects nothing, and is sure of nothing. A query that passes
    after the last answer goes without a label: the teachers contradict the student there.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, algorithm 2.

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
            raise ValueError("student=None: InteractiveGNMax asks a student what it expects.")
        labels = np.full(len(votes), UNANSWERED, np.int64)
        left = self.max_answers
        for asked in np.array_split(np.arange(len(votes)), min(self.n_rounds, len(votes))):
            # Algorithm 2, line 1: ask the student
            expected = student(labels.copy())[asked]
            excess = (votes[asked] - np.rint(expected).astype(np.int64)).max(axis=1)
            passed = self._pass_threshold(excess, moved, random)  # Algorithm 2, line 2
            # Algorithm 2, lines 4 to 7: the student's own label where it is sure enough
            labels[asked] = np.where(passed, UNANSWERED, self._own_labels(expected))
            # As many rows as there are queries: how many are answered is told by their labels.
            answered = asked[passed][:left]
            # Algorithm 2, line 3: the noisy arg-max
            labels[answered] = self._release_winners(votes, answered, len(asked), moved, random)
            left -= len(answered)
        return labels

    def _own_labels(self, expected: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return what the student says where it is sure enough, and -1 elsewhere."""
        all_votes, most = expected.sum(axis=1), expected.max(axis=1)
        sure = (all_votes > 0) & (most >= self.reinforce * all_votes)
        return np.where(sure, expected.argmax(axis=1), UNANSWERED)
