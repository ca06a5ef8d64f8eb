"""What a refused fit owes: the estimator is left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["undone_on_error"]


@contextmanager
def undone_on_error(estimator: Any) -> Iterator[None]:
    """Take back the attributes that the enclosed code has set, if it is refused or interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
