"""DuckDB scan of Parquet files: their types, and the rows that count for each person."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...sums import SumTotal
from ...sums.tables import DuckDBTable
from ..columns import BoundedColumn
from .summary_plan import SummaryPlan

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
        """Return the sums over the rows used.

        Rows of persons are written to ``folder``, in parts that fit into memory.
        """
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
