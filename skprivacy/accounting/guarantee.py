"""Privacy guarantees: the cost of a release with its relation, unit, kind and assumptions.

:class:`PrivacyGuarantee` also states the cost for groups, between data sets several neighbouring
steps apart, and the highest TPR and AUC of any membership attack.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Context
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._config import leak
from .._files import displayable
from .._validation import not_negative, positive, sequence, whole
from .accountants import delta_of, epsilon_of, privacy_curve
from .event import (
    ARITHMETICS,
    Event,
    check_arithmetic,
    check_delta,
    check_event,
    check_known,
    check_relation,
    flatten,
)
from .events import NonPrivateEvent
from .group_privacy import chain_steps, group_name, unit_name

KINDS = ("proved", "random_dp", "estimate")  # from the strongest to the weakest
# A proof about real numbers does not cover the lowest bits of floating point (Mironov 2012).
UNSPECIFIED = "unspecified"
ARITHMETIC_IN_WORDS = {
    "exact": "exact noise: hardened against reading the lowest bits of what is released",
    UNSPECIFIED: "noise of unspecified arithmetic: assume floating point, not hardened against "
    "reading the lowest bits of what is released",
    "floating_point": "noise in floating point: not hardened against reading the lowest bits of "
    "what is released",
}


@dataclass(frozen=True)
class PrivacyGuarantee:
    """Privacy guarantee of a release, with its unit and the conditions under which it holds.

    Parameters
    ----------
    event : Event
        The release.
    at_delta : float, default=None
        Default delta of :meth:`epsilon`. ``None`` stands for 0: pure differential privacy.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation. ``zero_out``: the number of records is public, and a record is
        replaced by one that contributes nothing. ``label``: the label of one record changes; its
        features and its presence are public.
    kind : {"proved", "random_dp", "estimate"}, default="proved"
        How the guarantee was obtained. Only proved guarantees may be added up.
    assumptions : tuple of str, default=()
        Conditions under which the guarantee holds.
    unit : str, default="record"
        The unit whose presence is hidden: one record, or all records with the same value in the
        column named here, such as a patient's number.
    arithmetic : {"exact", "floating_point", "unspecified"}, default="unspecified"
        Arithmetic of the noise, as each mechanism states it. Floating-point noise and noise of
        unspecified arithmetic are not hardened against attacks on the lowest bits of the output.

    Notes
    -----
    **Edge cases.** A cost computed from private votes is withheld from ``repr``, HTML, JSON and
    pickle. The methods that return it as a number issue a ``PrivacyLeakWarning``.

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
        check_event("event", self.event)
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
        """One line on whether the noise is hardened against attacks on its lowest bits."""
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

        Under ``relation="label"`` the rate bounds attacks that decide which of two labels a record
        had. It then bounds no membership attack.

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
        Every point (epsilon, delta) of the privacy curve is a bound (Dong, Roth and Su 2022). The
        result is the minimum over epsilon of e^epsilon fpr + delta and of its mirror image,
        1 - e^-epsilon (1 - delta - fpr). The curve is the worse of both directions, so the bound
        holds whether members or non-members are called positive. For sampled noise and large
        ``fpr`` it is therefore not attained.
        """
        self._warn_if_private()
        try:
            fpr = np.asarray(fpr, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"fpr={fpr!r} must be numbers in [0, 1].") from None
        if not ((fpr >= 0) & (fpr <= 1)).all():
            raise ValueError(f"fpr={fpr!r} must be in [0, 1].")
        if any(isinstance(part, NonPrivateEvent) for part in flatten(self.event)):
            return np.ones(fpr.shape)
        epsilons, deltas = privacy_curve(self.event, self.relation)
        flat = fpr.reshape(-1, 1)
        # Dong, Roth and Su 2022: the lines of every (epsilon, delta), in both directions
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
                "skprivacy.ensemble.sanitized_cost, or use the data-independent event."
            )

    def advantage_bound(self) -> float:
        """Return the largest membership advantage, TPR - FPR, of any attack: delta at epsilon 0.

        Under ``relation="label"`` it bounds attacks that decide which of two labels a record had.

        Returns
        -------
        float
            In [0, 1].
        """
        return self.delta(0.0)

    def group(self, k: int, unit: str | None = None) -> PrivacyGuarantee:
        """Return the guarantee for a group of ``k`` units, at the same ``at_delta``.

        The units are this guarantee's units: records, or for example people with several records
        each. According to the relation, the whole group is present or absent, or is replaced.

        Parameters
        ----------
        k : int
            Largest number of units in a group. **It must be public**: a number that was read off
            private data is not.
        unit : str, default=None
            Name of the group, such as ``"patient"`` if no patient has more than k records. The
            result is then a guarantee for patients on that assumption, and may be charged together
            with others of that unit.

        Returns
        -------
        PrivacyGuarantee
            It also covers groups of fewer than k units.

        Notes
        -----
        **Guarantees.** For noise that is added once, the sensitivity is multiplied by k (triangle
        inequality). For Poisson-sampled Gaussian steps, the bound is a mixture of Gaussians over
        the number of records in the sample; ``SampledGroupEvent`` has the proof. Both bounds
        are exact, and both are events that compose tightly. A composition is grouped part by part:
        each part's bound holds between any two data sets, given all earlier answers. If some part
        has no such event, the privacy curve of the whole is chained over k neighbouring steps
        (Dong, Roth and Su 2022, theorem 2.14), which holds for every mechanism with that curve. At
        delta 0 it is k epsilon. The result is infinite if nothing is proved at ``at_delta``.

        Examples
        --------
        >>> from skprivacy.accounting import (
        ...     GaussianEvent, PoissonSampledEvent, PrivacyGuarantee, RepeatedEvent)
        >>> training = RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(2.0)), 1000)
        >>> visit = PrivacyGuarantee(training, 1e-5)
        >>> visit, visit.group(3, unit="patient")
        ((0.63, 1e-05)-DP, add-remove, unspecified noise, proved, \
(2.10, 1e-05)-DP per patient, add-remove, unspecified noise, proved \
assuming no patient has more than 3 records)
        """
        whole("k", k)
        positive("k", k)
        self._refuse_private()
        changes = (
            {"unit": group_name(self.unit, k)} if unit is None else self._unit_changes(unit, k)
        )
        if k == 1:
            return replace(self, **changes)
        # The event for groups if it is known, else Dong, Roth and Su 2022, theorem 2.14
        event = self.event.grouped(k)
        if event is None:
            event = chain_steps(self.event, k, self.at_delta or 0.0, self.relation)
        return replace(self, event=event, **changes)

    def _unit_changes(self, unit: str, k: int) -> dict[str, Any]:
        if not isinstance(unit, str) or unit in ("", "record", self.unit):
            raise ValueError(
                f"unit={unit!r} must name a group of {unit_name(self.unit)}, the units of this "
                "guarantee. Pass a name such as 'patient'."
            )
        bound = f"no {unit} has more than {k} {unit_name(self.unit, k)}"
        return {"unit": unit, "assumptions": (*self.assumptions, bound)}

    def as_replace_one(self) -> PrivacyGuarantee:
        """Return the implied replace-one guarantee: at most (2 epsilon, (1 + e^epsilon) delta).

        To replace a unit is to remove it and add another: two neighbouring steps of the privacy
        curve.

        Returns
        -------
        PrivacyGuarantee
            With ``relation="replace_one"``.

        Raises
        ------
        ValueError
            If the relation is ``label``: it protects no features, so it implies nothing about
            replaced records.
        """
        if self.relation == "label":
            raise ValueError(
                "relation='label' protects only labels and implies nothing about replaced records. "
                "Fit an estimator that protects whole records."
            )
        if self.relation == "replace_one":
            return self
        self._refuse_private()
        event = chain_steps(self.event, 2, self.at_delta or 0.0, self.relation)
        return replace(self, event=event, relation="replace_one")

    def _refuse_private(self) -> None:
        if self.event.data_dependent:
            raise ValueError(
                "This epsilon depends on the private data and is withheld: a guarantee derived "
                "from it would publish it. Use the data-independent event instead."
            )

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
        """Rebuild a guarantee from the output of :meth:`to_dict`.

        The unit defaults to a record, and the arithmetic of the noise to "unspecified".

        Parameters
        ----------
        description : dict
            Output of :meth:`to_dict`.

        Returns
        -------
        PrivacyGuarantee
            Equal to the one described.
        """
        if not isinstance(description, dict):
            raise ValueError(
                f"description={description!r} does not describe a guarantee. Pass the output of "
                "to_dict()."
            )
        values = dict(description)
        missing = {"event", "relation", "kind", "assumptions"} - set(values)
        if missing or not isinstance(values["assumptions"], list | tuple):
            raise ValueError(
                f"The description of a guarantee lacks the keys {sorted(missing)}, or its "
                f"assumptions={values.get('assumptions')!r} are not a list. Pass the output of "
                "to_dict()."
            )
        values["event"] = Event.from_dict(values["event"])
        values["assumptions"] = tuple(values["assumptions"])
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"The description does not fit a guarantee: {error}.") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivacyGuarantee.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        if self.event.data_dependent:
            return f"(withheld, {self.at_delta or 0:g})-DP: this epsilon is itself private"
        epsilon, delta = self.epsilon(), self.at_delta
        if math.isinf(epsilon):
            return "no guarantee (epsilon=inf)"
        shown = _format_epsilon(epsilon)
        claim = f"({shown}, {_format_delta(delta)})-DP" if delta else f"{shown}-DP"
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


def auc_ceiling(guarantee: PrivacyGuarantee) -> float:
    """Return an upper bound on the AUC of any membership attack: an upper sum of ``tpr_bound``."""
    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
    return float(min(1.0, np.sum(np.diff(edges) * guarantee.tpr_bound(edges[1:]))))


def _format_epsilon(epsilon: float) -> str:
    """Format epsilon, rounded up, with two decimals, or more if it is small."""
    # The 1e-6 keeps the rounding error of a calibrated 1.00 from being shown as 1.01.
    digits = max(2, 1 - math.floor(math.log10(epsilon))) if epsilon > 0 else 2
    return f"{math.ceil(epsilon * 10**digits - 1e-6) / 10**digits:.{digits}f}"


def _format_delta(delta: float) -> str:
    """Format delta, rounded up to at most six digits."""
    shown = f"{delta:g}"
    if float(shown) >= delta * (1 - 1e-12):
        return shown
    return f"{float(Context(prec=6, rounding=ROUND_UP).create_decimal_from_float(delta)):g}"


def weakest_arithmetic(parts: Iterable[str]) -> str:
    """Return the arithmetic of several releases together.

    Parameters
    ----------
    parts : iterable of {"exact", "floating_point", "unspecified"}
        The arithmetic of each release.

    Returns
    -------
    str
        The weakest of "exact", "unspecified" and "floating_point"; "unspecified" for no releases.
    """
    stated = [check_arithmetic(part) for part in sequence("parts", parts)]
    return max(stated, key=ARITHMETICS.index, default=UNSPECIFIED)
