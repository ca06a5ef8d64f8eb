"""Private selection of the marginals that a synthesizer measures.

Two methods of :class:`MarginalSelection` choose pairs of columns with the exponential mechanism:
``select_spanning_tree`` (MST: McKenna, Miklau and Sheldon 2021) and ``select_adaptively`` (AIM:
McKenna et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ..mechanisms import SecureRandom
from .graphical_model import Clique, GraphicalModel, Measurement, count_junction_tree_cells
from .marginal_tables import Floats, MeasurementPlan, l1_distance, noise_std, release_together
from .scanned_tables import ScannedTables, count_cells

Pair = tuple[int, int]

# With fewer records times mu, tables of two columns and the label are mostly noise, and tables of
# one column and the label predict it better (``benchmarks/accuracy/synthesis.py``).
_LEAST_FOR_TRIPLES = 1_000.0
_NOISE_WEIGHT = 0.7  # of a table's expected noise in its score
_MEAN_ABS_NORMAL = math.sqrt(2 / math.pi)  # mean absolute value of a standard normal
_STEPS_PER_ROUND, _FINAL_STEPS = 25, 300  # of L-BFGS
# Fewest and most records by which a model's marginals are estimated.
_SAMPLE_LIMITS = (2_000, 120_000)


def count_choices(method: str, weights: Mapping[Pair, float], n_rounds: int) -> int:
    """Return the number of chosen marginals, which is public; ``n_rounds`` limits "adaptive"."""
    pairs = _weighted_pairs(weights)
    return {
        "independent": 0, "tree": _count_forest_edges(pairs), "adaptive": min(n_rounds, len(pairs))
    }[method]  # fmt: skip


def count_fixed(method: str, n_choices: int, n_columns: int, label_index: tuple[int, ...]) -> int:
    """Return the number of marginals measured without a choice: each column with the label."""
    # A tree measures at most as many tables as there are columns besides the label.
    n_others = n_columns - len(label_index)
    return 0 if not label_index else n_others - (0 if method == "adaptive" else n_choices)


def candidate_cliques(
    weights: Mapping[Pair, float], label_index: tuple[int, ...], n_columns: int, n_choices: int
) -> list[Clique]:
    """Return the columns of each table that may be measured."""
    pairs = _weighted_pairs(weights) if n_choices else []
    return [
        *(tuple(sorted((*pair, *label_index))) for pair in pairs),
        *_label_pairs(range(n_columns), label_index),
    ]


def _label_pairs(columns: Iterable[int], label_index: tuple[int, ...]) -> list[Clique]:
    """Return each of the columns with the label, if there is one."""
    return [
        tuple(sorted((c, *label_index))) for c in columns if label_index and c not in label_index
    ]


def _weighted_pairs(weights: Mapping[Pair, float]) -> list[Pair]:
    """Return the pairs of positive weight, which are the candidates."""
    return [pair for pair, weight in weights.items() if weight > 0]


def _count_forest_edges(pairs: list[Pair]) -> int:
    """Return the number of edges of a spanning forest of the pairs."""
    part = {c: c for pair in pairs for c in pair}
    n = 0
    for a, b in pairs:
        n += part[a] != part[b]
        part = _merge_components(part, part[a], part[b])
    return n


def _merge_components(part: dict[int, int], one: int, other: int) -> dict[int, int]:
    """Return component labels with the component ``other`` merged into ``one``."""
    return {c: one if of == other else of for c, of in part.items()}


@dataclass(frozen=True)
class MarginalSelection:
    """Private choices of the marginals of one fit, each measured with the label if there is one."""

    records: ScannedTables
    label_index: tuple[int, ...]
    weights: Mapping[Pair, float]
    plan: MeasurementPlan
    random: SecureRandom
    max_cells: int  # of the junction tree

    def select_spanning_tree(self, model: GraphicalModel) -> GraphicalModel:
        """Measure a spanning forest of pairs, by Kruskal's algorithm with private choices (MST).

        Only the scores and the released tables depend on records. ``model`` describes single
        columns. If records are few, each column alone is measured with the label: the rule depends
        on the released number of records.
        """
        few = self.label_index and model.total / self.plan.noise < _LEAST_FOR_TRIPLES
        chosen: list[Clique] = []
        if self.plan.n_choices and not few:
            chosen = self._choose_forest(model)
        measured = {column for clique in chosen for column in clique}
        others = set(range(len(self.records.sizes))) - measured
        chosen += _label_pairs(sorted(others), self.label_index)
        tables = [self.records.table(clique) for clique in chosen]
        mechanism = self.plan.marginal_mechanism
        # The same paper: measure all selected marginals with Gaussian noise, as one vector.
        noisy = release_together(tables, mechanism, self.random)
        measurements = [
            Measurement(clique, table, noise_std(mechanism))
            for clique, table in zip(chosen, noisy, strict=True)
        ]
        return self._refit(model, measurements)

    def _choose_forest(self, model: GraphicalModel) -> list[Clique]:
        """Return the tables of a spanning forest of pairs, each with the label."""
        beliefs = model.beliefs()
        # McKenna, Miklau and Sheldon 2021 (MST): score pairs by their distance from independence.
        scores = {}
        for pair in _weighted_pairs(self.weights):
            clique = (*pair, *self.label_index)
            shares = [model.marginal((column,), beliefs) for column in clique]
            expected = model.total * reduce(np.multiply.outer, shares)
            scores[pair] = self._score(pair, self.records.table(clique), expected)
        part = {c: c for c in range(len(self.records.sizes))}
        chosen: list[Clique] = []
        for _ in range(self.plan.n_choices):
            # Kruskal's algorithm: an edge must join two components.
            a, b = self._choose({(a, b): scores[a, b] for a, b in scores if part[a] != part[b]})
            chosen.append(tuple(sorted((a, b, *self.label_index))))
            part = _merge_components(part, part[a], part[b])
        return chosen

    def select_adaptively(self, model: GraphicalModel) -> GraphicalModel:
        """Measure in each round the pair that the model fits worst, and refit (AIM).

        With a label, each column is measured with it before the first round. Rounds stop early if
        no candidate keeps the junction tree within ``max_cells``. This depends on noisy tables
        only, and all rounds are charged.
        """
        fixed = [
            self._measure(clique, self.records.table(clique))
            for clique in _label_pairs(range(len(self.records.sizes)), self.label_index)
        ]
        if fixed:
            model = self._refit(model, fixed)
        left = {
            pair: tuple(sorted((*pair, *self.label_index)))
            for pair in _weighted_pairs(self.weights)
        }
        real = {pair: self.records.table(clique) for pair, clique in left.items()}
        measured = [m.columns for m in model.measurements] + [z.columns for z in model.zeros]
        n_drawn = int(np.clip(4 * model.total, *_SAMPLE_LIMITS))
        for number in range(self.plan.n_choices):
            left = {
                pair: clique
                for pair, clique in left.items()
                if count_junction_tree_cells([*measured, clique], model.sizes) <= self.max_cells
            }
            if not left:
                break
            # The estimate depends on releases only, so its seed may be public.
            codes = model.sample(n_drawn, np.random.RandomState(number))
            scores = {}
            for pair, clique in left.items():
                shape = real[pair].shape
                counts = count_cells(codes, clique, shape, None).reshape(shape)
                scores[pair] = self._score(pair, real[pair], counts * (model.total / n_drawn))
            # McKenna et al. 2022 (AIM): choose by the exponential mechanism, measure, re-estimate.
            pair = self._choose(scores)
            clique = left.pop(pair)
            measured.append(clique)
            measurement = self._measure(clique, real[pair])
            model = model.with_measurements([measurement]).fit(_STEPS_PER_ROUND)
        return model.fit(_FINAL_STEPS)

    def _score(self, pair: Pair, table: Floats, expected: Floats) -> float:
        """Return the weighted distance of a table to its expectation, less the noise's part."""
        noise = _NOISE_WEIGHT * _MEAN_ABS_NORMAL * noise_std(self.plan.marginal_mechanism)
        return self.weights[pair] * (l1_distance(table, expected) - noise * expected.size)

    def _choose(self, scores: Mapping[Pair, float]) -> Pair:
        """Return a pair of high score, by the exponential mechanism."""
        chosen = self.plan.choice_mechanism.release(np.array(list(scores.values())), self.random)
        return list(scores)[int(chosen)]

    def _measure(self, clique: Clique, table: Floats) -> Measurement:
        """Return a noisy table."""
        mechanism = self.plan.marginal_mechanism
        return Measurement(clique, mechanism.release(table, self.random), noise_std(mechanism))

    def _refit(self, model: GraphicalModel, measurements: list[Measurement]) -> GraphicalModel:
        """Return the model of all measurements."""
        model = model.with_measurements(measurements).without_large_zeros(self.max_cells)
        return model.fit(_FINAL_STEPS)
