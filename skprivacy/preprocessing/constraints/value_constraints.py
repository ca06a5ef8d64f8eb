"""Constraints on single values: a column mapped to another one, and impossible combinations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..._validation import is_number, storable
from ..cell_values import category_key
from ..columns import BoundedColumn, CategoricalColumn
from .constraint import (
    Bins,
    Constraint,
    Facts,
    Mask,
    Names,
    Values,
    check_names,
    index_categories,
    outer_table,
)


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
        owner = "MappedColumn"
        check_names(owner, "source and target", self.names, 2)
        given: Any = self.values
        pairs = given.items() if isinstance(given, Mapping) else given
        valid = isinstance(pairs, Iterable) and not isinstance(pairs, str)
        found = [tuple(p) if isinstance(p, tuple | list) else () for p in pairs] if valid else []
        if not found or any(len(pair) != 2 for pair in found):
            raise ValueError(
                f"{owner}: values={given!r} must map each category of the source to a value."
            )
        plain = tuple(tuple(_plain_value(owner, v) for v in pair) for pair in found)
        object.__setattr__(self, "values", plain)
        object.__setattr__(self, "_keys", {category_key(a): b for a, b in plain})
        if len(self._keys) < len(plain):
            raise ValueError(f"{owner}: values={given!r} must name each category once.")

    @property
    def names(self) -> Names:
        return (self.source, self.target)

    def check(self, facts: Facts) -> None:
        self._require(facts, [self.source], CategoricalColumn)
        self._require(facts, [self.target], BoundedColumn, CategoricalColumn)
        source, target = facts[self.source], facts[self.target]
        assert isinstance(source, CategoricalColumn)
        known = index_categories(source)
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
                valid = category_key(value) in index_categories(target)
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
        values = [self._keys[key] for key in index_categories(facts[self.source])]
        if isinstance(target, CategoricalColumn):
            codes = index_categories(target)
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
        return possible | outer_table([one.missing, other.missing], np.logical_or)


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
        owner = "ImpossibleValues"
        given: Any = self.values
        if not isinstance(given, Mapping):
            given = dict(given) if isinstance(given, tuple) else {}
        if not given or not all(
            isinstance(name, str) and isinstance(of, tuple | list) and len(of)
            for name, of in given.items()
        ):
            raise ValueError(
                f"{owner}: values={self.values!r} must map columns to lists of categories, or to "
                "pairs (lower, upper)."
            )
        plain = tuple(
            (name, tuple(None if v is None else _plain_value(owner, v) for v in of))
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
                known = index_categories(fact)
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
        return outer_table(escapes, np.logical_or)


def _plain_value(owner: str, value: Any) -> Any:
    """Return a category or number that JSON can hold."""
    plain = value.item() if isinstance(value, np.generic) else value
    storable("values", category_key(plain))
    if isinstance(plain, float) and not np.isfinite(plain):
        raise ValueError(f"{owner}: {plain!r} must be finite. Use None for an open side.")
    return plain
