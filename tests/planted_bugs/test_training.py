"""Bugs of the kind that made other software leak, planted one by one: the contracts catch each."""

from __future__ import annotations

import dataclasses
import itertools
from unittest import mock

import numpy as np
import pytest
import torch

from skprivacy import _input_data
from skprivacy.mechanisms import (
    FloatGaussian,
    FloatLogistic,
    PoissonSampler,
    RoundedGaussian,
    SecureRandom,
)
from skprivacy.mechanisms import (
    matrix_gaussian as correlated,
)
from skprivacy.mechanisms import (
    rounded_gaussian as rounded,
)
from skprivacy.mechanisms import (
    secure_random as entropy,
)
from skprivacy.neural_network import (
    DPNeuralNet,
    DPSGDClassifier,
)
from skprivacy.neural_network._gradients import clipping, trial
from skprivacy.neural_network._gradients import perceptron as perceptron_sum
from skprivacy.neural_network._gradients.clipped_sum import ClippedGradientSum
from skprivacy.neural_network._gradients.clipping import AdaptiveClipping
from skprivacy.neural_network._gradients.contributions import DenseGradients, OuterProduct
from skprivacy.neural_network._gradients.perceptron import PerceptronGradients
from skprivacy.neural_network._training import training_config as noise
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.training_config import TrainingConfig

from ..contracts import records as contracts
from ..contracts.cases import CASES, OVERFLOWING, case_of_module
from ..mechanisms.draw_counter import KEY, check_counter
from ..mechanisms.noise_cases import CASES as NOISE_CASES
from ..mechanisms.test_noise import check_noise

CASE = CASES["DPSGDClassifier"]


def patched(owner, name, make):
    """Return a patch that puts ``make(original)`` in the place of ``owner.name``."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def half_noise(original):
    def release(self, value, random):
        return original(FloatGaussian(self.noise_multiplier / 2, self.sensitivity), value, random)

    return release


def a_little_less(share):
    def planted(original):
        def release(self, value, random):
            less = FloatGaussian(share * self.noise_multiplier, self.sensitivity)
            return original(less, value, random)

        return release

    return planted


def check_law(case):
    """Test the law of long vectors: a run has too few numbers to notice a third of a per cent."""
    check_noise(NOISE_CASES["FloatGaussian"])


def one_number_without_noise(original):
    def release(self, value, random):
        last = value[-1]
        noisy = original(self, value, random)
        noisy[-1] = last
        return noisy

    return release


def mirrored_noise(original):
    """Give the second half of the vector the first half's noise, turned round."""

    def release(self, value, random):
        half = len(value) // 2
        before = value.copy()
        noisy = original(self, value, random)
        noisy[half : 2 * half] = before[half : 2 * half] - (noisy[:half] - before[:half])
        return noisy

    return release


def seeded_sampling(original):
    def draw(self, n, random):
        return np.flatnonzero(np.random.random(n) < self.rate)  # noqa: NPY002

    return draw


def data_kept_elsewhere(original):
    def run(self, X, *args):
        kept.append(X.clone())
        return original(self, X, *args)

    kept = []
    return run


def says_the_size(original):
    def run(self, X, *args):
        print(float(torch.nan_to_num(X, 0.0, 0.0, 0.0).sum()))
        return original(self, X, *args)

    return run


def repeated_noise(original):
    return lambda self, value, random: original(self, value, SecureRandom(0))


def double_clip(original):
    def init(self, module, loss, max_grad_norm, *args):
        original(self, module, loss, 2 * max_grad_norm, *args)

    return init


def per_layer_clip(original):
    """Clip each layer to the norm by itself instead of all parameters jointly."""

    def add_sum(self, factors):
        squared = self.squared_norms()
        alone = torch.where(torch.isfinite(squared), (0.7 / squared.sqrt()).clamp(max=1), 0)
        original(self, torch.where(factors > 0, alone, 0))

    return add_sum


def layers_clipped_alone(original):
    """The same in a short sum, which is told how to clip."""

    def alone(squared, total, allowed):
        return (allowed / squared**0.5).clip(max=1.0)

    def summed(self, inputs, targets, clip, norm, first):
        original(self, inputs, targets, alone, norm, first)

    return summed


def shuffled(original):
    """Walk through a permutation in batches of fixed size, as ordinary training does."""
    state = {"order": np.array([], int)}

    def draw(self, n, random):
        size = round(self.rate * n)
        if len(state["order"]) < size:
            state["order"] = np.random.default_rng().permutation(n)
        batch, state["order"] = state["order"][:size], state["order"][size:]
        return np.sort(batch)

    return draw


def realised_divisor(original):
    def step(self, X, y, drawn, peers):
        before = self.config
        self.config = dataclasses.replace(before, batch_size=max(1, len(drawn)))
        original(self, X, y, drawn, peers)
        self.config = before

    return step


def skipped_empty(original):
    def step(self, X, y, drawn, peers):
        if len(drawn):
            original(self, X, y, drawn, peers)

    return step


def one_step_more(original):
    def run(self, *args):
        self.config = dataclasses.replace(self.config, epochs=self.config.epochs + 1)
        return original(self, *args)

    return run


def loss_driven(original):
    """Train longer when the loss is high: control flow by private data."""

    def run(self, X, y, *args):
        loss = torch.nn.functional.cross_entropy(self.module(X[:, :]), y)
        more = int(not torch.isfinite(loss))
        self.config = dataclasses.replace(self.config, epochs=self.config.epochs + more)
        return original(self, X, y, *args)

    return run


def keeps_data(original):
    def fit(self, X, y):
        self._X = np.array(X)
        return original(self, X, y)

    return fit


def scales_by_data(original):
    """Standardise by the mean of the private data."""

    def fit(self, X, y):
        return original(self, X - np.nanmean(np.where(np.isfinite(X), X, np.nan), axis=0), y)

    return fit


def divides_by_n(original):
    """Take the realised number of records for the public one."""

    def plan(self, n, recipe):
        made, self.n_records = self.n_records, None
        try:
            result = original(self, n, recipe)
        finally:
            self.n_records = made
        object.__setattr__(result, "relation", "add_remove")
        return result

    return plan


def chooses_by_n(original):
    """Let the settings follow from the realised number of records."""

    def recipe(self, n, *facts):
        made, self.n_records = self.n_records, None
        try:
            return original(self, n, *facts)
        finally:
            self.n_records = made

    return recipe


def seeded(original):
    def step(self, *args):
        self.random = SecureRandom(self._step)
        original(self, *args)

    return step


def half_logistic_noise(original):
    def release(self, value, random):
        return original(FloatLogistic(self.noise_multiplier / 2, self.sensitivity), value, random)

    return release


def gaussian_for_logistic(original):
    def release(self, value, random):
        return FloatGaussian(np.pi / 3**0.5 * self.noise_multiplier, self.sensitivity)._release(
            value, random
        )

    return release


def uncorrelated(original):
    return lambda self, size, random: random.normal(size)


def shorter_tree(original):
    """Keep the sums of the lowest level out of the next."""

    def draw(self, size, random):
        noise = original(self, size, random)
        return noise if self.step % 4 else noise - random.normal(size)

    return draw


def one_epoch_accounted(original):
    def event_at(self, z):
        return original(dataclasses.replace(self, epochs=1), z)

    return event_at


def other_turns(original):
    """Shuffle the batches of each epoch: a record is met at places that nobody accounted for."""

    def draw(self, n, random):
        self._step = int(random.integers(self.steps_per_epoch, 1)[0])
        return original(self, n, random)

    return draw


def count_for_free(original):
    def init(self, *args):
        original(self, *args)
        self._sum_weight = 1.0

    return init


def heavy_count(original):
    def init(self, *args):
        original(self, *args)
        self._count_weight *= 4.0

    return init


def exact_count(original):
    """Move the norm by the count itself."""

    def append_count(self, total):
        bare = self._allowed * self._count_weight * self._counted
        value = original(self, total)
        self._bare = bare
        return value

    return append_count


def reads_the_exact_count(original):
    def remove_count(self, noisy):
        noisy = noisy.copy()
        noisy[-1] = self._bare
        return original(self, noisy)

    return remove_count


def counts_the_missing(original):
    """A record without a gradient counts as long."""

    def call(self, squared, total, allowed):
        return original(self, squared, np.nan_to_num(total, nan=1e30, posinf=1e30), allowed)

    return call


def passes_all(original):
    return lambda self, bad: self


def blanks_nothing(original):
    return lambda values, bad: values


def fewer_steps(original):
    return lambda self, size: 0.97 * original(self, size)


def every_other(original):
    def draw(sigma, size, random):
        steps = original(sigma, size, random)
        steps[::2] = 0.0
        return steps

    return draw


MUTANTS = {
    "0.3% less noise": (FloatGaussian, "_release", a_little_less(0.997), check_law),
    "half the noise": (FloatGaussian, "_release", half_noise, contracts.check_noise),
    "3% less noise": (FloatGaussian, "_release", a_little_less(0.97), contracts.check_noise),
    "one number bare": (FloatGaussian, "_release", one_number_without_noise, contracts.check_noise),
    "noise mirrored": (FloatGaussian, "_release", mirrored_noise, contracts.check_noise),
    "seeded sampling": (PoissonSampler, "draw", seeded_sampling, contracts.check_fresh_noise),
    "data kept elsewhere": (
        Training, "run", data_kept_elsewhere, contracts.check_no_traces,
    ),
    "the data is printed": (Training, "run", says_the_size, contracts.check_replay),
    "noise repeats": (FloatGaussian, "_release", repeated_noise, contracts.check_noise),
    "seeded noise": (Training, "step", seeded, contracts.check_fresh_noise),
    "wrong sensitivity": (ClippedGradientSum, "__init__", double_clip, contracts.check_replay),
    "clipped by layer": (
        PerceptronGradients, "add_clipped", layers_clipped_alone, contracts.check_replay,
    ),
    "no clipping": (clipping, "_SAFETY", lambda _: np.inf, contracts.check_replay),
    "NaN reaches the sum": (
        perceptron_sum, "_zero_rows", blanks_nothing, contracts.check_replay,
    ),
    "shuffled": (PoissonSampler, "draw", shuffled, contracts.check_inclusion),
    "divided by realised batch": (
        Training, "step", realised_divisor, contracts.check_replay,
    ),
    "empty batches skipped": (
        Training, "step", skipped_empty, contracts.check_empty_batches,
    ),
    "one step uncounted": (Training, "run", one_step_more, contracts.check_accounting),
    "loss decides the steps": (Training, "run", loss_driven, contracts.check_replay),
    "data kept": (DPSGDClassifier, "fit", keeps_data, contracts.check_no_traces),
    "scaled by the data": (DPSGDClassifier, "fit", scales_by_data, contracts.check_replay),
    "realised n": (DPSGDClassifier, "_plan", divides_by_n, contracts.check_public_size),
    "settings by realised n": (
        DPSGDClassifier, "_recipe", chooses_by_n, contracts.check_public_size,
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mutants compute with NaN
def test_planted_bug_is_caught(name):
    owner, attribute, make, check = MUTANTS[name]
    with (
        patched(owner, attribute, make),
        pytest.raises(AssertionError),
    ):
        check(CASE)


KINDS = {
    "3% less exact noise": (
        "DPSGDClassifier-exact", RoundedGaussian, "_scale_steps", fewer_steps,
        contracts.check_noise,
    ),
    "exact noise on one number in two": (
        "DPSGDClassifier-exact", rounded, "rounded_normal", every_other, contracts.check_noise,
    ),
    "clipped by layer, summed in double precision": (
        "DPSGDClassifier-exact", OuterProduct, "add_sum", per_layer_clip, contracts.check_replay,
    ),
    "NaN reaches the sum in double precision": (
        "DPSGDClassifier-exact", OuterProduct, "without", passes_all, contracts.check_replay,
    ),
    "half the logistic noise": (
        "DPSGDClassifier-logistic-ema", FloatLogistic, "_release", half_logistic_noise,
        contracts.check_noise,
    ),
    "Gaussian for logistic noise": (
        "DPSGDClassifier-logistic-ema", FloatLogistic, "_release", gaussian_for_logistic,
        contracts.check_noise,
    ),
    "banded noise without its past": (
        "DPSGDClassifier-banded", correlated._BandedNoise, "_next", uncorrelated,
        contracts.check_noise,
    ),
    "a tree with other sums": (
        "DPSGDRegressor-tree-adaptive", correlated._TreeNoise, "_next", shorter_tree,
        contracts.check_noise,
    ),
    "one epoch is accounted for": (
        "DPSGDRegressor-tree-adaptive", TrainingConfig, "event_at", one_epoch_accounted,
        contracts.check_accounting,
    ),
    "shuffled turns": (
        "DPSGDClassifier-banded", noise.SequentialBatches, "draw", other_turns,
        contracts.check_turns,
    ),
    "the count is for free": (
        "DPSGDClassifier-adaptive", AdaptiveClipping, "__init__", count_for_free,
        contracts.check_replay,
    ),
    "the count weighs too much": (
        "DPSGDClassifier-adaptive", AdaptiveClipping, "__init__", heavy_count,
        contracts.check_replay,
    ),
    "a record without gradient is counted": (
        "DPSGDClassifier-adaptive", AdaptiveClipping, "__call__", counts_the_missing,
        contracts.check_replay,
    ),
    "adaptive clipping does not clip": (
        "DPSGDClassifier-adaptive", clipping, "_SAFETY", lambda _: 2.0, contracts.check_replay,
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mutants compute with NaN
def test_planted_bug_of_a_kind_of_noise_or_clipping_is_caught(name):
    case, owner, attribute, make, check = KINDS[name]
    with patched(owner, attribute, make), pytest.raises(AssertionError):
        check(CASES[case])


def test_a_norm_that_moves_by_the_exact_count_is_caught():
    with (
        patched(AdaptiveClipping, "append_count", exact_count),
        patched(AdaptiveClipping, "remove_count", reads_the_exact_count),
        pytest.raises(AssertionError),
    ):
        contracts.check_replay(CASES["DPSGDClassifier-adaptive"])


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("make", "check"),
    [(keeps_data, contracts.check_no_traces), (scales_by_data, contracts.check_replay)],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bugs_around_the_engine_are_caught_in_a_net(make, check):
    with patched(DPNeuralNet, "fit", make), pytest.raises(AssertionError):
        check(CASES["DPNeuralNet"])


class Centred(torch.nn.Module):
    """Centres the batch, so that each record reaches the gradients of all others."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_trial_that_notices_no_mixing_is_caught():
    contracts.check_replay(case_of_module(Centred))  # alone in its pass, each record is centred
    with (
        patched(trial, "_results_agree", lambda _: lambda *sums: True),
        pytest.raises(AssertionError),
    ):
        contracts.check_replay(case_of_module(Centred))


@pytest.mark.parametrize("name", ["DPSGDClassifier-layers", "DPSGDClassifier-torch.func"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_in_the_rows_is_caught(name):
    with patched(DenseGradients, "without", passes_all), pytest.raises(AssertionError):
        contracts.check_replay(CASES[name])


@pytest.mark.heavy
@pytest.mark.parametrize("largest", [1e30, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_features_that_overflow_when_squared_are_caught(largest):
    with (
        mock.patch.object(_input_data, "_LARGEST_IN_PRODUCTS", largest),
        pytest.raises(AssertionError, match=r"inserted typical.*inputs differ"),
    ):
        contracts.check_replay(OVERFLOWING)


@pytest.mark.parametrize("method", ["random_bytes", "_write"])
def test_a_counter_that_starts_again_under_its_key_is_caught(method):
    """After 4,096 chunks the same noise again: no estimator of a test takes so many steps."""

    def restarting(original):
        calls = itertools.count(1)

        def drawn(self, *args):
            if next(calls) % 4096 == 0:
                self._streams = {place: entropy.new_stream(KEY) for place in self._streams}
            return original(self, *args)

        return drawn

    with (
        patched(SecureRandom, method, restarting),
        pytest.raises(AssertionError, match="counter"),
    ):
        check_counter()


def test_views_that_are_each_clipped_by_themselves_are_caught():
    def every_view_an_example(original):
        def call(self, inputs, targets, shares, first):
            for part in inputs[::2], inputs[1::2]:
                original(self, part.repeat_interleave(2, 0), targets)

        return call

    with (
        patched(ClippedGradientSum, "__call__", every_view_an_example),
        pytest.raises(AssertionError),
    ):
        contracts.check_replay(CASES["DPSGDClassifier-augmented"])


def test_layers_that_each_take_the_whole_norm_are_caught():
    def whole(squared, total, allowed):
        return (allowed / squared**0.5).clip(max=1.0)

    with (
        mock.patch.dict(clipping.CLIPPING, {"per-layer": whole}),
        pytest.raises(AssertionError),
    ):
        contracts.check_replay(CASES["DPSGDClassifier-per-layer-weights"])
