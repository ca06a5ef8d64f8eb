"""A folder that keeps the shadow models of one pool, and knows what each was trained on."""

from __future__ import annotations

import hashlib
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import joblib

from .._input import parse_json, read_file
from .._output import create_file, write_file

__all__ = ["ModelFile", "files_of", "open_folder"]

_PLAN = "pool.json"
_SIZE = 32  # of a digest, in bytes
_AGAIN = "Restore that file, pass another folder, or delete this one."


class ModelFile(NamedTuple):
    """Where a shadow model is kept.

    Attributes
    ----------
    path : Path
    pool : str
        What tells its pool, with the halves that the models are trained on, from any other.

    Notes
    -----
    **Guarantees.** A file is whole or not there. It ends in a digest of the model, the pool and its
    own name, without which it is not used: a damaged model, or one of other halves, would make
    attacks say that nothing leaks. It is for its owner alone, as no guarantee covers the model.
    """

    path: Path
    pool: str

    def exists(self) -> bool:
        return self.path.exists()

    def save(self, model: Any) -> None:
        content = io.BytesIO()
        joblib.dump(model, content)
        with content.getbuffer() as whole:
            digest = self._digest(whole)
        content.write(digest)
        write_file(self.path, content.getbuffer(), 0o600)

    def load(self) -> Any:
        content = memoryview(self.path.read_bytes())
        model, digest = content[:-_SIZE], content[-_SIZE:]
        if digest != self._digest(model):
            raise ValueError(
                f"path={str(self.path.parent)!r} holds {self.path.name!r}, which is damaged or no "
                "model of this pool. Restore it, or delete it: it is then trained again."
            )
        try:
            return joblib.load(io.BytesIO(model))
        except Exception as error:  # whatever other versions of its classes raise
            raise ValueError(
                f"path={str(self.path.parent)!r} holds {self.path.name!r}, which cannot be loaded "
                f"here ({error!r}). Use the versions that it was saved with, or another folder."
            ) from error

    def _digest(self, model: memoryview) -> bytes:
        found = hashlib.blake2b(f"{self.pool} {self.path.name} ".encode(), digest_size=_SIZE)
        found.update(model)
        return found.digest()


def files_of(folder: Path | None, n_shadows: int, pool: str) -> list[ModelFile | None]:
    """Return where each model is kept, if any is."""
    if folder is None:
        return [None] * n_shadows
    return [ModelFile(folder / f"shadow_{i:04d}.joblib", pool) for i in range(n_shadows)]


def open_folder(folder: Path, content: str, seed: int, n_shadows: int) -> int:
    """Return the seed of the pool in the folder, after checking that the pool is the same.

    **Guarantees.** Of several processes that begin a pool at once, all take the seed of one.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    plan = folder / _PLAN
    if not plan.exists():
        if any(folder.glob("shadow_*.joblib")):
            raise ValueError(
                f"path={str(folder)!r} holds shadow models, but not {_PLAN!r}, which says what "
                f"each was trained on: they cannot be used again. {_AGAIN}"
            )
        with suppress(FileExistsError):
            create_file(plan, json.dumps({"content": content, "seed": seed}), 0o600)
    try:
        known = parse_json(read_file(plan))
        content_known, seed_known = known["content"], int(known["seed"])
        if seed_known < 0:
            raise ValueError("its seed is negative")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{plan} is damaged ({error}), so that it is unknown what the shadow models beside it "
            f"were trained on. {_AGAIN}"
        ) from error
    if content_known != content:
        raise ValueError(
            f"path={str(folder)!r} holds shadow models of other records, of another estimator "
            f"or of another number than n_shadows={n_shadows}. Pass another folder, or delete "
            "this one."
        )
    return seed_known
