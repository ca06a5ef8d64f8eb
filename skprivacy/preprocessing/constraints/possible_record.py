"""A record that satisfies all constraints, or a proof that there is none, by integer programming.

A numeric column is a variable within its bounds. A categorical column has a binary variable for
each category, of which exactly one is 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from ..columns import BoundedColumn, CategoricalColumn
from .column_constraints import EqualColumns, OrderedColumns, SummedColumns
from .constraint import Constraint, Facts, translate_codes
from .value_constraints import ImpossibleValues, MappedColumn

_MOST = 1e12  # magnitude of numbers that the solver handles
_MARGIN = 1e-4  # least distance of a strict order, in ranges of the column, if possible

Row = dict[int, float]  # coefficients by variable


def find_possible_record(
    constraints: Sequence[Constraint], facts: Facts, whole: Collection[str]
) -> dict[str, Any] | None:
    """Return numbers and codes of the constrained columns, or None if no record is possible.

    ``whole`` names the columns of integers.
    """
    program = _Program(facts, whole)
    for constraint in constraints:
        program.add(constraint)
    return program.solve()


class _Program:
    """Variables and linear rows of an integer program."""

    def __init__(self, facts: Facts, whole: Collection[str]) -> None:
        self._facts, self._whole = facts, whole
        self._low: list[float] = []
        self._high: list[float] = []
        self._integral: list[int] = []
        self._rows: list[tuple[Row, float, float]] = []
        self._columns: dict[str, list[int]] = {}
        self._slack = self._variable(0.0, 1.0, False)  # share of the margins

    def add(self, constraint: Constraint) -> None:
        """Add the rows of a constraint."""
        for name in constraint.names:
            self._add_column(name)
        if isinstance(constraint, OrderedColumns):
            self._add_order(constraint)
        elif isinstance(constraint, MappedColumn):
            self._add_mapping(constraint)
        elif isinstance(constraint, ImpossibleValues):
            self._add_impossible(constraint)
        elif isinstance(constraint, SummedColumns) or isinstance(
            self._facts[constraint.names[0]], BoundedColumn
        ):
            for equation in constraint._equations():
                self._row({self._number(n): c for n, c in equation.items()}, 0.0, 0.0)
        else:
            assert isinstance(constraint, EqualColumns)
            self._add_equal_categories(constraint)

    def solve(self) -> dict[str, Any] | None:
        """Return a solution that keeps as much of the margins as possible."""
        n = len(self._low)
        rows = [i for i, (row, _, _) in enumerate(self._rows) for _ in row]
        variables = [variable for row, _, _ in self._rows for variable in row]
        values = [value for row, _, _ in self._rows for value in row.values()]
        matrix = csr_array((values, (rows, variables)), shape=(len(self._rows), n))
        goal = np.zeros(n)
        goal[self._slack] = -1.0
        found = milp(
            goal,
            constraints=LinearConstraint(
                matrix, [low for _, low, _ in self._rows], [high for _, _, high in self._rows]
            ),
            bounds=Bounds(np.array(self._low), np.array(self._high)),
            integrality=np.array(self._integral),
        )
        if found.x is None:
            return None
        record: dict[str, Any] = {}
        for name, own in self._columns.items():
            solved = found.x[own]
            if isinstance(self._facts[name], CategoricalColumn):
                record[name] = int(np.argmax(solved))
            else:
                record[name] = float(np.rint(solved[0]) if name in self._whole else solved[0])
        return record

    def _variable(self, low: float, high: float, integral: bool) -> int:
        self._low.append(low)
        self._high.append(high)
        self._integral.append(int(integral))
        return len(self._low) - 1

    def _row(self, row: Row, low: float, high: float) -> None:
        self._rows.append((row, low, high))

    def _add_column(self, name: str) -> None:
        if name in self._columns:
            return
        fact = self._facts[name]
        if isinstance(fact, CategoricalColumn):
            self._columns[name] = [self._variable(0.0, 1.0, True) for _ in fact.values]
            self._row(dict.fromkeys(self._columns[name], 1.0), 1.0, 1.0)
        else:
            low, high = self._ends(name)
            self._columns[name] = [self._variable(low, high, name in self._whole)]

    def _ends(self, name: str) -> tuple[float, float]:
        fact = self._facts[name]
        assert isinstance(fact, BoundedColumn)
        low, high = np.clip([fact.lower, fact.upper], -_MOST, _MOST)
        return float(low), float(high)

    def _number(self, name: str) -> int:
        return self._columns[name][0]

    def _find_least_step(self, name: str) -> float:
        """Return the least step of a column: 1 for integers, else a small margin."""
        low, high = self._ends(name)
        return 1.0 if name in self._whole else _MARGIN * (high - low)

    def _add_order(self, constraint: OrderedColumns) -> None:
        for one, other in pairwise(constraint.columns):
            row = {self._number(one): 1.0, self._number(other): -1.0}
            both_whole = one in self._whole and other in self._whole
            if constraint.strict and both_whole:
                self._row(row, -np.inf, -1.0)
            else:
                gap = min(self._find_least_step(one), self._find_least_step(other), 1.0)
                self._row({**row, self._slack: gap}, -np.inf, 0.0)

    def _add_equal_categories(self, constraint: EqualColumns) -> None:
        for one, other in constraint._links():
            same = translate_codes(self._facts[one], self._facts[other])
            first, second = self._columns[one], self._columns[other]
            for code, variable in enumerate(first):
                if same[code] < 0:
                    self._row({variable: 1.0}, 0.0, 0.0)
                else:
                    self._row({variable: 1.0, second[same[code]]: -1.0}, 0.0, 0.0)

    def _add_mapping(self, constraint: MappedColumn) -> None:
        values = constraint._targets(self._facts)
        source, target = self._columns[constraint.source], self._columns[constraint.target]
        if isinstance(self._facts[constraint.target], CategoricalColumn):
            for variable, code in zip(source, values, strict=True):
                self._row({variable: 1.0, target[code]: -1.0}, -np.inf, 0.0)
        else:
            row = {v: float(value) for v, value in zip(source, values, strict=True)}
            self._row({**row, target[0]: -1.0}, 0.0, 0.0)

    def _add_impossible(self, constraint: ImpossibleValues) -> None:
        """Demand that at least one column is outside of the combination."""
        escapes: Row = {}
        for name in constraint.names:
            fact = self._facts[name]
            if isinstance(fact, CategoricalColumn):
                outside = ~constraint._codes_of(name, fact)
                escapes |= {
                    v: 1.0 for v, out in zip(self._columns[name], outside, strict=True) if out
                }
                continue
            lower, upper = constraint._range_of(name)
            low, high = self._ends(name)
            number, gap, most = self._number(name), self._find_least_step(name), high - low
            span = max(most, 1.0) * 2
            if low < lower:  # number <= lower - gap if this escape is taken
                below = self._variable(0.0, 1.0, True)
                limit = np.ceil(lower) - 1 if name in self._whole else lower
                keep = 0.0 if name in self._whole else gap
                self._row({number: 1.0, below: span, self._slack: keep}, -np.inf, limit + span)
                escapes[below] = 1.0
            if high > upper:
                above = self._variable(0.0, 1.0, True)
                limit = np.floor(upper) + 1 if name in self._whole else upper
                keep = 0.0 if name in self._whole else gap
                self._row({number: -1.0, above: span, self._slack: keep}, -np.inf, span - limit)
                escapes[above] = 1.0
        if not escapes:
            escapes = {self._variable(0.0, 0.0, True): 1.0}
        self._row(escapes, 1.0, np.inf)
