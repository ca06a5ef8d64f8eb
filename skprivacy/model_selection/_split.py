"""The records of a sweep, and their splits into training and test records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._sklearn import num_samples, safe_indexing
from ._first_step import FirstStep, first_step

__all__ = ["Records", "Split", "cut", "with_first_steps"]


@dataclass(frozen=True)
class Records:
    """All records, with what goes to ``fit`` and to the scorers beside them.

    Attributes
    ----------
    X, y : the records and what is predicted of them
    groups : ndarray of shape (n_samples,) or None
        The subgroup of each, as text.
    fit_params : dict
        Further arguments of ``fit``; those with a value for each record are split like it.
    score_params : dict of dict
        Further arguments of each scorer, by its name.
    people : Series of shape (n_samples,) or None
        Whose record each is, where people are members, and not records.
    first : FirstStep or None
        What the first step of all models makes of the records, if it is taken once.
    """

    X: Any
    y: Any
    groups: Any = None
    fit_params: Mapping[str, Any] = field(default_factory=dict)
    score_params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    people: Any = None
    first: FirstStep | None = None

    def part(self, rows: Any) -> Records:
        """Return some of the records."""
        return Records(
            safe_indexing(self.X, rows),
            safe_indexing(self.y, rows),
            None if self.groups is None else self.groups[rows],
            cut(self.fit_params, rows, num_samples(self.X)),
            {name: cut(given, rows, num_samples(self.X)) for name, given in self.scoring},
            None if self.people is None else self.people.iloc[rows],
            None if self.first is None else self.first.part(rows),
        )

    @property
    def scoring(self) -> Any:
        """The names of the scorers, and the arguments of each."""
        return self.score_params.items()


@dataclass(frozen=True)
class Split:
    """Records to train on and records to test on, and both: what the attacker knows."""

    own: Records
    new: Records
    known: Records

    @classmethod
    def of(cls, records: Records, train: Any, test: Any) -> Split:
        """Return the split of some records by their indices."""
        return cls(*map(records.part, (train, test, np.concatenate([train, test]))))


def with_first_steps(
    records: Mapping[str, Records], models: Mapping[str, Any]
) -> dict[str, Records]:
    """Return the records of each model with what its first step makes of them, if it is shared."""
    taken: list[FirstStep] = []
    found = {}
    for name, own in records.items():
        first = next((step for step in taken if step.begins(models[name])), None)
        if first is None and (first := first_step(models[name], own.X)) is not None:
            taken.append(first)
        found[name] = own if first is None else replace(own, first=first)
    return found


def cut(params: Mapping[str, Any], rows: Any, n_samples: int) -> dict[str, Any]:
    """Return arguments for some of the records; what has no value for each stays as it is."""
    return {
        name: safe_indexing(value, rows) if _for_each(value, n_samples) else value
        for name, value in params.items()
    }


def _for_each(value: Any, n_samples: int) -> bool:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        return hasattr(value, "shape") and len(value.shape) > 0 and value.shape[0] == n_samples
    return num_samples(value) == n_samples
