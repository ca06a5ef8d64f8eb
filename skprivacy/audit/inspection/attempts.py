"""Detection of errors raised by the caller's signal handlers, such as alarms."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

_SIGNALS = tuple(signal.valid_signals())


def is_alarm(error: BaseException) -> bool:
    """Return whether an error comes from a signal handler or a timeout, directly or as a cause.

    Code that catches all errors of users' models must pass these on: they are for the caller.
    """
    handlers = {_code(signal.getsignal(number)) for number in _SIGNALS} - {None}
    return any(
        isinstance(one, TimeoutError)
        or any(frame.f_code in handlers for frame, _ in traceback.walk_tb(one.__traceback__))
        for one in _iter_causes(error)
    )


def _iter_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, but none that the caller was already handling."""
    running = {frame for frame, _ in traceback.walk_stack(sys._getframe())}
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
        caught = found.__traceback__ if found is not None else None
        if caught is not None and caught.tb_frame in running:
            return


def _code(handler: Any) -> CodeType | None:
    """Return the code object of a function, a method, a partial or a callable object."""
    while isinstance(handler, partial):
        handler = handler.func
    if callable(handler) and not hasattr(handler, "__code__"):
        handler = handler.__call__
    return getattr(handler, "__code__", None)
