"""Models trained with a budget load without their ledger, and never train uncharged."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone

from skprivacy.accounting import ApproxDPEvent, LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.exceptions import BudgetExceededError
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import PrivateStandardScaler

RANDOM = np.random.RandomState(0)
X = RANDOM.uniform(-1, 1, (60, 2))
Y = (X[:, 0] > 0).astype(int)
BOUNDS = (-1.0, 1.0)


def linear(budget):
    return OutputPerturbationClassifier(epsilon=1.0, bounds=BOUNDS, classes=[0, 1], budget=budget)


def network(budget):
    return DPSGDClassifier(
        epsilon=1.0, delta=1e-4, hidden_layer_sizes=(), classes=[0, 1], epochs=1,
        relation="add_remove", n_records=60, batch_size=20, random_state=0, budget=budget,
    )  # fmt: skip


def scaler(budget):
    return PrivateStandardScaler(epsilon=1.0, bounds=BOUNDS, budget=budget)


def pickled(model, path):
    path.write_bytes(pickle.dumps(model))


@pytest.fixture(params=[linear, network, scaler])
def trained(request, tmp_path):
    budget = PrivacyBudget(1.1, 1e-4, tmp_path / "adult.ledger")
    return request.param(budget.scope("models")).fit(X, Y)


@pytest.mark.heavy
@pytest.mark.parametrize("store", [joblib.dump, pickled])
def test_loaded_model_needs_its_ledger_only_to_fit(trained, store, tmp_path):
    ledger, away = tmp_path / "adult.ledger", tmp_path / "elsewhere"
    shown = repr(trained.privacy_)
    store(trained, tmp_path / "model")
    ledger.rename(away)
    loaded = joblib.load(tmp_path / "model")
    answer = "transform" if hasattr(loaded, "transform") else "predict_proba"
    np.testing.assert_array_equal(getattr(loaded, answer)(X), getattr(trained, answer)(X))
    assert repr(loaded.privacy_) == shown
    for model in (loaded, copy.deepcopy(loaded), clone(loaded), joblib.load(tmp_path / "model")):
        assert "ledger cannot be read" in repr(model)
        assert "ledger cannot be read" in model._repr_html_()
        for fit in ("fit", "partial_fit"):
            if hasattr(model, fit):
                with pytest.raises(LedgerError, match=r"no privacy ledger at .*adult"):
                    getattr(model, fit)(X, Y)
    assert not ledger.exists()  # nobody began one anew
    away.rename(ledger)
    assert "no cap in this scope" in repr(loaded.budget)
    with pytest.raises(BudgetExceededError):
        loaded.fit(X, Y)
    assert len(PrivacyBudget.open(ledger).entries()) == 1


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 300])
def test_damaged_ledger_prevents_the_fit(content, tmp_path):
    path = tmp_path / "adult.ledger"
    stored = pickle.dumps(PrivacyBudget(1.0, path=path))
    path.write_bytes(content)
    loaded = pickle.loads(stored)
    assert repr(loaded) == f"PrivacyBudget at {path}: its ledger cannot be read"
    with pytest.raises(LedgerError, match="nothing was released"):
        loaded.reserve(LaplaceEvent(10.0))
    assert path.read_bytes() == content


def test_a_handle_that_was_loaded_first_finds_the_ledger_later(tmp_path):
    path, away = tmp_path / "adult.ledger", tmp_path / "elsewhere"
    budget = PrivacyBudget(1.0, path=path)
    stored = pickle.dumps(budget.scope("a", epsilon=0.5))
    path.rename(away)
    loaded = pickle.loads(stored)
    with pytest.raises(LedgerError, match="no privacy ledger"):
        loaded.spent()
    with pytest.raises(LedgerError, match="no privacy ledger"):
        loaded.scope("b", epsilon=0.1)
    away.rename(path)
    with pytest.raises(BudgetExceededError, match="'/a/'"):
        loaded.reserve(ApproxDPEvent(0.6))
    assert loaded.cap == (0.5, 0.0)
