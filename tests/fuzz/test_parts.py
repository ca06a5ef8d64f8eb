"""Odd parameters for what estimators are made of: aggregators, heads, encoders, views, students."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from skprivacy import ensemble, fine_tuning, neural_network, preprocessing
from skprivacy.accounting import PrivacyBudget
from skprivacy.ensemble import GNMax
from skprivacy.federated import FederatedPlan
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.linear_model import PolynomialObjective

from .oracle import Refused, attempt, few
from .values import arguments, odd_arrays, records

pytestmark = pytest.mark.heavy

N = 24
X = np.random.RandomState(0).normal(size=(N, 4))
IMAGES = np.random.RandomState(0).uniform(size=(N, 64))
y = np.arange(N) % 3
SMALL = {
    "n_components": 2, "hidden_layer_sizes": (4,), "epochs": 1, "batch_size": 8, "random_state": 0,
    "n_samples": 10, "n_selection": 5, "estimator": GaussianNB(), "image_shape": (1, 8, 8),
}  # fmt: skip
# Estimators that no budget is charged for: what they are fitted to is public, or they are students.
ESTIMATORS = {
    ensemble.PropagationStudent: X,
    fine_tuning.HalfWhitening: X,
    neural_network.ConsistencyStudent: X,
    neural_network.SCARFEncoder: X,
    neural_network.ScatteringTransformer: IMAGES,
    neural_network.SimCLREncoder: IMAGES,
    neural_network.VATStudent: X,
    preprocessing.SmoothedClassifier: X,
}
VOTES = np.array([[20, 3, 1], [10, 10, 4]])
CALLS = {
    PolynomialObjective: {
        "slope": st.just(np.ones_like), "curvature": 0.5, "slope_l1": 9.0, "slope_l2": 9.0,
        "order": 2,
    },
    ensemble.GNMax: {"noise": 5.0},
    ensemble.LNMax: {"noise": 5.0},
    ensemble.ConfidentGNMax: {
        "threshold": 3.0, "max_answers": 2, "threshold_noise": 5.0, "noise": 5.0
    },
    ensemble.InteractiveGNMax: {
        "threshold": 3.0, "max_answers": 2, "threshold_noise": 5.0, "noise": 5.0,
        "reinforce": 0.9, "n_rounds": 2,
    },
    ensemble.analyze_votes: {
        "votes": VOTES, "aggregator": GNMax(5.0), "delta": 1e-5, "answered": None,
        "moments": None, "conversion": "tight",
    },
    ensemble.epsilon_of_moments: {
        "log_moments": np.array([0.1, 0.2]), "delta": 1e-5, "at": None
    },
    ensemble.PublicRecords: {"X": X},
    FederatedPlan: {
        "n_features": 3, "n_outputs": 1, "n_parties": 4, "n_units": 30, "n_rounds": 5,
        "of_parties": st.booleans(), "sampling_rate": 0.5, "max_grad_norm": 1.0,
        "noise_multiplier": 1.0, "n_noises": None, "n_untrusted": 1, "learning_rate": 1.0,
        "momentum": 0.9, "local_steps": 1, "local_learning_rate": 1.0,
    },
    neural_network.ColumnCorruption: {"share": 0.3},
    neural_network.RandomDistortion: {"shape": (1, 8, 8), "degrees": 20.0, "scale": 0.25},
    neural_network.RandomFlip: {"shape": (1, 8, 8)},
    neural_network.RandomShift: {"shape": (1, 8, 8), "pixels": 2},
    neural_network.freeze_batch_norm: {"module": torch.nn.BatchNorm1d(4)},
    neural_network.PrivateAdam: {
        "params": [torch.nn.Parameter(torch.zeros(3))], "lr": 0.01, "betas": (0.9, 0.999),
        "noise_std": 0.0, "eps": 1e-8,
    },
}  # fmt: skip
# Heads and what tells their sensitivity are checked when they are fitted.
HEADS = {
    fine_tuning.GradientHead: {"steps": 2, "clip": 0.2},
    fine_tuning.LeastSquaresHead: {},
    fine_tuning.NetworkHead: {
        "hidden_layer_sizes": (4,), "epochs": 1, "batch_size": 8, "n_records": None,
        "random_state": 0,
    },
    fine_tuning.PrototypeHead: {},
    fine_tuning.SoftmaxHead: {"ridge": 20.0},
}  # fmt: skip
SENSITIVITIES = {
    fine_tuning.SampledSensitivity: {"n_pairs": 2, "sampler": None, "alpha": 0.05},
    fine_tuning.Sensitivity: {"l2": 1.0, "l1": None},
}


@pytest.mark.parametrize("kind", ESTIMATORS)
@given(data=st.data())
@few(3)
def test_estimators(kind, data):
    model = kind(GaussianNB()) if kind is preprocessing.SmoothedClassifier else kind()
    valid = {k: SMALL.get(k, v) for k, v in model.get_params(deep=False).items()}
    for views in ("weak", "strong", "augment"):  # a caller's own functions of torch's tensors
        valid.pop(views, None)
    if ESTIMATORS[kind] is X:
        valid.pop("image_shape", None)
    given_ = data.draw(arguments(valid))
    model = kind(**given_)
    rows, labels = data.draw(records(ESTIMATORS[kind], y))
    names = {*valid, "X", "y", "X_public"}
    fitted = attempt(lambda: model.fit(rows, labels), names, lambda: sorted(vars(model)))
    if isinstance(fitted, Refused):
        return
    asked = data.draw(odd_arrays())
    for answer in ("predict", "predict_proba", "transform", "certify"):
        if hasattr(model, answer):
            attempt(lambda answer=answer: getattr(model, answer)(asked), names)


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
@given(data=st.data())
@few(5)
def test_parts(function, data):
    given_ = data.draw(arguments(CALLS[function], least=1))
    attempt(lambda: function(**given_), given_)


@pytest.mark.parametrize("kind", {**HEADS, **SENSITIVITIES})
@given(data=st.data())
@few(3)
def test_heads(kind, data):
    """They are made, or refused when a model is fitted with them, before anything is charged."""
    valid = {**HEADS, **SENSITIVITIES}[kind]
    given_ = data.draw(arguments(valid))
    part = attempt(lambda: kind(**given_), {*valid, "head", "sensitivity"})
    if isinstance(part, Refused):
        return
    budget = PrivacyBudget(1e6, 0.01)
    model = ALMFineTuner(
        classes=[0, 1, 2],
        budget=budget,
        **({"head": part} if kind in HEADS else {"sensitivity": part}),
    )
    attempt(
        lambda: model.fit(X, y, X_public=X[::-1]),
        {*valid, "head", "sensitivity", "X_public", "mechanism"},
        unchanged=lambda: (len(budget.entries()), sorted(vars(model))),
    )
