"""Steps on fixed memory keep the contracts of private training, and planted bugs are caught."""

from __future__ import annotations

import pytest
import torch

from skprivacy.neural_network._gradients.padded_sum import AdaptiveClippingOnDevice
from skprivacy.neural_network._training.graph_step import GraphStep

from ...contracts import records as contracts
from ...contracts.cases import CASES
from ...planted_bugs.bug import patched
from .simulated_gpu import simulated_gpu

pytestmark = pytest.mark.heavy

ADAPTIVE = "DPSGDClassifier-adaptive"
NETWORKS = [n for n in CASES if n.startswith(("DPSGD", "DPNeural")) and "labels" not in n]


@pytest.mark.parametrize(
    "check",
    [
        contracts.check_replay,
        contracts.check_noise,
        contracts.check_fresh_noise,
        contracts.check_accounting,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.slow
def test_contract(name, check):
    with simulated_gpu():
        check(CASES[name])


@pytest.mark.everyday(1)
@pytest.mark.parametrize(
    "check", [contracts.check_replay, contracts.check_accounting], ids=lambda f: f.__name__
)
def test_contract_of_one(check):
    """All others are among the slow tests."""
    with simulated_gpu():
        check(CASES[ADAPTIVE])


@pytest.mark.everyday(1)
@pytest.mark.parametrize(
    "check",
    [
        contracts.check_no_traces,
        contracts.check_empty_batches,
        pytest.param(contracts.check_inclusion, marks=pytest.mark.slow),
    ],
    ids=lambda f: f.__name__,
)
def test_contract_of_sampled_records(check):
    with simulated_gpu():
        check(CASES[ADAPTIVE])


def exact_count(original):
    """Move the norm by the count itself."""

    def append_count(self, total):
        value = original(self, total)
        self._bare = value[-1].clone()
        return value

    return append_count


def reads_the_exact_count(original):
    def remove_count(self, noisy):
        noisy = noisy.clone()
        noisy[-1] = self._bare
        return original(self, noisy)

    return remove_count


def counts_the_missing(original):
    """A record without a gradient counts as long."""

    def call(self, squared, total, allowed):
        return original(self, squared, torch.nan_to_num(total, 1e30, 1e30), allowed)

    return call


def sums_twice(original):
    return lambda self, drawn: original(self, drawn).mul_(2.0)


def releases_twice(original):
    def step(self, drawn):
        training = self._training
        training._mechanism.release(self._sum_numbers(drawn), training.random)
        original(self, drawn)

    return step


def skips_the_release(original):
    def step(self, drawn):
        self._sum_numbers(drawn)
        self._move()

    return step


def moves_by_more(original):
    """Something besides the release moves the weights."""

    def step(self, drawn):
        bare = self._sum_numbers(drawn).clone()
        original(self, drawn)
        self._training._weights.data.add_(bare[: len(self._training._weights)], alpha=1e-3)

    return step


@pytest.mark.everyday(2)
@pytest.mark.parametrize(
    ("owner", "attribute", "make", "check"),
    [
        (GraphStep, "_sum_numbers", sums_twice, contracts.check_replay),
        (GraphStep, "__call__", releases_twice, contracts.check_accounting),
        (GraphStep, "__call__", skips_the_release, contracts.check_replay),
        (GraphStep, "__call__", moves_by_more, contracts.check_replay),
        (AdaptiveClippingOnDevice, "__call__", counts_the_missing, contracts.check_replay),
    ],
)
def test_planted_bugs_are_caught(owner, attribute, make, check):
    caught = pytest.raises(AssertionError)
    with simulated_gpu(graphs=False), patched(owner, attribute, make), caught:
        check(CASES[ADAPTIVE])


def test_a_norm_that_moves_by_the_exact_count_is_caught():
    with (
        simulated_gpu(graphs=False),
        patched(AdaptiveClippingOnDevice, "append_count", exact_count),
        patched(AdaptiveClippingOnDevice, "remove_count", reads_the_exact_count),
        pytest.raises(AssertionError),
    ):
        contracts.check_replay(CASES[ADAPTIVE])
