"""Membership inference on generators with shadow generators (Houssiau et al. 2022, TAPAS)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from .._validation import check_random_state, whole
from ._cells import Cells, Counts
from ._generated import GeneratorAttack, check_generated, clone_without_budget
from ._records import (
    as_nonempty_records,
    as_records,
    concat,
    fingerprints,
    num_samples,
    safe_indexing,
)
from .result import AttackResult

__all__ = ["ShadowGenerators", "refit_and_sample"]

_ALONE = "shadow generators are fitted to it. Pass some, or use NearestGenerated."


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

        Parameters
        ----------
        generated : {array-like, DataFrame} of shape (n_generated, n_features)
            Records that the generator made.
        reference : {array-like, DataFrame} of shape (n_reference, n_features)
            Records like its training records, but not among them.

        Returns
        -------
        ShadowGenerators
            Itself, fitted.
        """
        if not (hasattr(self.generator, "fit") and hasattr(self.generator, "sample")):
            raise TypeError(
                f"generator={self.generator!r} must have fit and sample, like the attacked "
                "generator. Without it, use MarginalAttack."
            )
        whole("n_shadows", self.n_shadows, 2)
        whole("n_bins", self.n_bins, 2)
        generated, reference = check_generated(generated, reference, _ALONE)
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

    def evaluate(self, X_in: Any, X_out: Any) -> AttackResult:
        """Attack members and non-members of the generator's training set, scored together.

        Parameters
        ----------
        X_in : {array-like, DataFrame} of shape (n_in, n_features)
            Members: training records of the generator.
        X_out : {array-like, DataFrame} of shape (n_out, n_features)
            Non-members from the same population.

        Returns
        -------
        AttackResult
            The scores of both samples.
        """
        X_in, X_out = as_nonempty_records(X_in, "X_in"), as_nonempty_records(X_out, "X_out")
        found = self._score_records("X_in and X_out", concat(X_in, X_out))
        n = num_samples(X_in)
        return AttackResult(found[:n], found[n:], type(self).__name__)

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
        drawn = fresh.sample(n, random_state=seed)
    except TypeError:  # scikit-learn's mixtures have no random_state in sample
        drawn = fresh.sample(n)
    # mixtures return the records and their components
    return as_records(drawn[0] if isinstance(drawn, tuple) else drawn, "generator")
