"""A private training step beside a plain torch step and Opacus, interleaved, as ratios of medians.

Prints one line for each shape and batch. ``--fits`` compares whole fits with scikit-learn's,
skorch's and a loop over tensors, ``--memory`` the peak memory of training (Linux only),
``--convolution`` steps of a small convolution network on images. Every competitor does a whole step
on the same data: batch, forward, backward, update. The private ones draw a Poisson batch, clip and
add noise as well. The plain one takes slices one after another; ``gathers`` is a plain one that
gathers each batch out of a shuffle, as a private one must. Times are medians over rounds in which
the competitors take turns. The machine's load stands beside them. With ``--processor`` they are
processor time over all threads. ``--short`` takes fewer rounds and leaves Opacus's default out
where a step takes seconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.shared.networks import SmallConvNet
from benchmarks.shared.quick import QUICK, ROOT, choose, has_peer, make_parser
from benchmarks.shared.timing import describe_load, measure_medians
from skprivacy._environment import one_blas_thread
from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.neural_network._gradients.perceptron import make_mlp
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training.engine import SingleProcess, Training
from skprivacy.neural_network._training.training_config import TrainingConfig

SHAPES = {
    "adult": (choose(32_561, 2_000), 105, (64, 32), 2),
    "purchase": (20_000, 600, (256, 128), 100),
    "purchase-wide": (20_000, 600, (1024, 512, 256), 100),
    "texas": (10_000, 6_169, (1024,), 100),
}
BATCHES = choose((256, 1024, 4096), (64,))
_EPOCHS = choose(10, 1)  # of a whole fit
_SECONDS = choose(0.03, 0.0)  # of each competitor in a round
Step = Callable[[], None]


def data(n: int, d: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = (torch.rand(n, d, generator=generator) < 0.2).float()
    return X, torch.randint(k, (n,), generator=generator)


def network(d: int, hidden: tuple[int, ...], k: int) -> nn.Sequential:
    return make_mlp(d, hidden, k, "tanh", np.random.RandomState(0))


def plain(X, y, hidden, k, batch) -> Step:
    return plain_step(network(X.shape[1], hidden, k), X, y, batch)


def gathering(X, y, hidden, k, batch) -> Step:
    """Return a plain step that gathers its batch out of a shuffle."""
    shuffled = torch.randperm(len(X))
    return plain_step(network(X.shape[1], hidden, k), X, y, batch, shuffled)


def plain_step(module, X, y, batch, shuffled=None) -> Step:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    place = 0

    def step() -> None:
        nonlocal place
        place = place + batch if place + 2 * batch <= len(X) else 0
        part = slice(place, place + batch) if shuffled is None else shuffled[place : place + batch]
        optimizer.zero_grad()
        loss(module(X[part]), y[part]).backward()
        optimizer.step()

    return step


def ours(X, y, hidden, k, batch, activation="tanh") -> Step:
    module = make_mlp(X.shape[1], hidden, k, activation, np.random.RandomState(0))
    return private_step(module, X, y, batch)


def private_step(module, X, y, batch, probe=None) -> Step:
    config = TrainingConfig(
        n_records=len(X),
        batch_size=batch,
        epochs=1,
        relation="zero_out",
        noise_multiplier=1.0,
        optimizer_params={"momentum": 0.9},
        learning_rate=0.01,
        averaging=0.0,
    )
    training = Training(config, module, nn.CrossEntropyLoss(reduction="none"), probe)
    sampler, random, alone = PoissonSampler(batch / len(X)), SecureRandom(), SingleProcess()

    def step() -> None:
        drawn = torch.from_numpy(sampler.draw(len(X), random))
        training.step(X, y, drawn, alone)

    return step


def opacus(mode: str) -> Callable[..., Step]:
    def make(X, y, hidden, k, batch) -> Step:
        from opacus import PrivacyEngine
        from torch.utils.data import DataLoader, TensorDataset

        module = network(X.shape[1], hidden, k)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        loss = nn.CrossEntropyLoss()
        loader = DataLoader(TensorDataset(X, y), batch_size=batch)
        made = PrivacyEngine().make_private(
            module=module, optimizer=optimizer, criterion=loss, data_loader=loader,
            noise_multiplier=1.0, max_grad_norm=1.0, grad_sample_mode=mode,
        )  # fmt: skip
        module, optimizer, loss = made[0], made[1], made[2] if mode == "ghost" else loss
        sampler = PoissonSampler(batch / len(X))
        random = SecureRandom()

        def step() -> None:
            # The loader costs Opacus far more than this: what is compared is the step itself.
            drawn = torch.from_numpy(sampler.draw(len(X), random))
            optimizer.zero_grad()
            loss(module(X[drawn]), y[drawn]).backward()
            optimizer.step()

        return step

    return make


def tensor_loop(X, y, hidden, k, batch, activation) -> Step:
    """Plain training without a loader: each batch is gathered out of a shuffle."""
    module = make_mlp(X.shape[1], hidden, k, activation, np.random.RandomState(0))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()

    def fit() -> None:
        for _ in range(_EPOCHS):
            for part in torch.randperm(len(X)).split(batch):
                optimizer.zero_grad()
                loss(module(X[part]), y[part]).backward()
                optimizer.step()

    return fit


def whole_fits(rounds: int, batches: tuple[int, ...]) -> None:
    """Compare whole fits and predictions with plain ones of others, on Adult's shape.

    In processor time, over all threads: ratios hold on a busy machine, too.
    """
    from sklearn.neural_network import MLPClassifier
    from skorch import NeuralNetClassifier

    from skprivacy.neural_network import DPSGDClassifier

    n, d, hidden, k = SHAPES["adult"]
    X, y = data(n, d, k)
    rows, labels = X.numpy(), y.numpy()
    print(f"{'fit':5} {'batch':>5} {'ours s':>7}   x {'tensors':>8} {'sklearn':>8} {'skorch':>8}")
    for activation in ("tanh", "relu"):
        for batch in batches:
            private = DPSGDClassifier(
                module=make_mlp(d, hidden, k, activation, np.random.RandomState(0)),
                epochs=_EPOCHS,
                batch_size=batch,
                classes=range(k),
                device="cpu",
            )
            mlp = MLPClassifier(
                hidden, activation=activation, solver="sgd", batch_size=batch, tol=0.0,
                max_iter=_EPOCHS, learning_rate_init=0.01, n_iter_no_change=_EPOCHS,
            )  # fmt: skip
            plain_net = NeuralNetClassifier(
                network(d, hidden, k), criterion=nn.CrossEntropyLoss, max_epochs=_EPOCHS,
                batch_size=batch, train_split=None, verbose=0, optimizer__momentum=0.9,
            )  # fmt: skip
            fits = {
                "tensors": tensor_loop(X, y, hidden, k, batch, activation),
                "sklearn": lambda model=mlp: model.fit(rows, labels),
                "skorch": lambda net=plain_net: net.fit(rows, labels),
                "ours": lambda model=private: model.fit(rows, labels),
            }
            if activation != "tanh":
                fits.pop("skorch")
            found = measure_medians(fits, rounds, _SECONDS, clock=time.process_time)
            ratios = [
                f"{found['ours'] / found[name]:8.2f}" if name in found else "       -"
                for name in ("tensors", "sklearn", "skorch")
            ]
            print(
                f"{activation:5} {batch:5} {found['ours']:7.2f}    ",
                *ratios,
                describe_load(),
                flush=True,
            )
    plain_net.fit(rows, labels)
    found = measure_medians(
        {
            "skorch": lambda: plain_net.predict_proba(rows),
            "ours": lambda: private.predict_proba(rows),
        },
        rounds,
        _SECONDS,
    )
    print(f"predict_proba: {found['ours'] / found['skorch']:.2f} of skorch's time")


def compare_convolution(rounds: int, batches: Sequence[int], clock: Callable[[], float]) -> None:
    """Time private and plain steps of a convolution network in turns, on noise for images."""
    n = choose(20_000, 500)
    X, y = torch.rand(n, 784), torch.randint(10, (n,))
    for batch in batches:
        steps = {
            "plain": plain_step(SmallConvNet(), X, y, batch),
            "gathers": plain_step(SmallConvNet(), X, y, batch, torch.randperm(n)),
            "ours": private_step(SmallConvNet(), X, y, batch, Probe.for_shape((784,), 10)),
        }
        found = measure_medians(steps, rounds, _SECONDS, clock=clock)
        plain = found["plain"]
        print(
            f"batch {batch}: a plain step {1e3 * plain:.1f} ms, one that gathers "
            f"{found['gathers'] / plain:.2f} times that, a private one {found['ours'] / plain:.2f}",
            describe_load(),
            flush=True,
        )


def peak(competitor: str, shape: str, batch: int) -> float:
    """Return the MiB that training takes at its peak above data and imports, in a new process."""
    command = [sys.executable, "benchmarks/run.py", "speed/training_step", "--peak-of", competitor]
    command += ["--shapes", shape, "--batches", str(batch)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(done.stdout)


def print_own_peak(competitor: str, shape: str, batch: int) -> None:
    """Train for some steps and print how far this process's memory rose (Linux only)."""
    make = {"plain": plain, "ours": ours, "ghost": opacus("ghost")}[competitor]
    n, d, hidden, k = SHAPES[shape]
    small = make(*data(64, 4, 2), (3,), 2, 8)
    small()  # what is imported or set up once
    X, y = data(n, d, k)
    Path("/proc/self/clear_refs").write_text("5")  # forget earlier peaks
    before = _high_water_mark()
    step = make(X, y, hidden, k, batch)
    for _ in range(6):
        step()
    print((_high_water_mark() - before) / 1024)


def _high_water_mark() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def compare_memory(shapes: list[str], batches: list[int]) -> None:
    print(f"{'shape':14} {'batch':>5} {'plain MiB':>9} {'ours':>6} {'ghost':>6}   x plain")
    for name in shapes:
        for batch in batches:
            base = peak("plain", name, batch)
            ratios = [f"{peak(other, name, batch) / base:6.2f}" for other in ("ours", "ghost")]
            print(f"{name:14} {batch:5} {base:9.1f}", *ratios, flush=True)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--fits", action="store_true", help="compare whole fits instead of steps")
    parser.add_argument("--memory", action="store_true", help="compare peaks of memory instead")
    parser.add_argument(
        "--convolution", action="store_true", help="compare steps on images instead"
    )
    parser.add_argument("--short", action="store_true", help="some minutes instead of half an hour")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-opacus", action="store_true")
    parser.add_argument("--processor", action="store_true", help="processor time, not wall time")
    parser.add_argument("--shapes", nargs="*", default=choose(list(SHAPES), ["adult"]))
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rounds = options.rounds or choose(5 if options.short else 15, 1)
    if options.peak_of:
        print_own_peak(options.peak_of, options.shapes[0], options.batches[0])
        return
    if options.memory:
        compare_memory(options.shapes, options.batches)
        return
    if options.fits:
        whole_fits(rounds, tuple(options.batches))
        return
    clock = time.process_time if options.processor else time.perf_counter
    if options.convolution:
        compare_convolution(rounds, options.batches, clock)
        return
    with_opacus = not options.no_opacus and has_peer("opacus", "pip install 'skprivacy[peers]'")
    most = 3e8 if options.short else 4e9  # bytes of per-example gradients that Opacus may hold
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {describe_load()}")
    competitors = ("gathers", "ours", "relu", "ghost", "hooks")
    columns = " ".join(f"{name:>7}" for name in competitors)
    print(f"{'shape':14} {'batch':>5} {'plain ms':>9} {columns}   x plain")
    for name in options.shapes:
        n, d, hidden, k = SHAPES[name]
        X, y = data(n, d, k)
        for batch in options.batches:
            makers = {
                "plain": plain,
                "gathers": gathering,
                "ours": ours,
                "relu": partial(ours, activation="relu"),
            }
            if with_opacus:
                makers["ghost"] = opacus("ghost")
                weights = sum(p.numel() for p in network(d, hidden, k).parameters())
                if 4 * weights * batch < most:
                    makers["hooks"] = opacus("hooks")
            steps = {key: make(X, y, hidden, k, batch) for key, make in makers.items()}
            found = measure_medians(steps, rounds, _SECONDS, clock=clock)
            ratios = [f"{found[key] / found['plain']:7.2f}" if key in found else "      -"
                      for key in competitors]  # fmt: skip
            print(
                f"{name:14} {batch:5} {found['plain'] * 1e3:9.3f}",
                *ratios,
                describe_load(),
                flush=True,
            )
    if QUICK:  # every other comparison once
        whole_fits(1, BATCHES)
        compare_convolution(1, BATCHES, clock)


if __name__ == "__main__":
    with one_blas_thread():  # as every run of the engine has it
        main()
