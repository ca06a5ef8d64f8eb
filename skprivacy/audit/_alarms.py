"""Whether an error was raised by a signal of the caller's, such as an alarm, and not by a fit."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

__all__ = ["is_alarm"]

_SIGNALS = tuple(signal.valid_signals())


def is_alarm(error: BaseException) -> bool:
    """Return whether an error is that of a signal's handler, or that time is up, or comes of one.

    What catches whatever a user's code raises must let this through: it is meant for the caller.
    """
    handlers = {_code(signal.getsignal(number)) for number in _SIGNALS} - {None}
    return any(
        isinstance(one, TimeoutError)
        or any(frame.f_code in handlers for frame, _ in traceback.walk_tb(one.__traceback__))
        for one in _led_to(error)
    )


def _led_to(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that led to it.

    **Edge cases.** What the caller was handling before has nothing to do with it: such an error was
    caught in a frame that is still running.
    """
    running = {frame for frame, _ in traceback.walk_stack(sys._getframe())}
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
        caught = found.__traceback__ if found is not None else None
        if caught is not None and caught.tb_frame in running:
            return


def _code(handler: Any) -> CodeType | None:
    """Return the code of a handler: of a function, a method, a partial or a callable object."""
    while isinstance(handler, partial):
        handler = handler.func
    if callable(handler) and not hasattr(handler, "__code__"):
        handler = handler.__call__
    return getattr(handler, "__code__", None)
