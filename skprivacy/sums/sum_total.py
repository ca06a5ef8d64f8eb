"""Sum of named parts: a part counts once, and parts of another plan are refused."""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._output import write_file
from .._untrusted_files import MAX_MODEL_BYTES, parse_json, read_file
from .sum_plan import Integers, SumPlan, add_limbs, are_groups_whole, count_units, limbs_to_floats

_FORMAT = "skprivacy-sums-1"


class SumTotal:
    """Exact sum of the named parts of a table, for ``model.fit_sums``.

    **The numbers of a total are private, without any noise.** Keep a total where the table is
    allowed to be, and delete it after the fit.

    Parameters
    ----------
    plan : SumPlan
        The plan whose ``partial`` computes the parts.

    Attributes
    ----------
    plan : SumPlan
        The plan.
    names : frozenset of str
        Names of the parts so far.

    Notes
    -----
    **Guarantees.** Each name is counted once. The same part twice, as after a retry, changes
    nothing. Other integers under a known name are refused.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.linear_model import AdaSSPRegressor
    >>> from skprivacy.sums import SumTotal
    >>> table = pd.DataFrame({"age": [30, 50, 70] * 500, "cost": [1.0, 2.0, 3.0] * 500})
    >>> model = AdaSSPRegressor(bounds=(0, 100), target_bounds=(0, 5))
    >>> plan = model.plan(["age"], y="cost")
    >>> total = SumTotal(plan)
    >>> for start in range(0, 1500, 500):  # each batch on any worker
    ...     total.add(f"rows {start}", plan.partial(table[start : start + 500]))
    >>> model.fit_sums(total).privacy_
    (1.00, 1e-05)-DP, add-remove, exact noise, proved
    """

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan
        self._limbs: Integers = np.zeros((2, plan.size), np.int64)
        self._parts: dict[str, str] = {}  # digest of the integers of each part, by its name

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._parts)

    @property
    def n_units(self) -> int:
        """Number of records, or of groups. Private under the relation "add_remove"."""
        return count_units(self.plan.unit, self._limbs)

    def check_sizes(self) -> None:
        """Refuse a total of groups whose rows are not as many as their sizes say.

        Raises
        ------
        ValueError
            If a part is missing, or the rows changed between the join and the scan. Changes whose
            shares happen to add up to whole groups are not detected.
        """
        if not are_groups_whole(self.plan.unit, self._limbs):
            raise ValueError(
                "The rows of some groups are not as many as their sizes say: a part is missing, or "
                "the rows changed between two reads. Read from files or persisted data."
            )

    def __repr__(self) -> str:
        return f"SumTotal of a {type(self.plan).__name__}, private"

    def add(self, name: str, integers: NDArray[Any]) -> None:
        """Add the integers of one part, unless the part is known.

        Parameters
        ----------
        name : str
            Name of the part that no other part of the table has, such as its file.
        integers : ndarray of shape (2, size)
            ``plan.partial`` of the part.

        Raises
        ------
        ValueError
            If the shape is not of this plan, or a part of this name has other integers.
        """
        limbs = np.asarray(integers)
        if limbs.dtype != np.int64 or limbs.shape != self._limbs.shape:
            raise ValueError(
                f"integers are {limbs.dtype} of shape {limbs.shape}; expected int64 of shape "
                f"{self._limbs.shape}. Pass what plan.partial returns."
            )
        content = hashlib.sha256(np.ascontiguousarray(limbs).tobytes()).hexdigest()
        if name not in self._parts:
            self._parts[name] = content
            self._limbs = add_limbs(self._limbs, limbs)
        elif self._parts[name] != content:
            raise _changed_part_error(name)

    def merge(self, other: SumTotal) -> None:
        """Add the parts of another total of the same plan.

        Parameters
        ----------
        other : SumTotal
            All of its parts are known here, with the same integers, or none is.

        Raises
        ------
        ValueError
            If the plans differ, a part of both has other integers, or only some are known.
        """
        if other.plan.digest != self.plan.digest:
            raise ValueError(
                "other is a total of another plan. Parameters, columns or versions of skprivacy "
                "differ: compute both totals by one plan."
            )
        known = self._parts.keys() & other._parts.keys()
        for name in sorted(known):
            if self._parts[name] != other._parts[name]:
                raise _changed_part_error(name)
        if not known:
            self._parts.update(other._parts)
            self._limbs = add_limbs(self._limbs, other._limbs)
        elif len(known) < len(other._parts):
            raise ValueError(
                f"other shares {len(known)} of its {len(other._parts)} parts with this total, and "
                "a sum cannot be taken apart. Add the missing parts one by one."
            )

    def read_sums(self) -> NDArray[np.float64]:
        """Return the private sums as floats, each rounded once.

        Returns
        -------
        ndarray of shape (plan.n_sums,)
            Without noise.
        """
        return limbs_to_floats(self._limbs[:, 1:])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the total to a file that only its owner may read.

        Parameters
        ----------
        path : str or path-like
            The file, in JSON. It holds private numbers and says so.
        """
        state = {
            "format": _FORMAT,
            "warning": "PRIVATE: exact sums of private records, without noise. Do not publish.",
            "plan": self.plan.digest,
            "parts": self._parts,
            "high": self._limbs[0].tolist(),
            "low": self._limbs[1].tolist(),
        }
        write_file(path, json.dumps(state), mode=0o600)

    @classmethod
    def load(cls, path: str | Path, plan: SumPlan) -> SumTotal:
        """Read a total from a file.

        Parameters
        ----------
        path : str or path-like
            The file that ``save`` wrote.
        plan : SumPlan
            Its plan.

        Returns
        -------
        SumTotal
            The total.

        Raises
        ------
        ValueError
            If the file holds no total, or a total of another plan.
        """
        total = cls(plan)
        try:
            state = parse_json(read_file(path, MAX_MODEL_BYTES))
            limbs = np.array([state["high"], state["low"]], dtype=np.int64)
            parts = {str(name): str(content) for name, content in state["parts"].items()}
            digest, is_known = state["plan"], state["format"] == _FORMAT
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise ValueError(
                f"path={str(path)!r} holds no total of sums. Pass a file that save wrote."
            ) from None
        if not is_known or digest != plan.digest or limbs.shape != total._limbs.shape:
            raise ValueError(
                f"path={str(path)!r} is a total of another plan or version. Compute it again by "
                "this plan."
            )
        total._limbs, total._parts = limbs, parts
        return total


def _changed_part_error(name: str) -> ValueError:
    return ValueError(
        f"The part {name!r} was added before with other integers: its rows changed between two "
        "reads, or two parts share the name. Read from files or persisted data, and name each "
        "part once."
    )
