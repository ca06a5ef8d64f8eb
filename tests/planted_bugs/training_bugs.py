"""Planted bugs in the training of networks: clipping, batches, steps and state."""

import dataclasses
from unittest import mock

import numpy as np
import torch

from skprivacy import _input_data
from skprivacy.accounting import ComposedEvent
from skprivacy.mechanisms import SecureRandom, float_noise
from skprivacy.neural_network import DPSGDClassifier, dpsgd_regressor
from skprivacy.neural_network._gradients import clipped_sum, perceptron, trial
from skprivacy.neural_network._gradients.clipped_sum import (
    AdaptiveClipping,
    BatchSum,
    ClippedGradientSum,
)
from skprivacy.neural_network._gradients.contributions import DenseGradients, OuterProduct
from skprivacy.neural_network._gradients.perceptron import PerceptronGradients
from skprivacy.neural_network._training import target_releases
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.target_releases import SlopeStep, target_rows
from skprivacy.neural_network._training.training_config import SequentialBatches, TrainingConfig

from ..contracts import records as contracts
from ..contracts.cases import OVERFLOWING, case_of_module
from .bug import Bug, asked_of, calling, instead
from .single_release_bugs import kept_elsewhere

REPLAY, TRACES = contracts.check_replay, contracts.check_no_traces
ACCOUNTING, PUBLIC_SIZE = contracts.check_accounting, contracts.check_public_size


@calling
def double_clip(original, self, module, loss, max_grad_norm, *args):
    original(self, module, loss, 2 * max_grad_norm, *args)


@calling
def per_layer_clip(original, self, factors):
    """Clip each layer to the norm by itself instead of all parameters jointly."""
    squared = self.squared_norms()
    alone = torch.where(torch.isfinite(squared), (0.7 / squared.sqrt()).clamp(max=1), 0)
    original(self, torch.where(factors > 0, alone, 0))


def clip_alone(squared, total, allowed):
    return (allowed / squared**0.5).clip(max=1.0)


@calling
def layers_clipped_alone(original, self, inputs, targets, clip, norm, first):
    """The same in a short sum, which gets the clipping function."""
    original(self, inputs, targets, clip_alone, norm, first)


@calling
def realised_divisor(original, self, X, y, drawn, peers):
    before = self.config
    self.config = dataclasses.replace(before, batch_size=max(1, len(drawn)))
    original(self, X, y, drawn, peers)
    self.config = before


@calling
def skipped_empty(original, self, X, y, drawn, peers):
    if len(drawn):
        original(self, X, y, drawn, peers)


@calling
def one_step_more(original, self, *args):
    self.config = dataclasses.replace(self.config, epochs=self.config.epochs + 1)
    return original(self, *args)


@calling
def loss_driven(original, self, X, y, *args):
    """Train longer when the loss is high: control flow by private data."""
    loss = torch.nn.functional.cross_entropy(self.module(X[:, :]), y)
    more = int(not torch.isfinite(loss))
    self.config = dataclasses.replace(self.config, epochs=self.config.epochs + more)
    return original(self, X, y, *args)


@calling
def says_the_size(original, self, X, *args):
    print(float(torch.nan_to_num(X, 0.0, 0.0, 0.0).sum()))
    return original(self, X, *args)


@calling
def scales_by_data(original, self, X, y):
    """Standardise by the mean of the private data."""
    return original(self, X - np.nanmean(np.where(np.isfinite(X), X, np.nan), axis=0), y)


@calling
def chooses_by_n(original, self, *given):
    """Let what is planned follow from the realised number of records."""
    with mock.patch.object(self, "n_records", None):
        return original(self, *given)


@calling
def takes_the_realised_n(original, self, *given):
    """Take the realised number of records for the public one."""
    result = chooses_by_n(original)(self, *given)
    object.__setattr__(result, "relation", "add_remove")
    return result


@calling
def seeded_steps(original, self, *args):
    self.random = SecureRandom(self._step)
    original(self, *args)


@calling
def other_turns(original, self, n, random):
    """Shuffle the batches of each epoch: a record is met at places that nobody accounted for."""
    self._step = int(random.integers(self.steps_per_epoch, 1)[0])
    return original(self, n, random)


@calling
def count_for_free(original, self, *args):
    original(self, *args)
    self._sum_weight = 1.0


@calling
def heavy_count(original, self, *args):
    original(self, *args)
    self._count_weight *= 4.0


@calling
def exact_count(original, self, total):
    """Move the norm by the count itself."""
    bare = self._allowed * self._count_weight * self._counted
    value = original(self, total)
    self._bare = bare
    return value


@calling
def reads_the_exact_count(original, self, noisy):
    noisy = noisy.copy()
    noisy[-1] = self._bare
    return original(self, noisy)


@calling
def counts_the_missing(original, self, squared, total, allowed):
    """A record without a gradient counts as long."""
    return original(self, squared, np.nan_to_num(total, nan=1e30, posinf=1e30), allowed)


@calling
def clips_the_mean(original, self, X, y, indices, people=None):
    """Clip the mean gradient of a batch and not that of each record."""
    summed = original(self, X, y, indices, people)
    allowed = self._expected * self._clipped.max_grad_norm
    return summed * min(1.0, allowed / (float(summed.norm()) + 1e-30))


@calling
def every_view_an_example(original, self, inputs, targets, shares, first):
    for part in inputs[::2], inputs[1::2]:
        original(self, part.repeat_interleave(2, 0), targets)


class Centred(torch.nn.Module):
    """Centres the batch, so that each record reaches the gradients of all others."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0))


@calling
def exact_mean(original, config, targets, groups, peers, random):
    """Centre the targets on their exact mean."""
    original(config, targets, groups, peers, random)
    return float(targets.mean())


@calling
def mean_of_the_records_there(original, config, targets, *args):
    return original(dataclasses.replace(config, n_records=len(targets)), targets, *args)


@calling
def mean_error_for_free(original, self, noise_multiplier):
    event = original(self, noise_multiplier)
    if self.target_noise is None or noise_multiplier == 0:
        return event
    return ComposedEvent(event.events[:-1])


@calling
def double_rows(original, *given):
    return 2 * original(*given)


@calling
def means_of_less_noise(original, make_rows, config, *given):
    """Let noise be small after the steps."""
    noise = config.target_noise / (1 if make_rows is target_rows else 100)
    return original(make_rows, dataclasses.replace(config, target_noise=noise), *given)


def weighted_after_the_clip(original):
    """Weight the rarest class after the clip, so that its records count three times."""

    def call(self, inputs, targets, *args, **kwargs):
        original(self, inputs, targets, *args, **kwargs)
        for _ in range(2):
            original(self, inputs[targets == 2], targets[targets == 2], *args)

    return call


def prior_of_the_data(original):
    """Count the classes of the records, for the outputs that training starts from."""

    def encode(self, *args):
        targets = original(self, *args)
        counts = np.bincount(targets, minlength=len(self.classes_)) + 1.0
        self.class_prior_ = counts / counts.sum()
        return targets

    return encode


# Cases that only these bugs need.
MIXING, OVERFLOW = "a module that mixes", "features that overflow"
OWN_CASES = {MIXING: case_of_module(Centred), OVERFLOW: OVERFLOWING}
DPSGD, EXACT = "DPSGDClassifier", "DPSGDClassifier-exact"
ADAPTIVE, STREAM = "DPSGDClassifier-adaptive", "DPSGDRegressor-tree-adaptive"
REGRESSOR, PRIOR = "DPSGDRegressor", "DPSGDClassifier-prior"
OF_NETWORKS = ("DPSGD",)
AS_IT_IS = instead(lambda values, bad: values)

BUGS = [
    Bug(ClippedGradientSum, "__init__", double_clip, REPLAY, DPSGD, "half the sensitivity",
        OF_NETWORKS),
    Bug(PerceptronGradients, "add_clipped", layers_clipped_alone, REPLAY, DPSGD),
    Bug(OuterProduct, "add_sum", per_layer_clip, REPLAY, EXACT),
    Bug(clipped_sum.CLIPPING, "per-layer", instead(clip_alone), REPLAY,
        "DPSGDClassifier-per-layer-weights", "layers take the whole norm"),
    Bug(ClippedGradientSum, "__call__", weighted_after_the_clip, REPLAY, PRIOR),
    Bug(DPSGDClassifier, "_encode", prior_of_the_data, REPLAY, PRIOR),
    Bug(clipped_sum, "_SAFETY", instead(np.inf), REPLAY, (DPSGD, "DPGANSynthesizer"), "no clipping",
        OF_NETWORKS),
    Bug(clipped_sum, "_SAFETY", instead(2.0), REPLAY, ADAPTIVE, "adaptive clipping does not clip"),
    Bug(BatchSum, "__call__", clips_the_mean, name="the mean gradient clipped",
        visible_outside=OF_NETWORKS, beside=((clipped_sum, "_SAFETY", instead(np.inf)),)),
    Bug(ClippedGradientSum, "__call__", every_view_an_example, REPLAY, "DPSGDClassifier-augmented"),
    Bug(trial, "_results_agree", instead(lambda *sums: True), REPLAY, MIXING,
        "a trial that notices no mixing"),
    Bug(perceptron, "_zero_rows", AS_IT_IS, REPLAY, DPSGD, "blanks nothing"),
    Bug(OuterProduct, "without", AS_IT_IS, REPLAY, EXACT, "passes all"),
    Bug(DenseGradients, "without", AS_IT_IS, REPLAY,
        ("DPSGDClassifier-layers", "DPSGDClassifier-torch.func"), "passes all"),
    Bug(OuterProduct, "without", AS_IT_IS, name="missing values reach the sum",
        visible_outside=OF_NETWORKS, beside=(
            (perceptron, "_zero_rows", AS_IT_IS),
            # else the noise refuses the sum
            (float_noise, "check_finite", instead(lambda value: None)))),
    *[Bug(_input_data, "_LARGEST_IN_PRODUCTS", instead(largest), REPLAY, OVERFLOW,
          f"features up to {largest}", says=r"inserted typical.*inputs differ")
      for largest in (1e30, np.inf)],
    Bug(AdaptiveClipping, "__init__", count_for_free, REPLAY, ADAPTIVE),
    Bug(AdaptiveClipping, "__init__", heavy_count, REPLAY, ADAPTIVE),
    Bug(AdaptiveClipping, "__call__", counts_the_missing, REPLAY, ADAPTIVE),
    Bug(AdaptiveClipping, "append_count", exact_count, REPLAY, ADAPTIVE,
        beside=((AdaptiveClipping, "remove_count", reads_the_exact_count),)),
    Bug(SequentialBatches, "draw", other_turns, contracts.check_turns, "DPSGDClassifier-banded"),
    Bug(TrainingConfig, "event_at", asked_of(epochs=1), ACCOUNTING, STREAM,
        "one epoch accounted"),
    Bug(TrainingConfig, "event_at", asked_of(target_noise=None), ACCOUNTING, REGRESSOR,
        "mean and slope for free"),
    Bug(TrainingConfig, "event_at", mean_error_for_free, ACCOUNTING, REGRESSOR),
    Bug(SlopeStep, "rows", double_rows, REPLAY, REGRESSOR, "half the sensitivity of a slope"),
    Bug(target_releases, "error_rows", double_rows, REPLAY, REGRESSOR,
        "half the sensitivity of a mean error"),
    Bug(target_releases, "_release_means", means_of_less_noise, ACCOUNTING, REGRESSOR),
    Bug(dpsgd_regressor, "release_mean", exact_mean, REPLAY, REGRESSOR),
    Bug(dpsgd_regressor, "release_mean",
        calling(lambda original, config, targets, *args: original(config, 2 * targets, *args)),
        REPLAY, REGRESSOR, "mean of double targets"),
    Bug(dpsgd_regressor, "release_mean", mean_of_the_records_there, REPLAY, REGRESSOR),
    Bug(Training, "step", realised_divisor, REPLAY, DPSGD),
    Bug(Training, "step", skipped_empty, contracts.check_empty_batches, DPSGD),
    Bug(Training, "step", seeded_steps, contracts.check_fresh_noise, DPSGD),
    Bug(Training, "run", one_step_more, ACCOUNTING, DPSGD, "steps that are not accounted for",
        OF_NETWORKS),
    Bug(Training, "run", loss_driven, REPLAY, DPSGD),
    Bug(Training, "run", says_the_size, REPLAY, DPSGD),
    Bug(Training, "run", kept_elsewhere(torch.clone), TRACES, DPSGD, "data kept elsewhere"),
    Bug(None, "fit", scales_by_data, REPLAY, (DPSGD, "DPNeuralNet")),
    Bug(DPSGDClassifier, "_plan", takes_the_realised_n, PUBLIC_SIZE, DPSGD),
    Bug(DPSGDClassifier, "_recipe", chooses_by_n, PUBLIC_SIZE, DPSGD),
]  # fmt: skip
