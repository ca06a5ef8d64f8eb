"""What all kinds of columns have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from ._confirmation import Confirmation, facts_digest

__all__ = ["Column", "fields_of"]


@dataclass(frozen=True, repr=False)
class Column:
    """What is publicly known about one column; the kinds say how its values become features.

    **Guarantees.** What a value becomes depends on the value and on the facts, never on other rows.
    """

    missing: bool = field(default=False, kw_only=True)
    description: str = field(default="", kw_only=True)
    inferred: bool = field(default=False, kw_only=True, compare=False)
    confirmed: Confirmation | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        who = type(self).__name__
        for name in ("missing", "inferred"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{who}: {name}={getattr(self, name)!r} must be true or false.")
            object.__setattr__(self, name, bool(getattr(self, name)))
        for name in ("description", "unit"):
            if not isinstance(getattr(self, name, ""), str):
                raise TypeError(f"{who}: {name}={getattr(self, name)!r} must be text.")
        if not isinstance(self.confirmed, Confirmation | None):
            raise TypeError(f"{who}: confirmed must be None. Use Schema.confirm, which sets it.")

    def digest(self, name: str) -> str:
        """Return the digest of the facts, by which a confirmation knows them.

        Parameters
        ----------
        name : str
            The name of the column.

        Returns
        -------
        str
            SHA-256 in hexadecimal.
        """
        return facts_digest(name, self.to_dict())

    def is_unconfirmed(self, name: str) -> bool:
        """Return True if the facts were read off data and nobody has confirmed them.

        Parameters
        ----------
        name : str
            The name of the column.

        Returns
        -------
        bool
            True as well if the facts were changed after a confirmation.
        """
        if not self.inferred:
            return False
        return self.confirmed is None or self.confirmed.digest != self.digest(name)

    def __repr__(self) -> str:
        shown = [
            f"{fact.name}={getattr(self, fact.name)!r}"
            for fact in fields_of(self)
            if not fact.kw_only or getattr(self, fact.name) != fact.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def n_features_out(self) -> int:
        """Number of features that the column becomes."""
        return len(self.names_out(""))

    def names_out(self, name: str) -> list[str]:
        """Return the names of the features that a column of this name becomes.

        Parameters
        ----------
        name : str
            The name of the column.

        Returns
        -------
        list of str
            In the order of the features.
        """
        return [*self._names(name), *([f"{name}_missing"] if self.missing else [])]

    def largest_norm(self, feature_range: tuple[float, float]) -> float:
        """Return the largest norm of the features that a value becomes: one of them is 1.

        Parameters
        ----------
        feature_range : tuple of two floats
            The range of scaled numbers.

        Returns
        -------
        float
            In L2.
        """
        return 1.0

    def largest_feature(self, feature_range: tuple[float, float]) -> float:
        """Return the largest magnitude of one feature.

        Parameters
        ----------
        feature_range : tuple of two floats
            The range of scaled numbers.

        Returns
        -------
        float
            At least 0.
        """
        return 1.0

    def encode(self, out: np.ndarray, column: pd.Series, scaled: Callable) -> None:
        """Write the features of a column into zeros.

        Parameters
        ----------
        out : ndarray of shape (n_samples, n_features_out)
            Zeros, which are overwritten.
        column : Series of length n_samples
            The values.
        scaled : callable
            Maps numbers in [0, 1] to the range of features.
        """
        placed = self.write(out, column, scaled)
        if self.missing:
            out[:, -1] = ~placed

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON has them; options that are not used are left out.

        Returns
        -------
        dict
            With the kind of column as ``type``.
        """
        told: dict[str, Any] = {"type": type(self).__name__.lower()}
        for fact in fields_of(self):
            value = getattr(self, fact.name)
            optional = fact.kw_only or "written" in fact.metadata
            if not optional or fact.default is MISSING or value != fact.default:
                told[fact.name] = _plain(value)
        return told

    def _names(self, name: str) -> list[str]:
        raise NotImplementedError

    def write(self, out: np.ndarray, column: pd.Series, scaled: Callable) -> np.ndarray:
        """Write all but whether a value is missing; return which values could be placed.

        Parameters
        ----------
        out : ndarray of shape (n_samples, n_features_out)
            Zeros, which are overwritten.
        column : Series of length n_samples
            The values.
        scaled : callable
            Maps numbers in [0, 1] to the range of features.

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            False where a value is missing, or none that the column knows.
        """
        raise NotImplementedError


def _plain(value: Any) -> Any:
    if isinstance(value, Confirmation):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def fields_of(column: Column | type[Column]) -> list[Field[Any]]:
    """Return the fields of a column, its own before the options."""
    return sorted(fields(column), key=lambda fact: bool(fact.kw_only))
