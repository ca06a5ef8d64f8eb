"""Membership inference on marginal-based generators: MAMA-MIA (Golob et al. 2024)."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._validation import check_random_state, whole
from ._cells import Cells, Counts
from ._generated import GeneratorAttack, check_generated, clone_without_budget
from ._records import as_records, fingerprints, num_samples, safe_indexing

__all__ = ["MarginalAttack"]

_ALONE = "counts alone only show where records are frequent. Pass some, or use NearestGenerated."


class MarginalAttack(GeneratorAttack):
    """Compare the generated and the population's counts of a record's cells: MAMA-MIA (Golob 2024).

    A generator that measures marginals reveals a record in the counts of its cells, even if no
    synthetic record is near it. To learn which columns the generator counts together, the attack
    fits the synthesizer several times to the attacker's own records. A marginal has the weight of
    how often it is chosen.

    Parameters
    ----------
    synthesizer : estimator with ``fit`` and ``cliques_``, default=None
        An unfitted copy of the attacked synthesizer with its settings, such as a
        :class:`~skprivacy.synthesis.PrivateSynthesizer`; cloned, without a budget. ``None`` gives
        all columns and all pairs of columns the same weight.
    n_shadows : int, default=5
        Number of such fits, each on a random half of the reference records.
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
        synthesizer: Any = None,
        *,
        n_shadows: int = 5,
        n_bins: int = 20,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.synthesizer = synthesizer
        self.n_shadows = n_shadows
        self.n_bins = n_bins
        self.random_state = random_state

    def fit(self, generated: Any, reference: Any) -> MarginalAttack:
        """Count the cells of generated records and of the attacker's own.

        Parameters
        ----------
        generated : {array-like, DataFrame} of shape (n_generated, n_features)
            Records that the generator made.
        reference : {array-like, DataFrame} of shape (n_reference, n_features)
            Records like its training records, but not among them.

        Returns
        -------
        MarginalAttack
            Itself, fitted.
        """
        whole("n_shadows", self.n_shadows)
        whole("n_bins", self.n_bins, 2)
        generated, reference = check_generated(generated, reference, _ALONE)
        cells = Cells(reference, self.n_bins)
        made, known = cells.encode(generated, "generated"), cells.encode(reference, "reference")
        weights = self._weights(cells, reference)
        places = {name: i for i, name in enumerate(cells.names)}
        queries = [tuple(places[c] for c in names) for names in weights]
        self.weights_ = weights
        self.tables_ = [(Counts(made, query), Counts(known, query)) for query in queries]
        self._fixed_relation_and_unit = np.unique(fingerprints(reference))
        self.cells_ = cells
        return self

    def _weights(self, cells: Cells, reference: Any) -> dict[tuple[Any, ...], float]:
        if self.synthesizer is None:
            singles = [(name,) for name in cells.names]
            return dict.fromkeys([*singles, *combinations(cells.names, 2)], 1.0)
        if not hasattr(self.synthesizer, "fit"):
            raise TypeError(f"synthesizer={self.synthesizer!r} must have fit, or be None.")
        random, n = check_random_state(self.random_state), num_samples(reference)
        chosen: Counter[tuple[Any, ...]] = Counter()
        for _ in range(self.n_shadows):
            half = random.permutation(n)[: max(n // 2, 2)]
            shadow = clone_without_budget(self.synthesizer).fit(safe_indexing(reference, half))
            chosen.update({*_marginal_names(shadow, cells, reference)})
        return {names: count / self.n_shadows for names, count in chosen.items()}

    def _score_records(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "cells_")
        X = as_records(X, name)
        codes = self.cells_.encode(X, name)
        itself = np.isin(
            fingerprints(X), self._fixed_relation_and_unit
        )  # leaves out the scored record itself
        found = np.zeros(len(codes))
        # Golob et al. 2024 (MAMA-MIA): weighted ratios of counts of the record's cells, here as a
        # sum of logarithms
        for weight, (made, known) in zip(self.weights_.values(), self.tables_, strict=True):
            seen = (made.count(codes) + 0.5) / (made.total + 1)
            usual = (known.count(codes) - itself + 0.5) / (known.total + 1)
            found += weight * np.log(seen / usual)
        return found


def _marginal_names(shadow: Any, cells: Cells, reference: Any) -> list[tuple[Any, ...]]:
    """Return the names of each marginal's columns; for arrays, by position in the schema."""
    if isinstance(reference, pd.DataFrame) or not hasattr(shadow, "schema_"):
        own = dict(zip(cells.names, cells.names, strict=True))
    else:
        own = dict(zip(shadow.schema_, cells.names, strict=True))
    if unknown := {name for names in shadow.cliques_ for name in names} - set(own):
        raise ValueError(
            f"synthesizer counts the columns {sorted(map(str, unknown))}, but reference has "
            f"{list(own)}. Pass records with the columns that the synthesizer is fitted to."
        )
    return [tuple(own[name] for name in names) for names in shadow.cliques_]
