"""Units of an audit: the records or groups of both samples, as one encoded numeric table.

Start reading at :meth:`SampleUnits.from_records`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.impute import SimpleImputer

from ..._input_data import type_of_target
from ...attacks.model_answers import labels_as_text, targets_as_array
from ...attacks.record_tables import as_table, concat, fingerprints, num_samples
from ..inspection.member_groups import MemberGroups

Ints = NDArray[np.int64]
MAX_CATEGORIES = 20  # distinct texts of a column, above which their sorted order is one number
MAX_LABELS = 100  # distinct labels; rarer ones count as one
N_BINS = 10  # of numeric targets


@dataclass(frozen=True)
class SampleUnits:
    """Members and non-members, as classifiers of membership see them.

    Features, labels and the seed are functions of both samples together. A random split therefore
    leaves the membership of the units a random arrangement, given these fields.
    """

    features: Any  # of each record, members first: an array or a CSR matrix
    codes: Ints  # unit of each record, from 0; the units of members come first
    labels: Ints | None  # label of each unit; None if targets have none
    ranks: tuple[Ints, Ints]  # place of each unit in a pseudo-random order of its sample
    seed: int  # of pseudo-random choices; a function of the records

    @classmethod
    def from_records(
        cls, X_in: Any, y_in: Any, X_out: Any, y_out: Any, people: MemberGroups | None = None
    ) -> SampleUnits:
        """Encode the records of both samples; with ``people``, their groups are the units.

        Parameters
        ----------
        X_in, X_out : record tables of shape (n_in, ...) and (n_out, ...)
            Members and non-members, of the same columns.
        y_in, y_out : array-like or None
            Their targets.
        people : MemberGroups or None
            Groups of the records.
        """
        X, n_in = concat(X_in, X_out), num_samples(X_in)
        n = num_samples(X)
        y = None if y_in is None else _concat_targets(y_in, y_out)
        codes, sizes = np.arange(n), (n_in, n - n_in)
        if people is not None:
            codes, sizes = people.all_groups.codes, (people.inside.n, people.outside.n)
        seed = int(fingerprints(X).sum(dtype=np.uint64))
        rng = np.random.default_rng(seed)
        labels = None if y is None else _label_codes(y)
        return cls(
            _encode_records(X, y),
            codes,
            None if labels is None else _most_frequent(labels, codes),
            (rng.permutation(sizes[0]), rng.permutation(sizes[1])),
            seed,
        )

    @property
    def n_in(self) -> int:
        """Number of member units."""
        return len(self.ranks[0])

    @property
    def n_out(self) -> int:
        """Number of non-member units."""
        return len(self.ranks[1])

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Membership of each unit."""
        return np.arange(self.n_in + self.n_out) < self.n_in

    def average_units(self, scores: NDArray[np.float64], rows: Ints) -> NDArray[np.float64]:
        """Return the mean score of each unit that has some of the rows; NaN for the others."""
        n = self.n_in + self.n_out
        counts = np.bincount(self.codes[rows], minlength=n)
        with np.errstate(invalid="ignore"):
            means: NDArray[np.float64] = np.bincount(self.codes[rows], scores, n) / counts
        return means


def _concat_targets(y_in: Any, y_out: Any) -> NDArray[Any]:
    return np.concatenate([targets_as_array(y_in, 0), targets_as_array(y_out, 0)])


def _label_codes(y: NDArray[Any]) -> Ints | None:
    """Return a label for each record: its class, or the tenth in which its number lies."""
    kind = type_of_target(y)
    if kind == "continuous":
        return np.searchsorted(np.quantile(y, np.arange(1, N_BINS) / N_BINS), y, side="right")
    if kind == "continuous-multioutput":
        return None
    codes = _sorted_codes(labels_as_text(y))
    counts = np.bincount(codes)
    frequency_rank = np.argsort(np.argsort(-counts, kind="stable"))
    return np.minimum(frequency_rank, MAX_LABELS - 1)[codes]


def _most_frequent(labels: Ints, codes: Ints) -> Ints:
    """Return the most frequent label of each unit."""
    counts = np.zeros((codes.max() + 1, labels.max() + 1), np.int32)
    np.add.at(counts, (codes, labels), 1)
    return counts.argmax(axis=1)


def _encode_records(X: Any, y: NDArray[Any] | None) -> Any:
    """Return standardised features and targets; texts become indicators or their sorted order."""
    targets = [] if y is None else [_encode_columns(y)]
    if not sparse.issparse(X):
        return _standardize(np.hstack([_encode_columns(X), *targets]))
    spread = np.sqrt(np.asarray(X.multiply(X).mean(axis=0), dtype=float).ravel())
    scaled = X @ sparse.diags(1 / np.where(spread > 0, spread, 1.0))
    parts = [scaled, *(sparse.csr_matrix(_standardize(part)) for part in targets)]
    return sparse.hstack(parts, format="csr", dtype=np.float32)


def _encode_columns(X: Any) -> NDArray[np.float64]:
    if not isinstance(X, pd.DataFrame):
        X = X.reshape(len(X), -1)
        if X.dtype.kind in "biuf":
            numbers: NDArray[np.float64] = X.astype(float)
            return numbers
    frame = as_table(X)
    return np.column_stack([_encode_column(frame.iloc[:, i]) for i in range(frame.shape[1])])


def _encode_column(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Return numbers or times as they are, and texts as indicators or by their sorted order."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        times = column.to_numpy("datetime64[s]")
        return np.where(np.isnat(times), np.nan, times.astype(float))
    try:
        return pd.to_numeric(column).to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError):  # texts and categories
        codes = _sorted_codes(np.array([str(value) for value in column], dtype=object))
    if codes.max() >= MAX_CATEGORIES:
        return codes.astype(float)
    return (codes[:, None] == np.arange(codes.max() + 1)).astype(float)


def _sorted_codes(values: NDArray[Any]) -> Ints:
    """Number values in sorted order: an order of appearance would disclose who comes first."""
    return np.asarray(np.unique(values, return_inverse=True)[1]).ravel()


def _standardize(matrix: NDArray[np.float64]) -> NDArray[np.float32]:
    """Scale columns to mean 0 and variance 1, in place; missing values become medians, marked."""
    if not np.isfinite(matrix).all():
        known = np.where(np.isfinite(matrix), matrix, np.nan)
        imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        matrix = imputer.fit_transform(known)
    spread = matrix.std(axis=0)
    matrix -= matrix.mean(axis=0)
    matrix /= np.where(spread > 0, spread, 1.0)
    return matrix.astype(np.float32)
