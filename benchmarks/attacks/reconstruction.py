"""Reconstruction of records of Adult from one gradient of a network, beside plain guesses.

closed      records read off the first layer, exactly
search      the search, labels given, batches of 8 to 128
defences    the search against clipping and noise
bayes       the posterior against noise, batches of one
posteriors  the same for batches of eight
claim       every attack against the bound of the guarantee

The network has 256 rectified units and is at initialisation, a new one for each 5 batches. Numbers
are standardised, or scaled to their public bounds ("min-max"); categories are zeros and ones. The
attacker has 20,000 other records.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import (
    AttackResult,
    BayesInversion,
    FirstLayerInversion,
    GradientInversion,
    InversionResult,
    party_gradient,
)
from skprivacy.preprocessing import BoundedColumn, SchemaTransformer

N_REFERENCE = choose(20_000, 300)
HIDDEN = choose(256, 64)
N_TRIALS, NOISES = choose((500, (0.1, 0.3, 1.0)), (10, (0.3,)))
PER_NETWORK = 5
N_BATCHES = choose(1500, 20)
Records = tuple[NDArray[np.float64], NDArray[np.int64]]


def adult(scaling: str) -> tuple[Records, Records, Any]:
    """Return the attacker's records, those to be attacked, and the schema."""
    table = fetch_adult(as_frame=True)
    X = SchemaTransformer(table.schema).fit_transform(table.data)
    y = (table.target.to_numpy() == ">50K").astype(int)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    at = 0
    for fact in table.schema.values():
        if isinstance(fact, BoundedColumn):
            number = (X[:, at] + 1) / 2
            known = number[:N_REFERENCE]
            standardised = (number - known.mean()) / known.std()
            X[:, at] = standardised if scaling == "standardised" else number
        at += fact.n_features_out
    return (X[:N_REFERENCE], y[:N_REFERENCE]), (X[N_REFERENCE:], y[N_REFERENCE:]), table.schema


def make_network(n_features: int, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    first, last = torch.nn.Linear(n_features, HIDDEN), torch.nn.Linear(HIDDEN, 2)
    return torch.nn.Sequential(first, torch.nn.ReLU(), last)


def attack_batches(
    make: Any,
    scaling: str,
    n: int,
    batches: int,
    *,
    per_network: int = PER_NETWORK,
    n_known: int = N_REFERENCE,
    **defence: Any,
) -> InversionResult:
    """Attack so many batches of n records, and join the results of all networks."""
    (known, labels), (X, y), schema = adult(scaling)
    parts = []
    for seed, begin in enumerate(range(0, batches, per_network)):
        model = make_network(X.shape[1], seed)
        attack = make(model, columns=schema, random_state=seed, **defence)
        attack.fit(known[:n_known], labels[:n_known])
        own = [slice(b * n, (b + 1) * n) for b in range(begin, min(begin + per_network, batches))]
        sent = [
            party_gradient(model, X[rows], y[rows], random_state=rows.start, **defence)
            for rows in own
        ]
        pairs = [(X[rows], y[rows]) for rows in own]
        parts.append((begin, attack.evaluate(sent, pairs, labels_known=True)))
    return join_results(parts)


def join_results(parts: list[tuple[int, InversionResult]]) -> InversionResult:
    results = [result for _, result in parts]
    weights = np.array([len(r.recovered) for r in results])
    return InversionResult(
        recovered=np.concatenate([r.recovered for r in results]),
        nulls={k: np.concatenate([r.nulls[k] for r in results]) for k in results[0].nulls},
        exact=np.concatenate([r.exact for r in results]),
        confidence=np.concatenate([r.confidence for r in results]),
        batch=np.concatenate([begin + r.batch for begin, r in parts]),
        blind=np.average([r.blind for r in results], axis=0, weights=weights),
        names=results[0].names,
        attack=results[0].attack,
    )


def print_shares(label: str, result: InversionResult, began: float) -> None:
    """Print the mean share, and that of the best rows beside the null models on the same rows."""
    rows = result.best_rows()
    sure = result.best_rows(by="confidence")["same_rows"]
    nulls = "  ".join(f"{k} {v:.3f}" for k, v in result.null_shares.items())
    same = rows["same_rows"]
    print(f"{label:34} mean {result.share:.3f} (nulls: {nulls})")
    print(
        f"{'':34} best quarter {same.iloc[0]:.3f}, nulls there "
        + "  ".join(f"{v:.3f}" for v in same.iloc[1:])
        + f"; surest quarter {sure.iloc[0]:.3f}, nulls there "
        + "  ".join(f"{v:.3f}" for v in sure.iloc[1:])
        + f"; exact {result.exact_share:.3f}; {time.process_time() - began:.0f} s",
        flush=True,
    )


def closed() -> None:
    for scaling in ("standardised", "min-max"):
        for n in choose((1, 8, 32), (1, 8)):
            began = time.process_time()
            result = attack_batches(FirstLayerInversion, scaling, n, choose(40, 2))
            seconds = time.process_time() - began
            print(f"{scaling:13} batch {n:3}: exact {result.exact_share:.3f}  {seconds:.0f} s")


def search() -> None:
    for n, batches, steps in choose(((8, 20, 600), (32, 10, 1000), (128, 2, 1000)), ((8, 1, 20),)):
        began = time.process_time()
        result = attack_batches(
            partial(GradientInversion, max_iter=steps, n_init=2),
            "standardised",
            n,
            batches,
        )
        print_shares(f"batch {n}, {batches} batches", result, began)


def defences() -> None:
    cases: dict[str, dict[str, Any]] = {
        "none": {},
        "clipping to 1": {"max_grad_norm": 1.0},
        "clipping, noise multiplier .1": {"max_grad_norm": 1.0, "noise_multiplier": 0.1},
        "clipping, noise multiplier 1": {"max_grad_norm": 1.0, "noise_multiplier": 1.0},
    }
    for name, defence in cases.items():
        began = time.process_time()
        result = attack_batches(
            partial(GradientInversion, max_iter=choose(400, 20), n_init=2),
            "standardised",
            8,
            choose(10, 1),
            **defence,
        )
        print_shares(f"batch 8, {name}", result, began)


def bayes() -> None:
    for noise in NOISES:
        began = time.process_time()
        defence = {"max_grad_norm": 1.0, "noise_multiplier": noise}
        result = attack_batches(
            BayesInversion, "standardised", 1, N_BATCHES, per_network=N_BATCHES, **defence
        )
        print_shares(f"batch 1, noise multiplier {noise}", result, began)
        guarantee = PrivacyGuarantee(GaussianEvent(noise), relation="zero_out")
        print(f"{'':34} {result!r}\n{'':34} bound {result.bound(guarantee):.3f}", flush=True)


def posteriors() -> None:
    for noise in NOISES:
        began = time.process_time()
        defence = {"max_grad_norm": 1.0, "noise_multiplier": noise}
        sizes = {"per_network": 20, "n_known": choose(2000, 100)}
        result = attack_batches(
            BayesInversion, "standardised", 8, choose(20, 2), **sizes, **defence
        )
        print_shares(f"batch 8, noise multiplier {noise}", result, began)
        print(f"{'':34} {result!r}", flush=True)


def claim() -> None:
    """Infer membership, labels and one record among ten, where gradients differ the most."""
    _, (X, y), schema = adult("standardised")
    model = make_network(X.shape[1], 0)
    print("noise   attack            success          allowed")
    for noise in choose((0.5, 1.0, 2.0), (1.0,)):
        guarantee = PrivacyGuarantee(GaussianEvent(noise), relation="zero_out")
        defence = {"max_grad_norm": 1.0, "noise_multiplier": noise}
        few = BayesInversion(model, columns=schema, **defence).fit(X[:10], y[:10])
        every = BayesInversion(model, columns=schema, **defence).fit(
            np.repeat(X[:1], 2, axis=0), [0, 1]
        )
        right, right_label, inside, outside = [], [], [], []
        empty = {k: np.zeros_like(v) for k, v in party_gradient(model, X[:1], y[:1]).items()}
        rng = np.random.default_rng(0)
        for k in range(N_TRIALS):
            i = int(rng.integers(10))
            sent = party_gradient(model, X[[i]], y[[i]], random_state=k, **defence)
            right.append(few.posterior(sent).argmax() == i)
            one = int(rng.integers(2))
            other = party_gradient(model, X[:1], [one], random_state=k, **defence)
            right_label.append(every.posterior(other).argmax() == one)
            inside.append(few.score_samples(sent, X[[i]], y[[i]])[0])
            blank = {k: v + rng.normal(scale=noise, size=v.shape) for k, v in empty.items()}
            outside.append(few.score_samples(blank, X[[i]], y[[i]])[0])
        tpr = AttackResult(inside, outside).tpr_at_fpr(0.1)
        for name, value, allowed in (
            ("one of ten", np.mean(right), guarantee.tpr_bound(0.1)),
            ("one of two labels", np.mean(right_label), guarantee.tpr_bound(0.5)),
            ("member, 10% FPR", tpr.tpr, guarantee.tpr_bound(0.1)),
        ):
            error = np.sqrt(value * (1 - value) / N_TRIALS)
            print(
                f"{noise:5}   {name:17} {value:.3f} +- {error:.3f} {float(allowed):8.3f}",
                flush=True,
            )


def main() -> None:
    programs = {f.__name__: f for f in (closed, search, defences, bayes, posteriors, claim)}
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", default=list(programs), metavar="PART")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(programs):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(programs)}")
    for part in options.parts:
        programs[part]()


if __name__ == "__main__":
    main()
