"""Saved models: the same predictions and guarantee, nothing private, nothing executed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor, load_model, save_model


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


def test_a_regressor_comes_back(frame, tmp_path):
    model = DPSGDRegressor(target_bounds=(-1, 1), epochs=2).fit(frame, frame["a"])
    save_model(model, tmp_path / "m")
    assert np.array_equal(load_model(tmp_path / "m").predict(frame), model.predict(frame))


def test_a_module_of_ones_own_is_given_again(frame, tmp_path):
    model = classifier(frame, [0, 1], module=nn.Linear(3, 2))
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m", module=nn.Linear(3, 2))
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match=r"load_model\(path, module="):
        load_model(tmp_path / "m")
    with pytest.raises(ValueError, match="does not fit"):
        load_model(tmp_path / "m", module=nn.Linear(3, 3))


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_no_seed_and_no_record_is_in_the_file(frame, tmp_path):
    canary = 0.123456789
    frame.iloc[3] = canary
    model = classifier(frame, [0, 1], random_state=987654321, noise_seed=876543219)
    save_model(model, tmp_path / "m")
    blob = (tmp_path / "m").read_bytes()
    for secret in (b"987654321", b"876543219", str(canary).encode(),
                   np.float32(canary).tobytes(), np.float64(canary).tobytes()):  # fmt: skip
        assert secret not in blob
    with safe_open(tmp_path / "m", framework="pt") as file:
        facts = json.loads(file.metadata()["skprivacy"])
        assert len(file.keys()) == len(model.module_.state_dict())
    assert facts["privacy"]["kind"] == "estimate"


def test_what_is_no_saved_model_is_refused(frame, tmp_path):
    save_file({"w": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(ValueError, match="not a model"):
        load_model(tmp_path / "other")
    (tmp_path / "half").write_bytes((tmp_path / "other").read_bytes()[:20])
    with pytest.raises(ValueError, match=r"half.*damaged"):
        load_model(tmp_path / "half")
    with pytest.raises(ValueError, match="Call fit first"):
        save_model(DPSGDClassifier(), tmp_path / "m")
