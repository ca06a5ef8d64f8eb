"""A GPU keeps the contracts, computes what the processor does, and waits for nothing.

``test_graph_step*.py`` show what can be shown without one. For networks side by side,
``test_stacked_device.py`` and ``test_teachers_device.py`` do, and use a GPU if there is one. ``make
gpu`` runs them all.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.accounting import PrivacyBudget
from skprivacy.mechanisms import FloatGaussian, SecureRandom, chacha
from skprivacy.neural_network import Clipping, Distributed, DPSGDClassifier
from skprivacy.neural_network._gradients.padded_sum import PaddedSum, Table
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training import engine
from skprivacy.neural_network._training import graph_step as recorded
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.graph_step import GraphStep
from skprivacy.neural_network._training.training_config import TrainingConfig

from ...contracts import records as contracts
from ...contracts.cases import CASES, three_classes
from ...contracts.tape import Tape, recording
from ..test_augmentation import by_numpy, by_value, centred, with_a_partner
from . import processes
from .test_graph_step import LOSS, MODULES, Words, config, data

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
GPU = "cuda"
NETWORKS = [n for n in CASES if n.startswith(("DPSGD", "DPNeural")) and "label" not in n]
SAMPLED = ["DPSGDClassifier", "DPSGDClassifier-adaptive"]


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


@pytest.mark.parametrize(
    "check",
    [contracts.check_no_traces, contracts.check_empty_batches, contracts.check_inclusion],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", SAMPLED)
def test_contract_of_sampled_records(name, check):
    check(on_gpu(CASES[name]))


def sums(device, **params):
    """Return what a seeded fit hands to its mechanism."""
    tape = Tape()
    model = DPSGDClassifier(
        epsilon=4.0, delta=1e-4, epochs=3, batch_size=8, classes=[0, 1, 2], random_state=0,
        noise_seed=0, device=device, **params,
    )  # fmt: skip
    with recording(tape), pytest.warns(match="noise_seed"):
        model.fit(*three_classes(24))
    return tape.inputs[0]


@pytest.mark.parametrize("params", [{}, {"hidden_layer_sizes": (8, 8)}])
def test_the_first_sum_is_that_of_the_processor_to_rounding(params):
    np.testing.assert_allclose(sums(GPU, **params), sums("cpu", **params), rtol=1e-4, atol=1e-5)


def run_without_noise(make, device, **params):
    torch.manual_seed(0)
    settings = config(noise_multiplier=0.0, device=device, **params)
    training = Training(settings, make(), LOSS, Probe.for_shape((16,), 3, device), SecureRandom(1))
    return training.run(*data()), training


@pytest.mark.parametrize("name", [*MODULES, "words"])
@pytest.mark.parametrize(
    "params", [{}, {"clipping": "per-layer"}, {"clipping": "adaptive"}, {"schedule": "cosine"}],
    ids=str,
)  # fmt: skip
def test_whole_runs_are_those_of_the_processor_to_rounding(name, params):
    make = {**MODULES, "words": Words}[name]
    theirs, _ = run_without_noise(make, "cpu", **params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, training = run_without_noise(make, GPU, **params)
    assert training.hindrance is None
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-3)


def test_steps_are_launched_as_graphs():
    """One for each length and one for the move, captured without a complaint."""
    made = []
    record = recorded.RECORD[GPU]

    def counted(body, room):
        made.append(body)
        return record(body, room)

    with mock.patch.dict(recorded.RECORD, {GPU: counted}), warnings.catch_warnings():
        warnings.simplefilter("error")
        _, training = run_without_noise(MODULES["perceptron"], GPU)
    assert training.hindrance is None
    assert len(made) >= 2


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
@pytest.mark.parametrize("noise", ["gaussian", "logistic", "banded", "tree"])
def test_a_step_waits_for_nothing(noise, clipping):
    settings = config(device=GPU, noise=noise, clipping=clipping)
    training = Training(settings, MODULES["perceptron"](), LOSS, Probe.for_shape((16,), 3, GPU))
    with engine.ordinary_torch(GPU):
        fixed = GraphStep(training, *data(), training._clipped.probe)
        for _ in range(3):
            fixed(np.arange(5))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for size in (0, 5, 30):
                fixed(np.arange(size))
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_noise_in_a_graph_is_an_error():
    value = torch.zeros(1000, device=GPU)
    FloatGaussian(1.0, 1.0).release(value, SecureRandom())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="every launch of the graph"), torch.cuda.graph(graph):
        FloatGaussian(1.0, 1.0).release(value, SecureRandom())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_vector_that_is_not_finite_is_not_released(bad):
    value = torch.ones(1000, device=GPU)
    value[17] = bad
    assert FloatGaussian(1.0, 1.0).release(value, SecureRandom()).isnan().all()


@pytest.mark.parametrize(
    ("rows", "features"), [(2_048, 1), (2_048, 64), (100_000, 1), (100_000, 8), (8_192, 64)]
)
@pytest.mark.parametrize("padded", [False, True])
def test_the_rounding_of_large_sums_stays_within_the_sensitivity(rows, features, padded):
    """Gradients of one sign are the worst case: the sum is as large as it can be."""
    generator = torch.Generator().manual_seed(0)
    X = 0.5 + torch.rand(rows, features, generator=generator)
    y = torch.zeros(rows, dtype=torch.long)
    probe = Probe.for_shape((features,), 2, GPU)
    settings = TrainingConfig(
        n_records=1, batch_size=1, epochs=1, relation="zero_out", max_grad_norm=0.5, device=GPU
    )
    with engine.ordinary_torch(GPU):
        training = Training(settings, nn.Sequential(nn.Linear(features, 2)), LOSS, probe)
        training._weights.data.zero_()
        table = Table(X, y, probe, GPU)
        filled = PaddedSum(training._clipped, training._grad, table, rows / 2, rows)
        numbers = torch.arange(rows, device=GPU)
        add_up = filled.sum_over(numbers)

        def total(absent=None):
            if padded:
                numbers.copy_(torch.arange(rows))
                if absent is not None:
                    numbers[absent] = table.n
                add_up()
                return filled.total.double()
            present = torch.arange(rows)
            present = present if absent is None else present[present != absent]
            return training._sum(*table.records, present).double()

        everybody = total().clone()
        for absent in (0, rows // 3, rows - 1):
            assert (everybody - total(absent)).norm() <= 0.5


@pytest.mark.parametrize("noise", ["gaussian", "logistic", "banded", "tree"])
@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
def test_the_noise_is_made_on_the_gpu(noise, clipping):
    drawn = mock.Mock(side_effect=chacha.DeviceRandom._key)
    model = DPSGDClassifier(
        epsilon=4.0, delta=1e-4, epochs=3, batch_size=8, classes=[0, 1, 2], noise=noise, device=GPU,
        max_grad_norm=Clipping(clipping),
    )  # fmt: skip
    with mock.patch.object(chacha.DeviceRandom, "_key", lambda *args: drawn(*args)):
        model.fit(*three_classes(24))
    assert drawn.called


def test_seeds_decide():
    fits = []
    for seed in (0, 0, 1):
        model = DPSGDClassifier(
            epochs=3, batch_size=8, classes=[0, 1, 2], random_state=0, noise_seed=seed, device=GPU
        )
        with pytest.warns(match="noise_seed"):
            fits.append(processes.weights(model.fit(*three_classes(24))))
    np.testing.assert_allclose(fits[0], fits[1], rtol=1e-4, atol=1e-5)
    assert not np.allclose(fits[0], fits[2], atol=1e-3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_is_told_that_it_has_no_gpu():
    """And what the parent draws after it is not what the child would have drawn."""
    random = SecureRandom()
    chacha.DeviceRandom(random, torch.device(GPU)).normal(10)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            DPSGDClassifier(classes=[0, 1, 2], device=GPU).fit(*three_classes(24))
            said = b"nothing"
        except ValueError as error:
            said = str(error).encode()[:60]
        os.write(writer, random.random_bytes(32) + said)
        os._exit(0)
    os.waitpid(child, 0)
    answer = os.read(reader, 200)
    assert answer[:32] != random.random_bytes(32)
    assert b"device='cuda' is not usable" in answer


def of_two_processes(rank, folder, results):
    warnings.simplefilter("ignore")
    processes.dist.init_process_group(
        "gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    X, y = processes.data()
    for clipping in ("flat", "adaptive"):
        model = processes.private(
            device=Distributed("replicated", device=GPU), max_grad_norm=Clipping(clipping)
        )
        results.put((rank, clipping, processes.weights(model.fit(X, y))))


def test_two_processes_on_a_gpu_give_the_model_of_one_on_the_processor(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    started = [
        context.Process(target=of_two_processes, args=(rank, str(tmp_path), queue))
        for rank in range(2)
    ]
    try:
        for process in started:
            process.start()
        found = {}
        for _ in range(4):
            rank, clipping, weights = queue.get(timeout=300)
            found[rank, clipping] = weights
    finally:
        for process in started:
            process.join(timeout=5)
            process.kill()
    for clipping in ("flat", "adaptive"):
        with pytest.warns(match="noise_seed"):
            alone = processes.private(max_grad_norm=Clipping(clipping)).fit(*processes.data())
        for rank in range(2):
            np.testing.assert_allclose(
                found[rank, clipping], processes.weights(alone), rtol=1e-3, atol=1e-4
            )


@pytest.mark.parametrize("augment", [by_numpy, by_value, centred, with_a_partner])
def test_bad_augmentations_are_refused_before_anything_is_released(augment, monkeypatch):
    def released(*args):
        raise AssertionError("a release")

    monkeypatch.setattr(FloatGaussian, "release", released)
    X, y = np.ones((20, 4)), np.arange(20) % 2
    with pytest.raises(ValueError, match="mixes records"):
        DPSGDClassifier(classes=[0, 1], epochs=1, augment=augment, device=GPU).fit(X, y)


def test_an_augmentation_that_only_the_processor_can_do_is_refused():
    def doubled(rows):
        return torch.from_numpy(2.0 * rows.numpy())

    X, y = np.ones((20, 4)), np.arange(20) % 2
    with pytest.raises(ValueError, match="works on the CPU and fails on cuda"):
        DPSGDClassifier(classes=[0, 1], epochs=1, augment=doubled, device=GPU).fit(X, y)


def test_a_place_outside_of_a_table_does_not_reach_the_gpu():
    places = np.random.default_rng(0).integers(2, size=(60, 16)).astype(float)
    model = DPSGDClassifier(module=Words, classes=[0, 1, 2], epochs=2, device=GPU)
    assert model.fit(places, np.arange(60) % 3).gradients_ == "book-keeping"


def test_out_of_memory_is_said_and_charged_once():
    budget = PrivacyBudget(10.0, 1e-3)
    model = DPSGDClassifier(
        epsilon=1.0, delta=1e-4, epochs=1, classes=[0, 1, 2], budget=budget, device=GPU,
        hidden_layer_sizes=(4000, 4000),
    )  # fmt: skip
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**26) / whole)
    try:
        with pytest.raises(MemoryError, match=r"device='cuda' has too little memory"):
            model.fit(*three_classes(24))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(budget.entries()) <= 1
    model.set_params(hidden_layer_sizes=(8,)).fit(*three_classes(24))
