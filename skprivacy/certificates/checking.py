"""Verification of certificates, without data and without trust in their issuer."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .._files import as_path, displayable, parse_json, read_file
from .._report_facts import Fact, FactReport, ReportFacts, Section
from ..accounting import LedgerError, PrivacyGuarantee, weakest_arithmetic
from ..accounting.budget.snapshot import check_ledger_work, open_exported_ledger
from ..accounting.event import flatten
from ..accounting.work_limit import WorkLimitError
from ..preprocessing import Schema
from .issuing import FORMAT, SECTIONS, digest_of_file, guarantee_in_file, schema_digest
from .recomputing import differing_epsilon, epsilon_bracket, has_second_accountant
from .signing import altered_sections, fingerprint, public_key

HOLDS, FAILED, OPEN = "holds", "FAILED", "not checked"
VERIFIED, UNKNOWN_KEY, REFUSED = "verified", "unknown key", "refused"

# The remaining assumption on rollbacks of the ledger, by the witness that would notice one.
_WITNESSES = {
    "counter": "the ledger and its counter were not restored together from older copies",
    "digest": "no charge was lost with an older copy of the ledger after the line whose digest the "
    "issuer compared",
    None: "the ledger was not restored from an older copy: a rollback of it could not be noticed, "
    "because it has no counter and the issuer compared no digest",
}

_NO_MODEL = "no model file was passed"
_SIGNATURE, _SIGNER, _EPSILON = "the signature", "the signer", "epsilon of the model"
_EXTENSION = "the ledger extends the earlier one"


@dataclass(frozen=True)
class CertificateCheck:
    """Result of one check of a certificate.

    Attributes
    ----------
    name : str
        What was checked.
    status : {"holds", "FAILED", "not checked"}
    words : str
        The result, or why it was not checked.
    """

    name: str
    status: str
    words: str


@dataclass(frozen=True, repr=False)
class CertificateVerification(FactReport):
    """Result of the verification of a certificate; returned by :func:`verify_certificate`.

    Attributes
    ----------
    checks : tuple of CertificateCheck
        The checks, in order.
    statement : str
        The statement of the certificate: about which model, by whom and when.
    assumptions : tuple of str
        Conditions of the guarantee that no file can show.
    measured : tuple of str
        Results of attacks. They are lower bounds on leakage and prove nothing.
    fingerprint : str
        Fingerprint of the signing key; empty without a valid signature.
    """

    checks: tuple[CertificateCheck, ...]
    statement: str = ""
    assumptions: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    fingerprint: str = ""

    @property
    def state(self) -> str:
        """State of the certificate: ``"verified"``, ``"unknown key"`` or ``"refused"``.

        ``"verified"``: signed with the key that was passed, and no check failed. ``"unknown key"``:
        no check failed, but no key was passed, so anybody may have signed it. ``"refused"``: a
        check failed, or the signature or epsilon was not checked.
        """
        held = {check.name for check in self.checks if check.status == HOLDS}
        failed = any(check.status == FAILED for check in self.checks)
        if failed or not {_SIGNATURE, _EPSILON} <= held:
            return REFUSED
        return VERIFIED if _SIGNER in held else UNKNOWN_KEY

    @property
    def holds(self) -> bool:
        """Whether the certificate is verified: signed with the key that was passed, and true.

        Some checks may still be open, such as the check of a model file that was not passed.
        """
        return self.state == VERIFIED

    def facts(self) -> ReportFacts:
        checks = (
            Fact(check.name, [check.status, check.words], _one_line(check.words),
                 label=_one_line(f"{check.status}: {check.name}"))
            for check in self.checks
        )  # fmt: skip
        return ReportFacts(
            Fact("state", self.state, _one_line(self._verdict())),
            (
                Section("", (Fact("statement", self.statement, _one_line(self.statement)),)),
                Section("Checked", tuple(checks)),
                _titled("Assumed, and shown by no file", self.assumptions),
                _titled("Measured, which proves nothing", self.measured),
            ),
        )

    def __repr__(self) -> str:
        return displayable(self.facts().to_text(titled=True))

    def _verdict(self) -> str:
        """Return the first line: the state, with the key or the reason, and a missing model."""
        if self.state == VERIFIED:
            line = f"VERIFIED: signed with the key that you passed, {self.fingerprint}."
            return line + self._missing_model()
        if self.state == UNKNOWN_KEY:
            return (
                f"UNKNOWN KEY: the certificate is consistent, but signed with {self.fingerprint}, "
                f"which may be anybody's key. Pass the issuer's public key.{self._missing_model()}"
            )
        failed = next((check for check in self.checks if check.status == FAILED), None)
        why = f"{failed.name}: {failed.words}" if failed else "epsilon was not checked"
        return f"REFUSED: {why.rstrip('.')}."

    def _missing_model(self) -> str:
        """Return the warning that no model file was compared; empty if one was."""
        if all(check.words != _NO_MODEL for check in self.checks):
            return ""
        return " No model file was compared: pass the one you received, which may be another."


def _fail_check(name: str, words: str) -> CertificateCheck:
    return CertificateCheck(name, FAILED, words)


def _pass_check(name: str, words: str) -> CertificateCheck:
    return CertificateCheck(name, HOLDS, words)


def _skip_check(name: str, words: str) -> CertificateCheck:
    return CertificateCheck(name, OPEN, words)


def _titled(title: str, sentences: tuple[str, ...]) -> Section:
    facts = (Fact("statement", text, _one_line(text)) for text in sentences)
    return Section(title, tuple(facts), title.split(",")[0].lower())


def _one_line(text: str) -> str:
    """Return text in one line: a name with line breaks could look like further checks."""
    return " ".join(text.split())


def verify_certificate(
    path: str | PathLike[str],
    model_file: str | PathLike[str] | None = None,
    *,
    key: str | PathLike[str] | Ed25519PublicKey | None = None,
    schema: Schema | None = None,
    extends: str | PathLike[str] | None = None,
) -> CertificateVerification:
    """Check a certificate, without data and without trust in its issuer.

    Parameters
    ----------
    path : str or Path
        The certificate.
    model_file : str or Path, default=None
        The model file that came with it. It is not loaded, and nothing in it is executed.
    key : str, Path or Ed25519PublicKey, default=None
        The issuer's public key, from a place that you trust. Without it, the state is at best
        ``"unknown key"``: the signature shows that nothing was altered, not who signed.
    schema : Schema, default=None
        The schema that is said to be public, for comparison.
    extends : str or Path, default=None
        An earlier certificate that you have verified, of the same data. The ledger must begin with
        all lines of its ledger: then no charge of that time is missing.

    Returns
    -------
    CertificateVerification
        Its ``state``, the ``checks`` with their ``name``, ``status`` and ``words``, the
        ``statement``, the ``assumptions`` that no file can show, the ``measured`` lower bounds,
        and the ``fingerprint`` of the key.

    Raises
    ------
    FileNotFoundError
        If one of the files is missing.
    ValueError
        If ``key`` is not a public key, or ``extends`` not a certificate with a ledger.

    Notes
    -----
    Every epsilon is computed again from the events by this library. If dp_accounting, which shares
    no code with it, is installed, the stated epsilon must also be at least its lower bound. A
    certificate that fails states the reason; nothing in it makes this function raise.

    **Edge cases.** These are refused: a device, a pipe, a file of more than 32 MiB (4 GiB for a
    model), JSON with a repeated key, and events that take too long to account for.
    """
    place = Path(as_path("path", path))
    if not (schema is None or isinstance(schema, Schema)):
        raise TypeError(f"schema={schema!r} must be a Schema, or None.")
    trusted = None if key is None else public_key(key)
    earlier = None if extends is None else _earlier_lines(Path(as_path("extends", extends)))
    file = None if model_file is None else Path(as_path("model_file", model_file))
    if file is not None and (file.is_dir() or not file.exists()):
        raise FileNotFoundError(errno.ENOENT, "model_file does not exist", str(file))
    try:
        content = parse_json(read_file(place))
        sections = {name: content[name] for name in content if name != "signature"}
        signature = content.get("signature")
        if set(sections) != set(SECTIONS):
            raise ValueError(f"its sections are {sorted(sections)}, not {sorted(SECTIONS)}")
        if sections["about"]["format"] != FORMAT:
            raise ValueError(f"its format is {sections['about']['format']!r}, not {FORMAT}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return CertificateVerification(
            (_fail_check("the file", f"this is not a certificate: {error}"),)
        )
    signer, checks = _signature(sections, signature, trusted)
    if any(check.status == FAILED for check in checks):
        rest = _skip_check("the rest", "only sections with a valid signature are checked")
        return CertificateVerification((*checks, rest), fingerprint=signer)
    for name, check in _CHECKS:
        checks += _run_check(name, partial(check, sections, file, schema))
    if earlier is not None:
        checks += _run_check(_EXTENSION, partial(_extension, sections, earlier))
    try:
        described = _describe_certificate(sections, trusted is not None)
    except Exception as error:  # a forged certificate may make it raise anything
        checks.append(_fail_check("the statement", f"cannot be understood ({error})"))
        described = "What it states cannot be understood.", (), ()
    return CertificateVerification(tuple(checks), *described, fingerprint=signer)


def _run_check(
    name: str, check: Callable[[], Iterator[CertificateCheck]]
) -> list[CertificateCheck]:
    """Run a check; any error that a forged certificate causes is a failure."""
    try:
        return list(check())
    except ImportError:  # a fault of this computer, not of the certificate
        raise
    except WorkLimitError as error:
        return [_fail_check(name, str(error))]
    except Exception as error:
        return [_fail_check(name, f"cannot be understood ({error})")]


def _signature(
    sections: dict[str, Any], signature: Any, trusted: Any
) -> tuple[str, list[CertificateCheck]]:
    """Return the fingerprint of the signing key, and the checks of signature and signer."""
    try:
        key, altered = altered_sections(sections, signature)
    except (ValueError, RecursionError) as error:
        return "", [_fail_check(_SIGNATURE, f"it does not hold: {error}")]
    name = fingerprint(key)
    if altered:
        return name, [_fail_check(_SIGNATURE, f"altered after signing: {', '.join(altered)}")]
    signed = _pass_check(_SIGNATURE, f"nothing was altered since the owner of {name} signed")
    if trusted is None:
        signer = _skip_check(_SIGNER, "no key was passed: pass the issuer's public key")
    elif fingerprint(trusted) == name:
        signer = _pass_check(_SIGNER, "the owner of the key that you passed")
    else:
        signer = _fail_check(
            _SIGNER, f"signed with another key, {name}; you passed {fingerprint(trusted)}"
        )
    return name, [signed, signer]


def _model(
    sections: dict[str, Any], file: Path | None, _: Schema | None
) -> Iterator[CertificateCheck]:
    model = sections["model"]
    name = f"the model file {model['name']}"
    if file is None:
        yield _skip_check(name, _NO_MODEL)
        return
    try:
        found = digest_of_file(file)
    except ValueError as error:
        yield _fail_check(name, str(error))
        return
    if found != model["sha256"]:
        yield _fail_check(name, f"{file.name} is another file: its digest is {found}")
        return
    yield _pass_check(name, "identical to the file that the certificate is about")
    inside = guarantee_in_file(file)
    if inside is None:
        yield _skip_check("what the file states", "this kind of file states no guarantee")
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
    yield CertificateCheck(
        "what the file states", HOLDS if "another" not in words else FAILED, words
    )


def _claim(sections: dict[str, Any], *_: Any) -> Iterator[CertificateCheck]:
    claim = sections["claim"]
    guarantee = PrivacyGuarantee.from_dict(claim["guarantee"])
    if claim["epsilon"] is None:
        yield _fail_check(_EPSILON, "no finite epsilon is stated, so nothing is guaranteed")
        return
    if claim["words"] != repr(guarantee):
        yield _fail_check("the words", f"the guarantee reads {guarantee!r}")
    if claim["noise"] != guarantee.noise_in_words:
        yield _fail_check("the noise", f"the guarantee has {guarantee.noise_in_words}")
    if guarantee.kind != "proved":
        yield _fail_check("the kind", f"the guarantee is of kind {guarantee.kind!r}, not proved")
    if claim["delta"] != (guarantee.at_delta or 0.0):
        yield _fail_check("delta", f"the guarantee is stated at delta {guarantee.at_delta!r}")
    yield from _epsilon(_EPSILON, claim["epsilon"], claim["delta"], guarantee)


def _epsilon(
    name: str, stated: Any, delta: float, guarantee: PrivacyGuarantee
) -> Iterator[CertificateCheck]:
    event, relation = guarantee.event, guarantee.relation
    value = math.inf if stated is None else float(stated)
    found = differing_epsilon(value, event, delta, relation)
    if found is not None:
        yield _fail_check(name, f"{value:.6g} is stated, but the events give {found:.6g}")
        return
    yield _pass_check(name, f"{value:.6g} at delta {delta:g}, computed again from the events")
    second = f"{name}, by dp_accounting"
    if not has_second_accountant():
        yield _skip_check(second, "dp_accounting is not installed, or cannot be imported")
    elif (bracket := epsilon_bracket(event, delta, relation)) is None:
        yield _skip_check(second, "it cannot compute it for these events")
    else:
        low, high = bracket
        above = f" and at most {high:.6g}" if math.isfinite(high) else ""
        words = f"at least {low:.6g}{above}"
        yield CertificateCheck(second, HOLDS if value >= low else FAILED, words)


def _ledger(sections: dict[str, Any], *_: Any) -> Iterator[CertificateCheck]:
    ledger, name = sections["ledger"], "the ledger"
    if ledger is None:
        yield _skip_check(name, "the certificate holds no ledger: other releases are not known")
        return
    check_ledger_work(ledger["lines"])
    statement = open_exported_ledger("the certificate's ledger", ledger["scope"], ledger["lines"])
    try:
        last = statement.verify()
    except LedgerError as error:
        yield _fail_check(name, str(error))
        return
    if last != ledger["digest"]:
        yield _fail_check(name, "its last line is not the one whose digest is stated")
        return
    spent = statement.guarantee()
    claimed = PrivacyGuarantee.from_dict(sections["claim"]["guarantee"])
    terms = (spent.relation, spent.unit) == (claimed.relation, claimed.unit)
    charged = terms and not flatten(claimed.event) - flatten(spent.event)
    lines, word = len(ledger["lines"]), "" if charged else "NOT "
    yield CertificateCheck(
        name, HOLDS if charged else FAILED,
        f"{lines} lines, each consistent with its digest, within every cap; all releases of the "
        f"model are {word}charged in it",
    )  # fmt: skip
    if ledger["witness"] not in _WITNESSES:
        yield _fail_check(name, f"its witness {ledger['witness']!r} is unknown")
    elif (ledger["witness"] == "counter") != (statement.counter is not None):
        yield _fail_check(name, "its first line contradicts what is said of a counter")
    if ledger["delta"] != (spent.at_delta or 0.0):
        yield _fail_check(name, f"its charges are stated at delta {spent.at_delta!r}")
    yield from _epsilon("epsilon of all charges", ledger["epsilon"], ledger["delta"], spent)


def _earlier_lines(path: Path) -> list[Any]:
    """Return the lines of the ledger in an earlier certificate, which the caller has verified."""
    try:
        lines = parse_json(read_file(path))["ledger"]["lines"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"extends={str(path)!r} is not a certificate with a ledger ({error!r}). Pass an "
            "earlier certificate of the same data."
        ) from None
    if not isinstance(lines, list) or not lines:
        raise ValueError(f"extends={str(path)!r} holds a ledger without lines. Pass another one.")
    return lines


def _extension(sections: dict[str, Any], earlier: list[Any]) -> Iterator[CertificateCheck]:
    lines = [] if sections["ledger"] is None else sections["ledger"]["lines"]
    if lines[: len(earlier)] == earlier:
        new = len(lines) - len(earlier)
        yield _pass_check(_EXTENSION, f"it begins with all {len(earlier)} lines, and adds {new}")
    else:
        yield _fail_check(
            _EXTENSION,
            "it does not begin with its lines: it is another ledger, or an older copy was restored",
        )


def _audit(sections: dict[str, Any], *_: Any) -> Iterator[CertificateCheck]:
    audit, name = sections["audit"], "the audit"
    if audit is None:
        yield _skip_check(name, "the certificate holds no audit: nothing was measured")
        return
    if audit["claim"] != sections["claim"]["guarantee"]:
        yield _fail_check(name, "it was an audit of another claim")
        return
    statuses = {"consistent": HOLDS, "no claim": HOLDS, "doubtful": OPEN}
    status = statuses.get(audit["verdict"], FAILED)
    yield CertificateCheck(name, status, audit["verdict"])


def _schema(
    sections: dict[str, Any], _: Path | None, schema: Schema | None
) -> Iterator[CertificateCheck]:
    if sections["about"]["schema"] is None:
        return
    if schema is None:
        yield _skip_check("the schema", "no schema was passed")
        return
    same = schema_digest(schema) == sections["about"]["schema"]
    yield CertificateCheck(
        "the schema", HOLDS if same else FAILED,
        "the one that was used" if same else "not the one that was used",
    )  # fmt: skip


_CHECKS: tuple[tuple[str, Callable[..., Iterator[CertificateCheck]]], ...] = (
    ("the model file", _model),
    ("epsilon", _claim),
    ("the ledger", _ledger),
    ("the audit", _audit),
    ("the schema", _schema),
)


def _describe_certificate(
    sections: dict[str, Any], is_signer_known: bool
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the statement, the assumptions and the measurements in words."""
    about, model, claim = (sections[name] for name in ("about", "model", "claim"))
    name = about["issuer"] or "an issuer without a name"
    by = f"by {name}" if is_signer_known else f"in the name of {name}, which is not verified"
    statement = (
        f"Statement about {model['name']}, a {model['class']}: {claim['words']}. "
        f"{claim['noise'].capitalize()}. Issued {about['issued']} {by}."
    )
    assumed = (
        "the model was trained as the events say, by code that does what it says: the issuer "
        "vouches for it",
        *map(str, claim["guarantee"]["assumptions"]),
    )
    if sections["ledger"] is not None:
        assumed += (_WITNESSES[sections["ledger"]["witness"]],)
    measured = tuple(
        f"{found['attack']}: AUC {found['auc']:.3f}, epsilon at least "
        f"{found['epsilon_lower_bound']:.3g}"
        for found in (sections["audit"] or {}).get("attacks", [])
    )
    return statement, assumed, measured
