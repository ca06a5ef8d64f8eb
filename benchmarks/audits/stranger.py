"""Planted bugs that ``verify_privacy`` finds in another author's DP-SGD, from its weights alone.

Each line is a bug: in how many verifications it was found, the number of fresh runs a side, the
largest lower bound on epsilon, and the processor time of one verification. The last line verifies
the correct program as often as ``--correct`` says, with few runs each: it is broken with
probability alpha at most. Jagielski, Ullman and Oprea 2020.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.shared.quick import choose, make_parser
from skprivacy.audit import verify_privacy
from skprivacy.audit.verification.verify_privacy import PrivacyVerificationReport
from tests.planted_bugs.bug import Bug
from tests.planted_bugs.stranger import StrangerDPSGD
from tests.planted_bugs.stranger_bugs import BUGS, CENTRED, OFTEN, SUBTLE

# The point (epsilon, delta) of the trade-off curve at which a bug is easiest to see.
POINTS: dict[Callable[..., None] | None, tuple[float, float]] = {
    SUBTLE: (2.0, 0.05),
    OFTEN: (1.0, 0.4),
}


def verify(
    n_runs: int, epsilon: float | None = None, delta: float = 1e-5
) -> tuple[PrivacyVerificationReport, float]:
    """Return one verification and its processor time."""
    started = time.process_time()
    model, labels = StrangerDPSGD(delta=delta), (CENTRED[:, 0] > 0).astype(int)
    found = verify_privacy(model, CENTRED, labels, epsilon=epsilon, n_runs=n_runs)
    return found, time.process_time() - started


def print_line(name: str, results: list[tuple[PrivacyVerificationReport, float]]) -> None:
    reports = [report for report, _ in results]
    print(
        f"{name} | broken in {sum(report.broken for report in reports)} of {len(reports)} | "
        f"{reports[0].n_runs:,} runs a side after {np.mean([r.n_pilot for r in reports]):,.0f} | "
        f"claimed {reports[0].claimed_epsilon:.3g} | shown at most "
        f"{max(report.epsilon_lower_bound for report in reports):.3g} | "
        f"{np.mean([seconds for _, seconds in results]):.1f} s of a core",
        flush=True,
    )


def verify_bug(bug: Bug, n_runs: int, repeats: int) -> None:
    """Print how often a planted bug is found."""
    point = POINTS.get(bug.caught_by, (None, 1e-5))
    with bug.planted():
        print_line(bug.name, [verify(n_runs, *point) for _ in range(repeats)])


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--bugs", nargs="*", default=choose([""], ["long"]), help="parts of names")
    parser.add_argument("--runs", type=int, default=choose(20_000, 100), help="fresh runs a side")
    parser.add_argument("--repeats", type=int, default=choose(5, 1), help="verifications a bug")
    parser.add_argument("--correct", type=int, default=choose(100, 1), help="of the right program")
    options = parser.parse_args()
    for bug in BUGS:
        if any(part in bug.name for part in options.bugs):
            verify_bug(bug, options.runs, options.repeats)
    correct = [verify(choose(400, 50)) for _ in range(options.correct)]
    if correct:
        print_line("no bug", correct)


if __name__ == "__main__":
    main()
