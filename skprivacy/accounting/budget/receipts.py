"""Receipt of a charge, and the reservation that records the outcome of its release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from ..._files import displayable
from ..event import Event
from ..guarantee import PrivacyGuarantee


@dataclass(frozen=True)
class Receipt:
    """Receipt of one charge, from :meth:`~skprivacy.accounting.PrivacyBudget.charge`.

    Parameters
    ----------
    charge_id : int
        The number of the charge: its line in the ledger.
    scope : str
        The scope that was charged; every enclosing scope was charged too.
    source : str
        Purpose of the charge.
    event : Event
        The charged event.
    relation : str
        The neighbouring relation of the charge.
    unit : str
        The unit whose presence the event hides.
    delta : float
        The budget's delta, at which ``epsilon`` is stated.
    digest : str
        The digest of the ledger's last line after the charge. Store it elsewhere and pass it to
        :meth:`~skprivacy.accounting.PrivacyBudget.verify`, or in a shell to ``--expect``. A ledger
        that was restored from an older copy is then refused.
    """

    charge_id: int
    scope: str
    source: str
    event: Event
    relation: str
    unit: str
    delta: float
    digest: str

    @property
    def epsilon(self) -> float:
        """Epsilon of this charge alone at ``delta``."""
        return PrivacyGuarantee(self.event, self.delta or None, self.relation).epsilon()

    def __str__(self) -> str:
        purpose = f" for {self.source!r}" if self.source else ""
        return displayable(
            f"charge {self.charge_id} to scope {self.scope!r}{purpose}: "
            f"epsilon={self.epsilon:.4g}, delta={self.delta:g}"
        )


class Reservation:
    """Charge with an open outcome, from :meth:`~skprivacy.accounting.PrivacyBudget.reserve`.

    The budget is charged when this object is created, not when it is entered. As a context manager
    it yields the receipt, and records on leaving whether the release succeeded: it calls
    ``record_outcome`` with the number of the charge and ``"commit"`` or ``"fail"``.

    **Guarantees.** It can be entered only once: a second release needs a second reservation.
    """

    def __init__(self, receipt: Receipt, record_outcome: Callable[[int, str], None]) -> None:
        self.receipt = receipt
        self._record_outcome = record_outcome
        self._is_entered = False

    def __enter__(self) -> Receipt:
        if self._is_entered:
            raise RuntimeError(
                f"Charge {self.receipt.charge_id} was already used for a release. Call reserve() "
                "once for each release."
            )
        self._is_entered = True
        return self.receipt

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._record_outcome(self.receipt.charge_id, "commit" if kind is None else "fail")

    def __repr__(self) -> str:
        return f"Reservation({self.receipt})"
