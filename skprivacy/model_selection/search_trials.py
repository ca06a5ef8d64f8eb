"""Settings, held-out records and scores of the trials of a private search.

Each record is either fitted on or scored on, drawn independently of the data. So a neighbour
changes either the fits or the scores of a search, never both. :class:`Candidates` rehearses the
guarantee of each setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid

from .._clones import call_model, group_names
from .._groups import Groups
from .._sklearn import safe_indexing
from .._validation import num_samples
from ..accounting import PrivacyGuarantee
from ..audit import claim_of
from ..base import PrivateEstimatorMixin, rehearse_fit
from ..mechanisms import SecureRandom
from ..preprocessing.pipeline import is_plain_pipeline

_PRIVACY_PARAMETERS = (
    "budget", "delta", "epsilon", "n_records", "noise_multiplier", "noise_seed", "relation",
)  # fmt: skip


def list_settings(grid: Any) -> list[dict[str, Any]]:
    """Return the settings that trials draw from."""
    try:
        found = list(ParameterGrid(grid))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"param_grid={grid!r} must be a dict, or a list of them, of parameters with lists of "
            f"values: {error}"
        ) from None
    for name in sorted({name for params in found for name in params}):
        if name.rpartition("__")[2] in _PRIVACY_PARAMETERS:
            raise ValueError(
                f"param_grid varies {name!r}, but all trials must have one guarantee. "
                "Remove it: the search sets epsilon and delta of its trials."
            )
    if not found or not any(found):
        raise ValueError(f"param_grid={grid!r} varies nothing. Pass values of a parameter.")
    return found


@dataclass(frozen=True)
class Candidates:
    """Settings of one model or pipeline, each of which can be fitted at any epsilon and delta."""

    estimator: Any
    prefix: str  # of the names of the private step's parameters
    settings: list[dict[str, Any]]
    fixed: dict[str, Any]  # further parameters of the private step

    def model(self, number: int, epsilon: float, delta: float, noise_seed: Any = None) -> Any:
        """Return an unfitted model with the setting of this number."""
        params = {k: clone(v, safe=False) for k, v in self.settings[number].items()}
        model = clone(self.estimator).set_params(**params)
        known = model.get_params()
        ours = {"epsilon": epsilon, "delta": delta, "budget": None, "noise_seed": noise_seed}
        ours = {self.prefix + k: v for k, v in (ours | self.fixed).items()}
        # A progress bar would reveal the number of trials.
        quiet = {k: type(v)(0) for k, v in known.items() if k.rpartition("__")[2] == "verbose"}
        return model.set_params(**{k: v for k, v in (ours | quiet).items() if k in known})

    def private_part(self, model: Any) -> Any:
        """Return the private step of a model."""
        name = self.prefix.removesuffix("__")
        return model.get_params()[name] if name else model

    def check(self) -> None:
        """Refuse a model whose fit cannot be rehearsed."""
        for number in range(len(self.settings)):
            model = last = self.model(number, 1.0, 0.0)
            while is_plain_pipeline(last):
                last = last.steps[-1][1]
            part = self.private_part(model)
            if part is not last or not isinstance(part, PrivateEstimatorMixin):
                raise TypeError(
                    f"estimator={self.estimator!r} must be a private estimator of skprivacy, or a "
                    "Pipeline whose last step is one: what a fit of anything else would guarantee "
                    "is not known beforehand. Put the search inside the wrapper instead."
                )
            if getattr(part, "_processes", None) is not None:
                raise ValueError(
                    "The estimator trains in several processes, which would draw different trials "
                    "and keep different best models. Train it in one process."
                )
            if self.prefix + "server" in model.get_params():
                raise ValueError(
                    "The estimator trains over parties, whose server and parties see the rounds of "
                    "every trial, but all trials except the best must stay secret. Fit it with "
                    "settings that are chosen beforehand."
                )

    def claims(
        self, epsilon: float, delta: float, data: HeldOut, fit_params: dict[str, Any]
    ) -> list[PrivacyGuarantee]:
        """Rehearse a fit of each setting; refuse unproved claims, and mixed relations or units."""
        found = [
            self._claim(self.model(number, epsilon, delta), data, fit_params)
            for number in range(len(self.settings))
        ]
        for what in ("relation", "unit"):
            values = sorted({getattr(claim, what) for claim in found})
            if len(values) > 1:
                raise ValueError(
                    f"param_grid leads to guarantees of more than one {what}: {values}. "
                    "They are never added up. Remove the parameter that decides about it."
                )
        return found

    def _claim(self, model: Any, data: HeldOut, fit_params: dict[str, Any]) -> PrivacyGuarantee:
        stated = rehearse_fit(lambda: data.fit(model, fit_params))
        self.private_part(model).privacy_ = stated  # for claim_of, as if it were fitted
        claim = claim_of(model, data.X_fit)
        if claim.guarantee is None or claim.guarantee.kind != "proved":
            gaps = "; ".join(f"step {k!r}: {why}" for k, why in claim.uncovered.items())
            raise ValueError(
                f"A trial would have no proved guarantee ({gaps or claim.reason or stated.kind}). "
                "Leave out what learns from private records, or use SchemaTransformer for it."
            )
        if claim.guarantee.event != stated.event:
            raise ValueError(
                f"estimator={self.estimator!r} holds a step that was fitted privately beforehand. "
                "Its cost does not depend on who is held out, so the search cannot cover it: "
                "transform the records before the search, and add both costs."
            )
        unit = claim.guarantee.unit
        if data.unit == "record" and unit != "record":
            raise ValueError(
                f"The estimator protects units of {unit!r}, of which one may add to the scores of "
                "many records. Pass their groups to fit of the search, or search with an estimator "
                "that protects records."
            )
        if unit != data.unit:
            raise ValueError(
                f"The search is given groups, values of {data.unit!r}, and a fit of the estimator "
                f"would protect units of {unit!r}. Search with an estimator whose fit takes groups."
            )
        return claim.guarantee


@dataclass(frozen=True)
class RecordScore:
    """The mean over records of a number within public bounds; higher is better.

    ``of_records`` takes the true and the predicted values and returns a number from 0 to 1 for each
    record. Other numbers are clipped, and NaN counts as 0. ``low`` and ``high`` are the scores at 0
    and 1.

    **Guarantees.** The sum over records has sensitivity 1 under every relation: a record adds
    between 0 and 1, and a record without contribution adds 0. The sum over groups has sensitivity
    1, too: the weights of a group's records add up to at most 1, exactly. The result is their mean
    up to a factor of 1 - 2^-20.
    """

    name: str
    of_records: Callable[[NDArray[Any], NDArray[Any]], Any]
    low: float = 0.0
    high: float = 1.0
    assumption: str = ""

    def sum(self, model: Any, X: Any, y: NDArray[Any], groups: Groups | None = None) -> float:
        """Return the sum of the scores of records, weighted within groups if there are any."""
        each = self._score_each(model, X, y)
        if groups is None:
            return float(each.sum())
        return float((each * groups.exact_shares()).sum())

    def _score_each(self, model: Any, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the score of each record, from 0 to 1.

        A record on which the model fails scores 0: an error would reveal that it is there.
        """
        if num_samples(X) == 0:
            return np.zeros(0)
        try:
            predicted = np.asarray(call_model(model, "predict", X))
        except Exception:  # any error, such as torch's RuntimeError
            if len(y) == 1:
                return np.zeros(1)
            half = len(y) // 2
            parts = np.arange(half), np.arange(half, len(y))
            return np.concatenate(
                [self._score_each(model, safe_indexing(X, part), y[part]) for part in parts]
            )
        found = np.asarray(self.of_records(y, predicted), dtype=float)
        _check_shape(self.of_records, found, y)
        return np.clip(np.nan_to_num(found, nan=0.0), 0.0, 1.0)

    def mean(self, noisy_sum: float, count: float) -> float:
        """Convert a noisy sum over ``count`` records to a mean score."""
        return self.low + (self.high - self.low) * noisy_sum / count


def record_score(scoring: Any, model: Any, target_bounds: Any) -> RecordScore:
    """Return the score for ``scoring``; None means accuracy, or squared error for regressors."""
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
        return RecordScore("accuracy", lambda y, predicted: np.asarray(y == predicted))
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
    """Refuse a function of another signature or shape of result, before anything is charged."""
    try:
        signature(scoring).bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"scoring={scoring!r} must take true and predicted values, (y_true, y_pred), and "
            f"return a number from 0 to 1 for each record: {error}. A scorer of scikit-learn takes "
            "a model; pass a function."
        ) from error
    except ValueError:  # a function without a readable signature
        pass
    zeros = np.zeros(2)
    try:
        found = np.asarray(scoring(zeros, zeros), dtype=float)
    except Exception:  # it may need labels of another type
        return
    _check_shape(scoring, found, zeros)


def _check_shape(scoring: Any, found: NDArray[Any], y: NDArray[Any]) -> None:
    if found.shape != y.shape:
        raise TypeError(
            f"scoring={scoring!r} returned an array of shape {found.shape}; expected a number for "
            "each record. Return an array of the shape of the true values."
        )


_ERRORS = {"neg_mean_absolute_error": 1, "neg_mean_squared_error": 2}


def _score_closeness(
    lower: float, upper: float, power: int, y: NDArray[Any], predicted: NDArray[Any]
) -> NDArray[np.float64]:
    true = np.clip(np.asarray(y, dtype=float), lower, upper)
    guess = np.clip(np.asarray(predicted, dtype=float), lower, upper)
    return np.asarray(1 - (np.abs(true - guess) / (upper - lower)) ** power)


@dataclass(frozen=True)
class HeldOut:
    """Records to fit on and records to score on, as arrays or frames like those given.

    With groups, whole groups are held out.
    """

    X_fit: Any
    y_fit: NDArray[Any]
    X_out: Any
    y_out: NDArray[Any]
    share: float  # probability with which a record, or a group, was held out
    expected: float  # public figure for the number held out
    groups_fit: Any = None
    groups_out: Groups | None = None

    @property
    def unit(self) -> str:
        """Unit that is held out: "record", or the name of the groups."""
        return "record" if self.groups_out is None else self.groups_out.unit

    def fit(self, model: Any, fit_params: dict[str, Any]) -> Any:
        """Fit a model to the records that are not held out, with their groups if there are any."""
        grouped = (
            {} if self.groups_fit is None else dict.fromkeys(group_names(model), self.groups_fit)
        )
        return model.fit(self.X_fit, self.y_fit, **grouped, **fit_params)

    @classmethod
    def draw(
        cls,
        X: Any,
        y: NDArray[Any],
        share: float,
        n_records: int | None,
        random: SecureRandom,
        groups: Groups | None = None,
    ) -> HeldOut:
        """Draw the held-out records, or groups, independently of the data.

        With ``n_records``, the number of records is private. Each record then has its own coin, so
        that adding a record does not move the others. Without it the number is public, and a subset
        of fixed size is drawn.
        """
        n = num_samples(X) if groups is None else groups.n
        drawn = random.uniform(n)
        if n_records is not None:
            held_out, expected = drawn <= share, share * n_records
        else:
            size = round(share * n)
            if not 0 < size < n:
                raise ValueError(
                    f"test_size={share!r} of {'n_samples' if groups is None else groups.unit}={n} "
                    "leaves a part without any record. Use more records, or a test_size closer to "
                    "0.5."
                )
            held_out, share, expected = np.zeros(n, bool), size / n, float(size)
            held_out[np.argsort(drawn)[:size]] = True
        of_each = held_out if groups is None else held_out[groups.codes]
        fit, out = np.flatnonzero(~of_each), np.flatnonzero(of_each)
        parts = safe_indexing(X, fit), y[fit], safe_indexing(X, out), y[out]
        if groups is None:
            return cls(*parts, share, expected)
        found, codes = np.unique(groups.codes[out], return_inverse=True)  # each has some records
        left_out = Groups(codes.astype(np.int64), len(found), groups.unit)
        return cls(*parts, share, expected, groups.to_series(fit), left_out)
