"""Oracle of odd input: the library must answer, or refuse by name and leave no trace.

A refusal is a ValueError or TypeError that names a parameter, a NotFittedError, an OSError that
names a file, or an exception of the library. Anything else, an answer that never comes, and any
trace of a refused call is a failure.
"""

import os
import random
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import settings
from joblib import parallel_config
from sklearn.exceptions import NotFittedError

from skprivacy.exceptions import BudgetExceededError

__all__ = ["Refused", "attempt", "few"]

N_CALLS = 0  # of this process, which the summary of a run shows
PATIENCE = 60  # seconds of a call; the slowest honest one takes two, ten on a busy machine
# How scikit-learn and pandas speak of X and y without their names. (A refused fit of ours is the
# caller's only if none of our own checks, which name them, comes first.)
_OF_DATA = re.compile(
    r"Found (array|input variables)|Expected 2D|[Rr]eshape your data|[Uu]nknown label type"
    r"|classes? in the data|The number of classes|[Cc]omplex data|Sparse data|sparse|n_features"
    r"|feature names|label type|number of samples|inconsistent numbers"
    r"|number of members in each class|not compatible with arrays of bytes/strings"
    r"|could not convert string|^float\(\) argument|setting an array element with a sequence"
    r"|^Input (contains|should have)|2-dimensional container|[Uu]nique column names"
    r"|^Classification metrics can't handle|^y_true and y_pred"
    r"|^at least one array or dtype is required"  # a table without columns
)


class Refused:
    """A call that was refused as it may be."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"Refused({self.error!r})"


def few(everyday: int) -> Any:
    """Examples of a test: ``everyday`` of them, times ``SKPRIVACY_FUZZ`` in the nightly run."""
    return settings(max_examples=everyday * int(os.environ.get("SKPRIVACY_FUZZ", "1")))


def attempt(
    call: Callable[[], Any],
    names: Iterable[str],
    unchanged: Callable[[], Any] = lambda: None,
) -> Any:
    """Return what a call answers, or Refused; fail on everything else.

    Parameters
    ----------
    call : callable
    names : iterable of str
        The parameters, one of which a refusal has to name.
    unchanged : callable
        Returns what a refusal must leave as it is, in a form that can be compared.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filters = set(warnings.filters)
        shared, before = _shared(), (_chance(), unchanged())
        answer = _answered(call)
        if isinstance(answer, Refused):
            _check_is_refusal(answer.error, set(names))
            left = f"a refusal has left a trace: {answer.error!r}"
            assert (_chance(), unchanged()) == before, left
        left = [part for part in zip(shared, _shared(), strict=True) if part[0] != part[1]]
        assert not left, f"a call has changed what the whole process shares: {left}"
        # What a call imports may add filters, and does; none may go.
        assert filters <= set(warnings.filters), "a call has taken filters of warnings away"
        return answer


def _answered(call: Callable[[], Any]) -> Any:
    global N_CALLS
    N_CALLS += 1
    try:
        # Processes take seconds to start, and threads share what warnings are shown.
        with _watched(), parallel_config("sequential"):
            return call()
    except Exception as error:
        return Refused(error)


def _check_is_refusal(error: BaseException, names: set[str]) -> None:
    if isinstance(error, (NotFittedError, BudgetExceededError)):
        return
    text = str(error)
    if isinstance(error, OSError):
        named = error.filename is not None or os.sep in text
        assert named, f"an error of a file without its name: {error!r}"
        return
    if not isinstance(error, (ValueError, TypeError)) or isinstance(error, UnicodeError):
        raise error
    if names & {"random_state", "noise_seed"}:  # of which scikit-learn and numpy say seed
        names |= {"seed", "Seed"}
    words = set(re.findall(r"\w+", text))
    if not (words & names or (_takes_data(names) and _OF_DATA.search(text))):
        raise AssertionError(f"a refusal that names no parameter: {error!r}") from error


def _takes_data(names: set[str]) -> bool:
    tables = {"X", "y", "reference", "generated", "synthetic", "released"}
    return any(name in tables or name.startswith(("X_", "y_")) for name in names)


def _chance() -> list[Any]:
    chance = [random.getstate(), np.random.get_state()[1].tobytes(), np.random.get_state()[2]]  # noqa: NPY002
    if "torch" in sys.modules:
        chance.append(sys.modules["torch"].get_rng_state().numpy().tobytes())
    return chance


def _shared() -> tuple[Any, ...]:
    return sorted(os.listdir()), Path.cwd(), np.geterr()


@contextmanager
def _watched() -> Iterator[None]:
    """Break off a call that takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def too_long(*_: Any) -> None:
        raise AssertionError(f"no answer in {PATIENCE} seconds")

    earlier = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
