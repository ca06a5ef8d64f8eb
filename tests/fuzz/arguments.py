"""Arguments of every public callable, by the names of parameters, and the few that are its own.

A parameter with a default takes it, unless ``CHEAP`` or the callable says otherwise. A new public
name whose required parameters have the names of others is called, and fuzzed, without a line here.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity
from sklearn.neural_network import MLPClassifier

from skprivacy import accounting, additive_model, attacks, audit, ensemble, synthesis
from skprivacy import preprocessing as pre
from skprivacy.accounting import GaussianEvent, LaplaceEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.accounting.events import RandomizedResponseEvent
from skprivacy.attacks import LabelCanaries
from skprivacy.federated import FederatedPlan
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.mechanisms import SecureRandom

N = 24
X = np.random.RandomState(0).uniform(size=(N, 4))
y = np.arange(N) % 2
OTHERS = X[::-1] * 0.9
IMAGES = np.random.RandomState(0).uniform(size=(N, 64))
TABLE = pd.DataFrame({"age": np.arange(N) * 2.0, "job": ["a", "b", "c"] * (N // 3), "ill": y})
FACTS = {"age": pre.BoundedColumn(0, 100), "job": pre.CategoricalColumn(["a", "b", "c"])}
SCHEMA = pre.Schema({**FACTS, "ill": pre.CategoricalColumn([0, 1])})
CLASSED = pre.Schema(FACTS, classes=[0, 1])
PLACES = pre.Schema({f"x{i}": pre.BoundedColumn(0, 1) for i in range(4)})
ONE = GaussianEvent(2.0)
VOTES = accounting.GNMaxEvent(40.0, votes=(220, 20, 10))
MANY_VOTES = accounting.RepeatedEvent(VOTES, 100)
COUNTS = np.array([[20, 3, 1], [10, 10, 4]])
GUARANTEE = PrivacyGuarantee(RandomizedResponseEvent(1.0))
TARGET = LogisticRegression().fit(X, y)
NETWORK = MLPClassifier((4,)).partial_fit(X, y, classes=[0, 1])
WEIGHTS = [attacks.Updates.weights_of(TARGET) - step for step in (0.0, 0.01, 0.02)]
UPDATES = attacks.Updates(TARGET, WEIGHTS[:-1], WEIGHTS[1:], step=0.1, n_records=N)
SENT = attacks.party_gradient(TARGET, X[:2], y[:2])
MEMBER = np.arange(N) < N // 2
PROBA = np.column_stack([X[:, 0], 1 - X[:, 0]])
PAIR = (np.arange(N) // 2, 100 + np.arange(N) // 2)
SCORES = np.random.RandomState(0).normal([[1.0], [0.0]], size=(2, 20))


def private(**params: Any) -> OutputPerturbationClassifier:
    return OutputPerturbationClassifier(**{"bounds": (0, 1), "classes": [0, 1], **params})


PRIVATE = private().fit(X, y)
ADDITIVE = additive_model.PrivateAdditiveClassifier(
    schema=pre.Schema(PLACES, classes=[0, 1]), n_rounds=1
).fit(X, y)

# Value of each parameter without a default.
NEEDED: dict[str, Any] = {
    "X": X, "y": y, "X_in": X, "y_in": y, "X_out": OTHERS, "y_out": y, "X_train": X, "y_train": y,
    "X_test": OTHERS, "y_test": y, "X_public": OTHERS, "x": X[:, 0],
    "generated": X, "reference": OTHERS, "synthetic": X[::2], "table": TABLE, "real": TABLE,
    "group": X[:, 0] > 0.5, "groups": np.arange(N) // 2,
    "scores_in": SCORES[0], "scores_out": SCORES[1], "groups_in": np.arange(20) % 5,
    "groups_out": 5 + np.arange(20) % 5, "proba_train": PROBA, "proba_test": PROBA[::-1],
    "released": X.mean(0),
    "estimator": LogisticRegression(), "model": TARGET, "target": TARGET, "module":
    torch.nn.BatchNorm1d(4), "synthesizer": synthesis.MarginalSynthesizer(
        schema=PLACES, method="independent"), "generator": KernelDensity(),
    "gradient": SENT, "gradients": [SENT], "batches": [(X[:2], y[:2])], "labels": y[:2],
    "models_with": [TARGET], "models_without": [TARGET], "updates": [UPDATES],
    "before": WEIGHTS[:-1], "after": WEIGHTS[1:], "step": 0.1, "train": lambda weights: weights,
    "ascent": 0.1, "n_rounds": 2, "learning_rate": 0.1, "variances": np.ones(4),
    "label": y, "canaries": LabelCanaries.draw(y, 5, random_state=0),
    "n_canaries": 5, "probas": np.full((2, N, 2), 0.5), "classes": [0, 1],
    "trained": np.stack([y, 1 - y]),
    "event": ONE, "events": (ONE, LaplaceEvent(3.0)), "noise_multiplier": 2.0, "sensitivity": 1.0,
    "epsilon": 1.0, "delta": 1e-6, "relation": "add_remove", "sampling_rate": 0.1, "rate": 0.5,
    "count": 3, "sigma": 4.0, "scale": 4.0, "size": 3, "kind": "gnmax", "n_queries": 5,
    "coefficients": (1.0, 0.5), "steps_per_epoch": 10,
    "epochs": 1, "smoothness": 0.05, "n_categories": 3, "p": (0.5, 0.5), "order": 5.0,
    "make_event": GaussianEvent, "fpr": 0.1, "parts": ["exact", "floating_point"], "k": 2,
    "charge_id": 3, "key": "1",
    "name": "adult", "epsilons": np.array([0.5, 1.0]), "guarantee": GUARANTEE,
    "n": 10, "right": 30,
    "guesses": 40, "n_coins": 100, "threshold": 3.0, "max_answers": 2, "votes": COUNTS,
    "aggregator": ensemble.GNMax(5.0), "moved": 1,
    "noise": 5.0, "n_features": 3, "n_outputs": 1, "n_parties": 4, "n_units": 30,
    "high": 5,
    "random": SecureRandom(), "std": 1.0, "values": ["a", "b"],
    "value": [0.0, 3.0, 1.0],
    "shape": (1, 8, 8), "schema": SCHEMA, "lower": 0,
    "upper": 1, "first": "2020-01-01", "last": "2020-12-31", "columns": FACTS, "bounds": (0, 1),
    "quantile": 0.5, "source": SCHEMA.to_json(), "bins": 10, "max_group_size": 4,
    "release": len, "neighbours": [(X, X[:-1])], "claim": GUARANTEE, "loss": 0.1,
    "param_grid": {"alpha": [0.1, 1.0]}, "alphas": [0.1, 1.0], "share": 0.5,
    "n_per_class": 2,
}  # fmt: skip
# What a parameter gets even if it has a default: it makes a call cheap, or the same again.
CHEAP: dict[str, Any] = {
    "target": TARGET, "random_state": 0, "n_shadows": 2, "pool": 2, "n_runs": 20,
    "seconds": 0.01,
    "n_samples": 10, "max_iter": 2, "n_init": 1, "n_trials": 2, "n_train": 6, "n_pairs": 2,
    "n_components": 2, "hidden_layer_sizes": (4,), "epochs": 1, "batch_size": 8, "n_selection": 5,
    "image_shape": (1, 8, 8), "download_if_missing": False, "cv": 2, "discriminator":
    LogisticRegression(), "baseline": None, "n_bins": 5, "n_reference": 20,
}  # fmt: skip
# What parameters are called that hold values of records, when they are given though they need not.
OPTIONAL: dict[str, Any] = {
    "groups": np.arange(N) // 2, "parties": np.arange(N) % 3, "sample_weight": np.ones(N),
    "subgroups": y, "X_public": OTHERS, "reference": OTHERS, "canaries": None,
    "shadow_probas": np.stack([PROBA, PROBA[::-1]]), "shadow_trained": np.stack([y, 1 - y]),
    "y": y, "labels": y[:2], "test": TABLE,
}  # fmt: skip

SMALL_ATTACK = {"n_queries": 5, "n_jobs": None}
# By the name of a callable: what differs. Of a class it is what it is made with.
OWN: dict[str, dict[str, Any]] = {
    "calibrate_to_attack": {"advantage": 0.1},
    "fetch_membership_benchmark": {"name": "texas100", "data_home": "nowhere"},
    "make_membership_benchmark": {"name": "location30"},
    "ALMFineTuner.plan": {"columns": ["a", "b", "c", "d"], "y": "cost"},
    "MarginalSynthesizer": {"schema": SCHEMA},
    "MarginalSynthesizer.plan": {"columns": ["age", "job", "ill"], "y": None},
    "PrivateAdditiveClassifier.plan": {"columns": ["x0", "x1", "x2", "x3"], "y": "cost"},
    "PrivateAdditiveRegressor.plan": {"columns": ["x0", "x1", "x2", "x3"], "y": "cost"},
    "AdaSSPRegressor.plan": {"columns": ["a", "b", "c", "d"], "y": "cost"},
    "FunctionalMechanismClassifier.plan": {"columns": ["a", "b", "c", "d"], "y": "cost"},
    "FunctionalMechanismRegressor.plan": {"columns": ["a", "b", "c", "d"], "y": "cost"},
    "PrivateStandardScaler.plan": {"columns": ["a", "b", "c", "d"], "y": None},
    "GNMaxEvent": {"noise_multiplier": 40.0, "votes": (220, 20, 10)},
    "LNMaxEvent": {"votes": (220, 20, 10)},
    "VoteThresholdEvent": {"threshold": 30.0, "votes": (220, 20, 10)},
    "sanitized_cost": {"event": MANY_VOTES, "noise_multiplier": 5.0, "order": 6.0},
    "PrivacyBudget": {"delta": 1e-6}, "PrivacyGuarantee": {"at_delta": 1e-6},
    "PrivacyBudget.charge": {"event": LaplaceEvent(9.0)},
    "PrivacyBudget.scope": {"epsilon": 1.0, "delta": 1e-7},
    "PrivacyBudget.spent": {"delta": 1e-6},
    "AggregateAttack": {"n_records": N}, "AggregateAttack.fit": {"reference": OTHERS},
    "AttributeInference": {"attribute": 0},
    "PropertyInference": {"n_shadows": 4, **SMALL_ATTACK},
    "PropertyInference.fit": {"shares": (0.4, 0.6)},
    "LabelOnlyAttack": {"n_queries": 9}, "LearnedRatio": {"pool": 4},
    "StolenMemoriesAttack": {"target": NETWORK}, "WhiteBoxAttack": {"target": NETWORK},
    "StolenMemoriesAttack.fit": {
        "X": np.random.RandomState(1).uniform(size=(6 * N, 4)), "labels": np.tile(y, 6),
        "y": np.arange(6 * N) % 4 < 2,
    },
    "UpdatesMembership": {"target": UPDATES}, "invert_class": {"label": 0},
    "GradientInversion": {"max_grad_norm": 1.0, "noise_multiplier": 0.5},
    "BayesInversion": {"max_grad_norm": 1.0, "noise_multiplier": 0.5},
    "Distributed": {"records": "sharded"},
    "FirstLayerInversion": {"max_grad_norm": 1.0, "noise_multiplier": 0.5},
    "BayesInversion.reconstruct": {"n_records": 2}, "BayesInversion.posterior": {"n_records": 2},
    "BayesInversion.score_samples": {"n_records": 2},
    "FirstLayerInversion.reconstruct": {"n_records": 2},
    "GradientInversion.reconstruct": {"n_records": 2},
    "LabelInferenceAttack": {"n_canaries": 5},
    "LabeledRecords.from_model": {"values": [[0.0, 0.5, 1.0]] * 4, "max_queries": 5},
    "AggregateAttack.expected_power": {"n_records": N, "noise_std": 0.1},
    "Updates": {"n_records": N, "noise_std": 0.0},
    "Updates.from_gradient_ascent": {"n_records": N, "noise_std": 0.0},
    "party_gradient": {"max_grad_norm": 1.0, "noise_multiplier": 0.5},
    "AttackResult": {"attack": "a"},
    "LabelInferenceResult.by_group": {"groups_in": [0, 1, 1], "groups_out": [0, 1]},
    "LabelInferenceResult.join_groups": {"groups_in": [0, 1, 1], "groups_out": [2, 3]},
    "audit": {"attacks": [attacks.LossThreshold()], "groups": PAIR},
    "audit_one_run": {
        "estimator": PRIVATE, "n_canaries": 20, "X": np.tile(X, (2, 1)), "y": np.tile(y, 2),
    },
    "audit_predictions": {"attacks": [attacks.LossThreshold()], "groups": PAIR},
    "audit_synthetic": {"attacks": [attacks.NearestGenerated()], "groups": PAIR},
    "audit_synthesizer": {"n_runs": 20, "n_canaries": 1, "y": None},
    "claim_of": {"model": PRIVATE}, "verify_privacy": {
        "estimator": pre.PrivateStandardScaler(bounds=(0, 1)), "claim": None, "X": X[:6, :1],
        "y": None,
    },
    "FederatedPlan": {"n_rounds": 5, "sampling_rate": 0.5},
    "FederatedPlan.event_at": {"noise_multiplier": 2.0},
    "GNMax": {"noise": 5.0}, "LNMax": {"noise": 5.0},
    "ConfidentGNMax": {"threshold_noise": 5.0, "noise": 5.0},
    "InteractiveGNMax": {"threshold_noise": 5.0, "noise": 5.0},
    "analyze_votes": {"delta": 1e-5},
    "ScatteringTransformer": {"image_shape": (12, 12)},
    "ScatteringTransformer.fit": {"X": np.ones((N, 144))},
    "SimCLREncoder.fit": {"X_public": IMAGES},
    "PATEClassifier": {"classes": [0, 1], "n_teachers": 4, "n_queries": 5},
    "PrivateKNNClassifier": {"classes": [0, 1], "n_neighbors": 5, "n_queries": 5},
    "ALMFineTuner": {"classes": [0, 1], "delta": 0.0},
    "MembershipRocDisplay.from_result": {"result": attacks.AttackResult(*SCORES, "made up")},
    "SmoothedClassifier": {"estimator": GaussianNB()},
    "Laplace": {"lower": -1.0, "upper": 1.0}, "Gaussian": {"lower": -1.0, "upper": 1.0},
    "KNorm": {"lower": -1.0, "upper": 1.0},
    "FloatGaussian.release": {"value": np.zeros(3)},
    "RandomizedResponse.release": {"value": [0, 1, 2]},
    "SecureRandom.add_normal": {"values": np.zeros(3)}, "SecureRandom.random_bytes": {"n": 3},
    "DateColumn": {"parts": ("month",)}, "Grid": {"cells": 10},
    "SupervisedAttack.evaluate": {"X_in": X * 0.7, "X_out": X * 0.8},
    "Schema": {"target_column": None}, "Schema.with_crosses": {"crosses": []},
    "Schema.with_constraints": {"constraints": []}, "EqualColumns": {"columns": ("a", "b")},
    "OrderedColumns": {"columns": ("a", "b")}, "SummedColumns": {"parts": ("a", "b"), "total": "t"},
    "MappedColumn": {"source": "a", "target": "b", "values": {"x": 1}},
    "ImpossibleValues": {"values": {"a": (0, 1)}},
    "PrivateAdditiveDisplay.from_estimator": {"model": ADDITIVE, "max_effects": 2},
    "IndirectInference.evaluate": {"X_out": X},
    "LearnedRatio.evaluate": {"X_out": X},
    "Schema.infer": {"X": TABLE, "y": None},
    "make_private_pipeline": {"model": private()},
    "synthetic_quality": {"synthetic": TABLE[::-1]},
    "private_count": {"x": y}, "ShadowGenerators": {"generator": KernelDensity()},
    **{
        f"fetch_{name}": {"data_home": "nowhere"}
        for name in ("adult", "mnist")
    },
    "private_group_size": {"groups": [0, 0, 1, 1, 1, 2]},
    "private_histogram": {"bins": [0.0, 0.5, 1.0]}, "private_quantile": {"n_candidates": 8},
    "MarginalSynthesizer.fit": {"X": TABLE, "y": None}, "MarginalSynthesizer.sample": {"n": 5},
    "DPGANSynthesizer.sample": {"n": 5},
    "SchemaTransformer": {"schema": SCHEMA}, "SchemaTransformer.fit": {"X": TABLE},
    "SchemaTransformer.transform": {"X": TABLE}, "LocalPerturbation": {"schema": PLACES},
    "PrivacySweepCV": {"estimator": private(), "epsilons": [0.5, 1.0, 2.0], "refit": 1.0},
    "PrivacySweepCV.fit": {"subgroups": y},
    "PrivateSearchCV": {
        "estimator": private(), "epsilon": 4.0, "delta": 1e-6, "test_size": 0.2,
    },
    "make_leakage_scorer": {"cv": None}, "suggest_model": {"schema": CLASSED, "n_records": 100},
    "make_grouped_table": {"X": X[:4], "y": y[:4], "max_group_size": 2},
}  # fmt: skip


@cache
def _attacked() -> Any:
    return attacks.AttackResult(SCORES[0], SCORES[1], "made up")


@cache
def _inverted() -> Any:
    attack = attacks.FirstLayerInversion(TARGET).fit(X, y)
    return attack.evaluate([SENT], [(X[:2], y[:2])])


@cache
def _reported() -> Any:
    return audit.audit(TARGET, X, y, X + 0.1, y, attacks=[attacks.LossThreshold()])


@cache
def _guessed() -> Any:
    attack = attacks.LabelInferenceAttack(TARGET, n_canaries=5, random_state=0).fit(X, y)
    return attack.evaluate(X, NEEDED["canaries"])


def _charged() -> Any:
    budget = PrivacyBudget(5.0, 1e-5)
    budget.reserve(ONE)
    return budget


# Objects whose methods are asked, of classes that are not simply made with arguments.
MADE: dict[str, Callable[[], Any]] = {
    "AttackResult": _attacked,
    "InversionResult": _inverted,
    "AuditReport": _reported,
    "LabelInferenceResult": _guessed,
    "PrivacyBudget": _charged,
    "VoteAnalysis": cache(lambda: ensemble.analyze_votes(COUNTS, ensemble.GNMax(5.0), delta=1e-5)),
    "SyntheticQuality": cache(lambda: synthesis.synthetic_quality(TABLE, TABLE[::-1], SCHEMA)),
    "PrivacyGuarantee": lambda: PrivacyGuarantee(accounting.RepeatedEvent(ONE, 3), 1e-6),
    "FederatedPlan": lambda: FederatedPlan(
        n_features=3, n_outputs=1, n_parties=4, n_units=30, n_rounds=5
    ),
}
