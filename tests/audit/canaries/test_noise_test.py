"""The test of the noise in a network's sums: no false alarm, and every planted fault is found."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import make_classification

from skprivacy import DPSGDClassifier
from skprivacy.audit import audit_one_run
from skprivacy.audit.canaries.noise_test import NEVER, NOISE_FAULTS, NoiseTest
from skprivacy.mechanisms import FloatGaussian
from skprivacy.neural_network import Clipping
from skprivacy.neural_network._training.training_config import TrainingConfig

STEPS, WEIGHTS = 20, 100


def planned(noise="gaussian"):
    config = mock.Mock(spec=TrainingConfig)
    config.noise, config.noise_multiplier, config.max_grad_norm = noise, 2.0, 0.7
    config.n_steps = STEPS
    return config


def p_values(noise, config=None, random=None):
    """Return the p-values of noise (n_steps, WEIGHTS) in deviations, beside sums of records."""
    config = planned() if config is None else config
    random = np.random.default_rng(12345) if random is None else random
    test = NoiseTest(config, np.ones(WEIGHTS, bool))
    std = config.noise_multiplier * config.max_grad_norm
    for step in noise:
        clean = 30 * random.normal(size=WEIGHTS)
        test.add(clean + std * step, clean)
    return test.p_values()


def least(p):
    return len(NOISE_FAULTS) * min(p.values())


@pytest.mark.parametrize("noise", ["gaussian", "exact", "logistic"])
def test_p_values_of_honest_noise_are_uniform(noise):
    random, config = np.random.default_rng(0), planned(noise)
    draw = random.logistic if noise == "logistic" else random.normal
    runs = 400
    found = [p_values(draw(size=(STEPS, WEIGHTS)), config, random) for _ in range(runs)]
    for name in NOISE_FAULTS:
        values = np.array([p[name] for p in found])
        for level in (0.01, 0.05, 0.2):  # 45 comparisons of the three cases together
            assert stats.binom(runs, level).sf(np.sum(values < level) - 1) > 1e-7, (name, level)
    assert min(map(least, found)) > NEVER


def uniform(random):
    return random.uniform(-np.sqrt(3), np.sqrt(3), size=(STEPS, WEIGHTS))


def without_one_step(random):
    noise = random.normal(size=(STEPS, WEIGHTS))
    noise[7] = 0.0
    return noise


def reused(random):
    noise = random.normal(size=(STEPS, WEIGHTS))
    noise[11] = noise[3]
    return noise


def shared(random):
    noise = random.normal(size=(STEPS, WEIGHTS))
    return 0.8 * noise + 0.6 * random.normal(size=(STEPS, 1))


FAULTS = {
    "a third less noise": (lambda r: r.normal(size=(STEPS, WEIGHTS)) / 1.5, "all steps"),
    "an eighth less noise": (lambda r: r.normal(size=(STEPS, WEIGHTS)) / 1.15, "all steps"),
    "a step without noise": (without_one_step, "one step"),
    "uniform noise": (uniform, "shape"),
    "noise of an earlier step": (reused, "reuse"),
    "noise that weights share": (shared, "shift"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(5))
def test_a_fault_is_found_by_the_test_for_its_kind(fault, seed):
    draw, name = FAULTS[fault]
    assert p_values(draw(np.random.default_rng(seed)))[name] < NEVER / len(NOISE_FAULTS)


def test_more_noise_than_claimed_alarms_nothing():
    noise = 1.5 * np.random.default_rng(0).normal(size=(STEPS, WEIGHTS))
    assert least(p_values(noise)) > 0.01


# ---------------------------------------------------------------- where a user meets it


X, y = make_classification(600, n_features=20, random_state=0)
NETWORK = DPSGDClassifier(
    classes=[0, 1], hidden_layer_sizes=(32,), epochs=5, batch_size=100, epsilon=2.0,
    random_state=0, noise_seed=0,
)  # fmt: skip


def audited(**params):
    network = NETWORK.set_params(noise="gaussian").set_params(**params)
    return audit_one_run(
        network, X.astype(np.float32), y, canaries="gradient", n_canaries=400, random_state=0
    )


def weaker(self, value, random):
    random.add_normal(value, self.noise_multiplier * self.sensitivity / 1.3)
    return value


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_an_audit_says_that_the_noise_is_too_small():
    with mock.patch.object(FloatGaussian, "_release", weaker):
        report = audited()
    assert not report.refuted  # guesses alone do not show so little
    assert report.verdict == "violated"
    assert "all steps" in report.noise_faults
    assert "the steps together have less noise than claimed" in repr(report)
    assert report.to_dict()["noise_faults"]


@pytest.mark.heavy
@pytest.mark.everyday(2)
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.parametrize(
    "params",
    [{}, {"noise": "logistic"}, {"max_grad_norm": Clipping("automatic")},
     {"max_grad_norm": Clipping("adaptive")},
     {"relation": "add_remove", "n_records": 700}, {"noise": "exact"}],
)  # fmt: skip
def test_an_honest_audit_says_that_the_noise_is_as_claimed(params):
    defaults = {"max_grad_norm": "auto", "relation": "zero_out", "n_records": None}
    report = audited(**{**defaults, **params})
    assert set(report.noise_tests) == set(NOISE_FAULTS)
    assert report.noise_faults == ()
    assert least(report.noise_tests) > NEVER
    assert "size, distribution and independence as claimed" in repr(report)
