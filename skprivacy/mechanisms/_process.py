"""What tells this process from its parent and from its children."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys

__all__ = ["process"]

_BYTES = 16
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK of Linux, which Python has no name for


def process() -> tuple[bytes, int]:
    """Return what no other process returns: random bytes and the number of the process.

    Notes
    -----
    **Guarantees.** A child differs from its parent by three things, each of which has a gap. The
    number is its parent's where each is the first process of its pid namespace. Python's hook,
    which changes the bytes, sees no fork that a library makes behind Python's back. The page that
    holds the bytes comes to every child full of zeros, but only on Linux, from 4.14 on.

    **Edge cases.** A snapshot of a whole process or machine that is resumed twice is not noticed.
    """
    if _page[:_BYTES] == bytes(_BYTES):
        _change()
    return _page[:_BYTES], os.getpid()


def _change() -> None:
    _page[:_BYTES] = os.urandom(_BYTES)


def _page_that_forks_clear() -> mmap.mmap:
    """Return a page of memory that a child finds full of zeros, where the system can do that."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, mmap.PAGESIZE)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an old kernel
            page.madvise(_WIPE_ON_FORK)
    return page


_page = _page_that_forks_clear()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_change)
