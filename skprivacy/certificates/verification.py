"""Certificates are checked: by whoever reads them, without data and without trust in the issuer."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .._output import displayable
from .._validation import as_path
from ..accounting import LedgerError, PrivacyGuarantee, weakest_arithmetic
from ..accounting.budget.exported import statement_of
from ..accounting.events import flatten
from ..preprocessing import Schema
from .files import digest_of_file, guarantee_in_file
from .issuing import FORMAT, SECTIONS, schema_digest
from .recomputing import agree, bracket_of, has_second_accountant
from .signing import altered_sections, fingerprint, public_key

__all__ = ["Check", "Verification", "verify_certificate"]

HOLDS, FAILED, OPEN = "holds", "FAILED", "not checked"


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes
    ----------
    name : str
    status : {"holds", "FAILED", "not checked"}
    words : str
        What was found, or why it was not checked.
    """

    name: str
    status: str
    words: str


@dataclass(frozen=True, repr=False)
class Verification:
    """What a certificate proves; returned by :func:`verify_certificate`.

    Attributes
    ----------
    checks : tuple of Check
    statement : str
        What the certificate states, of which model, by whom and when.
    assumptions : tuple of str
        What must be true for the guarantee to hold, and no file can show.
    measured : tuple of str
        What attacks found: lower bounds, no proof.
    """

    checks: tuple[Check, ...]
    statement: str = ""
    assumptions: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no check failed. Look at what was not checked, too."""
        return all(check.status != FAILED for check in self.checks)

    def __repr__(self) -> str:
        holds = "holds" if self.holds else "does NOT hold"
        lines = [f"The certificate {holds}.", _one_line(self.statement)]
        for title, found in (
            ("Checked", [f"{c.status}: {c.name}: {c.words}" for c in self.checks]),
            ("Assumed, and shown by no file", self.assumptions),
            ("Measured, which proves nothing", self.measured),
        ):
            if found:
                lines += ["", f"{title}:", *(f"  - {_one_line(line)}" for line in found)]
        return displayable("\n".join(lines))


def _one_line(text: str) -> str:
    """Return text without line breaks: a name that holds some could look like further checks."""
    return " ".join(text.split())


def verify_certificate(
    path: str | PathLike[str],
    model_file: str | PathLike[str] | None = None,
    *,
    key: str | PathLike[str] | Ed25519PublicKey | None = None,
    schema: Schema | None = None,
) -> Verification:
    """Check a certificate, with neither data nor trust in whoever wrote it.

    Parameters
    ----------
    path : str or Path
        The certificate.
    model_file : str or Path, default=None
        The model that came with it. It is not loaded, and nothing in it is executed.
    key : str, Path or Ed25519PublicKey, default=None
        The issuer's public key, from a place that you trust. Without it, the signature shows only
        that the certificate is as somebody wrote it, not who.
    schema : Schema, default=None
        The schema that is said to be public, to be compared.

    Returns
    -------
    Verification
        With a check for each thing that was looked at.

    Raises
    ------
    FileNotFoundError
        If one of the files is missing.

    Notes
    -----
    Every epsilon is computed again from the events, by this library and, where it is installed,
    between a lower and an upper bound of dp_accounting, which shares no code with it. A
    certificate that fails says why; nothing in it makes this function raise.
    """
    text = Path(as_path("path", path)).read_bytes()
    if not (schema is None or isinstance(schema, Schema)):
        raise TypeError(f"schema={schema!r} must be a Schema, or None.")
    trusted = None if key is None else public_key(key)
    file = None if model_file is None else Path(as_path("model_file", model_file))
    if file is not None and not file.is_file():
        raise FileNotFoundError(errno.ENOENT, "There is no model_file", str(file))
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
        sections = {name: content[name] for name in content if name != "signature"}
        signature = content.get("signature")
        if set(sections) != set(SECTIONS):
            raise ValueError(f"its sections are {sorted(sections)}, not {sorted(SECTIONS)}")
        if sections["about"]["format"] != FORMAT:
            raise ValueError(f"its format is {sections['about']['format']!r}, not {FORMAT}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Verification((Check("the file", FAILED, f"this is no certificate: {error}"),))
    checks = [_signature(sections, signature, trusted)]
    if checks[0].status == FAILED:
        rest = Check("the rest", OPEN, "what is not signed as it should be is not looked at")
        return Verification((*checks, rest))
    checks += _guarded("the model file", lambda: _model(sections, file))
    checks += _guarded("epsilon", lambda: _claim(sections["claim"]))
    checks += _guarded("the ledger", lambda: _ledger(sections))
    checks += _guarded("the audit", lambda: _audit(sections))
    checks += _guarded("the schema", lambda: _schema(sections["about"], schema))
    try:
        told = _told(sections)
    except Exception as error:  # whatever a forged certificate makes it raise
        checks.append(Check("the statement", FAILED, f"cannot be understood ({error})"))
        told = "What it states cannot be understood.", (), ()
    return Verification(tuple(checks), *told)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is no JSON")


def _guarded(name: str, check: Callable[[], Iterator[Check]]) -> list[Check]:
    """Return what a check found; whatever a forged certificate makes it raise is a failure."""
    try:
        return list(check())
    except ImportError:  # says something of this computer, and nothing of the certificate
        raise
    except Exception as error:
        return [Check(name, FAILED, f"cannot be understood ({error})")]


def _signature(sections: dict[str, Any], signature: Any, trusted: Any) -> Check:
    name = "the signature"
    try:
        key, altered = altered_sections(sections, signature)
    except (ValueError, RecursionError) as error:
        return Check(name, FAILED, f"it does not hold: {error}")
    if altered:
        return Check(name, FAILED, f"altered after signing: {', '.join(altered)}")
    who = fingerprint(key)
    if trusted is None:
        return Check(
            name, HOLDS,
            f"nothing was altered since the owner of the key {who} signed. Whose key that is was "
            "not checked: pass the issuer's public key.",
        )  # fmt: skip
    if fingerprint(trusted) != who:
        return Check(name, FAILED, f"signed by another key, {who}, than {fingerprint(trusted)}")
    return Check(name, HOLDS, f"made by the key that you trust, {who}")


def _model(sections: dict[str, Any], file: Path | None) -> Iterator[Check]:
    model = sections["model"]
    name = f"the model file {model['name']}"
    if file is None:
        yield Check(name, OPEN, "no model file was passed")
        return
    found = digest_of_file(file)
    if found != model["sha256"]:
        yield Check(name, FAILED, f"{file.name} is another file: its digest is {found}")
        return
    yield Check(name, HOLDS, "bit by bit the file that the certificate is about")
    inside = guarantee_in_file(file)
    if inside is None:
        yield Check("what the file states", OPEN, "this kind of file states no guarantee")
        return
    own = PrivacyGuarantee.from_dict(inside)
    whole = PrivacyGuarantee.from_dict(sections["claim"]["guarantee"])
    within = not flatten(own.event) - flatten(whole.event)
    assumed = set(own.assumptions) <= set(whole.assumptions)
    terms = (own.relation, own.unit, own.kind) == (whole.relation, whole.unit, whole.kind)
    words = f"another guarantee, {own!r}"
    noise = weakest_arithmetic((own.arithmetic, whole.arithmetic)) == whole.arithmetic
    if within and assumed and terms and noise:
        words = "part of the certificate's guarantee"
        words = "the certificate's guarantee" if own.event == whole.event else words
    yield Check("what the file states", HOLDS if "another" not in words else FAILED, words)


def _claim(claim: dict[str, Any]) -> Iterator[Check]:
    guarantee = PrivacyGuarantee.from_dict(claim["guarantee"])
    if claim["words"] != repr(guarantee):
        yield Check("the words", FAILED, f"the guarantee reads {guarantee!r}")
    if claim["noise"] != guarantee.noise_in_words:
        yield Check("the noise", FAILED, f"the guarantee has {guarantee.noise_in_words}")
    if guarantee.kind != "proved":
        yield Check("the kind", FAILED, f"the guarantee is of kind {guarantee.kind!r}, not proved")
    if claim["delta"] != (guarantee.at_delta or 0.0):
        yield Check("delta", FAILED, f"the guarantee is stated at delta {guarantee.at_delta!r}")
    yield from _epsilon("epsilon of the model", claim["epsilon"], claim["delta"], guarantee)


def _epsilon(name: str, stated: Any, delta: float, guarantee: PrivacyGuarantee) -> Iterator[Check]:
    event, relation = guarantee.event, guarantee.relation
    value = math.inf if stated is None else float(stated)
    found = agree(value, event, delta, relation)
    if found is not None:
        yield Check(name, FAILED, f"{value:.6g} is stated, and the events make it {found:.6g}")
        return
    yield Check(name, HOLDS, f"{value:.6g} at delta {delta:g}, computed again from the events")
    second = f"{name}, by dp_accounting"
    if not has_second_accountant():
        yield Check(second, OPEN, "dp_accounting is not installed, or cannot be imported")
    elif (bracket := bracket_of(event, delta, relation)) is None:
        yield Check(second, OPEN, "it cannot compute it for these events")
    else:
        low, high = bracket
        above = f" and at most {high:.6g}" if math.isfinite(high) else ""
        words = f"at least {low:.6g}{above}"
        yield Check(second, HOLDS if value >= low else FAILED, words)


def _ledger(sections: dict[str, Any]) -> Iterator[Check]:
    ledger, name = sections["ledger"], "the ledger"
    if ledger is None:
        yield Check(name, OPEN, "the certificate holds no ledger: other releases are not known")
        return
    statement = statement_of("the certificate's ledger", ledger["scope"], ledger["lines"])
    try:
        last = statement.verify()
    except LedgerError as error:
        yield Check(name, FAILED, str(error))
        return
    if last != ledger["digest"]:
        yield Check(name, FAILED, "its last line is not the one whose digest is stated")
        return
    spent = statement.guarantee()
    claimed = PrivacyGuarantee.from_dict(sections["claim"]["guarantee"])
    terms = (spent.relation, spent.unit) == (claimed.relation, claimed.unit)
    charged = terms and not flatten(claimed.event) - flatten(spent.event)
    lines, word = len(ledger["lines"]), "" if charged else "NOT "
    yield Check(
        name, HOLDS if charged else FAILED,
        f"{lines} lines, each of which fits to its digest, within every cap; all releases of "
        f"the model are {word}charged in it",
    )  # fmt: skip
    if ledger["delta"] != (spent.at_delta or 0.0):
        yield Check(name, FAILED, f"its charges are stated at delta {spent.at_delta!r}")
    yield from _epsilon("epsilon of all charges", ledger["epsilon"], ledger["delta"], spent)


def _audit(sections: dict[str, Any]) -> Iterator[Check]:
    audit, name = sections["audit"], "the audit"
    if audit is None:
        yield Check(name, OPEN, "the certificate holds no audit: nothing was measured")
        return
    if audit["claim"] != sections["claim"]["guarantee"]:
        yield Check(name, FAILED, "it was an audit of another claim")
        return
    refuted = audit["verdict"].startswith("VIOLATED")
    yield Check(name, FAILED if refuted else HOLDS, audit["verdict"])


def _schema(about: dict[str, Any], schema: Schema | None) -> Iterator[Check]:
    if about["schema"] is None:
        return
    if schema is None:
        yield Check("the schema", OPEN, "no schema was passed")
        return
    same = schema_digest(schema) == about["schema"]
    yield Check(
        "the schema", HOLDS if same else FAILED,
        "the one that was used" if same else "another one than was used",
    )  # fmt: skip


def _told(sections: dict[str, Any]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the statement in words, the assumptions, and what was measured."""
    about, model, claim = (sections[name] for name in ("about", "model", "claim"))
    statement = (
        f"It states of {model['name']}, a {model['class']}: {claim['words']}. "
        f"{claim['noise'].capitalize()}. Issued "
        f"{about['issued']} by {about['issuer'] or 'somebody who gives no name'}."
    )
    assumed = (
        "the model was trained as the events say, by code that does what it says: the issuer "
        "vouches for it",
        *map(str, claim["guarantee"]["assumptions"]),
    )
    measured = tuple(
        f"{found['attack']}: AUC {found['auc']:.3f}, epsilon at least "
        f"{found['epsilon_lower_bound']:.3g}"
        for found in (sections["audit"] or {}).get("attacks", [])
    )
    return statement, assumed, measured
