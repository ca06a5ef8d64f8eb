"""Base class of constraints between columns, with their common checks and tables.

A constraint says which records are possible. A record with a missing value in one of the columns
satisfies it, as in SQL. :meth:`Constraint.holds` tests records, and :meth:`Constraint.allowed`
tests bins: a bin is refused only if none of its values is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..cell_values import category_key
from ..columns import CategoricalColumn, Column

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


def check_names(kind: str, name: str, columns: Any, least: int) -> Names:
    found = tuple(columns) if isinstance(columns, tuple | list) else ()
    if len(found) < least or not all(isinstance(n, str) for n in found):
        raise ValueError(f"{kind}: {name}={columns!r} must list at least {least} names of columns.")
    if len({*found}) < len(found):
        raise ValueError(f"{kind}: {name}={columns!r} must name each column once.")
    return found


def outer_table(vectors: list[NDArray[Any]], combine: Any) -> NDArray[Any]:
    """Combine vectors to a table with an axis for each."""
    table: NDArray[Any] = reduce(combine.outer, vectors)
    return table


def index_categories(fact: Column) -> dict[str, int]:
    """Return the code of each category, by its key."""
    assert isinstance(fact, CategoricalColumn)
    return {category_key(value): code for code, value in enumerate(fact.values)}


def translate_codes(source: Column, target: Column) -> NDArray[np.int64]:
    """Return the code in ``target`` of each category of ``source``, or -1."""
    known = index_categories(target)
    return np.array([known.get(key, -1) for key in index_categories(source)])
