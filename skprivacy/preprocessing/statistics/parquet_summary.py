"""Private count, means and marginals of Parquet files larger than memory, in one scan by DuckDB."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._docs import fill_docs
from ..._extras import name_missing_extra
from ..._files import as_path
from ..._validation import as_paths, is_whole, sequence
from ...accounting import PrivacyBudget
from ...sums import SumTotal
from ...sums.sources import SumSource, TableSource, is_table, open_table
from ...sums.sum_estimator import check_table_names
from ...sums.sum_plan import SumPlan
from ..columns import BoundedColumn
from ..schema import Schema
from .parquet_scan import Scan, SummaryPlan
from .release import RELEASE_DOCS, Release, Statistic, check_release_target, release_statistic

Path = str | PathLike[str]
_MAX_CELLS = 10_000_000  # of all marginals together
_MAX_MARGINALS = 60


@dataclass(frozen=True)
class Summary:
    """Release of :func:`private_summary`; counts can be fractional or negative."""

    count: float  # rows used
    means: Mapping[str, float]  # of each column, within its bounds
    marginals: Mapping[tuple[str, ...], NDArray[np.float64]]  # rows in each cell


@fill_docs(RELEASE_DOCS)
def private_summary(
    path: Any,
    schema: Schema,
    *,
    marginals: Iterable[str | Sequence[str]] = (),
    means: Iterable[str] = (),
    groups: str | None = None,
    max_group_size: int = 1,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
    memory_limit: str = "512MB",
    directory: Path | None = None,
) -> Release:
    """Return a private row count, means and marginals of Parquet files or tables of any size.

    DuckDB scans the files once. With ``groups`` it also writes the needed columns to ``directory``,
    and then processes some persons at a time. All numbers are one release with one charge.

    Parameters
    ----------
    path : str, path-like, sequence of these, or table
        The file, or files with the same columns, of the same types. A table in an engine is scanned
        by that engine: see :mod:`skprivacy.sums`.
    schema : Schema
        Public facts of the columns that are used. Values outside of bounds are clipped.
    marginals : iterable of str or sequence of str, default=()
        Columns, or sets of columns, whose values are counted together. Bounded columns are counted
        in their bins: ``schema.with_bins(16)``.
    means : iterable of str, default=()
        Bounded columns. A missing value counts as the middle of the bounds.
    groups : str, default=None
        Column that names the person of a row. The guarantee then protects all rows of a person, and
        rows without a person are left out. ``None`` protects a row.
    max_group_size : int, default=1
        Number of rows used per person: the first ones in the order of the files. Noise is
        proportional to it. A table in an engine has no such order: each of the m rows of a person
        counts 1 / m there, so ``count`` is a number of persons, and this parameter stays 1.
    %(release_epsilon)s
    %(release_relation)s
    %(release_budget)s
    memory_limit : str, default="512MB"
        Limit of DuckDB's buffers; the process needs about 200 MB more.
    directory : str or path-like, default=None
        Folder for data larger than memory; default: the system's temporary folder.

    Returns
    -------
    Release
        ``value`` with ``count``, ``means`` by column and ``marginals`` by tuples of columns, and
        ``privacy``.

    Raises
    ------
    ImportError
        If DuckDB is not installed.
    ValueError
        If a column or a parameter is not as described. Nothing is charged then. A scan that is
        interrupted, or finds a damaged file, releases nothing, and its charge stays.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of a row or, with ``groups``, of a
    person. A row adds 1 to the count, a multiple of 2**-16 in [-1, 1] to the sum of each column,
    and 1 to at most one cell of each marginal. A person adds at most ``max_group_size`` times that.
    Values are rounded to the grid and summed as integers, hence exactly. The choice of a
    person's rows depends on this person's rows only. In a table, the rows of a person add up to at
    most the contribution of one row. The noise is exact.

    **Edge cases.** A missing or unknown value is in no cell of a marginal. Infinity is clipped.
    ``directory`` holds private rows, unencrypted, until the function returns. A process that is
    killed leaves them behind.

    Examples
    --------
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> from skprivacy.preprocessing import private_summary
    >>> schema = Schema(
    ...     {"age": BoundedColumn(0, 120, bins=12), "sex": CategoricalColumn(["f", "m"])}
    ... )
    >>> summary, privacy = private_summary(  # doctest: +SKIP
    ...     "visits.parquet", schema, marginals=["sex", ("age", "sex")], means=["age"],
    ...     groups="patient", max_group_size=5, epsilon=1.0,
    ... )
    >>> privacy  # doctest: +SKIP
    1.00-DP per patient, add-remove, exact noise, proved
    """
    check_release_target(epsilon, delta, relation)
    table = open_table(path) if is_table(path, "by name") else None
    files = [] if table is not None else as_paths("path", path)
    if table is None and not files:
        raise ValueError("path=[] must name at least one file.")
    if table is not None and is_whole(max_group_size) and max_group_size > 1:
        raise ValueError(
            f"max_group_size={max_group_size!r} takes the first rows of each group, and a table in "
            "an engine has no order of rows. Leave it 1, or pass the paths of the files."
        )
    scan = _check_arguments(files, schema, marginals, means, groups, max_group_size)
    schema.warn_if_unconfirmed()
    plan = scan.plan
    if table is not None and groups is not None:
        check_table_names(table.names, None, groups)
        plan = replace(plan, unit=groups)
    size = 1 + len(plan.means) + len(plan.marginals)
    most = scan.max_group_size * (2.0 if relation == "replace_one" else 1.0)
    statistic = Statistic(
        plan, most * size, most * math.sqrt(size), plan.vector,
        lambda noisy, mechanism, _: _read_summary(noisy, plan, max(1.0, noisy[0], mechanism.std)),
    )  # fmt: skip
    if table is not None:
        return release_statistic(
            statistic, TableSource(table, 0, "", groups), "private_summary", epsilon=epsilon,
            delta=delta, relation=relation, budget=budget, noise_seed=noise_seed,
            assumptions=schema.assumptions,
        )  # fmt: skip
    with _open_connection(memory_limit, directory) as (connection, folder):
        return release_statistic(
            statistic, _ScanSource(scan, connection, folder), "private_summary", epsilon=epsilon,
            delta=delta, relation=relation, budget=budget, noise_seed=noise_seed,
            assumptions=schema.assumptions,
        )  # fmt: skip


class _ScanSource(SumSource):
    """Sums of the rows that a scan chooses."""

    n_units = 0  # no release divides by the number of units

    def __init__(self, scan: Scan, connection: Any, folder: str) -> None:
        self._scan, self._connection, self._folder = scan, connection, folder
        self.unit = scan.groups or "record"

    def check(self, plan: SumPlan) -> None:
        self._scan.check_types(self._connection)

    def sum(self, plan: SumPlan) -> SumTotal:
        try:
            return self._scan.run(self._connection, self._folder)
        except Exception as error:  # of DuckDB, or of pyarrow, which passes its errors on
            failed = type(error).__name__
        raise _unreadable_error(failed)


def _read_summary(noisy: NDArray[np.float64], plan: SummaryPlan, count: float) -> Summary:
    """Return the summary of the noisy numbers."""
    means, at, facts = {}, 1, plan.fact_of
    for name in plan.means:
        fact = facts[name]
        assert isinstance(fact, BoundedColumn)
        middle, half = (fact.upper + fact.lower) / 2, (fact.upper - fact.lower) / 2
        means[name] = float(middle + half * np.clip(noisy[at] / count, -1.0, 1.0))
        at += 1
    tables = {}
    for names, shape in zip(plan.marginals, plan.shapes, strict=True):
        tables[names] = noisy[at : at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
    return Summary(float(noisy[0]), means, tables)


def _check_arguments(
    files: list[str],
    schema: Schema,
    marginals: Iterable[str | Sequence[str]],
    means: Iterable[str],
    groups: str | None,
    max_group_size: int,
) -> Scan:
    if not isinstance(schema, Schema):
        raise TypeError(f"schema={schema!r} must be a Schema. Create one with Schema({{...}}).")
    for name, given in (("marginals", marginals), ("means", means)):
        if isinstance(given, str):
            raise TypeError(f"{name}={given!r} must be a list of columns, such as [{given!r}].")
    sets = [
        (names,) if isinstance(names, str) else sequence("marginals", names)
        for names in sequence("marginals", marginals)
    ]
    summed = list(sequence("means", means))
    for what, names in [("means", summed), *(("marginals", names) for names in sets)]:
        if unknown := [n for n in names if not isinstance(n, str) or n not in schema]:
            raise ValueError(
                f"{what} holds {unknown[0]!r}, which the schema does not describe; expected some "
                f"of {list(schema)}."
            )
        if len(set(names)) < len(names):
            raise ValueError(f"{what} holds a column twice: {names!r}. Name each once.")
    if len(set(sets)) < len(sets) or not all(sets) or len(sets) > _MAX_MARGINALS:
        raise ValueError(
            f"marginals={sets!r} must be at most {_MAX_MARGINALS} different sets of at least one "
            "column."
        )
    counted = [*summed, *(name for names in sets for name in names)]
    facts = schema._check_kinds("private_summary", counted, missing=True)
    for name in summed:
        if not isinstance(facts[name], BoundedColumn):
            raise ValueError(f"means holds {name!r}, which has categories. Pass it in marginals.")
    for name in {name for names in sets for name in names}:
        fact = facts[name]
        if isinstance(fact, BoundedColumn) and fact.bins == 1:
            raise ValueError(
                f"marginals holds {name!r}, which has one bin. Say how finely it is counted, for "
                "example schema.with_bins(16)."
            )
    if not (is_whole(max_group_size) and max_group_size >= 1):
        raise ValueError(f"max_group_size={max_group_size!r} must be an integer >= 1.")
    if groups is None and max_group_size != 1:
        raise ValueError(
            f"max_group_size={max_group_size!r} limits a group, and groups=None: a row is "
            "protected. Name the column that says whom a row belongs to."
        )
    if groups == "record" or not (groups is None or (isinstance(groups, str) and groups)):
        raise ValueError(f"groups={groups!r} must be the name of a column, other than 'record'.")
    used = tuple((name, facts[name]) for name in dict.fromkeys(counted))
    plan = SummaryPlan(used, tuple(summed), tuple(sets))
    if (cells := sum(math.prod(shape) for shape in plan.shapes)) > _MAX_CELLS:
        raise ValueError(
            f"marginals={sets!r} have {cells:,} cells; expected at most {_MAX_CELLS:,}. Use fewer "
            "columns or bins."
        )
    return Scan(files, plan, groups, int(max_group_size))


@contextmanager
def _open_connection(memory_limit: str, directory: Path | None) -> Iterator[tuple[Any, str]]:
    """Open an empty database that spills into a temporary folder."""
    with name_missing_extra():
        import duckdb
    parent = None if directory is None else as_path("directory", directory)
    if parent is not None and not os.path.isdir(parent):
        raise ValueError(f"directory={parent!r} must be a folder that exists.")
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        settings: dict[str, Any] = {
            "memory_limit": memory_limit,
            "temp_directory": f"{folder}/spilled",
            "preserve_insertion_order": "false",
            "autoinstall_known_extensions": "false",
        }
        try:
            connection = duckdb.connect(config=settings)
        except duckdb.Error as error:
            raise ValueError(
                f"memory_limit={memory_limit!r} must be a size such as '512MB' ({error})."
            ) from error
        try:
            yield connection, f"{folder}/rows"
        except duckdb.Error as error:
            raise _unreadable_error(type(error).__name__) from None
        finally:
            connection.close()


def _unreadable_error(kind: str) -> ValueError:
    """Return the error for files that cannot be read, without the text of an engine."""
    return ValueError(
        f"path could not be read by DuckDB ({kind}). Check that the files exist and are whole, or "
        "try a larger memory_limit or a roomier directory."
    )
