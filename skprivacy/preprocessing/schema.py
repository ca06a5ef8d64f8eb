"""Schema: public facts about the columns of a data set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import pandas as pd

from .. import _config
from .._files import write_file
from .._validation import flag, sequence, storable, whole
from ..mechanisms.base import check_bounds
from . import schema_format
from .columns import BoundedColumn, CategoricalColumn, Column
from .confirmation import Confirmation, ConfirmedFacts
from .constraints import Constraint
from .crosses import Cross, check_crosses
from .inferred_facts import inferred_facts
from .schema_check import SchemaCheck, check_table


def _target_range(target_bounds: Any) -> tuple[float, float]:
    """Return the bounds of the target as floats, the lower below the upper."""
    lower, upper = (float(bound[0]) for bound in check_bounds("target_bounds", target_bounds, 1))
    if lower == upper:
        raise ValueError(
            f"Schema: target_bounds={target_bounds!r} must be a lower bound below an upper one. "
            "Pass the public range of the target."
        )
    return lower, upper


class Schema(ConfirmedFacts[Column]):
    """Public facts about the columns of a data set, in order.

    The ranges, categories and classes that a model needs before training must come from public
    documentation, such as a codebook. Reading them off the private data would leak them, and no
    guarantee would cover the leak.

    Parameters
    ----------
    columns : mapping of str to BoundedColumn, CategoricalColumn, DateColumn or HashedColumn
        The feature columns, in order.
    target_column : str, default=None
        The name of the target column.
    classes : sequence of str or int, default=None
        The target's publicly known classes.
    target_bounds : tuple (lower, upper), default=None
        The publicly known range of a numeric target.
    crosses : sequence of (str, str), default=()
        Pairs of columns that a model should consider together: see :meth:`with_crosses`.
    constraints : sequence of constraints, default=()
        Rules between columns, which every synthetic record satisfies: see
        :meth:`with_constraints`.
    inferred : bool, default=False
        Whether the schema began as a draft read off private data. All of its facts then need a
        confirmation, including columns added later.
    confirmed : Confirmation, default=None
        Who compared the facts about the target with a codebook; set by :meth:`confirm`.

    See Also
    --------
    SchemaTransformer : Encode data as bounded features by a schema.
    make_private_pipeline : Pass the facts of a schema to a private model.

    Examples
    --------
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> schema = Schema(
    ...     {"age": BoundedColumn(0, 120), "sex": CategoricalColumn(["Female", "Male"])}
    ... )
    >>> schema["age"]
    BoundedColumn(lower=0.0, upper=120.0, scale='linear', knee=1.0, bins=1)
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        *,
        target_column: str | None = None,
        classes: Iterable[Any] | None = None,
        target_bounds: tuple[float, float] | None = None,
        crosses: Iterable[tuple[str, str]] = (),
        constraints: Iterable[Constraint] = (),
        inferred: bool = False,
        confirmed: Confirmation | None = None,
    ) -> None:
        if not isinstance(columns, Mapping) or not columns:
            raise ValueError(
                f"Schema: columns={columns!r} must map at least one column name to its facts, such "
                "as {'age': BoundedColumn(0, 120)}."
            )
        schema_format.check_columns(columns)
        if target_column is not None and not isinstance(target_column, str):
            raise TypeError(
                f"Schema: target_column={target_column!r} must be the name of a column, or None."
            )
        storable("target_column", target_column or "")
        if target_column is not None and target_column in columns:
            raise ValueError(
                f"Schema: target_column={target_column!r} must not be among the feature columns. "
                "Remove it from columns."
            )
        flag("inferred", inferred)
        if not isinstance(confirmed, Confirmation | None):
            raise TypeError("Schema: confirmed must be None. Use Schema.confirm, which sets it.")
        self._columns = {
            name: replace(column, inferred=True) if inferred and not column.inferred else column
            for name, column in columns.items()
        }
        self.target_column = target_column
        self.classes = (
            None if classes is None else CategoricalColumn(sequence("classes", classes)).values
        )
        self.target_bounds = None if target_bounds is None else _target_range(target_bounds)
        self.crosses = check_crosses(self._columns, crosses)
        self.constraints = schema_format.check_constraints(self._described_columns(), constraints)
        self._inferred = bool(inferred)
        self._confirmed = confirmed

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.to_dict() == other.to_dict()

    def __repr__(self) -> str:
        target = f", target {self.target_column!r}" if self.target_column else ""
        origin = ", INFERRED from data" if self.unconfirmed else ""
        return f"Schema({len(self)} columns{target}{origin})"

    def check(self, table: pd.DataFrame, *, groups: Any = None) -> SchemaCheck:
        """Report to the data holder which values of a table are clipped or unknown, and why.

        A schema is written without looking at the data, so spellings and units may differ. Training
        silently loses each value that the schema does not know.

        Parameters
        ----------
        table : DataFrame of shape (n_samples, n_columns)
            Private records, with or without the target.
        groups : array-like of shape (n_samples,), default=None
            The person, or other group, of each row, to count the rows of each. ``None`` counts
            the rows for columns of ``table`` that seem to identify people.

        Returns
        -------
        SchemaCheck
            For each of ``columns``, the numbers ``n_missing``, ``n_clipped`` and ``n_unknown``;
            ``absent`` and ``undescribed`` columns; and the rows of ``people``. They are **about
            private data**; do not publish them.

        Raises
        ------
        TypeError
            If ``table`` is not a DataFrame.
        ValueError
            If it has no rows.

        Examples
        --------
        >>> import pandas as pd
        >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
        >>> schema = Schema(
        ...     {"age": BoundedColumn(0, 1), "smokes": CategoricalColumn(["no", "yes"])}
        ... )
        >>> table = pd.DataFrame({"age": [31, 64], "smokes": ["No", "yes"]})
        >>> schema.check(table)
        This is about private data: do not publish it, ...
          age: 100.00% clipped; values reach from 31 to 64, the bounds are 0 and 1: are they in \
the same unit?
          smokes: 50.00% unknown; 1 times 'No', the schema has 'no'
        2 of 2 columns lose more than 1% of their values.
        """
        return check_table(table, dict(self), self.target_column, self._target(), groups)

    def _check_kinds(
        self, owner: str, names: Iterable[str] | None = None, *, missing: bool
    ) -> dict[str, BoundedColumn | CategoricalColumn]:
        """Return some or all columns; raise ValueError unless all are bounded or categorical."""
        found: dict[str, BoundedColumn | CategoricalColumn] = {}
        for name in self if names is None else names:
            column = self[name]
            if not isinstance(column, (BoundedColumn, CategoricalColumn)) or (
                column.missing and not missing
            ):
                raise ValueError(
                    f"schema: column {name!r} is {column!r}, and {owner} knows only BoundedColumn "
                    f"and CategoricalColumn{'' if missing else ' without missing=True'}. Describe "
                    "it as one of these, or leave it out."
                )
            found[name] = column
        return found

    @property
    def n_features_out(self) -> int:
        """Number of columns that :class:`SchemaTransformer` returns."""
        return sum(column.n_features_out for column in self.values()) + sum(
            cross.n_features_out for cross in self._crossed_columns()
        )

    def with_bins(self, bins: int, names: Iterable[str] | None = None) -> Schema:
        """Return a copy in which bounded columns have this number of bins.

        Parameters
        ----------
        bins : int
            At least 1, which adds no features.
        names : iterable of str, default=None
            Bounded columns. ``None`` means all.

        Returns
        -------
        Schema
            A copy with all other facts unchanged.

        Raises
        ------
        ValueError
            If a name belongs to no bounded column.
        """
        whole("bins", bins)
        bounded = {k: column for k, column in self.items() if isinstance(column, BoundedColumn)}
        chosen = list(bounded) if names is None else list(sequence("names", names))
        if unknown := [name for name in chosen if name not in list(bounded)]:
            raise ValueError(
                f"names={unknown!r} must be bounded columns of the schema, which are "
                f"{list(bounded)!r}."
            )
        columns = {name: replace(bounded[name], bins=bins) for name in chosen}
        return self._with({**self, **columns}, self._confirmed)

    def with_crosses(self, crosses: Iterable[tuple[str, str]]) -> Schema:
        """Return a copy in which these pairs of columns are crossed.

        :class:`SchemaTransformer` adds a feature for each pair of a category, or bin, of one column
        with one of the other: a linear model then learns what the pair says beyond its columns.
        Choose pairs from public knowledge. They cost no privacy, but more features need more noise.

        Parameters
        ----------
        crosses : sequence of (str, str)
            Pairs of columns, each with categories or with ``bins``. They replace earlier ones.

        Returns
        -------
        Schema
            A copy with all other facts unchanged.

        Raises
        ------
        ValueError
            If a pair is not of two such columns.

        Examples
        --------
        >>> from skprivacy.preprocessing import CategoricalColumn, Schema
        >>> schema = Schema(
        ...     {"month": CategoricalColumn(range(1, 13)), "day": CategoricalColumn(range(1, 32))}
        ... )
        >>> schema.n_features_out, schema.with_crosses([("month", "day")]).n_features_out
        (43, 415)
        """
        return self._with(dict(self), self._confirmed, crosses)

    def with_constraints(self, constraints: Iterable[Constraint]) -> Schema:
        """Return a copy with these rules between columns, which every synthetic record satisfies.

        A rule is a public fact, such as that a price is at least the amount of its loan. It costs
        no privacy. Synthesizers count private records that break it like all others. Other models
        ignore it.

        Parameters
        ----------
        constraints : sequence of constraints
            :class:`EqualColumns`, :class:`OrderedColumns`, :class:`SummedColumns`,
            :class:`MappedColumn` or :class:`ImpossibleValues`. They replace earlier ones, and may
            name the target column.

        Returns
        -------
        Schema
            A copy with all other facts unchanged.

        Raises
        ------
        ValueError
            If a constraint names an unknown column, or one of another kind.

        Examples
        --------
        >>> from skprivacy.preprocessing import BoundedColumn, OrderedColumns, Schema
        >>> schema = Schema({"amount": BoundedColumn(0, 9_000), "price": BoundedColumn(0, 9_000)})
        >>> schema.with_constraints([OrderedColumns(["amount", "price"])]).constraints
        (OrderedColumns(columns=('amount', 'price'), strict=False),)
        """
        return self._with(dict(self), self._confirmed, constraints=constraints)

    def _crossed_columns(self) -> list[Cross]:
        """Return the crosses with the facts of their columns."""
        return [Cross((a, b), (self[a], self[b])) for a, b in self.crosses]

    def _with(
        self,
        columns: Mapping[str, Column],
        confirmed: Confirmation | None,
        crosses: Iterable[tuple[str, str]] | None = None,
        constraints: Iterable[Constraint] | None = None,
    ) -> Schema:
        """Return a schema of other columns, crosses or constraints, with the same target."""
        return Schema(
            columns,
            crosses=self.crosses if crosses is None else crosses,
            constraints=self.constraints if constraints is None else constraints,
            target_column=self.target_column,
            classes=self.classes,
            target_bounds=self.target_bounds,
            inferred=self._inferred,
            confirmed=confirmed,
        )

    def _target(self) -> Column | None:
        """Return the facts about the target, if there are any."""
        if self.classes is not None:
            return CategoricalColumn(self.classes)
        return None if self.target_bounds is None else BoundedColumn(*self.target_bounds)

    def _described_columns(self) -> dict[str, Column]:
        """Return the columns, with the target if it has a name and facts."""
        target = self._target()
        known = target is not None and self.target_column is not None
        return {**self, self.target_column: target} if known else dict(self)  # type: ignore[dict-item]

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain lists, strings and numbers, without unused options.

        Returns
        -------
        dict
            Argument of :meth:`from_dict`.
        """
        return schema_format.schema_to_dict(self)

    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """Return the schema as JSON, and write it to ``path`` if one is given.

        Parameters
        ----------
        path : str or PathLike, default=None
            File to write, in UTF-8. ``None`` writes nothing.

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
            A result of :meth:`to_dict`.

        Raises
        ------
        ValueError
            If a key is unknown or missing; the message names the column.
        """
        return cls(**schema_format.schema_arguments(facts))

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
        return cls.from_dict(schema_format.read_json(source))

    @classmethod
    def infer(cls, X: Any, y: Any = None) -> Schema:
        """Infer a schema from data. This LEAKS the data's extremes and rare categories.

        Use it on public data, or for a first draft that you then correct by the codebook.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The data.
        y : array-like of shape (n_samples,), default=None
            The target. Its bounds are inferred if it holds fractions or more than 30 different
            numbers, and its classes otherwise.

        Returns
        -------
        Schema
            A schema marked as inferred, like each of its columns. See :meth:`confirm`.

        Raises
        ------
        ValueError
            If a column has no value, values that cannot be categories, or more than 1,000
            categories, as names and identifiers have.

        Warns
        -----
        PrivacyLeakWarning
            Always; under ``skprivacy.set_config(strict=True)`` it is a ValueError.
        """
        _config.leak(
            "Schema.infer reads bounds and categories off the data: they leak, and no guarantee "
            "covers the leak, unless the data is public. Write a Schema from the data's codebook."
        )
        return cls(**inferred_facts(X, y), inferred=True)
