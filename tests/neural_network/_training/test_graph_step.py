"""Steps on fixed memory, as a GPU takes them, on the processor: what they release, and when."""

from __future__ import annotations

import warnings
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.accounting import PrivacyBudget
from skprivacy.mechanisms import FloatGaussian, SecureRandom
from skprivacy.neural_network import DPSGDClassifier, RandomShift
from skprivacy.neural_network._gradients.padded_sum import PaddedSum, Table, lengths_for
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training import engine, graph_step, mapped_rows
from skprivacy.neural_network._training import training_config as noise_kinds
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.graph_step import GraphStep
from skprivacy.neural_network._training.torch_modes import ordinary_torch
from skprivacy.neural_network._training.training_config import TrainingConfig

from .simulated_gpu import NoWaits, graph_of, simulated_gpu

LOSS = nn.CrossEntropyLoss(reduction="none")
MODULES = {
    "perceptron": lambda: nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)),
    "relu": lambda: nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)),
    "norm": lambda: nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 2, groups=2), nn.Flatten(), nn.Linear(2, 3),
    ),
    "sequence": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 8)), nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Linear(6, 4), nn.Flatten(),
        nn.Linear(12, 3),
    ),
}  # fmt: skip


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(2, 4), nn.Linear(64, 3)

    def forward(self, x):
        return self.last(self.table((x > 0).long()).flatten(1))


def copied(value):
    return np.array(value.numpy() if isinstance(value, torch.Tensor) else value, copy=True)


def config(**params):
    defaults = {
        "n_records": 200, "batch_size": 20, "epochs": 3, "relation": "zero_out",
        "noise_multiplier": 0.7, "optimizer_params": {"momentum": 0.9}, "max_grad_norm": 0.5,
    }  # fmt: skip
    return TrainingConfig(**{**defaults, **params})


def data(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.normal(size=(n, 16)).astype(np.float32))
    X[3, 2], X[4, 5], X[0, 0], X[5] = torch.nan, torch.inf, torch.inf, 1e14
    return X, torch.from_numpy(rng.integers(3, size=n))


def run_of(make=MODULES["perceptron"], loss=LOSS, random=None, **params):
    """Return a run that has not started."""
    return Training(config(**params), make(), loss, Probe.for_shape((16,), 3), random)


def assert_sums(released, expected):
    for (*_, value), (*_, its_value) in zip(released, expected, strict=True):
        np.testing.assert_allclose(value, its_value, atol=2e-5)


def assert_weights(ours, theirs):
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def trained(make, gpu, graphs=True, **params):
    """Return what a run made, and what went through the door."""
    torch.manual_seed(0)
    released = []

    def release(self, value, random):  # noise that both ways can make
        released.append((self.sensitivity, self.noise_multiplier, copied(value)))
        seeded = np.random.default_rng(len(released)).normal(size=len(value))
        noise = self.noise_multiplier * self.sensitivity * seeded
        if isinstance(value, torch.Tensor):
            value += torch.from_numpy(noise).to(value)
        else:
            value += noise.astype(value.dtype)
        return value

    with (
        mock.patch.object(FloatGaussian, "_release", release),
        simulated_gpu(graphs) if gpu else nullcontext(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        training = run_of(make, random=SecureRandom(1), **params)
        return training.run(*data()), released, training


def assert_same(make, **params):
    theirs, expected, _ = trained(make, gpu=False, **params)
    for graphs in (False, True):
        ours, released, training = trained(make, gpu=True, graphs=graphs, **params)
        assert training.hindrance is None
        assert len(released) == len(expected) == training.config.n_steps
        for (norm, z, value), (its_norm, its_z, its_value) in zip(released, expected, strict=True):
            assert (norm, z) == (its_norm, its_z)
            np.testing.assert_allclose(value, its_value, atol=2e-5 * norm)
        assert_weights(ours, theirs)


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [*MODULES, "words"])
def test_a_fixed_step_is_the_other_one(name):
    """Records that are NaN, infinite and huge are among those who are drawn, and are the first."""
    assert_same({**MODULES, "words": Words}[name])


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "params",
    [
        {"clipping": "per-layer", "schedule": "linear"},
        {"clipping": "automatic", "averaging": "ema"},
        {"clipping": "adaptive", "schedule": "cosine", "max_grad_norm": 2.0},
        {"optimizer": "adam", "optimizer_params": {"betas": (0.9, 0.999)}, "clipping": "adaptive"},
        {"optimizer": torch.optim.AdamW, "optimizer_params": {}, "averaging": 0.0},
        {"optimizer_params": {"momentum": 0.0}, "averaging": 1.0},
        {"batch_size": 200, "epochs": 2},
        {"batch_size": 2, "n_records": 60, "epochs": 1},
    ],
    ids=str,
)
def test_whatever_is_asked_for(params):
    assert_same(MODULES["perceptron"], **params)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("noise", ["logistic", "banded", "tree"])
def test_other_noise(noise):
    """Its sums are those of the other way at first, while the weights are the same."""
    sums = []
    for gpu in (False, True):
        tape = []
        release = engine.Mechanism.release

        def seen(self, value, random, tape=tape, release=release):
            tape.append(copied(value))
            return release(self, value, random)

        torch.manual_seed(0)
        with (
            mock.patch.object(engine.Mechanism, "release", seen),
            simulated_gpu() if gpu else nullcontext(),
        ):
            made = run_of(MODULES["relu"], random=SecureRandom(1), noise=noise)
            made.run(*data())
        assert made.hindrance is None
        assert len(tape) == 30
        sums.append(tape[0])
    np.testing.assert_allclose(*sums, atol=1e-5)


def a_sum(make=MODULES["perceptron"], rows=64, norm=0.5, **params):
    """Return a padded sum, the numbers of its rows, and what adds up."""
    with simulated_gpu(graphs=False):
        training = run_of(make, random=SecureRandom(1), **params)
        table = Table(*data(), training._clipped.probe, "cpu")
        padded = PaddedSum(training._clipped, training._grad, table, 20.0, rows)
        numbers = torch.full((rows,), table.n)
        return padded, table, numbers, padded.sum_over(numbers), training


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("clipping", ["flat", "per-layer", "adaptive"])
def test_rows_that_fill_up_add_exactly_zero(name, clipping):
    padded, table, numbers, add_up, _ = a_sum(MODULES[name], clipping=clipping)
    numbers[:20] = torch.arange(20)
    add_up()
    expected = padded.total.clone()
    assert expected.any()
    for value in (1e30, -1e38, torch.inf, torch.nan):
        table.X[table.n], table.y[table.n] = value, 2
        add_up()
        assert torch.equal(padded.total, expected)
    numbers.fill_(table.n)
    add_up()
    assert not padded.total.any()


def test_they_add_zero_to_weights_that_are_lost():
    padded, _, numbers, add_up, training = a_sum()
    training._weights.data.fill_(torch.nan)
    numbers[:20] = torch.arange(20)
    add_up()
    assert not padded.total.any()


@pytest.mark.parametrize("value", [0.0, 1e3])
def test_a_forgotten_mask_is_noticed(value):
    """The planted bug: blank rows count like any."""
    padded, table, _, add_up, _ = a_sum()
    add_up()
    assert not padded.total.any()
    padded._table = SimpleNamespace(X=table.X, y=table.y, n=-1)
    table.X[table.n] = value
    add_up()
    assert padded.total.any()


def test_no_batch_moves_the_memory_of_a_graph():
    """Which would go on to work in memory that others write to."""
    with simulated_gpu():
        training = run_of()
        fixed = GraphStep(training, *data(), training._clipped.probe)
        kept = fixed._sum._gradients._workspace._kept
        places = {name: tensor.data_ptr() for name, tensor in kept.items()}
        assert places
        for size in (0, 5, 30, 64, 65, 200, 1):
            fixed(np.arange(size))
    assert {name: tensor.data_ptr() for name, tensor in kept.items()} == places
    assert training._clipped.gradients._workspace is not fixed._sum._gradients._workspace


@pytest.mark.parametrize("expected", [1, 7, 100, 256, 1000, 1024, 4096, 100_000])
def test_lengths_are_public_and_few(expected):
    lengths = lengths_for(expected, sampled=True)
    assert 1 <= len(lengths) <= 3
    assert list(lengths) == sorted(lengths)
    assert lengths[-1] >= expected + 6 * expected**0.5
    assert lengths[-1] <= expected + 6 * expected**0.5 + 32
    assert expected > 1024 or lengths[-1] <= 2048


def test_large_batches_are_added_up_in_double_precision():
    X = torch.randn(5000, 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(5000) % 3
    sums = []
    for gpu in (False, True):
        with simulated_gpu(graphs=gpu) if gpu else nullcontext():
            settings = config(n_records=5000, batch_size=2400, epochs=1)
            torch.manual_seed(0)
            module = nn.Sequential(nn.Linear(4, 3))
            training = Training(settings, module, LOSS, Probe.for_shape((4,), 3), SecureRandom(1))
            seen = []
            release = FloatGaussian._release

            def released(self, value, random, seen=seen, release=release):
                seen.append(value.copy() if isinstance(value, np.ndarray) else value.clone())
                return release(self, value, random)

            with mock.patch.object(FloatGaussian, "_release", released):
                training.run(X, y)
            sums.append(torch.as_tensor(seen[0]))
    assert sums[1].dtype == torch.float64
    # Parts of 1,200 and of 2,048 rows, each in single precision, round off by a few millionths.
    torch.testing.assert_close(*sums, rtol=1e-5, atol=5e-6)


class Sampler:
    """Draws batches of given lengths."""

    rate = 0.1

    def __init__(self, *sizes):
        self.sizes = list(sizes)

    def draw(self, n, random):
        return np.sort(np.random.default_rng(0).choice(n, self.sizes.pop(0), replace=False))


def test_batches_of_nobody_of_all_and_of_any_length_between(monkeypatch):
    monkeypatch.setattr(graph_step, "PoissonSampler", Sampler)
    monkeypatch.setattr(
        noise_kinds._Sampled,
        "sampler",
        lambda self, run: Sampler(*[0, 64, 65, 200, 0, 30, 200, 1, 32, 33] * 3),
    )
    releases = [
        trained(MODULES["perceptron"], gpu, graphs)[1]
        for gpu, graphs in ((False, False), (True, False), (True, True))
    ]
    assert len(releases[0]) == 30
    for released in releases[1:]:
        assert_sums(released, releases[0])
    assert not releases[2][0][-1].any()


def test_a_step_waits_for_nothing():
    """From the numbers of the rows to the weights, the release and its check included."""
    with simulated_gpu(graphs=False):
        for clipping in ("flat", "adaptive"):
            training = run_of(clipping=clipping)
            fixed = GraphStep(training, *data(), training._clipped.probe)
            fixed(np.arange(5))
            with NoWaits():
                for size in (0, 5, 30):
                    fixed(np.arange(size))


def test_noise_in_a_graph_is_an_error():
    """Every launch would repeat it."""
    with simulated_gpu():
        mechanism, value = FloatGaussian(1.0, 1.0), torch.zeros(10)
        with pytest.raises(RuntimeError, match="every launch of the graph"):
            graph_of(lambda: mechanism.release(value, SecureRandom()))
        mechanism.release(value, SecureRandom())


@pytest.mark.heavy
def test_a_graph_that_held_the_release_would_be_refused():
    """The planted bug: what moves the weights releases, too, whenever it is repeated."""
    move = graph_step.Momentum._move

    def releases(self):
        training = self._training
        training._mechanism.release(self._released, training.random)
        move(self)

    with simulated_gpu(), mock.patch.object(graph_step.Momentum, "_move", releases):
        training = run_of()
        with pytest.warns(RuntimeWarning, match="every launch of the graph"):
            training.run(*data())


def test_steps_have_noise_of_their_own():
    tape = []
    release = FloatGaussian._release

    def seen(self, value, random):
        before = value.clone()
        noisy = release(self, value, random)
        tape.append((noisy - before).numpy())
        return noisy

    with simulated_gpu(), mock.patch.object(FloatGaussian, "_release", seen):
        run_of().run(*data())
    noise = np.array(tape)
    assert len(noise) == 30
    cosines = np.corrcoef(noise)[np.triu_indices(30, 1)]
    assert np.abs(cosines).max() < 6 / noise.shape[1] ** 0.5
    assert noise.std() == pytest.approx(0.7 * 0.5, rel=0.05)


def test_wrong_recordings_are_not_used():
    """The planted bug: a number of the processor's that changes between calls is frozen."""
    calls = [0]

    def body():
        calls[0] += 1
        value.mul_(0.5).add_(float(calls[0]))

    value = torch.ones(4)
    with simulated_gpu(), pytest.raises(RuntimeError, match="other numbers"):
        graph_step.capture_graph(body, [value])
    assert torch.equal(value, torch.ones(4))


def test_a_graph_that_does_nothing_is_not_used():
    """The planted bug: what was captured on another device's stream holds no operation."""
    with (
        simulated_gpu(),
        mock.patch.object(graph_step, "RECORD", {"cpu": lambda body, room: lambda: None}),
    ):
        training = run_of()
        with pytest.warns(RuntimeWarning, match="the captured operations give other numbers"):
            fixed = GraphStep(training, *data(), training._clipped.probe)
        summed = fixed._sum_numbers(np.arange(20)).clone()
    expected = training._sum(*fixed._table.records, torch.arange(20))
    torch.testing.assert_close(summed, expected)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_the_gpu_that_is_asked_for_is_the_current_one(device):
    """Graphs, streams and kernels are made on the current one."""
    entered = []
    with (
        mock.patch.object(torch.cuda, "device", lambda name: nullcontext(entered.append(name))),
        ordinary_torch(device),
    ):
        assert entered == [device]
    with mock.patch.object(torch.cuda, "device", mock.Mock(side_effect=AssertionError)):
        run_of(device="cpu")


def test_other_weights_in_the_padded_sum_are_noticed():
    """The planted bug: a sum that is wrong on public rows; the other way is taken."""
    add = PaddedSum._add

    def twice(self, part):
        add(self, part)
        add(self, part)

    with mock.patch.object(PaddedSum, "_add", twice):
        _, released, training = trained(MODULES["perceptron"], gpu=True)
    assert "padded rows differs" in training.hindrance
    _, expected, _ = trained(MODULES["perceptron"], gpu=False)
    assert_sums(released, expected)


@pytest.mark.heavy
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_sum_that_is_not_finite_is_not_released(bad):
    """In one place of one step: nothing of it is seen, and the run is refused."""
    move, seen = graph_step.Momentum._move, []

    def spoiled(self, drawn):
        value = original(self, drawn)
        if self._training._step == 7:
            value[3] = bad
        return value

    def moved(self):
        seen.append(self._released.clone())
        move(self)

    original = GraphStep._sum_numbers
    with (
        simulated_gpu(graphs=False),
        mock.patch.object(GraphStep, "_sum_numbers", spoiled),
        mock.patch.object(graph_step.Momentum, "_move", moved),
        pytest.raises(ValueError, match="All weights are NaN"),
    ):
        run_of().run(*data())
    assert seen[6].isfinite().all()
    assert seen[7].isnan().all()


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.first(self.first(x)))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"module": Shared}, "computed by torch.func"),
        ({"augment": (RandomShift((1, 2, 2)), 2)}, "several views"),
        ({"noise": "exact"}, "noise is made by the processor"),
        (
            {"module": nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 2))},
            "padded rows differs",
        ),
        ({"groups": np.arange(60) // 2}, "groups are protected"),
    ],
)
def test_runs_without_graphs_give_a_reason(params, why):
    rng, kept = np.random.default_rng(0), []
    X = rng.normal(size=(60, 4))
    run = engine.Training.run

    def seen(self, *args):
        kept.append(self)
        return run(self, *args)

    groups = params.pop("groups", None)
    with simulated_gpu(), mock.patch.object(engine.Training, "run", seen):
        model = DPSGDClassifier(classes=[0, 1], epochs=2, **params)
        model.fit(X, (X[:, 0] > 0).astype(int), groups=groups)
    assert why in kept[0].hindrance


class NoBlanks(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        if not x.any(1).all():
            raise ValueError("a row of zeros")
        return self.last(x)


def test_a_module_that_takes_no_blank_rows_takes_the_other_way():
    _, released, training = trained(NoBlanks, gpu=True)
    assert "a row of zeros" in training.hindrance
    _, expected, _ = trained(NoBlanks, gpu=False)
    np.testing.assert_allclose(released[0][-1], expected[0][-1], atol=2e-5)


@pytest.mark.parametrize("free", [1, 10**9])
def test_records_that_do_not_fit_are_sent_step_by_step(free):
    """The same sums, while only the rows of a step are on the device."""
    with mock.patch.dict(mapped_rows.FREE_MEMORY, {"cpu": lambda device: free}):
        ours, released, training = trained(MODULES["perceptron"], gpu=True)
    theirs, expected, _ = trained(MODULES["perceptron"], gpu=False)
    assert training.hindrance == ("the records are not on the device" if free == 1 else None)
    assert_sums(released, expected)
    assert_weights(ours, theirs)


class Others(engine.SingleProcess):
    """Processes that train together, to which the sum goes by way of the processor."""

    def release(self, mechanism, total, random):
        assert isinstance(total, np.ndarray)
        return super().release(mechanism, total, random)


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
def test_processes_that_train_together_take_the_other_way(clipping):
    made = []
    for gpu in (False, True):
        torch.manual_seed(0)
        with simulated_gpu() if gpu else nullcontext():
            training = run_of(random=SecureRandom(1), clipping=clipping)
            made.append(training.run(*data(), Others()))
    assert training.hindrance == "several processes train together"
    assert_weights(*made)


def test_the_table_of_records_is_gone_with_the_fit():
    """Without waiting for a collection: nothing goes round in circles to it."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    tables = []
    made = Table.__init__

    def noted(self, *args):
        tables.append(weakref.ref(self))
        made(self, *args)

    with simulated_gpu(), mock.patch.object(Table, "__init__", noted):
        model = DPSGDClassifier(classes=[0, 1], epochs=2).fit(X, X[:, 0] > 0)
    assert model.n_steps_
    assert [table() for table in tables] == [None]


def out_of_memory(*args):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.parametrize(
    ("owner", "name", "charges"),
    [
        (graph_step, "Table", 1),
        (PaddedSum, "_add", 1),
        (FloatGaussian, "_release", 1),
        (engine, "flatten_parameters", 0),
    ],
)
def test_out_of_memory_is_said_and_charged_once(owner, name, charges):
    budget = PrivacyBudget(10.0, 1e-3)
    model = DPSGDClassifier(epsilon=1.0, delta=1e-4, classes=[0, 1], budget=budget)
    X = np.random.default_rng(0).normal(size=(60, 4))
    with (
        simulated_gpu(),
        mock.patch.object(owner, name, out_of_memory),
        pytest.raises(MemoryError, match=r"device='cpu' has too little memory.*smaller batch_size"),
    ):
        model.fit(X, (X[:, 0] > 0).astype(int))
    assert len(budget.entries()) == charges
    assert not hasattr(model, "module_")
