"""Constraints between columns: equal, ordered, summed and mapped columns, and impossible values.

A constraint says which records are possible. A record with a missing value in one of the columns
satisfies it, as in SQL. :meth:`Constraint.holds` tests records, and :meth:`Constraint.allowed`
tests bins: a bin is refused only if none of its values is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..._validation import flag, is_number, storable
from ..cell_values import category_key
from ..columns import BoundedColumn, CategoricalColumn, Column

Facts = Mapping[str, Column]
Mask = NDArray[np.bool_]
Names = tuple[str, ...]
Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class BinContents:
    """Values in each bin of a column: from ``low`` to ``high``, or the marked categories."""

    low: NDArray[np.float64]  # numeric columns: (n_bins,), with ``high``
    high: NDArray[np.float64]
    categories: Mask  # categorical columns: (n_bins, n_values); otherwise no columns
    missing: Mask  # (n_bins,), True for the bin of missing values


Bins = Mapping[str, BinContents]


@dataclass(frozen=True)
class Constraint:
    """Base class of constraints, which are plain public facts."""

    kind: ClassVar[str]  # in JSON

    @property
    def names(self) -> Names:
        """Columns that the constraint is about."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Describe the constraint for JSON, without unused options.

        Returns
        -------
        dict
            ``"type"`` and the parameters, as in the file of a schema.
        """
        stated = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return {"type": self.kind, **{n: to_lists(v) for n, v in stated.items() if v is not False}}

    def check(self, facts: Facts) -> None:
        """Raise ValueError unless the columns exist and have the right kind and values."""
        raise NotImplementedError

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        """Return which records satisfy the constraint.

        ``values`` has numbers (NaN if missing), or codes of categories (-1 if missing). Sums and
        equal numbers may differ by ``slack`` times the largest of them.
        """
        raise NotImplementedError

    def _links(self) -> list[Names]:
        """Return sets of columns of which :meth:`allowed` makes a table each."""
        return [self.names]

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        """Return which combinations of bins hold a possible record: an axis for each column."""
        raise NotImplementedError

    def _equations(self) -> list[dict[str, float]]:
        """Return linear equations between numbers: coefficients of a sum that is 0."""
        return []

    def _require(self, facts: Facts, names: Iterable[str], *kinds: type[Column]) -> None:
        for name in names:
            if name not in facts:
                raise ValueError(
                    f"Schema: constraints: {self!r} names {name!r}, which is not a column. "
                    f"Expected some of {list(facts)}."
                )
            if not isinstance(facts[name], kinds):
                expected = " or ".join(kind.__name__ for kind in kinds)
                raise ValueError(
                    f"Schema: constraints: {self!r}: column {name!r} is {facts[name]!r}; expected "
                    f"{expected}. Describe the column so, or remove the constraint."
                )


def to_lists(value: Any) -> Any:
    """Return nested tuples as lists."""
    return [to_lists(each) for each in value] if isinstance(value, tuple) else value


def _check_names(who: str, name: str, columns: Any, least: int) -> Names:
    found = tuple(columns) if isinstance(columns, tuple | list) else ()
    if len(found) < least or not all(isinstance(n, str) for n in found):
        raise ValueError(f"{who}: {name}={columns!r} must list at least {least} names of columns.")
    if len({*found}) < len(found):
        raise ValueError(f"{who}: {name}={columns!r} must name each column once.")
    return found


def _outer(parts: list[NDArray[Any]], combine: Any) -> NDArray[Any]:
    """Combine vectors to a table with an axis for each."""
    table: NDArray[Any] = reduce(combine.outer, parts)
    return table


def _category_codes(fact: Column) -> dict[str, int]:
    """Return the code of each category, by its key."""
    assert isinstance(fact, CategoricalColumn)
    return {category_key(value): code for code, value in enumerate(fact.values)}


def translate_codes(source: Column, target: Column) -> NDArray[np.int64]:
    """Return the code in ``target`` of each category of ``source``, or -1."""
    known = _category_codes(target)
    return np.array([known.get(key, -1) for key in _category_codes(source)])


@dataclass(frozen=True)
class _ListedColumns(Constraint):
    """A constraint on a list of columns."""

    columns: Names

    def __post_init__(self) -> None:
        names = _check_names(type(self).__name__, "columns", self.columns, 2)
        object.__setattr__(self, "columns", names)

    @property
    def names(self) -> Names:
        return self.columns


@dataclass(frozen=True)
class EqualColumns(_ListedColumns):
    """Columns with equal values in each record: all numeric, or all categorical.

    Parameters
    ----------
    columns : sequence of str
        Names of at least two columns.

    Examples
    --------
    >>> from skprivacy.preprocessing import EqualColumns
    >>> EqualColumns(["billed", "paid"])
    EqualColumns(columns=('billed', 'paid'))
    """

    kind: ClassVar[str] = "equal"

    def check(self, facts: Facts) -> None:
        self._require(facts, self.columns, BoundedColumn, CategoricalColumn)
        self._require(facts, self.columns, type(facts[self.columns[0]]))

    def _links(self) -> list[Names]:
        return [(self.columns[0], other) for other in self.columns[1:]]

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        first = values[self.columns[0]]
        good = np.ones(len(first), bool)
        for name in self.columns[1:]:
            other = values[name]
            if isinstance(facts[name], CategoricalColumn):
                codes = np.append(translate_codes(facts[self.columns[0]], facts[name]), -1)
                good &= (codes[first] == other) | (first < 0) | (other < 0)
            else:
                far = np.abs(first - other) > slack * np.maximum(np.abs(first), np.abs(other))
                good &= ~far
        return good

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        one, other = (bins[name] for name in link)
        missing = _outer([one.missing, other.missing], np.logical_or)
        if isinstance(facts[link[0]], CategoricalColumn):
            codes = translate_codes(facts[link[0]], facts[link[1]])
            shared = one.categories[:, codes >= 0].astype(int)
            return (shared @ other.categories[:, codes[codes >= 0]].T > 0) | missing
        low = _outer([one.low, other.low], np.maximum)
        return (low <= _outer([one.high, other.high], np.minimum)) | missing

    def _equations(self) -> list[dict[str, float]]:
        return [{first: 1.0, other: -1.0} for first, other in self._links()]


@dataclass(frozen=True)
class OrderedColumns(_ListedColumns):
    """Numeric columns whose values do not decrease from column to column.

    Parameters
    ----------
    columns : sequence of str
        Names of at least two columns, such as ``["amount", "price"]`` for amount <= price.
    strict : bool, default=False
        Whether each value must be larger than the one before.

    Examples
    --------
    >>> from skprivacy.preprocessing import OrderedColumns
    >>> OrderedColumns(["amount", "price"])
    OrderedColumns(columns=('amount', 'price'), strict=False)
    """

    kind: ClassVar[str] = "ordered"

    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        flag("strict", self.strict)

    def check(self, facts: Facts) -> None:
        self._require(facts, self.columns, BoundedColumn)

    def _links(self) -> list[Names]:
        return list(pairwise(self.columns))

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        good = np.ones(len(values[self.columns[0]]), bool)
        for low, high in pairwise(self.columns):
            one, other = values[low], values[high]
            good &= ~(one >= other if self.strict else one > other)
        return good

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        one, other = (bins[name] for name in link)
        compare = np.less if self.strict else np.less_equal
        possible = _outer([one.low, other.high], compare)
        return possible | _outer([one.missing, other.missing], np.logical_or)


@dataclass(frozen=True)
class SummedColumns(Constraint):
    """Numeric columns that add up to another one, up to the rounding of floating-point numbers.

    Parameters
    ----------
    parts : sequence of str
        Names of at least two columns.
    total : str
        Name of the column of their sum.

    Examples
    --------
    >>> from skprivacy.preprocessing import SummedColumns
    >>> SummedColumns(["wages", "rents"], "income")
    SummedColumns(parts=('wages', 'rents'), total='income')
    """

    kind: ClassVar[str] = "sum"

    parts: tuple[str, ...]
    total: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _check_names("SummedColumns", "parts", self.parts, 2))
        if not isinstance(self.total, str) or self.total in self.parts:
            raise ValueError(
                f"SummedColumns: total={self.total!r} must be the name of a column that is not "
                "one of the parts."
            )

    @property
    def names(self) -> Names:
        return (*self.parts, self.total)

    def check(self, facts: Facts) -> None:
        self._require(facts, self.names, BoundedColumn)

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        columns = np.array([values[name] for name in self.names])
        error = np.abs(columns[:-1].sum(axis=0) - columns[-1])
        return ~(error > slack * np.abs(columns).max(axis=0))

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        contents = [bins[name] for name in self.names]
        below = _outer([*(b.low for b in contents[:-1]), -contents[-1].high], np.add) <= 0
        above = _outer([*(b.high for b in contents[:-1]), -contents[-1].low], np.add) >= 0
        return (below & above) | _outer([b.missing for b in contents], np.logical_or)

    def _equations(self) -> list[dict[str, float]]:
        return [{**dict.fromkeys(self.parts, 1.0), self.total: -1.0}]


@dataclass(frozen=True)
class MappedColumn(Constraint):
    """A column that is determined by the category of another one.

    Parameters
    ----------
    source : str
        Name of a categorical column.
    target : str
        Name of the column that it determines: numeric or categorical.
    values : mapping
        The target's value for each category of the source.

    Examples
    --------
    >>> from skprivacy.preprocessing import MappedColumn
    >>> MappedColumn("month", "quarter", {"Jan": 1, "Apr": 2})
    MappedColumn(source='month', target='quarter', values=(('Jan', 1), ('Apr', 2)))
    """

    kind: ClassVar[str] = "mapped"

    source: str
    target: str
    values: tuple[tuple[Any, Any], ...]
    _keys: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        who = "MappedColumn"
        for name in ("source", "target"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(
                    f"{who}: {name}={getattr(self, name)!r} must be the name of a column."
                )
        if self.source == self.target:
            raise ValueError(f"{who}: target={self.target!r} must be another column than source.")
        given: Any = self.values
        pairs = given.items() if isinstance(given, Mapping) else given
        valid = isinstance(pairs, Iterable) and not isinstance(pairs, str)
        found = [tuple(p) if isinstance(p, tuple | list) else () for p in pairs] if valid else []
        if not found or any(len(pair) != 2 for pair in found):
            raise ValueError(
                f"{who}: values={given!r} must map each category of the source to a value."
            )
        plain = tuple(tuple(_plain_value(who, v) for v in pair) for pair in found)
        object.__setattr__(self, "values", plain)
        object.__setattr__(self, "_keys", {category_key(a): b for a, b in plain})
        if len(self._keys) < len(plain):
            raise ValueError(f"{who}: values={given!r} must name each category once.")

    @property
    def names(self) -> Names:
        return (self.source, self.target)

    def check(self, facts: Facts) -> None:
        self._require(facts, [self.source], CategoricalColumn)
        self._require(facts, [self.target], BoundedColumn, CategoricalColumn)
        source, target = facts[self.source], facts[self.target]
        assert isinstance(source, CategoricalColumn)
        known = _category_codes(source)
        wrong = [a for a, _ in self.values if category_key(a) not in known]
        unmapped = [value for value in source.values if category_key(value) not in self._keys]
        if wrong or unmapped:
            fault = f"{wrong[0]!r} is unknown" if wrong else f"{unmapped[0]!r} has no value"
            raise ValueError(
                f"Schema: constraints: MappedColumn({self.source!r}, {self.target!r}): {fault}. "
                f"Give a value for each of {list(source.values)}."
            )
        for _, value in self.values:
            if isinstance(target, CategoricalColumn):
                valid = category_key(value) in _category_codes(target)
            else:
                assert isinstance(target, BoundedColumn)
                valid = is_number(value) and target.lower <= value <= target.upper
            if not valid:
                raise ValueError(
                    f"Schema: constraints: MappedColumn({self.source!r}, {self.target!r}): the "
                    f"value {value!r} must be a category, or within the bounds, of "
                    f"{self.target!r}. Correct it, or the column."
                )

    def _targets(self, facts: Facts) -> NDArray[Any]:
        """Return the target's number, or code, for each category of the source."""
        target = facts[self.target]
        values = [self._keys[key] for key in _category_codes(facts[self.source])]
        if isinstance(target, CategoricalColumn):
            codes = _category_codes(target)
            return np.array([codes[category_key(value)] for value in values])
        return np.array(values, dtype=np.float64)

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        source, found = values[self.source], values[self.target]
        expected = self._targets(facts)[source]
        if isinstance(facts[self.target], CategoricalColumn):
            return (expected == found) | (source < 0) | (found < 0)
        return ~(np.abs(expected - found) > slack * np.abs(expected)) | (source < 0)

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        one, other = bins[self.source], bins[self.target]
        expected = self._targets(facts)
        if isinstance(facts[self.target], CategoricalColumn):
            fits = other.categories[:, expected].T
        else:
            fits = (other.low <= expected[:, None]) & (expected[:, None] <= other.high)
        possible = one.categories.astype(int) @ fits.astype(int) > 0
        return possible | _outer([one.missing, other.missing], np.logical_or)


@dataclass(frozen=True)
class ImpossibleValues(Constraint):
    """A combination of values that no record has (a structural zero).

    Parameters
    ----------
    values : mapping of str to sequence
        For each column, its values in the combination: a list of categories, or the pair (lower,
        upper) of a range that includes its ends. ``None`` leaves a side of a range open.

    Examples
    --------
    >>> from skprivacy.preprocessing import ImpossibleValues
    >>> ImpossibleValues({"age": (None, 15), "married": ["yes"]})
    ImpossibleValues(values=(('age', (None, 15)), ('married', ('yes',))))
    """

    kind: ClassVar[str] = "impossible"

    values: tuple[tuple[str, tuple[Any, ...]], ...]

    def __post_init__(self) -> None:
        who = "ImpossibleValues"
        given: Any = self.values
        if not isinstance(given, Mapping):
            given = dict(given) if isinstance(given, tuple) else {}
        if not given or not all(
            isinstance(name, str) and isinstance(of, tuple | list) and len(of)
            for name, of in given.items()
        ):
            raise ValueError(
                f"{who}: values={self.values!r} must map columns to lists of categories, or to "
                "pairs (lower, upper)."
            )
        plain = tuple(
            (name, tuple(None if v is None else _plain_value(who, v) for v in of))
            for name, of in given.items()
        )
        object.__setattr__(self, "values", plain)

    @property
    def names(self) -> Names:
        return tuple(name for name, _ in self.values)

    def check(self, facts: Facts) -> None:
        self._require(facts, self.names, BoundedColumn, CategoricalColumn)
        for name, values in self.values:
            fact = facts[name]
            if isinstance(fact, CategoricalColumn):
                known = _category_codes(fact)
                wrong = [v for v in values if v is None or category_key(v) not in known]
                if wrong:
                    raise ValueError(
                        f"Schema: constraints: ImpossibleValues: {wrong[0]!r} is not a category of "
                        f"{name!r}. Expected some of {list(fact.values)}."
                    )
                continue
            assert isinstance(fact, BoundedColumn)
            numbers = [v for v in values if v is not None]
            if (
                len(values) != 2
                or not all(is_number(v) for v in numbers)
                or sorted(numbers) != numbers
            ):
                raise ValueError(
                    f"Schema: constraints: ImpossibleValues: {name!r} is given {list(values)!r}. "
                    "Expected a pair (lower, upper) for this numeric column; None is an open side."
                )

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.kind, "values": {name: list(values) for name, values in self.values}}

    def _range_of(self, name: str) -> tuple[float, float]:
        """Return the impossible range of a numeric column."""
        lower, upper = dict(self.values)[name]
        return -np.inf if lower is None else lower, np.inf if upper is None else upper

    def _codes_of(self, name: str, fact: CategoricalColumn) -> Mask:
        """Return which categories of a column are in the combination."""
        keys = {category_key(value) for value in dict(self.values)[name]}
        return np.array([category_key(value) in keys for value in fact.values])

    def holds(self, values: Values, facts: Facts, slack: float) -> Mask:
        impossible = np.ones(len(values[self.names[0]]), bool)
        for name in self.names:
            fact, own = facts[name], values[name]
            if isinstance(fact, CategoricalColumn):
                impossible &= np.append(self._codes_of(name, fact), False)[own]
            else:
                lower, upper = self._range_of(name)
                impossible &= (lower <= own) & (own <= upper)
        return ~impossible

    def allowed(self, link: Names, bins: Bins, facts: Facts) -> Mask:
        escapes = []  # bins with a value outside the combination
        for name in link:
            fact, own = facts[name], bins[name]
            if isinstance(fact, CategoricalColumn):
                outside = own.categories[:, ~self._codes_of(name, fact)].any(axis=1)
            else:
                lower, upper = self._range_of(name)
                outside = (own.low < lower) | (own.high > upper)
            escapes.append(outside | own.missing)
        return _outer(escapes, np.logical_or)


def _plain_value(who: str, value: Any) -> Any:
    """Return a category or number that JSON can hold."""
    plain = value.item() if isinstance(value, np.generic) else value
    storable("values", category_key(plain))
    if isinstance(plain, float) and not np.isfinite(plain):
        raise ValueError(f"{who}: {plain!r} must be finite. Use None for an open side of a range.")
    return plain
