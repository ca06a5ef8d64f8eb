"""Short operations take one thread: on a busy machine several wait for one another in each."""

from __future__ import annotations

import ast
import re
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from threadpoolctl import ThreadpoolController  # noqa: E402

import skprivacy  # noqa: E402
from skprivacy._environment import MUCH_WORK, blas_threads, one_thread, threads_for  # noqa: E402
from skprivacy.attacks import (  # noqa: E402
    GradientInversion,
    LabeledRecords,
    QuantileAttack,
    WhiteBoxAttack,
    party_gradient,
)
from skprivacy.ensemble.students import fit_student  # noqa: E402
from skprivacy.ensemble.teachers import collect_votes  # noqa: E402
from skprivacy.label_privacy import RandomizedResponseClassifier  # noqa: E402
from skprivacy.linear_model import OutputPerturbationClassifier  # noqa: E402
from skprivacy.linear_model import logistic_regression as _logistic  # noqa: E402
from skprivacy.model_selection.sweep_records import Records, Split  # noqa: E402
from skprivacy.model_selection.sweep_runner import SplitModel, fit_baseline  # noqa: E402
from skprivacy.neural_network import SCARFEncoder, VATStudent  # noqa: E402

X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with ThreadpoolController().limit(limits=2):
        yield
        assert (torch.get_num_threads(), blas_threads()) == (2, 2)
    torch.set_num_threads(before)


def student():
    some = np.where(np.arange(60) < 30, Y, -1)
    return partial(VATStudent(epochs=1, random_state=0).fit, X, some)


def encoder():
    return partial(SCARFEncoder(2, epochs=1, batch_size=30, random_state=0).fit, X)


def white_box():
    net = MLPClassifier((4,), max_iter=300, random_state=0, tol=0.1).fit(X[:30], Y[:30])
    return partial(WhiteBoxAttack(net, epochs=1, random_state=0).fit, X, Y, np.arange(60) < 30)


def inversion():
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    attack = GradientInversion(net, max_iter=2, n_init=1, random_state=0).fit(X, Y)
    gradient = party_gradient(net, X[:2], Y[:2])
    return partial(attack.reconstruct, gradient, 2, Y[:2])


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("make", [student, encoder, white_box, inversion])
def test_small_networks_take_one_thread(make):
    train, seen, run = make(), set(), torch.autograd.graph._engine_run_backward

    def watched(*args, **kwargs):
        seen.add(torch.get_num_threads())
        return run(*args, **kwargs)

    with (
        mock.patch("torch.autograd._engine_run_backward", watched),
        mock.patch("torch.autograd.graph._engine_run_backward", watched),
    ):
        train()
    assert seen == {1}


@pytest.mark.parametrize(("many", "threads"), [(1 << 23, 1), (60, 2)])
def test_short_products_of_a_solver_take_one_thread(many, threads, monkeypatch):
    monkeypatch.setattr(_logistic, "_MIN_THREADED_SIZE", many)
    seen, gradient = set(), _logistic.LogisticLoss.gradient

    def watched(self, *args):
        seen.add(blas_threads())
        return gradient(self, *args)

    monkeypatch.setattr(_logistic.LogisticLoss, "gradient", watched)
    OutputPerturbationClassifier(bounds=(-3, 3), classes=[0, 1]).fit(X, Y)
    assert seen == {threads}


def all_threads():
    return {(pool["user_api"], pool["num_threads"]) for pool in ThreadpoolController().info()}


ONE = {("blas", 1), ("openmp", 1)}


def teachers(X, Y):
    parts, both = np.arange(60) % 2, np.arange(2)
    return partial(collect_votes, LogisticRegression(), X, Y, parts, 2, X, both, both)


def student_of_votes(X, Y):
    return partial(fit_student, LogisticRegression(), X, np.where(np.arange(60) < 30, Y, -1))


def responses(X, Y):
    return partial(RandomizedResponseClassifier(epsilon=1.0, classes=[0, 1]).fit, X, Y)


def quantiles(X, Y):
    return partial(QuantileAttack(LogisticRegression().fit(X, Y)).fit, LabeledRecords(X, Y))


def baseline(X, Y):
    split = Split(*[Records(X, Y)] * 3)
    trees = HistGradientBoostingClassifier(max_iter=1)
    return partial(fit_baseline, SplitModel(trees, split), {}, None, "trees", False)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (teachers, LogisticRegression),
        (student_of_votes, LogisticRegression),
        (responses, LogisticRegression),
        (quantiles, HistGradientBoostingRegressor),
        (baseline, HistGradientBoostingClassifier),
    ],
)
def test_estimators_of_few_numbers_take_one_thread(make, kind, monkeypatch):
    train, seen, fit = make(X, Y), set(), kind.fit

    def watched(self, *args, **kwargs):
        seen.update(all_threads())
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(kind, "fit", watched)
    train()
    assert seen == ONE


class VotesByThreads(ClassifierMixin, BaseEstimator):
    """Votes by the number of threads, on which the rounding of a product depends."""

    def fit(self, X, y):
        self.threads_ = blas_threads()
        return self

    def predict(self, X):
        return np.full(len(X), int(self.threads_ > 1))


def test_one_more_record_changes_no_other_teachers_threads():
    """Three and four rows of 2**22 numbers lie below and at 2**23 numbers for each teacher."""
    votes = []
    for n in (3, 4):
        rows = np.broadcast_to(np.int8(0), (n, 1 << 22))
        parts, labels, both = np.arange(n) // 2, np.arange(n) % 2, np.arange(2)
        found = collect_votes(VotesByThreads(), rows, labels, parts, 2, X, both, both)
        votes.append(found[0])
    np.testing.assert_array_equal(*votes)


# Each function of private code in which a number of rows or numbers chooses the threads, and why it
# may: the number of threads decides how sums round.
CHOOSES_THREADS = {
    "_stacked/scheduling.py predict_proba": "queries",
    "ensemble/student_classifier.py choose_queries": "public records",
    "ensemble/students.py fit_student": "public records",
    "ensemble/teachers.py check_teacher": "public records",
    "label_privacy/posterior.py fit_on_weights": "features, which are public under label privacy",
    "linear_model/logistic_regression.py minimize": "its rounding is within the counted tolerance",
    "neural_network/network.py _outputs": "predictions",
    "neural_network/semi_supervised.py fit": "public records",
    "neural_network/_training/engine.py run": "the expected size of a batch, which is public",
    "neural_network/contrastive.py _train": "public records",
}
PRIVATE_CODE = (
    "_stacked", "ensemble", "federated", "fine_tuning", "label_privacy", "linear_model",
    "mechanisms", "neural_network", "preprocessing", "synthesis",
)  # fmt: skip


THREADS = re.compile(r"\b(one_\w*thread|single_thread|threads_for)\(")


def choosing_threads(source):
    """Yield the functions that ask for threads by a number, or under a condition."""
    if not THREADS.search(source):
        return
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            branch = ast.unparse(node) if isinstance(node, (ast.If, ast.IfExp)) else ""
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if THREADS.search(branch) or called in ("one_thread", "threads_for"):
                yield function.name
                break


def test_a_private_number_of_records_chooses_no_threads():
    root = Path(skprivacy.__file__).parent
    files = [file for package in PRIVATE_CODE for file in sorted((root / package).rglob("*.py"))]
    found = {
        f"{file.relative_to(root).as_posix()} {name}"
        for file in files
        for name in choosing_threads(file.read_text())
    }
    assert found == set(CHOOSES_THREADS)


def test_many_numbers_take_all_threads():
    before = all_threads()
    with one_thread(5, worth=6):
        assert all_threads() == ONE
        with one_thread(6, worth=6):  # what is around it decides
            assert all_threads() == ONE
    with one_thread(6, worth=6):
        assert all_threads() == before
    with pytest.raises(KeyboardInterrupt), one_thread(1):
        raise KeyboardInterrupt
    assert all_threads() == before


def test_long_passes_and_convolutions_take_all_threads():
    linear = torch.nn.Linear(63, 64)
    with threads_for(linear, MUCH_WORK / 4096 - 1):
        assert torch.get_num_threads() == 1
    with threads_for(linear, MUCH_WORK / 4096):
        assert torch.get_num_threads() == 2
    with threads_for(torch.nn.Conv1d(1, 1, 3), 1):
        assert torch.get_num_threads() == 2
    with pytest.raises(KeyboardInterrupt), threads_for(linear, 1):
        raise KeyboardInterrupt
