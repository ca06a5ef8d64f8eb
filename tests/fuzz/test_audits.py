"""Odd models, records and claims for audits, verifications, certificates and keys."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from skprivacy import attacks, audit, certificates, config_context, get_config
from skprivacy.accounting import PrivacyBudget, PrivacyGuarantee, RandomizedResponseEvent
from skprivacy.attacks import LossThreshold
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.persistence import load_model, save_model
from skprivacy.preprocessing import BoundedColumn, Schema
from skprivacy.synthesis import MarginalSynthesizer

from .oracle import Refused, attempt, few
from .values import arguments, odd_values

pytestmark = pytest.mark.heavy

N = 24
X = np.random.RandomState(0).uniform(size=(N, 3))
y = np.arange(N) % 2
OTHERS = X[::-1] * 0.9
MODEL = LogisticRegression().fit(X, y)
PRIVATE = OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1]).fit(X, y)
SYNTHESIZER = MarginalSynthesizer(
    schema=Schema({f"x{i}": BoundedColumn(0, 1) for i in range(3)}), method="independent"
)
PROBA = np.column_stack([X[:, 0], 1 - X[:, 0]])
SPLIT = {"X_train": X, "y_train": y, "X_test": OTHERS, "y_test": y}
FAIR = PrivacyGuarantee(RandomizedResponseEvent(1.0))
CALLS = {
    audit.audit: {
        "model": MODEL, **SPLIT, "attacks": [LossThreshold()], "n_shadows": 2, "alpha": 0.05,
        "subgroups": None, "random_state": 0, "n_jobs": None, "verbose": 0, "sample_weight": None,
    },
    audit.audit_one_run: {
        "estimator": PRIVATE, "X": X, "y": y, "n_canaries": 10, "canaries": None,
        "n_guesses": None, "score": None, "independent_canaries": False, "alpha": 0.05,
        "random_state": 0,
    },
    audit.audit_predictions: {
        "proba_train": PROBA, "y_train": y, "proba_test": PROBA[::-1], "y_test": y,
        "shadow_probas": None,
        "shadow_trained": None, "classes": None, "epsilon": None, "delta": 0.0,
        "attacks": ["loss"], "alpha": 0.05, "verbose": 0,
    },
    audit.audit_synthetic: {
        "synthetic": X[::2], "X_in": X, "X_out": OTHERS, "reference": None, "generator": None,
        "guarantee": None, "attacks": [attacks.NearestGenerated()], "alpha": 0.05,
        "random_state": 0, "groups": None,
    },
    audit.audit_synthesizer: {
        "synthesizer": SYNTHESIZER, "X": X, "y": None, "n_runs": 20, "n_canaries": 1,
        "alpha": 0.05, "random_state": 0,
    },
    audit.check_disclosure: {
        "model": MODEL, "X_train": X, "y_train": y, "X_new": OTHERS, "y_new": y,
        "min_records": 10, "min_degrees_of_freedom": 10, "max_gap": 0.1,
    },
    audit.claim_of: {"model": PRIVATE, "X": X},
    audit.verify_privacy: {
        "estimator": PRIVATE, "X": X, "y": y, "epsilon": None, "claim": None, "fit_params": None,
        "n_runs": 40, "seconds": 1.0, "alpha": 0.01, "n_jobs": None,
    },
    audit.verify_release: {
        "release": lambda records: len(records), "neighbours": [(X, X[:-1])], "claim": FAIR,
        "n_runs": 40, "seconds": 1.0, "alpha": 0.01, "n_jobs": None,
    },
    audit.About: {
        "data": "d", "author": "a", "command": "c", "date": None, "record": "record",
        "schema_digest": "", "ledger_digest": "", "seeds": None,
    },
    certificates.create_key: {"path": "key", "password": None},
}  # fmt: skip


@pytest.fixture(scope="module")
def issued(tmp_path_factory):
    """A model, a ledger, a key and a certificate of them."""
    folder = tmp_path_factory.mktemp("issued")
    budget = PrivacyBudget(10.0, 1e-4, path=folder / "ledger")
    model = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1), delta=1e-6, budget=budget).fit(
        X, X[:, 0]
    )
    save_model(model, folder / "model")
    certificates.create_key(folder / "key")
    certificates.issue_certificate(
        model, folder / "certificate", key=folder / "key", model_file=folder / "model"
    )
    return folder, model, budget


@pytest.mark.parametrize("function", CALLS)
@given(data=st.data())
@few(3)
def test_audits(function, data, tmp_path_factory):
    given_ = data.draw(arguments(CALLS[function], least=1))
    if isinstance(given_.get("path"), str | bytes):  # it would be written to, as asked
        given_["path"] = tmp_path_factory.mktemp("key") / "key"
    attempt(lambda: function(**given_), {*given_, "labels", "relation", "member"})


@given(data=st.data())
@few(10)
def test_certificates(issued, data):
    folder, model, budget = issued
    valid = {
        "model": model, "key": folder / "key", "model_file": folder / "model", "budget": budget,
        "report": None, "schema": None, "issuer": "", "password": None,
    }  # fmt: skip
    given_ = data.draw(arguments(valid, least=1))
    place = folder / "another"
    place.unlink(missing_ok=True)
    attempt(
        lambda: certificates.issue_certificate(path=place, **given_),
        given_,
        unchanged=lambda: sorted(folder.iterdir()),
    )


@given(data=st.data())
@few(10)
def test_verification_of_certificates(issued, data):
    folder, *_ = issued
    valid = {
        "path": folder / "certificate", "model_file": folder / "model",
        "key": folder / "key.pub", "schema": None,
    }  # fmt: skip
    given_ = data.draw(arguments(valid, least=1))
    attempt(lambda: certificates.verify_certificate(**given_), {*given_, "certificate"})


@given(data=st.data())
@few(10)
def test_altered_certificates(issued, data):
    """A certificate in which something was replaced is no genuine one, or it is refused."""
    folder, *_ = issued
    content = json.loads((folder / "certificate").read_text())
    part = data.draw(st.sampled_from(sorted(content)))
    content[part] = data.draw(
        st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=5),
                  st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
    )  # fmt: skip
    assume(content != json.loads((folder / "certificate").read_text()))
    altered = folder / "altered"
    altered.write_text(json.dumps(content))
    found = attempt(
        lambda: certificates.verify_certificate(altered, key=folder / "key.pub"),
        {"path", "certificate", "altered", part},
    )
    assert isinstance(found, Refused) or not found.holds


@given(data=st.data())
@few(10)
def test_models_that_cannot_be_saved(data, tmp_path_factory):
    place = tmp_path_factory.mktemp("saved") / "model"
    model, path = data.draw(
        st.one_of(st.tuples(odd_values(), st.just(place)), st.tuples(st.just(PRIVATE), _no_path()))
    )
    attempt(lambda: save_model(model, path), {"model", "path"}, lambda: place.exists())
    attempt(lambda: load_model(path), {"path", "file"})


def _no_path():
    return odd_values().filter(lambda path: not isinstance(path, str | bytes))


@given(data=st.data())
@few(10)
def test_configurations(data):
    given_ = data.draw(arguments(get_config(), least=1))
    before = get_config()

    def within():
        with config_context(**given_):
            pass

    attempt(within, given_)
    assert get_config() == before
