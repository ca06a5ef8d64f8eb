"""The contract of a mechanism: bounded input, and ``release``, the only way out for private data.

A sensitivity holds for values within public bounds, computed without rounding. Bounds, the unit
ball, target scales and sums that floating point computes exactly follow :class:`Mechanism`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import PlainNumbers, as_array, check_unmasked, is_tensor
from ..accounting import Event
from ..accounting.events import NonPrivateEvent
from ..accounting.guarantee import UNSPECIFIED
from .secure_random import SecureRandom, check_random

GRID_BITS = 16  # binary digits after the point on the grid of quantize
_STEP = 2.0**-GRID_BITS
_ROWS = 1 << 20  # rows whose products sum exactly in float64: 2**20 * 2**32 < 2**53
_AT_A_TIME = 1 << 14  # rows of one slice, which bounds the memory of temporary arrays
_BLOCK = 64  # columns whose squares are added one after another
_INWARDS = 1.0 - 2.0**-40  # outweighs the rounding of a norm, and of the root of a share
_LARGEST = 1e150  # neither a width nor its inverse overflows
_WHOLE = 1 << 53  # float64 represents every integer up to here
_LOG_UNITS = 100.0  # units between the bounds of a target on the logarithmic scale
_RECORDED_RELEASES: ContextVar[list[tuple[Mechanism, Any]] | None] = ContextVar(
    "_ANSWERS", default=None
)


@contextmanager
def record_releases() -> Iterator[list[tuple[Mechanism, Any]]]:
    """Collect mechanisms with copies of their releases in this thread, never with their inputs."""
    collected: list[tuple[Mechanism, Any]] = []
    token = _RECORDED_RELEASES.set(collected)
    try:
        yield collected
    finally:
        _RECORDED_RELEASES.reset(token)


class StatesArithmetic:
    """Base of classes that add noise; each class body states the arithmetic of its noise.

    **Guarantees.** A subclass that states none has "unspecified" noise, even if its base class is
    exact: the subclass may release by other code.
    """

    arithmetic: ClassVar[str] = UNSPECIFIED

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "arithmetic" not in cls.__dict__:
            cls.arithmetic = UNSPECIFIED


class Mechanism(PlainNumbers, StatesArithmetic, ABC):
    """A randomised function of a value that was computed from private data.

    Concrete mechanisms are small frozen dataclasses with a declared ``sensitivity``: the largest
    distance between the ``value`` of two neighbouring data sets, in the norm that the mechanism
    names. All releases of the library pass through :meth:`release`, so that a test can record the
    inputs and replay the outputs.

    ``arithmetic`` describes the noise. Each class states its own: ``"exact"`` only if its proof
    covers every bit of a release. Without a statement it is ``"unspecified"``.
    """

    sensitivity: float

    @property
    @abstractmethod
    def event(self) -> Any:
        """Accounting event of one release."""

    def release(self, value: Any, random: SecureRandom) -> Any:
        """Return a noisy version of ``value``; floating-point arrays may be changed in place.

        Parameters
        ----------
        value : object
            Input of the mechanism, such as an array.
        random : SecureRandom
            The source of all noise.

        Returns
        -------
        object
            The released value; an array for an array.
        """
        check_random(random)
        answer = self._release(value, random)
        if (collected := _RECORDED_RELEASES.get()) is not None:
            here = answer.cpu().numpy() if is_tensor(answer) else answer
            collected.append((self, np.array(here, copy=True)))
        return answer

    @abstractmethod
    def _release(self, value: Any, random: SecureRandom) -> Any: ...


class NoiseMechanism(Mechanism):
    """Mechanism that adds noise of ``noise_multiplier`` times its sensitivity."""

    noise_multiplier: float

    @property
    def event(self) -> Event:
        """Accounting event of one release; ``NonPrivateEvent()`` without noise."""
        return self._event() if self.noise_multiplier else NonPrivateEvent()

    @abstractmethod
    def _event(self) -> Event: ...


def as_nonexpanding_float64(value: Any, name: str = "value") -> NDArray[np.float64]:
    """Return numbers as float64, so that rounding moves no two of them further apart.

    Integers beyond 2**53 are clipped: float64 would round two that differ by 1 to numbers that
    differ by 256 or more, which no sensitivity accounts for. ValueError is raised for masked
    arrays, and for types that float64 cannot hold without rounding.
    """
    check_unmasked(value, name)
    given = as_array(name, value)
    if given.dtype.kind == "u":
        given = np.minimum(given.astype(np.uint64), np.uint64(_WHOLE))
    elif given.dtype.kind in "ib":
        given = np.clip(given.astype(np.int64), np.int64(-_WHOLE), np.int64(_WHOLE))
    elif given.dtype.kind == "O" and all(isinstance(v, int) for v in given.flat):
        given = np.array([min(max(v, -_WHOLE), _WHOLE) for v in given.flat]).reshape(given.shape)
    elif given.dtype.kind != "f" or given.dtype.itemsize > 8:
        raise ValueError(
            f"{name} has dtype {given.dtype}; expected real numbers in double precision, or "
            "integers. Convert each record before summing them."
        )
    return given.astype(np.float64)


def check_bounds(
    name: str, bounds: Any, size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lower and upper bounds, each of shape (size,), from a pair of numbers or sequences.

    **Edge cases.** A number holds for all features. A sequence of length 1 does not: for several
    features it is more likely a mistake, and a wrong bound silently costs accuracy. With two
    features, two sequences of two numbers could also be one pair per feature. They are refused,
    unless they are a tuple of two arrays, like a fitted model's ``bounds_``.
    """
    if size == 2 and not are_arrays(bounds) and could_be_pairs(bounds, size):
        raise ambiguous_bounds_error(name, bounds)
    try:
        lower, upper = (_broadcast_bound(bound, size) for bound in bounds)
    except (TypeError, ValueError, OverflowError):
        raise _invalid_bounds_error(name, bounds, size) from None
    for bound in (lower, upper):
        if not (np.abs(bound) <= _LARGEST).all():
            raise _invalid_bounds_error(name, bounds, size)
    if not ((lower == upper) | (upper - lower >= 1 / _LARGEST)).all():
        raise _invalid_bounds_error(name, bounds, size)
    return lower, upper


def _broadcast_bound(bound: Any, size: int) -> NDArray[np.float64]:
    values = np.asarray(bound, np.float64)
    if values.shape not in ((), (size,)):
        raise ValueError
    return np.full(size, values)


def are_arrays(bounds: Any) -> bool:
    """Return True for a tuple of arrays, which can only mean (lower, upper)."""
    return isinstance(bounds, tuple) and all(isinstance(bound, np.ndarray) for bound in bounds)


def could_be_pairs(bounds: Any, size: int) -> bool:
    """Return True if bounds could be one pair per feature, different from (lower, upper)."""
    try:
        pairs = np.asarray(bounds, np.float64)
    except (TypeError, ValueError, OverflowError):  # ragged or not numeric
        return False
    if pairs.shape != (size, 2) or np.array_equal(pairs, pairs.T):
        return False
    return bool((pairs[:, 0] < pairs[:, 1]).all())


def ambiguous_bounds_error(name: str, bounds: Any) -> ValueError:
    """Return the error for ambiguous bounds; it shows how to write either meaning."""
    return ValueError(
        f"{name}={bounds!r} is ambiguous for two features: (lower, upper), or one pair per "
        "feature. Write (numpy.array(lower), numpy.array(upper)), or convert pairs by "
        "tuple(numpy.transpose(pairs))."
    )


def _invalid_bounds_error(name: str, bounds: Any, size: int) -> ValueError:
    try:
        shown = repr(bounds)
    except RecursionError:
        shown = "lists nested too deeply to be shown"
    return ValueError(
        f"{name}={shown} must be a pair (lower, upper) with lower <= upper: two finite numbers "
        f"for all features, or two sequences of length {size}, one number per feature. "
        f"Magnitudes must not exceed {_LARGEST:g}, and lower and upper must be equal or at least "
        f"{1 / _LARGEST:g} apart."
        + (
            " Convert a list of one pair per feature by tuple(numpy.transpose(pairs))."
            if could_be_pairs(bounds, size)
            else ""
        )
    )


def row_slices(n: int) -> Iterator[slice]:
    """Yield slices of the rows 0 .. n-1, so that temporary arrays stay small."""
    return (slice(start, start + _AT_A_TIME) for start in range(0, n, _AT_A_TIME))


def quantize(
    values: NDArray[np.float64], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Round towards zero to multiples of 2**-16, so that no norm grows."""
    values = np.multiply(values, 1.0 / _STEP, out=out)
    np.trunc(values, out=values)
    values *= _STEP
    return values


def row_norms(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the L2 norm of each row: a function of that row alone, to the last bit."""
    # each sum runs over one contiguous row; einsum would split a single row above 8,192 numbers
    squares = np.square(rows, order="C")
    return np.asarray(np.sqrt(squares.sum(axis=1)))


def _sum_squares(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of squares of each record, from an array with a row for each column.

    The order of the additions is the same for any number of records, on every processor: by
    columns, in blocks. The sum of p squares takes at most 64 + p / 64 roundings one after another,
    which ``_INWARDS`` outweighs for p up to half a million.
    """
    total, square = np.zeros(columns.shape[1]), np.empty(columns.shape[1])
    for start in range(0, len(columns), _BLOCK):
        own = np.zeros(columns.shape[1])
        for column in columns[start : start + _BLOCK]:
            own += np.square(column, out=square)
        total += own
    return total


def exact_product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``a.T @ b`` without rounding, for quantised numbers of magnitude at most 1.

    **Guarantees.** Every product is a multiple of 2**-32 and every partial sum below 2**20. So
    float64 holds all of them, for any order of summation: neighbours differ by exactly one record's
    product. Above 2**20 rows, partial results are added in float64. This is exact up to two million
    rows, and within 2**-53 times the number of rows beyond, far below the margin of the mechanisms.
    """
    total = np.zeros((a.shape[1], b.shape[1]))
    for start in range(0, len(a), _ROWS):
        total += a[start : start + _ROWS].T @ b[start : start + _ROWS]
    return total


def exact_map(
    rows: NDArray[np.float64], matrix: NDArray[np.float64], bits: int
) -> NDArray[np.float64]:
    """Return ``rows @ matrix`` without rounding, for a public matrix that is rounded first.

    ``rows`` are multiples of 2**-bits, of norm below 2. Each column of ``matrix`` is rounded
    towards zero, to 52 - bits binary digits of its norm.

    **Guarantees.** A row of the result is a function of that row and of ``matrix``, to the last
    bit, on every processor and with any number of threads. Columns are scaled by a power of two to
    norms below 1 and rounded to multiples of 2**(bits - 52). Every product is then a multiple of
    2**-52. Every partial sum is below 2 by Cauchy-Schwarz, so float64 holds it exactly, for any
    order of summation.
    """
    sizes = np.frexp(row_norms(matrix.T))[1]
    step = 2.0 ** (bits - 52)
    columns = np.trunc(np.ldexp(matrix, -sizes) / step) * step
    return np.asarray(np.ldexp(rows @ columns, sizes))


@dataclass(frozen=True)
class UnitBall:
    """Maps records with public bounds into the unit ball by weighting them.

    A feature is clipped to its bounds and scaled to [-1, 1]. A record of norm above ``radius`` gets
    a weight below 1, which also multiplies its target. The fit of a linear model then stays
    unbiased, whereas shrinking the features alone would bias it. ``intercept`` is the value of a
    constant column, or 0 for none.

    **Guarantees.** Each row is a function of one record, has norm at most 1 exactly (not up to
    rounding) and lies on a grid of 2**-16.

    **Edge cases.** A record with NaN gets weight 0 and contributes nothing. Infinity is clipped. A
    feature with equal bounds becomes 0.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    radius: float
    intercept: float

    @property
    def norm(self) -> float:
        """Largest norm of a record, constant column included; records are divided by it."""
        return math.hypot(self.radius, self.intercept)

    @property
    def size(self) -> int:
        """Number of columns of the result."""
        return len(self.lower) + (self.intercept > 0)

    @property
    def l1_radius(self) -> float:
        """Largest L1 norm of a row, reached by equal features."""
        d = len(self.lower)
        constant = min(self.intercept / self.norm, 1.0 / math.sqrt(d + 1))
        return math.sqrt(d * (1.0 - constant**2)) + constant

    def transform(
        self, X: NDArray, shares: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the weighted rows (n_samples, size), and their weights (n_samples,).

        The rows have the memory order of ``X``.

        ``shares`` in [0, 1] say how much each record counts in sums of products of two: its weight
        is multiplied by the root of its share. None means 1.

        **Guarantees.** A record of share s becomes sqrt(s) times a possible row of a record without
        shares, and its weight is at most sqrt(s). Its row adds s times that row's contribution to a
        sum of products with itself, or with a target of its weight. So records whose shares add up
        to at most 1 add a convex combination of possible contributions of single records and of
        none. It lies within every norm ball that contains those.
        """
        order: Any = "C" if X.flags.c_contiguous else "F"
        rows, weights = np.empty((len(X), self.size), order=order), np.empty(len(X))
        roots = np.ones(len(X)) if shares is None else np.sqrt(shares)
        for part in row_slices(len(X)):
            if order == "F":
                weights[part] = self._write(X[part], roots[part], rows[part].T)
            else:
                columns = np.empty((self.size, len(rows[part])))
                weights[part] = self._write(X[part], roots[part], columns)
                np.copyto(rows[part], columns.T)
        return rows, weights

    def _write(
        self, X: NDArray, roots: NDArray[np.float64], columns: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Write the weighted rows into ``columns``, (size, n_samples), and return their weights."""
        d, middle = len(self.lower), (np.asarray(self.lower) + np.asarray(self.upper)) / 2
        features = columns[:d]
        lower, upper = np.array([self.lower, self.upper])[:, :, None]
        np.clip(X.T, lower, upper, out=features)
        features -= middle[:, None]
        features *= (self._scale() / self.norm)[:, None]
        columns[d:] = self.intercept / self.norm
        norms = _sum_squares(columns)
        np.sqrt(norms, out=norms)
        weights = _INWARDS * roots / np.maximum(norms, 1.0)
        if (missing := np.isnan(norms)).any():
            columns[:, missing], weights[missing] = 0.0, 0.0
        columns *= weights
        quantize(columns, out=columns)
        return weights

    def _scale(self) -> NDArray[np.float64]:
        width = np.asarray(self.upper) - np.asarray(self.lower)
        return np.divide(2.0, width, out=np.zeros_like(width), where=width > 0)

    def coefficients(
        self, solution: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Turn weights of the rows, (size, n_outputs), into ``coef`` and ``intercept`` of X."""
        d = len(self.lower)
        coef = solution[:d] * (self._scale() / self.norm)[:, None]
        middle = (np.asarray(self.lower) + np.asarray(self.upper)) / 2
        constant = solution[d] * (self.intercept / self.norm) if self.intercept else 0.0
        return coef.T, constant - middle @ coef


@dataclass(frozen=True)
class TargetScale:
    """Maps targets with public bounds to [-1, 1] and predictions back.

    On the scale "linear", the scaled target is y itself. On "log", it is
    log(1 + (y - lower) / unit) with unit = (upper - lower) / 100, from 0 to log(101). A change of
    the unit or of the origin of y changes neither the model nor its noise.

    **Guarantees.** The map is public and monotone, and every target is in [-1, 1] after it, on
    either scale. So sensitivities that hold for targets in [-1, 1] do not depend on the scale.
    """

    lower: float
    upper: float
    name: str = "linear"

    @property
    def limits(self) -> tuple[float, float]:
        """Scaled values of the two bounds."""
        if self.name == "log":
            return 0.0, math.log1p(_LOG_UNITS)
        return self.lower, self.upper

    def to_unit(self, y: NDArray) -> NDArray:
        """Clip targets to their bounds, scale them, and map them linearly to [-1, 1]."""
        scaled = np.clip(y, self.lower, self.upper)
        if self.name == "log":
            scaled = np.log1p((scaled - self.lower) / (self.upper - self.lower) * _LOG_UNITS)
        low, high = self.limits
        return np.asarray(np.clip((scaled - low) * (2.0 / (high - low)) - 1.0, -1.0, 1.0))

    def from_unit(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the targets, within their bounds, that ``to_unit`` maps to these values."""
        low, high = self.limits
        return self.from_scaled(low + (values + 1.0) * ((high - low) / 2.0))

    def from_scaled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert scaled values back to targets within their bounds."""
        values = np.clip(values, *self.limits)
        if self.name == "log":
            width = self.upper - self.lower
            values = self.lower + np.expm1(values) * (width / _LOG_UNITS)
        return np.asarray(np.clip(values, self.lower, self.upper))
