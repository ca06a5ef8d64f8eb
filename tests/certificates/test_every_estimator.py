"""A certificate of every private estimator, checked by a process that has neither data nor model.

What has no file without pickle is certified with a pickle, which is never opened by the check: the
certificate says that this kind of file states no guarantee, and the rest of it holds all the same.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import joblib
import numpy as np
import pytest

import skprivacy
from skprivacy import PrivacyBudget, issue_certificate, save_model, verify_certificate
from skprivacy.accounting import PrivacyGuarantee
from skprivacy.certificates import checking, create_key
from skprivacy.certificates.issuing import SECTIONS
from skprivacy.certificates.signing import private_key, sign
from skprivacy.preprocessing import BoundedColumn, LocalPerturbation, Schema

from ..contracts.cases import CASES, LABELS, PUBLIC, Case, three_classes
from .test_certificates import changed_at

pytestmark = pytest.mark.heavy

LOCAL = Case(
    lambda **params: LocalPerturbation(
        Schema({f"x{i}": BoundedColumn(-3, 3) for i in range(4)}), epsilon=2.0, **params
    ),
    three_classes,
    null_label=None,
)
ALL = {**CASES, **LABELS, "LocalPerturbation": LOCAL}
# Models that save_model refuses, with words of its error.
PICKLED = {
    "ALIBIClassifier-scores": "RidgeClassifier",
    "ALMFineTuner-rounded": "RoundedByPlace",
    "LP2STClassifier-drawn": "KNeighborsClassifier",
    "RandomizedResponseClassifier-scores": "RidgeClassifier",
}
CHECK = """if True:
    import json, sys
    from pathlib import Path
    from skprivacy.certificates import checking, verify_certificate
    folder, second = Path(sys.argv[1]), sys.argv[2] == "True"
    if not second:
        checking.has_second_accountant = lambda: False
    found = {}
    for certificate in sorted(folder.glob("*.json")):
        model, = (p for p in folder.glob(f"{certificate.stem}.*") if p != certificate)
        told = verify_certificate(certificate, model, key=folder / "k.pub")
        found[certificate.stem] = told.holds, {c.name: (c.status, c.words) for c in told.checks}
    print(json.dumps(found))
"""


def published(model):
    """Return an unfitted estimator of the library, where a case has a subclass for its tests."""
    kind = next(k for k in type(model).__mro__ if k.__module__.startswith("skprivacy."))
    return kind(**model.get_params(deep=False))


def fitted(name, budget):
    case = ALL[name]
    rows, y = case.data(40)
    rows = rows.astype("float32") if name.startswith("DPNeuralNet") else rows
    params = {"epochs": 1} if case.samples else {}
    made = case.make(**params)
    own = published(made)
    budgets = [name for name in own.get_params() if name.split("__")[-1] == "budget"]
    own.set_params(**dict.fromkeys(budgets[:1], budget))
    without = ("PrivateSearchCV", "SyntheticData")
    given = {}
    if name.startswith("DPFederatedClassifier"):
        given = {"parties": np.arange(len(rows)) % 3}
    elif type(made) is not type(own) and not name.startswith(without):
        given = {"X_public": PUBLIC}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few records: what is said of them is tested elsewhere
        return own.fit(rows, y, **given)


def names_to_be_tested(session):
    """Return the names that the tests of this file are about in this run; a test may need all."""
    items = [item for item in session.items if item.path == Path(__file__)]
    of_all = not all(hasattr(item, "callspec") for item in items)
    return [*ALL] if of_all else sorted({item.callspec.params["name"] for item in items})


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """Return a folder with the certificates, the files that they are about, and the public key."""
    issued, key = tmp_path_factory.mktemp("issued"), tmp_path_factory.mktemp("key") / "k.pem"
    create_key(key)
    (issued / "k.pub").write_bytes(key.with_name("k.pem.pub").read_bytes())
    for name in names_to_be_tested(request.session):
        budget = PrivacyBudget(1000, 1e-3, key.with_name(f"{name}.ledger"))
        model = fitted(name, budget)
        file = issued / f"{name}.safetensors"
        try:
            save_model(model, file)
        except ValueError as error:
            if "joblib" not in str(error) or why_pickled(name, "another reason") not in str(error):
                raise
            file = file.with_suffix(".joblib")
            joblib.dump(model, file)
        charged = None if budget.entries().empty else budget
        issue_certificate(model, issued / f"{name}.json", key=key, model_file=file, budget=charged)
    return issued, key


def why_pickled(name, otherwise=None):
    return next((why for part, why in PICKLED.items() if name.startswith(part)), otherwise)


def checked_elsewhere(folder, tmp_path, second):
    """Return what a process says that is handed the certificates, the files and a public key."""
    environment = {**os.environ, "PYTHONPATH": str(Path(skprivacy.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(folder), str(second)],
        capture_output=True, text=True, cwd=tmp_path, env=environment, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def checked(folder, tmp_path_factory):
    return checked_elsewhere(folder[0], tmp_path_factory.mktemp("elsewhere"), False)


@pytest.mark.everyday(12)
@pytest.mark.parametrize("name", ALL)
def test_it_holds_where_there_is_neither_data_nor_model(name, checked):
    holds, checks = checked[name]
    assert holds, checks
    status = {check: status for check, (status, _) in checks.items()}
    assert status["the signature"] == "holds"
    assert status["epsilon of the model"] == "holds"
    assert status["the ledger"] == ("not checked" if name == "LocalPerturbation" else "holds")
    stated, words = checks["what the file states"]
    if why_pickled(name):
        assert (stated, words) == ("not checked", "this kind of file states no guarantee")
    else:
        assert (stated, words) == ("holds", "the certificate's guarantee")


@pytest.mark.slow
def test_a_second_accountant_contradicts_none(folder, tmp_path):
    """One whose own delta is the stated one was: rounding left it no epsilon at all."""
    found = checked_elsewhere(folder[0], tmp_path, True)
    assert [name for name, (holds, _) in found.items() if not holds] == []
    second = "epsilon of the model, by dp_accounting"
    assert sum(checks[second][0] == "holds" for _, checks in found.values()) > len(found) / 2


def places(event, path=("claim", "guarantee", "event")):
    """Yield where the events of a claim hold a number."""
    for key, value in event.items() if isinstance(event, dict) else enumerate(event):
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, key)


def with_exact_noise(original):
    """Return a certificate whose whole claim says that its noise is exact."""
    stated = PrivacyGuarantee.from_dict(original["claim"]["guarantee"])
    exact = dataclasses.replace(stated, arithmetic="exact")
    changed = copy.deepcopy(original)
    changed["claim"] |= {
        "guarantee": exact.to_dict(), "words": repr(exact), "noise": exact.noise_in_words,
    }  # fmt: skip
    return changed


def tampered(original):
    """Yield a lie, and the check that is to find it: None where any may."""
    yield changed_at(original, ("claim", "epsilon"), lambda e: e / 2), "epsilon of the model"
    yield changed_at(original, ("claim", "delta"), lambda d: d / 2 + 1e-9), "delta"
    yield changed_at(original, ("claim", "words"), lambda w: f"0.{w}"), "the words"
    yield changed_at(original, ("claim", "guarantee", "kind"), lambda _: "estimate"), "the kind"
    yield changed_at(original, ("claim", "guarantee", "unit"), lambda _: "ward"), "the words"
    yield changed_at(original, ("claim", "noise"), lambda w: f"not {w}"), "the noise"
    yield changed_at(original, ("model", "sha256"), lambda d: d[::-1]), "the model file"
    if original["ledger"] is not None:
        yield changed_at(original, ("ledger", "lines"), lambda lines: lines[:-2]), "the ledger"
        yield changed_at(original, ("ledger", "epsilon"), lambda e: e / 2), "epsilon of all charges"
    for path in list(places(original["claim"]["guarantee"]["event"]))[:3]:
        yield changed_at(original, path, lambda n: n + 1), None


@pytest.mark.everyday(12)
@pytest.mark.parametrize("name", ALL)
def test_each_lie_of_the_issuer_is_refused_with_the_reason(name, folder, tmp_path):
    issued, key = folder
    (file,) = (p for p in issued.glob(f"{name}.*") if p.suffix != ".json")
    original, path = json.loads((issued / f"{name}.json").read_text()), tmp_path / "c.json"
    lies = [*tampered(original)]
    if original["claim"]["guarantee"]["arithmetic"] != "exact" and not why_pickled(name):
        lies = [(with_exact_noise(original), "what the file states"), *lies]
    for lie, named in lies:
        sections = {section: lie[section] for section in SECTIONS}
        signed = {**sections, "signature": sign(sections, private_key(key, None))}
        path.write_text(json.dumps(signed))
        with mock.patch.object(checking, "has_second_accountant", return_value=False):
            found = verify_certificate(path, file, key=issued / "k.pub")
        failed = [check.name for check in found.checks if check.status == "FAILED"]
        assert failed, lie["claim"]
        assert named is None or any(check.startswith(named) for check in failed), failed
        assert "the signature" not in failed
    path.write_text(json.dumps({**lie, "signature": original["signature"]}))
    found = verify_certificate(path, file, key=issued / "k.pub")  # somebody else altered it
    assert "altered after signing" in found.checks[0].words
