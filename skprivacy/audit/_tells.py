"""What tells runs on two neighbours apart: learned on some runs, settled before the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, rel_entr
from sklearn.ensemble import HistGradientBoostingClassifier

from .._blas import one_thread
from ..metrics._evidence import epsilon_of_rates
from ..metrics._fresh_runs import Counts, Curve
from ..metrics._rates import clopper_pearson
from ._steps import in_steps

__all__ = ["N_COUNTS", "Event", "Plan", "matrix", "plan", "separation"]

Matrix = NDArray[np.float64]
Score = Callable[[Matrix], NDArray[np.float64]]

N_COUNTS = 2  # columns of a matrix that come before the numbers of a run
_FAR = 20.0  # standardised numbers beyond are as good as this one
_TINY = 1e-300  # of numbers that are always the same
_BEYOND = 1e9  # deviations from a middle beyond which squares need not be told apart
_MANY = 400  # runs a side from which trees are worth growing
_CUTS = 400
# False positive rates that a claim is looked at.
_RATES = np.r_[np.geomspace(1e-6, 0.5, 120), 1 - np.geomspace(0.49, 1e-6, 120)]
_TOP = 20  # numbers that trees look at
_ALIKE = 0.7  # the rank correlation from which two numbers are the same noise seen twice


@dataclass(frozen=True)
class Event:
    """That the score of a run reaches ``cut``: settled before the runs that are counted."""

    score: Score
    cut: float

    def counted(self, runs: Matrix, others: Matrix) -> Counts:
        """Return how often it comes about with the record and without it."""
        hits, false = (int(np.sum(self.score(side) >= self.cut)) for side in (runs, others))
        return Counts(hits, len(runs), false, len(others))


@dataclass(frozen=True)
class Plan:
    """The events to count in fresh runs, and how surprising the first is in those of the pilot."""

    events: tuple[Event, ...]
    surprise: float


def matrix(vectors: Sequence[NDArray[np.float64]], width: int) -> Matrix:
    """Return one row a run: how many numbers there are, how many are finite, and they.

    **Edge cases.** What is beyond ``width`` is left out, what is missing is zero.
    """
    out = np.zeros((len(vectors), width + N_COUNTS))
    for row, vector in zip(out, vectors, strict=True):
        finite = np.isfinite(vector)
        row[:N_COUNTS] = len(vector), finite.sum()
        row[N_COUNTS : N_COUNTS + len(vector)] = np.where(finite, vector, 0.0)[:width]
    return out


def separation(runs: Matrix, others: Matrix) -> float:
    """Return the distance of the best linear score between two neighbours, in deviations.

    **Guarantees.** Each half is judged by what the other one taught.
    """
    halves = [(side[::2], side[1::2]) for side in (runs, others)]
    (a, b), (c, d) = halves
    found = [
        [_distance(s(b), s(d)) for s in _linear(a, c)],
        [_distance(s(a), s(c)) for s in _linear(b, d)],
    ]
    return float(np.max(np.mean(found, axis=0)))


def _distance(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    spread = np.sqrt((high.var() + low.var()) / 2)
    return float((high.mean() - low.mean()) / (spread + 1e-9 * (1.0 + abs(high.mean()))))


def _standard(runs: Matrix, others: Matrix) -> Score:
    """Return a function that makes numbers comparable, and outlying ones harmless."""
    both = np.vstack([runs, others])
    low, middle, high = np.quantile(both, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / 1.35
    # Of mostly equal numbers, the deviation; of equal ones anything.
    scale = np.where(scale > 1e-12 * np.abs(middle), scale, both.std(axis=0))
    scale = np.where(scale > 1e-12 * np.abs(middle), scale, 1.0)
    return lambda values: np.clip((values - middle) / scale, -_FAR, _FAR)


def _linear(runs: Matrix, others: Matrix) -> list[Score]:
    """Return scores that are sums: of all numbers, by their differences, and of the best alone."""
    standard = _standard(runs, others)
    a, b = standard(runs), standard(others)
    shift = a.mean(0) - b.mean(0)
    spread = np.sqrt((a.var(0) + b.var(0)) / 2)
    within = np.vstack([a - a.mean(0), b - b.mean(0)])
    covariance = within.T @ within / len(within)
    size = float(np.trace(covariance)) / len(shift)
    eye = np.eye(len(shift))
    weights = [
        shift,
        shift / (spread**2 + 1e-9),
        np.linalg.lstsq(covariance + (0.1 * size + 1e-9) * eye, shift, rcond=None)[0],
        np.linalg.lstsq(covariance + (1e-6 * size + 1e-9) * eye, shift, rcond=None)[0],
    ]
    order = np.argsort(-np.abs(shift) / (spread + 1e-9))
    weights += [np.sign(shift[i]) * eye[i] for i in order[:3]]
    return [_Sum(standard, w) for w in weights]


@dataclass(frozen=True, eq=False)
class _Sum:
    standard: Score
    weights: NDArray[np.float64]

    def __call__(self, values: Matrix) -> NDArray[np.float64]:
        return np.asarray(self.standard(values) @ self.weights)


def _of_middles(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> list[Score]:
    """Return scores of the places between both middles: best for Laplace and for K-norm noise.

    They are the sum of numbers clipped to between the middles, and by how much a run is nearer to
    that of the record than to the other: in single numbers, each by its spread, and in what each
    step released, whose numbers have noise of one size.
    """
    a, b = np.median(runs, axis=0), np.median(others, axis=0)
    spread = np.mean(np.abs(runs - a), axis=0) + np.mean(np.abs(others - b), axis=0)
    shift = np.abs(a - b)
    told = np.flatnonzero(shift > 0)
    best = told[np.argsort(-shift[told] / (spread[told] + 1e-12 * shift[told]))][:_TOP]
    best = _each_on_its_own(np.vstack([runs - a, others - b]), best)
    low, high = np.minimum(a, b)[best], np.maximum(a, b)[best]
    unit = spread + 1e-9 * shift + _TINY
    weight = (np.sign(a - b) / unit)[best]

    def clipped(values: Matrix) -> NDArray[np.float64]:
        return np.asarray(np.clip(values[:, best], low, high) @ weight)

    scores = [clipped, _nearer(a, b, unit, [best])]
    if steps:
        alike = unit.copy()
        for step in steps:
            alike[step] = _size_of_norm(runs[:, step] - a[step]) + 1e-9 * shift[step].max() + _TINY
        scores.append(_nearer(a, b, alike, steps))
    return scores


def _size_of_norm(noise: Matrix) -> float:
    """Return the scale of noise whose density is proportional to exp(-norm / scale)."""
    return float(np.linalg.norm(noise, axis=1).mean()) / noise.shape[1]


def _nearer(
    a: NDArray[np.float64], b: NDArray[np.float64], unit: NDArray[np.float64],
    parts: Sequence[slice | NDArray[np.int64]],
) -> Score:  # fmt: skip
    """Return the log-likelihood ratio of noise around ``a``, not ``b``: exp(-norm) in each part."""

    def away(values: Matrix, middle: NDArray[np.float64]) -> NDArray[np.float64]:
        norms = np.zeros(len(values))
        with np.errstate(over="ignore"):
            for part in parts:
                apart = (values[:, part] - middle[part]) / unit[part]
                norms += np.linalg.norm(np.clip(apart, -_BEYOND, _BEYOND), axis=1)
        return norms

    return lambda values: away(values, b) - away(values, a)


def _each_on_its_own(noise: Matrix, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers without those that follow earlier ones: they tell the same again."""
    if len(order) < 2:
        return order
    ranks = np.argsort(np.argsort(noise[:, order], axis=0), axis=0)
    alike = np.abs(np.corrcoef(ranks, rowvar=False))
    kept: list[int] = []
    for i in range(len(order)):
        if all(alike[i, kept] < _ALIKE):
            kept.append(i)
    return order[kept]


def _taking_part(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> list[Score]:
    if len(steps) < 2:
        return []
    standard = _standard(runs, others)
    found = in_steps(standard(runs), standard(others), steps)
    return [_Of(standard, score) for score in found]


@dataclass(frozen=True, eq=False)
class _Of:
    standard: Score
    score: Score

    def __call__(self, values: Matrix) -> NDArray[np.float64]:
        return self.score(self.standard(values))


def _grown(runs: Matrix, others: Matrix, sums: list[Score]) -> Iterator[Score]:
    """Yield a score by trees, which sees spreads and places that sums do not."""
    if min(len(runs), len(others)) < _MANY:
        return
    standard = _standard(runs, others)
    a, b = standard(runs), standard(others)
    apart = np.abs(a.mean(0) - b.mean(0)) + np.abs(a.std(0) - b.std(0))
    best = np.argsort(-apart / (a.std(0) + b.std(0) + 1e-9))[:_TOP]

    def seen(values: Matrix) -> Matrix:
        return np.column_stack([standard(values)[:, best], *(s(values) for s in sums[:4])])

    trees = HistGradientBoostingClassifier(
        max_leaf_nodes=8, learning_rate=0.1, max_iter=80, early_stopping=False, random_state=0
    )
    labels = np.r_[np.ones(len(runs)), np.zeros(len(others))]
    features = np.vstack([seen(runs), seen(others)])
    with one_thread(features.size):
        trees.fit(features, labels)
    yield lambda values: np.asarray(trees.predict_proba(seen(values))[:, 1])


def plan(
    learn: tuple[Matrix, Matrix],
    check: tuple[Matrix, Matrix],
    curve: Curve,
    delta: float,
    alpha: float,
    steps: Sequence[slice] = (),
) -> Plan:
    """Settle the events: that which refutes the curve best, and that of the largest epsilon.

    Scores are learned on ``learn``, and chosen with their cuts on ``check``. ``steps`` are the
    columns that each of several steps released.

    **Edge cases.** If nothing is beyond the curve, the first event is that of the largest mu of a
    Gaussian curve, which says most about the middle of the curve.
    """
    sums = _linear(*learn)
    scores = [
        *sums, *_of_middles(*learn, steps), *_taking_part(*learn, steps), *_grown(*learn, sums),
    ]  # fmt: skip
    found = [_judged(score, check, curve, delta, alpha) for score in scores]
    beyond = max(found, key=lambda f: f.beyond[0])
    middle = max(found, key=lambda f: f.mu[0])
    steep = max(found, key=lambda f: f.epsilon[0])
    first = beyond.beyond if beyond.beyond[0] > 0 else middle.mu
    events = (first[1],) if first[1] == steep.epsilon[1] else (first[1], steep.epsilon[1])
    return Plan(events, first[1].counted(*check).surprise(curve))


@dataclass(frozen=True)
class _Judged:
    """The best event of a score in three respects, with how good it is."""

    beyond: tuple[float, Event]
    mu: tuple[float, Event]
    epsilon: tuple[float, Event]


def _judged(
    score: Score, check: tuple[Matrix, Matrix], curve: Curve, delta: float, alpha: float
) -> _Judged:
    high, low = (np.sort(score(side)) for side in check)
    values = np.unique(np.r_[high, low])
    if len(values) > _CUTS:
        values = values[np.linspace(0, len(values) - 1, _CUTS).astype(int)]
    # Between two values, so that one that is a little off falls on the same side.
    cuts = np.r_[values[:1], (values[1:] + values[:-1]) / 2]
    hits = len(high) - np.searchsorted(high, cuts)
    false = len(low) - np.searchsorted(low, cuts)
    beyond = _exponents(hits, len(high), false, len(low), curve)
    tpr = clopper_pearson(hits, len(high), alpha)[0]
    fpr = clopper_pearson(false, len(low), alpha)[1]
    mu = _quantile(tpr) - _quantile(fpr)
    epsilon = epsilon_of_rates(tpr, fpr, delta)
    return _Judged(*(_best(values, score, cuts) for values in (beyond, mu, epsilon)))


def _best(
    values: NDArray[np.float64], score: Score, cuts: NDArray[np.float64]
) -> tuple[float, Event]:
    place = int(np.argmax(values))
    return float(values[place]), Event(score, float(cuts[place]))


def _quantile(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(ndtri(np.clip(rate, 1e-12, 1 - 1e-12)))


def _exponents(
    hits: NDArray[np.int64], n_in: int, false: NDArray[np.int64], n_out: int, curve: Curve
) -> NDArray[np.float64]:
    """Return how fast the surprise of each event grows: the exponent of its p-value, a run.

    It is the least divergence of the observed rates from rates that keep to the curve, which orders
    events as many runs do, where false events are rare too; zero for rates that keep to it.
    """
    tpr, fpr = ((n[:, None] + 0.5) / (of + 1) for n, of in ((hits, n_in), (false, n_out)))
    allowed = np.minimum(curve(_RATES), tpr)
    apart = _divergence(tpr, allowed) + _divergence(fpr, np.maximum(_RATES, fpr))
    return np.asarray(np.where(tpr[:, 0] > curve(fpr[:, 0]), apart.min(axis=1), 0.0))


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Kullback-Leibler divergence of a coin of chance ``p`` from one of ``q``."""
    return np.asarray(rel_entr(p, q) + rel_entr(1 - p, 1 - q))
