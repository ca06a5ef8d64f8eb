"""Issue of certificates: a model's claim, charges and measured leakage under one signature.

A certificate names its model by the digest of the model's file. Start reading at
:func:`issue_certificate`.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path
from typing import Any

from .._files import MAX_MODEL_BYTES, as_path, json_safe, open_file, write_file
from ..accounting import PrivacyBudget, PrivacyGuarantee
from ..accounting.budget.snapshot import export_lines, open_exported_ledger
from ..accounting.event import flatten
from ..audit import AuditReport, claim_of
from ..audit.inspection.claims import Claim
from ..audit.report.document import versions
from ..persistence.file_format import arrays_digest_of, header_of
from ..persistence.state import released_digest
from ..preprocessing import Schema
from .signing import Key, digest, private_key, sign

FORMAT = 1
SECTIONS = ("about", "model", "claim", "ledger", "audit")


def issue_certificate(
    model: Any,
    path: str | PathLike[str],
    *,
    key: Key,
    model_file: str | PathLike[str],
    budget: PrivacyBudget | None = None,
    report: AuditReport | None = None,
    schema: Schema | None = None,
    issuer: str = "",
    password: str | None = None,
) -> dict[str, Any]:
    """Write a signed certificate of a model's privacy, which anyone can check without the data.

    Parameters
    ----------
    model : fitted estimator
        A private model, bare or in a pipeline, with a proved guarantee.
    path : str or Path
        The JSON file to write.
    key : str, Path or Ed25519PrivateKey
        The private key, from :func:`create_key`.
    model_file : str or Path
        The file in which the model is released, for example from ``save_model``. The certificate
        is about exactly this file.
    budget : PrivacyBudget, default=None
        The budget that the model was charged to. **All lines of its ledger are written**, including
        the charges of other models, so that they can be checked.
    report : AuditReport, default=None
        Report of :func:`skprivacy.audit`. Its figures are measured, not proved.
    schema : Schema, default=None
        The schema of the data, whose digest is written.
    issuer : str, default=""
        Person or office that issues it. The signature shows whose key it was, not whose name.
    password : str, default=None
        Password of the private key.

    Returns
    -------
    dict
        The certificate.

    Raises
    ------
    ValueError
        If the model has no proved guarantee, the file belongs to another model, the ledger has no
        charge for the model, or the report is about another claim or model. Nothing is written
        then.

    Notes
    -----
    **Guarantees.** A certificate discloses no more about the records than the model, the ledger and
    the report do. The signer vouches for what no file can show: that this model was trained as its
    events say.

    See Also
    --------
    verify_certificate : Checks a certificate.
    """
    file = Path(as_path("model_file", model_file))
    for name, value, kind in (
        ("budget", budget, PrivacyBudget), ("report", report, AuditReport),
        ("schema", schema, Schema),
    ):  # fmt: skip
        if not (value is None or isinstance(value, kind)):
            raise TypeError(f"{name}={value!r} must be a {kind.__name__}, or None.")
    claim = claim_of(model)
    _check_proved(claim)
    guarantee = claim.guarantee
    assert guarantee is not None
    inside = guarantee_in_file(file)
    if inside is not None:
        _check_file(file, PrivacyGuarantee.from_dict(inside), model, claim)
    if report is not None and report.guarantee != guarantee:
        raise ValueError(
            f"report is about another claim, {report.guarantee!r}, than the model's, "
            f"{guarantee!r}. Audit this model."
        )
    if report is not None and report.released_digest not in ("", released_digest(model)):
        raise ValueError(
            "report is about another fitted model with the same claim, or an earlier fit. Audit "
            "this model."
        )
    values = (
        {
            "format": FORMAT,
            "issued": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "issuer": str(issuer),
            "schema": None if schema is None else schema_digest(schema),
            "versions": versions(),
        },
        {"class": type(model).__name__, "name": file.name, "sha256": digest_of_file(file)},
        {
            "guarantee": guarantee.to_dict(),
            "epsilon": json_safe(guarantee.epsilon()),
            "delta": guarantee.at_delta or 0.0,
            "words": repr(guarantee),
            "noise": guarantee.noise_in_words,
        },
        None if budget is None else _ledger(budget, guarantee),
        None if report is None else report.to_dict(),
    )
    sections = dict(zip(SECTIONS, values, strict=True))
    signed = {**sections, "signature": sign(sections, private_key(key, password))}
    text = json.dumps(signed, indent=2, allow_nan=False)
    write_file(path, text + "\n")
    return signed


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a regular file of bounded size."""
    found = hashlib.sha256()
    with open_file(path, MAX_MODEL_BYTES) as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()


def guarantee_in_file(path: Path) -> dict[str, Any] | None:
    """Return the guarantee in the header of a file of ``save_model``; None for others."""
    try:
        stated = header_of(path).get("privacy")
    except ValueError:
        return None
    return stated if isinstance(stated, dict) else None


def schema_digest(schema: Schema) -> str:
    """Return the digest of a schema's content, independent of the layout of its file."""
    return digest(schema.to_dict())


def _check_proved(claim: Claim) -> None:
    if claim.proved:
        return
    uncovered = "".join(f" Step {name!r}: {why}." for name, why in claim.uncovered.items())
    why = claim.reason or f"its guarantee is of kind {getattr(claim.guarantee, 'kind', None)!r}"
    raise ValueError(
        f"A certificate states a proved guarantee, but this model has none: {why}.{uncovered}"
    )


def _check_file(file: Path, stated: PrivacyGuarantee, model: Any, claim: Claim) -> None:
    """Raise ValueError unless a file of `save_model` holds the model, or its last step."""
    last = model[-1] if hasattr(model, "steps") else model
    allowed = [claim.guarantee, getattr(last, "privacy_", None)]
    fault = ""
    if stated.event not in [found.event for found in allowed if found is not None]:
        fault = "states another guarantee than model"
    elif arrays_digest_of(file) not in (released_digest(model), released_digest(last)):
        fault = "holds other numbers than model"
    if fault:
        raise ValueError(
            f"model_file={str(file)!r} {fault}: it was saved from another model or an earlier fit. "
            "Save the model again with save_model."
        )


def _ledger(budget: PrivacyBudget, guarantee: PrivacyGuarantee) -> dict[str, Any]:
    budget.verify()
    scope, lines = export_lines(budget)  # a snapshot: others may charge meanwhile
    statement = open_exported_ledger(budget.path, scope, lines)
    last, spent = statement.verify(), statement.guarantee()
    if (spent.relation, spent.unit) != (guarantee.relation, guarantee.unit) or (
        flatten(guarantee.event) - flatten(spent.event)
    ):
        raise ValueError(
            f"{budget!r} does not hold all charges of the model. Pass the budget that the model "
            "and its preprocessing were fitted with."
        )
    return {
        "scope": scope,
        "digest": last,
        "witness": budget.witness,
        "epsilon": json_safe(spent.epsilon()),
        "delta": spent.at_delta or 0.0,
        "lines": lines,
    }
