"""What a model file is, and what it says of itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

__all__ = ["digest_of_file", "guarantee_in_file"]

_MOST = 1 << 24  # bytes of a safetensors header that are looked at


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def guarantee_in_file(path: Path) -> dict[str, Any] | None:
    """Return the guarantee that a file of ``save_model`` states; None for any other file.

    Only the header is read, and nothing is executed. It takes no torch.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        text = file.read(size) if 0 < size <= _MOST else b""
    try:
        facts = json.loads(json.loads(text)["__metadata__"]["skprivacy"])
        return dict(facts["privacy"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
