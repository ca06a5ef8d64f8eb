"""Threshold tests of a release: pilot runs choose neighbours and tests, fresh runs count them.

The scores separate runs on two neighbours. One of them is the likelihood ratio of a record that
takes part in an unknown subset of the steps. Start reading at :class:`CountedAttack`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import ndtri, rel_entr
from sklearn.ensemble import HistGradientBoostingClassifier

from ..._environment import one_thread
from ...metrics.evidence import epsilon_of_rates
from ...metrics.rates import clopper_pearson
from ...metrics.repeated_runs import Counts, Curve
from .neighbors import PILOT, Effort, NeighbourPair, Release, ReleaseRuns
from .releases import IndependentFits

# If a pilot refutes a claim this plainly, _MARGIN times its runs are enough. The margin is needed
# because the best of some thousand tests looks better than it is.
_PLAIN = 1e-8
_MARGIN = 4
_THIRD = 3  # factor by which neighbours become fewer, and runs on each of them more
_CERTAIN = 40.0  # a separation in standard deviations that no noise leaves
Matrix = NDArray[np.float64]
Score = Callable[[Matrix], NDArray[np.float64]]
N_COUNTS = 2  # columns of a matrix before the numbers of a run
_FAR = 20.0  # clip of standardised numbers
_TINY = 1e-300  # avoids a division by zero for constant numbers
_BEYOND = 1e9  # clip of distances from a median, before they are squared
_MANY = 400  # runs per side from which trees are worth fitting
_CUTS = 400
# False positive rates at which a claimed curve is evaluated.
_FALSE_POSITIVE_RATES = np.r_[np.geomspace(1e-6, 0.5, 120), 1 - np.geomspace(0.49, 1e-6, 120)]
_TOP = 20  # numbers that trees use
_NEAREST = 4
_ALIKE = 0.7  # rank correlation from which two numbers carry the same noise

# Candidate probabilities of taking part, and shifts of a step in deviations of its noise.
_PARTICIPATION_RATES = np.r_[0.02, 0.05, np.linspace(0.1, 1.0, 19)]
_SHIFTS = np.geomspace(0.2, 12.0, 42)
_ENOUGH = 2_000  # runs from which both are estimated
_LARGEST_EXPONENT = 30.0  # clip of exponents


@dataclass(frozen=True)
class CountedAttack:
    """Counts of threshold tests in fresh runs, on the chosen neighbours."""

    pair: NeighbourPair
    counts: tuple[Counts, ...]  # one for each test, all in the same fresh runs
    n_pilot: int  # earlier runs, over all neighbours
    left_out: tuple[str, ...]  # neighbours on which the release failed

    @classmethod
    def run(
        cls,
        release: Release,
        pairs: Iterable[NeighbourPair],
        curve: Curve,
        delta: float,
        alpha: float,
        effort: Effort,
        steps: Sequence[slice] = (),
    ) -> CountedAttack:
        """Choose neighbours and tests by pilot runs, then count the tests in fresh runs.

        ``steps`` are the positions of the numbers that each of several steps released. Nothing that
        is chosen depends on the fresh runs.
        """
        tried = [ReleaseRuns(release, pair, effort.n_jobs) for pair in pairs]
        works = [runs for runs in tried if all(side[0].size for side in runs.pilot_runs(1))]
        left_out = tuple(runs.pair.name for runs in tried if all(runs is not w for w in works))
        if not works:
            raise ValueError(
                "The release returned no numbers on any neighbours. Pass X and y on which it "
                "works, and accept NaN: under zero_out, missing values replace a record."
            ) from _error_of_a_fit(release, tried)
        # Timed after the first runs, which have one-time costs.
        started = time.perf_counter()
        for runs in works:
            runs.pilot_runs(2)
        a_run = max((time.perf_counter() - started) / (2 * len(works)), 1e-6)
        runs = _best_pair(works, effort.trial(a_run, len(works)))
        events, width, n = _choose_tests(runs, curve, delta, alpha, effort, a_run, steps)
        inside, outside = (runs_to_matrix(side, width) for side in runs.fresh(n))
        return cls(
            runs.pair,
            tuple(event.count(inside, outside) for event in events),
            sum(2 * both.n_made for both in tried),
            left_out,
        )


@dataclass(frozen=True)
class ThresholdTest:
    """Threshold test: the score of a run reaches ``cut``. Fixed before the counted runs."""

    score: Score
    cut: float

    def count(self, runs: Matrix, others: Matrix) -> Counts:
        """Return how often runs with the record and runs without it pass the test."""
        hits, false = (int(np.sum(self.score(side) >= self.cut)) for side in (runs, others))
        return Counts(hits, len(runs), false, len(others))


def _error_of_a_fit(release: Release, tried: Sequence[ReleaseRuns]) -> Exception | None:
    """Return the error of a fit on the first neighbours; None if there is none."""
    for data in [side for runs in tried[:1] for side in (runs.pair.data, runs.pair.other)]:
        try:
            if isinstance(release, IndependentFits):
                release.fitted(data)
        except Exception as error:
            return error
    return None


def runs_to_matrix(vectors: Sequence[NDArray[np.float64]], width: int) -> Matrix:
    """Return a row per run: counts of all and of finite numbers, then ``width`` numbers."""
    out = np.zeros((len(vectors), width + N_COUNTS))
    for row, vector in zip(out, vectors, strict=True):
        finite = np.isfinite(vector)
        row[:N_COUNTS] = len(vector), finite.sum()
        row[N_COUNTS : N_COUNTS + len(vector)] = np.where(finite, vector, 0.0)[:width]
    return out


def separation(runs: Matrix, others: Matrix) -> float:
    """Return two neighbours' distance by cross-fitted linear scores, in deviations."""
    halves = [(side[::2], side[1::2]) for side in (runs, others)]
    (a, b), (c, d) = halves
    found = [
        [_distance(s(b), s(d)) for s in _make_linear_scores(a, c)],
        [_distance(s(a), s(c)) for s in _make_linear_scores(b, d)],
    ]
    return float(np.max(np.mean(found, axis=0)))


def choose_thresholds(
    learn: tuple[Matrix, Matrix],
    check: tuple[Matrix, Matrix],
    curve: Curve,
    delta: float,
    alpha: float,
    steps: Sequence[slice] = (),
) -> tuple[tuple[ThresholdTest, ...], float]:
    """Choose the test that refutes the curve best, and the one with the largest epsilon.

    Scores are learned on ``learn``; they and their thresholds are chosen on ``check``. If no test
    exceeds the curve, the first one has the largest mu of a Gaussian curve, which tests the middle
    of the curve. Returns the tests, and the p-value of the first one in ``check``.
    """
    sums = _make_linear_scores(*learn)
    scores = [
        *sums, *_midpoint_scores(*learn, steps), *_participation_scores(*learn, steps),
        *_tree_score(*learn, sums), *_spread_scores(*learn),
    ]  # fmt: skip
    found = [_best_tests(score, check, curve, delta, alpha) for score in scores]
    beyond, middle, steep = (max(best, key=itemgetter(0)) for best in zip(*found, strict=True))
    first = beyond[1] if beyond[0] > 0 else middle[1]
    events = (first,) if first == steep[1] else (first, steep[1])
    return events, first.count(*check).surprise(curve)


def participation_ratios(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> Iterator[Score]:
    """Yield likelihood ratios of records that take part in each step with some probability.

    With sampled batches, the sum over all steps drowns the few steps with the record in the noise
    of the others. Each step is projected on the direction in which it moves. If all steps have one
    size, their mean direction, which is known better, is tried first. ``runs`` and ``others``,
    with and without the record, must be standardised; ``steps`` are the columns of each step.
    """
    shift = runs.mean(0) - others.mean(0)
    spread = (runs.var(0) + others.var(0)) / 2 + 1e-9
    if len({step.stop - step.start for step in steps}) == 1:
        same = np.mean([shift[step] for step in steps], axis=0)
        noise = np.mean([spread[step] for step in steps], axis=0)
        yield _likelihood(runs, others, steps, [same / noise] * len(steps))
    yield _likelihood(runs, others, steps, [shift[step] / spread[step] for step in steps])


def _best_pair(works: list[ReleaseRuns], n: int) -> ReleaseRuns:
    """Return the neighbours that runs separate best: the best third of each round goes on."""
    while len(works) > 1:
        found = []
        for runs in works:
            both = runs.pilot_runs(n)
            width = max(len(run) for side in both for run in side)
            found.append(separation(*(runs_to_matrix(side, width) for side in both)))
            if found[-1] > _CERTAIN:
                return runs
        works = [works[i] for i in np.argsort(found)[::-1][: -(-len(works) // _THIRD)]]
        n *= _THIRD
    return works[0]


def _choose_tests(
    runs: ReleaseRuns, curve: Curve, delta: float, alpha: float, effort: Effort, a_run: float,
    steps: Sequence[slice],
) -> tuple[tuple[ThresholdTest, ...], int, int]:  # fmt: skip
    """Return the tests to count, how many numbers of a run they use, and the number of runs."""
    most, enough = effort.fresh(a_run), effort.pilot(a_run)
    n = min(PILOT, enough)
    columns = [slice(step.start + N_COUNTS, step.stop + N_COUNTS) for step in steps]
    while True:
        both = runs.pilot_runs(n)
        width = max(len(run) for side in both for run in side)
        learn, check = ([runs_to_matrix(side[i::2], width) for side in both] for i in (0, 1))
        events, surprise = choose_thresholds(
            (learn[0], learn[1]), (check[0], check[1]), curve, delta, alpha, columns
        )
        if surprise < _PLAIN or n >= enough:
            break
        n = min(2 * n, enough)
    return events, width, min(most, _MARGIN * n) if surprise < _PLAIN else most


def _distance(high: NDArray[np.float64], low: NDArray[np.float64]) -> float:
    spread = np.sqrt((high.var() + low.var()) / 2)
    return float((high.mean() - low.mean()) / (spread + 1e-9 * (1.0 + abs(high.mean()))))


def _make_standardizer(runs: Matrix, others: Matrix) -> Score:
    """Return a function that standardises numbers robustly and clips outliers."""
    both = np.vstack([runs, others])
    low, middle, high = np.quantile(both, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / 1.35
    # Mostly equal numbers have no interquartile range: their standard deviation; else 1.
    scale = np.where(scale > 1e-12 * np.abs(middle), scale, both.std(axis=0))
    scale = np.where(scale > 1e-12 * np.abs(middle), scale, 1.0)
    return lambda values: np.clip((values - middle) / scale, -_FAR, _FAR)


def _make_linear_scores(runs: Matrix, others: Matrix) -> list[Score]:
    """Return linear scores: four weightings of all numbers, and the three best single numbers."""
    standard = _make_standardizer(runs, others)
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

    def weigh(w: NDArray[np.float64]) -> Score:
        return lambda values: np.asarray(standard(values) @ w)

    return [weigh(w) for w in weights]


def _midpoint_scores(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> list[Score]:
    """Return the likelihood ratio scores of Laplace and of K-norm noise around the medians."""
    a, b = np.median(runs, axis=0), np.median(others, axis=0)
    spread = np.mean(np.abs(runs - a), axis=0) + np.mean(np.abs(others - b), axis=0)
    shift = np.abs(a - b)
    moved = np.flatnonzero(shift > 0)
    best = moved[np.argsort(-shift[moved] / (spread[moved] + 1e-12 * shift[moved]))][:_TOP]
    best = _drop_correlated(np.vstack([runs - a, others - b]), best)
    low, high = np.minimum(a, b)[best], np.maximum(a, b)[best]
    unit = spread + 1e-9 * shift + _TINY
    weight = (np.sign(a - b) / unit)[best]

    def clipped(values: Matrix) -> NDArray[np.float64]:
        return np.asarray(np.clip(values[:, best], low, high) @ weight)

    scores = [clipped, _norm_ratio(a, b, unit, [best])]
    if steps:
        alike = unit.copy()
        for step in steps:
            # Scale of noise with a density proportional to exp(-norm / scale).
            noise = runs[:, step] - a[step]
            size = float(np.linalg.norm(noise, axis=1).mean()) / noise.shape[1]
            alike[step] = size + 1e-9 * shift[step].max() + _TINY
        scores.append(_norm_ratio(a, b, alike, steps))
    return scores


def _norm_ratio(
    a: NDArray[np.float64], b: NDArray[np.float64], unit: NDArray[np.float64],
    parts: Sequence[slice | NDArray[np.int64]],
) -> Score:  # fmt: skip
    """Return the log-likelihood ratio of centre ``a`` to ``b`` for noise exp(-norm) per part."""

    def sum_of_norms(values: Matrix, middle: NDArray[np.float64]) -> NDArray[np.float64]:
        norms = np.zeros(len(values))
        with np.errstate(over="ignore"):
            for part in parts:
                distance = (values[:, part] - middle[part]) / unit[part]
                norms += np.linalg.norm(np.clip(distance, -_BEYOND, _BEYOND), axis=1)
        return norms

    return lambda values: sum_of_norms(values, b) - sum_of_norms(values, a)


def _drop_correlated(noise: Matrix, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Drop each number whose noise follows the noise of an earlier one."""
    if len(order) < 2:
        return order
    ranks = np.argsort(np.argsort(noise[:, order], axis=0), axis=0)
    alike = np.abs(np.corrcoef(ranks, rowvar=False))
    kept: list[int] = []
    for i in range(len(order)):
        if all(alike[i, kept] < _ALIKE):
            kept.append(i)
    return order[kept]


def _participation_scores(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> list[Score]:
    if len(steps) < 2:
        return []
    standard = _make_standardizer(runs, others)

    def standardize(score: Score) -> Score:
        return lambda values: score(standard(values))

    return list(map(standardize, participation_ratios(standard(runs), standard(others), steps)))


def _tree_score(runs: Matrix, others: Matrix, sums: list[Score]) -> Iterator[Score]:
    """Yield a score by boosted trees, which also separates spreads and regions."""
    if min(len(runs), len(others)) < _MANY:
        return
    standard = _make_standardizer(runs, others)
    best = _most_different(standard(runs), standard(others))

    def select_features(values: Matrix) -> Matrix:
        return np.column_stack([standard(values)[:, best], *(s(values) for s in sums[:4])])

    trees = HistGradientBoostingClassifier(
        max_leaf_nodes=8, learning_rate=0.1, max_iter=80, early_stopping=False, random_state=0
    )
    labels = np.r_[np.ones(len(runs)), np.zeros(len(others))]
    features = np.vstack([select_features(runs), select_features(others)])
    with one_thread(features.size):
        trees.fit(features, labels)
    yield lambda values: np.asarray(trees.predict_proba(select_features(values))[:, 1])


def _spread_scores(runs: Matrix, others: Matrix) -> list[Score]:
    """Return scores that see spreads: likelihood ratios of normal noise and of nearest runs."""
    standard = _make_standardizer(runs, others)
    a, b = standard(runs), standard(others)
    best = _most_different(a, b)
    near, far = (cKDTree(side[:_ENOUGH, best]) for side in (a, b))

    def normal(values: Matrix) -> NDArray[np.float64]:
        z = standard(values)
        return np.asarray(_measure_depth(z, b).sum(1) - _measure_depth(z, a).sum(1))

    def nearest(values: Matrix) -> NDArray[np.float64]:
        z = standard(values)[:, best]
        ratio = [np.log(tree.query(z, [_NEAREST])[0][:, 0] + 1e-9) for tree in (far, near)]
        return np.asarray(ratio[0] - ratio[1])

    return [normal, nearest]


def _most_different(a: Matrix, b: Matrix) -> NDArray[np.int64]:
    """Return the numbers whose mean and spread differ most between two sides."""
    difference = np.abs(a.mean(0) - b.mean(0)) + np.abs(a.std(0) - b.std(0))
    return np.argsort(-difference / (a.std(0) + b.std(0) + 1e-9))[:_TOP]


def _measure_depth(values: Matrix, side: Matrix) -> Matrix:
    """Return squared distances from the mean of a side, in deviations."""
    return (values - side.mean(0)) ** 2 / (side.var(0) + 1e-9)


def _best_tests(
    score: Score, check: tuple[Matrix, Matrix], curve: Curve, delta: float, alpha: float
) -> list[tuple[float, ThresholdTest]]:
    """Return the best tests of a score, with their values: beyond the curve, by mu, by epsilon."""
    high, low = (np.sort(score(side)) for side in check)
    values = np.unique(np.r_[high, low])
    if len(values) > _CUTS:
        values = values[np.linspace(0, len(values) - 1, _CUTS).astype(int)]
    # Midway between two values: a value with a small rounding error falls on the same side.
    cuts = np.r_[values[:1], (values[1:] + values[:-1]) / 2]
    hits = len(high) - np.searchsorted(high, cuts)
    false = len(low) - np.searchsorted(low, cuts)
    beyond = _p_value_exponents(hits, len(high), false, len(low), curve)
    # Jagielski, Ullman and Oprea 2020: Clopper-Pearson bounds on both error rates.
    tpr = clopper_pearson(hits, len(high), alpha)[0]
    fpr = clopper_pearson(false, len(low), alpha)[1]
    # Nasr et al. 2023, audit by Gaussian DP: mu from one pair of rates.
    mu = _quantile(tpr) - _quantile(fpr)
    epsilon = epsilon_of_rates(tpr, fpr, delta)
    places = [(values, int(np.argmax(values))) for values in (beyond, mu, epsilon)]
    return [(float(v[place]), ThresholdTest(score, float(cuts[place]))) for v, place in places]


def _quantile(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(ndtri(np.clip(rate, 1e-12, 1 - 1e-12)))


def _p_value_exponents(
    hits: NDArray[np.int64], n_in: int, false: NDArray[np.int64], n_out: int, curve: Curve
) -> NDArray[np.float64]:
    """Return the exponent of each test's p-value per run: how fast evidence against it grows.

    This is the least Kullback-Leibler divergence of the observed rates from rates that keep to the
    curve. It ranks tests as many runs would, even for rare false positives. Zero for rates that
    keep to the curve.
    """
    tpr, fpr = ((n[:, None] + 0.5) / (of + 1) for n, of in ((hits, n_in), (false, n_out)))
    # Sanov 1957: the p-value decreases exponentially in the least divergence from the null.
    allowed = np.minimum(curve(_FALSE_POSITIVE_RATES), tpr)
    divergence = _bernoulli_divergence(tpr, allowed) + _bernoulli_divergence(
        fpr, np.maximum(_FALSE_POSITIVE_RATES, fpr)
    )
    return np.asarray(np.where(tpr[:, 0] > curve(fpr[:, 0]), divergence.min(axis=1), 0.0))


def _bernoulli_divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Kullback-Leibler divergence of Bernoulli(p) from Bernoulli(q)."""
    return np.asarray(rel_entr(p, q) + rel_entr(1 - p, 1 - q))


def _likelihood(
    runs: Matrix, others: Matrix, steps: Sequence[slice], directions: Sequence[NDArray[np.float64]]
) -> Score:
    def along(values: Matrix) -> Matrix:
        return np.column_stack(
            [values[:, step] @ w for step, w in zip(steps, directions, strict=True)]
        )

    without = along(others)
    middle, scale = without.mean(0), without.std(0) + 1e-9

    def standardized(values: Matrix) -> Matrix:
        return (along(values) - middle) / scale

    seen = standardized(runs[:_ENOUGH])
    likely = [
        (float(_log_ratio(seen, rate, far).mean()), rate, far)
        for rate in _PARTICIPATION_RATES
        for far in _SHIFTS
    ]
    # Maximum likelihood over the candidates.
    _, rate, far = max(likely)
    return lambda values: _log_ratio(standardized(values), rate, far)


def _log_ratio(steps: Matrix, rate: float, far: float) -> NDArray[np.float64]:
    """Return log-likelihood ratios of the mixture (1 - rate) N(0, 1) + rate N(far, 1) per step."""
    # Abadi et al. 2016, sampled Gaussian mechanism: (1 - q) mu_0 + q mu_1 against mu_0.
    power = np.exp(np.minimum(far * steps - far**2 / 2, _LARGEST_EXPONENT))
    return np.asarray(np.log(1.0 - rate + rate * power + 1e-300).sum(axis=1))
