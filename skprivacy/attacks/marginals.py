"""Membership inference against generators that keep marginals."""

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
from ._generated import GeneratorAttack, checked, unpaid
from ._records import as_records, fingerprints, num_samples, safe_indexing

__all__ = ["MarginalAttack"]

_ALONE = "counts alone tell where people are many. Pass some, or use NearestGenerated."


class MarginalAttack(GeneratorAttack):
    """How much more often a record's cells are generated than they occur (MAMA-MIA, Golob 2024).

    A generator that counts some columns together shows a record in the cells that it is in, however
    far each synthetic record is from it. Which columns are counted together is learned by fitting
    the synthesizer to records of the attacker's own, several times: tables weigh as much as they
    are chosen often.

    Parameters
    ----------
    synthesizer : estimator with ``fit`` and ``cliques_``, default=None
        The kind that is attacked, with its settings, such as a
        :class:`~skprivacy.synthesis.PrivateSynthesizer`; cloned, without a budget. ``None``: all
        columns and all pairs weigh the same.
    n_shadows : int, default=5
        Number of such fits, each on a random half of the reference records.
    n_bins : int, default=20
        About how many cells a column of numbers has.
    random_state : int, RandomState instance or None, default=None
        Of the halves.

    Attributes
    ----------
    weights_ : dict of tuple to float
        How often each table was chosen, by the names of its columns.

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
        """Count generated records and the attacker's own.

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
        generated, reference = checked(generated, reference, _ALONE)
        cells = Cells(reference, self.n_bins)
        made, known = cells.of(generated, "generated"), cells.of(reference, "reference")
        weights = self._weights(cells, reference)
        places = {name: i for i, name in enumerate(cells.names)}
        queries = [tuple(places[c] for c in names) for names in weights]
        self.weights_ = weights
        self.tables_ = [(Counts(made, query), Counts(known, query)) for query in queries]
        self._known = np.unique(fingerprints(reference))
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
            shadow = unpaid(self.synthesizer).fit(safe_indexing(reference, half))
            chosen.update({*_named(shadow, cells, reference)})
        return {names: count / self.n_shadows for names, count in chosen.items()}

    def _scored(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "cells_")
        X = as_records(X, name)
        codes = self.cells_.of(X, name)
        itself = np.isin(fingerprints(X), self._known)  # one of equal records is left out
        found = np.zeros(len(codes))
        for weight, (made, known) in zip(self.weights_.values(), self.tables_, strict=True):
            seen = (made.of(codes) + 0.5) / (made.total + 1)
            usual = (known.of(codes) - itself + 0.5) / (known.total + 1)
            found += weight * np.log(seen / usual)
        return found


def _named(shadow: Any, cells: Cells, reference: Any) -> list[tuple[Any, ...]]:
    """Return the tables of a synthesizer by the names of the records' columns.

    Columns of an array have none, and are those of the schema by their places.
    """
    if isinstance(reference, pd.DataFrame) or not hasattr(shadow, "schema_"):
        own = dict(zip(cells.names, cells.names, strict=True))
    else:
        own = dict(zip(shadow.schema_, cells.names, strict=True))
    if unknown := {name for names in shadow.cliques_ for name in names} - set(own):
        raise ValueError(
            f"synthesizer counts {sorted(map(str, unknown))}, and reference has the columns "
            f"{list(own)}. Pass records with the columns that it is fitted to."
        )
    return [tuple(own[name] for name in names) for names in shadow.cliques_]
