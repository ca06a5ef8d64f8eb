"""Scores on held-out private records: who is held out, and what a record adds to a score.

A record is either fitted on or scored on, never both, and which of the two is drawn independently
of the data. So a neighbour changes either the fits or the scores of a search, not both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor

from .._clones import call_model, group_names
from .._groups import Groups
from .._sklearn import num_samples, safe_indexing
from ..mechanisms import SecureRandom

__all__ = ["HeldOut", "RecordScore", "record_score"]


@dataclass(frozen=True)
class RecordScore:
    """The mean over records of a number within public bounds; higher is better.

    Parameters
    ----------
    name : str
    of_records : callable
        Takes the true and the predicted values, each of shape (n,), and returns a number for each
        record, from 0 to 1. What lies outside is clipped, and NaN counts as 0.
    low, high : float
        What 0 and 1 mean.
    assumption : str, default=""
        What must be true of ``of_records``.

    Notes
    -----
    **Guarantees.** The sum over records has sensitivity 1 under every relation: a record adds
    between 0 and 1, one that contributes nothing adds 0. So has the sum over people, to which each
    adds a combination of their records whose weights add up to 1 at most, exactly: their mean, but
    for 2^-20 of it.
    """

    name: str
    of_records: Callable[[NDArray[Any], NDArray[Any]], Any]
    low: float = 0.0
    high: float = 1.0
    assumption: str = ""

    def sum(self, model: Any, X: Any, y: NDArray[Any], people: Groups | None = None) -> float:
        """Return the sum over the records, or over the people, of what each of them adds."""
        each = self._each(model, X, y)
        if people is None:
            return float(each.sum())
        return float((each * people.exact_shares()).sum())

    def _each(self, model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return what each record adds, from 0 to 1.

        A record on which the model fails adds nothing: a refusal would tell that it is there.
        """
        if num_samples(X) == 0:
            return np.zeros(0)
        try:
            predicted = np.asarray(call_model(model, "predict", X))
        except Exception:  # whatever it is, RuntimeError of torch as well
            if len(y) == 1:
                return np.zeros(1)
            half = len(y) // 2
            parts = np.arange(half), np.arange(half, len(y))
            return np.concatenate(
                [self._each(model, safe_indexing(X, part), y[part]) for part in parts]
            )
        found = np.asarray(self.of_records(y, predicted), dtype=float)
        _check_shape(self.of_records, found, y)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)

    def mean(self, noisy_sum: float, count: float) -> float:
        """Return the score that a noisy sum over ``count`` records stands for."""
        return self.low + (self.high - self.low) * noisy_sum / count


def record_score(scoring: Any, model: Any, target_bounds: Any) -> RecordScore:
    """Return a score by its name.

    Parameters
    ----------
    scoring : str, callable or None
        ``None``: accuracy of classifiers, squared error of regressors.
    model : estimator
    target_bounds : tuple (low, high) or None
        Public bounds of a regressor's target.

    Returns
    -------
    RecordScore

    Raises
    ------
    ValueError
        If it is not a mean over records, or a regressor's target has no public bounds.
    TypeError
        If a function does not take true and predicted values, or returns one number for all.
    """
    if callable(scoring):
        _check_function(scoring)
        return RecordScore(
            getattr(scoring, "__name__", repr(scoring)),
            scoring,
            assumption="the scoring function treats each record by itself",
        )
    if scoring is None and is_classifier(model):
        scoring = "accuracy"
    elif scoring is None and is_regressor(model):
        scoring = "neg_mean_squared_error"
    if scoring == "accuracy":
        return RecordScore("accuracy", _score_accuracy)
    if not isinstance(scoring, str) or scoring not in _ERRORS:
        raise ValueError(
            f"scoring={scoring!r} must be 'accuracy', {', '.join(map(repr, _ERRORS))} or a "
            "function. A score is released with noise, so it has to be a mean over records of "
            "numbers within public bounds: an AUC or a balanced accuracy is none. Pass "
            "scoring(y_true, y_pred), which returns a number from 0 to 1 for each record."
        )
    if target_bounds is None:
        raise ValueError(
            f"target_bounds=None: the score {scoring!r} of a record has no public bounds. Give the "
            "estimator target_bounds=(lower, upper) from public knowledge."
        )
    lower, upper = (float(bound) for bound in target_bounds)
    power = _ERRORS[scoring]
    lowest = -((upper - lower) ** power)
    return RecordScore(scoring, partial(_score_closeness, lower, upper, power), lowest, 0.0)


def _check_function(scoring: Callable[..., Any]) -> None:
    """Refuse what takes something else, before anything is charged, as far as that can be told."""
    try:
        signature(scoring).bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"scoring={scoring!r} must take true and predicted values, (y_true, y_pred), and "
            f"return a number from 0 to 1 for each record: {error}. A scorer of scikit-learn takes "
            "a model; pass a function."
        ) from error
    except ValueError:  # its signature is not known
        pass
    zeros = np.zeros(2)
    try:
        found = np.asarray(scoring(zeros, zeros), dtype=float)
    except Exception:  # it may be made for labels of another type
        return
    _check_shape(scoring, found, zeros)


def _check_shape(scoring: Any, found: NDArray[Any], y: NDArray[Any]) -> None:
    if found.shape != y.shape:
        raise TypeError(
            f"scoring={scoring!r} returned an array of shape {found.shape}; expected a number for "
            "each record. Return an array of the shape of the true values."
        )


_ERRORS = {"neg_mean_absolute_error": 1, "neg_mean_squared_error": 2}


def _score_accuracy(y: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(y == predicted)


def _score_closeness(
    lower: float, upper: float, power: int, y: NDArray[Any], predicted: NDArray[Any]
) -> NDArray[np.float64]:
    true = np.clip(np.asarray(y, dtype=float), lower, upper)
    guess = np.clip(np.asarray(predicted, dtype=float), lower, upper)
    return np.asarray(1 - (np.abs(true - guess) / (upper - lower)) ** power)


@dataclass(frozen=True)
class HeldOut:
    """Records to fit on and records to score on, as arrays or frames like those given.

    Parameters
    ----------
    X_fit, y_fit : array-like
    X_out, y_out : array-like
        The records held out.
    share : float
        The probability with which each record, or each person, was held out.
    expected : float
        A public figure for how many are.
    groups_fit : Series of shape (n_fit,) or None
        Whose record each is that is fitted on, where people are held out.
    people_out : Groups or None
        Whose each record is that is held out.
    """

    X_fit: Any
    y_fit: NDArray[Any]
    X_out: Any
    y_out: NDArray[Any]
    share: float
    expected: float
    groups_fit: Any = None
    people_out: Groups | None = None

    @property
    def unit(self) -> str:
        """What is held out: records, or people by the name of their groups."""
        return "record" if self.people_out is None else self.people_out.unit

    def fit(self, model: Any, fit_params: dict[str, Any]) -> Any:
        """Fit a model on those who are not held out, with their groups if there are any."""
        grouped = (
            {} if self.groups_fit is None else dict.fromkeys(group_names(model), self.groups_fit)
        )
        return model.fit(self.X_fit, self.y_fit, **grouped, **fit_params)

    @classmethod
    def drawn(
        cls,
        X: Any,
        y: NDArray[Any],
        share: float,
        n_records: int | None,
        random: SecureRandom,
        people: Groups | None = None,
    ) -> HeldOut:
        """Draw who is held out, whatever the records are.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, ...)
        share : float
            In (0, 1).
        n_records : int or None
            A public figure for the number of records, if it is private. Then each record has its
            own coin, so that one record more leaves the others where they are. ``None``: the number
            is public, and a subset of fixed size is drawn.
        random : SecureRandom
        people : Groups, default=None
            Whose record each is: then people are drawn and counted, in place of records.

        Raises
        ------
        ValueError
            If the number is public, and a part would be empty.
        """
        n = num_samples(X) if people is None else people.n
        drawn = random.uniform(n)
        if n_records is not None:
            held_out, expected = drawn <= share, share * n_records
        else:
            size = round(share * n)
            if not 0 < size < n:
                raise ValueError(
                    f"test_size={share!r} of {'n_samples' if people is None else people.unit}={n} "
                    "leaves a part without any record. Use more records, or a test_size closer to "
                    "0.5."
                )
            held_out, share, expected = np.zeros(n, bool), size / n, float(size)
            held_out[np.argsort(drawn)[:size]] = True
        of_each = held_out if people is None else held_out[people.codes]
        fit, out = np.flatnonzero(~of_each), np.flatnonzero(of_each)
        parts = safe_indexing(X, fit), y[fit], safe_indexing(X, out), y[out]
        if people is None:
            return cls(*parts, share, expected)
        return cls(*parts, share, expected, people.named(fit), _renumber_groups(people.of(out)))


def _renumber_groups(people: Groups) -> Groups:
    """Return the people of some records, none of whom is without any."""
    found, codes = np.unique(people.codes, return_inverse=True)
    return Groups(codes.astype(np.int64), len(found), people.unit)
