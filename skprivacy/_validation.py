"""Checks of parameters and arrays that scikit-learn does not make in all versions and cases."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from numbers import Integral, Rational, Real
from typing import Any, NoReturn, TypeGuard, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn import utils

from . import _sklearn
from ._files import as_path

# A larger delta is meaningless for any table. The check does not use the number of records, which
# may be private.
_LARGEST_DELTA = 0.1
_EXTREME = 1e15  # squares and products of smaller numbers neither overflow nor vanish


class Interval(_sklearn.Interval):
    """scikit-learn's range of numbers, without types that give wrong results.

    Refuses booleans and numpy's timedeltas, which pass for integers; numpy's 8 and 16 bit numbers,
    as twice ``np.uint8(200)`` is 144; fractions; and integers of more than 64 bits.
    """

    def is_satisfied_by(self, val: Any) -> bool:
        if isinstance(val, bool | np.timedelta64):
            return False
        if isinstance(val, np.number) and val.itemsize < 4:
            return False
        if isinstance(val, Rational) and (
            val.denominator != 1 or abs(int(val.numerator)) >= 1 << 63
        ):
            return False  # numpy would make an object array of it
        return bool(super().is_satisfied_by(val))


# scikit-learn's own constraint "verbose" fails on numpy's timedeltas.
VERBOSE = [Interval(Integral, 0, None, closed="left"), "boolean"]


class PlainNumbers:
    """Base of dataclasses that converts numpy numbers in their fields to Python's.

    **Guarantees.** No field overflows or rounds: the product of two counts ``np.uint8(200)`` is 64,
    and a guarantee would be stated for 64 releases.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check = cls.__dict__.get("__post_init__")
        if check is not None:
            # mypy allows no method to be put in place of another, even in a class that is new
            cls.__post_init__ = _made_plain_before(check)  # type: ignore[assignment,method-assign]

    def __post_init__(self) -> None:
        _make_plain(self)


def _made_plain_before(check: Callable[[Any], None]) -> Callable[[Any], None]:
    @wraps(check)
    def __post_init__(self: Any) -> None:
        _make_plain(self)
        check(self)

    return __post_init__


def _make_plain(values: Any) -> None:
    for name, field in values.__dataclass_fields__.items():
        if not field.init:
            continue
        value = getattr(values, name)
        plain = tuple(map(_plain, value)) if type(value) is tuple else _plain(value)
        if plain is not value:
            object.__setattr__(values, name, plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.integer) and not isinstance(value, np.timedelta64):
        return int(value)
    return float(value) if isinstance(value, np.floating) else value


def raise_alone(error: Exception) -> NoReturn:
    """Raise an error without its context, which may quote values of the data.

    ``raise error from None`` hides the context in tracebacks, but keeps it in ``__context__``.
    """
    try:
        raise error from None
    finally:
        error.__context__ = None


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return values as a numpy array; errors give the parameter's name and no values."""
    if is_tensor(values):
        _check_tensor(values, name)
    try:
        array = np.asarray(values)
    except ValueError:
        error: Exception = ValueError(
            f"{name} holds sequences of several lengths; expected as many values in each."
        )
    except MemoryError:
        error = ValueError(f"{name} does not fit into memory. Pass fewer values.")
    except (TypeError, RuntimeError):
        error = TypeError(f"{name} cannot be read as an array. Pass a numpy array.")
    else:
        if array.dtype.names:
            raise TypeError(f"{name} is a structured array. Pass pandas.DataFrame({name}).")
        if array.dtype.kind not in "biufcSUOMm":
            raise TypeError(f"{name} has dtype {array.dtype}. Pass {name}.astype(object).")
        return array
    raise error


def _check_tensor(values: Any, name: str) -> None:
    if values.requires_grad or values.device.type != "cpu" or not _is_known_to_numpy(values):
        raise TypeError(
            f"{name} is a tensor that numpy cannot read: its device is {values.device} and its "
            f"dtype {values.dtype}. Pass {name}.detach().cpu().float()."
        )


def _is_known_to_numpy(values: Any) -> bool:
    try:
        values.flatten()[:0].numpy()
    except (RuntimeError, TypeError):  # of a sparse tensor, or of bfloat16
        return False
    return True


def check_delta_is_small(delta: float) -> None:
    """Refuse a delta that is too large for a table of any size."""
    if delta > _LARGEST_DELTA:
        raise ValueError(
            f"delta={delta!r} must be far below 1 / number of records; it exceeds even "
            f"{_LARGEST_DELTA:g}, which would allow publishing a record outright. A usual choice "
            "is 1e-6."
        )


def check_unmasked(values: Any, name: str = "X") -> None:
    """Refuse a masked array: conversion would use the values under the mask."""
    if np.ma.isMaskedArray(values):
        raise ValueError(
            f"{name} is a masked array, whose mask would be ignored. Drop the masked records, or "
            f"pass {name}.filled(numpy.nan): a record with NaN is left out."
        )


def library_of(values: Any) -> str:
    """Return the package that defines the type of an object, such as "polars"."""
    return type(values).__module__.partition(".")[0]


def is_tensor(values: Any) -> bool:
    """Return whether ``values`` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def check_flat(values: Any, name: str = "value") -> None:
    """Refuse anything but a flat array or tensor of float32 or float64, for noise in place."""
    usual = type(values) is np.ndarray and values.ndim == 1 and values.flags.writeable
    if usual and values.dtype in (np.float32, np.float64):  # as twice in each step of a training
        return
    if not (isinstance(values, np.ndarray) or is_tensor(values)):
        raise TypeError(
            f"{name} is of type {type(values).__name__}; expected a flat array of float32 or "
            "float64, to which noise is added in place."
        )
    check_unmasked(values, name)
    if values.ndim != 1 or not _is_float(values.dtype):
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and dtype {values.dtype}; expected a flat "
            f"array of float32 or float64. Flatten it with {name}.reshape(-1) first."
        )
    if isinstance(values, np.ndarray) and not values.flags.writeable:
        raise ValueError(f"{name} is read-only, and noise is added in place. Pass {name}.copy().")
    if is_tensor(values) and values.requires_grad:
        raise ValueError(
            f"{name} is a tensor that requires its gradient, and noise is added in place. Pass "
            f"{name}.detach()."
        )


def _is_float(dtype: Any) -> bool:
    """Return whether a numpy or torch dtype is float32 or float64 in native byte order."""
    if isinstance(dtype, np.dtype):
        return dtype in (np.float32, np.float64)
    return str(dtype) in ("torch.float32", "torch.float64")


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number; infinity and NaN are numbers.

    Fractions are refused: numpy would compute with them as objects.
    """
    if type(value) is float:  # asked in every step of a training
        return True
    if isinstance(value, bool | np.timedelta64):  # numpy registers timedelta64 as an integer
        return False
    return isinstance(value, Real) and not (isinstance(value, Rational) and value.denominator != 1)


def is_whole(value: Any) -> TypeGuard[int]:
    """Return whether ``value`` is an integer of Python or numpy, and not a boolean."""
    return isinstance(value, Integral) and is_number(value)


def number(name: str, value: Any, expected: str) -> None:
    """Raise ValueError unless ``value`` is a real number; infinity and NaN are numbers."""
    if not is_number(value):
        raise ValueError(f"{name}={value!r} must be {expected}.")


def positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number above zero, and not absurdly small or large."""
    if not (is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{name}={value!r} must be a finite number > 0.")
    if not 1 / _EXTREME <= value <= _EXTREME:
        raise ValueError(
            f"{name}={value!r} must be between {1 / _EXTREME:g} and {_EXTREME:g}. Check its unit."
        )


def not_negative(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number of at least zero; infinity is one."""
    if not (is_number(value) and value >= 0):
        raise ValueError(f"{name}={value!r} must be a number >= 0.")


def probability(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number in [0, 1)."""
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must be a number in [0, 1).")


def open_unit(name: str, value: Any, example: float = 0.05) -> float:
    """Return a number in (0, 1) as a float; ValueError for anything else."""
    if not (is_number(value) and 1e-100 <= value < 1):  # below, quantiles underflow
        raise ValueError(
            f"{name}={value!r} must be a number strictly between 0 and 1, for example {example}."
        )
    return float(value)


def whole(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an integer of at least ``least``."""
    if not is_whole(value) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer >= {least}.")
    if value >= 1 << 63:  # beyond numpy's integers, and any loop would be endless
        raise ValueError(f"{name}={value!r} must be below 2**63.")


def storable(name: str, text: str) -> None:
    """Raise ValueError for text that UTF-8 cannot encode, such as a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}={text!r} must be text that can be stored as UTF-8.") from None


def flag(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}={value!r} must be True or False.")


def generator(name: str, seed: Any) -> np.random.Generator:
    """Return numpy's generator for a seed; ValueError for an invalid seed."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}={seed!r} must be an integer >= 0, a generator of numpy's, or None."
        ) from None


def check_random_state(random_state: Any) -> np.random.RandomState:
    """Return the generator of a seed as scikit-learn does; ValueError names the parameter."""
    try:
        return utils.check_random_state(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state={random_state!r} must be an integer from 0 to 2**32 - 1, a "
            "numpy.random.RandomState, or None."
        ) from None


def sequence(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values of a sequence; TypeError, without the value, for anything else."""
    try:
        if not isinstance(values, str | bytes):
            return tuple(values)
    # some objects only look iterable: arrays without dimensions, buffers with several
    except (TypeError, NotImplementedError):
        pass
    raise TypeError(f"{name} must be a sequence, not of type {type(values).__name__}.")


def as_paths(name: str, value: Any) -> list[str]:
    """Return one path, or several, as a list of texts."""
    is_one = isinstance(value, str | bytes | os.PathLike)
    try:
        return [as_path(name, path) for path in ((value,) if is_one else value)]
    except TypeError:
        raise TypeError(f"{name}={value!r} must be a path, or a list of paths.") from None


Function = TypeVar("Function", bound=Callable[..., Any])


def cached_answer(most: int) -> Callable[[Function], Function]:
    """Cache the ``most`` latest answers of a function; unhashable arguments are not cached."""

    def decorate(function: Function) -> Function:
        cached = lru_cache(most)(function)

        @wraps(function)
        def answer(*args: Any, **kwargs: Any) -> Any:
            try:
                return cached(*args, **kwargs)
            except TypeError as error:
                if "unhashable" not in str(error):
                    raise
            return function(*args, **kwargs)  # which raises its own error about the argument

        # Tests clear the cache as they clear an lru_cache. mypy knows no attributes of functions.
        answer.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return cast(Function, answer)

    return decorate


def num_samples(X: Any, name: str = "X") -> int:
    """Return the number of records; TypeError, without the value, if there are none to count."""
    try:
        return int(_sklearn.count_samples(X))
    except TypeError:
        pass
    raise TypeError(f"{name} must hold one value or row for each record; got {type(X).__name__}.")
