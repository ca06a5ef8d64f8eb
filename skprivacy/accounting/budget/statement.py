"""Statement of a budget: its charges as a sum, a table, a plot and a file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ..._config import warn_caller
from ..._output import displayable, write_file
from ...exceptions import PrivacyWarning
from ..events import Event
from ..guarantee import PrivacyGuarantee, check_delta
from .admission import Terms, check_caps
from .handle import Handle
from .log import LedgerError, Record
from .plot import draw_spending, spending_over_time, to_utc
from .rules import compose_counts, spent_epsilon
from .scopes import charges_along_path, is_scope, parse_event
from .terms import check_digest, check_terms

__all__ = ["Statement"]

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


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
            Columns ``charge``, ``when`` (UTC), ``scope``, ``who``, ``event``, ``unit``, ``status``
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
                "who": r.who,
                "event": event,
                "unit": terms["unit"],
                "status": status.get(r.seq, "reserved"),
                "cost": spent_epsilon(Counter({event: 1}), terms["delta"], terms["relation"]),
            }
        )
    columns = ["charge", "when", "scope", "who", "event", "unit", "status", "cost"]
    entries: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return entries
