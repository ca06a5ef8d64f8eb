"""Processor time of each test: ``pytest -p tests.tools.cpu_durations``.

Wall time tells how busy the machine is; processor time, with that of the processes that a test
starts, tells what the test costs. With ``--cpu-durations=FILE`` every test's cost is written to the
file as one line of tab-separated values, most expensive first.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
COSTS: dict[str, float] = defaultdict(float)


def pytest_addoption(parser):
    parser.addoption("--cpu-durations", metavar="FILE", help="where the cost of each test goes")


def spent() -> float:
    """Return the processor time of this process, of its dead children and of those alive."""
    parents, costs = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        # user and system time, the process's own and that of the children it has waited for
        costs[pid] = sum(int(field) for field in fields[11:15]) / TICKS
    family = {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= new
    return sum(costs[pid] for pid in family)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    before = spent()
    result = yield
    COSTS[item.nodeid] += spent() - before
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    path = session.config.getoption("--cpu-durations")
    if hasattr(session.config, "workerinput"):
        session.config.workeroutput["cpu_durations"] = dict(COSTS)
    elif path:
        rows = sorted(COSTS.items(), key=lambda row: -row[1])
        Path(path).write_text("".join(f"{cost:.2f}\t{name}\n" for name, cost in rows))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Collect what a worker of pytest-xdist has measured."""
    COSTS.update(getattr(node, "workeroutput", {}).get("cpu_durations", {}))
