"""Hold SIGINT and SIGTERM from the commit of a charge until the paid model is saved.

A budget calls :func:`hold_signals` before it commits a charge, and :func:`release_signals` before
it reserves the next one. Both do nothing outside :func:`signals_held_after_commit`, with which a
command encloses the fit and the save. Training itself can be interrupted at any time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_HELD = (signal.SIGINT, signal.SIGTERM)
_NOTICE = b"interrupted: the model has been paid for, and is saved first\n"


class _Hold:
    """Handlers that record a signal while a paid model is not saved yet."""

    def __init__(self) -> None:
        self.is_holding = False
        self._received: list[int] = []
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        for number in _HELD:
            self._previous[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def deliver(self) -> None:
        """Raise the recorded signals again, now that nothing is lost by them."""
        self.is_holding = False
        while self._received:
            self._forward(self._received.pop(0), None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.is_holding:
            self._forward(number, frame)
        elif number not in self._received:
            self._received.append(number)
            os.write(2, _NOTICE)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous[number]
        if callable(previous):
            previous(number, frame)
        elif previous != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


_active: _Hold | None = None


@contextmanager
def signals_held_after_commit() -> Iterator[None]:
    """Hold SIGINT and SIGTERM inside, from a commit until the end or the next reservation.

    They are delivered at the end: Ctrl-C raises KeyboardInterrupt and SIGTERM ends the process, as
    always. If an error leaves the context, it is what the user needs to see, and the command ends
    by it. Outside the main thread, which alone receives signals, nothing is held.
    """
    global _active
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hold, outer = _Hold(), _active
    _active = hold
    hold.install()
    try:
        yield
    finally:
        _active = outer
        hold.restore()
    hold.deliver()


def hold_signals() -> None:
    """Begin to hold signals, since the paid model is not saved yet."""
    if _active is not None:
        _active.is_holding = True


def release_signals() -> None:
    """Deliver held signals, and stop holding them: a further charge is not made after Ctrl-C."""
    if _active is not None:
        _active.deliver()
