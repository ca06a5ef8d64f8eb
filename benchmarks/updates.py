"""What model updates give away: members, a record's attribute, a party's share of a group.

python benchmarks/updates.py membership   # who trained, by what the attacker sees of a federation
python benchmarks/updates.py private      # the same with clipping and noise, against the guarantee
python benchmarks/updates.py attribute    # Adult: sex of a party's records
python benchmarks/updates.py property     # Adult: the share of women in a party; Location: a place

All need SKPRIVACY_DATA with Adult and Location-30 in it. Four parties with 300 records each train a
perceptron by federated averaging: 5 rounds, each one local pass in batches of 30.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from torch import nn

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee, Repeated
from skprivacy.attacks import (
    AttackResult,
    LossThreshold,
    Updates,
    UpdatesAttack,
    UpdatesAttributeInference,
    UpdatesPropertyInference,
    gradient_ascent,
)
from skprivacy.datasets import fetch_adult, fetch_location30

PARTIES, N, ROUNDS, BATCH = 4, 300, 5, 30
RATES = {"Adult": 0.3, "Location-30": 0.3}
Table = tuple[NDArray[np.float64], NDArray[np.int64]]


def adult(seed: int) -> Table:
    frame, y = fetch_adult(return_X_y=True, as_frame=True)
    rows = np.random.default_rng(seed).permutation(len(y))[:5000]
    frame = frame.iloc[rows]
    encode = make_column_transformer(
        (OneHotEncoder(sparse_output=False), make_column_selector(dtype_exclude="number")),
        remainder=MinMaxScaler(),
    )
    return encode.fit_transform(frame), np.unique(np.asarray(y)[rows], return_inverse=True)[1]


def location(seed: int) -> Table:
    X, y = fetch_location30(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))
    X = np.asarray(X, dtype=float)[rows]
    return X, np.unique(np.asarray(y)[rows], return_inverse=True)[1]


def perceptron(X: NDArray, y: NDArray, seed: int, units: int = 64) -> nn.Sequential:
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
            loss = nn.functional.cross_entropy(self.net(self.X[rows]), torch.as_tensor(self.y[rows]))
            with torch.no_grad():
                for value, slope in zip(values, torch.autograd.grad(loss, values), strict=True):
                    value -= self.rate * slope
        return Updates.weights_of(self.net)


def federated(net: nn.Module, parties: list[Party]) -> list[Updates]:
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
            for view, result in _views(*load(seed), RATES[name], seed).items():
                found.setdefault(view, []).append(result.auc)
        for view, aucs in found.items():
            print(f"{name:12} {view:34} {np.mean(aucs):.3f} +- {np.std(aucs):.3f}", flush=True)


def _views(X: NDArray, y: NDArray, rate: float, seed: int) -> dict[str, AttackResult]:
    net = perceptron(X, y, seed)
    own, everyone = np.arange(N), np.arange(PARTIES * N)
    out = np.arange(PARTIES * N, 2 * PARTIES * N)
    known = np.arange(2 * PARTIES * N, len(y))
    parties = [
        Party(net, X[k * N : (k + 1) * N], y[k * N : (k + 1) * N], rate, seed + k)
        for k in range(PARTIES)
    ]
    start = Updates.weights_of(net)
    seen = federated(net, parties)
    views: dict[str, Any] = {}
    loss = LossThreshold(net).fit(X[known], y[known])
    views["final model alone, loss"] = loss.evaluate(X[everyone], y[everyone], X[out], y[out])
    attack = UpdatesAttack(Updates.averaged(seen)).fit(X[known], y[known])
    views["all parties' mean, passive"] = attack.evaluate(X[everyone], y[everyone], X[out], y[out])
    attack = UpdatesAttack(seen[0]).fit(X[known], y[known])
    views["one party, passive"] = attack.evaluate(X[own], y[own], X[out], y[out])
    # a third of the party's records are known to be in it
    third, rest = own[: N // 3], own[N // 3 :]
    rows = np.r_[third, known]
    attack = UpdatesAttack(seen[0]).fit(X[rows], y[rows], rows < N)
    views["one party, some members known"] = attack.evaluate(X[rest], y[rest], X[out], y[out])
    targets = np.r_[own, out[:N]]
    for view, train, step, n in (
        ("one party isolated", parties[0].train, parties[0].step, N),
        ("all parties' mean", _mean_of(parties), parties[0].step, PARTIES * N),
    ):
        for ascent in (0.0, 0.01 if n == N else 0.01):
            nn.utils.vector_to_parameters(torch.as_tensor(start).float(), net.parameters())
            active = gradient_ascent(
                net, train, X[targets], y[targets],
                ascent=ascent, n_rounds=ROUNDS, step=step, n_records=n,
            )  # fmt: skip
            attack = UpdatesAttack(active).fit(X[known], y[known])
            result = attack.evaluate(X[own], y[own], X[out[:N]], y[out[:N]])
            views[f"{view}, ascent {ascent:g}"] = result
    return views


def _mean_of(parties: list[Party]) -> Callable[[NDArray], NDArray]:
    return lambda weights: np.mean([party.train(weights) for party in parties], axis=0)


def private(repeats: int) -> None:
    print("data          noise  epsilon   AUC  bound  found at 1%  bound  above the band")
    for name, load in (("Adult", adult), ("Location-30", location)):
        for multiplier in (0.0, 2.0, 5.0, 10.0):
            event = Repeated(GaussianEvent(max(multiplier, 1e-3)), ROUNDS)
            guarantee = PrivacyGuarantee(event, at_delta=1e-5)
            aucs, tprs, above = [], [], 0
            for seed in range(repeats):
                result = _private(*load(seed), multiplier, seed)
                aucs.append(result.auc)
                tprs.append(result.tpr_at_fpr(0.01).tpr)
                above += _above(result, guarantee.tpr_bound) if multiplier else 0
            rates = np.linspace(0, 1, 2001)
            area = np.trapezoid(guarantee.tpr_bound(rates), rates) if multiplier else 1.0
            print(
                f"{name:12}{multiplier:7}{guarantee.epsilon() if multiplier else np.inf:9.2f}"
                f"{np.mean(aucs):7.3f}{area:7.3f}{np.mean(tprs):13.3f}"
                f"{float(guarantee.tpr_bound(0.01)) if multiplier else 1.0:7.3f}"
                f"{above:10} of {repeats}",
                flush=True,
            )


def _private(X: NDArray, y: NDArray, multiplier: float, seed: int) -> AttackResult:
    """Attack a party that sends clipped, noisy sums: each round one step on all its records."""
    net, norm, rate = perceptron(X, y, seed), 1.0, 1.0
    random = np.random.default_rng(seed)
    own, out, known = np.arange(N), np.arange(N, 5 * N), np.arange(5 * N, len(y))
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
    attack = UpdatesAttack(seen).fit(X[known], y[known])
    return attack.evaluate(X[own], y[own], X[out], y[out])


def _above(result: AttackResult, bound: Callable[..., Any], alpha: float = 0.05) -> bool:
    """Return whether the band of Dvoretzky, Kiefer, Wolfowitz and Massart leaves the bound."""
    grid = np.unique(np.concatenate([result.scores_in, result.scores_out]))
    n_in, n_out = len(result.scores_in), len(result.scores_out)
    tpr = 1 - np.searchsorted(np.sort(result.scores_in), grid) / n_in
    fpr = 1 - np.searchsorted(np.sort(result.scores_out), grid) / n_out
    up, left = np.sqrt(np.log(4 / alpha) / (2 * np.array([n_in, n_out])))
    return bool((tpr - up > bound(np.minimum(fpr + left, 1.0))).any())


def attribute(repeats: int) -> None:
    frame, y = fetch_adult(return_X_y=True, as_frame=True)
    print(list(frame.columns), repeats)


def property_(repeats: int) -> None:
    del repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = {
        "membership": membership, "private": private, "attribute": attribute, "property": property_,
    }  # fmt: skip
    parser.add_argument("what", choices=list(programs))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    programs[options.what](options.repeats)


if __name__ == "__main__":
    main()
