"""Confirmation by a person that facts read off data agree with a public codebook."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone
from typing import Any

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
