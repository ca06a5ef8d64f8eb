"""Odd parameters and odd records for every attack, for what it learns from and what it returns."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KernelDensity
from sklearn.neural_network import MLPClassifier

from skprivacy import attacks
from skprivacy.attacks import AttackResult, LabelCanaries, MembershipAttack

from .oracle import Refused, attempt, few
from .values import arguments, odd_arrays, odd_values, records

pytestmark = pytest.mark.heavy

N = 24
X = np.random.RandomState(0).normal(size=(N, 4))
y = np.arange(N) % 3
OTHERS = X[::-1] + 0.1
TARGET = LogisticRegression().fit(X, y)
NETWORK = MLPClassifier((4,), max_iter=5).set_params(max_iter=3).partial_fit(X, y, classes=range(3))
# What makes an attack cheap.
SMALL = {
    "target": TARGET, "pool": 2, "n_queries": 5, "epochs": 1, "n_canaries": 5, "random_state": 0,
}  # fmt: skip
WEIGHTS = [attacks.Updates.weights_of(TARGET) - step for step in (0.0, 0.01, 0.02)]
UPDATES = attacks.Updates(TARGET, WEIGHTS[:-1], WEIGHTS[1:], step=0.1, n_records=N)
OTHER_TARGETS = {
    attacks.StolenMemoriesAttack: NETWORK, attacks.UpdatesMembership: UPDATES,
    attacks.WhiteBoxAttack: NETWORK,
}  # fmt: skip
# What they need to answer at all.
FEWEST = {attacks.LabelOnlyAttack: {"n_queries": 9}, attacks.LearnedRatio: {"pool": 4}}
MEMBERSHIP = [
    kind
    for name in attacks.__all__
    if inspect.isclass(kind := getattr(attacks, name))
    and issubclass(kind, MembershipAttack)
    and not inspect.isabstract(kind)
]
# Attacks on something else than a classifier: their parameters, and the arguments of their methods.
ROW, TABLE = {"X": X}, {"X": X, "y": y}
IN_AND_OUT = {"X_in": X, "X_out": OTHERS}
TABLES = {"X_in": X, "y_in": y, "X_out": OTHERS, "y_out": y}
LABELLED = LabelCanaries.draw(y, 5, random_state=0)
GENERATED = {"generated": X, "reference": OTHERS}
SENT = attacks.party_gradient(TARGET, X[:2], y[:2])
CLIPPED = {
    "target": TARGET, "columns": None, "loss": None, "max_grad_norm": 1.0, "noise_multiplier": 0.5,
    "random_state": 0,
}  # fmt: skip
READ = {"gradient": SENT, "n_records": 2, "labels": y[:2]}
SEEN = {"gradients": [SENT], "batches": [(X[:2], y[:2])], "labels_known": True, "alpha": 0.05}
METHODS = {
    attacks.AggregateAttack: (
        {"n_records": N, "statistic": "linear", "noise": 0.0, "correlated": False, "fpr": 0.05},
        {
            "fit": {"released": X.mean(0), "reference": OTHERS, "means": None, "variances": None},
            "score_samples": ROW, "predict": ROW, "evaluate": IN_AND_OUT,
        },
    ),
    attacks.AttributeInference: (
        {
            "target": TARGET, "attribute": 0, "prior": "imputation", "imputer": None,
            "n_reference": 20,
        },
        {"fit": TABLE, "predict": TABLE, "impute": TABLE, "evaluate": {**TABLES, "alpha": 0.05}},
    ),
    attacks.BayesInversion: (
        CLIPPED,
        {
            "fit": {**TABLE, "prior": None}, "reconstruct": READ, "posterior": READ,
            "score_samples": {"gradient": SENT, "X": X, "y": y, "n_records": 2}, "evaluate": SEEN,
        },
    ),
    attacks.DensityRatio: (
        {}, {"fit": GENERATED, "score_samples": ROW, "evaluate": IN_AND_OUT}
    ),
    attacks.FirstLayerInversion: (
        CLIPPED, {"fit": TABLE, "reconstruct": READ, "evaluate": SEEN}
    ),
    attacks.GenerativeAttack: (
        {"discriminator": LogisticRegression(), "own": False},
        {"fit": GENERATED, "score_samples": ROW, "evaluate": IN_AND_OUT},
    ),
    attacks.GradientInversion: (
        {**CLIPPED, "distance": "cosine", "n_init": 1, "max_iter": 2, "learning_rate": 0.3},
        {"fit": TABLE, "reconstruct": READ, "evaluate": SEEN},
    ),
    attacks.LabelInferenceAttack: (
        {"target": TARGET, "prior": None, "n_canaries": 5, "random_state": 0},
        {
            "fit": TABLE, "predict": ROW,
            "score_samples": {"X": X, "label": y, "other": (y + 1) % 3},
            "evaluate": {"X": X, "canaries": LABELLED},
        },
    ),
    attacks.LikelihoodRatio: (
        {"n_neighbors": 5}, {"fit": GENERATED, "score_samples": ROW, "evaluate": IN_AND_OUT}
    ),
    attacks.MarginalAttack: (
        {"synthesizer": None, "n_shadows": 2, "n_bins": 5, "random_state": 0},
        {"fit": GENERATED, "score_samples": ROW, "evaluate": IN_AND_OUT},
    ),
    attacks.NearestGenerated: (
        {}, {"fit": GENERATED, "score_samples": ROW, "evaluate": IN_AND_OUT}
    ),
    attacks.PropertyInference: (
        {
            "target": LogisticRegression(), "n_shadows": 4, "n_train": None,
            "attack_model": None, "n_queries": 5, "train": None, "n_jobs": None, "random_state": 0,
        },
        {
            "fit": {"X": X, "y": y, "group": X[:, 0] > 0, "shares": (0.4, 0.6)},
            "decision_function": {"target": TARGET}, "predict": {"target": TARGET},
            "evaluate": {"models_with": [TARGET], "models_without": [TARGET]},
        },
    ),
    attacks.ShadowGenerators: (
        {"generator": KernelDensity(), "n_shadows": 2, "n_bins": 5, "random_state": 0},
        {"fit": GENERATED, "score_samples": ROW, "evaluate": IN_AND_OUT},
    ),
    attacks.ShadowPool: (
        {
            "estimator": LogisticRegression(), "n_shadows": 2, "n_jobs": None, "random_state": 0,
            "path": None, "stacked": "auto", "verbose": 0,
        },
        {
            "fit": {**TABLE, "sample_weight": None}, "membership": ROW, "left_out": ROW,
            "answers_vary": ROW, "logits": TABLE,
        },
    ),
}  # fmt: skip
ON_UPDATES_TOO = {
    attacks.AttributeInference: (
        {
            "target": UPDATES, "attribute": 0, "prior": "imputation", "imputer": None,
            "n_reference": 20,
        },
        {"fit": TABLE, "predict": TABLE, "impute": TABLE, "evaluate": {**TABLES, "alpha": 0.05}},
    ),
    attacks.PropertyInference: (
        {
            "target": UPDATES, "train": None, "n_shadows": 4, "n_train": 10, "attack_model": None,
            "n_jobs": None, "random_state": 0,
        },
        {
            "fit": {"X": X, "y": y, "group": X[:, 0] > 0, "shares": (0.4, 0.6)},
            "decision_function": {"target": UPDATES}, "predict": {"target": UPDATES},
            "evaluate": {"models_with": [UPDATES], "models_without": [UPDATES]},
        },
    ),
}  # fmt: skip
RESULT = AttackResult(np.arange(20.0) + 5, np.arange(20.0), "made up")
OF_RESULTS = {
    "by_group": {"groups_in": np.arange(20) % 2, "groups_out": np.arange(20) % 2},
    "epsilon_lower_bound": {"delta": 1e-6, "alpha": 0.05},
    "precision_recall": {"threshold": 3.0},
    "tpr_at_fpr": {"fpr": 0.1},
}
FUNCTIONS = {
    attacks.expected_power: {
        "n_records": N, "variances": np.ones(4), "noise": 0.1, "n_reference": None
    },
    attacks.Updates: {
        "model": TARGET, "before": WEIGHTS[:-1], "after": WEIGHTS[1:], "step": 0.1, "n_records": N,
        "max_grad_norm": None, "noise": 0.0,
    },
    attacks.Updates.averaged: {"updates": [UPDATES]},
    attacks.gradient_ascent: {
        "model": TARGET, "train": lambda weights: weights, "X": X, "y": y, "ascent": 0.1,
        "n_rounds": 2, "step": 0.1, "n_records": N, "max_grad_norm": None, "noise": 0.0,
    },
    attacks.party_gradient: {
        "target": TARGET, "X": X, "y": y, "loss": None, "max_grad_norm": 1.0,
        "noise_multiplier": 0.5, "random_state": 0,
    },
    attacks.gradient_of_step: {"before": WEIGHTS[:2], "after": WEIGHTS[1:], "learning_rate": 0.1},
    attacks.LabelCanaries.draw: {"y": y, "n_canaries": 5, "classes": None, "random_state": 0},
    attacks.ShadowPool.from_predictions: {
        "X": X, "probas": np.full((2, N, 3), 1 / 3), "trained": np.arange(2 * N).reshape(2, N) % 2,
        "classes": [0, 1, 2],
    },
    attacks.AttackResult: {
        "scores_in": X[:, 0], "scores_out": X[:, 1], "attack": "a", "alpha": 0.05
    },
    attacks.ExpectedPower: {"mu": 1.0},
}  # fmt: skip


@pytest.mark.parametrize("kind", MEMBERSHIP)
@given(data=st.data())
@few(2)
def test_membership_attacks(kind, data):
    known = {**SMALL, "target": OTHER_TARGETS.get(kind, TARGET), **FEWEST.get(kind, {})}
    valid = {k: known.get(k, v) for k, v in kind().get_params(deep=False).items()}
    given_ = data.draw(arguments(valid))
    attack = kind(**given_)
    member = data.draw(st.one_of(st.just(np.arange(N) < N // 2), st.none(), odd_arrays()))
    rows, labels = data.draw(records(X, y))
    names = {*valid, "X", "y", "member", "X_in", "X_out", "y_in", "y_out"}
    fitted = attempt(
        lambda: attack.fit(rows, labels, member), names, unchanged=lambda: sorted(vars(attack))
    )
    if isinstance(fitted, Refused):
        return
    rows, labels = data.draw(records(X, y))
    attempt(lambda: attack.score_samples(rows, labels), names)
    attempt(lambda: attack.evaluate(X, y, rows, labels), names)


@pytest.mark.parametrize(("kind", "valid_calls"), [*METHODS.items(), *ON_UPDATES_TOO.items()])
@given(data=st.data())
@few(3)
def test_other_attacks(kind, valid_calls, data):
    parameters, methods = valid_calls
    chosen = data.draw(arguments(parameters))
    if isinstance(chosen.get("path"), str | bytes):
        chosen["path"] = None  # it would be written to, as asked
    attack = kind(**chosen)
    names = {*parameters, "columns", "X"}
    for method, valid in methods.items():
        most = 1 if method == "fit" else 2
        given_ = data.draw(arguments(valid, most=most))
        answer = attempt(
            lambda method=method, given_=given_: getattr(attack, method)(**given_),
            {*names, *given_},
            unchanged=lambda: sorted(vars(attack)),
        )
        if method == "fit" and isinstance(answer, Refused):
            return


@pytest.mark.parametrize("method", OF_RESULTS)
@given(data=st.data())
@few(5)
def test_results(method, data):
    given_ = data.draw(arguments(OF_RESULTS[method], least=1))
    attempt(lambda: getattr(RESULT, method)(**given_), given_)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
@given(data=st.data())
@few(6)
def test_functions(function, data):
    given_ = data.draw(arguments(FUNCTIONS[function], least=1))
    attempt(lambda: function(**given_), given_)


@given(st.dictionaries(st.sampled_from(sorted(RESULT.to_dict())), odd_values(), max_size=3))
@few(20)
def test_descriptions_of_results(changes):
    state = {**RESULT.to_dict(), **changes}
    attempt(lambda: AttackResult.from_dict(state), {*state, "state"})
