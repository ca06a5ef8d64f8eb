"""A privacy budget that copies, workers and crashes cannot forget."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ..exceptions import BudgetExceededError
from ._filters import FILTERS, admits, together
from ._scopes import along
from ._statement import draw, running, spent, table
from .events import Event, check_relation, positive
from .guarantee import PrivacyGuarantee, check_delta
from .ledger import Ledger, LedgerError, _Log, ledger_at

__all__ = ["PrivacyBudget", "charge"]

_MANY = 1 << 40
_NO_PARTITION = (
    "relation='replace_one' has no parallel composition: a replaced record may change its part. "
    "Use scope(), or a budget under 'add_remove' or 'zero_out'."
)


class PrivacyBudget:
    """A cap on what may be released about a data set, kept in a ledger on disk.

    Parameters
    ----------
    epsilon : float
        The cap, above 0.
    delta : float, default=0.0
        In [0, 1).
    path : str or Path, default=None
        The ledger file, or ``postgresql://user@host/database#name`` (needs ``psycopg``). It is made
        if it does not exist; if it does, its cap must be this one. ``None``: a temporary file,
        which lives as long as this object.
    relation : {"add_remove", "replace_one", "zero_out"}, default=None
        What all charges must be stated for. ``None``: the first charge settles it, for good.
        Relations are never mixed or converted.
    filter : {"renyi", "pld", "basic"}, default="renyi"
        How charges are composed; see Notes.
    n_records : int, default=None
        The public number of records. If given, ``delta`` must be below its inverse.

    Notes
    -----
    **Guarantees.** A charge is written to disk before the data is touched, and stays charged
    whatever happens then: success, failure or a killed process.

    **Filters.** ``"renyi"`` composes at four Renyi orders that are fixed by the cap and share its
    delta, which holds even if every next event, with its parameters, is chosen after seeing all
    answers so far (Feldman, Zrnic 2021, arXiv:2008.11193). Pure epsilons that add up to the cap,
    and a first charge that fits by itself, pass too. ``"pld"`` composes privacy loss distributions:
    the tightest, and proved only if *which events will happen* was settled beforehand, as in
    cross-validation over a fixed grid. ``"basic"`` adds epsilons and deltas up, and takes only
    events that have them.

    **Edge cases.** ``copy``, ``deepcopy``, ``sklearn.clone`` and pickle all hand on the *same*
    ledger. A pickled handle to a temporary ledger dies with the process that made it.

    Examples
    --------
    >>> from skprivacy.accounting import Laplace, PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=1.0)
    >>> with budget.charge(Laplace(2.5), who="a mean"):
    ...     pass  # release the mean
    >>> budget.remaining(Laplace(2.5))
    1
    >>> budget
    PrivacyBudget(epsilon=1, delta=0): 0.4 spent by 1 charge
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        path: str | Path | None = None,
        *,
        relation: str | None = None,
        filter: str = "renyi",
        n_records: int | None = None,
    ) -> None:
        positive("epsilon", epsilon)
        check_delta(delta, n_records)
        if relation is not None:
            check_relation(relation)
        if filter not in FILTERS:
            raise ValueError(f"filter={filter!r} must be one of {sorted(FILTERS)}.")
        terms: dict[str, Any] = {"epsilon": float(epsilon), "delta": float(delta)}
        terms |= {"relation": relation, "filter": filter}
        if path is None:
            folder = tempfile.mkdtemp(prefix="skprivacy-budget-")
            self._finalizer = weakref.finalize(self, _remove, folder, os.getpid())
            path = Path(folder) / "ledger"
        self._attach(ledger_at(path), "/")
        try:
            self._ledger.create(json.dumps(terms, sort_keys=True))
        except FileExistsError:
            if self._terms != (terms if relation is not None else terms | self._open_relation):
                raise ValueError(
                    f"The ledger {path} holds the budget {self._terms}, not {terms}. Open it with "
                    "PrivacyBudget.open(path), or give another path."
                ) from None

    @classmethod
    def open(cls, path: str | Path, scope: str = "/") -> PrivacyBudget:
        """Return the budget whose ledger is at ``path``.

        Raises
        ------
        LedgerError
            If there is none, or it cannot be read.
        """
        budget = cls.__new__(cls)
        budget._attach(ledger_at(path), scope)
        _ = budget._terms
        return budget

    def _attach(self, ledger: Ledger, scope: str) -> None:
        self._ledger, self._scope = ledger, scope

    @cached_property
    def _terms(self) -> dict[str, Any]:
        first = self._ledger.first()  # the log is append-only: its first line never changes
        try:
            terms = json.loads(first)
            return {k: terms[k] for k in ("epsilon", "delta", "relation", "filter")}
        except (json.JSONDecodeError, KeyError, TypeError):
            raise LedgerError(f"{self.path} is not the ledger of a privacy budget.") from None

    @property
    def _open_relation(self) -> dict[str, Any]:
        return {"relation": self._terms["relation"]}

    def _settled(self, log: _Log) -> dict[str, Any]:
        """Return the terms with the relation that holds by now; before any charge any would do."""
        relation = self._terms["relation"] or log.relation() or "add_remove"
        return self._terms | {"relation": relation}

    @property
    def _current(self) -> dict[str, Any]:
        with self._ledger.transaction() as log:
            return self._settled(log)

    # A copy of a budget is the same budget.
    def __copy__(self) -> PrivacyBudget:
        return self

    def __deepcopy__(self, memo: dict) -> PrivacyBudget:
        return self

    def __reduce__(self):
        return PrivacyBudget.open, (self._ledger.address, self._scope)

    def __repr__(self) -> str:
        cap, entries = self.cap, self._charges()
        n = sum(entries.values())
        where = "" if self._scope == "/" else f" for {self._scope}"
        shown = "no cap of its own" if cap is None else f"epsilon={cap[0]:g}, delta={cap[1]:g}"
        plural = "" if n == 1 else "s"
        return f"PrivacyBudget({shown}){where}: {self.spent():.3g} spent by {n} charge{plural}"

    @property
    def path(self) -> str:
        """The ledger file, or its address."""
        return self._ledger.address

    @property
    def relation(self) -> str | None:
        """The relation that all charges are stated for; ``None`` until the first one settles it."""
        with self._ledger.transaction() as log:
            return self._terms["relation"] or log.relation()

    @property
    def cap(self) -> tuple[float, float] | None:
        """Epsilon and delta of this scope; ``None`` if only the enclosing scopes have a cap."""
        with self._ledger.transaction() as log:
            body = log.scopes().get(self._scope)
        terms = json.loads(body) if body else {}
        return (terms["epsilon"], terms["delta"]) if terms.get("epsilon") else None

    def scope(
        self, name: str, epsilon: float | None = None, delta: float | None = None
    ) -> PrivacyBudget:
        """Return a part of this budget, for one data set or one purpose.

        What is charged to it is charged to every enclosing scope too.

        Parameters
        ----------
        name : str
            Without ``/``, and not beginning with ``=``.
        epsilon, delta : float, default=None
            A cap of its own, set once.
        """
        if not name or "/" in name or name.startswith("="):
            raise ValueError(f"name={name!r} must be non-empty, without '/', not begin with '='.")
        return self._inner(name, epsilon, delta)

    def partition(self, key: str) -> PrivacyBudget:
        """Return the budget of one part of a data set that was divided beforehand.

        A record lies in at most one part, so that the parts cost, together, only what the dearest
        of them costs (parallel composition). The division must not depend on private data.

        Raises
        ------
        ValueError
            Under ``replace_one``: a replaced record may leave one part and enter another.
        """
        if self.relation == "replace_one":
            raise ValueError(_NO_PARTITION)
        if not key or "/" in key:
            raise ValueError(f"key={key!r} must be non-empty and without '/'.")
        return self._inner(f"={key}", None, None)

    def _inner(self, name: str, epsilon: float | None, delta: float | None) -> PrivacyBudget:
        path = f"{self._scope}{name}/"
        if epsilon is not None or delta is not None:
            positive("epsilon", epsilon)
            terms = {"epsilon": epsilon, "delta": check_delta(delta or 0.0)}
            with self._ledger.transaction() as log:
                known = log.scopes().get(path)
                if known is None:
                    log.append("scope", path, "", json.dumps(terms, sort_keys=True))
                elif json.loads(known) != terms:
                    raise ValueError(f"The scope {path} already has the cap {known}, not {terms}.")
        inner = PrivacyBudget.__new__(PrivacyBudget)
        inner._attach(self._ledger, path)
        inner._parent = self  # type: ignore[attr-defined]  # keeps a temporary ledger alive
        return inner

    def reserve(self, event: Event, who: str = "", relation: str | None = None) -> int:
        """Charge an event before the data is touched, and return the charge's number.

        Parameters
        ----------
        event : Event
        who : str, default=""
            What the charge is for; public text.
        relation : str, default=None
            The relation that the event is stated for. ``None``: the budget's.

        Raises
        ------
        BudgetExceededError
            If the cap of this or an enclosing scope would be passed. Nothing is charged then.
        LedgerError
            If the ledger cannot be written. Nothing may be released then.
        """
        if not isinstance(event, Event):
            raise TypeError(f"event={event!r} must be an Event.")
        if relation is not None:
            check_relation(relation)
        body = json.dumps(event.to_dict(), sort_keys=True)
        with self._ledger.transaction() as log:
            known = self._terms["relation"] or log.relation()
            settled = known or relation or "add_remove"
            if relation not in (None, settled):
                raise ValueError(
                    f"The event is stated for relation={relation!r} and the budget for "
                    f"{settled!r}. They are never mixed: make a budget of that relation, or give "
                    "the estimator what makes it state the other one (n_records, relation)."
                )
            if settled == "replace_one" and "/=" in self._scope:
                raise ValueError(_NO_PARTITION)
            terms = self._terms | {"relation": settled}
            short = self._refusal(log, event, 1, terms)
            if short is not None:
                scope, epsilon, delta = short
                left = spent(along(log, scope, self._scope), delta, terms["relation"])
                raise BudgetExceededError(
                    f"{who or 'A release'} was refused: with {event!r} the budget of "
                    f"epsilon={epsilon:g}, delta={delta:g} of scope {scope!r} would be overspent. "
                    f"It has spent epsilon={left:.4g} so far. Give more noise or fewer steps, or "
                    "ask remaining(event) how many of an event still fit."
                )
            if known is None:
                log.append("relation", "/", "", settled)
            return log.append("reserve", self._scope, str(who), body)

    def _refusal(self, log: _Log, event: Event, count: int, terms: dict[str, Any]):
        """Return the first scope whose cap ``count`` more of ``event`` would pass, or None."""
        for scope, body in log.scopes().items():
            if not self._scope.startswith(scope):
                continue
            cap = json.loads(body)
            charges = along(log, scope, self._scope) + Counter({event: count})
            if not admits(
                terms["filter"], charges, cap["epsilon"], cap["delta"], terms["relation"]
            ):
                return scope, cap["epsilon"], cap["delta"]
        return None

    def commit(self, charge: int) -> None:
        """Note that the release happened."""
        self._settle(charge, "commit")

    def fail(self, charge: int) -> None:
        """Note that the release did not complete. It stays charged: the data may have been read."""
        self._settle(charge, "fail")

    def _settle(self, charge: int, outcome: str) -> None:
        with self._ledger.transaction() as log:
            before = log.outcome(charge)
            if before is not None:
                raise ValueError(f"charge={charge!r} is already settled: {before}.")
            log.append(outcome, self._scope, "", "", ref=charge)

    @contextmanager
    def charge(self, event: Event, who: str = "", relation: str | None = None) -> Iterator[int]:
        """Reserve on entering, settle on leaving; the data may be touched inside only."""
        number = self.reserve(event, who, relation)
        try:
            yield number
        except BaseException:
            self.fail(number)
            raise
        self.commit(number)

    def _charges(self) -> Counter[Event]:
        with self._ledger.transaction() as log:
            return along(log, self._scope, self._scope)

    def spent(self, delta: float | None = None) -> float:
        """Return epsilon, at ``delta``, of all that was charged here, by the tightest accountant.

        Its proof takes the events as settled beforehand; the cap is kept by the filter.
        """
        if delta is None:
            delta = self._terms["delta"] if self.cap is None else self.cap[1]
        return spent(self._charges(), check_delta(delta), self._current["relation"])

    def guarantee(self) -> PrivacyGuarantee:
        """Return what holds of all that was charged here, as a guarantee."""
        return PrivacyGuarantee(
            together(self._charges()),
            self._terms["delta"] or None,
            self._current["relation"],
            assumptions=("events settled before any answer was seen",),
        )

    def remaining(self, event: Event) -> int:
        """Return how many more of ``event`` fit, each charged by itself."""
        with self._ledger.transaction() as log:
            terms = self._settled(log)
            if self._refusal(log, event, 1, terms) is not None:
                return 0
            low, high = 1, 2
            while high < _MANY and self._refusal(log, event, high, terms) is None:
                low, high = high, 2 * high
            while high - low > 1:
                middle = (low + high) // 2
                if self._refusal(log, event, middle, terms) is None:
                    low = middle
                else:
                    high = middle
        return low

    def entries(self):
        """Return the charges of this scope as a DataFrame.

        Returns
        -------
        DataFrame
            Columns ``charge``, ``when`` (UTC), ``scope``, ``who``, ``event``, ``status``
            (``reserved``, ``commit`` or ``fail``) and ``cost`` (epsilon of this charge alone).
        """
        return table(self._ledger.records(), self._scope, self._current)

    def verify(self) -> str:
        """Check every line of the ledger and every cap, and return the last digest.

        Keep the digest elsewhere: a later ledger that continues this one contains it.

        Raises
        ------
        LedgerError
            If a line was altered or lost, or the charges pass a cap.
        """
        records = self._ledger.records()
        with self._ledger.transaction() as log:
            terms = self._settled(log)
            for scope, body in log.scopes().items():
                cap = json.loads(body)
                leaves = {s for s, _, _ in log.charges() if s.startswith(scope)}
                for leaf in leaves:
                    charges = along(log, scope, leaf)
                    if not admits(
                        terms["filter"], charges, cap["epsilon"], cap["delta"], terms["relation"]
                    ):
                        raise LedgerError(f"The charges in scope {scope!r} pass its cap {body}.")
        return records[-1].digest

    def export(self, path: str | Path) -> None:
        """Write the checked ledger as JSON lines, which anybody can read and check."""
        lines = [json.dumps(record._asdict()) for record in self._ledger.records()]
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def plot(self, ax=None):
        """Draw epsilon spent over time, against the cap, and return the axes."""
        times, values = running(self.entries(), self._scope, self._current)
        return draw(times, values, self.cap, self._terms["delta"], ax)


def _remove(folder: str, owner: int) -> None:
    # A forked worker inherits the finaliser, but not the file.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def charge(
    budget: PrivacyBudget | None,
    event: Event,
    relation: str = "add_remove",
    who: str = "",
    kind: str = "proved",
) -> Iterator[int | None]:
    """Charge ``budget`` for what happens inside; without a budget do nothing.

    This is what an estimator wraps around the part of ``fit`` that touches the data.

    Parameters
    ----------
    budget : PrivacyBudget or None
    event : Event
    relation : str, default="add_remove"
    who : str, default=""
    kind : str, default="proved"
        Only proved guarantees are charged; anything else is refused.

    Examples
    --------
    >>> from skprivacy.accounting import Laplace, charge
    >>> with charge(None, Laplace(1.0)) as number:
    ...     print(number)
    None
    """
    if budget is None:
        yield None
        return
    if not isinstance(budget, PrivacyBudget):
        raise TypeError(f"budget={budget!r} must be a PrivacyBudget or None.")
    if kind != "proved":
        raise ValueError(
            f"A guarantee of kind={kind!r} cannot be charged to a budget: only proved ones add up."
        )
    with budget.charge(event, who, relation) as number:
        yield number
