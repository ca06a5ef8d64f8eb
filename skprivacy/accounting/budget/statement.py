"""Statement of a privacy budget: its charges as a sum, a table, a plot and a file.

:class:`Statement` is the half of a budget that only reads. It refers to a ledger and a scope, which
all copies of a budget share. All charges of a ledger have one relation and one unit.
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
from ..._extras import name_missing_extra
from ..._files import displayable, parse_json, write_file
from ...exceptions import PrivacyWarning
from ..event import RELATIONS, Event, check_delta
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
from .ledger import Ledger, LedgerError, Log, Record
from .stores import ledger_at

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FORMAT = 1  # version of the ledger's lines, stored in the first line
_TERMS = ("epsilon", "delta", "relation", "unit", "filter", "counter")
_Self = TypeVar("_Self", bound="Statement")
_SHORTEST_SPAN = timedelta(seconds=10)  # of a plot: an empty one would be drawn as years
SHORTEST_DIGEST = 16  # hexadecimal digits: a forged line takes about 2**64 trials


class Statement:
    """Read-only part of a budget: sum, table, plot, verification and export of its charges.

    It has no state but a ledger and a scope in it, so a copy is the same budget.

    **Guarantees.** An unpickled budget opens its ledger only at first use, so a model that was
    trained with a budget can be loaded without the ledger. It never creates a ledger.
    """

    _ledger: Ledger
    _scope: str
    _parent: Statement | None = None  # keeps the temporary ledger of a scope's budget alive

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
        budget = cls.__new__(cls)
        budget._attach(ledger_at(path), scope_of(scope))
        budget._ledger.forget()
        check_partitions(budget._scope, budget.relation)
        return budget

    def _attach(self, ledger: Ledger, scope: str) -> None:
        self._ledger, self._scope = ledger, scope

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self._ledger.address, "scope": self._scope, "seen": self._ledger.seen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._attach(ledger_at(state["address"], state["seen"]), scope_of(state["scope"]))

    @cached_property
    def _terms(self) -> Terms:
        first = self._ledger.read_log().first  # it never changes
        try:
            terms = parse_json(first)
            if terms["format"] > FORMAT:
                raise LedgerError(
                    f"The ledger {self.path} was written by a later version of skprivacy (format "
                    f"{terms['format']}; this version knows {FORMAT}). Update skprivacy."
                )
            known = {name: terms[name] for name in _TERMS}
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
        return self._terms_with_defaults(self._ledger.read_log())

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
        """Digest of the last line. Store it elsewhere, for :meth:`.PrivacyBudget.verify`."""
        return self._ledger.read_log().tail.digest

    @property
    def relation(self) -> str | None:
        """Neighbouring relation of all charges; ``None`` until the first charge fixes it."""
        return self._fixed_relation_and_unit(self._ledger.read_log())[0]

    @property
    def unit(self) -> str | None:
        """Unit of privacy of all charges; ``None`` until the first charge fixes it."""
        return self._fixed_relation_and_unit(self._ledger.read_log())[1]

    @property
    def cap(self) -> tuple[float, float] | None:
        """Epsilon and delta of this scope's cap; ``None`` if only enclosing scopes have one."""
        return self._cap_in(self._ledger.read_log())

    def _cap_in(self, log: Log) -> tuple[float, float] | None:
        body = log.scopes().get(self._scope)
        terms: dict[str, Any] = parse_json(body) if body else {}
        return (terms["epsilon"], terms["delta"]) if terms.get("epsilon") else None

    def __repr__(self) -> str:
        try:
            return displayable(self._summary())
        except LedgerError:  # a model loaded without its ledger must still have a repr
            where = "" if self._scope == "/" else f", for {self._scope}"
            return displayable(f"PrivacyBudget at {self.path}{where}: its ledger cannot be read")

    def _summary(self) -> str:
        log = self._ledger.read_log()  # once: scikit-learn asks for many representations
        cap = self._cap_in(log)
        n = sum(self._charges_in(log).values())
        where = "" if self._scope == "/" else f" for {self._scope}"
        shown = "no cap in this scope" if cap is None else f"epsilon={cap[0]:g}, delta={cap[1]:g}"
        plural = "" if n == 1 else "s"
        unit = self._fixed_relation_and_unit(log)[1]
        per = "" if unit in (None, "record") else f" per {unit}"
        spent = self._spent_in(log)
        return f"PrivacyBudget({shown}){per}{where}: {spent:.3g} spent by {n} charge{plural}"

    def _charges_in(self, log: Log) -> Counter[Event]:
        return charges_along_path(log, self._scope, self._scope)

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
        return self._spent_in(self._ledger.read_log(), delta)

    def _spent_in(self, log: Log, delta: float | None = None) -> float:
        if delta is None:
            cap = self._cap_in(log)
            delta = self._terms["delta"] if cap is None else cap[1]
        relation = self._terms_with_defaults(log)["relation"]
        return spent_epsilon(self._charges_in(log), check_delta(delta), relation)

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
            compose_counts(self._charges_in(self._ledger.read_log())),
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
            Columns ``charge``, ``when`` (UTC), ``scope``, ``source``, ``event``, ``unit``,
            ``status`` (``reserved``, ``commit`` or ``fail``) and ``cost`` (epsilon of this charge
            alone).
        """
        import pandas as pd

        records, terms = self._ledger.records(), self._current_terms
        status = {r.ref: r.kind for r in records if r.ref is not None}
        rows = []
        for r in records:
            if r.kind != "reserve" or not r.scope.startswith(self._scope):
                continue
            event = parse_event(r.body)
            row = (r.seq, pd.Timestamp(r.at, unit="s", tz="UTC"), r.scope, r.source, event)
            cost = spent_epsilon(Counter({event: 1}), terms["delta"], terms["relation"])
            rows.append((*row, terms["unit"], status.get(r.seq, "reserved"), cost))
        columns = ["charge", "when", "scope", "source", "event", "unit", "status", "cost"]
        entries: pd.DataFrame = pd.DataFrame(rows, columns=columns)
        return entries

    @property
    def witness(self) -> str | None:
        """Means of noticing an older copy of the ledger: ``"counter"``, ``"digest"`` or None."""
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
            _check_digest(digest)
        records = self._ledger.records()
        self._ledger.check_guards_and_counter()
        if digest is not None:
            if not any(record.digest.startswith(digest) for record in records):
                raise LedgerError(
                    f"The ledger {self.path} does not hold a line with digest={digest!r}: it was "
                    "restored from an older copy, its last lines were cut off, or it is another "
                    "ledger. Restore the latest copy."
                )
            self._ledger.is_witnessed = True
        for record in records:
            if not is_scope(record.scope):
                raise LedgerError(
                    f"Line {record.seq} of the ledger {self.path} names the scope "
                    f"{record.scope!r}, which no cap covers. Release nothing more from it, and "
                    "find out how that line was written."
                )
        log = self._ledger.read_log()
        _check_terms(records, self._terms, log.settled())
        check_caps(log, self._terms_with_defaults(log))
        if self.witness is None:
            warn_caller(
                f"{self.rollback_notice} Pass a digest that was stored elsewhere to verify() (in "
                "a shell by --expect), or create the budget with a counter.",
                PrivacyWarning,
            )
        return records[-1].digest

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
        with name_missing_extra():
            import matplotlib.pyplot as plt

        dates: Any = import_module("matplotlib.dates")
        cap, terms, entries = self.cap, self._current_terms, self.entries()
        delta = terms["delta"] if cap is None else cap[1]
        charges = [(s, e, 1) for s, e in zip(entries["scope"], entries["event"], strict=True)]
        ends = sorted({*range(len(charges), 0, -max(1, len(charges) // 100))})
        times = [datetime.fromtimestamp(self._ledger.records()[0].at, timezone.utc)]
        times += [entries["when"].iloc[end - 1] for end in ends]
        sums = [sum_charges(charges[:end], self._scope) for end in ends]
        values = [0.0, *(spent_epsilon(each, delta, terms["relation"]) for each in sums)]
        ax = plt.subplots()[1] if ax is None else ax
        line: Any = ax  # matplotlib accepts datetimes, its type hints do not
        line.step(times, values, where="post", marker="o", label="spent")
        if cap is not None:
            ax.axhline(cap[0], linestyle="--", color="black", label="cap")
        ax.set(xlabel="time (UTC)", ylabel=f"epsilon at delta = {delta:g}", ylim=(0, None))
        span = max(times[-1] - times[0], _SHORTEST_SPAN)
        line.set_xlim(times[0] - 0.05 * span, times[0] + 1.05 * span)
        ax.xaxis.set_major_locator(locator := dates.AutoDateLocator())
        ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
        ax.legend()
        return ax


def _check_digest(digest: Any) -> None:
    """Raise an error unless ``digest`` is a digest, or a long enough prefix of one."""
    if not isinstance(digest, str):
        raise TypeError(f"digest={digest!r} must be the digest of a receipt or of verify().")
    if len(digest) < SHORTEST_DIGEST or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(
            f"digest={digest!r} must have at least {SHORTEST_DIGEST} hexadecimal digits. Copy it "
            "from a receipt, from verify() or from the output of a command."
        )


def _check_terms(records: list[Record], terms: dict[str, Any], settled: tuple[Any, Any]) -> None:
    """Check that relation and unit are valid, and fixed once before the first charge."""
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
