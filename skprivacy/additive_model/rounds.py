"""Private rounds of an additive model: choose a table of one or two columns, and measure it.

Start reading at :func:`fit_effects`. Boosting on histograms with private sums follows Nori et al.
(2021). Here the exponential mechanism chooses the table, as AIM (McKenna et al. 2022) does, so that
noise is spent on tables that matter only.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ..mechanisms import SecureRandom
from ..sums import SumTotal
from ..synthesis.domain import Domain
from ..synthesis.marginal_tables import average_sums, noise_std, release_together
from .effects import RESOLUTIONS, ColumnBins, EffectSum, choose_levels
from .gradient_plan import GradientPlan
from .losses import Loss
from .row_plan import ReleasedScores, RowPlan
from .shrinkage import shrink_step

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

START_RATE = 0.5  # of the steps for single columns, whose effects overlap
SINGLE_WEIGHT = 8.0  # of all tables of one column, where a table of two columns weighs 1
_STEEPEST = math.sqrt(32.0 / 27.0)  # slope of S^2 / sqrt(S^2 + N^2)


@dataclass(frozen=True)
class Candidate:
    """A table that can be measured: its columns, and the level of their bins."""

    columns: tuple[int, ...]
    level: int
    log_weight: float


class PairOffer(NamedTuple):
    """The pairs of columns among which tables are chosen."""

    named: list[tuple[int, int]]
    most: int  # others


@dataclass(frozen=True)
class FittedEffects:
    """All that a fit computes from its releases."""

    loss: Loss
    constant: Floats  # scores of a record without effects, (n_outputs,)
    n_records: float
    sampling: float  # see ``NewtonSums.sampling_variance``; at the start
    bins: list[ColumnBins]
    counts: list[Floats]  # noisy counts of the finest bins of each column
    effects: dict[tuple[int, ...], EffectSum]

    def average(self, columns: tuple[int, ...], scores: Floats) -> Floats:
        """Return the average over records, by noisy counts as if columns were independent."""
        mass = [np.maximum(self.counts[c], 0.0) for c in columns]
        weights = mass[0]
        for own in mass[1:]:
            weights = np.multiply.outer(weights, own)
        axes = range(len(columns))
        total: Floats = np.tensordot(weights, scores, (axes, axes))
        return total / max(weights.sum(), 1e-9)

    def spread(self) -> float:
        """Return the standard deviation of a record's effects, as if columns were independent."""
        variance = sum(
            float((self.average(columns, effect.scores**2) - mean**2).sum())
            for columns, effect in self.effects.items()
            for mean in [self.average(columns, effect.scores)]
        )
        return math.sqrt(max(variance, 0.0))

    def add_step(self, chosen: Candidate, step: Floats, noise: Floats) -> Floats:
        """Add a step over a candidate's bins, and return it over the finest bins."""
        own = [self.bins[c] for c in chosen.columns]
        if chosen.columns not in self.effects:
            shape = (*(bins.n_bins for bins in own), step.shape[-1])
            self.effects[chosen.columns] = EffectSum(np.zeros(shape), np.zeros(shape))
        axes = [bins.levels[chosen.level] for bins in own]
        return self.effects[chosen.columns].add(step, noise, axes)


def fit_effects(
    start_plan: RowPlan, plan: GradientPlan, offer: PairOffer, start: SumTotal, random: SecureRandom
) -> Generator[RowPlan, SumTotal, FittedEffects]:
    """Release the start tables and the tables of all rounds, and add up their steps."""
    mechanism = plan.fine_mechanism
    tables = release_together(list(start_plan.tables(start).values()), mechanism, random)
    std = noise_std(mechanism) / math.sqrt(sum(1 / len(table) for table in tables))
    loss, constant, n_records = start_plan.loss.start(average_sums(tables), std)
    fitted = start_effects(tables, start_plan.domain, plan, loss, constant, n_records)
    yield from add_rounds(fitted, start_plan, plan, offer, random)
    return fitted


def add_rounds(
    fitted: FittedEffects,
    start_plan: RowPlan,
    plan: GradientPlan,
    offer: PairOffer,
    random: SecureRandom,
) -> Generator[RowPlan, SumTotal, ReleasedScores]:
    """Choose and release the tables of all rounds, add their steps, and return the scores."""
    loss = fitted.loss
    candidates = _list_candidates(fitted, _choose_pairs(fitted, offer))
    cliques = tuple(dict.fromkeys(candidate.columns for candidate in candidates))
    released = ReleasedScores(
        tuple(bins.cells for bins in fitted.bins),
        fitted.constant,
        tuple(fitted.effects[c,].scores.copy() for c in range(len(fitted.bins))),
    )
    mechanism, sampling = plan.marginal_mechanism, fitted.sampling
    for _ in range(plan.n_choices):
        round_plan = replace(start_plan, loss=loss, cliques=cliques, released=released)
        tables = round_plan.tables((yield round_plan))
        chosen = _choose_table(candidates, fitted, tables, sampling, plan, random)
        table = _join_bins(tables[chosen.columns], chosen, fitted.bins)
        sums = loss.sums(mechanism.release(table, random), noise_std(mechanism))
        n_ordered = tuple(fitted.bins[c].n_ordered(chosen.level) for c in chosen.columns)
        step, noise = shrink_step(sums, loss.dispersion, n_ordered)
        step = np.clip(step, -loss.max_step, loss.max_step)
        added = fitted.add_step(chosen, loss.step * step, loss.step * noise)
        released = released.after(chosen.columns, added)
        sampling = sums.sampling_variance(loss)
        loss = loss.after(sums, step)
    return released


def _join_bins(table: Floats, candidate: Candidate, bins: list[ColumnBins]) -> Floats:
    """Return the table over the candidate's bins, from a table over the finest ones."""
    for axis, c in enumerate(candidate.columns):
        table = np.add.reduceat(table, bins[c].starts(candidate.level), axis=axis)
    return table


def start_effects(
    tables: list[Floats],
    domain: Domain,
    plan: GradientPlan,
    loss: Loss,
    constant: Floats,
    n_records: float,
) -> FittedEffects:
    """Return bins and first effects from the noisy table of each column."""
    mechanism = plan.fine_mechanism
    least = plan.least_count * noise_std(mechanism)
    bins, counts = [], []
    effects: dict[tuple[int, ...], EffectSum] = {}
    for c, table in enumerate(tables):
        sums = loss.start_sums(table, constant, noise_std(mechanism))
        fine, _ = shrink_step(sums, loss.dispersion, (0,))
        own = choose_levels(domain.columns[c], loss.counts(table), fine, least)
        joined = np.zeros((own.n_bins, table.shape[1]))
        np.add.at(joined, own.cells, table)
        n_joined = np.bincount(own.cells)[:, None]
        sums = loss.start_sums(joined, constant, noise_std(mechanism) * np.sqrt(n_joined))
        step, noise = shrink_step(sums, loss.dispersion, (own.n_ordered(0),))
        step = np.clip(step, -loss.max_step, loss.max_step)
        scale = START_RATE * loss.step
        effects[c,] = EffectSum(scale * step, (scale * noise) ** 2)
        bins.append(own)
        counts.append(loss.counts(joined))
    sampling = sums.sampling_variance(loss)  # of any column
    return FittedEffects(loss, constant, n_records, sampling, bins, counts, effects)


def _list_candidates(fitted: FittedEffects, pairs: list[tuple[int, int]]) -> list[Candidate]:
    """Return the tables of single columns and of pairs, at all levels of bins."""
    singles = [(c,) for c in range(len(fitted.bins))]
    candidates = []
    for columns in [*singles, *pairs]:
        # columns of few values have the same bins at several levels
        levels = {
            tuple(fitted.bins[c].size(level) for c in columns): level
            for level in range(len(RESOLUTIONS))
        }
        log_weight = math.log(SINGLE_WEIGHT / len(levels)) if len(columns) == 1 else 0.0
        candidates += [Candidate(columns, level, log_weight) for level in levels.values()]
    return candidates


def _choose_pairs(fitted: FittedEffects, offer: PairOffer) -> list[tuple[int, int]]:
    """Return the named pairs, and other pairs of the columns with the largest first effects."""
    sizes = [
        float(np.maximum(counts, 0.0) @ (fitted.effects[c,].scores ** 2).sum(axis=1))
        for c, counts in enumerate(fitted.counts)
    ]
    rank = np.argsort(np.argsort(sizes)[::-1])
    pairs = sorted(combinations(range(len(sizes)), 2), key=lambda p: rank[p[0]] + rank[p[1]])
    return list(dict.fromkeys([*offer.named, *pairs[: offer.most]]))


def _choose_table(
    candidates: list[Candidate],
    fitted: FittedEffects,
    tables: dict[tuple[int, ...], Floats],
    sampling: float,
    plan: GradientPlan,
    random: SecureRandom,
) -> Candidate:
    """Return a candidate by the exponential mechanism, from its gradient sums.

    ``sampling`` is the variance, by sampling alone, of a sum of gradients over all records. The
    score that a table would have by it is subtracted, or the largest tables would win by chance.
    """
    mechanism, std = plan.choice_mechanism, noise_std(plan.marginal_mechanism)
    unit = 2 * mechanism.sensitivity / mechanism.epsilon  # score of a factor e in probability
    scores = []
    for candidate, table in _gradient_tables(candidates, fitted, tables):
        noise = _expected_size(table.shape, std)
        by_chance = _expected_size(table.shape, math.sqrt(sampling / _count_cells(table.shape)))
        score = _score(_measure_size(table), noise) - _score(by_chance, noise)
        scores.append(score + unit * candidate.log_weight)
    return candidates[int(mechanism.release(np.array(scores), random))]


def _gradient_tables(
    candidates: list[Candidate], fitted: FittedEffects, tables: dict[tuple[int, ...], Floats]
) -> Iterator[tuple[Candidate, Floats]]:
    """Yield the gradient sums of each candidate, whose table is over the finest bins."""
    for candidate in candidates:
        gradients = np.ascontiguousarray(tables[candidate.columns][..., : fitted.loss.n_outputs])
        yield candidate, _join_bins(gradients, candidate, fitted.bins)


def _measure_size(table: Floats) -> float:
    """Return S of ``GradientPlan``: the sum over cells of the norms of gradient sums."""
    norms = np.abs(table[..., 0]) if table.shape[-1] == 1 else np.sqrt((table**2).sum(axis=-1))
    return float(norms.sum())


def _score(size: float, noise: float) -> float:
    """Return f(S) of ``GradientPlan``; ``noise`` is N, the expected size of pure noise."""
    return size**2 / math.hypot(size, noise) / _STEEPEST if size else 0.0


def _expected_size(shape: tuple[int, ...], std: float) -> float:
    """Return the mean size of a table of normal numbers with this standard deviation."""
    k = shape[-1]
    mean_norm = math.sqrt(2.0) * math.exp(gammaln((k + 1) / 2) - gammaln(k / 2))
    return _count_cells(shape) * mean_norm * std


def _count_cells(shape: tuple[int, ...]) -> int:
    return math.prod(shape[:-1])
