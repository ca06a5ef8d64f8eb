"""DuckDB scan of Parquet files: exact integer sums of bounded row contributions."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cell_values import category_key
from .columns import BoundedColumn, CategoricalColumn

__all__ = ["Scan"]

STEPS_PER_UNIT = 1 << 16  # grid of numbers in [-1, 1], rounded towards 0
_MAX_TOTAL = 1 << 53  # sums are clipped to it: float64 holds integers up to here
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
    """Query of row counts, sums and marginals over the files.

    **Guarantees.** A row's contribution depends on this row only: 1 to the count, whole steps of at
    most ``STEPS_PER_UNIT`` to each sum, and 1 to at most one cell of each marginal. The choice of a
    person's rows depends on this person's rows only. Sums are integers, hence exact.
    """

    files: Sequence[str]
    facts: Mapping[str, BoundedColumn | CategoricalColumn]
    marginals: Sequence[tuple[str, ...]]  # columns that are counted together
    means: Sequence[str]  # bounded columns that are summed
    groups: str | None  # the column by which rows belong together
    max_group_size: int  # used per person: the first ones in the order of the files

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Number of cells of each marginal, by its columns."""
        return [tuple(_count_cells(self.facts[name]) for name in names) for names in self.marginals]

    def check_types(self, connection: Any) -> None:
        """Refuse columns that are missing or of a wrong type; reads file headers only."""
        described = connection.execute(f"DESCRIBE SELECT * FROM {self._source_sql()}").fetchall()
        kinds = {name: kind.split("(")[0] for name, kind, *_ in described}
        used = [*self.means, *(name for names in self.marginals for name in names)]
        for name in [*used, *([self.groups] if self.groups else [])]:
            if name not in kinds:
                raise ValueError(
                    f"path has no column {name!r}; it has {sorted(kinds)}. Correct the names."
                )
        for name in used:
            expected = (
                _NUMBER_TYPES if isinstance(self.facts[name], BoundedColumn) else _CATEGORY_TYPES
            )
            if kinds[name] not in expected:
                raise ValueError(
                    f"The column {name!r} is of type {kinds[name]}, and its facts are "
                    f"{self.facts[name]!r}. Bounded columns hold numbers, and categories text, "
                    "whole numbers or booleans. Convert the column, or correct the schema."
                )
        if self.groups and (own := [name for name in kinds if name.lower() in _DUCKDB_COLUMNS]):
            raise ValueError(
                f"path has a column {own[0]!r}, and by DuckDB's column of this name the first rows "
                "of a person are found. Rename or drop it."
            )
        self._check_same_types(connection, [*used, *([self.groups] if self.groups else [])])

    def _check_same_types(self, connection: Any, used: list[str]) -> None:
        """Refuse files of which one is read twice, or as another type than its own.

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

    def run(self, connection: Any, folder: str) -> tuple[int, list[int], list[NDArray[np.float64]]]:
        """Return the number of rows used, the sums in steps, and the tables of marginals.

        Rows of persons are written to ``folder``, in parts that fit into memory.
        """
        counts = [np.zeros(math.prod(shape)) for shape in self.shapes]
        n, sums = 0, [0] * len(self.means)
        at = 1 + len(counts)
        level = (1 << len(counts)) - 1  # grouping level of the grand total
        for row in self._totals(connection, folder):
            which, cells, (total, *parts) = row[0], row[1:at], row[at:]
            if which == level:
                n += int(total)
                sums = [x + int(part or 0) for x, part in zip(sums, parts, strict=True)]
                continue
            (i,) = (i for i in range(len(counts)) if not which >> (len(counts) - 1 - i) & 1)
            if cells[i] is not None:
                counts[i][cells[i]] += _clip_total(total)
        tables = [c.reshape(shape) for c, shape in zip(counts, self.shapes, strict=True)]
        return _clip_total(n), [_clip_total(x) for x in sums], tables

    def _totals(self, connection: Any, folder: str) -> Iterator[tuple[Any, ...]]:
        """Yield the level, the cell of each marginal, the number of rows and the sums."""
        cells = [
            f"CAST({self._cell_sql(names)} AS INTEGER) AS m{i}"
            for i, names in enumerate(self.marginals)
        ]
        steps = [f"CAST({self._steps_sql(n)} AS INTEGER) AS z{i}" for i, n in enumerate(self.means)]
        values = ", ".join(["CAST(1 AS TINYINT) AS one", *cells, *steps])
        if self.groups is None:
            query = self._sum_query(f"SELECT {values} FROM {self._source_sql()}")
            yield from connection.execute(query).fetchall()
            return
        ((rows,),) = connection.execute(f"SELECT count(*) FROM {self._source_sql()}").fetchall()
        parts, who = 1 + rows // ROWS_PER_PART, _quote_name(self.groups)
        connection.execute(f"SET partitioned_write_flush_threshold = {ROWS_PER_WRITE}")
        connection.execute(
            f"COPY (SELECT hash({who}) % {parts} AS part, {who} AS who, file_index, "
            f"file_row_number, {values} FROM {self._source_sql()} WHERE {who} IS NOT NULL) "
            f"TO {_quote_text(folder)} (FORMAT parquet, PARTITION_BY (part), OVERWRITE_OR_IGNORE)"
        )
        for part in Path(folder).glob("part=*"):
            source = (
                f"read_parquet({_quote_text(str(part / '*.parquet'))}, hive_partitioning = false)"
            )
            kept = (
                f"SELECT * FROM {source} QUALIFY row_number() OVER (PARTITION BY who "
                f"ORDER BY file_index, file_row_number) <= {self.max_group_size}"
            )
            yield from connection.execute(self._sum_query(kept)).fetchall()

    def _source_sql(self) -> str:
        return f"read_parquet([{', '.join(map(_quote_text, self.files))}])"

    def _sum_query(self, rows: str) -> str:
        """Return the query that sums rows: the grand total, and by the cells of each marginal."""
        marks = [f"m{i}" for i in range(len(self.marginals))]
        sums = [f"sum(z{i})" for i in range(len(self.means))]
        level = f"grouping({', '.join(marks)})" if marks else "0"
        sets = ", ".join(["()", *(f"({mark})" for mark in marks)])
        return (
            f"SELECT {', '.join([level, *marks, 'count(*)', *sums])} FROM ({rows}) "
            f"GROUP BY GROUPING SETS ({sets})"
        )

    def _cell_sql(self, names: tuple[str, ...]) -> str:
        """Return SQL for a row's cell index; NULL if a value is in no cell."""
        found = "0::BIGINT"
        for name in names:
            fact = self.facts[name]
            place = (
                _bin_sql(name, fact)
                if isinstance(fact, BoundedColumn)
                else _category_sql(name, fact)
            )
            found = f"({found}) * {_count_cells(fact)} + ({place})"
        return found

    def _steps_sql(self, name: str) -> str:
        """Return SQL for a number's distance from the middle of its bounds, in steps."""
        fact = self.facts[name]
        assert isinstance(fact, BoundedColumn)
        half = (fact.upper - fact.lower) / 2
        middle = (fact.upper + fact.lower) / 2
        if half == 0:
            return "0::BIGINT"
        share = f"({_clip_sql(name, fact)} - {_quote_number(middle)}) / {_quote_number(half)}"
        whole = f"trunc(greatest(-1.0::DOUBLE, least(1.0::DOUBLE, {share})) * {STEPS_PER_UNIT})"
        return f"CASE WHEN {_number_sql(name)} IS NULL THEN 0 ELSE CAST({whole} AS BIGINT) END"


def _count_cells(fact: BoundedColumn | CategoricalColumn) -> int:
    return fact.bins if isinstance(fact, BoundedColumn) else len(fact.values)


def _number_sql(name: str) -> str:
    """Return SQL for a column as double; NULL for NaN, which DuckDB treats as the largest value."""
    value = f"CAST({_quote_name(name)} AS DOUBLE)"
    return f"(CASE WHEN isnan({value}) THEN NULL ELSE {value} END)"


def _clip_sql(name: str, fact: BoundedColumn) -> str:
    """Return SQL for a clipped number; the result for NULL is not used."""
    lower, upper = _quote_number(fact.lower), _quote_number(fact.upper)
    return f"greatest({lower}, least({upper}, {_number_sql(name)}))"


def _bin_sql(name: str, fact: BoundedColumn) -> str:
    span = fact.upper - fact.lower
    if span == 0:
        return f"CASE WHEN {_number_sql(name)} IS NOT NULL THEN 0 END"
    unit = f"({_clip_sql(name, fact)} - {_quote_number(fact.lower)})"
    if fact.scale == "log":
        scale = _quote_number(math.log1p(span / fact.knee))
        unit = f"ln(1 + {unit} / {_quote_number(fact.knee)}) / {scale}"
    else:
        unit = f"{unit} / {_quote_number(span)}"
    place = f"CAST(least({fact.bins - 1}, floor({unit} * {fact.bins})) AS BIGINT)"
    return f"CASE WHEN {_number_sql(name)} IS NOT NULL THEN {place} END"


def _category_sql(name: str, fact: CategoricalColumn) -> str:
    keys = ", ".join(_quote_text(category_key(value)) for value in fact.values)
    column = _quote_name(name)
    truth = f"CAST(CAST({column} AS TINYINT) AS VARCHAR)"  # of a boolean, which is 1 or 0
    words = f"trim(CAST({column} AS VARCHAR), E' \\t\\n\\r\\f\\v')"
    text = f"(CASE typeof({column}) WHEN 'BOOLEAN' THEN {truth} ELSE {words} END)"
    return f"CAST(enum_code(TRY_CAST({text} AS ENUM({keys}))) AS BIGINT)"


def _clip_total(total: int) -> int:
    return max(-_MAX_TOTAL, min(int(total), _MAX_TOTAL))


def _quote_number(number: float) -> str:
    return f"CAST({number!r} AS DOUBLE)"


def _quote_name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
