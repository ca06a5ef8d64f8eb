"""Exact sums of a private summary, and the rows of Parquet files that DuckDB reads for it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._groups import SHARE_GRID, SHARES_PER_GROUP, Groups
from ...mechanisms.base import GRID_BITS
from ...sums import SumTotal
from ...sums.batch_columns import count_rows, read_numbers, read_series
from ...sums.sum_plan import Integers, SumPlan
from ...sums.tables import DuckDBTable
from ..cell_values import category_codes, mask_unreadable
from ..columns import BoundedColumn, CategoricalColumn

Fact = BoundedColumn | CategoricalColumn


@dataclass(frozen=True)
class SummaryPlan(SumPlan):
    """Sums of columns scaled to [-1, 1], and counts of records in the cells of each marginal.

    **Guarantees.** A record adds whole steps of 2**-16 to each sum, 2**16 at most, and 1 to at most
    one cell of each marginal. It depends on this record only. Each of the m records of a group adds
    1 / m of that, rounded towards 0, so a group adds no more than a record would.
    """

    _counts_cells = True

    described: tuple[tuple[str, Fact], ...]  # the columns that are used, with their public facts
    means: tuple[str, ...]  # bounded columns that are summed
    marginals: tuple[tuple[str, ...], ...]  # columns that are counted together

    @property
    def fact_of(self) -> dict[str, Fact]:
        return dict(self.described)

    @property
    def record_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.described)

    def column_kinds(self) -> dict[str, str]:
        return {n: "number" for n, fact in self.described if isinstance(fact, BoundedColumn)}

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Number of cells of each marginal, by its columns."""
        known = self.fact_of
        return [tuple(_count_cells(known[name]) for name in names) for names in self.marginals]

    @property
    def n_sums(self) -> int:
        return len(self.means) + sum(math.prod(shape) for shape in self.shapes)

    def facts(self) -> dict[str, Any]:
        described = [[name, fact.to_dict()] for name, fact in self.described]
        return {"columns": described, "means": self.means, "marginals": self.marginals}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        """Return the places of the records, and each column as numbers or codes of categories."""
        columns = (_read_column(batch, name, fact) for name, fact in self.described)
        return np.arange(count_rows(batch)), *columns

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        places, *columns = records
        values = dict(zip(self.record_columns, columns, strict=True))
        known = self.fact_of
        shares = None if sizes is None else Groups.exact_shares_of(sizes)
        steps = [_steps(values[name], known[name], shares).sum() for name in self.means]
        sums = [np.array(steps, np.int64)]
        used = {name for names in self.marginals for name in names}
        codes = {name: _cell_codes(values[name], known[name]) for name in used}
        for names, shape in zip(self.marginals, self.shapes, strict=True):
            cells, kept = np.zeros_like(places), np.ones(len(places), bool)
            for name, size in zip(names, shape, strict=True):
                kept &= codes[name] >= 0
                cells = cells * size + codes[name]
            weights = None if shares is None else shares[kept] * SHARES_PER_GROUP
            sums.append(np.bincount(cells[kept], weights, math.prod(shape)).astype(np.int64))
        return np.concatenate(sums)

    def vector(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private count, sums and marginals."""
        sums, n_means = total._read_sums(), len(self.means)
        if self.unit == "record":
            sums[:n_means] *= 2.0**-GRID_BITS
        else:
            sums[:n_means] *= SHARE_GRID
            sums[n_means:] /= SHARES_PER_GROUP
        return np.concatenate([[float(total.n_units)], sums])


def _read_column(batch: Any, name: str, fact: Fact) -> NDArray[Any]:
    if isinstance(fact, BoundedColumn):
        return read_numbers(batch, (name,))[:, 0]
    return category_codes(mask_unreadable(read_series(batch, name)), fact.values)


def _count_cells(fact: Fact) -> int:
    return fact.bins if isinstance(fact, BoundedColumn) else len(fact.values)


def _cell_codes(values: NDArray[Any], fact: Fact) -> NDArray[np.int64]:
    """Return the index of each value's bin or category; -1 for a value in no cell."""
    if isinstance(fact, CategoricalColumn):
        return values.astype(np.int64)
    missing = np.isnan(values)
    unit = fact.to_unit(np.where(missing, fact.lower, values))
    bins = np.minimum(np.floor(unit * fact.bins), fact.bins - 1).astype(np.int64)
    return np.where(missing, -1, bins)


def _steps(
    values: NDArray[np.float64], fact: Fact, shares: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Return each number's distance from the middle of its bounds, in whole steps.

    A step is 2**-16 of half the width of the bounds; with shares, ``SHARE_GRID`` of it.
    """
    assert isinstance(fact, BoundedColumn)
    half, middle = (fact.upper - fact.lower) / 2, (fact.upper + fact.lower) / 2
    if half == 0:
        return np.zeros(len(values))
    distance = (np.clip(values, fact.lower, fact.upper) - middle) / half
    steps = np.trunc(np.clip(distance, -1.0, 1.0) * 2.0**GRID_BITS)
    steps = np.where(np.isnan(values), 0.0, steps)
    return steps if shares is None else np.trunc(steps * shares * (2.0**-GRID_BITS / SHARE_GRID))


ROWS_PER_PART = 3_000_000  # of one batch of persons
ROWS_PER_WRITE = 20_000
_NUMBER_TYPES = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN",
)  # fmt: skip
_DUCKDB_COLUMNS = ("file_index", "file_row_number")  # a column of the file would hide DuckDB's
_CATEGORY_TYPES = ("VARCHAR", "BOOLEAN", *(k for k in _NUMBER_TYPES if "INT" in k))


@dataclass(frozen=True)
class Scan:
    """Rows of the files that a plan sums.

    **Guarantees.** The choice of a person's rows depends on this person's rows only.
    """

    files: Sequence[str]
    plan: SummaryPlan
    groups: str | None  # the column by which rows belong together
    max_group_size: int  # used per person: the first ones in the order of the files

    def check_types(self, connection: Any) -> None:
        """Refuse columns that are missing or of a wrong type; reads file headers only."""
        described = connection.execute(f"DESCRIBE SELECT * FROM {self._source_sql()}").fetchall()
        kinds = {name: kind.split("(")[0] for name, kind, *_ in described}
        used, facts = list(self.plan.record_columns), self.plan.fact_of
        for name in [*used, *([self.groups] if self.groups else [])]:
            if name not in kinds:
                raise ValueError(
                    f"path has no column {name!r}; it has {sorted(kinds)}. Correct the names."
                )
        for name in used:
            expected = _NUMBER_TYPES if isinstance(facts[name], BoundedColumn) else _CATEGORY_TYPES
            if kinds[name] not in expected:
                raise ValueError(
                    f"The column {name!r} is of type {kinds[name]}, and its facts are "
                    f"{facts[name]!r}. Bounded columns hold numbers, and categories text, "
                    "whole numbers or booleans. Convert the column, or correct the schema."
                )
        if self.groups and (own := [name for name in kinds if name.lower() in _DUCKDB_COLUMNS]):
            raise ValueError(
                f"path has a column {own[0]!r}, and by DuckDB's column of this name the first rows "
                "of a person are found. Rename or drop it."
            )
        self._check_same_types(connection, [*used, *([self.groups] if self.groups else [])])

    def _check_same_types(self, connection: Any, used: list[str]) -> None:
        """Refuse a file that is read twice, or that is read as other types than its own.

        A conversion may fail, which reveals a value, or merge two persons into one.
        """
        listed = f"[{', '.join(map(_quote_text, self.files))}]"
        found = connection.execute(f"SELECT file_name FROM parquet_file_metadata({listed})")
        files = sorted(name for (name,) in found.fetchall())  # DuckDB gives them in any order
        if len({os.path.realpath(name) for name in files}) < len(files):
            raise ValueError(
                f"path={list(self.files)!r} names a file twice, so that its rows would count "
                "twice. Name each once."
            )
        long = connection.execute(
            f"SELECT name FROM parquet_schema({listed}) WHERE precision > 38"
        ).fetchall()
        if (self.groups,) in long:
            raise ValueError(
                f"The column {self.groups!r} holds decimals of more than 38 digits, which DuckDB "
                "rounds: two persons could become one. Convert them to text."
            )
        first: dict[str, str] = {}
        for file in files:
            source = f"read_parquet({_quote_text(file)}, hive_partitioning = false)"
            described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
            kinds = {name: kind for name, kind, *_ in described}
            first = first or kinds
            for name in used:
                if kinds.get(name) != first.get(name):
                    raise ValueError(
                        f"The column {name!r} is of type {first.get(name)} in {files[0]!r} and "
                        f"{kinds.get(name)} in {file!r}. Convert it to one type in all files."
                    )

    def run(self, connection: Any, folder: str) -> SumTotal:
        """Return the sums over the rows used; the rows of persons are written to ``folder``."""
        total = SumTotal(self.plan)
        for number, rows in enumerate(self._rows(connection, folder)):
            for name, integers in DuckDBTable(rows).sum_parts(self.plan, None):
                total.add(f"{number}: {name}", integers)
        return total

    def _rows(self, connection: Any, folder: str) -> Iterator[Any]:
        """Yield the rows used, as relations of DuckDB."""
        columns = ", ".join(map(_quote_name, self.plan.columns)) or "1 AS one"
        if self.groups is None:
            yield connection.sql(f"SELECT {columns} FROM {self._source_sql()}")
            return
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {self._source_sql()}").fetchall()
        parts, column = 1 + rows // ROWS_PER_PART, _quote_name(self.groups)
        connection.execute(f"SET partitioned_write_flush_threshold = {ROWS_PER_WRITE}")
        connection.execute(
            f"COPY (SELECT hash({column}) % {parts} AS skprivacy_part, {column} AS skprivacy_who, "
            f"file_index, file_row_number, {columns} FROM {self._source_sql()} "
            f"WHERE {column} IS NOT NULL) TO {_quote_text(folder)} "
            "(FORMAT parquet, PARTITION_BY (skprivacy_part), OVERWRITE_OR_IGNORE)"
        )
        for part in Path(folder).glob("skprivacy_part=*"):
            source = (
                f"read_parquet({_quote_text(str(part / '*.parquet'))}, hive_partitioning = false)"
            )
            yield connection.sql(
                f"SELECT * FROM {source} QUALIFY row_number() OVER (PARTITION BY skprivacy_who "
                f"ORDER BY file_index, file_row_number) <= {self.max_group_size}"
            )

    def _source_sql(self) -> str:
        return f"read_parquet([{', '.join(map(_quote_text, self.files))}])"


def _quote_name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
