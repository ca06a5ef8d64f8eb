"""Facts that a report states about itself: data, date, author, command and versions."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..._version import __version__

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch")


@dataclass(frozen=True)
class About:
    """Facts that a report states about itself, next to its measurements.

    Parameters
    ----------
    data : str, default=""
        Name of the data set.
    author : str, default=""
        Person or office responsible for the report.
    command : str, default=""
        Command that made it.
    date : datetime.date, default=None
        None means today.
    record : str, default="record"
        Meaning of one row: "person" if each row is a different person.
    schema_digest, ledger_digest, model_digest : str, default=""
        SHA-256 of the data's schema, of the last line of the ledger, and of the model's file.
    seeds : mapping of str to int, default=None
        Seeds of public randomness, such as splits; never the seed of private noise.

    Examples
    --------
    >>> from datetime import date
    >>> from skprivacy.audit import About
    >>> About(data="patients.csv", record="person", date=date(2026, 1, 31)).facts()["Date"]
    '2026-01-31'
    """

    data: str = ""
    author: str = ""
    command: str = ""
    date: Date | None = None
    record: str = "record"
    schema_digest: str = ""
    ledger_digest: str = ""
    model_digest: str = ""
    seeds: Mapping[str, int] | None = field(default=None)

    def __post_init__(self) -> None:
        digests = ("schema_digest", "ledger_digest", "model_digest")
        for name in ("data", "author", "command", "record", *digests):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name}={value!r} must be a string.")
        if not self.record:
            raise ValueError("record='' must name one row, such as 'record' or 'person'.")
        if self.date is not None and not isinstance(self.date, Date):
            raise TypeError(f"date={self.date!r} must be a datetime.date, or None for today.")

    def facts(self) -> dict[str, str]:
        """Return the known facts by name, in the order of the page.

        Returns
        -------
        dict of str
            Without unknown facts.
        """
        seeds = ", ".join(f"{name} {seed}" for name, seed in (self.seeds or {}).items())
        known = {
            "Data": self.data,
            "Date": (self.date or Date.today()).isoformat(),
            "Author": self.author,
            "Command": self.command,
            "Versions": ", ".join(f"{name} {found}" for name, found in versions().items()),
            "Schema, SHA-256": self.schema_digest,
            "Ledger, SHA-256": self.ledger_digest,
            "Model file, SHA-256": self.model_digest,
            "Public seeds": seeds,
        }
        return {name: value for name, value in known.items() if value}

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as JSON-serialisable values.

        Returns
        -------
        dict
            All attributes, and the versions of the packages in use.
        """
        date, seeds = (self.date or Date.today()).isoformat(), dict(self.seeds or {})
        return {**vars(self), "date": date, "seeds": seeds, "versions": versions()}


def about_or_empty(about: About | None) -> About:
    """Return ``about``, or an empty About for None; raise TypeError for anything else."""
    if not (about is None or isinstance(about, About)):
        raise TypeError(f"about={about!r} must be an About, or None.")
    return about or About()


def versions() -> dict[str, str]:
    """Return the versions that affect a result; torch only if it was imported."""
    found = {"skprivacy": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        if name == "torch" and name not in sys.modules:
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # vendored
            continue
    return found
