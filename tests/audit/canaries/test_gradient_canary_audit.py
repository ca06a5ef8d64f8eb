"""audit_one_run with gradient canaries: through the engine, sound, tight, and bugs are caught."""

from __future__ import annotations

import math
import pickle
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse, stats
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from skprivacy import DPSGDClassifier, DPSGDRegressor
from skprivacy.accounting import PrivacyBudget, PrivacyGuarantee
from skprivacy.audit import audit_one_run
from skprivacy.audit.canaries import gradient_canary_audit as _gradient_canaries
from skprivacy.audit.canaries.coins import CanaryRun, inverse_curve
from skprivacy.audit.canaries.gradient_canary_audit import NoisySums, Participation
from skprivacy.exceptions import BudgetExceededError
from skprivacy.mechanisms import FloatGaussian, PoissonSampler
from skprivacy.metrics.coin_guesses import best_n_guesses, guess_top_scores, refutes_curve
from skprivacy.neural_network import Clipping, Distributed, DPNeuralNet
from skprivacy.neural_network._gradients.clipped_sum import CLIPPING, BatchSum, ClippedGradientSum
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.gradient_canaries import CanaryCode
from skprivacy.neural_network._training.training_config import (
    SequentialBatches,
    TrainingConfig,
    _Sampled,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning"),
    pytest.mark.heavy,
]

X, y = make_classification(800, n_features=30, random_state=0)
X = X.astype(np.float32)
SMALL = {"classes": [0, 1], "hidden_layer_sizes": (32,), "random_state": 0, "noise_seed": 0}


def audited(network=None, records=(X, y), n_canaries=1000, **params):
    network = DPSGDClassifier(**SMALL) if network is None else network
    params = {"canaries": "gradient", "n_canaries": n_canaries, "random_state": 0, **params}
    return audit_one_run(network, *records, **params)


# ---------------------------------------------------------------- what canaries add


class Doubled(nn.Module):
    """A layer that book-keeping has no rule for."""

    def __init__(self, n_features=30, n_outputs=2):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.ones(n_outputs, n_features))

    def forward(self, X):
        return 2 * X @ self.weight.T


def sums_seen(network, records=(X, y), n_canaries=60):
    """Return the report, and what the attacker sees of each canary in every step, less records."""
    seen = []

    def released(self, noisy, clean):
        seen.append(noisy - clean)
        released.original(self, noisy, clean)

    released.original = NoisySums.observe_release
    with (
        mock.patch.object(NoisySums, "observe_release", released),
        mock.patch.object(FloatGaussian, "_release", lambda self, value, random: value),
    ):
        report = audited(network, records, n_canaries)
    return report, np.array(seen)


@pytest.mark.everyday(2)
@pytest.mark.parametrize(
    ("network", "records"),
    [
        (DPSGDClassifier(classes=[0, 1]), (X, y)),
        (
            DPSGDClassifier(
                classes=[0, 1], relation="add_remove", n_records=900, max_grad_norm=0.3
            ),
            (X, y),
        ),
        (DPSGDClassifier(classes=[0, 1], max_grad_norm=Clipping("automatic")),
         (X.astype(float), y)),
        (DPSGDClassifier(classes=[0, 1], max_grad_norm=Clipping("adaptive")), (X, y)),
        (DPSGDClassifier(classes=[0, 1], module=nn.Linear, module__in_features=30,
                         module__out_features=2), (X, y)),
        (DPSGDClassifier(classes=[0, 1], module=Doubled), (X, y)),
        (DPSGDClassifier(), (pd.DataFrame(X, columns=[f"x{i}" for i in range(30)]), y)),
        (DPSGDClassifier(), (X, np.stack([y, 1 - y, y], axis=1))),
        (DPSGDRegressor(target_bounds=(-3, 3)), (X, X[:, 0] * 1.0)),
        (DPSGDClassifier(classes=[0, 1], batch_size=5000, max_grad_norm=30.0), (X, y)),
    ],
)  # fmt: skip
def test_a_canary_adds_the_clipping_norm_when_it_is_taken_and_nothing_else(network, records):
    network.set_params(epochs=4, random_state=0, noise_seed=0, epsilon=None, noise_multiplier=2.0)
    report, seen = sums_seen(network, records)
    norm = 1.0 if network._clipping.norm == "auto" else network._clipping.norm
    if network._clipping.method == "adaptive":
        norm *= math.sqrt(1 - (2.0 / (0.1 * 860 / 4)) ** 2)  # the rest is for the count
    coarse = 1e-3 * norm  # rounding of sums, of which clipping keeps some in reserve
    assert np.abs(seen[:, ~report.trained]).max() < coarse
    inside = seen[:, report.trained]
    taken = inside > norm / 2
    assert np.abs(inside - norm * taken).max() < 5 * coarse
    rows = 800 + 60 if network.n_records is None else 900
    rate = min(1.0, (rows // 4 if network.batch_size == "auto" else network.batch_size) / rows)
    if rate < 1:
        assert stats.binomtest(int(taken.sum()), taken.size, rate).pvalue > 1e-6
    assert taken.all() == (rate == 1)


@pytest.mark.slow
def test_absent_canaries_are_records_that_contribute_nothing_or_none_at_all():
    sizes = []

    def run(self, X, y, *rest):
        sizes.append((len(X), int(torch.isnan(X).any(1).sum())))
        return original(self, X, y, *rest)

    original = Training.run
    with mock.patch.object(Training, "run", run):
        for relation, n_records in (("zero_out", None), ("add_remove", 900)):
            network = DPSGDClassifier(**SMALL, epochs=1, relation=relation, n_records=n_records)
            report = audited(network)
            assert report.coin == relation
    present = int(report.trained.sum())
    assert sizes == [(1800, 1000 - present), (800 + present, 0)]


def test_no_record_is_taken_for_a_canary():
    for largest in (0.0, 1.0, 3.999, 4.0, 2.0**20 - 1, 2.0**45):
        first = np.array([-largest, largest, np.nan, np.inf, -np.inf], np.float32)
        code = CanaryCode.beyond(first)
        rows = code.rows(np.ones(3000, bool), 2).astype(np.float32)
        mixed = np.concatenate([np.stack([first, first], axis=1), rows])
        is_canary, numbers = code.find_canaries(torch.from_numpy(mixed))
        np.testing.assert_array_equal(is_canary.numpy(), np.arange(3005) >= 5)
        np.testing.assert_array_equal(numbers.numpy(), np.arange(3000))
        assert np.abs(rows).max() < 1e15
    with pytest.raises(ValueError, match="Scale the features"):
        CanaryCode.beyond(np.array([1e14]))


# ---------------------------------------------------------------- bugs


def half_the_noise(self, value, random):
    random.add_normal(value, 0.5 * self.noise_multiplier * self.sensitivity)
    return value


def clips_to_twice_the_norm(self, module, loss, norm, *rest):
    INIT(self, module, loss, 2 * norm, *rest)


INIT, SUM = ClippedGradientSum.__init__, BatchSum.__call__


class Shuffled:
    """Batches of a permutation, the same in every epoch or not."""

    def __init__(self, run, again):
        self.steps, self.again = run.steps_per_epoch, again
        self.random, self.step = np.random.default_rng(0), 0

    def draw(self, n, random):
        number = self.step % self.steps
        if self.step == 0 or (number == 0 and self.again):
            self.batches = np.array_split(self.random.permutation(n), self.steps)
        self.step += 1
        return np.sort(self.batches[number])


class SizedBatches:
    """Records drawn anew for each step, always as many."""

    def __init__(self, run):
        self.size, self.random = run.batch_size, np.random.default_rng(0)

    def draw(self, n, random):
        return self.random.permutation(n)[: self.size]


def sampler(make):
    return mock.patch.object(_Sampled, "sampler", lambda self, run: make(run))


BY_THE_SUMS = {
    "half the noise": lambda: mock.patch.object(FloatGaussian, "_release", half_the_noise),
    "no clipping": lambda: mock.patch.dict(CLIPPING, flat=lambda squared, total, _: total * 0 + 1),
    "noise for half the clipping norm": lambda: mock.patch.object(
        ClippedGradientSum, "__init__", clips_to_twice_the_norm
    ),
    "sums that count twice": lambda: mock.patch.object(
        BatchSum, "__call__", lambda self, *batch: 2 * SUM(self, *batch)
    ),
    "everybody in every step": lambda: mock.patch.object(
        PoissonSampler, "draw", lambda self, n, random: np.arange(n)
    ),
    "batches in turn": lambda: sampler(
        lambda run: SequentialBatches(run.batch_size, run.steps_per_epoch)
    ),
    "batches shuffled once": lambda: sampler(lambda run: Shuffled(run, again=False)),
}
BY_THE_SAMPLING = {
    "everybody in every step": BY_THE_SUMS["everybody in every step"],
    "batches in turn": BY_THE_SUMS["batches in turn"],
    "batches shuffled once": BY_THE_SUMS["batches shuffled once"],
    "batches shuffled in every epoch": lambda: sampler(lambda run: Shuffled(run, again=True)),
    "batches of one size": lambda: sampler(SizedBatches),
    "a tenth more than claimed": lambda: mock.patch.object(
        _Sampled, "sampler", lambda self, run: PoissonSampler(1.1 * run.sampling_rate)
    ),
}
# In batches of a sixteenth, records that take turns leak four times as much as with coins.
PLANTED = DPSGDClassifier(**SMALL, epsilon=4.0, epochs=10, batch_size=1800 // 16)


@pytest.mark.everyday(2)
@pytest.mark.parametrize("bug", BY_THE_SUMS)
def test_a_bug_shows_in_the_sums(bug):
    with BY_THE_SUMS[bug]():
        report = audited(PLANTED)
    assert report.refuted
    assert report.verdict == "violated"


@pytest.mark.everyday(1)
@pytest.mark.parametrize("bug", BY_THE_SAMPLING)
def test_a_bug_shows_in_the_sampling(bug):
    with BY_THE_SAMPLING[bug]():
        report = audited(PLANTED)
    assert not report.sampled
    assert report.verdict == "violated"
    assert "records were not sampled by independent coins" in repr(report)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("seed", range(3))
def test_without_a_bug_the_claim_stands(seed):
    network = PLANTED.set_params(noise_seed=seed)
    report = audited(network, random_state=seed, alpha=0.01)
    assert report.verdict == "consistent"
    assert report.within_reach
    assert report.sampled
    assert "sampling:" not in repr(report)


# ---------------------------------------------------------------- errors and tightness


def simulated(config, n_canaries, random, noise=1.0):
    """Return scores of canaries in sums without records, at so much of the noise, and the coins."""
    sums, coins = None, random.random(n_canaries) < 0.5
    sums = NoisySums(config, coins)
    for _ in range(config.n_steps):
        taken = coins & (random.random(n_canaries) < config.sampling_rate)
        std = noise * config.noise_multiplier
        sums.observe_release(taken + std * random.normal(size=n_canaries), np.zeros(n_canaries))
    return sums.scores(), coins


CONFIG = TrainingConfig.planned(1000, batch_size=250, epochs=3).with_noise_for(4.0, 1e-5)
CLAIM = PrivacyGuarantee(CONFIG.event, 1e-5, "zero_out")


def verdicts(runs, n_canaries, alpha, noise):
    curve, random = inverse_curve(CLAIM, "zero_out"), np.random.default_rng(0)
    guesses = best_n_guesses(n_canaries, curve, alpha)
    found = []
    for _ in range(runs):
        scores, coins = simulated(CONFIG, n_canaries, random, noise)
        chosen, guess = guess_top_scores(scores, guesses, random)
        right = int(np.sum(guess == coins[chosen]))
        found.append(refutes_curve(right, guesses, n_canaries, curve, alpha))
    return sum(found)


def test_true_claims_are_violated_in_at_most_alpha():
    wrong = verdicts(200, 500, alpha=0.2, noise=1.0)
    assert stats.binom(200, 0.2).sf(wrong - 1) > 1e-6
    assert verdicts(20, 500, alpha=0.2, noise=0.4) == 20


def test_scores_are_log_likelihood_ratios():
    """Their odds are right on average, so no other score guesses better."""
    scores, coins = simulated(CONFIG, 200_000, np.random.default_rng(0))
    for low, high in [(-3, -1), (-1, 0), (0, 1), (1, 3)]:
        here = (scores > low) & (scores < high)
        expected = 1 / (1 + np.exp(-scores[here]))
        off = (coins[here].sum() - expected.sum()) / np.sqrt((expected * (1 - expected)).sum())
        assert abs(off) < 5


@pytest.mark.slow
def test_the_bound_on_the_noise_is_above_the_claim_if_the_claim_is_refuted():
    """So it exceeds a true epsilon in at most alpha, as true claims are refuted."""
    curve, n, guesses, alpha = inverse_curve(CLAIM, "zero_out"), 2000, 224, 0.05
    fitted = mock.Mock(noise_multiplier_=CONFIG.noise_multiplier)
    run = CanaryRun("gradient", "zero_out", fitted, None, None, event_at=CONFIG.event_at)
    bounds, least = [], next(k for k in range(n) if refutes_curve(k, guesses, n, curve, alpha))
    for right in (guesses // 2, (guesses // 2 + least) // 2, least - 1, least + 1, guesses):
        counts = (right, guesses, n)
        bounds.append(_gradient_canaries.bound_on_noise(counts, CLAIM, run, alpha).epsilon)
    assert bounds == sorted(bounds)
    assert bounds[0] == 0
    assert 1 < bounds[1] < bounds[2] < CLAIM.epsilon() < bounds[3] < bounds[4]


@pytest.mark.everyday(2)
@pytest.mark.parametrize(
    ("n", "rate", "steps"),
    [(1000, 0.25, 40), (500, 0.25, 1), (2000, 0.01, 100), (300, 0.5, 7), (40, 0.9, 5), (99, 1, 3)],
)
def test_coins_are_seldom_taken_for_something_else(n, rate, steps):
    random, low = np.random.default_rng(0), 0
    for _ in range(250):
        participation = Participation(rate)
        for _ in range(steps):
            participation.add(np.flatnonzero(random.random(n) < rate), n)
        low += participation.surprise() < 0.02
    assert stats.binom(250, 0.02).sf(low - 1) > 1e-6


WIDE = make_classification(2000, n_features=100, n_informative=10, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_one_noisy_sum_is_bounded_to_within_15_percent(noise):
    network = DPSGDClassifier(
        classes=[0, 1], random_state=0, noise_seed=0, epochs=1, batch_size=10**6, epsilon=None,
        noise_multiplier=noise,
    )  # fmt: skip
    report = audited(network, WIDE, 5000)
    general, of_noise, apart = report.bounds
    truth = network.set_params(noise_seed=1).fit(*WIDE).epsilon_
    assert 0.85 * truth < apart.epsilon <= truth
    assert "holds only if canaries do not interfere" in apart.assumptions
    assert 0.45 * truth < of_noise.epsilon < apart.epsilon
    assert of_noise.assumptions == (_gradient_canaries._BUT_FOR_NOISE,)
    assert general.epsilon < of_noise.epsilon
    assert not general.assumptions


# ---------------------------------------------------------------- the call


def test_the_report_says_what_was_done_and_assumed():
    text = repr(audited())
    assert "canaries: long gradients in one weight each" in text
    assert "or a record that contributes nothing" in text
    assert "the training is the claimed one, except for the size of its noise" in text
    assert "holds only if canaries do not interfere" in text
    assert "assumes that the claim holds for gradients of any direction" in text
    assert "applied twice" not in text


def test_the_budget_is_charged_once_and_the_network_left_alone():
    budget = PrivacyBudget(epsilon=1.1, delta=1e-4)
    network = DPSGDClassifier(**{**SMALL, "noise_seed": None}, epochs=2, budget=budget)
    report = audited(network)
    assert budget.spent(delta=1e-5) == pytest.approx(report.fitted.epsilon_)
    assert not hasattr(network, "module_")
    with pytest.raises(BudgetExceededError):
        audited(network)
    assert budget.spent(delta=1e-5) == pytest.approx(report.fitted.epsilon_)


def test_the_fitted_model_is_an_ordinary_network():
    report = audited(DPSGDClassifier(**SMALL, epochs=2))
    again = pickle.loads(pickle.dumps(report.fitted))
    np.testing.assert_array_equal(again.predict_proba(X), report.fitted.predict_proba(X))
    plain = DPSGDClassifier(**SMALL, epochs=2).fit(X, y)
    refitted = report.fitted.fit(X, y)
    np.testing.assert_array_equal(refitted.predict_proba(X), plain.predict_proba(X))


class Unseen:
    def __call__(self, rows):
        return rows


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epsilon": np.inf}, "epsilon=inf"),
        ({"epsilon": "1"}, "'epsilon' parameter"),
        ({"noise": "banded"}, "noise='banded'; it must be one of .*gaussian"),
        ({"noise": "tree"}, "noise='tree'"),
        ({"max_grad_norm": Clipping("per-layer")}, "max_grad_norm=Clipping"),
        ({"augment": Unseen()}, "augment="),
        ({"device": Distributed("replicated")}, "device=Distributed"),
        ({"hidden_layer_sizes": ()}, "n_canaries=1000 exceeds the 62 weights"),
    ],
)
def test_networks_that_canaries_do_not_fit_are_refused_before_anything_is_charged(params, message):
    budget = PrivacyBudget(epsilon=1e6, delta=1e-3)
    network = DPSGDClassifier(**{**SMALL, "budget": budget, **params})
    with pytest.raises(ValueError, match=message):
        audited(network)
    assert budget.spent(delta=1e-5) == 0


@pytest.mark.parametrize(
    ("network", "params", "error", "message"),
    [
        (None, {"canaries": "gradients"}, ValueError, "canaries='gradients' must be 'gradient'"),
        (None, {"score": max}, ValueError, "Leave score out"),
        (None, {"n_canaries": 19}, ValueError, "n_canaries=19"),
        (None, {"claim": (1.0, 1e-5)}, ValueError, "claim is for add_remove, .* zero_out"),
        (None, {"records": (sparse.csr_matrix(X), y)}, ValueError, "dense matrix"),
        (None, {"records": (np.char.add(X.astype(str), "x"), y)}, ValueError, "X holds text"),
        (make_pipeline(StandardScaler(), DPSGDClassifier()), {}, TypeError, "got Pipeline"),
        (DPNeuralNet(nn.Linear, nn.MSELoss), {}, TypeError, "got DPNeuralNet"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(network, params, error, message):
    with (
        mock.patch.object(Training, "run", side_effect=AssertionError("trained")),
        pytest.raises(error, match=message),
    ):
        audited(network, **params)
