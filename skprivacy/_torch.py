"""torch is optional: what needs it says how to install it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["torch_is_named"]

_EXTRA = {"torch", "skorch", "safetensors"}


@contextmanager
def torch_is_named() -> Iterator[None]:
    """Name the extra to install where an import within the block finds torch missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise ImportError(
            f"Neural networks need {error.name}, which is not installed: "
            "pip install 'skprivacy[torch]'. For a CPU, install torch itself first, from "
            "https://download.pytorch.org/whl/cpu; the default build brings gigabytes for GPUs.",
            name=error.name,
        ) from error
