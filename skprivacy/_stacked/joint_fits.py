"""Fits of several models at once, whose networks are trained side by side where a stack knows them.

All of a fit but its training is done for one model after the other, as by ``fit``: checks,
warnings, the first steps of a pipeline, and the charge. Start reading at :func:`fit_together`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sklearn.pipeline import Pipeline

from .._config import get_config

MAX_FITS = 8  # that are charged, and then trained, at once


def can_wait(model: Any, params: Mapping[str, Any]) -> bool:
    """Return True if a fit may be trained after its charge: of classes of this package only."""
    while type(model) is Pipeline:
        plain = model.memory is None and getattr(model, "transform_input", None) is None
        if not plain or model.verbose:
            return False
        model = model.steps[-1][1]
    if len(params) or not hasattr(model, "_stacked_training") or get_config()["progress"]:
        return False
    known: Any = model._stacked_training()
    return known is not None


class PlannedFit:
    """A fit for :func:`fit_together`; :meth:`finish` carries it out if nothing else did."""

    def __init__(self, model: Any, X: Any, y: Any, params: Mapping[str, Any]) -> None:
        self.model = model
        self.run: Any = None  # while it waits for its training
        self._data = X, y, params
        self._opened: AbstractContextManager[Any] | None = None
        self._seconds: float | None = None
        self._error: Exception | None = None

    def finish(self) -> float:
        """Return how many seconds the fit has taken; raise the error if it has failed."""
        if self._error is not None:
            raise self._error
        if self._seconds is None:
            start, (X, y, params) = time.perf_counter(), self._data
            self.model.fit(X, y, **params)
            self._seconds = time.perf_counter() - start
        return self._seconds

    def begin(self) -> bool:
        """Charge a fit that can wait, and complete any other; return False if it has failed."""
        start, (_, _, params) = time.perf_counter(), self._data
        try:
            if can_wait(self.model, params):
                self._open()
            else:
                self.finish()
        except Exception as error:
            self._error = error
        self._seconds = time.perf_counter() - start
        return self._error is None

    def _open(self) -> None:
        X, y, _ = self._data
        model = self.model
        while type(model) is Pipeline:  # as its fit does
            if len(model.steps) > 1:
                X = model[:-1].fit_transform(X, y)
            model = model.steps[-1][1]
        opened = model._begin_fit(X, y)
        self.run, self._opened = opened.__enter__(), opened

    def close(self, error: BaseException | None, seconds: float = 0.0) -> None:
        """Complete a fit whose run has been trained, or undo it if that has failed."""
        assert self._opened is not None
        assert self._seconds is not None
        opened, self._opened, self.run = self._opened, None, None
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        self._seconds += seconds
        try:
            opened.__exit__(kind, error, trace)
        except Exception as other:
            error = other
        self._error = error if isinstance(error, Exception) else None


def fit_together(fits: Iterable[PlannedFit]) -> None:
    """Charge fits one after the other, train them side by side, and complete them.

    **Guarantees.** Each fit is charged before any of its releases, and its model has the guarantee
    of a single fit. After a fit that is refused or fails before its training, no further fit is
    begun or charged; earlier ones are completed. A fit that fails in training ends no other.

    **Edge cases.** An interrupt undoes all fits that are not complete; their charges remain.
    """
    waiting: list[PlannedFit] = []
    try:
        for fit in fits:
            if not fit.begin():
                break
            if fit.run is not None:
                waiting.append(fit)
        seconds = _train(waiting)
        while waiting:  # the last one first, as its context was entered last
            fit = waiting.pop()
            fit.close(fit.run.error, seconds * fit.run.training.config.n_steps)
    except BaseException as error:
        while waiting:
            waiting.pop().close(error)
        raise


def _train(waiting: list[PlannedFit]) -> float:
    """Train the runs of fits; return the seconds for each of their steps."""
    if not waiting:
        return 0.0
    from ..neural_network._training.side_by_side import train_side_by_side

    start, runs = time.perf_counter(), [fit.run for fit in waiting]
    train_side_by_side(runs)
    return (time.perf_counter() - start) / sum(run.training.config.n_steps for run in runs)
