"""Folder of the shadow models of one pool, with a check of what each was trained on."""

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

__all__ = ["ModelFile", "list_model_files", "open_folder"]

_PLAN = "pool.json"
_SIZE = 32  # of a digest, in bytes
_RESTORE = "Restore that file, pass another folder, or delete this one."


class ModelFile(NamedTuple):
    """File of one shadow model.

    **Guarantees.** A file is complete or absent. It ends in a digest of the model, the pool and the
    file name, which ``load`` checks: a damaged model, or one trained on other halves, would make
    attacks report that nothing leaks. Only its owner may read it, as no guarantee covers the model.
    """

    path: Path
    pool: str  # identifies the pool, including the halves that its models are trained on

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
                f"path={str(self.path.parent)!r} holds {self.path.name!r}, which is damaged or not "
                "a model of this pool. Restore it, or delete it to train it again."
            )
        try:
            return joblib.load(io.BytesIO(model))
        except Exception as error:  # other versions of its classes may raise any exception
            raise ValueError(
                f"path={str(self.path.parent)!r} holds {self.path.name!r}, which cannot be loaded "
                f"({error!r}). Use the package versions that saved it, or another folder."
            ) from error

    def _digest(self, model: memoryview) -> bytes:
        found = hashlib.blake2b(f"{self.pool} {self.path.name} ".encode(), digest_size=_SIZE)
        found.update(model)
        return found.digest()


def list_model_files(folder: Path | None, n_shadows: int, pool: str) -> list[ModelFile | None]:
    """Return the file of each model; None without a folder."""
    if folder is None:
        return [None] * n_shadows
    return [ModelFile(folder / f"shadow_{i:04d}.joblib", pool) for i in range(n_shadows)]


def open_folder(folder: Path, content: str, seed: int, n_shadows: int) -> int:
    """Return the seed of the pool in the folder, after checking that the pool is the same.

    **Guarantees.** Several processes that create a pool at once all use the same seed.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    plan = folder / _PLAN
    if not plan.exists():
        if any(folder.glob("shadow_*.joblib")):
            raise ValueError(
                f"path={str(folder)!r} holds shadow models, but not {_PLAN!r}, which records what "
                f"each was trained on. {_RESTORE}"
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
            f"{plan} is damaged ({error}), so it is unknown what the shadow models in its folder "
            f"were trained on. {_RESTORE}"
        ) from error
    if content_known != content:
        raise ValueError(
            f"path={str(folder)!r} holds shadow models of other records, of another estimator, or "
            f"of a pool with other n_shadows than {n_shadows}. Pass another folder, or delete this "
            "one."
        )
    return seed_known
