"""Membership inference on generators, by refitting them or by their marginals.

:class:`ShadowGenerators` refits the generator with and without a record (Houssiau et al. 2022,
TAPAS). :class:`MarginalAttack` compares marginals (Golob et al. 2024, MAMA-MIA).
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from ..._docs import fill_docs
from ..._sklearn import safe_indexing
from ..._validation import check_random_state, num_samples, whole
from ..record_tables import (
    as_records,
    as_table,
    concat,
    fingerprints,
    numeric_columns,
    split_alike,
    split_columns,
)
from .generator_attack import GENERATOR_DOCS, GeneratorAttack, check_generated, clone_without_budget

_COUNTS_NEED_REFERENCE = (
    "counts alone only show where records are frequent. Pass some, or use NearestGenerated."
)
Codes = NDArray[np.int64]
_REFITS_NEED_REFERENCE = "shadow generators are fitted to it. Pass some, or use NearestGenerated."


@fill_docs(GENERATOR_DOCS)
class MarginalAttack(GeneratorAttack):
    """Compare the generated and the population's counts of a record's cells: MAMA-MIA (Golob 2024).

    A generator that measures marginals reveals a record in the counts of its cells, even if no
    synthetic record is near it. To learn which columns the generator counts together, the attack
    fits the generator several times to the attacker's own records. The weight of a marginal is the
    share of these fits that choose it.

    Parameters
    ----------
    generator : estimator with ``fit`` and ``cliques_``, default=None
        An unfitted copy of the attacked generator with its settings, such as a
        :class:`~skprivacy.synthesis.MarginalSynthesizer`; cloned, without a budget. ``None`` gives
        all columns and all pairs of columns the same weight.
    n_shadows : int, default=5
        Number of fits of the generator, each to a random half of the reference records.
    n_bins : int, default=20
        Approximate number of cells of a numeric column.
    random_state : int, RandomState instance or None, default=None
        Seed of the halves.

    Attributes
    ----------
    weights_ : dict of tuple to float
        Share of fits that chose each marginal, by the names of its columns.

    References
    ----------
    S. Golob, S. Pentyala, A. Maratkhan and M. De Cock, "Privacy vulnerabilities in marginals-based
    synthetic data", 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import MarginalAttack
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(600, 9))
    >>> columns = rng.permuted(people[:50], axis=0)  # exact columns, no record
    >>> generated = np.concatenate([rng.permuted(columns, axis=0) for _ in range(20)])
    >>> attack = MarginalAttack(n_bins=100).fit(generated, people[300:])
    >>> attack.evaluate(people[:50], people[50:300]).auc > 0.7
    True
    """

    def __init__(
        self,
        generator: Any = None,
        *,
        n_shadows: int = 5,
        n_bins: int = 20,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.generator = generator
        self.n_shadows = n_shadows
        self.n_bins = n_bins
        self.random_state = random_state

    def fit(self, generated: Any, reference: Any) -> MarginalAttack:
        """Count the cells of generated records and of the attacker's own.

        %(fit_sections)s
        """
        whole("n_shadows", self.n_shadows)
        whole("n_bins", self.n_bins, 2)
        generated, reference = check_generated(generated, reference, _COUNTS_NEED_REFERENCE)
        cells = Cells(reference, self.n_bins)
        made, known = cells.encode(generated, "generated"), cells.encode(reference, "reference")
        weights = self._weights(cells, reference)
        places = {name: i for i, name in enumerate(cells.names)}
        queries = [tuple(places[c] for c in names) for names in weights]
        self.weights_ = weights
        self.tables_ = [(Counts(made, query), Counts(known, query)) for query in queries]
        self._reference_prints = np.unique(fingerprints(reference))
        self.cells_ = cells
        return self

    def _weights(self, cells: Cells, reference: Any) -> dict[tuple[Any, ...], float]:
        if self.generator is None:
            singles = [(name,) for name in cells.names]
            return dict.fromkeys([*singles, *combinations(cells.names, 2)], 1.0)
        if not hasattr(self.generator, "fit"):
            raise TypeError(f"generator={self.generator!r} must have fit, or be None.")
        random, n = check_random_state(self.random_state), num_samples(reference)
        chosen: Counter[tuple[Any, ...]] = Counter()
        for _ in range(self.n_shadows):
            half = random.permutation(n)[: max(n // 2, 2)]
            shadow = clone_without_budget(self.generator).fit(safe_indexing(reference, half))
            chosen.update({*_marginal_names(shadow, cells, reference)})
        return {names: count / self.n_shadows for names, count in chosen.items()}

    def _score_records(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "cells_")
        X = as_records(X, name)
        codes = self.cells_.encode(X, name)
        itself = np.isin(fingerprints(X), self._reference_prints)  # to leave it out
        found = np.zeros(len(codes))
        # Golob et al. 2024 (MAMA-MIA): weighted ratios of counts of the record's cells, here as a
        # sum of logarithms
        for weight, (made, known) in zip(self.weights_.values(), self.tables_, strict=True):
            seen = (made.count(codes) + 0.5) / (made.total + 1)
            usual = (known.count(codes) - itself + 0.5) / (known.total + 1)
            found += weight * np.log(seen / usual)
        return found


@fill_docs(GENERATOR_DOCS)
class ShadowGenerators(GeneratorAttack):
    """Compare with shadow generators fitted with and without a record (Houssiau et al. 2022).

    Shadow generators are fitted to the attacker's own records and a random subset of the scored
    records, drawn by fair coins. A classifier learns from them how the counts of a record's cells,
    in single columns and pairs of columns, depend on whether the record was used.

    Parameters
    ----------
    generator : estimator with ``fit(X)`` and ``sample(n)``
        An unfitted copy of the attacked generator, with its settings; cloned, without a budget.
    n_shadows : int, default=16
        Number of fits in each scoring of records; at least 2.
    n_bins : int, default=20
        Approximate number of cells of a numeric column.
    random_state : int, RandomState instance or None, default=None
        Seed of the coins and of the choice of the attacker's records.

    Notes
    -----
    The scores of records depend on each other, because records scored together share the shadow
    generators. ``evaluate`` scores members and non-members together.

    References
    ----------
    F. Houssiau, J. Jordon, S. N. Cohen, O. Daniel, A. Elliott, J. Geddes, C. Mole,
    C. Rangel-Smith and L. Szpruch, "TAPAS: a toolbox for adversarial privacy auditing of synthetic
    data", 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KernelDensity
    >>> from skprivacy.attacks import ShadowGenerators
    >>> people = np.random.default_rng(0).normal(size=(600, 4))
    >>> copies = KernelDensity(bandwidth=0.05)
    >>> generated = copies.fit(people[:100]).sample(900, random_state=0)
    >>> attack = ShadowGenerators(copies, n_shadows=4, random_state=0)
    >>> attack.fit(generated, people[300:]).evaluate(people[:100], people[100:200]).auc > 0.8
    True
    """

    def __init__(
        self,
        generator: Any = None,
        *,
        n_shadows: int = 16,
        n_bins: int = 20,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.generator = generator
        self.n_shadows = n_shadows
        self.n_bins = n_bins
        self.random_state = random_state

    def fit(self, generated: Any, reference: Any) -> ShadowGenerators:
        """Take the generated records and the attacker's own.

        %(fit_sections)s
        """
        if not (hasattr(self.generator, "fit") and hasattr(self.generator, "sample")):
            raise TypeError(
                f"generator={self.generator!r} must have fit and sample, like the attacked "
                "generator. Without it, use MarginalAttack."
            )
        whole("n_shadows", self.n_shadows, 2)
        whole("n_bins", self.n_bins, 2)
        generated, reference = check_generated(generated, reference, _REFITS_NEED_REFERENCE)
        cells = Cells(reference, self.n_bins)
        self._target, self._n = cells.encode(generated, "generated"), num_samples(generated)
        self.cells_, self.reference_ = cells, reference
        return self

    def _score_records(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "cells_")
        X = as_records(X, name)
        codes, random = self.cells_.encode(X, name), check_random_state(self.random_state)
        inside = random.uniform(size=(self.n_shadows, len(codes))) < 0.5
        # complementary pairs of shadows, so that each record is in half of them
        inside[1::2] = ~inside[: len(inside[1::2]) * 2 : 2]
        seen = [self._log_counts(self._fit_shadow(X, coins, random), codes) for coins in inside]
        middle, spread = np.mean(seen, axis=0), np.std(seen, axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        learned = np.concatenate([(answers - middle) / spread for answers in seen])
        model = LogisticRegression(max_iter=1000).fit(learned, inside.ravel())
        target = (self._log_counts(self._target, codes) - middle) / spread
        return np.asarray(model.decision_function(target), dtype=np.float64)

    def _fit_shadow(self, X: Any, coins: NDArray[np.bool_], random: Any) -> NDArray[np.int64]:
        n = num_samples(self.reference_)
        half = random.permutation(n)[: max(n // 2, 1)]
        # a scored record must enter a shadow by its coin only, even if it is in the reference
        others = half[~np.isin(fingerprints(self.reference_)[half], fingerprints(X))]
        own = safe_indexing(self.reference_, others)
        trained = concat(own, safe_indexing(X, np.flatnonzero(coins)), "reference and X")
        return self.cells_.encode(
            refit_and_sample(self.generator, trained, self._n, random), "shadows"
        )

    def _log_counts(
        self, generated: NDArray[np.int64], codes: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the log-counts of each record's cells, in single columns and pairs of columns."""
        columns = range(codes.shape[1])
        queries = [*((c,) for c in columns), *combinations(columns, 2)]
        counts = [Counts(generated, query).count(codes) for query in queries]
        return np.log(np.column_stack(counts) + 0.5)


def refit_and_sample(generator: Any, X: Any, n: int, random: np.random.RandomState) -> Any:
    """Fit a clone of a generator to X and return ``n`` records that it generates."""
    fresh = clone_without_budget(generator).fit(X)
    seed = int(random.randint(2**31))
    try:
        records = fresh.sample(n, random_state=seed)
    except TypeError:  # scikit-learn's mixtures have no random_state in sample
        records = fresh.sample(n)
    # mixtures return the records and their components
    return as_records(records[0] if isinstance(records, tuple) else records, "generator")


def _marginal_names(shadow: Any, cells: Cells, reference: Any) -> list[tuple[Any, ...]]:
    """Return the names of each marginal's columns; for arrays, by position in the schema."""
    if isinstance(reference, pd.DataFrame) or not hasattr(shadow, "schema_"):
        own = dict(zip(cells.names, cells.names, strict=True))
    else:
        own = dict(zip(shadow.schema_, cells.names, strict=True))
    if unknown := {name for names in shadow.cliques_ for name in names} - set(own):
        raise ValueError(
            f"generator counts the columns {sorted(map(str, unknown))}, but reference has "
            f"{list(own)}. Pass records with the columns that the generator is fitted to."
        )
    return [tuple(own[name] for name in names) for names in shadow.cliques_]


class Cells:
    """Encode values as cells: numbers cut at quantiles of ``X``, missing ones in their own cell."""

    def __init__(self, X: Any, n_bins: int) -> None:
        numbers, texts = split_columns(X)
        self._bin_edges = [_bin_edges(column, n_bins) for column in numbers.T]
        self._values = [pd.Index(np.unique(column), dtype=object) for column in texts.T]
        frame = X if isinstance(X, pd.DataFrame) else as_table(np.reshape(X, (len(X), -1)))
        number = numeric_columns(frame)
        self.names = [*frame.columns[number], *frame.columns[~number]]  # as the cells are ordered

    def encode(self, X: Any, name: str) -> Codes:
        """Return the cell of each value, numeric columns first, shape (n, n_columns)."""
        widths = len(self._bin_edges), len(self._values)
        numbers, texts = split_alike(X, name, widths, "reference")
        codes = [
            np.where(np.isnan(column), 0, 1 + np.searchsorted(edges, column, side="right"))
            for column, edges in zip(numbers.T, self._bin_edges, strict=True)
        ]
        codes += [
            1 + values.get_indexer(pd.Index(column, dtype=object))
            for column, values in zip(texts.T, self._values, strict=True)
        ]
        return np.column_stack(codes).astype(np.int64)


class Counts:
    """Contingency table: number of records in each cell of several columns."""

    def __init__(self, codes: Codes, columns: tuple[int, ...]) -> None:
        self._columns = list(columns)
        self._size = int(codes.max()) + 2
        self._cells, self._counts = np.unique(self._keys(codes), return_counts=True)
        self.total = len(codes)

    def count(self, codes: Codes) -> NDArray[np.float64]:
        """Return the count of each record's cell."""
        keys = self._keys(codes)
        place = np.minimum(np.searchsorted(self._cells, keys), len(self._cells) - 1)
        return np.where(self._cells[place] == keys, self._counts[place], 0).astype(np.float64)

    def _keys(self, codes: Codes) -> Codes:
        keys = np.zeros(len(codes), np.int64)
        for column in self._columns:
            keys = keys * self._size + np.minimum(codes[:, column], self._size - 1)
        return keys


def _bin_edges(column: NDArray[np.float64], n_bins: int) -> NDArray[np.float64]:
    known = np.unique(column[np.isfinite(column)])
    if len(known) <= n_bins:
        return (known[1:] + known[:-1]) / 2
    shares = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    return np.unique(np.quantile(column[np.isfinite(column)], shares))
