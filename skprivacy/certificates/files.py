"""Digest of a model file, and the guarantee that it states."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from .._input import MAX_MODEL_BYTES, open_file
from ..persistence.files import header_of

__all__ = ["digest_of_file", "guarantee_in_file"]


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a regular file of bounded size."""
    found = hashlib.sha256()
    with open_file(path, MAX_MODEL_BYTES) as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def guarantee_in_file(path: Path) -> dict[str, Any] | None:
    """Return the guarantee that a file of ``save_model`` states; None for any other file.

    For a pipeline, this is the joint guarantee of all steps. Only the header is read, and nothing
    is executed.
    """
    try:
        stated = header_of(path).get("privacy")
    except ValueError:
        return None
    return stated if isinstance(stated, dict) else None
