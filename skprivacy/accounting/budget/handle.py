"""Handle: the reference to a ledger and a scope that all copies of a budget share."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ..._input import parse_json
from .admission import Terms
from .filters import FILTERS
from .ledger import Ledger, LedgerVersion, ledger_at
from .log import LedgerError, Log
from .scopes import check_partitions, scope_of

__all__ = ["FORMAT", "Handle"]

FORMAT = 1  # version of the ledger's lines, stored in the first line; 1 if missing
_TERMS = ("epsilon", "delta", "relation", "filter")
_Self = TypeVar("_Self", bound="Handle")


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
        """Digest of the ledger's last line. Store it elsewhere, for :meth:`verify`."""
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
