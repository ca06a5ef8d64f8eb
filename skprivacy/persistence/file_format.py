"""File format of saved models: a safetensors file of arrays with a JSON header."""

from __future__ import annotations

import errno
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .._files import MAX_MODEL_BYTES, MAX_TEXT_BYTES, as_path, open_file, parse_json, write_file

_KEY = "skprivacy"  # key of the header in the metadata of the file
_REMEDY = "Copy it again, or save the model again with save_model."
_INFINITE = ("inf", "-inf")  # not in JSON: written as {"float": "inf"}


class Arrays:
    """Arrays of an open safetensors file, read on demand; ``read`` collects the names of those."""

    def __init__(self, file: Any, prefix: str = "", read: set[str] | None = None) -> None:
        self._file, self._prefix = file, prefix
        self._names = frozenset(file.keys())
        self._read: set[str] = set() if read is None else read

    def below(self, step: str) -> Arrays:
        """Return the arrays of a step."""
        return Arrays(self._file, f"{self._prefix}{step}.", self._read)

    def take(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return an array of finite float64 numbers; the shape is checked before reading."""
        whole = self._prefix + name
        if whole not in self._names:
            raise ValueError(f"the array {whole!r} is missing")
        found = tuple(self._file.get_slice(whole).get_shape())
        if found != shape:
            raise ValueError(f"the array {whole!r} has the shape {found}, not {shape}")
        array: NDArray[np.float64] = self._get(whole)
        if array.dtype != np.float64:
            raise ValueError(f"the array {whole!r} holds {array.dtype}, not float64")
        return array

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array without reading it; () if the array is missing."""
        whole = self._prefix + name
        return tuple(self._file.get_slice(whole).get_shape()) if whole in self._names else ()

    def all(self) -> dict[str, NDArray]:
        """Return every array with the prefix, by its name without the prefix."""
        cut = len(self._prefix)
        return {n[cut:]: self._get(n) for n in sorted(self._names) if n.startswith(self._prefix)}

    def unread(self) -> list[str]:
        """Return the names of the arrays that were never read."""
        return sorted(self._names - self._read)

    def _get(self, name: str) -> NDArray:
        array = np.array(self._file.get_tensor(name))  # a copy, which can be written to
        if array.dtype.kind not in "fiub":
            raise ValueError(f"the array {name!r} holds {array.dtype}, expected numbers")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"the array {name!r} holds numbers that are not finite")
        self._read.add(name)
        return array


def write(
    path: str | PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray]
) -> None:
    """Write a file; an existing file is replaced as a whole, unless it is a ledger."""
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} of the model is not finite, so the model cannot predict.")
    text = json.dumps(_encode_value(header), allow_nan=False)
    contiguous = {name: np.array(array, order="C") for name, array in arrays.items()}
    write_file(path, save(contiguous, metadata={_KEY: text}))


def digest_of_arrays(arrays: Mapping[str, NDArray]) -> str:
    """Return the SHA-256 of arrays with their names, types and shapes."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.array(arrays[name], order="C")
        found.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        found.update(array.tobytes())
    return found.hexdigest()


@contextmanager
def open_arrays(path: str | PathLike[str]) -> Iterator[tuple[dict[str, Any], Arrays]]:
    """Open a file; yield its header (empty if skprivacy did not write it) and its arrays."""
    name = as_path("path", path)
    _check_header(name)
    try:
        with safe_open(name, framework="np") as file:
            text = (file.metadata() or {}).get(_KEY)
            yield _parse_header(text, name), Arrays(file)
    except OSError as error:  # safetensors omits the file name
        raise OSError(error.errno or errno.EIO, f"cannot be read: {error}", name) from error
    except (SafetensorError, RecursionError) as error:
        raise _make_damage_error(name, error) from error


def header_of(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the header of a file, without its arrays; raises as :func:`open_arrays` does."""
    with open_arrays(path) as (header, _):
        return header


def arrays_digest_of(path: str | PathLike[str]) -> str:
    """Return the digest of the arrays in a file; raises as :func:`open_arrays` does."""
    with open_arrays(path) as (_, arrays):
        return digest_of_arrays(arrays.all())


def _check_header(name: str) -> None:
    """Raise ValueError if a file is not regular, or its outer JSON repeats a key.

    Of two entries with one key, safetensors reads the last and other readers the first.
    """
    with open_file(name, MAX_MODEL_BYTES) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_TEXT_BYTES:
            raise _make_damage_error(
                name, f"its header has {length:,} bytes, at most {MAX_TEXT_BYTES:,} are read"
            )
        text = file.read(length)
    try:
        parse_json(text)
    except ValueError as error:
        raise _make_damage_error(name, error) from error


def _parse_header(text: str | None, name: str) -> dict[str, Any]:
    """Return the header in a file's metadata; empty if it is not a JSON object."""
    try:
        header = _decode_value(parse_json(text)) if text else {}
    except ValueError as error:
        raise _make_damage_error(name, error) from error
    return header if isinstance(header, dict) else {}


def _make_damage_error(name: str, error: Exception | str) -> ValueError:
    return ValueError(f"path={name!r} is damaged or not a safetensors file ({error}). {_REMEDY}")


def _encode_value(value: Any) -> Any:
    """Convert to JSON types: numpy values to Python values, and infinities to their names."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _encode_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_value(inner) for inner in value]
    if isinstance(value, float) and math.isinf(value):
        return {"float": str(value)}
    return value


def _decode_value(value: Any) -> Any:
    """Invert :func:`_encode_value`."""
    if isinstance(value, list):
        return [_decode_value(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["float"] and value["float"] in _INFINITE:
        return float(value["float"])
    return {key: _decode_value(inner) for key, inner in value.items()}
