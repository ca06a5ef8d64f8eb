"""One table of what takes how long beside a peer, and the load of the machine: ``make bench``.

Everybody takes turns, in processor time over all threads, so that a busy machine slows all alike;
the load says how busy it was. Below 1, ours is faster. Steps and fits are beside plain training,
which protects nobody: 1 is what privacy costs at best. ``dpsgd.py``, ``accounting.py``,
``attacks.py`` and ``gpu.py`` compare at length.

``python benchmarks/bench.py [--rounds 7]``, some minutes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial

import accounting
import dp_accounting
import dpsgd
import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from skprivacy._stacked import train_stacked
from skprivacy.neural_network import DPSGDClassifier

Ways = dict[str, Callable[[], object]]


def steps() -> dict[str, Ways]:
    """Return a private step, with either activation, beside a plain one on random batches."""
    found: dict[str, Ways] = {}
    for name, batch in (("adult", 256), ("adult", 1024), ("purchase", 256), ("texas", 256)):
        n, d, hidden, k = dpsgd.SHAPES[name]
        X, y = dpsgd.data(n, d, k)
        for activation in ("tanh", "relu"):
            found[f"step, {name}, {activation}, batch {batch}"] = {
                "ours": dpsgd.are_built_in(X, y, hidden, k, batch, activation),
                "torch, gathered": dpsgd.gathering(X, y, hidden, k, batch),
                "torch, slices": dpsgd.plain(X, y, hidden, k, batch),
            }
    return found


def fits() -> dict[str, Ways]:
    """Return whole fits of Adult's shape."""
    n, d, hidden, k = dpsgd.SHAPES["adult"]
    X, y = dpsgd.data(n, d, k)
    rows, labels = X.numpy(), y.numpy()
    found: dict[str, Ways] = {}
    for activation in ("tanh", "relu"):
        for batch in (256, 1024):
            ours = DPSGDClassifier(
                hidden_layer_sizes=hidden, activation=activation, epochs=10, batch_size=batch,
                classes=range(k), device="cpu",
            )  # fmt: skip
            theirs = MLPClassifier(
                hidden, activation=activation, solver="sgd", batch_size=batch, tol=0.0,
                max_iter=10, learning_rate_init=0.01, n_iter_no_change=10,
            )  # fmt: skip
            found[f"fit, adult, {activation}, batch {batch}"] = {
                "ours": partial(ours.fit, rows, labels),
                "torch, gathered": dpsgd.tensor_loop(X, y, hidden, k, batch, activation),
                "scikit-learn": partial(theirs.fit, rows, labels),
            }
    return found


def epsilons() -> dict[str, Ways]:
    """Return what epsilon takes: beside tight peers, and beside a Renyi accountant."""
    return {
        f"epsilon, T={T:,}": {
            "ours": partial(accounting.ours_epsilon, 0.01, 1.0, T),
            "dp-accounting, Renyi": partial(_renyi, 0.01, 1.0, T),
            "dp-accounting, PLD": partial(accounting.dp_epsilon, 0.01, 1.0, T),
        }
        for T in (10_000, 200_000)
    }


def _renyi(q: float, z: float, T: int) -> float:
    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(accounting.dp_event(q, z, T))
    return accountant.get_epsilon(accounting.DELTA)


def shadows() -> dict[str, Ways]:
    """Return 16 shadow networks, together and one after another."""
    X, y = (values.numpy() for values in dpsgd.data(5000, 105, 2))
    net = MLPClassifier((64, 32), batch_size=256, max_iter=10, n_iter_no_change=10)
    rows = [np.arange(i, 5000, 2) for i in range(2)] * 8
    return {
        "16 shadow perceptrons": {
            "ours": lambda: train_stacked(net, X, y, rows, range(16)),
            "scikit-learn": lambda: [net.fit(X[part], y[part]) for part in rows],
        }
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; processor time")
    print(f"{'what':36} {'ours ms':>9}   of a peer's time")
    for compared in (steps, fits, epsilons, shadows):
        for what, ways in compared().items():
            found = dpsgd.medians(ways, options.rounds, clock=time.process_time)
            ours = found.pop("ours")
            ratios = "  ".join(f"{ours / took:5.2f} {peer}" for peer, took in found.items())
            print(f"{what:36} {ours * 1e3:9.2f}   {ratios}   [{dpsgd.load()}]", flush=True)


if __name__ == "__main__":
    main()
