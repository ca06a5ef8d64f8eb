"""Store of the results of a sweep's fits in a folder, from which an interrupted sweep resumes."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
from sklearn.base import clone

from .._config import warn_caller
from .._files import create_file, parse_json, read_file, write_file
from ..accounting import PrivacyBudget, PrivacyGuarantee
from ..attacks import ShadowPool
from ..attacks.record_tables import as_records, fingerprints
from ..audit.inspection.claims import Claim
from ..exceptions import PrivacyWarning
from .sweep_records import Records

_FORMAT = 2
_PLAN = "sweep.json"
_AGAIN = "Restore it, pass another folder, or delete this one: all of its fits are then made again."


@dataclass(frozen=True)
class ResultStore:
    """A folder with the results of finished fits.

    **Guarantees.** Only results are written: scores, attacks and claims, never a model. Files are
    written atomically and checked by a digest. Only their owner can read them, as no guarantee
    covers their content. The folder's plan identifies the sweep by digests, and refuses others.
    """

    folder: Path
    plan: str  # identifies the sweep

    @classmethod
    def at(cls, path: Any, plan: Mapping[str, Any]) -> ResultStore:
        """Open a folder for the sweep that ``plan`` describes; refuse another sweep's."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"path={str(folder)!r} is a file. Pass the name of a folder.")
        digests = {what: _hash_value(what, value) for what, value in plan.items()}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / _PLAN
        if not file.exists():
            if any(folder.glob("*.json")):
                raise ValueError(
                    f"path={str(folder)!r} holds results, but not {_PLAN!r}, which says what they "
                    f"belong to. {_AGAIN}"
                )
            with suppress(FileExistsError):  # of another process that began at the same moment
                create_file(file, _add_digest(file, {"format": _FORMAT, "digests": digests}), 0o600)
        known = _read_json(file)
        if known.get("format") != _FORMAT or not isinstance(known.get("digests"), dict):
            raise ValueError(f"{file} is not the plan of a sweep that this version knows. {_AGAIN}")
        if known["digests"] != digests:
            others = [what for what in digests if digests[what] != known["digests"].get(what)]
            raise ValueError(
                f"path={str(folder)!r} holds the results of another sweep: {', '.join(others)} "
                "differ. Pass another folder, or the arguments of that sweep; only epsilons, "
                "baselines and refit may change."
            )
        return cls(folder, repr(sorted(digests.items())))

    def file(self, *fit: Any) -> Path:
        """Return the file for the result of a fit, which plain values ``fit`` identify."""
        name = hashlib.blake2b(repr((self.plan, *fit)).encode(), digest_size=12).hexdigest()
        return self.folder / f"fit_{name}.json"

    def claims_beside(self, files: Iterable[Path | None]) -> list[Claim]:
        """Return the claims of all models in the folder, with refits, beside those in ``files``."""
        beside = sorted(set(self.folder.glob("*fit_*.json")) - {f for f in files if f})
        return [row["claim"] for row in map(_load_row, beside) if "claim" in row]

    def keep_refit(self, claim: Claim) -> None:
        """Record the claim of a model trained on all records."""
        store_result({"claim": claim}, self.folder / f"refit_{uuid.uuid4().hex}.json")


def store_result(row: dict[str, Any], file: Path) -> None:
    """Write the result of a fit; only warn if that fails, since the fit is done and charged."""
    content = {k: _claim_to_dict(v) if isinstance(v, Claim) else v for k, v in row.items()}
    try:
        write_file(file, _add_digest(file, content), 0o600)
    except OSError as error:
        warn_caller(
            f"The result of a fit could not be kept: {error}. This sweep has it; one that goes on "
            "from the folder would make, and charge, that fit again.",
            PrivacyWarning,
        )


def load_result(file: Path) -> dict[str, Any] | None:
    """Return the stored result of a fit, or None."""
    return _load_row(file) if file.exists() else None


def describe_sweep(
    sweep: Any,
    models: Mapping[str, Any],
    params: list[str],
    records: Mapping[str, Records],
    cv: list[list[Any]],
) -> dict[str, Any]:
    """Return the facts that determine a sweep's results; ``cv`` has the splits as drawn twice."""
    splits, again = (joblib.hash(drawn) for drawn in cv)
    if splits != again:
        raise ValueError(
            f"cv={sweep.cv!r} splits differently each time, so that no result could be used again. "
            "Pass random_state=0 to it, or set path=None."
        )
    first = next(iter(records.values()))
    known = [
        _describe_model(model, param) for model, param in zip(models.values(), params, strict=True)
    ]
    attack = {} if sweep.attack is None else sweep.attack.get_params(deep=False)
    if isinstance(pool := attack.get("pool"), ShadowPool):
        attack["pool"] = (pool.n_shadows, pool.random_state, pool.stacked)
    return {
        "records": (fingerprints(as_records(first.X)), first.y),
        "estimators": (list(models), params, [bare for bare, _ in known]),
        "budgets": [ledgers for _, ledgers in known],
        "splits": splits,
        "scoring": sweep.scoring,
        "attack": (type(sweep.attack).__name__, attack),
        "subgroups": first.subgroups,
        "further arguments": [(r.fit_params, r.score_params) for r in records.values()],
    } | ({} if first.groups is None else {"groups": first.groups})


def _describe_model(model: Any, param: str) -> tuple[Any, list[tuple[str, str]]]:
    """Return a model without epsilon and budgets, and the ledgers of its budgets."""
    params = model.get_params()
    budgets = {k: v for k, v in params.items() if isinstance(v, PrivacyBudget)}
    bare = clone(model).set_params(**{param: None}, **dict.fromkeys(budgets))
    return bare, [_locate_ledger(name, budget) for name, budget in sorted(budgets.items())]


def _locate_ledger(name: str, budget: PrivacyBudget) -> tuple[str, str]:
    if Path(budget.path).parent.name.startswith("skprivacy-budget-"):
        raise ValueError(
            f"path= keeps results for later, and {name} is a budget in a temporary ledger, which "
            "ends with this process. Give the budget a path too: PrivacyBudget(..., path=...)."
        )
    address = budget.path if "://" in budget.path else os.path.abspath(budget.path)
    return address, budget._scope


def _hash_value(what: str, value: Any) -> str:
    try:
        return str(joblib.hash(value))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"path= needs {what} that can be pickled, to know it again later: {error}. Define its "
            "functions and classes in a module, or set path=None."
        ) from error


def _add_digest(file: Path, content: Mapping[str, Any]) -> str:
    """Return JSON with a digest of the content and of the file's name."""
    known = parse_json(
        json.dumps(content, default=lambda value: value.item()), allow_constants=True
    )
    return json.dumps({"digest": _compute_digest(file, known), "content": known})


def _compute_digest(file: Path, content: Any) -> str:
    text = f"{file.name} {json.dumps(content, sort_keys=True)}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found = parse_json(read_file(file), allow_constants=True)
        if not isinstance(found, dict) or set(found) != {"digest", "content"}:
            raise ValueError("it is none that this version writes")
        if found["digest"] != _compute_digest(file, found["content"]):
            raise ValueError("it does not match its digest")
        content: dict[str, Any] = found["content"]
        return content
    except ValueError as error:
        raise ValueError(
            f"{file} is damaged ({error}). Restore it or delete it: its fit is then repeated, "
            "and charged again."
        ) from error


def _load_row(file: Path) -> dict[str, Any]:
    row = _read_json(file)
    if "claim" in row:
        try:
            row["claim"] = _claim_from_dict(row["claim"])
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{file} holds no claim that can be read: {error}") from error
    return row


def _claim_to_dict(claim: Claim) -> dict[str, Any]:
    return {
        "guarantee": claim.guarantee and claim.guarantee.to_dict(),
        "reason": claim.reason,
        "uncovered": claim.uncovered,
        "charged": claim.charged and claim.charged.to_dict(),
    }


def _claim_from_dict(facts: dict[str, Any]) -> Claim:
    guarantee, charged = (
        facts[k] and PrivacyGuarantee.from_dict(facts[k]) for k in ("guarantee", "charged")
    )
    return Claim(guarantee, facts["reason"], facts["uncovered"], charged)
