"""Privacy guarantees with event, relation, unit, kind and assumptions, and their whole curve."""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._config import leak
from .._output import displayable
from ._chained import chained_epsilon
from ._checks import (
    check_arithmetic,
    check_delta,
    check_relation,
    not_negative,
    positive,
    sequence,
    whole,
)
from ._event import Event, check_known, flatten
from ._proved import delta_of, epsilon_of, privacy_curve
from .events import ApproxDP, NonPrivate
from .noise_arithmetic import ARITHMETIC_IN_WORDS, UNSPECIFIED

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
    arithmetic : {"exact", "floating_point", "unspecified"}, default="unspecified"
        That of the noise, as each mechanism states it. Noise in floating point, and noise of
        unspecified arithmetic, is not hardened against reading the lowest bits of what is released.

    Notes
    -----
    **Edge cases.** A cost that was computed from private votes is withheld from ``repr``, HTML,
    JSON and pickle; the methods that return it as a number issue a ``PrivacyLeakWarning``.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
    >>> guarantee = PrivacyGuarantee(GaussianEvent(4.2246789), at_delta=1e-6, relation="zero_out")
    >>> guarantee
    (1.00, 1e-06)-DP, zero-out, unspecified noise, proved
    >>> round(float(guarantee.tpr_bound(0.01)), 3)
    0.018
    >>> PrivacyGuarantee(
    ...     GaussianEvent(4.2246789), at_delta=1e-6, unit="patient_id", arithmetic="exact"
    ... )
    (1.00, 1e-06)-DP per patient_id, add-remove, exact noise, proved
    """

    event: Event
    at_delta: float | None = None
    relation: str = "add_remove"
    kind: str = "proved"
    assumptions: tuple[str, ...] = ()
    unit: str = "record"
    arithmetic: str = UNSPECIFIED

    def __post_init__(self) -> None:
        if not isinstance(self.event, Event):
            raise TypeError(f"event={self.event!r} must be an Event, such as GaussianEvent(1.0).")
        if self.at_delta is not None:
            check_delta(self.at_delta)
        check_relation(self.relation)
        check_known(self.event, self.relation)
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r} must be one of {KINDS}.")
        if not isinstance(self.unit, str) or not self.unit:
            raise ValueError(f"unit={self.unit!r} must be 'record' or the name of a column.")
        check_arithmetic(self.arithmetic)
        object.__setattr__(self, "assumptions", sequence("assumptions", self.assumptions))

    @property
    def noise_in_words(self) -> str:
        """What the arithmetic of the noise covers, in one line."""
        return ARITHMETIC_IN_WORDS[self.arithmetic]

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
        not_negative("epsilon", epsilon)
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
                "skprivacy.ensemble.sanitised_cost, or use the data-independent event."
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

    def group(self, k: int, unit: str | None = None) -> PrivacyGuarantee:
        """Return the guarantee for a group of ``k`` units, at the same ``at_delta``.

        The units are records, or what ``unit`` of this guarantee names: k people, who may have
        several records each. The group is there or not, or all of it is replaced, according to the
        relation.

        Parameters
        ----------
        k : int
            The most units that a group has. **It must be public**: a number that was read off
            private data is not.
        unit : str, default=None
            What such a group is, such as ``"patient"`` if no patient has more than k records: then
            the guarantee is one for patients, on that assumption, and may be charged together with
            others of that unit.

        Returns
        -------
        PrivacyGuarantee
            Never for fewer units: a group of fewer than k is covered too.

        Notes
        -----
        **Guarantees.** Of noise that is added once, with its sensitivity times k (the triangle
        inequality). Of steps of Poisson-sampled Gaussian noise, by the mixture of the Gaussians of
        all numbers of records that may be in the sample (:class:`SampledGroup` has the proof). Both
        are exact, and stay whole events, which compose tightly. Compositions are grouped part by
        part: each holds between any two data sets, given all earlier answers. Where some part has
        no such event, the privacy curve of the whole takes k steps, each between neighbours
        (Dong, Roth and Su 2022, theorem 2.14), which is what holds for everything that has the same
        curve. Without delta, that is k epsilon. Infinity if nothing is proved at ``at_delta``.

        Examples
        --------
        >>> from skprivacy.accounting import (
        ...     GaussianEvent, PoissonSampled, PrivacyGuarantee, Repeated)
        >>> visit = PrivacyGuarantee(Repeated(PoissonSampled(0.01, GaussianEvent(2.0)), 1000), 1e-5)
        >>> visit, visit.group(3, unit="patient")
        ((0.63, 1e-05)-DP, add-remove, unspecified noise, proved, \
(2.10, 1e-05)-DP per patient, add-remove, unspecified noise, proved \
assuming no patient has more than 3 records)
        """
        whole("k", k)
        positive("k", k)
        self._refuse_private()
        changes = {"unit": _grouped(self.unit, k)} if unit is None else self._as_unit(unit, k)
        if k == 1:
            return replace(self, **changes)
        event = self.event.grouped(k)
        return replace(self, event=self._steps(k) if event is None else event, **changes)

    def _as_unit(self, unit: str, k: int) -> dict[str, Any]:
        if not isinstance(unit, str) or unit in ("", "record", self.unit):
            raise ValueError(
                f"unit={unit!r} must be the name of what has several of this guarantee's units, "
                f"which are {_several(self.unit)}: such as 'patient'."
            )
        bound = f"no {unit} has more than {k} {_several(self.unit, k)}"
        return {"unit": unit, "assumptions": (*self.assumptions, bound)}

    def as_replace_one(self) -> PrivacyGuarantee:
        """Return the implied replace-one guarantee: at most (2 epsilon, (1 + e^epsilon) delta).

        Replacing a record, or another unit, means removing one and adding another: two steps along
        the privacy curve.

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
        self._refuse_private()
        return replace(self, event=self._steps(2), relation="replace_one")

    def _refuse_private(self) -> None:
        if self.event.data_dependent:
            raise ValueError(
                "This epsilon depends on the private data and is withheld: a guarantee derived "
                "from it would publish it. Use the data-independent event instead."
            )

    def _steps(self, k: int) -> Event:
        """Return what holds between data sets that are ``k`` neighbours apart, at ``at_delta``."""
        delta = self.at_delta or 0.0
        if delta == 0:
            epsilon = k * self.epsilon(0.0)
        else:
            epsilon = chained_epsilon(self.event, k, delta, self.relation)
        return ApproxDP(epsilon, delta) if math.isfinite(epsilon) else NonPrivate()

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
            "arithmetic": self.arithmetic,
        }

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> PrivacyGuarantee:
        """Rebuild the guarantee that :meth:`to_dict` described.

        The unit defaults to a record, and the arithmetic of the noise to "unspecified".

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
        words = (self.relation, f"{self.arithmetic} noise", self.kind)
        stated = ", ".join(word.replace("_", "-") for word in words)
        given = f" assuming {'; '.join(self.assumptions)}" if self.assumptions else ""
        return displayable(f"{claim}, {stated}{given}")

    def _repr_html_(self) -> str:
        private = self.event.data_dependent
        rows = [
            ("unit", self.unit),
            ("relation", self.relation),
            ("noise", self.noise_in_words),
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


def _several(unit: str, k: int = 2) -> str:
    if unit == "record":
        return "records" if k > 1 else "record"
    return f"values of {unit}" if k > 1 else f"value of {unit}"


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
