"""Privacy guarantees with event, relation, unit, kind and assumptions, and their whole curve."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._config import leak
from .._output import displayable
from ._checks import check_delta, check_relation, sequence
from ._event import Event, check_known, flatten
from ._proved import delta_of, epsilon_of, privacy_curve
from .events import ApproxDP, NonPrivate

__all__ = ["KINDS", "PrivacyGuarantee", "check_delta", "delta_of", "epsilon_of"]

KINDS = ("proved", "random_dp", "estimate")


@dataclass(frozen=True)
class PrivacyGuarantee:
    """A privacy guarantee, with its unit and the conditions under which it holds.

    Parameters
    ----------
    event : Event
        What was released.
    at_delta : float, default=None
        The default delta of ``epsilon()``. ``None`` stands for 0: pure differential privacy.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation. ``zero_out``: the number of records is public, and a record is
        replaced by one that contributes nothing. ``label``: one record's label becomes another;
        its features are public, and so is that it is there.
    kind : {"proved", "random_dp", "estimate"}, default="proved"
        Only proved guarantees may be added up.
    assumptions : tuple of str, default=()
        What must be true, or public, for the guarantee to hold.
    unit : str, default="record"
        The unit whose presence is hidden: one record, or all records that share a value of the
        column named here, such as a patient's.

    Notes
    -----
    **Edge cases.** A cost that was computed from private votes is withheld from ``repr``, HTML,
    JSON and pickle; the methods that return it as a number issue a ``PrivacyLeakWarning``.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
    >>> guarantee = PrivacyGuarantee(GaussianEvent(4.2246789), at_delta=1e-6, relation="zero_out")
    >>> guarantee
    (1.00, 1e-06)-DP, zero-out, proved
    >>> round(float(guarantee.tpr_bound(0.01)), 3)
    0.018
    >>> PrivacyGuarantee(GaussianEvent(4.2246789), at_delta=1e-6, unit="patient_id")
    (1.00, 1e-06)-DP per patient_id, add-remove, proved
    """

    event: Event
    at_delta: float | None = None
    relation: str = "add_remove"
    kind: str = "proved"
    assumptions: tuple[str, ...] = ()
    unit: str = "record"

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise TypeError(f"event={self.event!r} must be an Event, such as GaussianEvent(1.0).")
        if self.at_delta is not None:
            check_delta(self.at_delta)
        check_relation(self.relation)
        check_known(self.event, self.relation)
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r} must be one of {KINDS}.")
        if not isinstance(self.unit, str) or not self.unit:
            raise ValueError(f"unit={self.unit!r} must be 'record' or the name of a column.")
        object.__setattr__(self, "assumptions", sequence("assumptions", self.assumptions))

    def epsilon(self, delta: float | None = None) -> float:
        """Return the smallest epsilon that is proved at ``delta`` (default: ``at_delta``).

        Parameters
        ----------
        delta : float, default=None
            In [0, 1). ``None``: ``at_delta``.

        Returns
        -------
        float
            In nats; infinity if none is proved.
        """
        self._warn_if_private()
        if delta is None:
            delta = self.at_delta or 0.0
        return epsilon_of(self.event, check_delta(delta), self.relation)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta that is proved at ``epsilon`` >= 0.

        Parameters
        ----------
        epsilon : float
            In nats, at least 0.

        Returns
        -------
        float
            In [0, 1].
        """
        self._warn_if_private()
        if not (isinstance(epsilon, (int, float, np.floating)) and epsilon >= 0):
            raise ValueError(f"epsilon={epsilon!r} must be a number >= 0.")
        return delta_of(self.event, float(epsilon), self.relation)

    def tpr_bound(self, fpr: ArrayLike) -> NDArray[np.float64]:
        """Return the highest true-positive rate of any membership attack at ``fpr``.

        Under ``relation="label"``, that of any attack that tells which of two labels a record had;
        nothing then bounds membership attacks.

        Parameters
        ----------
        fpr : array-like of float
            False-positive rates in [0, 1], of any shape.

        Returns
        -------
        ndarray of the same shape
            In [0, 1].

        Notes
        -----
        The minimum over epsilon of e^epsilon fpr + delta(epsilon), and of its mirror image,
        1 - e^-epsilon (1 - delta(epsilon) - fpr): every point of the privacy curve is a bound.
        The curve is the worse of both directions, so the bound does not depend on whether members
        are called positive. For sampled noise and large ``fpr`` it is therefore not attained.
        """
        self._warn_if_private()
        try:
            fpr = np.asarray(fpr, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"fpr={fpr!r} must be numbers in [0, 1].") from None
        if not ((fpr >= 0) & (fpr <= 1)).all():
            raise ValueError(f"fpr={fpr!r} must be in [0, 1].")
        if any(isinstance(part, NonPrivate) for part in flatten(self.event)):
            return np.ones(fpr.shape)
        epsilons, deltas = privacy_curve(self.event, self.relation)
        flat = fpr.reshape(-1, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            direct = np.where(flat > 0, np.exp(epsilons) * flat, 0.0) + deltas
        mirror = 1 - np.exp(-epsilons) * (1 - deltas - flat)
        bound: NDArray[np.float64] = np.minimum(direct, mirror).min(axis=1)
        bound = np.clip(bound, flat[:, 0], 1.0).reshape(fpr.shape)
        return bound

    def _warn_if_private(self) -> None:
        if self.event.data_dependent:
            leak(
                "This cost was computed from private data and is private itself. Publish it with "
                "skprivacy.mechanisms.sanitised_cost, or use the data-independent event."
            )

    def advantage_bound(self) -> float:
        """Return the largest membership advantage, TPR - FPR, of any attack: delta at epsilon 0.

        Under ``relation="label"``, of any attack that tells which of two labels a record had.

        Returns
        -------
        float
            In [0, 1].
        """
        return self.delta(0.0)

    def group(self, k: int) -> PrivacyGuarantee:
        """Return the guarantee for a group of ``k`` units, at the same ``at_delta``.

        The units are records, or what ``unit`` names: k people, who may have several records each.

        Parameters
        ----------
        k : int
            The size of the group, at least 1.

        Returns
        -------
        PrivacyGuarantee
            For the same relation.

        Notes
        -----
        (epsilon, delta) for one unit implies, for k of them,
        (k epsilon, delta (e^(k epsilon) - 1)/(e^epsilon - 1)); the best point of the privacy curve
        is used. Infinity if none reaches ``at_delta``.
        """
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ValueError(f"k={k!r} must be an integer >= 1.")
        steps = np.arange(k)
        return self._derived(
            lambda e: k * e,
            lambda e: np.exp(np.outer(e, steps)).sum(axis=1),
            relation=self.relation,
            unit=_grouped(self.unit, k),
        )

    def as_replace_one(self) -> PrivacyGuarantee:
        """Return the implied replace-one guarantee: (2 epsilon, (1 + e^epsilon) delta).

        Replacing a record, or another unit, means removing one and adding another: two steps.

        Returns
        -------
        PrivacyGuarantee
            With ``relation="replace_one"``.

        Raises
        ------
        ValueError
            If the relation is ``label``: it protects no features, hence implies nothing of records
            that are replaced.
        """
        if self.relation == "label":
            raise ValueError(
                "relation='label' protects labels alone and implies nothing of records that are "
                "replaced with their features. Fit an estimator that protects whole records."
            )
        if self.relation == "replace_one":
            return self
        return self._derived(
            lambda e: 2 * e,
            lambda e: 1 + np.exp(e),
            relation="replace_one",
        )

    def _derived(
        self,
        epsilon_to: Callable[[float], float],
        factor: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        **changes: Any,
    ) -> PrivacyGuarantee:
        if self.event.data_dependent:
            raise ValueError(
                "This epsilon depends on the private data and is withheld: a guarantee derived "
                "from it would publish it. Use the data-independent event instead."
            )
        delta = self.at_delta or 0.0
        if delta == 0:
            epsilon = self.epsilon(0.0)
        else:
            epsilons, deltas = privacy_curve(self.event, self.relation)
            with np.errstate(over="ignore", invalid="ignore"):
                reached = deltas * factor(epsilons) <= delta
            epsilon = float(epsilons[reached].min()) if reached.any() else math.inf
        event: Event = NonPrivate()
        if math.isfinite(epsilon):
            event = ApproxDP(float(epsilon_to(epsilon)), delta)
        return replace(self, event=event, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return a description of JSON types only.

        Returns
        -------
        dict
            For :meth:`from_dict`.
        """
        return {
            "event": self.event.to_dict(),
            "at_delta": self.at_delta,
            "relation": self.relation,
            "kind": self.kind,
            "assumptions": list(self.assumptions),
            "unit": self.unit,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> PrivacyGuarantee:
        """Rebuild the guarantee that :meth:`to_dict` described; the unit defaults to a record.

        Parameters
        ----------
        description : dict
            What :meth:`to_dict` returned.

        Returns
        -------
        PrivacyGuarantee
            Equal to the one described.
        """
        if not isinstance(description, dict):
            raise ValueError(
                f"This does not describe a guarantee: {description!r}. Pass what to_dict() "
                "returned."
            )
        values = dict(description)
        missing = {"event", "relation", "kind", "assumptions"} - set(values)
        if missing or not isinstance(values["assumptions"], list | tuple):
            raise ValueError(
                f"This does not describe a guarantee: the keys {sorted(missing)} are missing, "
                f"assumptions={values.get('assumptions')!r}. Nothing is assumed for missing keys; "
                "pass what to_dict() returned."
            )
        values["event"] = Event.from_dict(values["event"])
        values["assumptions"] = tuple(values["assumptions"])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"This does not describe a guarantee: {error}.") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivacyGuarantee.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        if self.event.data_dependent:
            return f"(withheld, {self.at_delta or 0:g})-DP: this epsilon is itself private"
        epsilon, delta = self.epsilon(), self.at_delta
        if math.isinf(epsilon):
            return "no guarantee (epsilon=inf)"
        shown = _rounded_up(epsilon)
        claim = f"({shown}, {_delta_rounded_up(delta)})-DP" if delta else f"{shown}-DP"
        if self.unit != "record":
            claim += f" per {self.unit}"
        relation, kind = (word.replace("_", "-") for word in (self.relation, self.kind))
        given = f" assuming {'; '.join(self.assumptions)}" if self.assumptions else ""
        return displayable(f"{claim}, {relation}, {kind}{given}")

    def _repr_html_(self) -> str:
        private = self.event.data_dependent
        rows = [
            ("unit", self.unit),
            ("relation", self.relation),
            ("kind", self.kind),
            ("assumptions", "; ".join(self.assumptions) or "none"),
            ("event", "withheld" if private else json.dumps(self.event.to_dict())),
        ]
        body = "".join(
            f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows
        )
        return f"<table><caption>{html.escape(repr(self))}</caption>{body}</table>"


def _grouped(unit: str, k: int) -> str:
    """Return the name of a group of ``k`` units."""
    if k == 1:
        return unit
    return f"group of {k} records" if unit == "record" else f"group of {k} values of {unit}"


def _rounded_up(epsilon: float) -> str:
    """Return epsilon rounded up, with two decimals, or more if it is small."""
    digits = max(2, 1 - math.floor(math.log10(epsilon))) if epsilon > 0 else 2
    return f"{math.ceil(epsilon * 10**digits - 1e-6) / 10**digits:.{digits}f}"


def _delta_rounded_up(delta: float) -> str:
    """Return delta rounded up to at most six digits, as sums of deltas may have more."""
    shown = f"{delta:g}"
    if float(shown) >= delta * (1 - 1e-12):
        return shown
    return f"{float(Context(prec=6, rounding=ROUND_UP).create_decimal_from_float(delta)):g}"
