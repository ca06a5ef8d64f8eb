"""Public facts about the columns of a data set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .. import _config
from .._output import write_file
from .._validation import (
    as_array,
    as_frame,
    as_path,
    check_column_names,
    flag,
    sequence,
    storable,
    whole,
)
from ..mechanisms.bounds import checked_bounds
from ._column import Column
from ._inferring import column_name, inferred_column, target_facts
from ._reading import KINDS, column_of, unique_keys
from .checking import SchemaCheck, check_table
from .columns import Bounded, Categories

__all__ = ["Schema"]

_CALLED = {"Bounded": "bounded", "Categories": "categorical", "Dates": "date", "Hashed": "hashed"}


class Schema(Mapping[str, Column]):
    """Public facts about the columns of a data set, in order.

    Whatever a model needs to know about its input beforehand (ranges, categories, classes) has to
    come from public documentation, such as a codebook. Reading it off the private data would leak
    it, and no guarantee would cover the leak.

    Parameters
    ----------
    columns : mapping of str to Bounded, Categories, Dates or Hashed
        The feature columns, in order.
    target : str, default=None
        The name of the target column.
    classes : sequence of str or int, default=None
        The target's publicly known classes.
    target_bounds : tuple (lower, upper), default=None
        The publicly known range of a numeric target.
    inferred : bool, default=False
        Whether the facts were read off private data and so are not public. The attribute is true
        as well if that holds for a column; see ``unreviewed``.

    See Also
    --------
    SchemaTransformer : Turns data into bounded features by a schema.
    make_private_pipeline : Passes the facts of a schema on to a private model.

    Examples
    --------
    >>> from skprivacy.preprocessing import Bounded, Categories, Schema
    >>> schema = Schema({"age": Bounded(0, 120), "sex": Categories(["Female", "Male"])})
    >>> schema["age"]
    Bounded(lower=0.0, upper=120.0, scale='linear', knee=1.0, bins=1)
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        target: str | None = None,
        classes: Iterable[Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        inferred: bool = False,
    ) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise ValueError(
                f"Schema: columns={columns!r} must map at least one column name to its facts, such "
                "as {'age': Bounded(0, 120)}."
            )
        for name, column in columns.items():
            if not isinstance(name, str):
                raise TypeError(
                    f"Schema: column name {name!r} must be text. Rename the column, for example to "
                    f"'x{name}'."
                )
            storable("columns", name)
            if not isinstance(column, tuple(KINDS.values())):
                raise TypeError(
                    f"Schema: column {name!r} must be Bounded(lower, upper), Categories(values), "
                    f"Dates(first, last) or Hashed(buckets); got {column!r}."
                )
        if target is not None and not isinstance(target, str):
            raise TypeError(f"Schema: target={target!r} must be the name of a column, or None.")
        storable("target", target or "")
        if target is not None and target in columns:
            raise ValueError(
                f"Schema: target={target!r} must not be among the feature columns. Remove it from "
                "columns."
            )
        flag("inferred", inferred)
        self._columns = dict(columns)
        self.target = target
        self.classes = None if classes is None else Categories(sequence("classes", classes)).values
        self.target_bounds = None if target_bounds is None else _range(target_bounds)
        self._inferred = bool(inferred)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        facts = (self.target, self.classes, self.target_bounds, self.inferred)
        return hash((tuple(self._columns.items()), *facts))

    def __repr__(self) -> str:
        counts = Counter(type(column).__name__ for column in self.values())
        *most, last = [
            f"{counts[kind]} {name}"
            for kind, name in _CALLED.items()
            if counts[kind] or kind in ("Bounded", "Categories")
        ]
        return (
            f"Schema({', '.join(most)} and {last} columns"
            f"{', target ' + repr(self.target) if self.target else ''}"
            f"{', INFERRED from data' if self.inferred else ''})"
        )

    @property
    def inferred(self) -> bool:
        """Whether some fact was read off private data, and not reviewed since."""
        return bool(self.unreviewed)

    @property
    def unreviewed(self) -> tuple[str, ...]:
        """What was read off private data and not reviewed: names of columns, and ``"target"``.

        ``"target"`` stands for classes and bounds of the target, or, if no column is marked, for
        the whole schema.
        """
        columns = tuple(name for name, column in self.items() if column.inferred)
        return (*columns, "target") if self._inferred else columns

    def warn_if_inferred(self) -> None:
        """Warn of facts that were read off private data; raise ValueError if strict."""
        if not self.inferred:
            return
        columns = [repr(name) for name, column in self.items() if column.inferred]
        named = ", ".join(columns[:5]) + (f" and {len(columns) - 5} more" if columns[5:] else "")
        parts = [f"the columns {named}"] if columns else []
        parts += (
            ["the target" if columns else "all facts, or those of the target,"]
            if self._inferred
            else []
        )
        _config.leak(
            f"schema: {' and '.join(parts)} were read off the data and not reviewed: that leaks "
            "them, and no guarantee covers the leak. Compare them with a public codebook, and set "
            '"inferred" to false there.'
        )

    def check(self, table: pd.DataFrame, y: Any = None) -> SchemaCheck:
        """Tell whoever holds the data how a table fits: what is clipped or unknown, and why.

        A schema is written without looking at the data, so that it may have other spellings or
        units: each value that it does not know is lost in silence when a model is trained.

        Parameters
        ----------
        table : DataFrame of shape (n_samples, n_columns)
            Private records, with the target among the columns or without.
        y : array-like of shape (n_samples,), default=None
            The target, if it is not a column of ``table``.

        Returns
        -------
        SchemaCheck
            **About private data**: not to be published.

        Raises
        ------
        TypeError
            If ``table`` is not a DataFrame.
        ValueError
            If it has no rows.

        Examples
        --------
        >>> import pandas as pd
        >>> from skprivacy.preprocessing import Bounded, Categories, Schema
        >>> schema = Schema({"age": Bounded(0, 1), "smokes": Categories(["no", "yes"])})
        >>> table = pd.DataFrame({"age": [31, 64], "smokes": ["No", "yes"]})
        >>> schema.check(table)
        This is about private data: do not publish it, ...
          age: 100.00% clipped; values reach from 31 to 64, the bounds are 0 and 1: are they in \
the same unit?
          smokes: 50.00% unknown; 1 times 'No', the schema has 'no'
        2 of 2 columns lose more than 1% of their values.
        """
        if not isinstance(table, pd.DataFrame):
            raise TypeError(
                f"table is a {type(table).__name__}; expected a DataFrame, whose columns have "
                "names."
            )
        if not len(table):
            raise ValueError("table has no rows. Pass the records that are to be checked.")
        label: Column | None = None
        if self.classes is not None:
            label = Categories(self.classes)
        elif self.target_bounds is not None:
            label = Bounded(*self.target_bounds)
        target = self.target
        if y is not None:
            target = target or "target"
            if np.ndim(y) != 1 or len(y) != len(table):
                raise ValueError(
                    f"y has shape {np.shape(y)}; expected a value for each of the {len(table)} "
                    "rows of table."
                )
            table = table.assign(**{target: np.asarray(y)})
        return check_table(table, self.items(), target, label)

    def check_kinds(
        self, who: str, names: Iterable[str] | None = None, *, missing: bool
    ) -> dict[str, Bounded | Categories]:
        """Return columns; raise ValueError for one that is neither Bounded nor Categories.

        Parameters
        ----------
        who : str
            Who knows these two kinds alone.
        names : iterable of str, default=None
            Which columns; ``None``: all.
        missing : bool
            Whether columns may have a feature for missing values.

        Returns
        -------
        dict
            The columns asked for, by their names.
        """
        found: dict[str, Bounded | Categories] = {}
        for name in self if names is None else names:
            column = self[name]
            if not isinstance(column, (Bounded, Categories)) or (column.missing and not missing):
                raise ValueError(
                    f"schema: column {name!r} is {column!r}, and {who} knows only Bounded and "
                    f"Categories{'' if missing else ' without missing=True'}. Describe it so, or "
                    "leave it out."
                )
            found[name] = column
        return found

    @property
    def n_features_out(self) -> int:
        """Number of columns that :class:`SchemaTransformer` returns."""
        return sum(column.n_features_out for column in self.values())

    def with_bins(self, bins: int) -> Schema:
        """Return a copy in which every bounded column has this number of bins.

        Parameters
        ----------
        bins : int
            At least 1, which means none.

        Returns
        -------
        Schema
            With the same other facts.
        """
        whole("bins", bins)
        return Schema(
            {
                name: replace(column, bins=bins) if isinstance(column, Bounded) else column
                for name, column in self.items()
            },
            target=self.target,
            classes=self.classes,
            target_bounds=self.target_bounds,
            inferred=self._inferred,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain lists, strings and numbers.

        Options that are not used are left out, so that certificates of earlier versions still name
        the same schema.

        Returns
        -------
        dict
            For :meth:`from_dict`.
        """
        bounds = {} if self.target_bounds is None else {"target_bounds": list(self.target_bounds)}
        return {
            "columns": {name: column.to_dict() for name, column in self.items()},
            "target": self.target,
            "classes": None if self.classes is None else list(self.classes),
            **bounds,
            "inferred": self._inferred,
        }

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Return the schema as JSON, and write it to ``path`` if one is given.

        Parameters
        ----------
        path : str or PathLike, default=None
            Where to write it, in UTF-8. None writes nothing.

        Returns
        -------
        str
            A JSON object.
        """
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False)
        if path is not None:
            write_file(path, text + "\n")
        return text

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Schema:
        """Create a schema from the result of :meth:`to_dict`.

        Parameters
        ----------
        facts : mapping
            What :meth:`to_dict` returned.

        Raises
        ------
        ValueError
            If a key is unknown or missing; the message names the column.
        """
        if not isinstance(facts, Mapping) or not isinstance(facts.get("columns"), Mapping):
            raise ValueError(
                'Schema: the facts must be a mapping {"columns": {name: {...}, ...}, ...}; '
                f"got {facts!r}."
            )
        known = ("columns", "target", "classes", "target_bounds", "inferred")
        if unknown := set(facts) - {*known, "$schema"}:  # which editors read
            raise ValueError(
                f"Schema: unknown key {sorted(unknown)[0]!r}; expected {', '.join(known)}. Remove "
                "it."
            )
        if not isinstance(facts.get("inferred", False), bool):
            raise ValueError(
                f'Schema: "inferred" is {facts["inferred"]!r}; expected true or false. Correct it.'
            )
        columns = {name: column_of(name, fact) for name, fact in facts["columns"].items()}
        return cls(
            columns,
            target=facts.get("target"),
            classes=facts.get("classes"),
            target_bounds=facts.get("target_bounds"),
            inferred=facts.get("inferred", False),
        )

    @classmethod
    def from_json(cls, source: str | PathLike[str]) -> Schema:
        """Read a schema from a JSON file, or from JSON text (which starts with a brace).

        Parameters
        ----------
        source : str or PathLike
            The path of a file, or JSON text.

        Raises
        ------
        ValueError
            If the JSON is invalid, names a column twice, or does not describe a schema.
        FileNotFoundError
            If there is no such file.
        """
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        try:
            file = source if is_text else as_path("source", source)
            text = str(source) if is_text else Path(file).read_text(encoding="utf-8")
            facts = json.loads(text, object_pairs_hook=unique_keys)
        except RecursionError:
            raise ValueError("Schema: source is nested too deeply to describe a schema.") from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            origin = "the given text" if is_text else str(source)
            raise ValueError(
                f"Schema: {origin} is not valid JSON: {error}. Correct it at that position."
            ) from error
        return cls.from_dict(facts)

    @classmethod
    def infer(cls, X: Any, y: Any = None, *, max_categories: int = 1000) -> Schema:
        """Infer a schema from data. This LEAKS the data's extremes and rare categories.

        Use it on public data, or for a first draft that you then correct by the codebook.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The data.
        y : array-like of shape (n_samples,), default=None
            The target. Its classes are inferred as well; the bounds, if it holds numbers that are
            not whole, or more than 30 different ones.
        max_categories : int, default=1000
            Largest number of distinct values of a column that is not numeric. More are taken for
            names or identifiers of records, which no model should learn.

        Returns
        -------
        Schema
            With ``inferred=True``, as has every column.

        Raises
        ------
        ValueError
            If a column has no value, too many categories, or values that cannot be categories.

        Warns
        -----
        PrivacyLeakWarning
            Always; under ``skprivacy.set_config(strict=True)`` it is a ValueError.
        """
        _config.leak(
            "Schema.infer reads bounds and categories off the data: they leak, and no guarantee "
            "covers the leak, unless the data is public. Write a Schema from the data's codebook."
        )
        whole("max_categories", max_categories)
        check_column_names(X)
        X = as_frame(X)
        rows = X if isinstance(X, pd.DataFrame) else as_array("X", X)
        if rows.ndim != 2:
            raise ValueError(f"X has {rows.ndim} dimensions; expected 2, records by columns.")
        frame = pd.DataFrame(rows)
        columns = {
            column_name(label): inferred_column(column_name(label), frame[label], max_categories)
            for label in frame.columns
        }
        name = getattr(y, "name", None)
        return cls(
            columns,
            target=name if isinstance(name, str) and name not in columns else None,
            **({} if y is None else target_facts(as_array("y", y))),
            inferred=True,
        )


def _range(target_bounds: Any) -> tuple[float, float]:
    """Return the bounds of the target as plain numbers, the lower one below the upper one."""
    lower, upper = (float(bound[0]) for bound in checked_bounds("target_bounds", target_bounds, 1))
    if lower == upper:
        raise ValueError(
            f"Schema: target_bounds={target_bounds!r} must be a lower bound below an upper one. "
            "Pass the public range of the target."
        )
    return lower, upper
