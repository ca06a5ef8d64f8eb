"""Private training on a GPU beside plain eager torch and Opacus, and shadow models beside a loop.

Prints, for each shape and batch, the time of a plain eager step, and others as multiples of it:
ours as a run takes it (``graph``), ours with its operations launched one by one (``eager``), ours
without fixed buffers (``other``: for groups and views), Opacus with ghost clipping and with hooks;
then the peak of memory. Competitors take turns, and each round ends when the device has done all of
it. ``--only shadows`` trains 256 shadow models, plain and private, and 250 teachers, and attacks
with them. ``--only fits`` times whole fits.

Without a GPU, ``--quick`` runs all of it once on the processor, where no graph is recorded.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from unittest import mock

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

from benchmarks.shared.quick import QUICK, choose, has_peer, make_parser
from skprivacy._stacked import train_isolated_networks, train_stacked
from skprivacy.attacks import LabeledRecords, LiRA, ShadowPool
from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.neural_network._gradients.perceptron import make_mlp
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training import engine
from skprivacy.neural_network._training import graph_step as recorded
from skprivacy.neural_network._training.engine import SingleProcess, Training
from skprivacy.neural_network._training.graph_step import GraphStep
from skprivacy.neural_network._training.torch_modes import ordinary_torch
from skprivacy.neural_network._training.training_config import TrainingConfig

Step = Callable[[], object]
SHAPES = {
    "adult": (choose(32_561, 2_000), 105, (64, 32), 2),
    "purchase": (20_000, 600, (256, 128), 100),
    "purchase-wide": (20_000, 600, (1024, 512, 256), 100),
    "texas": (10_000, 6_169, (1024,), 100),
    "4096 x 4096": (20_000, 600, (4096, 4096), 100),
    "mnist convolution": (20_000, 784, (), 10),
}
BATCHES = (256, 1024, 4096)
_HOOKS = 4e9  # bytes of per-example gradients that Opacus's default may hold
LOSS = nn.CrossEntropyLoss(reduction="none")


def data(n: int, d: int, k: int) -> tuple[Tensor, Tensor]:
    public = torch.Generator().manual_seed(0)
    X = (torch.rand(n, d, generator=public) < 0.2).float()
    return X, torch.randint(k, (n,), generator=public)


def network(shape: str) -> nn.Module:
    _, d, hidden, k = SHAPES[shape]
    if shape != "mnist convolution":
        return make_mlp(d, hidden, k, "tanh", np.random.RandomState(0))
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 8, 2, padding=2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(),
        nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def plain(shape: str, X: Tensor, y: Tensor, batch: int) -> Step:
    module = network(shape).to(X.device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    loss, place = nn.CrossEntropyLoss(), 0

    def step() -> None:
        nonlocal place
        place = place + batch if place + 2 * batch <= len(X) else 0
        optimizer.zero_grad()
        loss(module(X[place : place + batch]), y[place : place + batch]).backward()
        optimizer.step()

    return step


def training_on(shape: str, X: Tensor, batch: int) -> Training:
    _, d, _, k = SHAPES[shape]
    config = TrainingConfig(
        n_records=len(X), batch_size=batch, epochs=2000, relation="zero_out", noise_multiplier=1.0,
        optimizer_params={"momentum": 0.9}, learning_rate=0.01, averaging=0.0,
        device=str(X.device),
    )  # fmt: skip
    return Training(config, network(shape), LOSS, Probe.for_shape((d,), k, str(X.device)))


def fixed(launched: bool) -> Callable[..., Step]:
    """Return a maker of our step, with graphs or without."""

    def make(shape: str, X: Tensor, y: Tensor, batch: int) -> Step:
        training = training_on(shape, X, batch)
        with ExitStack() as stack:
            stack.enter_context(ordinary_torch(str(X.device)))
            if not launched:
                stack.enter_context(mock.patch.dict(recorded.RECORD, clear=True))
            probe = training._clipped.probe
            assert probe is not None
            take = GraphStep(training, X, y, probe)
        sampler, random, n = PoissonSampler(batch / len(X)), SecureRandom(), len(X)
        return lambda: take(sampler.draw(n, random))

    return make


def other(shape: str, X: Tensor, y: Tensor, batch: int) -> Step:
    training = training_on(shape, X, batch)
    sampler, random, n, alone = (
        PoissonSampler(batch / len(X)),
        SecureRandom(),
        len(X),
        SingleProcess(),
    )
    return lambda: training.step(X, y, torch.from_numpy(sampler.draw(n, random)), alone)


def opacus(mode: str) -> Callable[..., Step]:
    def make(shape: str, X: Tensor, y: Tensor, batch: int) -> Step:
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        module = network(shape).to(X.device)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        loss = nn.CrossEntropyLoss()
        made = PrivacyEngine().make_private(
            module=module, optimizer=optimizer, criterion=loss, noise_multiplier=1.0,
            data_loader=DataLoader(TensorDataset(X, y), batch_size=batch), max_grad_norm=1.0,
            grad_sample_mode=mode,
        )  # fmt: skip
        module, optimizer, loss = made[0], made[1], made[2] if mode == "ghost" else loss
        sampler, random, n = PoissonSampler(batch / len(X)), SecureRandom(), len(X)

        def step() -> None:
            drawn = torch.from_numpy(sampler.draw(n, random)).to(X.device)
            optimizer.zero_grad()
            loss(module(X[drawn]), y[drawn]).backward()
            optimizer.step()

        return step

    return make


def synchronised(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def medians(steps: dict[str, Step], rounds: int, seconds: float, device: str) -> dict[str, float]:
    """Return seconds a step: in each round every competitor runs for about ``seconds``."""
    repeats = {}
    for name, step in steps.items():
        for _ in range(3):
            step()
        synchronised(device)
        start = time.perf_counter()
        step()
        synchronised(device)
        repeats[name] = max(1, round(seconds / (time.perf_counter() - start)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            synchronised(device)
            start = time.perf_counter()
            for _ in range(repeats[name]):
                step()
            synchronised(device)
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def peak(make: Callable[..., Step], shape: str, X: Tensor, y: Tensor, batch: int) -> float:
    """Return the MiB that training takes on the device at its peak, the data apart."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step = make(shape, X, y, batch)
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def compare_steps(options: argparse.Namespace) -> None:
    makers: dict[str, Callable[..., Step]] = {
        "plain": plain, "graph": fixed(True), "eager": fixed(False), "other": other,
        "ghost": opacus("ghost"), "hooks": opacus("hooks"),
    }  # fmt: skip
    if options.no_opacus or not has_peer("opacus", "pip install 'skprivacy[peers]'"):
        del makers["ghost"], makers["hooks"]
    names = [name for name in makers if name != "plain"]
    print(f"{'shape':18} {'batch':>5} {'plain ms':>9}", *(f"{n:>6}" for n in names), "  x plain")
    for shape in options.shapes:
        n, d, _, k = SHAPES[shape]
        here = data(n, d, k)
        X, y = (values.to(options.device) for values in here)
        weights = sum(p.numel() for p in network(shape).parameters())
        for batch in options.batches:
            fits = {k: m for k, m in makers.items() if k != "hooks" or 4 * weights * batch < _HOOKS}
            steps = {name: make(shape, X, y, batch) for name, make in fits.items()}
            found = medians(steps, options.rounds, options.seconds, options.device)
            del steps
            ratios = [
                f"{found[k] / found['plain']:6.2f}" if k in found else "     -" for k in names
            ]
            print(f"{shape:18} {batch:5} {found['plain'] * 1e3:9.3f}", *ratios, flush=True)
            if options.device != "cpu":
                most = {name: peak(make, shape, X, y, batch) for name, make in fits.items()}
                ratios = [
                    f"{most[k] / most['plain']:6.2f}" if k in most else "     -" for k in names
                ]
                print(
                    f"{'  peak of memory':18} {'':5} {most['plain']:6.0f}MiB", *ratios, flush=True
                )


def loop(X: Tensor, y: Tensor, hidden: tuple[int, ...], epochs: int, device: str) -> float:
    """Return the seconds that one network takes by itself."""
    module = make_mlp(X.shape[1], hidden, int(y.max()) + 1, "tanh", np.random.RandomState(0))
    module, X, y = module.to(device), X.to(device), y.to(device)
    optimizer, loss = torch.optim.Adam(module.parameters()), nn.CrossEntropyLoss()
    synchronised(device)
    start = time.perf_counter()
    for _ in range(epochs):
        for rows in torch.randperm(len(X), device=device).split(256):
            optimizer.zero_grad()
            loss(module(X[rows]), y[rows]).backward()
            optimizer.step()
    synchronised(device)
    return time.perf_counter() - start


def seconds_of(call: Callable[[], object], device: str) -> float:
    synchronised(device)
    start = time.perf_counter()
    call()
    synchronised(device)
    return time.perf_counter() - start


def compare_shadows(options: argparse.Namespace) -> None:
    """Train networks side by side: 5,000 of 10,000 records, 30 epochs, batch 256."""
    device = options.device
    n, epochs, models = choose((10_000, 30, 256), (1000, 2, 4))
    there = "cpu:0" if device == "cpu" else device  # another device, by its name

    def report(name: str, train: Step, alone: float = math.nan) -> None:
        taken = seconds_of(train, device)
        print(f"{name:30} {taken:6.2f} {taken / models * 1e3:8.1f} {alone * 1e3:11.0f}", flush=True)

    print(f"{'networks':30} {'s':>6} {'ms each':>8} {'ms alone':>11}")
    rows = [np.random.default_rng(i).permutation(n)[: n // 2] for i in range(models)]
    for shape in ("adult", "purchase"):
        _, d, hidden, k = SHAPES[shape]
        X, y = data(n, d, k)
        alone = loop(X[: n // 2], y[: n // 2], hidden, epochs, device)
        for net in (
            MLPClassifier(hidden, "tanh", batch_size=256, max_iter=epochs, n_iter_no_change=99),
            DPSGDClassifier(
                hidden_layer_sizes=hidden, batch_size=256, epochs=epochs, classes=range(k),
                epsilon=None, noise_multiplier=1.0,
            ),
        ):  # fmt: skip
            train = partial(train_stacked, net, X.numpy(), y.numpy(), device=there)
            train(rows[:2], range(2))
            name = f"{models} x {shape}, {type(net).__name__}"
            report(name, partial(train, rows, range(models)), alone)
    X, y = data(n, 784, 10)
    parts = [(X[i::models].numpy()[:200], y[i::models].numpy()[:200]) for i in range(models)]
    teacher = MLPClassifier((256,), batch_size=100, max_iter=epochs, n_iter_no_change=999)
    report(
        f"{models} teachers 784-256-10",
        partial(train_isolated_networks, teacher, parts, 784, np.arange(10), range(models), there),
    )
    X, y = data(n, *(SHAPES["adult"][i] for i in (1, 3)))
    target = MLPClassifier((64, 32), "tanh", batch_size=256, max_iter=epochs, n_iter_no_change=99)
    target.fit(X[: n // 2].numpy(), y[: n // 2].numpy())

    def attacked() -> None:
        pool = ShadowPool(target, n_shadows=models, random_state=0, device=there)
        LiRA(target, pool=pool.fit(X.numpy(), y.numpy())).fit(LabeledRecords(X.numpy(), y.numpy()))

    report(f"LiRA on {n} records, whole", attacked)


def compare_fits(options: argparse.Namespace) -> None:
    n, d, _, k = SHAPES["adult"]
    X, y = (values.numpy() for values in data(choose(n, 2000), d, k))
    model = DPSGDClassifier(classes=range(k), epsilon=1.0, delta=1e-6, device=options.device)
    taken = [seconds_of(lambda: model.fit(X, y), options.device) for _ in range(4)]
    print(
        f"fit of Adult's shape, defaults: first {taken[0]:.2f} s, "
        f"then {statistics.median(taken[1:]):.2f} s ({model.n_steps_} steps)"
    )


def main() -> None:
    default = "cpu" if QUICK and not torch.cuda.is_available() else "cuda"
    parser = make_parser(__doc__)
    parser.add_argument("--device", default=default)
    parser.add_argument("--only", choices=["steps", "shadows", "fits"])
    parser.add_argument("--no-opacus", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--shapes", nargs="*")
    parser.add_argument("--batches", nargs="*", type=int)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.rounds = options.rounds or (1 if QUICK else 11)
    options.seconds = choose(0.1, 0.0)
    options.shapes = options.shapes or choose(list(SHAPES), ["adult", "mnist convolution"])
    options.batches = options.batches or choose(BATCHES, (64,))
    if options.device == "cpu":
        engine.FIXED_ON = engine.NOISE_ON = {"cpu"}
        print("on the processor: the same operations, none of the speed")
    else:
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    tables = {"steps": compare_steps, "shadows": compare_shadows, "fits": compare_fits}
    for name, table in tables.items():
        if options.only in (None, name):
            table(options)


if __name__ == "__main__":
    main()
