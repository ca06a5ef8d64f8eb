"""Stacked shadow models of a private network are trained as the private network trains."""

import pickle
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np
import pytest
from joblib import wrap_non_picklable_objects
from scipy.stats import kstest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from skprivacy._clones import shadow_clone
from skprivacy._stacked import StackedMember, is_stackable, stacked_dpsgd, train_stacked
from skprivacy.accounting import PrivacyBudget
from skprivacy.attacks import ShadowPool
from skprivacy.exceptions import PrivacyWarning
from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.neural_network import Clipping, Distributed, DPSGDClassifier, Optimizer, RandomShift
from skprivacy.neural_network._training.training_config import TrainingConfig
from skprivacy.preprocessing import PrivateStandardScaler

pytestmark = pytest.mark.heavy


def problem(n=300, n_classes=3):
    X, y = make_classification(
        n, 10, n_informative=8, n_classes=n_classes, n_clusters_per_class=1, random_state=0
    )
    return X / 5, y


class EstimatorsDraws:
    """Batches and noise from the stream of the private estimator, in the order it takes them."""

    def __init__(self, fit, n_parameters):
        self.random = SecureRandom(fit.seed)
        self.random.random_bytes(7)  # the estimator has seeded torch's dropout
        config = fit.config
        self.batches = self.draw(PoissonSampler(config.sampling_rate), len(fit.inputs))
        sizes = [fit.inputs.shape[1], *(len(bias) for _, bias in fit.layers)]
        self.noise = self.add(sizes, config.noise_std * config.max_grad_norm, config.batch_size)

    def draw(self, sampler, n):
        while True:
            yield sampler.draw(n, self.random)

    def add(self, sizes, std, divisor):
        first, order = 0, []
        for fan_in, fan_out in pairwise(sizes):  # in torch weights are (out, in)
            places = first + np.arange((fan_in + 1) * fan_out)
            weights, biases = places[:-fan_out].reshape(fan_out, fan_in), places[-fan_out:]
            order.append(np.vstack([weights.T, biases]).ravel())
            first += len(places)
        while True:
            noise = np.zeros(first, np.float32)
            if std:
                self.random.add_normal(noise, std)
            yield noise[np.concatenate(order)] / np.float32(divisor)


NETWORKS = [
    {},
    {"hidden_layer_sizes": ()},
    {"hidden_layer_sizes": (12, 7)},
    {"batch_size": 20},
    {"max_grad_norm": Clipping("per-layer", 0.3)},
    {"max_grad_norm": Clipping("automatic")},
    {"optimizer": Optimizer("adam", momentum=0.8)},
    {"epsilon": np.inf, "epochs": 20},
]


@pytest.mark.everyday(5)
@pytest.mark.parametrize(
    "change",
    [
        *NETWORKS,
        {"learning_rate": 0.3, "optimizer": Optimizer(momentum=0.0)},
        {"hidden_layer_sizes": "auto", "epochs": "auto"},
        {"optimizer": Optimizer(averaging=1.0), "relation": "add_remove", "n_records": 400},
        {"optimizer": Optimizer(schedule="cosine", averaging=0.0)},
        {"class_weight": {1: 3.0}},
        {"class_prior": [0.9, 0.07, 0.03], "hidden_layer_sizes": ()},
        {"classes": range(5)},
        {"batch_size": 1, "epochs": 1},  # many batches are empty
        {"epsilon": None, "noise_multiplier": 2.0},
    ],
    ids=str,
)
def test_equals_the_private_estimator_step_by_step(change, monkeypatch):
    # with one seed both draw the same batches and the same noise
    X, y = problem()
    X[3, 2], X[4] = np.nan, 1e30
    model = DPSGDClassifier(
        hidden_layer_sizes=(9,), epsilon=5.0, delta=1e-3, classes=range(3), epochs=4, noise_seed=0
    ).set_params(**change)
    monkeypatch.setattr(stacked_dpsgd, "Draws", EstimatorsDraws)
    rows = [np.arange(150), np.arange(100, 300)]
    stacked = train_stacked(model, X, y, rows, [7, 8], n_jobs=1)
    for chosen, seed, member in zip(rows, (7, 8), stacked, strict=True):
        with pytest.warns(PrivacyWarning, match="noise_seed"):
            own = (
                clone(model)
                .set_params(noise_seed=seed, random_state=seed)
                .fit(X[chosen], y[chosen])
            )
        assert (member.classes_ == own.classes_).all()
        there = member.predict_proba(X[5:])
        assert there == pytest.approx(own.predict_proba(X[5:]), abs=2e-3)
        assert np.abs(there - 1 / len(own.classes_)).max() > 0.02  # something was learned


def description(n, **change):
    X, y = problem(n)
    model = DPSGDClassifier(epsilon=5.0, delta=1e-3, classes=range(3), batch_size=30)
    return model.set_params(random_state=0, **change)._stacked_training()(X, y)


def test_batches_drawn_ahead_are_independent_trials():
    fit = description(300)
    batches = list(islice(stacked_dpsgd.Draws(fit, 5).batches, 1000))
    taken = np.array([np.bincount(rows, minlength=300) for rows in batches])
    assert taken.max() == 1  # no record twice, none out of range
    assert taken.shape == (1000, 300)
    trials, rate = taken.astype(float), fit.config.sampling_rate
    # seeded; sums of 300,000 trials in all, within five standard deviations
    assert abs(trials.mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / trials.size)
    assert np.abs(trials.mean(0) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / 1000)
    assert np.abs(trials.mean(1) - rate).max() < 5 * np.sqrt(rate * (1 - rate) / 300)
    for one, next_one in ((trials[1:], trials[:-1]), (trials[:, 1:], trials[:, :-1])):
        correlation = np.corrcoef(one.ravel(), next_one.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(one.size)


def test_batches_of_a_sampling_rate_of_one_are_whole():
    batches = stacked_dpsgd.Draws(description(90, batch_size=90), 5).batches
    assert all((next(batches) == np.arange(90)).all() for _ in range(100))


@pytest.mark.parametrize("size", [7, 40_000])
def test_noise_drawn_ahead_is_fresh_in_every_step(size):
    fit = description(300)
    rows = np.array(list(islice(stacked_dpsgd.Draws(fit, size).noise, 10)))
    assert len(np.unique(rows)) > 0.99 * rows.size
    size_of_noise = fit.config.noise_multiplier / fit.config.batch_size  # the norm is 1
    assert kstest(rows.ravel() / size_of_noise, "norm").pvalue > 1e-6


@pytest.mark.slow
def test_a_process_that_trains_needs_no_torch():
    tasks = [replace(description(60), seed=seed) for seed in (0, 1)]
    code = (
        "import pickle, sys; train, tasks = pickle.load(sys.stdin.buffer); "
        "train(tasks); sys.exit('torch' in sys.modules)"
    )
    sent = (stacked_dpsgd.train_private, tasks)
    sent = pickle.dumps(wrap_non_picklable_objects(sent, keep_wrapper=False))
    assert subprocess.run([sys.executable, "-c", code], input=sent, check=False).returncode == 0


def test_members_have_noise_of_their_own_that_the_pool_can_repeat():
    X, y = problem(60)
    model = DPSGDClassifier(hidden_layer_sizes=(64,), delta=1e-3, classes=range(3), epochs=1)
    one, two = (ShadowPool(model, n_shadows=4, random_state=5).fit(X, y) for _ in range(2))
    assert (one.logits(X, y) == two.logits(X, y)).all()
    starts = np.stack([model.layers[1][0] for model in one.estimators_])  # zero but for the noise
    assert np.abs(np.corrcoef(starts.reshape(4, -1)) - np.eye(4)).max() < 0.4


def test_a_noise_seed_is_not_shared_by_models_trained_one_by_one():
    model = DPSGDClassifier(noise_seed=3)
    assert shadow_clone(model, 1).noise_seed == 1
    assert shadow_clone(make_pipeline(model), 2).steps[0][1].noise_seed == 2
    assert shadow_clone(DPSGDClassifier(), 1).noise_seed is None


# Another value of every parameter, and whether the stack knows what to do with it.
OTHERS = {
    "hidden_layer_sizes": ((3,), True),
    "module": (nn.Linear, False),
    "augment": (RandomShift((1, 2, 5)), False),
    "epsilon": (3.0, True),
    "delta": (1e-4, True),
    "noise_multiplier": (2.0, True),
    "noise": ("logistic", False),
    "max_grad_norm": (2.0, True),
    "batch_size": (10, True),
    "epochs": (2, True),
    "optimizer": ("adam", True),
    "learning_rate": (0.1, True),
    "classes": ([0, 1, 2], True),
    "class_prior": ([0.2, 0.3, 0.5], True),
    "class_weight": ({1: 3.0}, True),
    "relation": ("add_remove", False),  # fit refuses one of the two without the other
    "n_records": (400, False),
    "max_group_size": (5, True),  # of groups, with which models are trained one by one
    "device": ("cpu", True),
    "random_state": (1, True),
    "noise_seed": (1, True),
    "budget": (PrivacyBudget(1.0, 1e-5), True),
    # of every part of a parameter
    "max_grad_norm__method": ("adaptive", False),
    "max_grad_norm__norm": (2.0, True),
    "max_grad_norm__target_quantile": (0.3, False),
    "max_grad_norm__group_contribution": ("sum", True),
    "optimizer__method": ("adam", True),
    "optimizer__schedule": ("linear", True),
    "optimizer__momentum": (0.5, True),
    "optimizer__averaging": ("ema", False),
    "device__records": ("replicated", False),
    "device__device": ("cpu", False),
}


OPTIONS = {"max_grad_norm": Clipping(), "optimizer": Optimizer(), "device": Distributed("sharded")}


@pytest.mark.parametrize("name", sorted(DPSGDClassifier(**OPTIONS).get_params()))
def test_unknown_networks_are_trained_one_by_one(name):
    # whatever a parameter does that the stack does not know: never trained wrongly in silence
    other, known = OTHERS[name]
    given = {k: clone(v) for k, v in OPTIONS.items() if name.startswith(f"{k}__")}
    model = DPSGDClassifier(**given)
    assert is_stackable(model.set_params(**{name: other})) is known
    assert not is_stackable(model.set_params(**{name: object()}))  # fit says why


def test_weights_that_predictions_undo_are_trained_one_by_one():
    for weight in ("balanced", {1: 3.0}):
        model = DPSGDClassifier(class_prior=[0.2, 0.8], class_weight=weight)
        assert not is_stackable(model)


@dataclass(frozen=True, kw_only=True)
class NewConfig(TrainingConfig):
    """A configuration that has learned something since the stacked trainer was written."""

    twice: bool = False


@pytest.mark.parametrize("twice", [False, True])
def test_a_new_setting_is_refused_by_construction(twice, monkeypatch):
    plan = DPSGDClassifier._plan

    def planned(self, n, recipe):
        return NewConfig(**vars(plan(self, n, recipe)), twice=twice)

    monkeypatch.setattr(DPSGDClassifier, "_plan", planned)
    assert is_stackable(DPSGDClassifier()) is not twice


@pytest.mark.parametrize(
    "loss",
    [nn.NLLLoss(reduction="none"), nn.CrossEntropyLoss(label_smoothing=0.1, reduction="none")],
)
def test_a_new_loss_is_refused_by_construction(loss, monkeypatch):
    monkeypatch.setattr(DPSGDClassifier, "_loss", lambda self: loss)
    with pytest.raises(NotImplementedError, match="Stacked training"):
        description(60)


@pytest.mark.parametrize(
    "estimator",
    [
        DPSGDClassifier(module=nn.Linear(10, 3)),
        DPSGDClassifier(device="mps"),
        type("Own", (DPSGDClassifier,), {})(),
        DecisionTreeClassifier(),
    ],
)
def test_others_are_trained_one_by_one(estimator):
    assert not is_stackable(estimator)
    with pytest.raises(ValueError, match="stacked='auto'"):
        ShadowPool(estimator, n_shadows=2, stacked=True).fit(*problem())


def test_networks_that_held_out_records_end_are_trained_one_by_one():
    assert all(is_stackable(DPSGDClassifier(device=d)) for d in ("cuda", "cuda:0", "auto"))
    network = DPSGDClassifier(epsilon=np.inf)
    assert [is_stackable(network, n) for n in (1999, 2000, np.inf)] == [True, False, False]
    assert is_stackable(network.set_params(epochs=5))


def test_pipeline_strings_missing_classes_and_no_charge(tmp_path):
    X, y = problem(200)
    y = np.array(["ash", "elm", "oak"], dtype=object)[y]
    y[:1] = "rare"
    budget = PrivacyBudget(1e-6, 1e-9)
    scaler = PrivateStandardScaler(bounds=(-2.0, 2.0), epsilon=10.0, budget=budget)
    network = DPSGDClassifier(epsilon=30.0, delta=1e-3, epochs=10, budget=budget)
    model = make_pipeline(scaler, network)
    pool = ShadowPool(model, n_shadows=4, random_state=0, path=tmp_path / "pool").fit(X, y)
    assert all(isinstance(shadow, StackedMember) for shadow in pool.estimators_)
    assert sorted(len(shadow.classes_) for shadow in pool.estimators_) == [3, 3, 4, 4]
    assert pool.classes_.tolist() == ["ash", "elm", "oak", "rare"]
    assert np.isfinite(pool.logits(X, y)).all()
    right = [(model.predict(X) == y).mean() for model in pool.estimators_]
    assert np.mean(right) > 0.6  # 0.91 +- 0.01; a constant has 0.33
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = clone(pool).fit(X, y)  # loaded
    assert (again.logits(X, y) == pool.logits(X, y)).all()


def test_settings_that_the_estimator_refuses_are_refused():
    X, y = problem(60)
    with pytest.raises(ValueError, match="must be below 1 / number"):
        ShadowPool(DPSGDClassifier(delta=0.5), n_shadows=2).fit(X, y)
    with pytest.raises(ValueError, match="labels that are not in classes"):
        ShadowPool(DPSGDClassifier(classes=[0, 1]), n_shadows=2).fit(X, y)
