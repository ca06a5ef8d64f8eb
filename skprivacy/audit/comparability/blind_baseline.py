"""Blind baseline: do classifiers that never see the model distinguish members from non-members?

:class:`SampleUnits` encodes the records or groups of both samples as one numeric table.

If they do, a membership attack may find the difference between the samples in place of the members
(Das, Zhang and Tramèr 2024; Meeus et al. 2024). Start reading at :func:`compare_samples`.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm, rankdata
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression

from ..._input_data import type_of_target
from ...attacks.model_answers import labels_as_text, targets_as_array
from ...attacks.record_tables import as_table, concat, fingerprints, num_samples
from ..inspection.member_groups import MemberGroups

FloatArray = NDArray[np.float64]
Ints = NDArray[np.int64]
MAX_CATEGORIES = 20  # distinct texts of a column, above which their sorted order is one number
MAX_LABELS = 100  # distinct labels; rarer ones count as one
N_BINS = 10  # of numeric targets
FALSE_DOUBT = 0.01  # probability that two parts of one random split are called different, at most
# Share of that probability for the classifiers (Bonferroni with weights); labels get the rest.
CLASSIFIER_SHARE = 0.8
MIN_UNITS = 30  # in each sample, below which they are not compared
FIRST_SHARE, N_BLOCKS = 0.4, 4  # share of each sample that is only learned, and blocks of the rest
N_PERMUTATIONS = 9999
FIRST_TREES, TREES_PER_BLOCK, MIN_LEAF = 8, 4, 5
MAX_ROWS_PER_TREE = 2000  # so that the cost of a tree does not grow with the tables
CAVEATS = {
    "records": "",
    "shadow predictions": (
        "Members and non-members were compared by their labels and by predictions of shadow models "
        "alone, because their features are unknown. Pass records=(X_train, X_test), or --records "
        "on the command line: two samples of different origin look like a leak."
    ),
    "labels": (
        "Members and non-members were compared by their labels alone, because their features are "
        "unknown. Pass records=(X_train, X_test), or --records on the command line: two samples of "
        "different origin look like a leak."
    ),
    "nothing": (
        f"With fewer than {MIN_UNITS} members or non-members, nothing shows whether the samples "
        "differ by more than membership. Two samples of different origin look like a leak."
    ),
}


@dataclass(frozen=True)
class SampleUnits:
    """Members and non-members, as classifiers of membership see them.

    Features, labels and the seed are functions of both samples together. After a random split, the
    membership of the units is therefore a random permutation, given these fields.
    """

    features: Any  # of each record, members first: an array or a CSR matrix
    codes: Ints  # unit of each record, from 0; the units of members come first
    labels: Ints | None  # label of each unit; None if targets have none
    ranks: tuple[Ints, Ints]  # place of each unit in a pseudo-random order of its sample
    seed: int  # of pseudo-random choices; a function of the records

    @classmethod
    def from_records(
        cls, X_in: Any, y_in: Any, X_out: Any, y_out: Any, member_groups: MemberGroups | None = None
    ) -> SampleUnits:
        """Encode the records of both samples, or their groups if ``member_groups`` are given."""
        X, n_in = concat(X_in, X_out), num_samples(X_in)
        n = num_samples(X)
        y = None
        if y_in is not None:
            y = np.concatenate([targets_as_array(y_in, 0), targets_as_array(y_out, 0)])
        codes, sizes = np.arange(n), (n_in, n - n_in)
        if member_groups is not None:
            codes, sizes = (
                member_groups.all_groups.codes,
                (member_groups.inside.n, member_groups.outside.n),
            )
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


@dataclass(frozen=True)
class BlindBaseline:
    """Difference between members and non-members that is visible without the model."""

    compared: str  # a key of CAVEATS
    auc: float | None = None  # of the blind classifiers; None if only labels were compared
    p_value: float | None = None  # of so large a difference after a random split

    @property
    def differs(self) -> bool:
        """Whether the samples differ beyond chance, at an error probability of 1%."""
        return self.p_value is not None and self.p_value < FALSE_DOUBT

    @property
    def caveat(self) -> str:
        """Limit of the comparison, in words; empty if there is none."""
        return CAVEATS[self.compared]

    @property
    def finding(self) -> str:
        """The comparison in words; empty if nothing was compared."""
        if self.p_value is None:
            return ""
        compared = "labels alone" if self.auc is None else "classifiers that never saw the model"
        found = "a difference found" if self.differs else "no difference found"
        return f"{found} by {compared}: {self._figures}"

    @property
    def _figures(self) -> str:
        area = "" if self.auc is None else f"AUC {self.auc:.3f}, "
        return f"{area}p = {self.p_value:.2g}"

    @property
    def doubt(self) -> str:
        """Why the verdict is doubtful, in words; empty if the samples do not differ."""
        if not self.differs:
            return ""
        seen = (
            "their labels differ"
            if self.auc is None
            else "classifiers that never saw the model distinguish them"
        )
        return (
            f"Members and non-members differ by more than membership: {seen} ({self._figures}). An "
            "attack may find this difference in place of the members, so the audit says nothing "
            "about the claim. Repeat it with samples from one random split. If a person or another "
            "group has several records, pass groups."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes for JSON, and whether the samples differ."""
        return {**asdict(self), "differs": self.differs}


def compare_samples(units: SampleUnits, compared: str = "records") -> BlindBaseline:
    """Test whether members and non-members differ by anything that the audit was given.

    ``compared`` names the features of ``units``; "labels" leaves the classifiers out.

    **Guarantees.** After a random split, also a stratified one, the samples are called different
    with a probability of at most 1%, up to the normal approximation in :func:`rank_blindly`.

    **Edge cases.** Samples of fewer than 30 units are not compared.
    """
    if min(units.n_in, units.n_out) < MIN_UNITS:
        return BlindBaseline("nothing")
    by_label = compare_labels(units)
    if compared == "labels":
        return BlindBaseline(compared, None, by_label)
    area, by_classifiers = rank_blindly(units)
    if units.labels is None:
        return BlindBaseline(compared, area, by_classifiers)
    p_value = min(1.0, by_classifiers / CLASSIFIER_SHARE, by_label / (1 - CLASSIFIER_SHARE))
    return BlindBaseline(compared, area, p_value)


def rank_blindly(units: SampleUnits) -> tuple[float, float]:
    """Return the AUC of blind classifiers that learn from earlier blocks, and its p-value.

    Each sample is cut at random into a first part and four blocks. For each block, the classifiers
    learn from all earlier units and rank the units of the block. The forest keeps its trees. The
    Mann-Whitney statistics of the blocks are added (Stouffer), weighted by the roots of their
    sizes.

    **Guarantees.** After a random split, given all units and the membership of earlier ones, the
    members of a block are a random subset of it. So the statistics of the blocks are independent
    and of known law, whatever the classifiers are. Cross-fitting has no such law: its folds teach
    each other, and its p-values are too small.

    **Edge cases.** The law is approximated by a normal one, which has heavier tails: a Mann-Whitney
    statistic has a negative excess kurtosis.
    """
    cuts = np.linspace(FIRST_SHARE, 1.0, N_BLOCKS + 1)[:-1]
    places = np.concatenate([(ranks + 0.5) / len(ranks) for ranks in units.ranks])
    stages = np.searchsorted(cuts, places, side="right")  # 0 for the first part
    classifiers = BlindClassifiers(units.seed)
    sizes, areas, scores = [], [], []
    for block in range(1, N_BLOCKS + 1):
        trees = FIRST_TREES if block == 1 else TREES_PER_BLOCK
        classifiers.learn(units, _mark_earlier(stages, block), trees)
        found = classifiers.score(units, stages == block)
        area, score = _compare_ranks(
            np.sum([rankdata(part) for part in found], axis=0), units.is_member[stages == block]
        )
        areas.append(area)
        scores.append(score)
        sizes.append(int((stages == block).sum()))
    weights = np.sqrt(sizes)
    total = weights @ np.array(scores) / np.sqrt(weights @ weights)
    return float(np.average(areas, weights=sizes)), float(norm.sf(total))


def _compare_ranks(values: FloatArray, member: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the AUC of a block, and its Mann-Whitney statistic in standard deviations."""
    ranks, n = rankdata(values), len(values)
    n_in = int(member.sum())
    n_out = n - n_in
    area = (ranks[member].sum() - n_in * (n_in + 1) / 2) / (n_in * n_out)
    # The variance of a sum of n_in of these ranks, drawn without replacement: exact with ties
    variance = n_in * n_out * ranks.var() / (n - 1)
    if variance == 0:
        return 0.5, 0.0
    return area, (area - 0.5) * n_in * n_out / np.sqrt(variance)


class BlindClassifiers:
    """A forest and a logistic regression of membership, which never see the audited model."""

    def __init__(self, seed: int) -> None:
        self.forest = RandomForestClassifier(
            0, min_samples_leaf=MIN_LEAF, warm_start=True, random_state=seed % 2**32
        )
        self.regression = LogisticRegression(C=0.1)

    def learn(self, units: SampleUnits, learned: NDArray[np.bool_], n_trees: int) -> None:
        """Add trees that learn from the marked units, and learn the regression anew."""
        rows = np.flatnonzero(learned[units.codes])
        features, member = units.features[rows], units.is_member[units.codes[rows]]
        self.forest.set_params(
            n_estimators=self.forest.n_estimators + n_trees,
            max_samples=min(len(rows), MAX_ROWS_PER_TREE),
        ).fit(features, member)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a regression that stops early does no harm
            self.regression.fit(features, member)

    def score(self, units: SampleUnits, scored: NDArray[np.bool_]) -> list[FloatArray]:
        """Return two probabilities of membership for each marked unit, averaged over records."""
        rows = np.flatnonzero(scored[units.codes])
        return [
            units.average_units(model.predict_proba(units.features[rows])[:, 1], rows)[scored]
            for model in (self.forest, self.regression)
        ]


def compare_labels(units: SampleUnits) -> float:
    """Return the p-value of Pearson's chi-square statistic of labels and membership.

    **Guarantees.** Exact: permutations of membership are drawn in place of the asymptotic law.
    """
    if units.labels is None:
        return 1.0
    codes = np.unique(units.labels, return_inverse=True)[1]
    counts, n_in = np.bincount(codes), units.n_in
    expected = counts * n_in / len(codes)
    own = np.bincount(codes[:n_in], minlength=len(counts))
    rng = np.random.default_rng(units.seed)
    drawn = rng.multivariate_hypergeometric(counts, n_in, size=N_PERMUTATIONS)
    # With fixed margins, chi-square is a multiple of this distance.
    distances = ((np.vstack([own, drawn]) - expected) ** 2 / counts).sum(axis=1)
    at_least = distances[1:] >= distances[0] - 1e-9 * len(codes)
    return (1 + int(at_least.sum())) / (1 + N_PERMUTATIONS)


def _mark_earlier(stages: NDArray[np.intp], block: int) -> NDArray[np.bool_]:
    return stages < block


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
