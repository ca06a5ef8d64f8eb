"""Certificates: what a stranger can check, and that nothing in them can be altered unnoticed."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from unittest import mock

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy import (
    DPSGDClassifier,
    ObjectivePerturbationClassifier,
    PrivacyBudget,
    Schema,
    audit,
    issue_certificate,
    save_model,
    verify_certificate,
)
from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyGuarantee,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.accounting.budget.snapshot import export_lines
from skprivacy.accounting.events import NonPrivateEvent, SampledGroupEvent
from skprivacy.certificates import checking as verification
from skprivacy.certificates import create_key, recomputing
from skprivacy.certificates.issuing import SECTIONS
from skprivacy.certificates.signing import digest, private_key, sign
from skprivacy.exceptions import PrivacyWarning
from skprivacy.preprocessing import BoundedColumn, PrivateStandardScaler
from skprivacy.synthesis import MarginalSynthesizer

from ..cli.shell import refuse, run, succeed

X = np.random.RandomState(0).uniform(-1, 1, size=(400, 3))
Y = (X[:, 0] > 0).astype(int)
SCHEMA = Schema({"a": BoundedColumn(0, 1)})


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """Return a folder with a key, a model, and its certificate with a ledger and an audit."""
    folder = tmp_path_factory.mktemp("issued")
    budget = PrivacyBudget(epsilon=3, delta=1e-4, path=folder / "ledger")
    model = DPSGDClassifier(epsilon=1, delta=1e-4, classes=[0, 1], budget=budget, epochs=2)
    model.fit(X[:200], Y[:200])
    report = audit(model, X[:200], Y[:200], X[200:], Y[200:], n_shadows=4, alpha=1e-9)
    save_model(model, folder / "model.safetensors")
    create_key(folder / "key.pem")
    issue_certificate(
        model, folder / "certificate.json", key=folder / "key.pem",
        model_file=folder / "model.safetensors", budget=budget, report=report, schema=SCHEMA,
        issuer="St. Mary",
    )  # fmt: skip
    joblib.dump((model, budget, report), folder / "parts.joblib")
    return folder


@pytest.fixture
def parts(issued):
    return joblib.load(issued / "parts.joblib")


def certify(issued, model, target, file, **more):
    return issue_certificate(model, target, key=issued / "key.pem", model_file=file, **more)


def content(issued):
    return json.loads((issued / "certificate.json").read_text())


def verified(issued, tmp_path, changed, second=False, **options):
    """Return the verification of a changed certificate; dp_accounting takes a second each time."""
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    options = {"key": issued / "key.pem.pub", "schema": SCHEMA, **options}
    with mock.patch.object(verification, "has_second_accountant", return_value=second):
        return verify_certificate(path, issued / "model.safetensors", **options)


def signed_anew(issued, changed):
    """Sign what was changed with the issuer's own key: the issuer is the liar."""
    sections = {name: changed[name] for name in SECTIONS}
    return {**sections, "signature": sign(sections, private_key(issued / "key.pem", None))}


def refused_at_once(issued, tmp_path, forged):
    start = time.process_time()
    found = verified(issued, tmp_path, signed_anew(issued, forged))
    assert time.process_time() - start < 1
    assert found.state == "refused"
    return found


def failed(found):
    return {check.name: check.words for check in found.checks if check.status == "FAILED"}


@pytest.mark.heavy
def test_a_broken_second_accountant_is_no_fault_of_the_certificate(issued, monkeypatch):
    """Of a library that dp_accounting did not fit to it was said that the certificate fails."""
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    found = verify_certificate(
        issued / "certificate.json", issued / "model.safetensors", key=issued / "key.pem.pub"
    )
    assert found.holds
    words = {check.name: check.words for check in found.checks}
    assert words["epsilon of the model, by dp_accounting"] == (
        "dp_accounting is not installed, or cannot be imported"
    )


def test_a_later_ledger_is_checked_to_extend_an_earlier_one(issued, tmp_path):
    """A fresh ledger, or an older copy, would hide the charges of an earlier certificate."""
    earlier, later = content(issued), content(issued)
    for extra, told in ((1, "adds 1"), (0, "adds 0"), (-1, "does not begin with its lines")):
        place = tmp_path / f"earlier{extra}.json"
        lines = later["ledger"]["lines"]
        earlier["ledger"]["lines"] = lines[:-1] if extra == 1 else lines[: len(lines) - extra]
        if extra == -1:
            earlier["ledger"]["lines"] = [*lines[:-1], [*lines[-1][:-1], "0" * 64]]
        place.write_text(json.dumps(earlier))
        found = verified(issued, tmp_path, later, extends=place)
        words = {check.name: check.words for check in found.checks}
        assert told in words["the ledger extends the earlier one"]
        assert found.holds == (extra >= 0)
    none = signed_anew(issued, later | {"ledger": None})
    assert failed(verified(issued, tmp_path, none, extends=issued / "certificate.json"))
    place.write_text(json.dumps(none))
    with pytest.raises(ValueError, match=r"not a certificate with a ledger.*Pass an earlier"):
        verified(issued, tmp_path, later, extends=place)


def test_a_missing_library_does_not_fail_the_certificate(issued, monkeypatch):
    def lacking(*given):
        raise ModuleNotFoundError("No module named 'getpass'")

    monkeypatch.setattr(verification, "_CHECKS", (("epsilon", lacking),))
    with pytest.raises(ModuleNotFoundError, match="getpass"):
        verify_certificate(issued / "certificate.json")


@pytest.mark.heavy
def test_a_certificate_holds_and_says_what_is_assumed_and_measured(issued):
    found = verify_certificate(
        issued / "certificate.json", issued / "model.safetensors",
        key=issued / "key.pem.pub", schema=SCHEMA,
    )  # fmt: skip
    assert found.holds
    assert all(check.status == "holds" for check in found.checks)
    shown = repr(found)
    assert "Statement about model.safetensors, a DPSGDClassifier: (1.00, 0.0001)-DP" in shown
    assert "by St. Mary" in shown
    assert shown.startswith(
        f"VERIFIED: signed with the key that you passed, {found.fingerprint}.\n"
    )
    assert "holds: the signer: the owner of the key that you passed" in shown
    assert "the number of records is public" in shown
    assert "AUC" in shown


@pytest.mark.parametrize("key", ["key.pem.pub", None])
def test_the_first_line_says_that_no_model_file_was_compared(issued, key):
    found = verify_certificate(issued / "certificate.json", key=key and issued / key)
    assert "No model file was compared" in repr(found).splitlines()[0]


@pytest.mark.heavy
def test_unchecked_parts_are_listed(issued):
    found = verify_certificate(issued / "certificate.json")
    assert found.state == "unknown key"
    assert not found.holds
    left = [check.name for check in found.checks if check.status == "not checked"]
    assert left == ["the signer", "the model file model.safetensors", "the schema"]
    first, statement, *_ = repr(found).splitlines()
    assert first.startswith("UNKNOWN KEY: the certificate is consistent, but signed with sha256:")
    assert found.fingerprint in first
    assert statement.endswith("in the name of St. Mary, which is not verified.")


def leaves(value, path=()):
    """Yield the path of every number, text, null and empty list in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, dict | list) and inner:
            yield from leaves(inner, (*path, key))
        else:
            yield (*path, key)


def altered(value):
    if isinstance(value, bool) or value is None:
        return "altered"
    if isinstance(value, int | float):
        return value + 1
    return value + "x" if isinstance(value, str) else [*value, "x"]


def changed_at(original, path, change=altered):
    changed = copy.deepcopy(original)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = change(inner[path[-1]])
    return changed


@pytest.mark.heavy
def test_every_altered_field_is_noticed_and_its_section_named(issued, tmp_path):
    original = content(issued)
    paths = list(leaves(original))
    assert len(paths) > 100
    for path in paths:
        found = verified(issued, tmp_path, changed_at(original, path))
        assert not found.holds, path
        reasons = failed(found)
        told = reasons.get("the signature") or reasons["the file"]
        if path[0] != "signature" and path != ("about", "format"):
            assert f"altered after signing: {path[0]}" in told, path


@pytest.mark.heavy
@pytest.mark.parametrize("section", [*SECTIONS, "signature"])
def test_a_section_that_is_missing_or_added_is_noticed(issued, tmp_path, section):
    original = content(issued)
    less = {name: value for name, value in original.items() if name != section}
    assert not verified(issued, tmp_path, less).holds
    assert not verified(issued, tmp_path, {**original, "more": 1}).holds
    assert not verified(issued, tmp_path, {**original, section: None}).holds


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ("counter", "the ledger and its counter were not restored together"),
        ("digest", "after the line whose digest the issuer compared"),
        ("nothing", "a rollback of it could not be noticed"),
    ],
)
def test_a_certificate_says_whether_a_rollback_could_be_noticed(issued, tmp_path, kept, words):
    counter = tmp_path / "counter" if kept == "counter" else None
    path = tmp_path / "ledger"
    budget = PrivacyBudget(epsilon=3, delta=1e-4, path=path, counter=counter)
    model = PrivateStandardScaler(bounds=(-1.0, 1.0), epsilon=1, budget=budget).fit(X)
    opened = PrivacyBudget.open(path)  # another process, which remembers no line
    if kept == "digest":
        opened.verify(budget.digest)
    (tmp_path / "model").write_bytes(b"")
    target = tmp_path / "certificate.json"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        certify(issued, model, target, tmp_path / "model", budget=opened)
    assert any("rollback" in str(w.message) for w in warned) == (kept == "nothing")
    found = verify_certificate(target, key=issued / "key.pem.pub")
    assert found.holds
    assert sum(words in assumption for assumption in found.assumptions) == 1
    assert ("could not be noticed" in repr(found)) == (kept == "nothing")


def test_a_certificate_signed_by_somebody_else_is_refused(issued, tmp_path):
    create_key(tmp_path / "other.pem")
    sections = {name: content(issued)[name] for name in SECTIONS}
    forged = {**sections, "signature": sign(sections, private_key(tmp_path / "other.pem", None))}
    assert "signed with another key" in failed(verified(issued, tmp_path, forged))["the signer"]
    assert verified(issued, tmp_path, forged, key=None).state == "unknown key"


EVENT = ("claim", "guarantee", "event")
# Besides those that test_every_estimator tells.
LIES = [
    (("claim", "epsilon"), lambda _: None, "epsilon of the model"),
    (("claim", "guarantee", "relation"), lambda _: "add_remove", "the words"),
    (("claim", "guarantee", "relation"), lambda _: "nonsense", "epsilon"),
    (("claim", "guarantee", "assumptions"), lambda _: [], "the words"),
    ((*EVENT, "count"), lambda n: n // 2, "epsilon of the model"),
    ((*EVENT, "type"), lambda _: "Unknown", "epsilon"),
    (("ledger", "delta"), lambda d: d / 10, "the ledger"),
    (("ledger", "digest"), lambda d: d[::-1], "the ledger"),
    (("ledger", "lines"), lambda lines: lines[1:], "the ledger"),
    (("ledger", "lines"), lambda _: [], "the ledger"),
    (("ledger", "lines"), lambda _: "nonsense", "the ledger"),
    (("ledger", "lines", 0, 6), lambda b: b.replace("3.0", "30.0"), "the ledger"),
    (("ledger", "lines", 2, 6), lambda b: b.replace("2.66", "9.99"), "the ledger"),
    (("ledger", "lines", 2, 3), lambda at: at - 1e6, "the ledger"),
    (("ledger", "scope"), lambda _: "/other/", "the ledger"),
    (("ledger", "witness"), lambda _: "counter", "the ledger"),
    (("ledger", "witness"), lambda _: "nonsense", "the ledger"),
    (("audit", "verdict"), lambda _: "violated", "the audit"),
    (("audit", "claim", "at_delta"), lambda d: d / 10, "the audit"),
    (("about", "schema"), lambda d: d[::-1], "the schema"),
]


@pytest.mark.parametrize(("path", "lie", "named"), LIES, ids=range(len(LIES)))
def test_an_issuer_who_lies_is_contradicted_by_the_rest(issued, tmp_path, path, lie, named):
    forged = signed_anew(issued, changed_at(content(issued), path, lie))
    found = verified(issued, tmp_path, forged)
    assert not found.holds
    assert named in failed(found), failed(found)
    assert "the signature" not in failed(found)


def test_a_doubtful_audit_counts_as_not_checked(issued, tmp_path):
    doubted = changed_at(content(issued), ("audit", "verdict"), lambda _: "doubtful")
    found = verified(issued, tmp_path, signed_anew(issued, doubted))
    assert found.holds
    (check,) = [check for check in found.checks if check.name == "the audit"]
    assert (check.status, check.words) == ("not checked", "doubtful")


@pytest.mark.heavy
def test_a_claim_with_too_little_noise_is_found_by_the_second_accountant(
    issued, tmp_path, monkeypatch
):
    """Plant the bug in our own accountant: dp_accounting does not share it."""
    monkeypatch.setattr(recomputing, "epsilon_of", lambda *args: 0.5)
    forged = signed_anew(issued, changed_at(content(issued), ("claim", "epsilon"), lambda _: 0.5))
    assert failed(verified(issued, tmp_path, forged, second=True)) == {
        "epsilon of the model, by dp_accounting": "at least 0.99895 and at most 0.99935",
        "epsilon of all charges": "0.999438 is stated, but the events give 0.5",
    }


def test_a_ledger_that_went_beyond_its_cap_is_refused(issued, tmp_path, monkeypatch):
    """The lines are consistent, so only adding them up shows it."""
    from skprivacy.accounting.budget import ledger as log

    forged = content(issued)
    previous = ""
    for line in forged["ledger"]["lines"]:
        if line[1] == "budget":
            line[6] = line[6].replace("3.0", "0.3")
        line[7] = previous = log._digest(previous, *line[:7])
    forged["ledger"]["digest"] = previous
    found = verified(issued, tmp_path, signed_anew(issued, forged))
    assert "exceed its cap" in failed(found)["the ledger"]


@pytest.mark.heavy
def test_another_model_file_is_refused(issued, tmp_path, parts):
    other = tmp_path / "model.safetensors"
    other.write_bytes((issued / "model.safetensors").read_bytes() + b" ")
    found = verify_certificate(issued / "certificate.json", other)
    assert "another file" in failed(found)["the model file model.safetensors"]
    model = parts[0]
    again = DPSGDClassifier(epsilon=2, delta=1e-4, classes=[0, 1], epochs=1).fit(X, Y)
    save_model(again, other)
    with pytest.raises(ValueError, match="states another guarantee"):
        certify(issued, model, tmp_path / "c.json", other)
    assert not (tmp_path / "c.json").exists()


def test_a_model_without_a_charge_in_the_budget_gets_no_certificate(issued, tmp_path, parts):
    model, _, _ = parts
    empty = PrivacyBudget(epsilon=3, delta=1e-4, path=tmp_path / "empty", relation="zero_out")
    with pytest.raises(ValueError, match="does not hold all charges"):
        certify(issued, model, tmp_path / "c.json", issued / "model.safetensors", budget=empty)


def test_a_report_about_another_claim_is_refused(issued, tmp_path, parts):
    report = parts[2]
    other = DPSGDClassifier(epsilon=2, delta=1e-4, classes=[0, 1], epochs=1).fit(X, Y)
    save_model(other, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="report is about another claim"):
        certify(issued, other, tmp_path / "c.json", tmp_path / "m.safetensors", report=report)


def test_file_and_report_of_another_fit_with_the_same_claim_are_refused(issued, tmp_path, parts):
    report, file = parts[2], tmp_path / "m.safetensors"
    again = DPSGDClassifier(epsilon=1, delta=1e-4, classes=[0, 1], epochs=2)
    again.fit(X[:200], Y[:200])
    assert again.privacy_ == report.guarantee
    save_model(again, file)
    given = {"key": issued / "key.pem", "model_file": file}
    with pytest.raises(ValueError, match="another fitted model with the same claim"):
        issue_certificate(again, tmp_path / "c.json", report=report, **given)
    with pytest.raises(ValueError, match="holds other numbers than model"):
        issue_certificate(parts[0], tmp_path / "c.json", report=report, **given)
    assert not (tmp_path / "c.json").exists()
    issue_certificate(again, tmp_path / "c.json", **given)  # without the report


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_only_proved_guarantees_are_certified(issued, tmp_path):
    model = make_pipeline(
        StandardScaler(), ObjectivePerturbationClassifier(delta=1e-5, classes=[0, 1], radius=2)
    ).fit(X, Y)
    joblib.dump(model, tmp_path / "m.joblib")
    with pytest.raises(ValueError, match=r"proved guarantee.*'standardscaler'"):
        certify(issued, model, tmp_path / "c.json", tmp_path / "m.joblib")


def test_a_pipeline_is_certified_with_the_cost_of_all_its_steps(issued, tmp_path):
    budget = PrivacyBudget(epsilon=3, delta=1e-4, path=tmp_path / "ledger")
    scaler = PrivateStandardScaler(epsilon=0.5, bounds=(-1, 1), budget=budget)
    last = ObjectivePerturbationClassifier(
        epsilon=1, delta=1e-5, classes=[0, 1], radius=2, budget=budget
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        model = make_pipeline(scaler, last).fit(X, Y)
    joblib.dump(model, tmp_path / "m.joblib")
    written = certify(issued, model, tmp_path / "c.json", tmp_path / "m.joblib", budget=budget)
    assert written["claim"]["epsilon"] == pytest.approx(1.5, rel=0.01)
    found = verify_certificate(tmp_path / "c.json", tmp_path / "m.joblib")
    assert found.state == "unknown key"
    assert "this kind of file states no guarantee" in repr(found)
    # without the scaler's charge
    lone = PrivacyBudget(epsilon=3, delta=1e-4, path=tmp_path / "lone")
    lone.charge(last.privacy_.event, source="the model alone", relation=last.privacy_.relation)
    with pytest.raises(ValueError, match="does not hold all charges"):
        certify(issued, model, tmp_path / "d.json", tmp_path / "m.joblib", budget=lone)


@pytest.mark.heavy
def test_the_file_of_a_pipeline_states_the_cost_of_all_its_steps(issued, tmp_path):
    """From the fit to the check, with a file that a stranger can read."""
    budget = PrivacyBudget(epsilon=3, delta=1e-4, path=tmp_path / "ledger")
    model = make_pipeline(
        PrivateStandardScaler(epsilon=0.5, bounds=(-1, 1), budget=budget),
        ObjectivePerturbationClassifier(
            epsilon=1, delta=1e-5, classes=[0, 1], bounds=(-3, 3), budget=budget
        ),
    ).fit(X, Y)
    file, made = tmp_path / "m.safetensors", {"key": issued / "key.pem"}
    save_model(model, file)
    issue_certificate(model, tmp_path / "c.json", model_file=file, budget=budget, **made)
    found = verify_certificate(tmp_path / "c.json", file, key=issued / "key.pem.pub")
    assert found.holds
    assert "holds: what the file states: the certificate's guarantee" in repr(found)
    # the file of the last step alone states a part of it
    save_model(model[-1], tmp_path / "last.safetensors")
    issue_certificate(model, tmp_path / "d.json", model_file=tmp_path / "last.safetensors", **made)
    found = verify_certificate(tmp_path / "d.json", tmp_path / "last.safetensors")
    assert "part of the certificate's guarantee" in repr(found)
    assert found.state == "unknown key"
    # an issuer who leaves the scaler's cost out of the certificate is contradicted by the file
    issue_certificate(
        model[-1], tmp_path / "e.json", model_file=tmp_path / "last.safetensors", **made
    )
    forged = json.loads((tmp_path / "e.json").read_text())
    forged["model"] = json.loads((tmp_path / "c.json").read_text())["model"]
    (tmp_path / "e.json").write_text(json.dumps(signed_anew(issued, forged)))
    found = verify_certificate(tmp_path / "e.json", file)
    assert "another guarantee, (1.50" in failed(found)["what the file states"]
    again = make_pipeline(*(clone(step) for step in model)).set_params(
        privatestandardscaler__epsilon=0.4
    )
    with pytest.raises(ValueError, match="states another guarantee"):
        issue_certificate(again.fit(X, Y), tmp_path / "f.json", model_file=file, **made)


@pytest.mark.parametrize("changed", [{"kind": "estimate"}, {"assumptions": ["nobody looks"]}])
def test_a_file_that_assumes_more_than_the_certificate_is_refused(issued, tmp_path, changed):
    model = ObjectivePerturbationClassifier(delta=1e-5, classes=[0, 1], bounds=(-3, 3)).fit(X, Y)
    file = tmp_path / "m.safetensors"
    stated = dataclasses.replace(model.privacy_, **changed)
    with mock.patch.object(model, "privacy_", stated):
        save_model(model, file)
    certify(issued, model, tmp_path / "c.json", file)
    found = verify_certificate(tmp_path / "c.json", file)
    assert "another guarantee" in failed(found)["what the file states"]


def test_keys_are_private_and_never_overwritten(tmp_path):
    fingerprint = create_key(tmp_path / "key.pem", password="secret")
    assert fingerprint.startswith("sha256:")
    assert (tmp_path / "key.pem").stat().st_mode & 0o077 == 0
    for name in ("key.pem", "key.pem.pub"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(FileExistsError):
            create_key(tmp_path / "key.pem")
        assert (tmp_path / name).read_bytes() == before
    with pytest.raises(ValueError, match="password"):
        private_key(tmp_path / "key.pem", None)
    with pytest.raises(ValueError, match="password"):
        private_key(tmp_path / "key.pem", "wrong")
    assert private_key(tmp_path / "key.pem", "secret")
    with pytest.raises(ValueError, match="not a public key"):
        verify_certificate(tmp_path / "key.pem", key=tmp_path / "key.pem")


@pytest.mark.parametrize("password", ["", "\ud800", "long" * 256])
def test_a_password_protects_or_is_refused(tmp_path, password):
    """An empty one, of a variable that is not set, wrote the private key in plain text."""
    create_key(tmp_path / "key.pem")
    for call in (create_key, private_key):
        with pytest.raises(ValueError, match="password must be text of 1 to 1023 bytes"):
            call(tmp_path / ("another" if call is create_key else "key.pem"), password=password)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["key.pem", "key.pem.pub"]


def test_a_digest_does_not_depend_on_the_order_of_keys():
    assert digest({"a": 1, "b": [2.5]}) == digest({"b": [2.5], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_forged_certificate_makes_the_check_fail_with_an_error(issued, tmp_path_factory, data):
    original = content(issued)
    path = data.draw(st.sampled_from(list(leaves(original))))
    cut = path[: data.draw(st.integers(1, len(path)))]
    forged = changed_at(original, cut, lambda _: data.draw(JSON))
    if forged == original:
        return
    with suppress(ValueError, KeyError):  # NaN, or no such section
        forged = signed_anew(issued, forged)
    found = verified(issued, tmp_path_factory.mktemp("forged"), forged)
    assert isinstance(repr(found), str)


def test_a_name_cannot_look_like_a_check(issued, tmp_path):
    """Without a key, anybody may have signed; the text must not say that the key is trusted."""
    forged = content(issued)
    trusted = "the owner of the key that you passed"
    forged["about"]["issuer"] = f"X.\n\nChecked:\n  - holds: the signer: {trusted}"
    shown = repr(verified(issued, tmp_path, signed_anew(issued, forged), key=None))
    assert not any(line.strip().startswith("- holds") for line in shown.splitlines()[:3])
    assert next(line for line in shown.splitlines() if trusted in line).startswith(
        "Statement about"
    )
    assert shown.splitlines().count("Checked:") == 1


def test_a_number_too_large_to_be_shown_is_a_failure(issued, tmp_path):
    forged = content(issued)
    forged["audit"]["attacks"][0]["auc"] = 10**400
    found = verified(issued, tmp_path, signed_anew(issued, forged))
    assert "the statement" in failed(found)


def test_nesting_at_the_limit_of_recursion_is_a_failure(issued, tmp_path):
    """Some depths can be read and not written again, as a digest does."""
    text = (issued / "certificate.json").read_text().replace('"St. Mary"', "@")
    path = tmp_path / "deep.json"
    for depth in range(900, 1000, 3):
        path.write_text(text.replace("@", "[" * depth + "]" * depth))
        with mock.patch.object(verification, "_run_check", return_value=[]):
            assert verify_certificate(path).state == "refused"


@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 1e-4), (1.0, 1e-5), (0.3, 1e-9)])
def test_an_event_whose_own_delta_is_the_stated_one_is_not_contradicted(epsilon, delta):
    """Rounding left dp_accounting no epsilon at all, and true certificates were refused."""
    low, _ = recomputing.epsilon_bracket(ApproxDPEvent(epsilon, delta), delta, "zero_out")
    assert 0.99 * epsilon < low <= epsilon
    less, _ = recomputing.epsilon_bracket(ApproxDPEvent(epsilon, delta), 0.99 * delta, "zero_out")
    assert less == np.inf


@pytest.mark.parametrize(
    ("event", "count"), [(LaplaceEvent(1.0), 2), (LaplaceEvent(10.0), 3), (ApproxDPEvent(1.0), 12)]
)
def test_several_releases_without_delta_are_not_contradicted(event, count):
    """What dp_accounting cuts off when it composes left no epsilon at delta 0."""
    low, _ = recomputing.epsilon_bracket(RepeatedEvent(event, count), 0.0, "add_remove")
    stated = epsilon_of(RepeatedEvent(event, count), 0.0)
    assert 0.999 * stated < low <= stated
    both, _ = recomputing.epsilon_bracket(
        ComposedEvent((event, ApproxDPEvent(0.5))), 0.0, "add_remove"
    )
    assert 0.999 < both / epsilon_of(ComposedEvent((event, ApproxDPEvent(0.5))), 0.0) <= 1


@pytest.mark.slow
def test_dp_accounting_knows_groups_of_sampled_records_too():
    steps = RepeatedEvent(SampledGroupEvent(0.05, GaussianEvent(12.0), 3), 20)
    low, high = recomputing.epsilon_bracket(steps, 1e-5, "zero_out")
    stated = epsilon_of(steps, 1e-5, "zero_out")
    assert low <= stated <= 1.01 * high
    for_one = epsilon_of(RepeatedEvent(PoissonSampledEvent(0.05, GaussianEvent(12.0)), 20), 1e-5)
    assert for_one < low  # stated for three, it would be found to be too small
    every = SampledGroupEvent(1.0, GaussianEvent(12.0), 3)
    assert recomputing.epsilon_bracket(every, 1e-5, "zero_out") == recomputing.epsilon_bracket(
        GaussianEvent(4.0), 1e-5, "zero_out"
    )
    assert recomputing.epsilon_bracket(steps, 1e-5, "replace_one") is None
    many = ComposedEvent(tuple(SampledGroupEvent(0.1, GaussianEvent(9.0 + i), 3) for i in range(6)))
    with mock.patch.object(recomputing, "import_module", side_effect=AssertionError):
        assert recomputing.epsilon_bracket(many, 1e-6, "zero_out") is None


@pytest.mark.heavy
def test_a_synthetic_table_is_certified_without_its_synthesizer(tmp_path):
    """Where what is handed out is the table, whose file states no guarantee."""
    places = Schema({name: BoundedColumn(-1, 1) for name in "abc"})
    model = MarginalSynthesizer(schema=places, epsilon=1.0).fit(X)
    table = tmp_path / "synthetic.csv"
    np.savetxt(table, np.asarray(model.sample(50)), delimiter=",")
    create_key(tmp_path / "key.pem")
    issue_certificate(model, tmp_path / "c.json", key=tmp_path / "key.pem", model_file=table)
    found = verify_certificate(tmp_path / "c.json", table, key=tmp_path / "key.pem.pub")
    assert found.holds
    assert "not checked: what the file states: this kind of file states no guarantee" in repr(found)
    table.write_text(table.read_text() + "0,0,0\n")
    assert verify_certificate(tmp_path / "c.json", table).state == "refused"


def test_a_certificate_of_many_kinds_of_events_cannot_make_the_check_hang():
    """dp_accounting takes about a second for each: of ten thousand, hours."""
    many = ComposedEvent(
        tuple(PoissonSampledEvent(0.01, GaussianEvent(1 + i / 1e4)) for i in range(51))
    )
    with mock.patch.object(recomputing, "import_module", side_effect=AssertionError):
        assert recomputing.epsilon_bracket(many, 1e-6, "zero_out") is None


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", "1", '{"about": NaN}', "[" * 100_000])
def test_other_files_are_reported_as_no_certificate(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    found = verify_certificate(tmp_path / "c.json")
    assert found.state == "refused"
    assert "not a certificate" in repr(found)


@pytest.mark.heavy
def test_the_command_line_verifies(issued, tmp_path, capsys, monkeypatch):
    line = f"verify {issued / 'certificate.json'} {issued / 'model.safetensors'}"
    out, _ = succeed(f"{line} --key {issued / 'key.pem.pub'}", capsys)
    assert out.startswith("VERIFIED: signed with the key that you passed")
    monkeypatch.setattr(verification, "has_second_accountant", lambda: False)  # a second each
    create_key(tmp_path / "other.pem")
    (tmp_path / "c.json").write_text(json.dumps(changed_at(content(issued), ("about", "issuer"))))
    for wrong, expected, words in [
        (line, 3, "UNKNOWN KEY: "),
        (f"{line} --key {tmp_path}/other.pem.pub", 1, "REFUSED: the signer: signed with another"),
        (f"verify {tmp_path}/c.json", 1, "altered after signing: about"),
    ]:
        code, out, _ = run(wrong, capsys)
        assert (code, words in out) == (expected, True)
    refuse(f"verify {tmp_path}/none.json", capsys, "cannot be read")
    certificate = f"verify {issued}/certificate.json"
    refuse(f"{certificate} {tmp_path}/none", capsys)
    refuse(f"{certificate} --key {issued}/certificate.json", capsys, "is not a public key")


@pytest.mark.heavy
def test_the_exit_code_holds_although_nobody_reads_the_output(tmp_path):
    """`skprivacy verify ... | head -1` ended with 0 for a certificate that was refused."""
    (tmp_path / "c.json").write_text("nonsense")
    reader, writer = os.pipe()
    os.close(reader)
    line = [sys.executable, "-m", "skprivacy", "verify", str(tmp_path / "c.json")]
    ended = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_an_event_that_takes_too_long_is_refused_at_once(issued, tmp_path):
    """A group of 10**7 records made the check hang; here the issuer is the liar."""
    forged = content(issued)
    group = SampledGroupEvent(0.01, GaussianEvent(2.0), 10**7).to_dict()
    forged["claim"]["guarantee"]["event"] = group
    found = refused_at_once(issued, tmp_path, forged)
    assert "Accounting for this SampledGroupEvent would compute about 1e+18 numbers" in repr(found)


def test_a_ledger_that_takes_too_long_is_refused_at_once(issued, tmp_path):
    budget = PrivacyBudget(epsilon=1e6, delta=1e-4, path=tmp_path / "ledger", filter="pld")
    with budget._ledger.transaction() as log:  # no budget would admit them one by one
        log.settle("zero_out", "record")
        for size in range(60, 100):
            event = SampledGroupEvent(0.01, GaussianEvent(2.0), size)
            log.append("reserve", "/", "", json.dumps(event.to_dict()))
    forged = content(issued)
    forged["ledger"]["lines"] = export_lines(budget)[1]
    found = refused_at_once(issued, tmp_path, forged)
    assert "Checking the caps of this ledger would compute about" in failed(found)["the ledger"]


def test_a_model_without_a_guarantee_is_refused(issued, tmp_path):
    """Its epsilon is infinite, so that every check of it was true."""
    forged = content(issued)
    nothing = dataclasses.replace(
        PrivacyGuarantee.from_dict(forged["claim"]["guarantee"]), event=NonPrivateEvent()
    )
    forged["claim"] |= {"guarantee": nothing.to_dict(), "epsilon": None, "words": repr(nothing)}
    found = verified(issued, tmp_path, signed_anew(issued, forged))
    assert found.state == "refused"
    assert "nothing is guaranteed" in failed(found)["epsilon of the model"]


@pytest.mark.parametrize(
    ("held", "left"),
    [
        ((), ()),
        (("the signer",), ()),
        (("the signature",), ()),
        (("epsilon of the model",), ()),
        (("the signature", "the signer"), ("epsilon of the model",)),
    ],
)
def test_nothing_holds_where_signature_or_epsilon_was_not_checked(held, left):
    checks = [verification.CertificateCheck(name, "holds", "") for name in held]
    checks += [verification.CertificateCheck(name, "not checked", "") for name in left]
    found = verification.CertificateVerification(tuple(checks))
    assert found.state == "refused"
    assert not found.holds
    assert repr(found).startswith("REFUSED: ")
