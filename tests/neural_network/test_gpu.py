"""A GPU keeps the contracts, sums as the processor does, and makes the noise itself."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch

from skprivacy.accounting import PrivacyBudget
from skprivacy.mechanisms import chacha
from skprivacy.neural_network import DPSGDClassifier
from tests import contracts
from tests.private_estimators import CASES, three_classes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
GPU = "cuda"
NETWORKS = [name for name in CASES if name.startswith("DPSGD") and "labels" not in name]


def on_gpu(case):
    """Return the case with its networks trained on the GPU."""
    return replace(case, make=lambda **params: case.make(**params).set_params(device=GPU))


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
def test_contract(name, check):
    check(on_gpu(CASES[name]))


def sums(device, **params):
    """Return what a seeded fit hands to its mechanism."""
    tape = contracts.Tape()
    model = DPSGDClassifier(
        epsilon=4.0, delta=1e-4, epochs=3, batch_size=8, classes=[0, 1, 2], random_state=0,
        noise_seed=0, device=device, **params,
    )  # fmt: skip
    with contracts.recording(tape), pytest.warns(match="noise_seed"):
        model.fit(*three_classes(24))
    return tape.inputs[0]


@pytest.mark.parametrize("params", [{}, {"hidden_layer_sizes": (8, 8)}, {"activation": "relu"}])
def test_the_first_sum_is_that_of_the_processor_to_rounding(params):
    np.testing.assert_allclose(sums(GPU, **params), sums("cpu", **params), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("noise", ["gaussian", "logistic", "banded", "tree"])
def test_the_noise_is_made_on_the_gpu(noise):
    drawn = mock.Mock(side_effect=chacha.DeviceRandom._key)
    model = DPSGDClassifier(
        epsilon=4.0, delta=1e-4, epochs=3, batch_size=8, classes=[0, 1, 2], noise=noise, device=GPU
    )
    with mock.patch.object(chacha.DeviceRandom, "_key", lambda *args: drawn(*args)):
        model.fit(*three_classes(24))
    assert drawn.called


def test_out_of_memory_is_said_and_charged_once():
    budget = PrivacyBudget(10.0, 1e-3)
    model = DPSGDClassifier(
        epsilon=1.0, delta=1e-4, epochs=1, classes=[0, 1, 2], budget=budget, device=GPU,
        hidden_layer_sizes=(400_000, 400_000),
    )  # fmt: skip
    with pytest.raises((RuntimeError, MemoryError)):
        model.fit(*three_classes(24))
    assert len(budget.entries()) <= 1
