"""Fork guard: no process is forked while one of its threads has an SQLite connection open.

A forked child inherits SQLite's record of its locks, but neither the locks nor the thread that
would release them. It could never charge the ledger, and would read while others write.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_fork"]

# Seconds that a fork waits for a transaction. One that takes longer waits for a lock itself.
_FORK_TIMEOUT = 5.0
_gate = threading.Condition()
_inside: Counter[int] = Counter()  # number of open connections by thread


@contextmanager
def no_fork() -> Iterator[None]:
    """Delay forks by other threads until the context ends."""
    me = threading.get_ident()
    with _gate:
        _inside[me] += 1
    try:
        yield
    finally:
        with _gate:
            _inside[me] -= 1
            if _inside[me] <= 0:  # negative in a child that was forked inside the context
                del _inside[me]
            _gate.notify_all()


def _wait_for_connections() -> None:
    _gate.acquire()
    me = threading.get_ident()
    _gate.wait_for(lambda: not _inside.keys() - {me}, _FORK_TIMEOUT)


def _reset_in_child() -> None:
    _inside.clear()
    _gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_wait_for_connections, after_in_parent=_gate.release, after_in_child=_reset_in_child
    )
