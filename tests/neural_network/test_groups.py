"""``groups=`` of networks: names, refusals, routing, persistence, files, and earlier training."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skprivacy import load_model, save_model
from skprivacy.accounting import ComposedEvent, PrivacyBudget
from skprivacy.neural_network import Clipping, DPNeuralNet, DPSGDClassifier, DPSGDRegressor

N, PATIENTS = 600, 200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
PATIENT = pd.Series(np.r_[np.arange(PATIENTS), RNG.integers(PATIENTS, size=N - PATIENTS)])
PATIENT.name = "patient"


def classifier(**params):
    defaults = {"classes": [0, 1], "hidden_layer_sizes": (4,), "epochs": 2, "epsilon": 2.0}
    return DPSGDClassifier(**{**defaults, **params})


def net(**params):
    return DPNeuralNet(nn.Linear(4, 2), nn.CrossEntropyLoss, max_epochs=2, epsilon=2.0, **params)


def regressor(**params):
    return DPSGDRegressor(target_bounds=(-1, 1), epochs=2, epsilon=2.0, **params)


KINDS = pytest.mark.parametrize("make", [classifier, net, regressor])


@pytest.mark.heavy
@KINDS
def test_the_claim_is_about_people(make):
    model = make().fit(X, Y, groups=PATIENT)
    assert model.privacy_.unit == "patient"
    assert model.privacy_.relation == "zero_out"
    assert "the number of groups is public" in model.privacy_.assumptions
    assert "per patient, zero-out" in repr(model.privacy_)
    event = model.privacy_event_
    steps = event.events[1] if isinstance(event, ComposedEvent) else event
    assert steps.event.sampling_rate == 0.25  # 50 of 200 people, not of 600 rows
    assert (
        make(relation="add_remove", n_records=PATIENTS).fit(X, Y, groups=PATIENT).privacy_.relation
        == "add_remove"
    )
    assert make().fit(X, Y, groups=PATIENT.to_numpy()).privacy_.unit == "group"
    assert make().fit(X, Y).privacy_.unit == "record"


@pytest.mark.heavy
def test_automatic_settings_count_groups():
    by_people = classifier(epochs="auto", hidden_layer_sizes="auto").fit(X, Y, groups=PATIENT)
    first = PATIENT.drop_duplicates().index
    as_many = classifier(epochs="auto", hidden_layer_sizes="auto").fit(X[first], Y[first])
    assert by_people.settings_ == as_many.settings_
    assert by_people.privacy_event_ == as_many.privacy_event_


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"max_group_size": 0}, "max_group_size"),
        ({"max_group_size": 1.5}, "max_group_size"),
        ({"max_grad_norm": Clipping(group_contribution="median")}, "group_contribution"),
        ({"delta": 0.006}, r"delta=0.006 must be below 1 / number of groups = 0.005"),
    ],
)
@KINDS
def test_parameters_are_checked(make, params, match):
    with pytest.raises(ValueError, match=match):
        make(**params).fit(X, Y, groups=PATIENT)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@KINDS
def test_training_goes_on_for_the_same_people_alone(make):
    budget = PrivacyBudget(epsilon=100, delta=1e-3)
    model = make(budget=budget).partial_fit(X, Y, groups=PATIENT)
    once = model.epsilon_
    model.partial_fit(X, Y, groups=PATIENT)
    assert (model.privacy_.unit, len(budget.entries())) == ("patient", 2)
    assert once < model.epsilon_ < 2 * once
    for other in (None, PATIENT.to_numpy(), PATIENT.rename("household")):
        before = model.module_, model.privacy_
        with pytest.raises(ValueError, match=r"must be 'patient'.*never added up"):
            model.partial_fit(X, Y, groups=other)
        assert (model.module_, model.privacy_) == before
    records = make().fit(X, Y)
    with pytest.raises(ValueError, match=r"unit='patient' must be 'record'"):
        records.partial_fit(X, Y, groups=PATIENT)
    assert len(budget.entries()) == 2
    assert model.set_params(budget=None).fit(X, Y).privacy_.unit == "record"  # anew


@pytest.mark.heavy
@KINDS
def test_clones_copies_and_files_keep_what_people_are_promised(make, tmp_path):
    model = make(max_group_size=3, max_grad_norm=Clipping(group_contribution="sum"))
    assert clone(model).get_params()["max_group_size"] == 3
    model.fit(X, Y, groups=PATIENT)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m", **({"module": nn.Linear(4, 2)} if make is net else {}))
    for again in (pickle.loads(pickle.dumps(model)), loaded):
        assert again.privacy_ == model.privacy_
        assert (again.max_group_size, again.max_grad_norm) == (3, model.max_grad_norm)
        again.partial_fit(X, Y, groups=PATIENT)
        with pytest.raises(ValueError, match="unit='record' must be 'patient'"):
            again.partial_fit(X, Y)


def test_a_file_on_disk_is_read_by_person(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.warns(match="noise_seed"):
        models = [
            classifier(noise_seed=3, random_state=0).fit(rows, Y, groups=PATIENT)
            for rows in (X, mapped)
        ]
    for a, b in zip(*(m.module_.parameters() for m in models), strict=True):
        assert torch.allclose(a, b, atol=1e-6)
