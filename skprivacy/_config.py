"""Global configuration, similar to ``sklearn.set_config``."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .exceptions import PrivacyLeakWarning

# An environment variable instead of a module variable: workers started by joblib inherit it.
_STRICT = "SKPRIVACY_STRICT"
# Packages between the user's code and the warning: pointing at their lines would be useless.
_NOT_THE_CALLER = {"contextlib", "joblib", "skorch", "skprivacy", "sklearn"}


@dataclass(eq=False)
class _Context:
    """One ``with config_context(...)`` that is open, and the thread that opened it."""

    thread: int
    strict: bool
    progress: bool


_open: list[_Context] = []
_outside = False  # strictness when no context is open
_progress = False  # outside of contexts, in this process only
_lock = threading.RLock()


def _new_lock() -> None:
    """Replace the lock after a fork: a thread that does not exist in the child may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def _is_shared_strict() -> bool:
    return os.environ.get(_STRICT, "0") not in ("", "0")


def _update_shared() -> None:
    """Give threads and new processes without a context the strictness of the strictest one.

    Such threads and processes may work for the strictest thread. No thread becomes less strict
    through another.
    """
    os.environ[_STRICT] = "1" if _outside or any(context.strict for context in _open) else "0"


def _own_contexts() -> list[_Context]:
    return [context for context in _open if context.thread == threading.get_ident()]


def get_config() -> dict[str, bool]:
    """Return the current configuration.

    Returns
    -------
    dict of str to bool
        The value of each parameter of :func:`set_config`.

    Examples
    --------
    >>> from skprivacy import get_config
    >>> get_config()
    {'strict': False, 'progress': False}
    """
    with _lock:
        own = _own_contexts()
        if own:
            return {"strict": own[-1].strict, "progress": own[-1].progress}
        return {"strict": _is_shared_strict(), "progress": _progress}


def set_config(*, strict: bool | None = None, progress: bool | None = None) -> None:
    """Set the configuration of this process and of the processes it starts from now on.

    Within a :func:`config_context` block, it sets the configuration of that block.

    Parameters
    ----------
    strict : bool, default=None
        Whether reading bounds, classes or categories off the private data is an error
        instead of a :class:`~skprivacy.exceptions.PrivacyLeakWarning`. ``None`` leaves the setting
        unchanged. The environment variable ``SKPRIVACY_STRICT=1`` does the same from a shell.
    progress : bool, default=None
        Whether the training of a network shows a progress bar, in this process. ``None``
        leaves the setting unchanged.
    """
    global _outside, _progress
    _check_flag("strict", strict)
    _check_flag("progress", progress)
    with _lock:
        if own := _own_contexts():
            own[-1].strict = own[-1].strict if strict is None else bool(strict)
            own[-1].progress = own[-1].progress if progress is None else bool(progress)
        else:
            _outside = _outside if strict is None else bool(strict)
            _progress = _progress if progress is None else bool(progress)
        if strict is not None:
            _update_shared()


def _check_flag(name: str, value: bool | None) -> None:
    if value is not None and type(value).__name__ not in ("bool", "bool_"):  # numpy's too
        raise TypeError(f"{name}={value!r} must be True, False or None.")


@contextmanager
def config_context(*, strict: bool | None = None, progress: bool | None = None) -> Iterator[None]:
    """Set the configuration for the duration of a ``with`` block.

    Parameters
    ----------
    strict : bool, default=None
        As in :func:`set_config`.
    progress : bool, default=None
        As in :func:`set_config`.

    Yields
    ------
    None
        Nothing; the setting before holds again when the block is left.

    Notes
    -----
    The block holds for the thread that runs it. A thread without a block is strict while any thread
    is strict, because it may work for that one. ``strict=False`` does not affect other threads.
    Worker processes take the setting that holds when they start, and joblib keeps its processes
    for later calls: set ``SKPRIVACY_STRICT=1`` or call :func:`set_config` before the first of them.
    ``progress`` affects no other thread and no other process.

    Examples
    --------
    >>> from skprivacy import config_context, get_config
    >>> with config_context(strict=True):
    ...     get_config()
    {'strict': True, 'progress': False}
    """
    global _outside
    _check_flag("strict", strict)
    _check_flag("progress", progress)
    with _lock:
        if not _open:
            _outside = _is_shared_strict()
        now = get_config()
        context = _Context(
            threading.get_ident(),
            now["strict"] if strict is None else bool(strict),
            now["progress"] if progress is None else bool(progress),
        )
        _open.append(context)
        _update_shared()
    try:
        yield
    finally:
        with _lock:
            _open.remove(context)
            _update_shared()


def leak(message: str) -> None:
    """Report a fact that was read off the private data: a warning, or an error if strict."""
    if get_config()["strict"]:
        raise ValueError(f"{message} (an error because strict=True; see skprivacy.set_config)")
    warn_caller(message, PrivacyLeakWarning)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code, beyond pipelines, searches and joblib."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_THE_CALLER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
