"""Time and tightness of our accountants, dp-accounting's and Opacus's.

The three take turns, so that a busy machine slows all of them alike. Medians and ratios of medians
are printed. A missing peer is left out.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial

from benchmarks.shared.quick import choose, has_peer, make_parser
from skprivacy.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
    calibration,
    guarantee,
)
from skprivacy.accounting.pld.distribution import pld

DELTA = 1e-5
PEERS = {"dp-accounting": "dp_accounting", "opacus prv": "opacus"}
SETTINGS = choose(
    [(0.01, 1.0, 10_000), (0.004, 0.6, 15_000), (256 / 60_000, 1.1, 14_062)], [(0.01, 1.0, 200)]
)
N_CALIBRATED, GRID = choose((10_000, 1e-5), (1_000, 1e-3))


def forget() -> None:
    """Empty every cache of ours, so that each round pays the full price."""
    pld.cache_clear()
    guarantee.epsilon_of.cache_clear()
    guarantee.delta_of.cache_clear()
    calibration._SOLVED.clear()


def ours_epsilon(q: float, z: float, steps: int) -> float:
    forget()
    return pld(RepeatedEvent(PoissonSampledEvent(q, GaussianEvent(z)), steps)).epsilon(DELTA)


def dp_event(q: float, z: float, steps: int):
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    return dp_accounting.SelfComposedDpEvent(step, steps)


def dp_epsilon(q: float, z: float, steps: int) -> float:
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant()
    accountant.compose(dp_event(q, z, steps))
    return accountant.get_epsilon(DELTA)


def opacus_epsilon(q: float, z: float, steps: int) -> float:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(z, q, steps)]
    return accountant.get_epsilon(delta=DELTA)


def ours_calibration(q: float, steps: int) -> float:
    forget()
    return calibrate_noise_multiplier(
        lambda z: RepeatedEvent(PoissonSampledEvent(q, GaussianEvent(z)), steps), 1.0, DELTA
    )


def dp_calibration(q: float, steps: int) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    return dp_accounting.calibrate_dp_mechanism(
        PLDAccountant, lambda z: dp_event(q, z, steps), 1.0, DELTA
    )


def opacus_calibration(q: float, steps: int) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    return get_noise_multiplier(
        target_epsilon=1.0, target_delta=DELTA, sample_rate=q, steps=steps, accountant="prv"
    )


def ours_mixed() -> float:
    forget()
    event = ComposedEvent(
        (
            RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(1.0)), 2000),
            RepeatedEvent(PoissonSampledEvent(0.03, GaussianEvent(2.0)), 500),
            RepeatedEvent(LaplaceEvent(20.0), 10),
        )
    )
    return pld(event).epsilon(DELTA)


def dp_mixed() -> float:
    """Compose the same on dp-accounting's default grid."""
    from dp_accounting.pld import privacy_loss_distribution as reference

    first = reference.from_gaussian_mechanism(1.0, sampling_prob=0.01).self_compose(2000)
    second = reference.from_gaussian_mechanism(2.0, sampling_prob=0.03).self_compose(500)
    third = reference.from_laplace_mechanism(20.0).self_compose(10)
    return first.compose(second).compose(third).get_epsilon_for_delta(DELTA)


def fine_epsilon(q: float, z: float, steps: int, h: float) -> float:
    """Return dp-accounting's upper bound on a fine grid, the best reference there is."""
    from dp_accounting.pld import privacy_loss_distribution as reference

    fine = reference.from_gaussian_mechanism(z, sampling_prob=q, value_discretization_interval=h)
    return fine.self_compose(steps).get_epsilon_for_delta(DELTA)


def race(title: str, runners: dict[str, Callable[[], float]], rounds: int) -> None:
    """Let the runners take turns and print the time and the result of each."""
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
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=choose(5, 1))
    parser.add_argument("--no-calibration", action="store_true", help="leave out calibrations")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    installed = {
        name for name, module in PEERS.items() if has_peer(module, "pip install 'skprivacy[peers]'")
    }

    def compete(title: str, runners: dict[str, Callable[[], float]], rounds: int) -> None:
        race(title, {k: r for k, r in runners.items() if k in {"skprivacy", *installed}}, rounds)

    for q, z, steps in SETTINGS:
        compete(
            f"epsilon, q={q:.5f} z={z} T={steps}",
            {
                "skprivacy": partial(ours_epsilon, q, z, steps),
                "dp-accounting": partial(dp_epsilon, q, z, steps),
                "opacus prv": partial(opacus_epsilon, q, z, steps),
            },
            args.rounds,
        )
        if "dp-accounting" in installed:
            ours, fine = ours_epsilon(q, z, steps), fine_epsilon(q, z, steps, GRID)
            print(f"  above a grid of {GRID:g}: {ours / fine - 1:+.1e}")
    compete(
        "two rates and Laplace", {"skprivacy": ours_mixed, "dp-accounting": dp_mixed}, args.rounds
    )
    if not args.no_calibration:
        compete(
            f"noise for epsilon = 1, q=0.01 T={N_CALIBRATED}",
            {
                "skprivacy": partial(ours_calibration, 0.01, N_CALIBRATED),
                "dp-accounting": partial(dp_calibration, 0.01, N_CALIBRATED),
                "opacus prv": partial(opacus_calibration, 0.01, N_CALIBRATED),
            },
            max(1, args.rounds // 2),
        )


if __name__ == "__main__":
    main()
