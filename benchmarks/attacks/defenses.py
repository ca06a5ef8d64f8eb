"""Defences without a proof, against attackers who know them and attackers who do not.

Location-30 with 1,600 members and 1,600 others, a network of 128 tanh units. Prints for each
defence the test accuracy, and the area under the curve (and the share of members found at 1% of
false positives) of three attackers. The first knows of no defence: its shadow models have none. The
second trains shadow models that are defended alike (LiRA, online). The third sees labels alone. No
defence is expected to survive the second.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from skorch import NeuralNetClassifier
from torch import nn

from benchmarks.shared.data import fetch_location30
from benchmarks.shared.quick import choose, make_parser
from skprivacy import attacks
from skprivacy.attacks import LabeledRecords
from skprivacy.defenses import CoarsenedClassifier, MemGuardClassifier
from skprivacy.neural_network import DPSGDClassifier

MEMBERS = choose(1_600, 150)
EPOCHS = choose(60, 5)
SHOWN: dict[str, Callable[[Any], Any]] = {
    "temperature 5": lambda net: CoarsenedClassifier(net, temperature=5.0),
    "temperature 20": lambda net: CoarsenedClassifier(net, temperature=20.0),
    "top 3": lambda net: CoarsenedClassifier(net, top_k=3),
    "top 1": lambda net: CoarsenedClassifier(net, top_k=1),
    "one decimal": lambda net: CoarsenedClassifier(net, decimals=1),
    "label alone": lambda net: CoarsenedClassifier(net, decimals=0),
}


class Perceptron(nn.Module):
    """The network of the other rows, in torch."""

    def __init__(self, n_features: int, n_classes: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, 128), nn.Tanh(), nn.Dropout(dropout), nn.Linear(128, n_classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.float())


def make_perceptron(X: NDArray, y: NDArray, dropout: float = 0.0, smoothing: float = 0.0) -> Any:
    """Return a network with dropout or label smoothing."""
    return NeuralNetClassifier(
        Perceptron, criterion=nn.CrossEntropyLoss, module__n_features=X.shape[1],
        module__n_classes=int(y.max()) + 1, module__dropout=dropout,
        criterion__label_smoothing=smoothing, optimizer=torch.optim.Adam, lr=1e-3, batch_size=200,
        max_epochs=EPOCHS, train_split=None, verbose=0, classes=np.unique(y),
    )  # fmt: skip


def defend_pool(pool: Any, defence: Callable[[Any], Any]) -> Any:
    """Return the pool with every shadow model behind a defence without training."""
    other = copy.copy(pool)
    other.estimators_ = [put_behind(defence, model) for model in pool.estimators_]
    return other


def put_behind(defence: Callable[[Any], Any], model: Any) -> Any:
    """Return a trained model behind a defence without training."""
    shown = defence(MLPClassifier())
    shown.estimator_, shown.classes_ = model, model.classes_
    return shown


def print_row(name: str, target: Any, bare: Any, aware: Any, X: NDArray, y: NDArray) -> None:
    """Attack a target in three ways, and print a row of the table."""
    member = np.arange(len(X)) < MEMBERS
    found = [f"{name:18}", f"{target.score(X[~member], y[~member]):.3f}"]
    records = LabeledRecords(X, y)
    for attack in (
        attacks.LiRA(pool=bare, online=True),
        attacks.LiRA(pool=aware, online=True),
        attacks.LabelOnlyAttack(method="boundary"),
    ):
        on_labels = isinstance(attack, attacks.LabelOnlyAttack)
        # MemGuard keeps every label: there is no need to compute its noise for each query.
        memguard = isinstance(target, MemGuardClassifier)
        attack.set_params(target=target.estimator_ if memguard and on_labels else target)
        result = attack.fit(records).evaluate(records[member], records[~member])
        found.append(f"{result.auc:.3f} ({result.tpr_at_fpr(0.01).tpr:.3f})")
    print("  ".join(found), flush=True)


def is_wanted(name: str, only: list[str] | None) -> bool:
    return only is None or name in only


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--shadows", type=int, default=choose(16, 4))
    parser.add_argument("--only", nargs="+", metavar="NAME")
    args = parser.parse_args()
    n_shadows = args.shadows
    warnings.simplefilter("ignore")
    X, y = fetch_location30(return_X_y=True)
    X, y = np.asarray(X, dtype=np.float32), np.unique(y, return_inverse=True)[1]
    order = np.random.default_rng(0).permutation(len(X))[: 2 * MEMBERS]
    X, y = X[order], y[order]
    inside = slice(0, MEMBERS)
    net = MLPClassifier((128,), activation="tanh", alpha=0.0, max_iter=EPOCHS, random_state=0)
    bare = attacks.ShadowPool(net, n_shadows=n_shadows, random_state=0).fit(X, y)
    target = clone(net).fit(X[inside], y[inside])
    print("defence             test   no defence known  defended alike  labels alone")
    if is_wanted("none", args.only):
        print_row("none", target, bare, bare, X, y)
    for name, defence in SHOWN.items():
        if is_wanted(name, args.only):
            print_row(name, put_behind(defence, target), bare, defend_pool(bare, defence), X, y)
    retrained = {
        "MemGuard": MemGuardClassifier(net, random_state=0),
        "L2, alpha 1": clone(net).set_params(alpha=1.0),
        "early stopping": clone(net).set_params(early_stopping=True, n_iter_no_change=2),
        "dropout 0.5": make_perceptron(X, y, dropout=0.5),
        "label smoothing 0.3": make_perceptron(X, y, smoothing=0.3),
        "DP-SGD, epsilon 8": DPSGDClassifier(
            epsilon=8.0, delta=1e-5, classes=np.unique(y), hidden_layer_sizes=()
        ),
    }
    for name, model in retrained.items():
        if not is_wanted(name, args.only):
            continue
        torch.manual_seed(0)
        alike = attacks.ShadowPool(model, n_shadows=n_shadows, random_state=0).fit(X, y)
        print_row(name, clone(model).fit(X[inside], y[inside]), bare, alike, X, y)


if __name__ == "__main__":
    main()
