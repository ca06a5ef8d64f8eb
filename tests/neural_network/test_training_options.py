"""Optimizer, Clipping and Distributed: values that searches, clones and files take apart."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skprivacy import load_model, save_model
from skprivacy.neural_network import (
    Clipping,
    Distributed,
    DPSGDClassifier,
    DPSGDRegressor,
    Optimizer,
)

pytestmark = pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
X = np.random.default_rng(0).uniform(-1, 1, (90, 3))
y = (X[:, 0] > 0).astype(int)
SMALL = {
    "classes": [0, 1], "delta": 1e-3, "epochs": 2, "batch_size": 10, "hidden_layer_sizes": (4,),
    "random_state": 0, "noise_seed": 0,
}  # fmt: skip


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


@pytest.mark.parametrize(
    ("named", "spelled"),
    [
        ({"optimizer": "sgd"}, {"optimizer": Optimizer("sgd")}),
        ({"optimizer": "adam"}, {"optimizer": Optimizer("adam")}),
        ({"optimizer": "auto"}, {"optimizer": Optimizer()}),
        ({"max_grad_norm": 0.3}, {"max_grad_norm": Clipping(norm=0.3)}),
        ({"device": "cpu"}, {}),
    ],
)
def test_a_name_or_a_number_means_the_defaults(named, spelled):
    one, other = (DPSGDClassifier(**{**SMALL, **p}).fit(X, y) for p in (named, spelled))
    assert (weights(one) == weights(other)).all()
    assert one.privacy_ == other.privacy_


@pytest.mark.parametrize(
    ("owner", "given", "change"),
    [
        ("optimizer", Optimizer(), {"method": "adam"}),
        ("optimizer", Optimizer(), {"momentum": 0.1}),
        ("optimizer", Optimizer(), {"schedule": "cosine"}),
        ("optimizer", Optimizer(), {"averaging": 1.0}),
        ("optimizer", Optimizer(), {"averaging": "ema"}),
        ("max_grad_norm", Clipping(), {"method": "automatic"}),
        ("max_grad_norm", Clipping(), {"norm": 0.3}),
        ("max_grad_norm", Clipping("adaptive"), {"target_quantile": 0.1}),
        ("max_grad_norm", Clipping(norm=9.0), {"group_contribution": "sum"}),
    ],
    ids=str,
)
def test_each_setting_changes_the_weights_and_none_the_guarantee(owner, given, change):
    whose = np.arange(len(X)) // 3
    model = DPSGDClassifier(**SMALL, **{owner: given})
    changed = clone(model).set_params(**{f"{owner}__{name}": v for name, v in change.items()})
    one, other = (m.fit(X, y, groups=whose) for m in (model, changed))
    assert (weights(one) != weights(other)).any()
    assert one.privacy_ == other.privacy_


def test_parts_are_set_in_a_network_that_has_only_a_name_or_a_number():
    model = DPSGDClassifier(optimizer="adam", max_grad_norm=0.3)
    model.set_params(optimizer__momentum=0.5, max_grad_norm__method="automatic")
    assert model.optimizer == Optimizer("adam", momentum=0.5)
    assert model.max_grad_norm == Clipping("automatic", 0.3)
    model.set_params(optimizer="sgd", optimizer__schedule="cosine")
    assert model.optimizer == Optimizer("sgd", schedule="cosine")
    with pytest.raises(ValueError, match="Invalid parameter 'nesterov'"):
        model.set_params(optimizer__nesterov=True)


def test_a_clone_shares_nothing():
    model = DPSGDClassifier(optimizer=Optimizer("sgd"), max_grad_norm=Clipping("flat", 0.5))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    copy.set_params(optimizer__momentum=0.2, max_grad_norm__norm=2.0)
    assert (model.optimizer, model.max_grad_norm) == (Optimizer("sgd"), Clipping("flat", 0.5))


def test_a_search_varies_parts():
    network = DPSGDClassifier(**SMALL)
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), network),
        {"dpsgdclassifier__optimizer__momentum": [0.0, 0.9]},
        cv=2,
    ).fit(X, y)
    found = search.best_estimator_[-1]
    (momentum,) = search.best_params_.values()
    assert found.optimizer == Optimizer(momentum=momentum)
    assert network.optimizer == "auto"


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"optimizer": Optimizer("newton")}, "'method' parameter of Optimizer"),
        ({"optimizer": Optimizer(momentum=1.0)}, "'momentum' parameter of Optimizer"),
        ({"optimizer": Clipping()}, "'optimizer' parameter of DPSGDClassifier"),
        ({"max_grad_norm": Clipping(norm=0.0)}, "'norm' parameter of Clipping"),
        ({"max_grad_norm": Clipping(target_quantile=1.0)}, "'target_quantile' parameter"),
        ({"max_grad_norm": Optimizer()}, "'max_grad_norm' parameter of DPSGDClassifier"),
        ({"device": Distributed("sharded", device=3)}, "'device' parameter of Distributed"),
    ],
)
def test_wrong_settings_are_refused_by_name(option, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        DPSGDClassifier(**SMALL, **option)._validate_params()


@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGDRegressor])
def test_a_file_keeps_them(kind, tmp_path):
    known = {k: v for k, v in SMALL.items() if k != "classes"}
    model = kind(
        **known,
        optimizer=Optimizer("adam", momentum=0.7, averaging="ema"),
        max_grad_norm=Clipping("adaptive", 0.4, group_contribution="sum"),
    ).fit(X, y)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.optimizer, again.max_grad_norm) == (model.optimizer, model.max_grad_norm)
    again.set_params(noise_seed=0, random_state=0)
    assert (weights(again.fit(X, y)) == weights(model)).all()
