"""Identity of this process, distinct from its parent and its children."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys

__all__ = ["process_identity"]

_BYTES = 16
_WIPE_ON_FORK = 18  # MADV_WIPEONFORK of Linux, for which Python defines no constant


def process_identity() -> tuple[bytes, int]:
    """Return random bytes and the process id: an identity that no other process returns.

    **Guarantees.** Three mechanisms distinguish a child from its parent, and each has a gap. The
    process ids are equal if each is the first process of its pid namespace. Python's hook, which
    changes the bytes, misses a fork by a library without Python. The page that holds the bytes is
    cleared in every child, but only on Linux 4.14 or later.

    **Edge cases.** A snapshot of a process or machine that is resumed twice is not detected.
    """
    if _page[:_BYTES] == bytes(_BYTES):
        _renew_identity()
    return _page[:_BYTES], os.getpid()


def _renew_identity() -> None:
    _page[:_BYTES] = os.urandom(_BYTES)


def _map_fork_cleared_page() -> mmap.mmap:
    """Return a page of memory that is cleared in a child, if the system supports it."""
    if not hasattr(mmap, "MAP_ANONYMOUS"):
        return mmap.mmap(-1, mmap.PAGESIZE)
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an old kernel
            page.madvise(_WIPE_ON_FORK)
    return page


_page = _map_fork_cleared_page()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_identity)
