"""No process is forked while one of its threads has a connection of SQLite's.

A child inherits what SQLite remembers of locks, but neither the locks nor the thread that would
give them up: it could never charge the ledger, and would read while others write.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_fork"]

_PATIENCE = 5.0  # seconds that a fork waits for a transaction; one that waits itself has no locks
_gate = threading.Condition()
_inside: Counter[int] = Counter()  # connections that are open, by their threads


@contextmanager
def no_fork() -> Iterator[None]:
    """Let forks by other threads wait for the end of the context."""
    me = threading.get_ident()
    with _gate:
        _inside[me] += 1
    try:
        yield
    finally:
        with _gate:
            _inside[me] -= 1
            if _inside[me] <= 0:  # below in a child that was forked from within
                del _inside[me]
            _gate.notify_all()


def _before() -> None:
    _gate.acquire()
    me = threading.get_ident()
    _gate.wait_for(lambda: not _inside.keys() - {me}, _PATIENCE)


def _in_child() -> None:
    _inside.clear()
    _gate.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_gate.release, after_in_child=_in_child)
