"""How fast and how sharp is the accounting, next to dp-accounting and Opacus?

The three take turns, so that a busy machine slows all of them alike; medians and ratios of medians
are printed. Run: ``python benchmarks/accounting.py [--rounds 5]``.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as reference
from opacus.accountants import PRVAccountant
from opacus.accountants.utils import get_noise_multiplier

from skprivacy.accounting import (
    Composed,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampled,
    Repeated,
    calibrate_noise_multiplier,
    calibration,
    guarantee,
    pld,
)

DELTA = 1e-5


def forget() -> None:
    """Empty every cache of ours, so that each round pays the full price."""
    pld.cache_clear()
    guarantee.epsilon_of.cache_clear()
    guarantee.delta_of.cache_clear()
    calibration._SOLVED.clear()


def ours_epsilon(q: float, z: float, steps: int) -> float:
    forget()
    return pld(Repeated(PoissonSampled(q, GaussianEvent(z)), steps)).epsilon(DELTA)


def dp_event(q: float, z: float, steps: int):
    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def dp_epsilon(q: float, z: float, steps: int) -> float:
    accountant = PLDAccountant()
    accountant.compose(dp_event(q, z, steps))
    return accountant.get_epsilon(DELTA)


def opacus_epsilon(q: float, z: float, steps: int) -> float:
    accountant = PRVAccountant()
    accountant.history = [(z, q, steps)]
    return accountant.get_epsilon(delta=DELTA)


def ours_calibration(q: float, steps: int) -> float:
    forget()
    return calibrate_noise_multiplier(
        lambda z: Repeated(PoissonSampled(q, GaussianEvent(z)), steps), 1.0, DELTA
    )


def dp_calibration(q: float, steps: int) -> float:
    return dp_accounting.calibrate_dp_mechanism(
        PLDAccountant, lambda z: dp_event(q, z, steps), 1.0, DELTA
    )


def opacus_calibration(q: float, steps: int) -> float:
    return get_noise_multiplier(
        target_epsilon=1.0, target_delta=DELTA, sample_rate=q, steps=steps, accountant="prv"
    )


def ours_mixed() -> float:
    forget()
    event = Composed(
        (
            Repeated(PoissonSampled(0.01, GaussianEvent(1.0)), 2000),
            Repeated(PoissonSampled(0.03, GaussianEvent(2.0)), 500),
            Repeated(LaplaceEvent(20.0), 10),
        )
    )
    return pld(event).epsilon(DELTA)


def dp_mixed() -> float:
    """Compose the same on dp-accounting's default grid."""
    first = reference.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(2000)
    second = reference.from_gaussian_mechanism(2.0, sampling_prob=0.03).self_compose(500)
    third = reference.from_laplace_mechanism(20.0).self_compose(10)
    return first.compose(second).compose(third).get_epsilon_for_delta(DELTA)


def fine_epsilon(q: float, z: float, steps: int, h: float) -> float:
    """Return dp-accounting's upper bound on a fine grid, the best truth there is."""
    fine = reference.from_gaussian_mechanism(z, sampling_prob=q, value_discretization_interval=h)
    return fine.self_compose(steps).get_epsilon_for_delta(DELTA)


def race(title: str, runners: dict[str, Callable[[], float]], rounds: int) -> None:
    """Let the runners take turns and print what each took and found."""
    runners["skprivacy"]()  # imports and tables of the first call
    times: dict[str, list[float]] = {name: [] for name in runners}
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name, runner in runners.items():
            start = time.perf_counter()
            found[name] = runner()
            times[name].append(time.perf_counter() - start)
    ours = statistics.median(times["skprivacy"])
    print(f"\n{title}")
    for name, spent in times.items():
        median = statistics.median(spent)
        print(f"  {name:<14}{median * 1e3:>10.1f} ms {median / ours:>8.1f} x   {found[name]:.5f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="leave out the slow calibrations")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for q, z, steps in [(0.01, 1.0, 10_000), (0.004, 0.6, 15_000), (256 / 60_000, 1.1, 14_062)]:
        race(
            f"epsilon, q={q:.5f} z={z} T={steps}",
            {
                "skprivacy": lambda q=q, z=z, steps=steps: ours_epsilon(q, z, steps),
                "dp-accounting": lambda q=q, z=z, steps=steps: dp_epsilon(q, z, steps),
                "opacus prv": lambda q=q, z=z, steps=steps: opacus_epsilon(q, z, steps),
            },
            args.rounds,
        )
        ours, fine = ours_epsilon(q, z, steps), fine_epsilon(q, z, steps, 1e-5)
        print(f"  above a grid of 1e-5: {ours / fine - 1:+.1e}")
    race("two rates and Laplace", {"skprivacy": ours_mixed, "dp-accounting": dp_mixed}, args.rounds)
    if not args.quick:
        race(
            "noise for epsilon = 1, q=0.01 T=10000",
            {
                "skprivacy": lambda: ours_calibration(0.01, 10_000),
                "dp-accounting": lambda: dp_calibration(0.01, 10_000),
                "opacus prv": lambda: opacus_calibration(0.01, 10_000),
            },
            max(1, args.rounds // 2),
        )


if __name__ == "__main__":
    main()
