"""Records that satisfy the constraints of a schema: structural zeros, repair, and redrawing.

Constraints are public, so all of this is post-processing. Three steps make records satisfy them:

1. The graphical model gives no weight to combinations of bins without a possible record
   (:meth:`Constraints.structural_zeros`).
2. Columns that others determine are computed from them, and values in the wrong order are sorted
   (:meth:`Constraints.repair`).
3. Records that still break a constraint are drawn again (:meth:`Constraints.complete`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    EqualColumns,
    MappedColumn,
    OrderedColumns,
    SummedColumns,
)
from ..preprocessing.cell_values import column_numbers
from ..preprocessing.constraints import (
    BinContents,
    Constraint,
    find_possible_record,
    translate_codes,
)
from .domain import ColumnCells, Domain, NumberCells, ValueCells
from .graphical_model import StructuralZeros

Values = dict[str, NDArray[Any]]

_REDRAWS = 12  # of records that break a constraint
_REDRAWS_IN_BINS = 3  # every third redraw takes other bins, too
_MAX_TABLE_CELLS = 1 << 20  # of one table of structural zeros
_FLOAT_ERROR = 2.0**-40  # relative error of sums in double precision
_NARROW_ERROR = {4: 2.0**-20, 2: 2.0**-8}  # relative error, by bytes per number


@dataclass(frozen=True)
class Constraints:
    """Constraints between the columns of a domain."""

    stated: tuple[Constraint, ...]
    domain: Domain

    @classmethod
    def from_schema(cls, rules: tuple[Constraint, ...], domain: Domain) -> Constraints:
        """Return the constraints of a schema; raise ValueError if no record satisfies them."""
        made = cls(rules, domain)
        for rule in rules:
            if absent := [name for name in rule.names if name not in domain.names]:
                raise ValueError(
                    f"schema: the constraint {rule!r} names {absent[0]!r}, which is not a column "
                    "of the records. Pass the target as y, or remove the constraint."
                )
        if rules and made._possible_record is None:
            raise ValueError(
                f"schema: no record was found that satisfies all of the constraints {rules!r}. "
                "Remove the constraint that contradicts the others or the bounds."
            )
        return made

    def complete(
        self,
        latent: NDArray[Any],
        draw_latent: Callable[[int], NDArray[Any]],
        draw_values: Callable[[NDArray[Any]], Values],
    ) -> pd.DataFrame:
        """Return a record for each row of latent codes; all of them satisfy the constraints.

        ``draw_values`` draws values within the latent codes. Records that break a constraint get
        other values, and after some attempts other codes. If that does not help, they become
        copies of possible records.
        """
        if not self.stated:
            return self.domain.to_frame(draw_values(latent))
        values = self.repair(draw_values(latent))
        good = self.hold(values)
        for attempt in range(1, _REDRAWS + 1):
            wrong = np.flatnonzero(~good)
            if not len(wrong):
                break
            if attempt % _REDRAWS_IN_BINS == 0:
                latent[wrong] = draw_latent(len(wrong))
            _replace(values, wrong, again := self.repair(draw_values(latent[wrong])))
            good[wrong] = self.hold(again)
        wrong, spare = np.flatnonzero(~good), np.flatnonzero(good)
        if len(wrong) and len(spare):
            copied = spare[np.arange(len(wrong)) % len(spare)]
            _replace(values, wrong, {name: own[copied] for name, own in values.items()})
        elif len(wrong):
            _replace(values, wrong, self._possible_record or {})
        return self.domain.to_frame(values)

    def hold(self, values: Values) -> NDArray[np.bool_]:
        """Return which records satisfy every constraint and lie within the bounds."""
        typed = {name: self._as_typed(name, values[name]) for name in self._constrained}
        good = np.ones(len(next(iter(values.values()))), bool)
        for rule in self.stated:
            good &= rule.holds(typed, self._facts, self._slack(rule))
        for name, own in typed.items():
            fact = self._facts[name]
            if isinstance(fact, BoundedColumn):
                good &= ~((own < fact.lower) | (own > fact.upper))
        return good

    def repair(self, values: Values) -> Values:
        """Compute the columns that others determine, and sort values that are out of order."""
        values = dict(values)
        for _ in self._derivations:  # as often as a chain of derivations is long
            for source, target, derived in self._derivations:
                known = (values[source] >= 0) & ~_is_missing(values[target])
                known &= ~_is_missing(derived[values[source]])
                values[target] = np.where(known, derived[values[source]], values[target])
        chains = [rule.columns for rule in self.stated if isinstance(rule, OrderedColumns)]
        for columns in chains * (len(chains) > 1) + chains:
            if self._may_sort(columns):
                self._sort(values, columns)
        for name, others in self._dependent_numbers.items():
            total = sum(coefficient * values[other] for other, coefficient in others.items())
            known = ~np.isnan(values[name]) & ~np.isnan(total)
            values[name] = np.where(known, total, values[name])
        return values

    def structural_zeros(self, bins: Sequence[NDArray[np.int64]]) -> list[StructuralZeros]:
        """Return tables of the combinations of bins that hold a possible record."""
        contents = {
            name: _bin_contents(self._cells[name], bins[self.domain.names.index(name)])
            for name in self._constrained
        }
        tables = []
        for rule in self.stated:
            for link in rule._links():
                sizes = [len(contents[name].missing) for name in link]
                if np.prod(np.array(sizes, float)) > _MAX_TABLE_CELLS:
                    continue
                columns = [self.domain.names.index(name) for name in link]
                order = np.argsort(columns)
                table = rule.allowed(link, contents, self._facts).transpose(order)
                if not table.all():
                    tables.append(StructuralZeros(tuple(sorted(columns)), table))
        return tables

    @cached_property
    def _constrained(self) -> list[str]:
        named = {name for rule in self.stated for name in rule.names}
        return [name for name in self.domain.names if name in named]

    @cached_property
    def _cells(self) -> dict[str, ColumnCells]:
        return {column.name: column for column in self.domain.columns}

    @cached_property
    def _facts(self) -> dict[str, BoundedColumn | CategoricalColumn]:
        return {column.name: _fact_of(column) for column in self.domain.columns}

    @cached_property
    def _whole(self) -> set[str]:
        return {
            c.name
            for c in self.domain.columns
            if isinstance(c.cells, NumberCells) and c.cells.whole
        }

    @cached_property
    def _derivations(self) -> list[tuple[str, str, NDArray[Any]]]:
        """Source, target, and the target's value for each category of the source."""
        mapped = [rule for rule in self.stated if isinstance(rule, MappedColumn)]
        found = [(own.source, own.target, own._targets(self._facts)) for own in mapped]
        targets = {rule.target for rule in mapped}
        for rule in self.stated:
            if isinstance(rule, EqualColumns) and not self._is_number(rule.columns[0]):
                first = next((n for n in rule.columns if n in targets), rule.columns[0])
                for other in rule.columns:
                    if other != first:
                        codes = translate_codes(self._facts[first], self._facts[other])
                        found.append((first, other, codes))
        return found

    @cached_property
    def _dependent_numbers(self) -> dict[str, dict[str, float]]:
        """Return numeric columns as linear combinations of others, by Gaussian elimination."""
        fixed = {rule.target for rule in self.stated if isinstance(rule, MappedColumn)}
        totals = {rule.total for rule in self.stated if isinstance(rule, SummedColumns)}
        rows = [
            equation
            for rule in self.stated
            for equation in rule._equations()
            if self._is_number(rule.names[0])
        ]
        dependent: dict[str, dict[str, float]] = {}
        while rows:
            row = {n: c for n, c in rows.pop(0).items() if abs(c) > 1e-9}
            free = [name for name in row if name not in fixed]
            if not free:
                continue  # all columns are known: records that break it are drawn again
            fractional = not all(name in self._whole for name in row)
            pivot = min(
                free,
                key=lambda n: (
                    fractional and n in self._whole,
                    n not in totals,
                    -list(row).index(n),
                ),
            )
            solved = {n: -c / row[pivot] for n, c in row.items() if n != pivot}
            rows = [_substitute(other, pivot, solved) for other in rows]
            dependent = {n: _substitute(of, pivot, solved) for n, of in dependent.items()}
            dependent[pivot] = solved
        return dependent

    @cached_property
    def _possible_record(self) -> Values | None:
        """Return values of the constrained columns in a record that satisfies all constraints."""
        found = find_possible_record(self.stated, self._facts, self._whole)
        if found is None:
            return None
        values = self.repair({name: np.array([value]) for name, value in found.items()})
        return values if self.hold(values).all() else None

    def _is_number(self, name: str) -> bool:
        return isinstance(self._facts[name], BoundedColumn)

    def _may_sort(self, columns: Sequence[str]) -> bool:
        """Return True if values may move between the columns."""
        derived = {target for _, target, _ in self._derivations} | set(self._dependent_numbers)
        kinds = {name in self._whole for name in columns}
        return len(kinds) == 1 and not derived & set(columns)

    def _sort(self, values: Values, columns: Sequence[str]) -> None:
        """Sort the values of records across columns, where the bounds allow it."""
        table = np.column_stack([values[name] for name in columns])
        ordered = np.sort(table, axis=1)
        low, high = (
            np.array([getattr(self._facts[n], end) for n in columns]) for end in ("lower", "upper")
        )
        sortable = ((low <= ordered) & (ordered <= high)).all(axis=1)  # False if a value is missing
        for j, name in enumerate(columns):
            values[name] = np.where(sortable, ordered[:, j], values[name])

    def _slack(self, rule: Constraint) -> float:
        """Return the relative error that the types of a constraint's columns make unavoidable."""
        sizes = [
            getattr(self._cells[n].dtype, "itemsize", 8) for n in rule.names if n not in self._whole
        ]
        narrow = max((_NARROW_ERROR.get(size, 0.0) for size in sizes), default=0.0)
        return max(narrow, _FLOAT_ERROR if sizes and isinstance(rule, SummedColumns) else 0.0)

    def _as_typed(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Return numbers as the type of their column holds them, or codes unchanged."""
        if not self._is_number(name):
            return values
        return column_numbers(self._cells[name].to_series(values))


def _replace(values: Values, rows: NDArray[np.int64], others: Values) -> None:
    for name, own in others.items():
        values[name][rows] = own


def _fact_of(column: ColumnCells) -> BoundedColumn | CategoricalColumn:
    """Return the range or the categories of a column's cells."""
    cells = column.cells
    if isinstance(cells, ValueCells):
        return cells.fact
    return BoundedColumn(float(cells.left[0]), float(cells.right[-1]) - cells.whole)


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isnan(values) if values.dtype.kind == "f" else values < 0


def _substitute(
    row: Mapping[str, float], name: str, solved: Mapping[str, float]
) -> dict[str, float]:
    """Return a linear form with a column replaced by its linear form."""
    result = {n: c for n, c in row.items() if n != name}
    for other, coefficient in solved.items():
        result[other] = result.get(other, 0.0) + row.get(name, 0.0) * coefficient
    return {n: c for n, c in result.items() if c}


def _bin_contents(column: ColumnCells, bins: NDArray[np.int64]) -> BinContents:
    """Return the values in each bin of a column."""
    n_bins, cells = int(bins.max()) + 1, column.cells
    own = bins[: cells.size]
    missing = np.zeros(n_bins, bool)
    if column.may_be_missing:
        missing[bins[-1]] = True
    low, high = np.full(n_bins, np.inf), np.full(n_bins, -np.inf)
    categories = np.zeros((n_bins, 0), bool)
    if isinstance(cells, NumberCells):
        np.minimum.at(low, own, cells.left)
        np.maximum.at(high, own, cells.right - 1 if cells.whole else cells.right)
    else:
        categories = np.zeros((n_bins, cells.size), bool)
        categories[own, np.arange(cells.size)] = True
    return BinContents(low, high, categories, missing)
