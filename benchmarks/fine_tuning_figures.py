"""The figures of Yang, Gohari and Topcu (2022), in their conventions and in ours.

``python benchmarks/fine_tuning_figures.py {mnist,adult,location} [--private N] [--draws N]
[--epsilons E ...] [--encoder FILE]
[--plot FILE]`` prints, for each epsilon and mechanism, the utility loss and the accuracy of a
membership attack, and draws three figures: utility loss against epsilon, attack accuracy against
epsilon, and attack accuracy against utility loss.

The paper's column: noise for the largest distance between leave-one-out heads, L1 for logistic and
Laplace noise, L2 for Gaussian noise of the classic scale; delta 1e-5; an attacker with a network of
five ReLU layers that has seen 2,000 pairs of confidences and true label of a shadow model. Nothing
is guaranteed there. Ours: the proved sensitivity, every account that applies, and LiRA, online.

``--encoder`` is a file of ``save_model``; without one the encoder is trained: SimCLR on 40,000
digits, SCARF on 20,000 rows of Adult, none on Location-30. A linear head leaks little when records
are many, and a figure of such heads proves nothing: the default is a few hundred.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neural_network import MLPClassifier

from skprivacy import attacks
from skprivacy.datasets import fetch_adult, fetch_location30, fetch_mnist
from skprivacy.fine_tuning import ALMFineTuner, SoftmaxHead
from skprivacy.fine_tuning.head import Records, Task
from skprivacy.fine_tuning.sensitivity import sampled_on
from skprivacy.fine_tuning.whitening import with_constant
from skprivacy.metrics import utility_loss
from skprivacy.neural_network import SCARFEncoder, SimCLREncoder, load_model
from skprivacy.preprocessing import Bounded, SchemaTransformer

DELTA = 1e-5
EPSILONS = (0.01, 0.1, 1.0, 3.0, 10.0)
RIDGE = 0.1  # little: the head is to overfit
N_PAIRS = 100
PAPER = ("logistic", "laplace", "gaussian")
OURS = ("logistic", "laplace", "gaussian", "k_norm")


@dataclass(frozen=True)
class Data:
    """Features of a task: private ones, and others from the same source."""

    private: NDArray
    labels: NDArray
    others: NDArray
    truth: NDArray


def mnist(file: str | None, n: int) -> Data:
    """SimCLR features of n digits, and of as many and the test file."""
    X, y = fetch_mnist(subset="all", return_X_y=True)
    X = (X / 255).astype(np.float32)
    encoder = load_model(file) if file else SimCLREncoder(random_state=0, verbose=1).fit(X[:40_000])
    return split(encoder.transform(X[40_000:]), y[40_000:], n)


def adult(file: str | None, n: int) -> Data:
    """SCARF features of n rows of Adult, and of all that the encoder has not seen."""
    data = fetch_adult(as_frame=True)
    X = SchemaTransformer(data.schema).fit_transform(data.data)
    widths = [1 if isinstance(f, Bounded) else len(f.values) for f in data.schema.values()]
    order = np.random.default_rng(0).permutation(len(X))
    groups = np.repeat(np.arange(len(widths)), widths)
    encoder = (
        load_model(file)
        if file
        else SCARFEncoder(16, groups=groups, random_state=0, verbose=1).fit(X[order[:20_000]])
    )
    kept = order[20_000:]
    return split(encoder.transform(X[kept]), np.asarray(data.target)[kept], n)


def location(file: str | None, n: int) -> Data:
    """The bits of n records of Location-30, and of all others."""
    X, y = fetch_location30(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return split(np.asarray(X, dtype=float)[order], np.asarray(y)[order], n)


def split(X: NDArray, y: NDArray, n: int) -> Data:
    labels = np.unique(y, return_inverse=True)[1]
    return Data(X[:n], labels[:n], X[n:], labels[n:])


class PaperHead(ClassifierMixin, BaseEstimator):
    """The paper's handler, by its conventions: sampled sensitivity, textbook noise, no proof."""

    def __init__(
        self, noise: str = "logistic", epsilon: float = 1.0, n_classes: int = 2, seed: int = 0
    ) -> None:
        self.noise = noise
        self.epsilon = epsilon
        self.n_classes = n_classes
        self.seed = seed

    def fit(self, X: NDArray, y: NDArray) -> PaperHead:
        random = np.random.default_rng(self.seed)
        rows, counts = with_constant(X)
        records = Records(rows, counts.astype(float), y, self.n_classes)
        task = Task(rows.shape[1], self.n_classes, 1.0, DELTA, "replace_one", len(X))
        head = SoftmaxHead(RIDGE)
        moved = sampled_on(head, task, records, N_PAIRS, random)
        weights = head.statistic(task, records)
        if not math.isinf(self.epsilon):
            l1, l2 = moved.in_l1(len(weights)) / self.epsilon, moved.l2 / self.epsilon
            draw: dict[str, Callable[[], NDArray]] = {
                "logistic": lambda: random.logistic(0, l1, len(weights)),
                "laplace": lambda: random.laplace(0, l1, len(weights)),
                "gaussian": lambda: random.normal(
                    0, l2 * math.sqrt(2 * math.log(1.25 / DELTA)), len(weights)
                ),
            }
            weights = weights + draw[self.noise]()
        self.weights_, self.moved_ = head.weights(task, weights), moved
        self.classes_, self.n_features_in_ = np.arange(self.n_classes), X.shape[1]
        return self

    def predict_proba(self, X: NDArray) -> NDArray:
        return softmax(with_constant(X)[0] @ self.weights_, axis=1)

    def predict(self, X: NDArray) -> NDArray:
        return self.predict_proba(X).argmax(axis=1)


def paper_attack(target: Any, X: NDArray, y: NDArray) -> attacks.MembershipAttack:
    """Their attacker; the pool has models in pairs, so that there are two shadows, not one."""
    rows = slice(0, min(2_000, len(X)))
    network = MLPClassifier((64,) * 5, max_iter=200, random_state=0)
    attack = attacks.ShokriAttack(
        target, n_shadows=2, per_class=False, attack_model=network, random_state=0
    )
    return attack.fit(X[rows], y[rows])


def our_attack(target: Any, X: NDArray, y: NDArray) -> attacks.MembershipAttack:
    return attacks.LiRA(target, n_shadows=16, online=True, random_state=0).fit(X, y)


def measured(make: Callable[[int], Any], attack: Callable, data: Data, plain: Any, draws: int):
    """Return the utility loss and the accuracy of the attack, means over draws of the noise."""
    n, accuracies, predictions = len(data.private), [], []
    X = np.concatenate([data.private, data.others[:n]])
    y = np.concatenate([data.labels, data.truth[:n]])
    for seed in range(draws):
        target = make(seed).fit(data.private, data.labels)
        predictions.append(target.predict(data.others[n:]))
        result = attack(target, X, y).evaluate(X[:n], y[:n], X[n:], y[n:])
        accuracies.append(accuracy(result.scores_in, result.scores_out))
    loss = utility_loss(data.truth[n:], plain.predict(data.others[n:]), predictions)
    return loss.loss, float(np.mean(accuracies))


def accuracy(scores_in: NDArray, scores_out: NDArray) -> float:
    """Return the accuracy of a threshold that was chosen on the other half of the records.

    The best threshold on the same records would show an attack where there is none.
    """
    found = []
    for half in (0, 1):
        chosen_in, chosen_out = np.sort(scores_in[half::2]), np.sort(scores_out[half::2])
        at = np.unique(np.concatenate([chosen_in, chosen_out]))
        gain = np.searchsorted(chosen_out, at) / len(chosen_out)
        gain -= np.searchsorted(chosen_in, at) / len(chosen_in)
        threshold = at[gain.argmax()]
        found.append((scores_in[1 - half :: 2] >= threshold).mean())
        found.append((scores_out[1 - half :: 2] < threshold).mean())
    return float(np.mean(found))


def columns(data: Data) -> dict[str, tuple]:
    """Return the mechanisms of each column, how to make a model of them, and its attack."""
    n_classes = int(max(data.labels.max(), data.truth.max())) + 1

    def paper(noise: str, epsilon: float) -> Callable[[int], Any]:
        return lambda seed: PaperHead(noise, epsilon, n_classes, seed)

    def ours(noise: str, epsilon: float) -> Callable[[int], Any]:
        head = SoftmaxHead(RIDGE) if math.isinf(epsilon) else "softmax"
        return lambda seed: ALMFineTuner(
            head=head, mechanism=noise, epsilon=epsilon, delta=DELTA, classes=range(n_classes)
        )

    return {"paper": (PAPER, paper, paper_attack), "ours": (OURS, ours, our_attack)}


def draw_figures(rows: list[tuple[str, str, float, float, float]], path: Path) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), squeeze=False)
    for line, column in zip(axes, ("paper", "ours"), strict=True):
        for noise in OURS:
            kept = [r[2:] for r in rows if r[:2] == (column, noise)]
            if not kept:
                continue
            epsilon, loss, told = np.array(kept).T
            pairs = (epsilon, loss), (epsilon, told), (loss, told)
            for axis, (x, values) in zip(line, pairs, strict=True):
                axis.plot(x, values, marker="o", label=noise)
        labels = ("epsilon", "utility loss"), ("epsilon", "attack"), ("utility loss", "attack")
        for axis, (across, up) in zip(line, labels, strict=True):
            axis.set(xlabel=across, ylabel=up, title=column)
            axis.set_xscale("log" if across == "epsilon" else "linear")
        line[0].legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=["mnist", "adult", "location"])
    parser.add_argument("--private", type=int, default=400)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--encoder")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data = {"mnist": mnist, "adult": adult, "location": location}[args.data](
        args.encoder, args.private
    )
    rows = []
    for column, (mechanisms, make, attack) in columns(data).items():
        plain = make("logistic", math.inf)(0).fit(data.private, data.labels)
        if column == "paper":
            moved = plain.moved_
            print(f"sampled L1 {moved.l1:.3g}, L2 {moved.l2:.3g}, ratio {moved.l1 / moved.l2:.2f}")
        _, told = measured(make("logistic", math.inf), attack, data, plain, 1)
        score = plain.score(data.others, data.truth)
        print(
            f"{column:6} no noise   epsilon   inf  test {score:.3f} attack {told:.3f}", flush=True
        )
        for noise in mechanisms:
            for epsilon in args.epsilons:
                loss, told = measured(make(noise, epsilon), attack, data, plain, args.draws)
                rows.append((column, noise, epsilon, loss, told))
                print(f"{column:6} {noise:9}  epsilon {epsilon:5g}  utility loss {loss:.3f} "
                      f"attack {told:.3f}", flush=True)  # fmt: skip
    if args.plot:
        draw_figures(rows, args.plot)


if __name__ == "__main__":
    main()
