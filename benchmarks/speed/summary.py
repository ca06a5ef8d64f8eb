"""Times of steps, fits, epsilons and shadow models beside a peer's, in one table: ``make bench``.

Competitors take turns, in processor time over all threads, so that a busy machine slows all of them
alike; the load of the machine stands beside each row. Below 1, ours is faster. Steps and fits are
compared with plain training, which has no privacy: 1 is the least cost of privacy. The benchmarks
``speed/training_step``, ``speed/accounting``, ``attacks/membership`` and ``speed/gpu`` compare at
length. A full run takes some minutes.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn.neural_network import MLPClassifier

from benchmarks.shared.quick import choose, has_peer, make_parser
from benchmarks.shared.timing import describe_load, measure_medians
from benchmarks.speed import accounting
from benchmarks.speed import training_step as dpsgd
from skprivacy._stacked import train_stacked
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.neural_network._gradients.perceptron import make_mlp

Ways = dict[str, Callable[[], object]]
SHAPES = choose(
    (("adult", 256), ("adult", 1024), ("purchase", 256), ("texas", 256)), (("adult", 256),)
)
EPOCHS, N_SHADOWS = choose((10, 16), (1, 2))


def steps() -> dict[str, Ways]:
    """Return a private step, with either activation, beside a plain one on random batches."""
    found: dict[str, Ways] = {}
    for name, batch in SHAPES:
        n, d, hidden, k = dpsgd.SHAPES[name]
        X, y = dpsgd.data(n, d, k)
        for activation in ("tanh", "relu"):
            found[f"step, {name}, {activation}, batch {batch}"] = {
                "ours": dpsgd.ours(X, y, hidden, k, batch, activation),
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
                module=make_mlp(d, hidden, k, activation, np.random.RandomState(0)),
                epochs=EPOCHS, batch_size=batch, classes=range(k), device="cpu",
            )  # fmt: skip
            theirs = MLPClassifier(
                hidden, activation=activation, solver="sgd", batch_size=batch, tol=0.0,
                max_iter=EPOCHS, learning_rate_init=0.01, n_iter_no_change=EPOCHS,
            )  # fmt: skip
            found[f"fit, adult, {activation}, batch {batch}"] = {
                "ours": partial(ours.fit, rows, labels),
                "torch, gathered": dpsgd.tensor_loop(X, y, hidden, k, batch, activation),
                "scikit-learn": partial(theirs.fit, rows, labels),
            }
    return found


def epsilons() -> dict[str, Ways]:
    """Return the computation of epsilon, beside a tight and a Renyi accountant."""
    if not has_peer("dp_accounting", "pip install 'skprivacy[peers]'"):
        return {}
    return {
        f"epsilon, T={T:,}": {
            "ours": partial(accounting.ours_epsilon, 0.01, 1.0, T),
            "dp-accounting, Renyi": partial(_renyi, 0.01, 1.0, T),
            "dp-accounting, PLD": partial(accounting.dp_epsilon, 0.01, 1.0, T),
        }
        for T in choose((10_000, 200_000), (1_000,))
    }


def _renyi(q: float, z: float, T: int) -> float:
    import dp_accounting

    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(accounting.dp_event(q, z, T))
    return accountant.get_epsilon(accounting.DELTA)


def shadows() -> dict[str, Ways]:
    """Return shadow networks, trained together and one after another."""
    X, y = (values.numpy() for values in dpsgd.data(5000, 105, 2))
    net = MLPClassifier((64, 32), batch_size=256, max_iter=EPOCHS, n_iter_no_change=EPOCHS)
    rows = [np.arange(i, 5000, 2) for i in range(2)] * (N_SHADOWS // 2)
    return {
        f"{N_SHADOWS} shadow perceptrons": {
            "ours": lambda: train_stacked(net, X, y, rows, range(N_SHADOWS)),
            "scikit-learn": lambda: [net.fit(X[part], y[part]) for part in rows],
        }
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=choose(7, 1))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; processor time")
    print(f"{'what':36} {'ours ms':>9}   of a peer's time")
    for compared in (steps, fits, epsilons, shadows):
        for what, ways in compared().items():
            found = measure_medians(
                ways, options.rounds, choose(0.03, 0.0), clock=time.process_time
            )
            ours = found.pop("ours")
            ratios = "  ".join(f"{ours / took:5.2f} {peer}" for peer, took in found.items())
            print(f"{what:36} {ours * 1e3:9.2f}   {ratios}   [{describe_load()}]", flush=True)


if __name__ == "__main__":
    main()
