"""Statement of a privacy budget: its charges as a sum, a table, a plot and a file.

:class:`Statement` is the half of a budget that only reads. Its :class:`Handle` refers to a ledger
and a scope, which all copies of a budget share. All charges of a ledger have one relation and one
unit.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta, timezone
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..._config import warn_caller
from ..._output import displayable, write_file
from ..._untrusted_files import parse_json
from ..._validation import storable
from ...exceptions import PrivacyWarning
from ..event import check_delta
from ..events import RELATIONS, Event
from ..guarantee import PrivacyGuarantee
from .admission import (
    Terms,
    charges_along_path,
    check_caps,
    check_partitions,
    is_scope,
    parse_event,
    scope_of,
    sum_charges,
)
from .filters import FILTERS, compose_counts, spent_epsilon
from .ledger import Ledger, LedgerError, LedgerVersion, Log, Record
from .stores import ledger_at

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "FORMAT",
    "SHORTEST_DIGEST",
    "Handle",
    "Statement",
    "check_digest",
    "check_same_relation",
    "check_same_unit",
    "check_source",
    "check_terms",
    "check_unit",
    "draw_spending",
    "spending_over_time",
    "to_utc",
]

FORMAT = 1  # version of the ledger's lines, stored in the first line; 1 if missing
_TERMS = ("epsilon", "delta", "relation", "filter")
_Self = TypeVar("_Self", bound="Handle")
_SHORTEST = timedelta(seconds=10)
SHORTEST_DIGEST = 16  # hexadecimal digits: a forged line takes about 2**64 trials


class Handle:
    """A ledger and a scope in it. A handle has no other state, so a copy is the same budget.

    **Guarantees.** An unpickled handle opens its ledger only at first use, so a model that was
    trained with a budget can be loaded without the ledger. It never creates a ledger.
    """

    _ledger: Ledger
    _scope: str
    _parent: Handle | None = None  # keeps the temporary ledger of a scope's budget alive

    @classmethod
    def open(cls: type[_Self], path: str | Path, scope: str = "/") -> _Self:
        """Open the budget whose ledger is at ``path``, or one of its scopes.

        Parameters
        ----------
        path : str or Path
            The ledger file, or ``postgresql://user@host/database#name``.
        scope : str, default="/"
            Names of scopes, separated by ``/``; the name of a partition begins with ``=``.
            ``adult``, ``/adult`` and ``/adult/`` are the same. Every cap on the path applies.

        Raises
        ------
        LedgerError
            If the ledger does not exist, cannot be read, or has an altered line.
        ValueError
            If ``scope`` is malformed, or lies in a partition under ``replace_one``.
        """
        budget = cls._at(path, scope)
        budget._ledger.forget()
        check_partitions(budget._scope, budget.relation)
        return budget

    @classmethod
    def _at(
        cls: type[_Self], path: str | Path, scope: str, seen: LedgerVersion | None = None
    ) -> _Self:
        """Return a handle without opening its ledger, for unpickling."""
        budget = cls.__new__(cls)
        budget._attach(ledger_at(path, seen), scope_of(scope))
        return budget

    def _attach(self, ledger: Ledger, scope: str) -> None:
        self._ledger, self._scope = ledger, scope

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._at, (self._ledger.address, self._scope, self._ledger.seen)

    # For formats such as skops that call no function named in a file.
    def __getstate__(self) -> dict[str, Any]:
        return {"address": self._ledger.address, "scope": self._scope, "seen": self._ledger.seen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._attach(ledger_at(state["address"], state["seen"]), scope_of(state["scope"]))

    @cached_property
    def _terms(self) -> Terms:
        first = self._ledger.read().first  # it never changes
        try:
            terms = parse_json(first)
            if terms.get("format", FORMAT) > FORMAT:
                raise LedgerError(
                    f"The ledger {self.path} was written by a later version of skprivacy (format "
                    f"{terms['format']}; this version knows {FORMAT}). Update skprivacy."
                )
            # Ledgers without a unit are older than units: all their charges are for records.
            known = {k: terms[k] for k in _TERMS} | {"unit": terms.get("unit", "record")}
            known["counter"] = terms.get("counter")
        except (ValueError, AttributeError, KeyError, TypeError):
            raise LedgerError(
                f"{self.path} is not the ledger of a privacy budget. Check the path."
            ) from None
        if known["filter"] not in FILTERS:
            raise LedgerError(
                f"The ledger {self.path} has filter={known['filter']!r}, which this version of "
                f"skprivacy does not know; it knows {sorted(FILTERS)}. Update skprivacy."
            )
        return known

    def _terms_with_defaults(self, log: Log) -> Terms:
        """Return the current terms, with defaults for those that no charge has fixed yet."""
        relation, unit = self._fixed_relation_and_unit(log)
        return self._terms | {"relation": relation or "add_remove", "unit": unit or "record"}

    def _fixed_relation_and_unit(self, log: Log) -> tuple[str | None, str | None]:
        """Return relation and unit; ``None`` for those that no charge has fixed yet."""
        relation, unit = log.settled()
        return self._terms["relation"] or relation, self._terms["unit"] or unit

    @property
    def _current_terms(self) -> Terms:
        return self._terms_with_defaults(self._ledger.read())

    @property
    def path(self) -> str:
        """The ledger file, or its address."""
        return self._ledger.address

    @property
    def counter(self) -> str | None:
        """Address of the counter outside the ledger; ``None`` without one."""
        address: str | None = self._terms["counter"]
        return address

    @property
    def digest(self) -> str:
        """Digest of the ledger's last line. Store it elsewhere, for :meth:`Statement.verify`."""
        return self._ledger.read().tail.digest

    @property
    def relation(self) -> str | None:
        """Neighbouring relation of all charges; ``None`` until the first charge fixes it."""
        return self._fixed_relation_and_unit(self._ledger.read())[0]

    @property
    def unit(self) -> str | None:
        """Unit of privacy of all charges; ``None`` until the first charge fixes it."""
        return self._fixed_relation_and_unit(self._ledger.read())[1]

    @property
    def cap(self) -> tuple[float, float] | None:
        """Epsilon and delta of this scope's cap; ``None`` if only enclosing scopes have one."""
        body = self._ledger.read().scopes().get(self._scope)
        terms: dict[str, Any] = parse_json(body) if body else {}
        return (terms["epsilon"], terms["delta"]) if terms.get("epsilon") else None


class Statement(Handle):
    """Read-only part of a budget: sum, table, plot, verification and export of its charges."""

    def __repr__(self) -> str:
        try:
            return displayable(self._summary())
        except LedgerError:  # a model loaded without its ledger must still have a repr
            where = "" if self._scope == "/" else f", for {self._scope}"
            return displayable(f"PrivacyBudget at {self.path}{where}: its ledger cannot be read")

    def _summary(self) -> str:
        cap, entries = self.cap, self._charges()
        n = sum(entries.values())
        where = "" if self._scope == "/" else f" for {self._scope}"
        shown = "no cap in this scope" if cap is None else f"epsilon={cap[0]:g}, delta={cap[1]:g}"
        plural = "" if n == 1 else "s"
        unit = self.unit
        per = "" if unit in (None, "record") else f" per {unit}"
        return f"PrivacyBudget({shown}){per}{where}: {self.spent():.3g} spent by {n} charge{plural}"

    def _charges(self) -> Counter[Event]:
        return charges_along_path(self._ledger.read(), self._scope, self._scope)

    def spent(self, delta: float | None = None) -> float:
        """Return epsilon of all charges to this scope at ``delta``, by the tightest accountant.

        The proof assumes that the events were fixed beforehand; the filter enforces the cap.

        Parameters
        ----------
        delta : float, default=None
            In [0, 1). ``None``: the delta of this scope's cap, or of the whole budget.

        Returns
        -------
        float
            In nats; infinity if none is proved at this delta.
        """
        if delta is None:
            delta = self._terms["delta"] if self.cap is None else self.cap[1]
        return spent_epsilon(self._charges(), check_delta(delta), self._current_terms["relation"])

    def guarantee(self) -> PrivacyGuarantee:
        """Return the guarantee of all charges to this scope together.

        Returns
        -------
        PrivacyGuarantee
            Stated at the budget's delta, for its relation and unit. If a rollback of the ledger
            cannot be noticed, an assumption says so.
        """
        terms = self._current_terms
        assumptions = ["events settled before any answer was seen"]
        if self.witness is None:
            assumptions.append("the ledger was not restored from an older copy")
        return PrivacyGuarantee(
            compose_counts(self._charges()),
            terms["delta"] or None,
            terms["relation"],
            assumptions=tuple(assumptions),
            unit=terms["unit"],
        )

    def entries(self) -> pd.DataFrame:
        """Tabulate the charges of this scope.

        Returns
        -------
        DataFrame
            Columns ``charge``, ``when`` (UTC), ``scope``, ``source``, ``event``, ``unit``, ``status``
            (``reserved``, ``commit`` or ``fail``) and ``cost`` (epsilon of this charge alone).
        """
        return charge_table(self._ledger.records(), self._scope, self._current_terms)

    @property
    def witness(self) -> str | None:
        """What notices an older copy of the ledger: ``"counter"``, ``"digest"`` or ``None``."""
        if self.counter is not None:
            return "counter"
        return "digest" if self._ledger.is_witnessed else None

    @property
    def rollback_notice(self) -> str:
        """Sentence on whether a ledger restored from an older copy is noticed."""
        witness = self.witness
        if witness == "counter":
            return f"A rollback of the ledger is noticed by its counter {self.counter}."
        if witness == "digest":
            return "A rollback of the ledger is noticed by the digest that this budget knows."
        return (
            "A rollback of the ledger to an older copy cannot be noticed: it has no counter, and "
            "no digest was compared."
        )

    def verify(self, digest: str | None = None) -> str:
        """Check every line of the ledger and every cap, and return the last digest.

        Without ``digest`` and without a counter, a ledger restored from an older copy before this
        budget was opened cannot be noticed; a ``PrivacyWarning`` says so.

        Parameters
        ----------
        digest : str, default=None
            The digest of a receipt or of an earlier call, or at least its first 16 characters,
            stored elsewhere. The ledger must hold that line.

        Returns
        -------
        str
            The digest of the last line.

        Raises
        ------
        LedgerError
            If a line was altered or lost, names no valid scope, or mixes relations or units. Also
            if the charges exceed a cap, the triggers that forbid changes were changed, the ledger
            is behind its counter, or no line has the digest ``digest``.
        """
        if digest is not None:
            check_digest(digest)
        records = self._ledger.records()
        self._ledger.check_guards()
        self._ledger.check_counter()
        if digest is not None:
            self._check_holds(records, digest)
        for record in records:
            if not is_scope(record.scope):
                raise LedgerError(
                    f"Line {record.seq} of the ledger {self.path} names the scope "
                    f"{record.scope!r}, which no cap covers. Release nothing more from it, and "
                    "find out how that line was written."
                )
        log = self._ledger.read()
        check_terms(records, self._terms, log.settled())
        check_caps(log, self._terms_with_defaults(log))
        if self.witness is None:
            warn_caller(
                f"{self.rollback_notice} Pass a digest that was stored elsewhere to verify() (in "
                "a shell by --expect), or create the budget with a counter.",
                PrivacyWarning,
            )
        return records[-1].digest

    def _check_holds(self, records: list[Record], digest: str) -> None:
        """Raise LedgerError unless one of the lines has a digest that begins with ``digest``."""
        if not any(record.digest.startswith(digest) for record in records):
            raise LedgerError(
                f"The ledger {self.path} does not hold a line with digest={digest!r}: it was "
                "restored from an older copy, its last lines were cut off, or it is another "
                "ledger. Restore the latest copy."
            )
        self._ledger.is_witnessed = True

    def export(self, path: str | Path) -> None:
        """Write the checked ledger as JSON lines, for independent verification.

        Parameters
        ----------
        path : str or Path
            The file to write; a file there is overwritten unless it is a ledger.

        Raises
        ------
        ValueError
            If ``path`` is a ledger, which is never overwritten.
        """
        lines = [json.dumps(record._asdict()) for record in self._ledger.records()]
        write_file(path, "\n".join(lines) + "\n")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the epsilon spent since the ledger was created, with the cap.

        Parameters
        ----------
        ax : Axes, default=None
            Where to draw. ``None``: a new figure.

        Returns
        -------
        Axes
            Matplotlib axes of the plot.
        """
        cap, terms, first = self.cap, self._current_terms, self._ledger.records()[0]
        delta = terms["delta"] if cap is None else cap[1]
        times, values = spending_over_time(self.entries(), self._scope, delta, terms["relation"])
        return draw_spending([to_utc(first.at), *times], [0.0, *values], cap, delta, ax)


def spending_over_time(
    entries: pd.DataFrame, scope: str, delta: float, relation: str
) -> tuple[list[datetime], list[float]]:
    """Return up to about a hundred times, and the epsilon spent by each time."""
    charges = [(s, e, 1) for s, e in zip(entries["scope"], entries["event"], strict=True)]
    ends = sorted({*range(len(charges), 0, -max(1, len(charges) // 100))})
    values = [spent_epsilon(sum_charges(charges[:end], scope), delta, relation) for end in ends]
    return [entries["when"].iloc[end - 1] for end in ends], values


def draw_spending(
    times: list[datetime],
    values: list[float],
    cap: tuple[float, float] | None,
    delta: float,
    ax: Axes | None = None,
) -> Axes:
    """Draw the spent epsilon over time and return the axes."""
    import matplotlib.pyplot as plt

    dates: Any = import_module("matplotlib.dates")
    ax = plt.subplots()[1] if ax is None else ax
    line: Any = ax  # matplotlib accepts datetimes, its type hints do not
    line.step(times, values, where="post", marker="o", label="spent")
    if cap is not None:
        ax.axhline(cap[0], linestyle="--", color="black", label="cap")
    ax.set(xlabel="time (UTC)", ylabel=f"epsilon at delta = {delta:g}", ylim=(0, None))
    span = max(times[-1] - times[0], _SHORTEST)  # an empty span would be drawn as years
    line.set_xlim(times[0] - 0.05 * span, times[0] + 1.05 * span)
    ax.xaxis.set_major_locator(locator := dates.AutoDateLocator())
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    ax.legend()
    return ax


def to_utc(at: float) -> datetime:
    """Convert seconds since 1970 to a time in UTC."""
    return datetime.fromtimestamp(at, timezone.utc)


def charge_table(records: list[Record], scope: str, terms: Terms) -> pd.DataFrame:
    """Tabulate the charges in and below ``scope``."""
    import pandas as pd

    status = {r.ref: r.kind for r in records if r.ref is not None}
    rows = []
    for r in records:
        if r.kind != "reserve" or not r.scope.startswith(scope):
            continue
        event = parse_event(r.body)
        rows.append(
            {
                "charge": r.seq,
                "when": pd.Timestamp(r.at, unit="s", tz="UTC"),
                "scope": r.scope,
                "source": r.source,
                "event": event,
                "unit": terms["unit"],
                "status": status.get(r.seq, "reserved"),
                "cost": spent_epsilon(Counter({event: 1}), terms["delta"], terms["relation"]),
            }
        )
    columns = ["charge", "when", "scope", "source", "event", "unit", "status", "cost"]
    entries: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return entries


def check_digest(digest: Any) -> None:
    """Raise an error unless ``digest`` is a digest, or a long enough prefix of one."""
    if not isinstance(digest, str):
        raise TypeError(f"digest={digest!r} must be the digest of a receipt or of verify().")
    if len(digest) < SHORTEST_DIGEST or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(
            f"digest={digest!r} must have at least {SHORTEST_DIGEST} hexadecimal digits. Copy it "
            "from a receipt, from verify() or from the output of a command."
        )


def check_unit(unit: Any) -> str:
    """Return ``unit`` if it is valid."""
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"unit={unit!r} must be 'record' or the name of a column.")
    storable("unit", unit)
    return unit


def check_source(source: Any) -> str:
    """Convert the purpose of a charge to text that can be stored."""
    text = str(source)
    storable("source", text)
    return text


def check_same_relation(relation: str | None, settled: str | None) -> str:
    """Return the relation of a charge; raise ValueError if the ledger has another."""
    known = settled or relation or "add_remove"
    if relation in (None, known):
        return known
    either = "label" in (relation, known)  # no parameter converts to or from "label"
    restated = (
        ""
        if either
        else ", or set the estimator's n_records or relation (in a shell by --set) so that it "
        f"states {known!r}"
    )
    raise ValueError(
        f"The event is stated for relation={relation!r} and the budget for {known!r}. Relations "
        f"are never mixed. Create a budget with relation={relation!r}{restated}."
    )


def check_same_unit(unit: str, settled: str) -> None:
    """Raise ValueError if the ledger has another unit."""
    if unit != settled:
        named = (
            f", or protect each {settled} with all of their records, by groups=pandas.Series(..., "
            f"name={settled!r}) of fit or by groups={settled!r} of private_summary"
        )
        if unit == "record":
            named += (
                f". If it is public that none has more than k records, "
                f"guarantee.group(k, unit={settled!r}) may be charged"
            )
        raise ValueError(
            f"The event is stated for unit={unit!r} and the budget for unit={settled!r}. Their "
            f"epsilons are never added up. Create a separate budget with unit={unit!r}"
            f"{'' if settled == 'record' else named}."
        )


def check_terms(records: list[Record], terms: dict[str, Any], settled: tuple[Any, Any]) -> None:
    """Check that relation and unit are valid, and fixed once before the first charge.

    The first line has ``terms``; a later line fixes relation and unit to ``settled``.
    """
    fixed = terms["relation"], terms["unit"]
    lines = [record.seq for record in records if record.kind == "relation"]
    charges = [record.seq for record in records if record.kind == "reserve"]
    late = None in fixed and charges and (not lines or lines[0] > charges[0])
    if late or len(lines) > (None in fixed):
        raise LedgerError(
            "The relation and unit of a ledger must be fixed once, by its first line or before the "
            f"first charge; they are in lines {lines}. Restore the ledger from a copy."
        )
    for name, first, later in zip(("relation", "unit"), fixed, settled, strict=True):
        if None not in (first, later) and first != later:
            raise LedgerError(
                f"A line of the ledger fixes {name}={later!r}, but its first line {first!r}. "
                "Restore the ledger from a copy."
            )
    relation, unit = (first or later for first, later in zip(fixed, settled, strict=True))
    known = unit is None or (isinstance(unit, str) and unit != "")
    if relation not in (None, *RELATIONS) or not known:
        raise LedgerError(
            f"The ledger has relation={relation!r} and unit={unit!r}; expected one of {RELATIONS} "
            "and a non-empty string. Restore the ledger from a copy."
        )
