"""Fits of a head on a public encoder to sums: of a table in its engine, or computed elsewhere."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import all_numbers
from ..base import PrivateFit, public_classes
from ..mechanisms import SecureRandom
from ..sums import SumTotal
from ..sums.batch_columns import read_numbers
from ..sums.sources import ScanReleases, Scans, SumSource
from ..sums.sum_estimator import SUM_DOCS, SumEstimator
from ..sums.sum_plan import Integers, Labels, SumPlan, TargetPlan
from .features import HalfWhitening, check_public, head_rows, trial_rows
from .head import Head, HeadInput, SumHead, Task


@dataclass(frozen=True)
class HeadPlan(TargetPlan):
    """Sums of ``head`` over records: products of rows in the unit ball.

    **Guarantees.** A record is encoded by itself, to the last bit. A record whose features are not
    finite, with a missing or an unknown label adds 0.
    """

    encoding: Labels
    encoder: Any  # fitted, public
    whitening: HalfWhitening | None
    encoder_digest: str
    head: SumHead
    width: int  # of a row, with the constant
    weights: NDArray[np.float64] | None = None  # released, if the sums depend on any

    @property
    def n_sums(self) -> int:
        return self.head.n_sums(self.width, len(self.encoding.classes))

    def facts(self) -> dict[str, Any]:
        return {
            "columns": self.record_columns,
            "classes": self.encoding.facts(),
            "encoder": self.encoder_digest,
            "head": [type(self.head).__name__, dict(vars(self.head))],
            "width": self.width,
            "weights": None if self.weights is None else self.weights.tolist(),
        }

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        target = self.encoding.encode(self.encoding.read_target(batch, self.target))
        return self.encode(np.ascontiguousarray(read_numbers(batch, self.features)), target)

    def encode(self, X: Any, target: NDArray[np.float64]) -> tuple[NDArray[Any], ...]:
        """Return the rows in the unit ball, and the targets; NaN for a record that is left out."""
        rows, found = head_rows(self.encoder, self.whitening, X, private=True)
        return rows, np.where(found, target, np.nan)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        rows, target = records
        counts = np.ones(len(rows)) if sizes is None else Groups.exact_shares_of(sizes)
        counts[np.isnan(target)] = 0.0
        # rows of records that are left out become 0
        weighted = np.where(counts[:, None] > 0, rows, 0.0)
        labels = np.nan_to_num(target).astype(np.int64)
        given = HeadInput(weighted, counts, labels, len(self.encoding.classes))
        return self._as_integers(self.head.sums(given, self.weights))


@fill_docs(SUM_DOCS)
class HeadSums(SumEstimator):
    """Base of models with a public encoder, whose heads may need only sums."""

    head: Any
    classes: Any
    head_: Head
    encoder_: Any
    whitening_: Any
    weights_: Any
    n_features_in_: int

    @abstractmethod
    def _choose_parts(self, fit: PrivateFit, X_public: Any, n_records: int) -> Task:
        """Fit the encoder and choose the head, from public facts."""

    def _make_release(self, fit: PrivateFit, source: SumSource) -> ScanReleases:
        if not source.target:
            raise ValueError("y=None: the head needs labels. Pass y, the name of their column.")
        self.classes_, _ = public_classes(fit, source.y, self.classes)
        task = self._choose_parts(fit, source.public, 0)  # no sum depends on the number of records
        head = self.head_
        if not isinstance(head, SumHead):
            raise ValueError(
                f"head={self.head!r} needs more than sums over records. Fit it to arrays, or pass "
                "head='gradient', 'least_squares' or 'prototypes'."
            )
        public = check_public(source.public, self.n_features_in_)
        if isinstance(public, pd.DataFrame) and not all_numbers(public):
            raise ValueError(
                "X_public has columns that are not numbers, and the head reads numbers off a "
                "table. Encode them by make_private_pipeline(schema, model)."
            )
        rows = trial_rows(public, self.n_features_in_)
        plan = HeadPlan(
            self._feature_names(source), source.target, Labels(tuple(self.classes_)),
            self.encoder_, self.whitening_,
            _digest_encoder(self.encoder_, self.whitening_, rows),
            head, task.size, next(head.scan(task, SecureRandom())), unit=source.unit,
        )  # fmt: skip

        def release_weights(total: SumTotal, random: SecureRandom) -> Scans:
            steps, step_plan = head.scan(task, random), plan
            next(steps)
            try:
                while True:
                    step_plan = replace(plan, weights=steps.send(step_plan.sums(total)))
                    total = yield step_plan
            except StopIteration as end:
                return end.value

        def store(weights: NDArray[np.float64], _: int) -> None:
            self.weights_ = weights

        return ScanReleases(plan, head.event(task), head.arithmetic(task), release_weights, store)

    def plan(
        self,
        columns: Sequence[str] | Mapping[str, Any],
        y: str | None = None,
        groups: str | None = None,
        *,
        X_public: Any = None,
    ) -> SumPlan:
        """Return the plan of the sums of the first scan.

        Parameters
        ----------
        columns : sequence of str
            Names of the features.
        y : str
            Name of the labels.
        %(plan_groups)s
        X_public : array-like, DataFrame or PublicRecords, default=None
            As in ``fit``. The plan holds the encoder that is fitted to them.

        Returns
        -------
        %(plan_result)s

        Raises
        ------
        TypeError
            If a name is not text.
        ValueError
            If a parameter is not as described, ``classes`` are missing, or the head needs more than
            sums.
        """
        return self._plan_first(columns, y, groups, X_public)

    def fit_sums(self, total: SumTotal, *, X_public: Any = None) -> Any:
        """Fit to sums that were computed elsewhere by ``plan``, scan after scan.

        Parameters
        ----------
        %(sums_total)s
        X_public : array-like, DataFrame or PublicRecords, default=None
            For the first total, the records that ``plan`` got. An encoder that learns at random
            needs PublicRecords, which fit it once, or a seed.

        Returns
        -------
        %(sums_result)s

        Raises
        ------
        TypeError
            If ``total`` is not a SumTotal.
        ValueError
            If the total belongs to another plan or encoder, to an earlier scan, or to other rows
            than the last scan. Nothing is released or charged then.
        """
        return self._take_total(total, X_public)


def _digest_encoder(encoder: Any, whitening: Any, rows: Any) -> str:
    """Return a digest of a few records that are not private, and of their features."""
    features, _ = head_rows(encoder, whitening, rows, private=True)
    return hashlib.sha256(np.asarray(rows, np.float64).tobytes() + features.tobytes()).hexdigest()
