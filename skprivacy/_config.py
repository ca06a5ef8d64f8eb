"""Global configuration, similar to ``sklearn.set_config``."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .exceptions import PrivacyLeakWarning

__all__ = ["config_context", "get_config", "leak", "set_config", "warn_caller"]

# An environment variable instead of a module variable: workers started by joblib inherit it.
_STRICT = "SKPRIVACY_STRICT"
# Packages between the user's code and the warning: pointing at their lines would be useless.
_NOT_THE_CALLER = {"contextlib", "joblib", "skorch", "skprivacy", "sklearn"}


def get_config() -> dict[str, bool]:
    """Return the current configuration.

    Examples
    --------
    >>> from skprivacy import get_config
    >>> get_config()
    {'strict': False}
    """
    return {"strict": os.environ.get(_STRICT, "0") not in ("", "0")}


def set_config(*, strict: bool | None = None) -> None:
    """Set the configuration of this process and of the processes it starts from now on.

    Parameters
    ----------
    strict : bool, default=None
        Whether reading bounds, classes or categories off the private data is an error
        instead of a :class:`~skprivacy.exceptions.PrivacyLeakWarning`. ``None`` leaves the setting
        unchanged. The environment variable ``SKPRIVACY_STRICT=1`` does the same from a shell.
    """
    if strict is not None:
        os.environ[_STRICT] = "1" if strict else "0"


@contextmanager
def config_context(*, strict: bool | None = None) -> Iterator[None]:
    """Set the configuration for the duration of a ``with`` block.

    Examples
    --------
    >>> from skprivacy import config_context, get_config
    >>> with config_context(strict=True):
    ...     get_config()
    {'strict': True}
    """
    before = get_config()["strict"]
    set_config(strict=strict)
    try:
        yield
    finally:
        set_config(strict=before)


def leak(message: str) -> None:
    """Report that something was read off the private data: a warning, or an error if strict."""
    if get_config()["strict"]:
        raise ValueError(f"{message} (an error because strict=True; see skprivacy.set_config)")
    warn_caller(message, PrivacyLeakWarning)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user's code that led here, also through pipelines and searches."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _NOT_THE_CALLER:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
