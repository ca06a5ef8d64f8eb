"""Attacks on generators that copy and on private synthesizers, and canaries in synthesizers.

attacks      the area under the ROC curve of each attack on each generator, mean of ``--seeds``
             runs. "copies d noise": 200 rows of d normal columns, repeated with noise. "columns":
             the columns of 100 rows of 20, each shuffled. "adult": copies of 1,000 rows of Adult
             (noise 0), and ``MarginalSynthesizer`` fitted to them, at epsilon 1, 10 and 1,000.
             There are 1,000 non-members and 4,000 reference records
canaries     lower bounds of ``audit_synthesizer`` beside the claimed mu at epsilon 1 and 10, delta
             1e-6, on 8,000 rows of Adult: one canary in each of ``--fits`` fits of "tree", and 100
             in each of 20
refutations  the number of ``--audits`` audits in which a true claim is refuted, and in which the
             bound for independent canaries exceeds the claim
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.shared.quick import choose, make_parser
from benchmarks.shared.synthesis_tables import adult
from skprivacy.attacks import (
    DensityRatio,
    GenerativeAttack,
    LikelihoodRatio,
    MarginalAttack,
    NearestGenerated,
    ShadowGenerators,
)
from skprivacy.audit import audit_synthesizer
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.synthesis import MarginalSynthesizer

DELTA = 1e-6
N_ROWS = choose(1000, 100)
N_FITS = 20


def evaluate_attacks(
    generated: Any, members: Any, others: Any, reference: Any, generator: Any = None
) -> dict[str, float]:
    attacks: dict[str, Any] = {
        "DCR": NearestGenerated(),
        "nearest": NearestGenerated(),
        "density": DensityRatio(),
        "likelihood": LikelihoodRatio(),
        "LOGAN": GenerativeAttack(),
        "marginals": MarginalAttack(),
    }
    if generator is not None:
        attacks["marginals*"] = MarginalAttack(generator, n_shadows=3, random_state=0)
        attacks["shadows"] = ShadowGenerators(generator, random_state=0)
    return {
        name: attack.fit(generated, None if name == "DCR" else reference)
        .evaluate(members, others)
        .auc
        for name, attack in attacks.items()
    }


def attack_copies(seed: int, size: int, noise: float) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(1400, size))
    generated = rows[rng.integers(0, 200, 4000)] + noise * rng.normal(size=(4000, size))
    return evaluate_attacks(generated, rows[:200], rows[200:400], rows[400:])


def columns(seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(1400, 20))
    generated = np.concatenate([rng.permuted(rows[:100], axis=0) for _ in range(40)])
    return evaluate_attacks(generated, rows[:100], rows[100:400], rows[400:])


def attack_adult(seed: int, method: str, epsilon: float) -> dict[str, float]:
    table = adult(0)
    rows = table.train.sample(6 * N_ROWS, random_state=seed).reset_index(drop=True)
    members, others = rows[:N_ROWS], rows[N_ROWS : 2 * N_ROWS]
    reference = rows[2 * N_ROWS :]
    if method == "copy":
        generated = members.sample(10 * N_ROWS, replace=True, random_state=seed)
        return evaluate_attacks(generated, members, others, reference)
    synthesizer = MarginalSynthesizer(
        epsilon, DELTA, schema=table.schema, label=table.target, method=method, **table.settings
    )
    generated = synthesizer.fit(members).sample(10 * N_ROWS, random_state=seed)
    shadowed = synthesizer if method == "tree" else None
    return evaluate_attacks(generated, members, others, reference, shadowed)


def attacks(seeds: int, only: str) -> None:
    runs: dict[str, Any] = {
        f"copies {size} {noise:g}": lambda seed, s=size, n=noise: attack_copies(seed, s, n)
        for size, noise in choose(((3, 0.05), (15, 0.05), (8, 0.6), (15, 0.6)), ((3, 0.05),))
    }
    runs["columns"] = columns
    runs["adult copy"] = lambda seed: attack_adult(seed, "copy", 0)
    for method, epsilon in choose(
        (("tree", 1.0), ("tree", 10.0), ("tree", 1000.0), ("adaptive", 10.0)), (("tree", 10.0),)
    ):
        runs[f"adult {method} {epsilon:g}"] = lambda seed, m=method, e=epsilon: attack_adult(
            seed, m, e
        )
    for name, run in runs.items():
        if not name.startswith(only):
            continue
        start = time.process_time()
        areas = pd.DataFrame([run(seed) for seed in range(seeds)])
        found = ", ".join(f"{attack} {area:.3f}" for attack, area in areas.mean().items())
        print(f"{name}: {found}; {(time.process_time() - start) / seeds:.0f} s", flush=True)


def canaries(fits: int) -> None:
    table = adult(0)
    rows = table.train.sample(choose(8000, 100), random_state=0).reset_index(drop=True)
    for epsilon in choose((10.0, 1.0), (10.0,)):
        for n_runs, n_canaries in (choose((N_FITS, 100), (2, 10)), (fits, 1)):
            start = time.process_time()
            synthesizer = MarginalSynthesizer(
                epsilon, DELTA, schema=table.schema, label=table.target, **table.settings
            )
            report = audit_synthesizer(
                synthesizer, rows, n_runs=n_runs, n_canaries=n_canaries, random_state=0
            )
            print(f"{time.process_time() - start:.0f} s: {report!r}", flush=True)
            for seen, view in (("tables", report.tables), ("rows", report.rows)):
                print(f"  {seen}: mu at least {view.bounds[-1].mu:.3f}", flush=True)


def refutations(n: int) -> None:
    """Audit one fit with 50 canaries, and several fits with one canary, a tenth as often."""
    schema = Schema(
        {
            "a": BoundedColumn(0, 99),
            "b": CategoricalColumn(range(20)),
            "c": CategoricalColumn(range(5)),
        }
    )
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "a": rng.integers(0, 100, 200),
            "b": rng.integers(0, 20, 200),
            "c": rng.integers(0, 5, 200),
        }
    )
    synthesizer = MarginalSynthesizer(4.0, DELTA, schema=schema, method="independent")
    for n_runs, n_canaries, n_audits in ((1, choose(50, 20), n), (N_FITS, 1, max(1, n // 10))):
        refuted = beyond = 0
        for seed in range(n_audits):
            report = audit_synthesizer(
                synthesizer, rows, n_runs=n_runs, n_canaries=n_canaries, random_state=seed
            )
            refuted += report.verdict == "violated"
            beyond += report.tables.bounds[-1].epsilon > 4.0
        print(
            f"{n_runs} fits with {n_canaries} canaries: {refuted} of {n_audits} true claims "
            f"refuted at 0.05, the last bound beyond the claim in {beyond} at 0.025",
            flush=True,
        )


def main() -> None:
    parser = make_parser(__doc__)
    parts = ["attacks", "canaries", "refutations"]
    parser.add_argument("parts", nargs="*", default=parts, metavar="PART")
    parser.add_argument("--seeds", type=int, default=choose(3, 1))
    parser.add_argument("--only", default="", help="beginning of the generators' names")
    parser.add_argument("--fits", type=int, default=choose(300, 20))
    parser.add_argument("--audits", type=int, default=choose(600, 2))
    args = parser.parse_args()
    if unknown := set(args.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {parts}")
    if "attacks" in args.parts:
        attacks(args.seeds, args.only)
    if "canaries" in args.parts:
        canaries(args.fits)
    if "refutations" in args.parts:
        refutations(args.audits)


if __name__ == "__main__":
    main()
