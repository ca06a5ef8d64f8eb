"""Sensitivity sampling: an estimate from private records, random DP from public ones.

The estimate is Algorithm 2 of Yang, Gohari and Topcu 2022, the other Rubinstein and Alda 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

from .._validation import is_number, num_samples, whole
from ..base import PrivateFit
from ..mechanisms import Laplace
from ..mechanisms.special_noise import Logistic
from .head import HeadInput, OneRelease, Task
from .heads import SoftmaxHead
from .leave_one_out import MINIMIZER_TOLERANCE, leave_one_out
from .sensitivity import Sensitivity, least_noise_mechanism

Sampler = Callable[[int, np.random.Generator], tuple[Any, Any]]
_LEAST = 1e-12  # least sensitivity, if all sampled pairs agree


@dataclass(frozen=True, eq=False)
class SampledSensitivity:
    """Largest movement of a head's weights among sampled pairs of neighbouring data sets.

    Parameters
    ----------
    n_pairs : int, default=100
        Number of pairs, m.
    sampler : callable, default=None
        Source of the pairs. ``None`` means the private records: the two data sets of a pair leave
        out one private record each (Algorithm 2 of Yang, Gohari and Topcu). A callable
        ``sampler(n_records, generator)`` returns X and y of fresh public records, a new data set
        each time.
    alpha : float, default=0.05
        :attr:`unseen` has confidence 1 - ``alpha``.

    Notes
    -----
    **Guarantees.** None without a sampler: pairs that share all but two records are not
    independent, and the guarantee of a model that uses them is of kind "estimate". With a sampler
    it is of kind "random_dp": (epsilon, delta)-differential privacy except for a share
    :attr:`gamma` of the data sets and neighbours that the sampler might draw (Rubinstein and Alda,
    Theorem 15). It does not cover records unlike the sampler's, such as an outlier.

    **Edge cases.** The relation is "replace_one", and the number of records n is public.

    References
    ----------
    B. I. P. Rubinstein and F. Alda, "Pain-free random differential privacy with sensitivity
    sampling", ICML 2017.

    Examples
    --------
    >>> from skprivacy.fine_tuning import SampledSensitivity
    >>> sampled = SampledSensitivity(n_pairs=100, sampler=lambda n, random: ...)
    >>> sampled.kind, round(sampled.gamma, 3), round(sampled.unseen, 4)
    ('random_dp', 0.16, 0.0295)
    """

    n_pairs: int = 100
    sampler: Sampler | None = field(default=None, repr=False)
    alpha: float = 0.05

    def __post_init__(self) -> None:
        whole("n_pairs", self.n_pairs)
        if not is_number(self.alpha) or not 0 < self.alpha < 1:
            raise ValueError(f"alpha={self.alpha!r} must be between 0 and 1.")
        if not (self.sampler is None or callable(self.sampler)):
            raise ValueError(
                "sampler must be a function of a number of records and a generator, or None; got "
                f"{type(self.sampler).__name__}."
            )

    @property
    def kind(self) -> str:
        """The kind of the guarantee: "estimate" or "random_dp"."""
        return "estimate" if self.sampler is None else "random_dp"

    @property
    def gamma(self) -> float:
        """Probability, over fresh data sets and neighbours, that the guarantee does not hold."""
        return 1.0 if self.sampler is None else random_gamma(self.n_pairs)

    @property
    def unseen(self) -> float:
        """Bound on the share of pairs beyond the sampled largest, with confidence 1 - ``alpha``."""
        if self.sampler is None:
            return 1.0
        return float(-math.expm1(math.log(self.alpha) / self.n_pairs))

    @property
    def assumption(self) -> str:
        """Assumption that a guarantee with this sensitivity states."""
        if self.sampler is None:
            return (
                "no neighbouring data sets move the head's weights further than the furthest of "
                f"{self.n_pairs} pairs that each leave out one private record; nothing supports "
                "that, since these pairs share all but two records"
            )
        return (
            f"the records are drawn independently and like the sampler's; gamma={self.gamma:.3g} "
            f"of such data sets and neighbours are left out (m={self.n_pairs} independent data "
            f"sets; with confidence {1 - self.alpha:g}, at most {self.unseen:.3g} of pairs move "
            "the head's weights further)"
        )

    def _sample_private(
        self, head: OneRelease, task: Task, records: HeadInput, random: np.random.Generator
    ) -> Task:
        """Return the task with the sensitivity sampled on private records, an estimate."""
        moved = sample_on_private(head, task, records, self.n_pairs, random)
        return _with_sensitivity(task, moved, head)

    def _sample_public(
        self,
        head: OneRelease,
        task: Task,
        as_records: Callable[[Any, Any], HeadInput],
        random: np.random.Generator,
    ) -> Task:
        """Return the task with the sensitivity sampled on public records."""
        assert self.sampler is not None
        drawn = _public_tables(self.sampler, self.n_pairs, task.n_records + 1, random)
        return _with_sensitivity(
            task, sample_on_public(head, task, (as_records(X, y) for X, y in drawn)), head
        )


def to_sampled(given: Any) -> SampledSensitivity | None:
    """Return the sampled sensitivity that a parameter stands for; None if proved or a number."""
    if isinstance(given, SampledSensitivity):
        return given
    return SampledSensitivity() if isinstance(given, str) and given == "sampled" else None


def resolve_sensitivity(given: Any, relation: str, fit: PrivateFit) -> Sensitivity | None:
    """Return the assumed sensitivity, and add it to the assumptions; None if it is proved."""
    sampled = to_sampled(given)
    if sampled is not None:
        if relation != "replace_one":
            raise ValueError(
                f"relation={relation!r} does not fit a sampled sensitivity, whose pairs differ in "
                "one replaced record. Use relation='replace_one', or sensitivity='proved'."
            )
        fit.assume_unproved(sampled.kind, sampled.assumption)
        # a placeholder until it is sampled; the charge does not depend on it
        return Sensitivity(1.0)
    if isinstance(given, str):
        return None
    fit.assume(
        f"neighbouring data sets move the head's weights by at most {given:g} in L2, as given"
    )
    return Sensitivity(float(given))


def random_gamma(n_pairs: int) -> float:
    """Return the smallest gamma of random differential privacy for the largest of m movements."""
    # Rubinstein and Alda 2017: the rho that minimises gamma for m samples, by Lambert's W
    rho = math.exp(float(lambertw(-1.0 / (4.0 * n_pairs), -1).real) / 2.0)
    return min(1.0, rho + math.sqrt(-math.log(rho) / (2.0 * n_pairs)))


def sample_on_private(
    head: OneRelease, task: Task, records: HeadInput, n_pairs: int, random: np.random.Generator
) -> Sensitivity:
    """Return the largest movements by Algorithm 2 of the ALM paper; they are private."""
    if len(records.rows) < 2:
        raise ValueError("sensitivity='sampled' needs at least two records.")
    # Yang et al. 2022, Algorithm 2, lines 2 and 3: m pairs of records
    first, second = _draw_pairs(len(records.rows), n_pairs, random)
    # Yang et al. 2022, Algorithm 2, lines 4 and 5: heads without the first and without the second
    heads = leave_one_out(head, task, records, np.concatenate([first, second]))
    # Yang et al. 2022, Algorithm 2, lines 6 and 8: the largest distance
    return _largest_movements(heads[:n_pairs] - heads[n_pairs:])


def sample_on_public(head: OneRelease, task: Task, tables: Iterator[HeadInput]) -> Sensitivity:
    """Return the largest movements, over the tables, when one of n records is replaced."""
    moved = []
    for records in tables:
        last = len(records.rows) - 1
        without_last, without_other = leave_one_out(head, task, records, np.array([last, last - 1]))
        moved.append(without_last - without_other)
    return _largest_movements(np.array(moved))


def _with_sensitivity(task: Task, moved: Sensitivity, head: OneRelease) -> Task:
    """Return the task with a sensitivity that does not change the choice of the mechanism.

    The mechanism, hence the charge, must not depend on private records. It is chosen for an L2
    sensitivity of 1, and the choice is the same for any other. An L1 sensitivity is passed on only
    if an L1 mechanism was chosen without it.
    """
    length = head.length(task)
    plan = least_noise_mechanism(task.mechanism, task.epsilon, task.delta, Sensitivity(1.0), length)
    in_l1 = isinstance(plan, Laplace) or (isinstance(plan, Logistic) and plan.norm == "l1")
    # Both the released and the sampled weights are only near the exact minimisers.
    off = 2.0 * (head.distance + MINIMIZER_TOLERANCE) if isinstance(head, SoftmaxHead) else 0.0
    l2, l1 = moved.l2 + off, moved.in_l1(length) + math.sqrt(length) * off
    return replace(task, sensitivity=Sensitivity(l2, l1) if in_l1 else Sensitivity(l2))


def _public_tables(
    sampler: Sampler, n_tables: int, size: int, random: np.random.Generator
) -> Iterator[tuple[Any, Any]]:
    """Yield disjoint public tables of ``size`` records each."""
    before = None
    for _ in range(n_tables):
        X, y = sampler(size, random)
        if num_samples(X) != size or num_samples(y) != size:
            raise ValueError(
                f"sampler returned {num_samples(X)} rows and {num_samples(y)} labels; expected "
                f"{size} of both, as many as it is asked for."
            )
        drawn = np.asarray(X)
        if before is not None and np.array_equal(drawn, before):
            raise ValueError(
                "sampler returned the same records twice. Draw fresh records with the generator "
                "that it is given."
            )
        before = drawn.copy()
        yield X, np.asarray(y)


def _draw_pairs(n: int, n_pairs: int, random: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return two different records of n for each pair; in the paper they may be equal."""
    first = random.integers(n, size=n_pairs)
    return first, (first + random.integers(1, n, size=n_pairs)) % n


def _largest_movements(moved: NDArray[np.float64]) -> Sensitivity:
    l2, l1 = np.linalg.norm(moved, axis=1).max(), np.abs(moved).sum(axis=1).max()
    return Sensitivity(max(float(l2), _LEAST), max(float(l1), _LEAST))
