"""The figures of Yang, Gohari and Topcu (2022), by their conventions and by ours.

Prints, for each mechanism and epsilon, the utility loss and the accuracy of a membership attack,
and the epsilon and utility loss at which that accuracy falls to .52. ``--plot`` draws both against
epsilon, and one against the other.

**The paper's column**: noise for the largest distance between leave-one-out heads, in L1 for
logistic and Laplace noise, in L2 for Gaussian noise of the classic scale; delta 1e-5. Its attacker
has a network of five ReLU layers, which has seen 2,000 pairs of confidences and true label: of
1,000 records, or of all if there are fewer, and two shadow models. Nothing is guaranteed there.
**Ours**: the proved sensitivity, analytic calibration, every account that applies, three more
heads, and the strongest attack with shadow models that have the same noise. Both have the same
features, records and unprotected head, a softmax regression with hardly any penalty; the utility
loss of each mechanism is what it costs beside that head.

The features are SimCLR's, learned in two epochs from 40,000 digits without labels; SCARF's, from
20,000 rows of Adult without labels; the 446 bits themselves of Location-30. Each seed draws the
members anew, half of ``2 * N`` records, and the noise; others of the source evaluate the utility.
``--encoder`` names a file that keeps the encoder, ``--rows`` one that keeps the results: its rows
are not measured again. A head leaks little where records are many, so look at N = 300 too.
"""

from __future__ import annotations

import copy
import csv
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.neural_network import MLPClassifier

from benchmarks.shared.data import fetch_adult, fetch_location30, fetch_mnist
from benchmarks.shared.fine_tuning_plot import DELTA, Row, draw_figures, read_rows
from benchmarks.shared.quick import choose, make_parser, results_folder
from skprivacy import attacks, load_model, save_model
from skprivacy.fine_tuning import ALMFineTuner, HalfWhitening, SoftmaxHead
from skprivacy.fine_tuning.features import with_constant
from skprivacy.fine_tuning.head import HeadInput, Task
from skprivacy.fine_tuning.leave_one_out import leave_one_out
from skprivacy.metrics.utility import utility_loss
from skprivacy.neural_network import SCARFEncoder, SimCLREncoder
from skprivacy.preprocessing import BoundedColumn, SchemaTransformer

EPSILONS = choose((0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0), (1.0, 10.0))
N_ENCODED, N_ROWS, EPOCHS = choose((40_000, 20_000, {}), (300, 300, {"epochs": 1}))
RIDGE = 0.1  # little: the unprotected head is to overfit
N_PAIRS = choose(100, 5)
N_SEEN = choose(1_000, 100)  # records that two shadow models show the paper's attacker: 2,000 pairs
FALLEN = 0.52
PAPER = ("logistic", "laplace", "gaussian")
TITLES = {
    "adult": "Adult, SCARF features",
    "location": "Location-30",
    "mnist": "MNIST, SimCLR features",
}
OURS: dict[str, dict[str, Any]] = {
    "logistic": {"head": "softmax", "mechanism": "logistic"},
    "laplace": {"head": "softmax", "mechanism": "laplace"},
    "gaussian": {"head": "softmax", "mechanism": "gaussian"},
    "K-norm": {"head": "softmax", "mechanism": "k_norm"},
    "gradient": {"head": "gradient"},
    "prototypes": {"head": "prototypes"},
    "least squares": {"head": "least_squares"},
}


@dataclass(frozen=True)
class Data:
    """Features of the records that members are drawn from, and of others of the same source."""

    X: NDArray
    y: NDArray
    others: NDArray
    truth: NDArray

    @property
    def n_classes(self) -> int:
        return int(max(self.y.max(), self.truth.max())) + 1


# ---------------------------------------------------------------- data


def mnist(file: Path | None, n: int) -> Data:
    """SimCLR features of ``2 * n`` digits, and of all that the encoder has not seen."""
    X, y = fetch_mnist(subset="all", return_X_y=True)
    X = (X / 255).astype(np.float32)
    encoder = SimCLREncoder(epochs=choose(2, 1), random_state=0)
    return encode_records(encoder, X[:N_ENCODED], X[N_ENCODED:], y[N_ENCODED:], file, n)


def adult(file: Path | None, n: int) -> Data:
    """SCARF features of ``2 * n`` rows of Adult, and of all that the encoder has not seen."""
    data = fetch_adult(as_frame=True)
    X = SchemaTransformer(data.schema).fit_transform(data.data)
    widths = [1 if isinstance(f, BoundedColumn) else len(f.values) for f in data.schema.values()]
    order = np.random.default_rng(0).permutation(len(X))
    encoder = SCARFEncoder(
        16, column_groups=np.repeat(np.arange(len(widths)), widths), random_state=0, **EPOCHS
    )
    kept = order[N_ROWS:]
    return encode_records(
        encoder, X[order[:N_ROWS]], X[kept], np.asarray(data.target)[kept], file, n
    )


def location(file: Path | None, n: int) -> Data:
    """The bits of ``2 * n`` records of Location-30, and of all others."""
    X, y = fetch_location30(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return split(np.asarray(X, dtype=float)[order], np.asarray(y)[order], n)


def encode_records(
    encoder: Any, public: NDArray, X: NDArray, y: NDArray, file: Path | None, n: int
) -> Data:
    """Encode and half-whiten records by public ones; the file's encoder is used if there is one."""
    if file is not None and file.exists():
        encoder = load_model(file)
    else:
        encoder.fit(public)
        if file is not None:
            save_model(encoder, file)
    whitening = HalfWhitening().fit(encoder.transform(public))
    return split(whitening.transform(encoder.transform(X)), y, n)


def split(X: NDArray, y: NDArray, n: int) -> Data:
    labels = np.unique(y, return_inverse=True)[1]
    return Data(X[: 2 * n], labels[: 2 * n], X[2 * n :], labels[2 * n :])


# ---------------------------------------------------------------- the paper's handler


class PaperHead(ClassifierMixin, BaseEstimator):
    """Softmax regression with noised copies as in the paper, without a proof."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes

    def fit(self, X: NDArray, y: NDArray) -> PaperHead:
        head, task, records = self.parts(X, y)
        self.weights_ = head.weights(task, head.statistic(task, records))
        self.classes_, self.n_features_in_ = np.arange(self.n_classes), X.shape[1]
        return self

    def parts(self, X: NDArray, y: NDArray) -> tuple[SoftmaxHead, Task, HeadInput]:
        rows, counts = with_constant(X)
        task = Task(rows.shape[1], self.n_classes, 1.0, DELTA, "replace_one", len(X))
        return SoftmaxHead(RIDGE), task, HeadInput(rows, counts * 1.0, y, self.n_classes)

    def distances(self, X: NDArray, y: NDArray) -> NDArray:
        """Return the differences of the weights of pairs of leave-one-out heads (Algorithm 2)."""
        head, task, records = self.parts(X, y)
        random = np.random.default_rng(0)
        pairs = [random.choice(len(X), 2, replace=False) for _ in range(N_PAIRS)]
        found = leave_one_out(head, task, records, np.concatenate(pairs))
        weights = np.array([head.weights(task, one) for one in found])
        return weights[::2] - weights[1::2]

    def noised(self, noise: str, epsilon: float, l1: float, l2: float, seed: int) -> PaperHead:
        random, size = np.random.default_rng(seed), self.weights_.shape
        classic = l2 / epsilon * math.sqrt(2 * math.log(1.25 / DELTA))
        draw: dict[str, Callable[[], NDArray]] = {
            "logistic": lambda: random.logistic(0, l1 / epsilon, size),
            "laplace": lambda: random.laplace(0, l1 / epsilon, size),
            "gaussian": lambda: random.normal(0, classic, size),
        }
        other = copy.copy(self)
        other.weights_ = self.weights_ + draw[noise]()
        return other

    def predict_proba(self, X: NDArray) -> NDArray:
        return softmax(with_constant(X)[0] @ self.weights_, axis=1)

    def predict(self, X: NDArray) -> NDArray:
        return self.predict_proba(X).argmax(axis=1)


# ---------------------------------------------------------------- columns

Halves = list[NDArray]  # the members of each seed
Cell = tuple[list[Any], Any]  # the targets of the seeds, and the attack on all of them
Column = Callable[[str, float], Cell]


def paper(data: Data, halves: Halves, plain: list[PaperHead]) -> Column:
    """Return the paper's cells: all are noised copies of one training of each head."""
    moved = PaperHead(data.n_classes).distances(data.X[halves[0]], data.y[halves[0]])
    l1, l2 = np.abs(moved).sum(axis=(1, 2)).max(), np.linalg.norm(moved, axis=(1, 2)).max()
    print(f"sampled distances of whole heads of {moved[0].size} numbers: L1 {l1:.3g}, L2 {l2:.3g}, "
          f"ratio {l1 / l2:.2f}")  # fmt: skip
    spectral = np.linalg.norm(moved, 2, axis=(1, 2)).max()
    for name, order in (("columns", 1), ("rows", np.inf)):
        induced = np.linalg.norm(moved, order, axis=(1, 2)).max()
        print(f"as matrices, by {name}: {induced:.3g}, spectral norm {spectral:.3g}, ratio "
              f"{induced / spectral:.2f}", flush=True)  # fmt: skip
    rows = slice(0, N_SEEN)
    pool = attacks.ShadowPool(PaperHead(data.n_classes), n_shadows=2, random_state=0)
    pool.fit(data.X, data.y)

    def cell(noise: str, epsilon: float) -> Cell:
        def noised(models: Sequence[PaperHead], first: int) -> list[PaperHead]:
            if math.isinf(epsilon):
                return list(models)
            return [m.noised(noise, epsilon, l1, l2, first + i) for i, m in enumerate(models)]

        targets, shown = noised(plain, 0), copy.copy(pool)
        shown.estimators_ = noised(pool.estimators_, len(plain))
        network = MLPClassifier((64,) * 5, max_iter=choose(200, 5), random_state=0)
        attack = attacks.ShokriAttack(targets[0], per_class=False, attack_model=network, pool=shown)
        return targets, attack.fit(attacks.LabeledRecords(data.X[rows], data.y[rows]))

    return cell


def ours(data: Data, halves: Halves, n_shadows: int) -> Column:
    """Return our cells: each trains its own heads, whose penalty is tied to the noise."""

    def cell(name: str, epsilon: float) -> Cell:
        model = ALMFineTuner(**OURS[name], epsilon=epsilon, delta=DELTA,
                             classes=range(data.n_classes))  # fmt: skip
        if math.isinf(epsilon):
            model.set_params(head=SoftmaxHead(RIDGE))
        targets = [clone(model).fit(data.X[half], data.y[half]) for half in halves]
        pool = attacks.ShadowPool(model, n_shadows=n_shadows, random_state=0).fit(data.X, data.y)
        attack = attacks.StrongestAttack(targets[0], online=True, pool=pool)
        return targets, attack.fit(attacks.LabeledRecords(data.X, data.y))

    return cell


# ---------------------------------------------------------------- what is measured


def measure_cell(cell: Cell, data: Data, halves: Halves, plain: list[PaperHead]) -> NDArray:
    """Return the utility loss and the accuracy of the attack with each seed, (n_seeds, 2)."""
    found = []
    for target, half, unprotected in zip(cell[0], halves, plain, strict=True):
        loss = utility_loss(
            data.truth, unprotected.predict(data.others), target.predict(data.others)
        )
        found.append((loss.loss, accuracy(score_target(cell[1], target, data), half)))
    return np.array(found)


def score_target(attack: Any, target: Any, data: Data) -> NDArray:
    """Return the scores of an attack on another target, with the same shadow models."""
    records = attacks.LabeledRecords(data.X, data.y)
    if hasattr(attack, "attack_"):  # it was chosen on the shadow models, which are not trained anew
        chosen = attack.attack_.set_params(target=target, pool=attack.pool_)
        return np.asarray(chosen.fit(records).decision_function(records))
    return np.asarray(attack.set_params(target=target).decision_function(records))


def accuracy(scores: NDArray, half: NDArray) -> float:
    """Return the accuracy of a threshold that was chosen on the other half of the records.

    The best threshold on the same records would show an attack where there is none.
    """
    found = []
    scores_in, scores_out = scores[half], np.delete(scores, half)
    for part in (0, 1):
        chosen_in, chosen_out = np.sort(scores_in[part::2]), np.sort(scores_out[part::2])
        at = np.unique(np.concatenate([chosen_in, chosen_out]))
        gain = np.searchsorted(chosen_out, at) / len(chosen_out)
        gain -= np.searchsorted(chosen_in, at) / len(chosen_in)
        threshold = at[gain.argmax()]
        found.append((scores_in[1 - part :: 2] >= threshold).mean())
        found.append((scores_out[1 - part :: 2] < threshold).mean())
    return float(np.mean(found))


def make_row(column: str, mechanism: str, epsilon: float, found: NDArray) -> Row:
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / math.sqrt(len(found))
    return Row(column, mechanism, epsilon, mean[0], error[0], mean[1], error[1])


def find_fall(rows: list[Row]) -> tuple[float, float] | None:
    """Return epsilon and utility loss where the attack falls to .52; None if it does nowhere.

    Between two epsilons, straight lines over the logarithm; infinity and the last loss if it never
    was above.
    """
    rows = sorted(rows, key=lambda row: row.epsilon)
    above = next((i for i, row in enumerate(rows) if row.attack > FALLEN), len(rows))
    if above == 0:
        return None
    below = rows[above - 1]
    if above == len(rows):
        return math.inf, below.loss
    share = (FALLEN - below.attack) / (rows[above].attack - below.attack)
    epsilon = below.epsilon * (rows[above].epsilon / below.epsilon) ** share
    return epsilon, below.loss + share * (rows[above].loss - below.loss)


# ---------------------------------------------------------------- the program


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "data", nargs="?", default="location", choices=["mnist", "adult", "location"]
    )
    parser.add_argument("--private", type=int, default=choose(500, 60))
    parser.add_argument("--seeds", type=int, default=choose(20, 2))
    parser.add_argument("--shadows", type=int, default=choose(16, 4))
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--encoder", type=Path)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--plot", type=Path, default=results_folder() / "fine_tuning.png")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data = {"mnist": mnist, "adult": adult, "location": location}[args.data](
        args.encoder, args.private
    )
    random = np.random.default_rng(1)
    halves = [random.permutation(len(data.X))[: args.private] for _ in range(args.seeds)]
    plain = [PaperHead(data.n_classes).fit(data.X[half], data.y[half]) for half in halves]
    score = np.mean([model.score(data.others, data.truth) for model in plain])
    print(f"{args.data}, {args.private} members: unprotected test accuracy {score:.3f}", flush=True)
    rows = read_rows(args.rows)
    for column, names in (("paper", PAPER), ("ours", tuple(OURS))):
        if column == "paper":
            cells = paper(data, halves, plain)
        else:
            cells = ours(data, halves, args.shadows)
        wanted = [("gaussian", math.inf), *((n, e) for n in names for e in args.epsilons)]
        for name, epsilon in wanted:
            if any(row[:3] == (column, name, epsilon) for row in rows):
                continue
            row = make_row(
                column, name, epsilon, measure_cell(cells(name, epsilon), data, halves, plain)
            )
            rows.append(row)
            print(f"{column:5} {name:13} epsilon {epsilon:5g}  utility loss {row.loss:.3f} "
                  f"+- {row.loss_error:.3f}  attack {row.attack:.3f} +- {row.attack_error:.3f}",
                  flush=True)  # fmt: skip
            if args.rows:
                with args.rows.open("a", newline="") as lines:
                    csv.writer(lines).writerow(row)
        for name in names:
            report(column, name, rows)
    if args.plot:
        draw_figures(rows, f"{TITLES[args.data]}, {args.private:,} private records", args.plot)


def report(column: str, name: str, rows: list[Row]) -> None:
    """Print where the attack on one mechanism falls to .52."""
    kept = [r for r in rows if r[:2] == (column, name) and not math.isinf(r.epsilon)]
    found = find_fall(kept)
    if found is None:
        said = f"is above {FALLEN} everywhere"
    elif math.isinf(found[0]):
        said = f"is never above {FALLEN}; utility loss {found[1]:.3f} at the largest epsilon"
    else:
        said = f"falls to {FALLEN} at epsilon {found[0]:.3g}, utility loss {found[1]:.3f}"
    print(f"{column:5} {name:13} attack {said}", flush=True)


if __name__ == "__main__":
    main()
