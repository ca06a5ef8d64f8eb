"""A table in its engine whose columns are encoded by a public schema, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..sums import SumPlan, Table
from ..sums.batch_columns import count_rows, read_numbers, read_series
from ..sums.sum_plan import Integers
from .columns import BoundedColumn

__all__ = ["EncodedTable"]


class EncodedTable(Table):
    """Features x0, x1 ... of the schema's columns, beside the other columns of a table.

    ``encoder`` is a fitted SchemaTransformer.
    """

    def __init__(self, table: Table, encoder: Any) -> None:
        super().__init__(table.frame)
        self._table, self._encoder = table, encoder
        self.encoded_features: list[str] = [f"x{i}" for i in range(encoder.schema_.n_features_out)]

    @property
    def names(self) -> list[str]:
        return [
            *self.encoded_features,
            *(n for n in self._table.names if n not in self._encoder.schema_),
        ]

    def kinds(self) -> dict[str, str]:
        return {**self._table.kinds(), **dict.fromkeys(self.encoded_features, "number")}

    def empty_frame(self) -> pd.DataFrame:
        return pd.DataFrame(columns=self.encoded_features, dtype=np.float64)

    def check_parts(self, columns: Iterable[str]) -> None:
        others = [name for name in columns if name not in self.encoded_features]
        self._table.check_parts([*self._encoder.schema_, *others])

    def count_units(self, groups: str | None) -> int:
        return self._table.count_units(groups)

    def sum_parts(self, plan: SumPlan, groups: str | None) -> Iterator[tuple[str, Integers]]:
        kinds, schema = self._table.kinds(), self._encoder.schema_
        numbers = tuple(
            name
            for name, fact in schema.items()
            if isinstance(fact, BoundedColumn) and kinds[name] == "number"
        )
        encoded = EncodedPlan(plan, self._encoder, numbers, unit=plan.unit)
        return self._table.sum_parts(encoded, groups)


@dataclass(frozen=True)
class EncodedPlan(SumPlan):
    """A plan whose features are made of other columns by a schema."""

    plan: SumPlan
    encoder: Any
    numbers: tuple[str, ...]  # bounded columns whose type is a number, such as a decimal

    @property
    def _plain_columns(self) -> list[str]:
        """Columns that are not encoded, such as the target."""
        width = self.encoder.schema_.n_features_out
        return list(self.plan.record_columns)[width:]

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (*self.encoder.schema_, *self._plain_columns)

    @property
    def n_sums(self) -> int:
        return self.plan.n_sums

    def column_kinds(self) -> dict[str, str]:
        return self.plan.column_kinds()

    def facts(self) -> dict[str, Any]:
        encoder = [self.encoder.schema_.to_dict(), list(self.encoder.feature_range)]
        return {"plan": self.plan.digest, "encoder": encoder}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        raw = {name: self._read_column(batch, name) for name in self.encoder.feature_names_in_}
        rows = np.empty((0, self.encoder.schema_.n_features_out))
        if count_rows(batch):  # scikit-learn refuses a table without rows
            rows = np.asarray(self.encoder.transform(pd.DataFrame(raw)))
        frame = pd.DataFrame(rows, columns=list(self.plan.record_columns[: rows.shape[1]]))
        others = {
            name: read_series(batch, name).reset_index(drop=True) for name in self._plain_columns
        }
        return self.plan._read_batch(frame.assign(**others))

    def _read_column(self, batch: Any, name: str) -> Any:
        if name in self.numbers:
            return read_numbers(batch, (name,))[:, 0]
        return read_series(batch, name).reset_index(drop=True)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        return self.plan._sum_slice(sizes, *records)
