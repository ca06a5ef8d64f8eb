"""Helpers shared by the tests of budgets."""

import subprocess
import sys
import textwrap

from sklearn.base import BaseEstimator, ClassifierMixin

from skprivacy.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    RepeatedEvent,
    calibrate_noise_multiplier,
)
from skprivacy.base import reserve_release


def run_script(code, *arguments, **options):
    """Run a program in another process; return its exit status and what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": 300, "check": False, **options}
    return subprocess.run(command, **options)


def sgd(epsilon, delta=1e-6):
    def make(z):
        return RepeatedEvent(PoissonSampledEvent(0.05, GaussianEvent(z)), 100)

    return make(calibrate_noise_multiplier(make, epsilon, delta))


class Charged(ClassifierMixin, BaseEstimator):
    """A classifier that does nothing but pay."""

    def __init__(self, *, scale=10.0, budget=None, fail=False):
        self.scale = scale
        self.budget = budget
        self.fail = fail

    def fit(self, X, y):
        with reserve_release(self.budget, LaplaceEvent(self.scale), source="Charged"):
            if self.fail:
                raise RuntimeError("no luck")
            self.classes_ = [0, 1]
        return self

    def predict(self, X):
        return [0] * len(X)


X, Y = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], [0, 1, 0, 1, 0, 1]


def verify_ledger(path):
    """Verify a ledger as a process does that knows its last digest."""
    budget = PrivacyBudget.open(path)
    return budget.verify(budget.digest)


def scopes_in(scope, depth):
    """Return the scope with all scopes and partitions in it."""
    inner = [scope.scope("a"), scope.scope("b"), scope.partition("1"), scope.partition("2")]
    return [scope] + [p for i in inner if depth for p in scopes_in(i, depth - 1)]


def parts_of(scope):
    """Return where the keys of partitions are in a path."""
    return [i for i, letter in enumerate(scope) if letter == "="]


def lies_in(scope, mine):
    return all(mine[scope[: scope.rindex("/", 0, i) + 1]] == scope[i + 1] for i in parts_of(scope))
