"""Saved models: the same predictions and guarantee, nothing private, nothing executed."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file
from sklearn.base import clone

from skprivacy import load_model, save_model
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor

from .test_damaged import contents, written


@pytest.fixture
def frame():
    rng = np.random.RandomState(0)
    return pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])


def classifier(frame, labels, **params):
    y = np.array(labels)[np.arange(60) % len(labels)]
    return DPSGDClassifier(classes=labels, epochs=2, **params).fit(frame, y)


@pytest.mark.parametrize("labels", [[0, 1, 2], ["no", "yes"], [False, True], [-1, 2]])
def test_a_classifier_comes_back(frame, labels, tmp_path):
    model = classifier(frame, labels, hidden_layer_sizes=np.array([4, 3]), random_state=1)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert again.predict(frame).dtype == model.predict(frame).dtype
    assert again.privacy_ == model.privacy_
    assert again.epsilon_ == model.epsilon_
    assert again.feature_names_in_.tolist() == ["a", "b", "c"]
    assert again.partial_fit(frame, model.predict(frame)).epsilon_ > model.epsilon_


def test_weights_without_a_header_are_no_model(tmp_path):
    save_file({"w": np.zeros(1)}, tmp_path / "other")
    with pytest.raises(ValueError, match="not a model"):
        load_model(tmp_path / "other")


def _deep(facts):
    value = []
    for _ in range(5000):
        value = [value]
    return facts | {"settings_": value}


def _with(name, **more):
    return lambda facts: facts | {name: facts[name] | more}


DAMAGE = {
    "a method is replaced": lambda facts: facts | {"predict": "gone"},
    "privacy is replaced": lambda facts: facts | {"privacy_": None},
    "an unknown parameter": _with("params", secret=1),
    "enormous layers": lambda facts: _with("params", hidden_layer_sizes=[10**12])(
        _with("settings_", hidden_layer_sizes=[10**12])(facts)
    ),
    "other layers": _with("params", hidden_layer_sizes=[10**9, 10**9]),
    "enormous input": lambda facts: facts | {"n_features_in_": 10**12, "feature_names": None},
    "privacy of no event": _with("privacy", event={"type": "os.system"}),
    "too few classes": _with("classes", values=[0]),
    "nested too deep": _deep,
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused_in_words(frame, name, tmp_path):
    save_model(classifier(frame, [0, 1]), tmp_path / "m")
    header, arrays = contents(tmp_path / "m")
    load_model(written(tmp_path / "m", header, arrays))  # rewriting alone does no harm
    header["model"] = DAMAGE[name](header["model"])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        written(tmp_path / "m", header, arrays)
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(
        ValueError, match=r"damaged|not a model|not the tag of a known|not describe a guarantee"
    ):
        load_model(tmp_path / "m")


@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGDRegressor])
def test_facts_read_off_y_are_not_public_after_loading(frame, kind, tmp_path):
    y = np.arange(60) % 3
    with pytest.warns(PrivacyLeakWarning):
        save_model(kind(epochs=1).fit(frame, y), tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert "read off y" in str(again.privacy_.assumptions)
    assert np.isin(again.predict(frame), y).all() or kind is DPSGDRegressor
    with pytest.warns(PrivacyLeakWarning):  # fitted anew it reads again, and says so again
        assert "read off y" in str(clone(again).fit(frame, y).privacy_.assumptions)
    further = again.partial_fit(frame, y)  # what was read before is known by now: no new leak
    assert "read off y" in str(further.privacy_.assumptions)
