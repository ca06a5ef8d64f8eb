"""Canaries for one-run audits, and the fair coins that insert them into the training records.

Also the claimed trade-off curves, inverted and converted to the relation of an audit's coins, and
the canaries for a synthesizer's noisy tables. Start reading at :func:`draw_canaries`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ..._sklearn import safe_indexing
from ..._validation import whole
from ...accounting import Event, PrivacyGuarantee
from ...accounting.accountants import privacy_curve
from ...attacks.attributes.label import LabelCanaries
from ...attacks.record_tables import as_records, concat
from ...metrics.coin_guesses import Inverse
from ...preprocessing import BoundedColumn, CategoricalColumn
from ...synthesis import MarginalSynthesizer
from ..inspection.guarantees import holds_private

# Number of steps of a claim's relation between the two outcomes of a coin. Guarantees for a public
# number of records say nothing about adding one. Under zero-out, a replaced record is first
# blanked, and then becomes the other record.
_STEPS = {
    ("add_remove", "add_remove"): 1,
    ("replace_one", "replace_one"): 1,
    ("zero_out", "zero_out"): 1,
    ("add_remove", "replace_one"): 2,
    ("zero_out", "replace_one"): 2,
}
Facts = dict[str, BoundedColumn | CategoricalColumn]
Floats = NDArray[np.float64]
# Clip in deviations of a table's noise: larger ones are errors of the model, not noise.
_CLIPPED = 3.0


@dataclass(frozen=True)
class CanaryRun:
    """One fit with canaries, and the score of each canary."""

    canaries: str  # kind, a key of one_run_report.CANARIES
    coin: str
    fitted: Any
    trained: NDArray[np.bool_]  # the coins
    scores: NDArray[np.float64]
    sampled: bool = True  # whether records were sampled as the claim says, where this is observed
    # p-value of each test of the noise, where it is observed
    noise_tests: dict[str, float] = field(default_factory=dict)
    apart: bool = False  # whether each canary had its own fit
    # Event of the fit at another noise multiplier, where it is known.
    event_at: Callable[[float], Event] | None = None


def coin_for(estimator: Any) -> str:
    """Return the coin that suits the relation announced by the parameters.

    Without an announced relation a coin replaces records: every relation bounds what that shows.
    """
    params = estimator.get_params()
    announced = {value for name, value in params.items() if name.split("__")[-1] == "relation"}
    known = announced == {"add_remove"} or (not announced and not holds_private(estimator))
    return "add_remove" if known else "replace_one"


def coin_entropy(random_state: int | None, of: str = "audit_one_run") -> int | None:
    """Return a seed for canaries and coins that differs from every seed of the model."""
    if random_state is None:
        return None
    whole("random_state", random_state, 0)
    text = f"coins of skprivacy.{of}, seed {int(random_state)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def draw_canaries(
    X: Any, y: NDArray[Any], n: int, given: tuple[Any, Any] | None, random: np.random.Generator
) -> tuple[NDArray[np.intp], Any, NDArray[Any]]:
    """Return the rows that canaries may replace, the canaries, and their labels."""
    if given is not None:
        rows = np.sort(random.permutation(len(y))[:n])
        return rows, as_records(given[0]), np.asarray(given[1])
    # Nasr et al. 2021, "Adversary instantiation": records with wrong labels as canaries.
    drawn = LabelCanaries.draw(y, n, random_state=int(random.integers(2**31)))
    return drawn.rows, safe_indexing(X, drawn.rows), drawn.other


def insert_canaries(
    X: Any, y: NDArray[Any], rows: NDArray[np.intp], crafted: Any, labels: NDArray[Any],
    trained: NDArray[np.bool_], coin: str,
) -> tuple[Any, NDArray[Any]]:  # fmt: skip
    """Return the training data, with a canary in place of a record where its coin says so."""
    place = training_rows(len(y), rows, trained, coin)
    return safe_indexing(concat(X, crafted), place), np.concatenate([y, labels])[place]


def training_rows(
    n: int, rows: NDArray[np.intp], trained: NDArray[np.bool_], coin: str
) -> NDArray[np.intp]:
    """Return the rows to train on, of ``n`` records and the canaries appended to them."""
    # Steinke, Nasr and Jagielski 2023: include the canaries whose coin says so.
    place = np.arange(n)
    place[rows[trained]] = n + np.flatnonzero(trained)
    return np.delete(place, rows[~trained]) if coin == "add_remove" else place


def steps_between(relation: str, coin: str) -> int:
    """Return the number of steps of ``relation`` that a coin makes; 0 if it cannot be tested."""
    return _STEPS.get((relation, coin), 0)


def inverse_curve(guarantee: PrivacyGuarantee, coin: str) -> Inverse:
    """Return the least false positive rate that a claim allows for a true positive rate.

    Each point (epsilon, delta) of the privacy curve gives two lines that no attack crosses, one for
    each direction of the relation. The result is the largest of their values. Leaving out lines
    makes it smaller, which refutes less.
    """
    epsilons, deltas = privacy_curve(guarantee.event, guarantee.relation)
    grow = np.exp(np.minimum(epsilons, 700.0))

    def inverse(rate: float) -> float:
        # Wasserman and Zhou 2010, Kairouz, Oh and Viswanath 2015: under (epsilon, delta)-DP,
        # TPR <= exp(epsilon) FPR + delta, and 1 - FPR <= exp(epsilon) (1 - TPR) + delta.
        forward = (rate - deltas) / grow
        backward = 1.0 - deltas - grow * (1.0 - rate)
        return min(rate, max(0.0, float(forward.max()), float(backward.max())))

    if steps_between(guarantee.relation, coin) == 1:
        return inverse
    # Dong, Roth and Su 2022, group privacy: for two steps, the curve is composed with itself.
    return lambda rate: inverse(inverse(rate))


def spread_records(facts: Facts, types: Any, n: int, random: np.random.Generator) -> pd.DataFrame:
    """Return records spread over public ranges and categories, where real records are rare."""
    return pd.DataFrame({c: _values(fact, types[c], n, random) for c, fact in facts.items()})


@dataclass(frozen=True)
class CanaryMixture:
    """Records in which canaries replace some of ``rows``, as coins decide; canaries come last."""

    records: pd.DataFrame
    rows: NDArray[np.intp]
    trained: NDArray[np.bool_]
    coin: str

    @classmethod
    def draw(
        cls, X: pd.DataFrame, facts: Facts, n_canaries: int, coin: str, random: np.random.Generator
    ) -> CanaryMixture:
        """Draw canaries, the rows that they may replace, and the coins."""
        rows = np.sort(random.permutation(len(X))[:n_canaries])
        crafted = spread_records(facts, X.dtypes, n_canaries, random)[list(X.columns)]
        plain = {c: t for c, t in X.dtypes.items() if not isinstance(t, pd.CategoricalDtype)}
        both = pd.concat([X.astype(object), crafted.astype(object)], ignore_index=True)
        return cls(both.astype(plain), rows, random.random(n_canaries) < 0.5, coin)

    def training_table(self) -> pd.DataFrame:
        """Return the table to fit."""
        place = training_rows(self._n, self.rows, self.trained, self.coin)
        return self.records.iloc[place].reset_index(drop=True)

    @property
    def _n(self) -> int:
        return len(self.records) - len(self.rows)

    @property
    def expected(self) -> float:
        """Expected number of records in the fit, for an attacker who does not know the coins."""
        kept = self._n - len(self.rows)
        return kept + len(self.rows) * (0.5 if self.coin == "add_remove" else 1.0)

    def counts_and_changes(self, cells: sparse.csr_matrix) -> tuple[Floats, sparse.csr_matrix]:
        """Return the counts without canaries, and the change by each canary."""
        before, canaries = cells[: self._n], cells[self._n :]
        counts = np.asarray(before.sum(axis=0)).ravel()
        given_up = before[self.rows]
        if self.coin == "add_remove":
            return counts - np.asarray(given_up.sum(axis=0)).ravel(), canaries
        return counts, canaries - given_up


def score_from_tables(fitted: MarginalSynthesizer, mixture: CanaryMixture) -> Floats:
    """Return the score of each canary from the noisy tables and the records of no coin."""
    noisy = [measurement.table.ravel() for measurement in fitted.measurements_]
    return _estimate_coins(fitted, mixture, noisy, np.inf)


def score_from_rows(
    fitted: MarginalSynthesizer, mixture: CanaryMixture, synthetic: pd.DataFrame
) -> Floats:
    """Return the score of each canary from synthetic records, counted in the same tables."""
    share = mixture.expected / len(synthetic)
    drawn = [
        np.asarray(cells.sum(axis=0)).ravel() * share for cells in _cells_of(fitted, synthetic)
    ]
    return _estimate_coins(fitted, mixture, drawn, _CLIPPED)


def _values(
    fact: BoundedColumn | CategoricalColumn, dtype: Any, n: int, random: np.random.Generator
) -> pd.Series[Any]:
    order = random.permutation(n)
    if isinstance(fact, CategoricalColumn):
        places = (order + random.integers(len(fact.values))) % len(fact.values)
        return pd.Series([fact.values[i] for i in places], dtype=object)
    numbers = np.asarray(fact.from_unit((order + random.random(n)) / n), dtype=np.float64)
    if pd.api.types.is_integer_dtype(dtype):
        numbers = np.clip(np.rint(numbers), np.ceil(fact.lower), np.floor(fact.upper))
    return pd.Series(numbers)


def _estimate_coins(
    fitted: MarginalSynthesizer, mixture: CanaryMixture, seen: Sequence[Floats], clipped: float
) -> Floats:
    """Return the best linear estimates of the coins, of variance 1/4, centred at 0."""
    n = len(mixture.rows)
    gram, signal = np.zeros((n, n)), np.zeros(n)
    for measurement, cells, table in zip(
        fitted.measurements_, _cells_of(fitted, mixture.records), seen, strict=True
    ):
        counts, changes = mixture.counts_and_changes(cells)
        std = max(float(np.max(measurement.std)), 1e-6)
        expected = counts + np.asarray(changes.sum(axis=0)).ravel() / 2
        off = np.clip((table - expected) / std, -clipped, clipped)
        gram += (changes @ changes.T).toarray() / std**2
        signal += changes @ off / std
    # Linear minimum mean squared error estimate, for coins of variance 1/4 and independent noise.
    return np.asarray(np.linalg.solve(4 * np.eye(n) + gram, signal), dtype=np.float64)


def _cells_of(fitted: MarginalSynthesizer, frame: pd.DataFrame) -> list[sparse.csr_matrix]:
    """Return the cell of each noisy table that counts each record; none for excluded records."""
    domain = fitted.domain_
    codes, kept = domain.encode([frame[name] for name in domain.names])
    binned = np.column_stack([own[codes[:, c]] for c, own in enumerate(fitted.bins_)])
    present = np.flatnonzero(kept)
    found = []
    for k, measurement in enumerate(fitted.measurements_):
        own = codes if k < len(fitted.tables_) else binned
        axes = tuple(own[:, c] for c in measurement.columns)
        cell = np.ravel_multi_index(axes, measurement.table.shape)
        shape = len(frame), measurement.table.size
        found.append(sparse.csr_matrix((np.ones(len(present)), (present, cell)), shape=shape))
    return found
