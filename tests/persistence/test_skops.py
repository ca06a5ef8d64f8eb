"""Models go through skops, which executes nothing of a file, and keep their guarantee."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from skprivacy.accounting import PrivacyBudget
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.preprocessing import BoundedColumn, Schema, SchemaTransformer

skops = pytest.importorskip("skops.io", reason="files of skops")

X = np.random.RandomState(0).uniform(-1, 1, size=(120, 3))
Y = (X[:, 0] > 0).astype(int)
SCHEMA = Schema({name: BoundedColumn(-1, 1) for name in "abc"})


def models():
    pytest.importorskip("torch", reason="networks")
    from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor

    few = {"epochs": 2, "delta": 1e-5}
    return {
        "linear": ObjectivePerturbationClassifier(bounds=(-1, 1), classes=[0, 1], delta=1e-5),
        "network": DPSGDClassifier(classes=[0, 1], **few),
        "deep": DPSGDClassifier(hidden_layer_sizes=(5, 4), classes=[0, 1], **few),
        "flat": DPSGDClassifier(hidden_layer_sizes=(), classes=[0, 1], **few),
        "numbers": DPSGDRegressor(target_bounds=(0, 1), **few),
    }


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["linear", "network", "deep", "flat", "numbers"])
def test_a_model_comes_back_with_its_guarantee_and_opens_no_ledger(name, tmp_path):
    ledger = tmp_path / "ledger"
    budget = PrivacyBudget(10, 1e-3, path=ledger)
    model = make_pipeline(SchemaTransformer(SCHEMA), models()[name].set_params(budget=budget))
    model.fit(X, Y)
    skops.dump(model, tmp_path / "model.skops")
    ledger.unlink()  # whoever is given the file has no ledger
    trusted = skops.get_untrusted_types(file=tmp_path / "model.skops")
    assert all(kind.startswith(("skprivacy.", "numpy.")) for kind in trusted), trusted
    found = skops.load(tmp_path / "model.skops", trusted=trusted)
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    assert found[-1].privacy_ == model[-1].privacy_
    assert found[-1].epsilon_ == model[-1].epsilon_
    assert found[-1].budget.path == budget.path
    assert not ledger.exists()


def test_a_network_is_pickled_without_torch_and_goes_on_training():
    model = models()["deep"].fit(X, Y)
    content = pickle.dumps(model)
    assert b"torch" not in content
    found = pickle.loads(content)
    np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))
    found.partial_fit(X, Y)
    assert found.privacy_.epsilon() > model.privacy_.epsilon()


def test_a_size_that_was_changed_after_the_fit_is_not_that_of_the_weights():
    model = models()["deep"].fit(X, Y)
    found = pickle.loads(pickle.dumps(model.set_params(hidden_layer_sizes=(9,))))
    np.testing.assert_array_equal(found.predict_proba(X), model.predict_proba(X))
