"""Planted bugs that ``verify_privacy`` finds, in every private estimator that can have them.

Each line is a bug in an estimator: whether it was found, the claim, the bound that was shown, the
neighbours, and the time. The last lines count, and give the reason why an estimator cannot have a
bug. A full run takes an hour or two.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter

from benchmarks.shared.quick import choose, make_parser
from skprivacy.audit import verify_privacy
from tests.planted_bugs.verified import (
    BUGS,
    FIT_PARAMS,
    VERIFIED,
    epsilon_of_bug,
    planted,
    runs_for,
    why_not,
)


def try_bug(bug: str, name: str, n_runs: int | None) -> bool:
    """Verify one estimator with one bug in it, and print the result."""
    started, processor = time.perf_counter(), time.process_time()
    with planted(bug, name):
        found = verify_privacy(
            VERIFIED[name](), epsilon=epsilon_of_bug(name), n_runs=n_runs or runs_for(bug, name),
            fit_params=FIT_PARAMS.get(name),
        )  # fmt: skip
    print(
        f"{'found' if found.broken else 'MISSED':6s} | {bug} | {name} | claimed "
        f"{found.claimed_epsilon:.3g} | shown {found.epsilon_lower_bound:.3g} | {found.neighbours}"
        f" | {found.n_runs} runs a side | {time.process_time() - processor:.0f} s of a core, "
        f"{time.perf_counter() - started:.0f} s",
        flush=True,
    )
    return found.broken


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--bugs", nargs="*", default=choose([""], ["no noise"]), help="parts of names"
    )
    parser.add_argument(
        "--estimators",
        nargs="*",
        default=choose([""], ["PrivateStandardScaler"]),
        help="beginnings of names",
    )
    parser.add_argument("--runs", type=int, help="fresh runs a side; else as many as a bug takes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    bugs = [bug for bug in BUGS if any(part in bug for part in options.bugs)]
    names = [name for name in VERIFIED if name.startswith(tuple(options.estimators))]
    done: Counter[str] = Counter()
    for name in names:
        for bug in bugs:
            if not why_not(bug, name):
                done["found" if try_bug(bug, name, options.runs) else "missed"] += 1
    print(", ".join(f"{count} {what}" for what, count in done.items()))
    for bug in bugs:
        reasons: dict[str, list[str]] = {}
        for name in names:
            if reason := why_not(bug, name):
                reasons.setdefault(reason, []).append(name)
        for reason, of in reasons.items():
            print(f"not tried: {bug}: {reason} ({', '.join(of)})")


if __name__ == "__main__":
    main()
