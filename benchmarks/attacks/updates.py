"""Inference of members, attributes and shares of groups from model updates of a federation.

membership  members among the parties' records, by the attacker's view of the federation
private     the same with clipping and noise, against the guarantee
attribute   Adult: occupation of a party's records
property    Adult: the share of women in a party; Location-30: the share of a place

Four parties with 300 records each train a
perceptron by federated averaging: 5 rounds, each one local pass in batches of 30.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from torch import nn

from benchmarks.shared.data import fetch_adult, fetch_location30
from benchmarks.shared.quick import choose, make_parser
from skprivacy.accounting import GaussianEvent, PrivacyGuarantee, RepeatedEvent
from skprivacy.attacks import (
    AttackResult,
    AttributeInference,
    LabeledRecords,
    LossThreshold,
    PropertyInference,
    Updates,
    UpdatesMembership,
)

PARTIES, N, ROUNDS, BATCH, GROUPS = choose((4, 300, 5, 30, 5), (2, 60, 2, 30, 2))
REFERENCE = choose(600, 100)  # records of the attacker
RATES = {"Adult": 0.3, "Location-30": 0.3}
Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def adult(seed: int) -> Table:
    frame, y = fetch_adult(return_X_y=True, as_frame=True)
    rows = np.random.default_rng(seed).permutation(len(y))[:5000]
    frame = frame.iloc[rows]
    return make_encoder().fit_transform(frame), np.unique(np.asarray(y)[rows], return_inverse=True)[
        1
    ]


def make_encoder() -> Any:
    return make_column_transformer(
        (OneHotEncoder(sparse_output=False), make_column_selector(dtype_exclude="number")),
        remainder=MinMaxScaler(),
    )


def location(seed: int) -> Table:
    X, y = fetch_location30(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))
    X = np.asarray(X, dtype=float)[rows]
    return X, np.unique(np.asarray(y)[rows], return_inverse=True)[1]


def make_perceptron(X: NDArray, y: NDArray, seed: int, units: int = 64) -> nn.Sequential:
    torch.manual_seed(seed)
    classes = int(y.max()) + 1
    return nn.Sequential(nn.Linear(X.shape[1], units), nn.Tanh(), nn.Linear(units, classes))


class Party:
    """A party that trains on its own records with plain gradient descent."""

    def __init__(self, net: nn.Module, X: NDArray, y: NDArray, rate: float, seed: int) -> None:
        self.net, self.X, self.y, self.rate = net, torch.as_tensor(X).float(), y, rate
        self.random = np.random.default_rng(seed)

    @property
    def step(self) -> float:
        return self.rate * max(1, len(self.y) // BATCH)

    def train(self, weights: NDArray) -> NDArray:
        values = list(self.net.parameters())
        nn.utils.vector_to_parameters(torch.as_tensor(weights).float(), values)
        order = self.random.permutation(len(self.y))
        for rows in np.array_split(order, max(1, len(order) // BATCH)):
            loss = nn.functional.cross_entropy(
                self.net(self.X[rows]), torch.as_tensor(self.y[rows])
            )
            with torch.no_grad():
                for value, slope in zip(values, torch.autograd.grad(loss, values), strict=True):
                    value -= self.rate * slope
        return Updates.weights_of(self.net)


def train_federation(net: nn.Module, parties: list[Party]) -> list[Updates]:
    """Return what a server sees of each party; the network holds the final weights afterwards."""
    weights = Updates.weights_of(net)
    before, after = [], []
    for _ in range(ROUNDS):
        before.append(weights)
        after.append([party.train(weights) for party in parties])
        weights = np.mean(after[-1], axis=0)
    nn.utils.vector_to_parameters(torch.as_tensor(weights).float(), net.parameters())
    return [
        Updates(net, before, [sent[k] for sent in after], party.step, len(party.y))
        for k, party in enumerate(parties)
    ]


def membership(repeats: int) -> None:
    for name, load in (("Adult", adult), ("Location-30", location)):
        found: dict[str, list[float]] = {}
        for seed in range(repeats):
            for view, result in attack_views(*load(seed), RATES[name], seed).items():
                found.setdefault(view, []).append(result.auc)
        for view, aucs in found.items():
            print(f"{name:12} {view:34} {np.mean(aucs):.3f} +- {np.std(aucs):.3f}", flush=True)


def attack_views(X: NDArray, y: NDArray, rate: float, seed: int) -> dict[str, AttackResult]:
    net = make_perceptron(X, y, seed)
    own, everyone = np.arange(N), np.arange(PARTIES * N)
    out = np.arange(PARTIES * N, 2 * PARTIES * N)
    known = np.arange(2 * PARTIES * N, 2 * PARTIES * N + REFERENCE)
    parties = [
        Party(net, X[k * N : (k + 1) * N], y[k * N : (k + 1) * N], rate, seed + k)
        for k in range(PARTIES)
    ]
    start = Updates.weights_of(net)
    seen = train_federation(net, parties)
    views: dict[str, Any] = {}
    records = LabeledRecords(X, y)
    loss = LossThreshold(net).fit(records[known])
    views["final model alone, loss"] = loss.evaluate(records[everyone], records[out])
    attack = UpdatesMembership(Updates.averaged(seen)).fit(records[known])
    views["all parties' mean, passive"] = attack.evaluate(records[everyone], records[out])
    attack = UpdatesMembership(seen[0]).fit(records[known])
    views["one party, passive"] = attack.evaluate(records[own], records[out])
    # a third of the party's records are known to be in it
    third, rest = own[: N // 3], own[N // 3 :]
    rows = np.r_[third, known]
    attack = UpdatesMembership(seen[0]).fit(records[rows], rows < N)
    views["one party, some members known"] = attack.evaluate(records[rest], records[out])
    for ascent in (0.0, 0.001, 0.01):
        halves = []
        for k in range(GROUPS):  # a few targets at a time: many would drown each other
            targets = np.r_[own[k * 20 : k * 20 + 20], out[k * 20 : k * 20 + 20]]
            nn.utils.vector_to_parameters(torch.as_tensor(start).float(), net.parameters())
            active = Updates.from_gradient_ascent(
                net, parties[0].train, X[targets], y[targets],
                ascent=ascent, n_rounds=ROUNDS, step=parties[0].step, n_records=N,
            )  # fmt: skip
            attack = UpdatesMembership(active).fit(records[known])
            halves.append(attack.decision_function(records[targets]).reshape(2, 20))
        members, others = np.hstack(halves)
        views[f"one party isolated, ascent {ascent:g}"] = AttackResult(members, others)
    return views


def private(repeats: int) -> None:
    print("data          noise  epsilon   AUC  bound  found at 1%  bound  above the band")
    for name, load in (("Adult", adult), ("Location-30", location)):
        for multiplier in choose((0.0, 2.0, 5.0, 10.0), (0.0, 5.0)):
            event = RepeatedEvent(GaussianEvent(max(multiplier, 1e-3)), ROUNDS)
            guarantee = PrivacyGuarantee(event, at_delta=1e-5)
            aucs, tprs, above = [], [], 0
            for seed in range(repeats):
                result = attack_private_party(*load(seed), multiplier, seed)
                aucs.append(result.auc)
                tprs.append(result.tpr_at_fpr(0.01).tpr)
                above += is_above_bound(result, guarantee.tpr_bound) if multiplier else 0
            rates = np.linspace(0, 1, 2001)
            area = np.trapezoid(guarantee.tpr_bound(rates), rates) if multiplier else 1.0
            print(
                f"{name:12}{multiplier:7}{guarantee.epsilon() if multiplier else np.inf:9.2f}"
                f"{np.mean(aucs):7.3f}{area:7.3f}{np.mean(tprs):13.3f}"
                f"{float(guarantee.tpr_bound(0.01)) if multiplier else 1.0:7.3f}"
                f"{above:10} of {repeats}",
                flush=True,
            )


def attack_private_party(X: NDArray, y: NDArray, multiplier: float, seed: int) -> AttackResult:
    """Attack a party that sends clipped, noisy sums: each round one step on all its records."""
    net, norm, rate = make_perceptron(X, y, seed), 1.0, 1.0
    random = np.random.default_rng([seed, int(multiplier)])
    own, out, known = np.arange(N), np.arange(N, 3 * N), np.arange(3 * N, 3 * N + REFERENCE)
    weights, before, after = Updates.weights_of(net), [], []
    values = list(net.parameters())
    inputs, labels = torch.as_tensor(X[own]).float(), torch.as_tensor(y[own])
    for _ in range(ROUNDS):
        nn.utils.vector_to_parameters(torch.as_tensor(weights).float(), values)
        total = np.zeros(len(weights))
        for x, label in zip(inputs, labels, strict=True):
            loss = nn.functional.cross_entropy(net(x[None]), label[None])
            slopes = torch.autograd.grad(loss, values)
            slope = torch.cat([g.ravel() for g in slopes]).double().numpy()
            total += slope * min(1.0, norm / np.linalg.norm(slope))
        before.append(weights)
        total += multiplier * norm * random.normal(size=len(weights))
        weights = weights - rate * total / N
        after.append(weights)
    seen = Updates(net, before, after, rate, N, norm, rate * multiplier * norm / N)
    records = LabeledRecords(X, y)
    attack = UpdatesMembership(seen).fit(records[known])
    return attack.evaluate(records[own], records[out])


def is_above_bound(result: AttackResult, bound: Callable[..., Any], alpha: float = 0.05) -> bool:
    """Return whether the band of Dvoretzky, Kiefer, Wolfowitz and Massart leaves the bound."""
    grid = np.unique(np.concatenate([result.scores_in, result.scores_out]))
    n_in, n_out = len(result.scores_in), len(result.scores_out)
    tpr = 1 - np.searchsorted(np.sort(result.scores_in), grid) / n_in
    fpr = 1 - np.searchsorted(np.sort(result.scores_out), grid) / n_out
    up, left = np.sqrt(np.log(4 / alpha) / (2 * np.array([n_in, n_out])))
    return bool((tpr - up > bound(np.minimum(fpr + left, 1.0))).any())


def attribute(repeats: int) -> None:
    frame, y = fetch_adult(return_X_y=True, as_frame=True)
    rows = np.random.default_rng(0).permutation(len(y))[:12_000]
    frame, y = frame.iloc[rows].reset_index(drop=True), np.asarray(y)[rows]
    named = frame["occupation"].notna().to_numpy()
    frame, y = frame[named].reset_index(drop=True), y[named]
    encode = make_encoder().fit(frame)
    known, end = np.arange(len(y) - REFERENCE, len(y)), choose(9_000, 250)
    print("records  inferred: members  others  without updates: members  others")
    for n in choose((10, 30, 100, 300), (30,)):
        found = []
        for k in range(repeats):
            own, out = np.arange(k * n, (k + 1) * n), np.arange(end - n - k * n, end - k * n)
            net = MLPClassifier(
                (64,), activation="tanh", solver="sgd", learning_rate_init=0.3, momentum=0,
                alpha=0, batch_size=min(n, BATCH), random_state=k,
            )  # fmt: skip
            inputs, sent = encode.transform(frame.iloc[own]), []
            for _ in range(ROUNDS + 1):
                net.partial_fit(inputs, y[own], classes=np.unique(y))
                sent.append(Updates.weights_of(net))
            seen = Updates(
                Pipeline([("encode", encode), ("net", net)]), sent[:-1], sent[1:],
                0.3 * max(1, n // BATCH), n,
            )  # fmt: skip
            attack = AttributeInference(seen, attribute="occupation")
            attack.fit(frame.iloc[known], y[known])
            result = attack.evaluate(frame.iloc[own], y[own], frame.iloc[out], y[out])
            sides = result.members, result.others
            shown = [side.accuracy for side in sides] + [side.baseline for side in sides]
            found.append(shown)
        means = np.mean(found, axis=0)
        print(f"{n:7}{means[0]:19.3f}{means[1]:8.3f}{means[2]:26.3f}{means[3]:8.3f}", flush=True)


def property_(repeats: int) -> None:
    print("data          noise  AUC of a party's updates  of the mean of four  null")
    for name, load in (("Adult", adult), ("Location-30", location)):
        for multiplier in (0.0, 1.0):
            rows = [attack_property(name, load, multiplier, seed) for seed in range(repeats)]
            means = np.mean(rows, axis=0)
            print(f"{name:12}{multiplier:7}" + "".join(f"{auc:18.3f}" for auc in means), flush=True)


def attack_property(name: str, load: Any, multiplier: float, seed: int) -> list[float]:
    """Return AUCs: a share of .3 or .7 in a party of 100, of one and of the mean of four."""
    X, y = load(seed)
    often = 0.33 if name == "Adult" else 0.4  # Adult: women; Location: a place
    group = X[:, np.argmin(np.abs(X.mean(axis=0) - often))] > 0.5
    net, random, n, norm = (
        make_perceptron(X, y, seed),
        np.random.default_rng(seed),
        choose(100, 30),
        1.0,
    )
    start, noise = Updates.weights_of(net), multiplier * norm / n
    half = len(y) // 2
    empty = Updates(net, [start], [start], 1.0, n, norm, noise)

    def sent(share: float) -> Updates:
        inside = half + random.permutation(np.flatnonzero(group[half:]))[: round(share * n)]
        outside = half + random.permutation(np.flatnonzero(~group[half:]))[: n - len(inside)]
        rows = np.r_[inside, outside]
        slope = empty._gradients(0, X[rows], y[rows]).mean(len(start))
        after = start - slope + noise * random.normal(size=len(start))
        return Updates(net, [start], [after], 1.0, n, norm, noise)

    attack = PropertyInference(empty, n_shadows=choose(100, 10), random_state=seed)
    attack.fit(X[:half], y[:half], group[:half], shares=(0.3, 0.7))
    few, many, middle = ([sent(s) for _ in range(choose(30, 5))] for s in (0.3, 0.7, 0.5))
    mixed = []
    for kind in (many, few):
        others = [[sent(0.5) for _ in range(3)] for _ in kind]
        mixed.append([Updates.averaged([a, *b]) for a, b in zip(kind, others, strict=True)])
    return [
        attack.evaluate(many, few).auc,
        attack.evaluate(*mixed).auc,
        attack.evaluate(middle, [sent(0.5) for _ in middle]).auc,
    ]


def main() -> None:
    parser = make_parser(__doc__)
    programs = {
        "membership": membership, "private": private, "attribute": attribute, "property": property_,
    }  # fmt: skip
    parser.add_argument("parts", nargs="*", default=list(programs), metavar="PART")
    parser.add_argument("--repeats", type=int, default=choose(3, 1))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(programs):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(programs)}")
    torch.set_num_threads(1)
    for part in options.parts:
        programs[part](options.repeats)


if __name__ == "__main__":
    main()
