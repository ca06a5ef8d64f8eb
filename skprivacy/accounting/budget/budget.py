"""Privacy budget: admit, charge and record releases within a cap, across processes and crashes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, cast

from ..._config import warn_caller
from ..._files import displayable
from ..._validation import positive, storable, whole
from ...exceptions import BudgetExceededError, PrivacyWarning
from ..event import Event, check_delta, check_event, check_relation
from ..work_limit import check_work
from .admission import (
    charges_along_path,
    check_partitions,
    check_scope_name,
    count_fitting,
    find_refusal,
    inner_scope,
    is_within_cap,
    parse_cap,
)
from .filters import FILTERS, Cost, spent_epsilon
from .ledger import LedgerError, Log
from .receipts import Receipt, Reservation
from .refusals import (
    check_same_relation,
    check_same_unit,
    explain_missing_epsilon,
    explain_refusal,
    has_no_epsilon,
    note_no_release,
)
from .signals import hold_signals, release_signals
from .statement import FORMAT, Statement
from .stores import counter_at, ledger_at


class PrivacyBudget(Statement):
    """Privacy budget: a cap on the releases about a data set, stored in a ledger on disk.

    Parameters
    ----------
    epsilon : float
        Cap on epsilon, above 0.
    delta : float, default=0.0
        Cap on delta, in [0, 1).
    path : str or Path, default=None
        The ledger file, or ``postgresql://user@host/database#name`` (needs ``psycopg``). It is
        created if it does not exist; otherwise its cap must equal this cap. ``None``: a temporary
        file that exists as long as this object.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default=None
        The neighbouring relation of all charges. ``None``: the first charge fixes it permanently.
        Relations are never mixed or converted.
    unit : str, default=None
        The unit whose presence all charges hide: ``"record"``, or the name of the column whose
        values group the records. ``None``: the first charge fixes it permanently. Units are never
        mixed.
    filter : {"adaptive", "renyi", "pld", "basic"}, default="adaptive"
        How charges are composed; see Notes.
    n_records : int, default=None
        The public number of records. If given, ``delta`` must be below its inverse.
    counter : str or Path, default=None
        Where to store the number of the last charge outside the ledger: another file, best on
        another disk, or ``postgresql://user@host/database#name``. A ledger that is behind the
        counter, such as an older copy, is refused. The counter is created with the ledger, which
        stores its address.

    Notes
    -----
    **Guarantees.** A charge is written to disk before the data is accessed. It stays charged
    whatever happens next: success, failure or a killed process.

    **Filters.** All filters except ``"pld"`` hold even if each event, with its parameters, is
    chosen after seeing all earlier answers.

    - ``"adaptive"`` is never worse than basic composition. It admits charges as long as their
      epsilons and deltas add up to at most the cap. From the first charge that this rule would
      refuse, it composes all charges tightly within the rest of the cap. Repetitions of that first
      charge or of its parts, in any number and order, compose as privacy loss distributions with
      four tenths of delta. All other charges compose at four Renyi orders with half of delta
      (Feldman and Zrnic 2021, arXiv:2008.11193).
    - ``"renyi"`` composes at Renyi orders from the first charge on. It admits more charges than
      ``"adaptive"`` if there are many small pure releases.
    - ``"pld"`` composes the distributions of all events. It is the tightest filter, but proved only
      if *which events will happen* was fixed beforehand, as in cross-validation over a fixed grid.
    - ``"basic"`` adds up epsilons and deltas, and accepts only events that have them.

    **Edge cases.** ``copy``, ``deepcopy``, ``sklearn.clone`` and pickle all refer to the *same*
    ledger. A pickled handle to a temporary ledger is useless once the process that created the
    ledger has ended.

    Examples
    --------
    >>> from skprivacy.accounting import LaplaceEvent, PrivacyBudget
    >>> budget = PrivacyBudget(epsilon=1.0)
    >>> receipt = budget.charge(LaplaceEvent(4.0), source="a mean")  # then release the mean
    >>> print(receipt)
    charge 3 to scope '/' for 'a mean': epsilon=0.25, delta=0
    >>> with budget.reserve(LaplaceEvent(4.0), source="a median"):
    ...     pass  # charged; release the median
    >>> budget.remaining(LaplaceEvent(4.0))
    2
    >>> budget
    PrivacyBudget(epsilon=1, delta=0): 0.5 spent by 2 charges
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 0.0,
        path: str | Path | None = None,
        *,
        relation: str | None = None,
        unit: str | None = None,
        filter: str = "adaptive",
        n_records: int | None = None,
        counter: str | Path | None = None,
    ) -> None:
        positive("epsilon", epsilon)
        check_delta(delta, n_records)
        if relation is not None:
            check_relation(relation)
        if unit is not None:
            _check_unit(unit)
        if not isinstance(filter, str) or filter not in FILTERS:
            raise ValueError(f"filter={filter!r} must be one of {sorted(FILTERS)}.")
        terms: dict[str, Any] = {"epsilon": float(epsilon), "delta": float(delta)}
        terms |= {"relation": relation, "filter": filter, "unit": unit, "counter": None}
        if path is None:
            folder = tempfile.mkdtemp(prefix="skprivacy-budget-")
            _temporary_folders.add(folder)
            self._finalizer = weakref.finalize(self, _remove_folder, folder, os.getpid())
            path = Path(folder) / "ledger"
        self._attach(ledger_at(path), "/")
        if counter is not None:
            terms["counter"] = self._create_counter(counter)
        try:
            self._ledger.create(json.dumps(terms | {"format": FORMAT}, sort_keys=True))
            if counter is not None:
                with self._ledger.transaction():
                    pass  # moves the counter to the first line, so no other ledger can use it
        except FileExistsError:
            known = self._terms
            unset_terms = {k: known[k] for k in ("relation", "unit", "counter") if terms[k] is None}
            if known != terms | unset_terms:
                raise ValueError(
                    f"The ledger {str(path)!r} holds the budget {known}, not {terms}. Open it with "
                    "PrivacyBudget.open(path), or pass another path."
                ) from None

    def _create_counter(self, address: str | Path) -> str:
        """Create the counter before its ledger, so that the ledger never lacks its counter."""
        counter = counter_at(address)
        if counter.address == self.path:
            raise ValueError(
                f"counter={counter.address!r} must not be the ledger: restoring the file would "
                "restore both. Pass another path, best on another disk."
            )
        line, _ = counter.create()
        if line:
            try:
                _ = self._terms
            except LedgerError as error:
                raise ValueError(
                    f"counter={counter.address!r} stands at line {line} of a ledger, but the "
                    f"ledger {self.path} cannot be read. Restore the ledger, or pass another "
                    "counter for a new ledger."
                ) from error
        return counter.address

    def scope(
        self, name: str, epsilon: float | None = None, delta: float | None = None
    ) -> PrivacyBudget:
        """Return the budget of a scope: one data set or one purpose.

        A charge to a scope is also charged to every enclosing scope.

        Parameters
        ----------
        name : str
            Must not contain ``/`` or begin with ``=``. Must be in Unicode normal form NFC, without
            invisible, control or bidirectional characters and without surrounding blanks.
            Otherwise names that look alike would have separate caps.
        epsilon, delta : float, default=None
            The cap of this scope, which is set once. The budget's filter must admit the earlier
            charges within it, and the cap must not depend on their answers.

        Returns
        -------
        PrivacyBudget
            A handle to the same ledger.

        Raises
        ------
        ValueError
            If the scope has a different cap, or has spent more than this cap. Nothing is changed.
        """
        if not isinstance(name, str) or not name or "/" in name or name.startswith("="):
            raise ValueError(
                f"name={name!r} must be a non-empty string without '/' that does not begin with "
                "'='. Use partition() for a part of the records."
            )
        check_scope_name("name", name)
        return self._open_scope(name, epsilon, delta)

    def partition(self, key: str) -> PrivacyBudget:
        """Return the budget of one partition of a data set that was partitioned beforehand.

        Each record lies in at most one partition, so all partitions together cost only as much as
        the most expensive one (parallel composition). The partitioning must not depend on private
        data.

        Parameters
        ----------
        key : str
            Name of the partition, not empty and without ``/``; the rules of :meth:`scope` hold.

        Returns
        -------
        PrivacyBudget
            A handle to the same ledger.

        Raises
        ------
        ValueError
            Under ``replace_one``: a replaced record may move to another partition.
        """
        check_partitions("/=", self.relation)
        if not isinstance(key, str) or not key or "/" in key:
            raise ValueError(
                f"key={key!r} must be a non-empty string without '/'. Pass a partition's name."
            )
        check_scope_name("key", key)
        return self._open_scope(f"={key}", None, None)

    def _open_scope(self, name: str, epsilon: float | None, delta: float | None) -> PrivacyBudget:
        path = inner_scope(self._scope, name)
        if epsilon is not None or delta is not None:
            positive("epsilon", epsilon)
            cap = Cost(
                float(cast(float, epsilon)), float(check_delta(0.0 if delta is None else delta))
            )
            body = json.dumps(cap._asdict(), sort_keys=True)
            with self._ledger.transaction() as log:
                known = log.scopes().get(path)
                if known is None:
                    self._check_late_cap(log, path, cap)
                    log.append("scope", path, "", body)
                elif parse_cap(known) != cap:
                    raise ValueError(
                        f"The scope {path!r} already has the cap {known}, not {body}. Pass that "
                        "cap, or none."
                    )
        part = PrivacyBudget.__new__(PrivacyBudget)
        part._attach(self._ledger, path)
        part._parent = self
        return part

    def _check_late_cap(self, log: Log, scope: str, cap: Cost) -> None:
        terms = self._terms_with_defaults(log)
        if is_within_cap(log, scope, cap, terms):
            return
        left = spent_epsilon(charges_along_path(log, scope, scope), cap.delta, terms["relation"])
        raise ValueError(
            f"epsilon={cap.epsilon:.4g}, delta={cap.delta:.4g} cannot cap scope {scope!r}: it has "
            f"spent epsilon={left:.4g} at this delta, which the filter {terms['filter']!r} does "
            "not admit. Set a cap of at least the spent epsilon, or leave this scope uncapped."
        )

    def charge(
        self, event: Event, source: str = "", relation: str | None = None, unit: str = "record"
    ) -> Receipt:
        """Charge an event and return the receipt; access the data only after this call.

        Parameters
        ----------
        event : Event
            The planned release.
        source : str, default=""
            Purpose of the charge; public text.
        relation : str, default=None
            The relation that the event is stated for. ``None``: the budget's.
        unit : str, default="record"
            The unit whose presence the event hides: a record, or all records that share a value
            of the column named here.

        Returns
        -------
        Receipt
            ``charge_id``, ``scope``, ``source``, ``event``, ``relation``, ``unit``, ``delta`` and
            ``epsilon`` of the charge, and the ``digest`` of the ledger after it.

        Raises
        ------
        ValueError
            If the budget is for another relation or unit.
        BudgetExceededError
            If the charge would exceed the cap of this or an enclosing scope. Nothing is charged.
        LedgerError
            If the ledger cannot be written. Nothing may be released.
        """
        return self._admit(event, source, relation, unit, outcome="commit")

    def reserve(
        self, event: Event, source: str = "", relation: str | None = None, unit: str = "record"
    ) -> Reservation:
        """Charge an event at once; the outcome of its release is recorded later.

        ``with budget.reserve(event): ...`` records on leaving whether the release succeeded. The
        charge stands in either case, and also if the result is never entered. If the outcome
        cannot be recorded, a ``PrivacyWarning`` is issued. The charge then counts in full, and
        neither the release nor an error raised inside is lost.

        Parameters
        ----------
        event : Event
            The planned release.
        source : str, default=""
            Purpose of the charge; public text.
        relation : str, default=None
            The relation that the event is stated for. ``None``: the budget's.
        unit : str, default="record"
            The unit whose presence the event hides.

        Returns
        -------
        Reservation
            A context manager that yields the receipt of :meth:`charge`. Without ``with``, pass
            ``reservation.receipt.charge_id`` to :meth:`commit` or :meth:`fail`.

        Raises
        ------
        ValueError, BudgetExceededError, LedgerError
            As :meth:`charge` does.
        """
        return Reservation(self._admit(event, source, relation, unit), self._record_outcome)

    @note_no_release()
    def _admit(
        self, event: Event, source: str, relation: str | None, unit: str, outcome: str | None = None
    ) -> Receipt:
        """Write a charge, and its outcome if given, into the ledger if every cap admits it."""
        check_event("event", event)
        check_work(event)
        release_signals()
        if relation is not None:
            check_relation(relation)
        _check_unit(unit)
        body, source = json.dumps(event.to_dict(), sort_keys=True), str(source)
        storable("source", source)
        _ = self._terms  # read before the lock is taken, and not again within it
        with self._ledger.transaction() as log:
            known = self._fixed_relation_and_unit(log)
            settled = check_same_relation(relation, known[0])
            check_same_unit(unit, known[1] or unit)
            check_partitions(self._scope, settled)
            terms = self._terms | {"relation": settled}
            refusal = find_refusal(log, self._scope, event, terms)
            if refusal is None:
                if None in known:
                    log.settle(settled, unit)
                charge_id = log.append("reserve", self._scope, source, body)
                if outcome is not None:
                    log.append(outcome, self._scope, "", "", ref=charge_id)
                return Receipt(
                    charge_id, self._scope, source, event, settled, unit,
                    terms["delta"], log.tail.digest,
                )  # fmt: skip
        # Explaining takes time, so it comes after the lock was given up.
        message = explain_refusal(refusal, event)
        raise BudgetExceededError(f"{displayable(source) or 'A release'} was refused: {message}")

    def commit(self, charge_id: int) -> None:
        """Record that the release of a reserved charge happened.

        Parameters
        ----------
        charge_id : int
            The number of the charge.
        """
        self._settle(charge_id, "commit")

    def fail(self, charge_id: int) -> None:
        """Record that the release failed. It stays charged, since the data may have been read.

        Parameters
        ----------
        charge_id : int
            The number of the charge.
        """
        self._settle(charge_id, "fail")

    def _settle(self, charge_id: int, outcome: str) -> None:
        if outcome == "commit":
            hold_signals()
        whole("charge_id", charge_id)
        charge_id = int(charge_id)  # JSON takes no NumPy integers
        with self._ledger.transaction() as log:
            before = log.outcome(charge_id)
            if before is not None:
                raise ValueError(
                    f"charge_id={charge_id!r} is already settled as {before!r}. Settle each charge "
                    "once."
                )
            log.append(outcome, self._scope, "", "", ref=charge_id)

    def _record_outcome(self, charge_id: int, outcome: str) -> None:
        try:
            self._settle(charge_id, outcome)
        except (LedgerError, ValueError) as error:
            warn_caller(
                f"Charge {charge_id} of the ledger {self.path} was charged, but its outcome "
                f"({outcome}) could not be recorded ({error.__cause__ or error}). It counts in "
                "full; check with entries() that the ledger still holds it.",
                PrivacyWarning,
            )

    def remaining(self, event: Event) -> int:
        """Return how many more charges of ``event`` the budget admits, each charged separately.

        Parameters
        ----------
        event : Event
            The planned release.

        Returns
        -------
        int
            0 if not even one more charge is admitted. Counting ends at about ``2**40``, the result
            for events that cost nothing.

        Raises
        ------
        ValueError
            If the filter is ``"basic"`` and the event has no epsilon to add up.
        """
        check_event("event", event)
        log = self._ledger.read_log()
        terms = self._terms_with_defaults(log)
        if terms["filter"] == "basic" and has_no_epsilon(event, terms["relation"]):
            raise ValueError(explain_missing_epsilon(event, "basic"))
        return count_fitting(log, self._scope, event, terms)


def _check_unit(unit: Any) -> None:
    if not isinstance(unit, str) or not unit:
        raise ValueError(f"unit={unit!r} must be 'record' or the name of a column.")
    storable("unit", unit)


# Folders of temporary ledgers that this process created. A forked worker inherits the finaliser but
# must not delete the file. Process ids alone do not suffice, since they repeat in pid namespaces.
_temporary_folders: set[str] = set()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_temporary_folders.clear)


def _remove_folder(folder: str, owner: int) -> None:
    if folder in _temporary_folders and os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
