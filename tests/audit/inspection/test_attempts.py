"""What a signal raises inside a user's code reaches the caller; what the code raises does not."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from skprivacy.audit import verify_privacy
from skprivacy.audit.inspection.attempts import is_alarm
from skprivacy.preprocessing import PrivateStandardScaler

pytestmark = pytest.mark.heavy

ALARM = signal.SIGUSR1
UNIT = ([-1.0], [1.0])


class TimeIsUp(Exception):
    """Not one of Python's own: any error may be what an alarm raises."""


class Object:
    def __call__(self, error, *signal_and_frame):
        raise error

    def method(self, error, *signal_and_frame):
        raise error


def function(error, *signal_and_frame):
    raise error


@contextmanager
def alarm(handler):
    earlier = signal.signal(ALARM, handler)
    try:
        yield
    finally:
        signal.signal(ALARM, earlier)


class Alarmed(PrivateStandardScaler):
    """The alarm goes off in some fit, after its release; which wraps errors in its own, or not."""

    fits = 0
    wraps = False

    def fit(self, X, y=None):
        super().fit(X)
        type(self).fits += 1
        if self.fits == 10:  # long after the first fits, whose errors are not caught
            try:
                os.kill(os.getpid(), ALARM)
            except BaseException:
                if not self.wraps:
                    raise
                raise ValueError("the fit did not work") from None
        return self


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize(
    "handler", [function, Object(), Object().method], ids=["function", "object", "method"]
)
@pytest.mark.parametrize("error", [TimeIsUp(), TimeoutError(), KeyboardInterrupt()], ids=repr)
def test_an_alarm_in_a_fit_reaches_the_caller(error, handler, wraps):
    kind = type("Alarmed", (Alarmed,), {"wraps": wraps})
    with alarm(partial(handler, error)), pytest.raises(ValueError if wraps else type(error)):
        verify_privacy(kind(bounds=UNIT), epsilon=2.0, n_runs=30)
    assert kind.fits == 10


def test_an_alarm_while_the_model_is_asked_reaches_the_caller():
    class Asked(PrivateStandardScaler):
        def transform(self, X):
            os.kill(os.getpid(), ALARM)
            return super().transform(X)

    with alarm(partial(function, TimeIsUp())), pytest.raises(TimeIsUp):
        verify_privacy(Asked(bounds=UNIT), epsilon=2.0, n_runs=30)


class Failing(PrivateStandardScaler):
    """Every other fit fails by itself."""

    fits = 0

    def fit(self, X, y=None):
        type(self).fits += 1
        if self.fits > 10 and self.fits % 2:
            raise ValueError("the fit did not work")
        return super().fit(X)


def test_a_fit_that_fails_by_itself_is_a_release_of_nothing_whatever_the_caller_handles():
    try:
        raise TimeoutError("an earlier one")
    except TimeoutError:
        assert verify_privacy(Failing(bounds=UNIT), epsilon=2.0, n_runs=30).n_runs == 30


def test_errors_that_are_no_alarms():
    def raised(error):
        try:
            raise error
        except BaseException as caught:
            return caught

    with alarm(partial(function, TimeIsUp())):
        assert not is_alarm(raised(TimeIsUp()))  # of this kind, but not by the handler
        assert not is_alarm(ValueError("never raised"))
        assert is_alarm(raised(TimeoutError()))
    assert np.all([not is_alarm(raised(kind())) for kind in (ValueError, KeyError, OSError)])
