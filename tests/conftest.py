"""Nothing that a test does may depend on luck that is not what the test is about.

What is drawn without a seed by numpy's and torch's global generators, as scikit-learn's estimators
and torch's layers do, is the same in every run and in every order of the tests. Private noise is
not: it is fresh each time, and a test of it says how often it fails by chance, less than once in a
million runs.
"""

from __future__ import annotations

import gc
import os
import random
import re
import sys
from collections import Counter, defaultdict
from importlib.util import find_spec

# Tests run in as many processes as there are cores. Threads on top of that would wait for one
# another; a test that is about threads sets their number itself. Before numpy and torch ask.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, however slow the machine. --hypothesis-profile=default seeks more.
settings.register_profile(
    "everyday", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("everyday")

WITHOUT_NETWORKS = not all(map(find_spec, ("torch", "skorch")))
NEEDS_NETWORKS = re.compile(r"No module named '(torch|skorch)\b|skprivacy\[torch\]")

HEAVY_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.heavy\b", flags=re.MULTILINE)


def leaves_out_heavy(config):
    """Return whether this is the inner loop, which does not collect what it leaves out."""
    return "not heavy" in config.option.markexpr


def pytest_ignore_collect(collection_path, config):
    if leaves_out_heavy(config) and collection_path.suffix == ".py":
        return True if HEAVY_FILE.search(collection_path.read_text()) else None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector, obj):
    marks = getattr(obj, "pytestmark", [])
    marks = marks if isinstance(marks, list) else []  # an imported module may have a single one
    heavy = leaves_out_heavy(collector.config) and any(mark.name == "heavy" for mark in marks)
    return [] if heavy else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark as slow, before pytest selects by marks, what combines anew what is run every day.

    Of a test with several lists of parameters, every value of each list is run every day, but not
    with every value of the others. ``pytest.mark.everyday(n)`` on the test leaves n cases of these
    that are spread evenly; without a number, on a case, it runs the case every day. The inner loop
    runs two cases of a test.
    """
    quick = leaves_out_heavy(config)
    functions = defaultdict(list)
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if hasattr(item, "callspec") and "slow" not in marks and not (quick and "heavy" in marks):
            functions[item.parent, item.originalname].append(item)
    for cases in functions.values():
        marks = {case: [mark.args for mark in case.iter_markers("everyday")] for case in cases}
        limit = min([n for args in marks[cases[0]] for n in args], default=len(cases))
        always = set() if quick else {case for case in cases if () in marks[case]}
        chosen = covering([case for case in cases if case not in always])
        limit = min(limit, len(chosen), 2 if quick else len(chosen))
        chosen = [chosen[len(chosen) * k // limit] for k in range(limit)]
        for case in set(cases) - always - set(chosen):
            case.add_marker(pytest.mark.slow)


def covering(cases):
    """Return cases, few, in which every value of every list occurs, about equally often."""
    if not cases or len(cases[0].callspec._idlist) == 1:
        return cases
    values = {case: set(enumerate(case.callspec._idlist)) for case in cases}
    rest, missing = list(cases), set().union(*values.values())
    chosen, used = [], Counter()
    while missing:
        best = max(
            rest,
            key=lambda case: (len(missing & values[case]), -sum(used[v] for v in values[case])),
        )
        chosen.append(best)
        rest.remove(best)
        used.update(values[best])
        missing -= values[best]
    return sorted(chosen, key=cases.index)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip the files that import torch where the extra is missing; other tests ask for it."""
    report = yield
    if report.failed and WITHOUT_NETWORKS and NEEDS_NETWORKS.search(str(report.longrepr)):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, "Skipped: the extra for networks is missing")
    return report


def pytest_collection_finish():
    """Let no garbage collection walk again through all that the imports have made."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before the fixtures, so that it is those too that begin alike."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the legacy state is what estimators fall back on
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
