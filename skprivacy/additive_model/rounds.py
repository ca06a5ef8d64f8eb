"""Private rounds of an additive model: choose a table of one or two columns, and measure it.

Start reading at :func:`fit_effects`. Boosting on histograms with private sums follows Nori et al.
(2021). Here the exponential mechanism chooses the table, as AIM (McKenna et al. 2022) does, so that
noise is spent on tables that matter only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, groupby

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ..mechanisms import SecureRandom
from ..mechanisms.bounds import quantize
from ..synthesis.domain import Domain
from ..synthesis.marginal_tables import EncodedRecords, average_sums, release_together
from ..synthesis.measurement_plan import noise_std
from .column_bins import RESOLUTIONS, ColumnBins, choose_levels
from .effects import EffectSum, shrink_step
from .gradient_plan import GradientPlan
from .losses import Loss

__all__ = ["FittedEffects", "fit_effects"]

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


@dataclass(frozen=True)
class FittedEffects:
    """All that a fit computes from its releases."""

    loss: Loss
    constant: Floats  # scores of a record without effects, (n_outputs,)
    n_records: float
    bins: list[ColumnBins]
    counts: list[Floats]  # noisy counts of the finest bins of each column
    effects: dict[tuple[int, ...], EffectSum]

    def add_step(self, chosen: Candidate, step: Floats, noise: Floats) -> Floats:
        """Add a step over a candidate's bins, and return it over the finest bins."""
        own = [self.bins[c] for c in chosen.columns]
        if chosen.columns not in self.effects:
            shape = (*(bins.n_bins for bins in own), step.shape[-1])
            self.effects[chosen.columns] = EffectSum(np.zeros(shape), np.zeros(shape))
        axes = [bins.levels[chosen.level] for bins in own]
        return self.effects[chosen.columns].add(step, noise, axes)


def fit_effects(
    loss: Loss,
    target: NDArray,
    records: EncodedRecords,
    domain: Domain,
    plan: GradientPlan,
    rate: float,
    max_pairs: int,
    random: SecureRandom,
) -> FittedEffects:
    """Release the start tables and the tables of all rounds, and add up their steps."""
    fitted = _start(loss, target, records, domain, plan, random)
    loss = fitted.loss
    records = records.binned([bins.cells for bins in fitted.bins])
    scores = fitted.constant + _start_scores(fitted, records)
    candidates = _list_candidates(fitted, max_pairs)
    mechanism = plan.marginal_mechanism
    for _ in range(plan.n_choices):
        rows = _weighted_rows(loss.derivative_row(scores, target), records)
        sampling = fitted.n_records * loss.row_variance(fitted.constant)
        chosen = _choose_table(candidates, fitted, records, rows, sampling, plan, random)
        table = _join_bins(_sum_rows(records, chosen.columns, rows), chosen, fitted.bins)
        sums = loss.sums(mechanism.release(table, random), noise_std(mechanism))
        step, noise = shrink_step(sums, loss.dispersion)
        added = fitted.add_step(chosen, rate * loss.step * step, rate * loss.step * noise)
        scores = scores + added.reshape(-1, loss.n_outputs)[records.cells(chosen.columns)]
        # a step s on a quadratic of curvature H, of which a share `rate` is taken
        explained = float((np.maximum(sums.hessian, 0.0) * step**2).sum()) / fitted.n_records
        loss = loss.after(rate * (2 - rate) * explained)
    return fitted


def _weighted_rows(rows: Floats, records: EncodedRecords) -> Floats:
    """Return rows times the records' shares, on a grid on which sums are exact."""
    if records.weights is not None:
        rows = rows * records.weights[:, None]
    return quantize(rows, out=rows)


def _sum_rows(records: EncodedRecords, columns: tuple[int, ...], rows: Floats) -> Floats:
    """Return the sums of rows over the cells of a table, (n_cells, ..., row length)."""
    shape = [records.sizes[c] for c in columns]
    cells, size = records.cells(columns), math.prod(shape)
    sums = [np.bincount(cells, rows[:, k], size) for k in range(rows.shape[1])]
    return np.stack(sums, axis=-1).reshape(*shape, -1)


def _join_bins(table: Floats, candidate: Candidate, bins: list[ColumnBins]) -> Floats:
    """Return the table over the candidate's bins, from a table over the finest ones."""
    for axis, c in enumerate(candidate.columns):
        table = np.add.reduceat(table, bins[c].starts(candidate.level), axis=axis)
    return table


def _start(
    loss: Loss,
    target: NDArray,
    records: EncodedRecords,
    domain: Domain,
    plan: GradientPlan,
    random: SecureRandom,
) -> FittedEffects:
    """Release a table of each column, and compute bins and first effects from them."""
    rows = _weighted_rows(loss.start_row(target), records)
    columns = range(len(records.sizes))
    mechanism = plan.fine_mechanism
    tables = release_together([_sum_rows(records, (c,), rows) for c in columns], mechanism, random)
    loss, constant, n_records = loss.start(average_sums(tables))
    bins, counts, effects = [], [], {}
    for c, table in enumerate(tables):
        sums = loss.start_sums(table, constant, noise_std(mechanism))
        fine, _ = shrink_step(sums, loss.dispersion)
        own = choose_levels(domain.columns[c], loss.counts(table), fine)
        joined = np.zeros((own.n_bins, table.shape[1]))
        np.add.at(joined, own.cells, table)
        n_joined = np.bincount(own.cells)[:, None]
        sums = loss.start_sums(joined, constant, noise_std(mechanism) * np.sqrt(n_joined))
        step, noise = shrink_step(sums, loss.dispersion)
        scale = START_RATE * loss.step
        effects[c,] = EffectSum(scale * step, (scale * noise) ** 2)
        bins.append(own)
        counts.append(loss.counts(joined))
    return FittedEffects(loss, constant, n_records, bins, counts, effects)


def _list_candidates(fitted: FittedEffects, max_pairs: int) -> list[Candidate]:
    """Return the tables of single columns and of pairs, at all levels of bins.

    Beyond ``max_pairs``, the pairs of the columns with the largest first effects are taken.
    """
    singles = [(c,) for c in range(len(fitted.bins))]
    candidates = []
    for columns in [*singles, *_choose_pairs(fitted, max_pairs)]:
        # columns of few values have the same bins at several levels
        levels = {
            tuple(fitted.bins[c].size(level) for c in columns): level
            for level in range(len(RESOLUTIONS))
        }
        log_weight = math.log(SINGLE_WEIGHT / len(levels)) if len(columns) == 1 else 0.0
        candidates += [Candidate(columns, level, log_weight) for level in levels.values()]
    return candidates


def _choose_pairs(fitted: FittedEffects, most: int) -> list[tuple[int, int]]:
    """Return at most ``most`` pairs, by the ranks of their columns' first effects."""
    sizes = [
        float(np.maximum(counts, 0.0) @ (fitted.effects[c,].scores ** 2).sum(axis=1))
        for c, counts in enumerate(fitted.counts)
    ]
    rank = np.argsort(np.argsort(sizes)[::-1])
    pairs = sorted(combinations(range(len(sizes)), 2), key=lambda p: rank[p[0]] + rank[p[1]])
    return pairs[:most]


def _choose_table(
    candidates: list[Candidate],
    fitted: FittedEffects,
    records: EncodedRecords,
    rows: Floats,
    sampling: float,
    plan: GradientPlan,
    random: SecureRandom,
) -> Candidate:
    """Return a candidate by the exponential mechanism, from its gradient sums.

    ``sampling`` is the variance, over all records, of a sum of gradients without any effect.
    """
    mechanism = plan.choice_mechanism
    variance = noise_std(plan.marginal_mechanism) ** 2
    unit = 2 * mechanism.sensitivity / mechanism.epsilon  # score of a factor e in probability
    scores = [
        _score(table, _expected_size(table.shape, variance, sampling)) + unit * candidate.log_weight
        for candidate, table in _gradient_tables(candidates, fitted, records, rows)
    ]
    return candidates[int(mechanism.release(np.array(scores), random))]


def _gradient_tables(
    candidates: list[Candidate], fitted: FittedEffects, records: EncodedRecords, rows: Floats
) -> Iterator[tuple[Candidate, Floats]]:
    """Yield the gradient sums of each candidate; those of the same columns share one pass."""
    gradients = rows[:, : fitted.loss.n_outputs]
    for columns, same in groupby(candidates, lambda candidate: candidate.columns):
        finest = _sum_rows(records, columns, gradients)
        for candidate in same:
            yield candidate, _join_bins(finest, candidate, fitted.bins)


def _score(table: Floats, expected: float) -> float:
    """Return f(S) of ``GradientPlan``; ``expected`` is N, the size of a table without effects."""
    norms = np.abs(table[..., 0]) if table.shape[-1] == 1 else np.sqrt((table**2).sum(axis=-1))
    total = float(norms.sum())
    return total**2 / math.hypot(total, expected) / _STEEPEST if total else 0.0


def _expected_size(shape: tuple[int, ...], variance: float, sampling: float) -> float:
    """Return the sum over cells of the mean norm of noise, of the mechanism and of sampling."""
    *bins, n_outputs = shape
    size = math.prod(bins)
    mean_norm = math.sqrt(2.0) * math.exp(gammaln((n_outputs + 1) / 2) - gammaln(n_outputs / 2))
    return size * mean_norm * math.sqrt(variance + sampling / size)


def _start_scores(fitted: FittedEffects, records: EncodedRecords) -> Floats:
    """Return the sum of the start effects of each record, (n, n_outputs)."""
    total = np.zeros((len(records.codes), fitted.loss.n_outputs))
    for (c,), effect in fitted.effects.items():
        total += effect.scores[records.codes[:, c]]
    return total
