"""Confirmation by a person that facts read off data agree with a public codebook.

:class:`Confirmation` is the statement, and :class:`ConfirmedFacts` the facts of a schema that need
one.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from .. import _config

ASSUMPTION = "the schema is public (its bounds and categories were read off the data)"
_MAX_NAME_LENGTH = 200  # characters of a name
# The marks themselves and the choice of an encoding are not facts about the data.
_KEYS_WITHOUT_DIGEST = ("inferred", "confirmed", "bins")


@dataclass(frozen=True)
class Confirmation:
    """Statement of a person, not a signature, that facts about a column or target are public."""

    by: str  # the name that the person gave
    at: str  # UTC, in ISO 8601
    digest: str  # SHA-256 of the column's name and facts; other facts are unconfirmed

    def __post_init__(self) -> None:
        if not all(isinstance(getattr(self, fact.name), str) for fact in fields(self)):
            raise TypeError('"confirmed" must have the texts "by", "at" and "digest".')
        if not self.by.strip() or len(self.by) > _MAX_NAME_LENGTH or not self.by.isprintable():
            raise ValueError(
                f'"by" must be the name of a person, in at most {_MAX_NAME_LENGTH} printable '
                "characters."
            )

    @classmethod
    def create(cls, by: str, digest: str) -> Confirmation:
        """Return a confirmation with the current time."""
        return cls(by, datetime.now(timezone.utc).isoformat(timespec="seconds"), digest)

    @classmethod
    def from_dict(cls, facts: Any) -> Confirmation:
        """Return the confirmation that a file states."""
        if not isinstance(facts, Mapping) or set(facts) != {fact.name for fact in fields(cls)}:
            raise ValueError(
                '"confirmed" must be an object with "by", "at" and "digest", as `skprivacy schema '
                "confirm` writes it. Remove it, and confirm again."
            )
        return cls(**facts)

    def to_dict(self) -> dict[str, str]:
        """Return the confirmation as JSON has it."""
        return asdict(self)


def facts_digest(name: str | None, facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a name and its facts."""
    about = {key: value for key, value in facts.items() if key not in _KEYS_WITHOUT_DIGEST}
    return hashlib.sha256(json.dumps([name, about], sort_keys=True).encode()).hexdigest()


Fact = TypeVar("Fact")  # about a column


class ConfirmedFacts(Mapping[str, Fact]):
    """Facts about columns and a target; facts that were read off data need a confirmation."""

    target_column: str | None
    classes: tuple[Any, ...] | None
    target_bounds: tuple[float, float] | None
    _inferred: bool
    _confirmed: Confirmation | None

    @abstractmethod
    def _with(self, columns: Mapping[str, Any], confirmed: Confirmation | None) -> Any:
        """Return a copy with other columns, and another confirmation of the target."""

    @property
    def inferred(self) -> bool:
        """Whether some fact was read off private data, confirmed since or not."""
        columns: Mapping[str, Any] = self
        return self._inferred or any(column.inferred for column in columns.values())

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Columns whose facts were read off private data and not confirmed.

        Classes and bounds of the target appear last, under the target's name or ``"target"``.
        """
        facts: Mapping[str, Any] = self
        columns = tuple(name for name, column in facts.items() if column._is_unconfirmed(name))
        if not self._inferred or (self.classes is None and self.target_bounds is None):
            return columns
        known = self._confirmed is not None and self._confirmed.digest == self._target_digest()
        return columns if known else (*columns, self.target_column or "target")

    def confirm(self, name: str, *, by: str) -> Any:
        """Return a copy in which the facts about one column, or the target, are confirmed.

        Call it after comparing these facts with a public codebook, or if the data is public.
        ``skprivacy schema confirm`` asks column by column.

        Parameters
        ----------
        name : str
            One of ``unconfirmed``.
        by : str
            Name of the person.

        Returns
        -------
        Schema
            A copy that holds the name, the time and a digest of the facts.

        Raises
        ------
        ValueError
            If there is nothing to confirm under this name.

        Examples
        --------
        >>> from skprivacy.preprocessing import BoundedColumn, Schema
        >>> draft = Schema({"age": BoundedColumn(18, 89, inferred=True)})
        >>> draft.unconfirmed
        ('age',)
        >>> draft.confirm("age", by="Ann").unconfirmed
        ()
        """
        if name not in self.unconfirmed:
            raise ValueError(
                f"name={name!r} must be one of {list(self.unconfirmed)}, which are unconfirmed."
            )
        columns: dict[str, Any] = dict(self)
        confirmed = self._confirmed
        if name in columns and columns[name]._is_unconfirmed(name):
            made = Confirmation.create(by, columns[name]._digest(name))
            columns[name] = replace(columns[name], confirmed=made)
        else:
            confirmed = Confirmation.create(by, self._target_digest())
        return self._with(columns, confirmed)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of guarantees that rely on the schema; empty if all is confirmed."""
        return (ASSUMPTION,) if self.unconfirmed else ()

    def warn_if_unconfirmed(self) -> None:
        """Warn of facts that were read off private data; raise ValueError if strict."""
        found = [repr(name) for name in self.unconfirmed]
        if found:
            named = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if found[5:] else "")
            _config.leak(
                f"schema: bounds and categories of {named} were read off the data and not "
                "confirmed: that leaks them, and no guarantee covers the leak. Compare them with a "
                "public codebook, and confirm them by `skprivacy schema confirm FILE`."
            )

    def _target_digest(self) -> str:
        return facts_digest(
            self.target_column, {"classes": self.classes, "target_bounds": self.target_bounds}
        )
