"""Where a fit reads its sums: records in memory, the table of an engine, or a finished total."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._groups import Groups
from .._validation import library_of
from ..accounting import Event
from ..mechanisms import Mechanism, SecureRandom
from .cluster_tables import DaskTable, RayTable, SparkTable
from .sum_plan import GROUP_SIZE, SumPlan, SumTotal
from .tables import ArrowTable, DuckDBTable, PandasTable, PolarsTable, Table

# Yields the plan of each further scan, receives its total, and returns what was released.
Scans = Generator[SumPlan, SumTotal, Any]


@dataclass(frozen=True)
class ScanReleases:
    """Releases of several scans, each planned from public facts and earlier releases."""

    plan: SumPlan  # of the first scan
    event: Event  # of all releases
    arithmetic: str
    scan: Callable[[SumTotal, SecureRandom], Scans]  # starts with the total of the first scan
    read: Callable[[Any, int], Any]  # as of SumRelease


@dataclass(frozen=True)
class SumRelease:
    """One release of a function of exact sums, made from public facts."""

    plan: SumPlan
    mechanism: Mechanism
    vector: Callable[[SumTotal], NDArray[np.float64]]  # the mechanism bounds its sensitivity
    # post-processing of the noisy vector, and of the public number of units if there is one
    read: Callable[[Any, int], Any]

    @property
    def event(self) -> Event:
        return self.mechanism.event

    @property
    def arithmetic(self) -> str:
        return self.mechanism.arithmetic

    def scan(self, total: SumTotal, random: SecureRandom) -> Scans:
        """Return the noisy vector after the only scan."""
        return self.mechanism.release(self.vector(total), random)
        yield

    def release(self, source: SumSource, random: SecureRandom) -> Any:
        """Sum all records and return the noisy vector; call it after the charge only."""
        return self.mechanism.release(self.vector(source.sum(self.plan)), random)


class SumSource(ABC):
    """Private records of which a fit reads only sums; ``rows`` and ``y`` are those in memory."""

    unit: str
    target: str  # name of the target's column
    rows: Any
    y: Any
    public: Any = None  # public records, of estimators that take some

    @property
    @abstractmethod
    def n_units(self) -> int:
        """Number of records, or of groups."""

    def check(self, plan: SumPlan) -> None:  # noqa: B027  # records in memory were checked before
        """Refuse a source that does not fit the plan; reads no record."""

    @abstractmethod
    def sum(self, plan: SumPlan) -> SumTotal:
        """Return the sum over all records; inside of ``fit.charged`` only."""


class ArraySource(SumSource):
    """Records in memory; ``read`` returns them as ``_sum_records`` takes them, once."""

    def __init__(self, rows: Any, y: NDArray[Any] | None, units: Groups) -> None:
        self.rows, self.who, self.unit, self.target = rows, units, units.unit, "y"
        self.y = np.empty(0) if y is None else y
        self.read: Callable[[], tuple[Any, ...]] = lambda: (rows,) if y is None else (rows, y)
        self._records: tuple[Any, ...] | None = None

    @property
    def n_units(self) -> int:
        return self.who.n

    def sum(self, plan: SumPlan) -> SumTotal:
        if self._records is None:
            self._records = self.read()
        sizes = None if self.unit == "record" else self.who.sizes()[self.who.codes]
        total = SumTotal(plan)
        total.add("all records", plan._sum_records(sizes, *self._records))
        return total


class _RemoteSource(SumSource):
    """Records that stay where they are; ``rows`` and ``y`` are empty."""

    def __init__(self, n_features: int, target: str, unit: str) -> None:
        self.rows, self.y = np.empty((0, n_features)), np.empty(0)
        self.target, self.unit = target, unit


class ColumnSource(_RemoteSource):
    """Names of columns alone, to make a plan from."""

    @property
    def n_units(self) -> int:
        raise NotImplementedError

    def sum(self, plan: SumPlan) -> SumTotal:
        raise NotImplementedError


_IN_MEMORY = {("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")}
_ENGINES: dict[tuple[str, str], type[Table]] = {
    ("pandas", "DataFrame"): PandasTable,
    ("polars", "DataFrame"): PolarsTable,
    ("polars", "LazyFrame"): PolarsTable,
    ("pyarrow", "Table"): ArrowTable,
    ("pyarrow", "FileSystemDataset"): ArrowTable,
    ("pyarrow", "UnionDataset"): ArrowTable,
    ("pyarrow", "InMemoryDataset"): ArrowTable,
    ("dask", "DataFrame"): DaskTable,
    ("ray", "Dataset"): RayTable,
    ("ray", "MaterializedDataset"): RayTable,
    ("pyspark", "DataFrame"): SparkTable,
    ("duckdb", "DuckDBPyRelation"): DuckDBTable,
    ("_duckdb", "DuckDBPyRelation"): DuckDBTable,
}


def _engine_of(frame: Any) -> tuple[str, str]:
    return library_of(frame), type(frame).__name__


def is_table(frame: Any, *columns: Any) -> bool:
    """Return whether a fit reads a table by column names; one in memory needs a name."""
    engine = _engine_of(frame)
    if isinstance(frame, Table):
        return True
    if engine in _IN_MEMORY:
        return any(isinstance(column, str) for column in columns)
    return engine in _ENGINES


def open_table(frame: Any) -> Table:
    """Return the adapter of an engine's table, recognised by the module of its type."""
    if isinstance(frame, Table):
        return frame
    engine = _engine_of(frame)
    if engine in _ENGINES:
        return _ENGINES[engine](frame)
    raise TypeError(
        f"X is a {type(frame).__name__} of {library_of(frame)!r}, which is not a known engine. "
        "Compute plan.partial(batch) of each part, add the parts to a SumTotal, and pass it to "
        "fit_sums."
    )


class TableSource(_RemoteSource):
    """A table of an engine."""

    def __init__(self, table: Table, n_features: int, target: str, groups: str | None) -> None:
        super().__init__(n_features, target, groups or "record")
        self._table, self._groups = table, groups

    @property
    def n_units(self) -> int:
        return self._table.count_units(self._groups)

    def check(self, plan: SumPlan) -> None:
        kinds = self._table.kinds()
        needed = [name for name in plan.columns if name != GROUP_SIZE]
        if absent := [name for name in needed if name not in kinds]:
            raise ValueError(
                f"The table has no column {absent[0]!r}; it has {list(kinds)}. Correct the names."
            )
        for name, expected in plan.column_kinds().items():
            if kinds[name] not in (expected, "unknown"):
                raise TypeError(
                    f"The column {name!r} holds {_KIND_WORDS[kinds[name]]}; expected "
                    f"{_KIND_WORDS[expected]}. Convert the column, or leave it out."
                )
        self._table.check_parts([*needed, *([self._groups] if self._groups else [])])

    def sum(self, plan: SumPlan) -> SumTotal:
        total = self._table._sum_rows(plan, self._groups)
        total._check_sizes()
        return total


_KIND_WORDS = {"number": "numbers", "text": "text", "other": "neither numbers nor text"}


class TotalSource(_RemoteSource):
    """A total that was computed before."""

    def __init__(self, total: SumTotal, n_features: int, target: str) -> None:
        super().__init__(n_features, target, total.plan.unit)
        self._total = total

    @property
    def n_units(self) -> int:
        return self._total.n_units

    def check(self, plan: SumPlan) -> None:
        if plan.digest != self._total.plan.digest:
            raise ValueError(
                "total is the sum of another plan: parameters of the estimator or the version of "
                "skprivacy differ. Compute it again by model.plan."
            )
        self._total._check_sizes()

    def sum(self, plan: SumPlan) -> SumTotal:
        raise NotImplementedError
