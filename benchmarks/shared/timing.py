"""Times of competitors that take turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable

__all__ = ["describe_load", "measure_medians", "processor_seconds"]


def measure_medians(
    steps: dict[str, Callable[[], object]],
    rounds: int,
    seconds: float = 0.03,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return seconds per step: in each round every competitor runs for about ``seconds``."""
    repeats = {}
    for name, step in steps.items():
        step()
        start = clock()
        step()
        repeats[name] = max(1, round(seconds / max(1e-6, clock() - start)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = clock()
            for _ in range(repeats[name]):
                step()
            times[name].append((clock() - start) / repeats[name])
    return {name: statistics.median(t) for name, t in times.items()}


def describe_load() -> str:
    """Return the load of the machine: where all cores are busy, wall time means little."""
    lately, earlier, _ = os.getloadavg()
    return f"load {lately:.1f} (5 minutes: {earlier:.1f}) on {os.cpu_count()} cores"


def processor_seconds() -> float:
    """Return the processor time of this process and of its workers that have ended."""
    of_both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in of_both)
