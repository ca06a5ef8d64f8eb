"""The pool: balanced halves, copies kept together, any container, resumption."""

import os
import signal
import subprocess
import sys
import textwrap
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from joblib.parallel import get_active_backend
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import ThreadpoolController

from skprivacy._environment import blas_threads
from skprivacy.attacks import ShadowPool
from skprivacy.attacks import record_tables as _records
from skprivacy.attacks.model_answers import predict_aligned
from skprivacy.attacks.record_tables import fingerprints
from skprivacy.attacks.shadow_training import _safe_backend

pytestmark = pytest.mark.heavy


class Remembering(ClassifierMixin, BaseEstimator):
    """Remembers its training rows; sure of them and of nothing else. Takes no random_state."""

    def __init__(self, budget=None):
        self.budget = budget

    def fit(self, X, y):
        if self.budget is not None:
            raise AssertionError("a shadow model was charged")
        warnings.warn("as the target warned", UserWarning, stacklevel=2)
        self.rows_ = set(fingerprints(X).tolist())
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        known = np.isin(fingerprints(X), list(self.rows_))
        rest = 1 / len(self.classes_)
        proba = np.full((len(known), len(self.classes_)), rest)
        proba[known] = np.eye(len(self.classes_))[0]
        return proba


def records(n=40):
    return np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 3


def test_each_record_is_in_exactly_half_of_the_models():
    X, y = records(41)
    pool = ShadowPool(GaussianNB(), n_shadows=6, random_state=0).fit(X, y)
    trained, known = pool.membership(X)
    assert known.all()
    assert (trained.sum(0) == 3).all()
    assert (trained[0] != trained[1]).all()
    assert sorted(np.unique(trained.sum(1))) == [20, 21]


def test_copies_stay_together():
    X, y = records(20)
    X = np.r_[X, X, X[:5]]
    y = np.r_[y, y[::-1], y[:5]]  # the copies of a row have other classes: still copies
    pool = ShadowPool(Remembering(), n_shadows=4, random_state=1).fit(X, y)
    trained, _ = pool.membership(X)
    assert (trained[:, :20] == trained[:, 20:40]).all()
    assert (trained.sum(0) == 2).all()
    for model, row in zip(pool.estimators_, trained, strict=True):
        assert (np.isin(fingerprints(X), list(model.rows_)) == row).all()


def test_left_out_gives_all_rows_equally_many_models():
    X, y = records()
    pool = ShadowPool(GaussianNB(), n_shadows=4, random_state=0).fit(X, y)
    strangers = X + 1000

    def left_out(X):
        return pool._ask_models(X, np.zeros(len(X), dtype=int)).out

    assert left_out(strangers).all()
    assert (left_out(np.r_[X, strangers]).sum(0) == 2).all()
    known = left_out(np.r_[X, strangers])[:, : len(X)]
    assert (known == ~pool.membership(X)[0]).all()
    assert not pool.membership(strangers)[1].any()
    assert not pool.membership(strangers)[0].any()


def test_string_labels_and_classes_missing_in_a_half():
    X, y = records()
    y = np.where(y == 0, "oak", "elm").astype(object)
    y[7] = "rare"
    pool = ShadowPool(GaussianNB(), n_shadows=4, random_state=0).fit(X, y)
    assert pool.classes_.tolist() == ["elm", "oak", "rare"]
    trained = pool.membership(X[[7]])[0][:, 0]
    for proba, saw_it in zip(pool.iter_proba(X), trained, strict=True):
        assert proba.sum(1) == pytest.approx(np.ones(40))
        assert saw_it or (proba[:, 2] == 0).all()
    assert np.isfinite(pool.logits(X, y)).all()


@pytest.mark.parametrize("kind", ["array", "frame", "sparse"])
def test_large_tables_are_asked_about_in_parts(kind, monkeypatch):
    """A model may need several times the memory of a million records at once."""
    asked = []

    class Asked(GaussianNB):
        def predict_proba(self, X):
            asked.append(X.shape[0])
            return super().predict_proba(X.toarray() if kind == "sparse" else X)

    rng = np.random.default_rng(0)
    numbers, y = rng.integers(3, size=(50, 2)).astype(float), rng.integers(2, size=50)
    model = Asked().fit(numbers, y)
    X = {"array": numbers, "frame": pd.DataFrame(numbers), "sparse": sparse.csr_matrix(numbers)}[
        kind
    ]
    mixed = pd.DataFrame({"a": ["x", None, "1", 1, np.nan] * 10, "b": pd.Categorical(y)})
    records = mixed if kind == "frame" else X
    whole = predict_aligned(model, X, model.classes_), fingerprints(records)
    monkeypatch.setattr(_records, "_PART", 7)
    parts = predict_aligned(model, X, model.classes_), fingerprints(records)
    for part, once in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(part, once)
    assert asked == [50, *7 * [7], 1]


def test_fingerprints_compare_values():
    X = np.array([[1, 0], [1, 2], [1, 0]])
    base = fingerprints(X)
    assert base[0] == base[2] != base[1]
    for other in (
        X.astype(float),
        X.astype(np.float32),
        pd.DataFrame(X),
        np.array([[1, -0.0]] * 3),
    ):
        assert fingerprints(other)[0] == base[0]
    assert fingerprints(X.astype(object))[0] == fingerprints(X.astype(object))[2]
    text = pd.DataFrame({"a": ["u", "v"], "b": [1, 2]})
    assert (fingerprints(text) == fingerprints(text.astype({"a": "category"}))).all()
    assert (fingerprints(text) == fingerprints(text.astype({"b": float}))).all()
    assert fingerprints(np.array([["1"]], object)) != fingerprints(np.array([[1]], object))
    assert fingerprints(np.array([[np.nan, 1]])) == fingerprints(np.array([[np.nan, 1]]))


def test_missing_text_is_the_same_in_every_kind_of_column():
    text = pd.Series(["u", np.nan, "v", "u"], dtype=object)
    base = fingerprints(text.to_frame())
    assert base[0] == base[3]
    assert len(set(base.tolist())) == 3
    for kind in ("category", "string", "str" if pd.__version__ >= "3" else "category"):
        assert (fingerprints(text.astype(kind).to_frame()) == base).all()


def test_sparse_fingerprints_ignore_explicit_zeros():
    X = sparse.csr_matrix(np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
    X.data[2] = 0.0
    prints = fingerprints(X)
    assert prints[0] == prints[1]
    assert prints[2] == fingerprints(sparse.csr_matrix((1, 2)))[0]


def test_reproducible_and_different_models():
    X, y = records()
    model = MLPClassifier((4,), max_iter=3)
    for stacked in (True, False):
        pool = ShadowPool(model, n_shadows=2, random_state=3, stacked=stacked)
        one, two = (clone(pool).fit(X, y) for _ in range(2))
        assert (one.logits(X, y) == two.logits(X, y)).all()
    assert one.estimators_[0].random_state != one.estimators_[1].random_state
    assert model.random_state is None


def test_shadow_models_are_silent_and_never_charged():
    X, y = records()
    ShadowPool(Remembering(budget="mine"), n_shadows=2, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    "backend", [pytest.param("loky", marks=pytest.mark.slow), "threading", "multiprocessing"]
)
def test_any_backend_of_joblib(backend):
    X, y = records()
    pool = ShadowPool(DecisionTreeClassifier(), n_shadows=4, random_state=0)
    expected = clone(pool).fit(X, y).logits(X, y)
    with joblib.parallel_config(backend, n_jobs=2):
        assert (pool.fit(X, y).logits(X, y) == expected).all()


def run(code, **kwargs):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], **kwargs)


def test_no_fork_where_torch_is(monkeypatch):
    def backend():
        with _safe_backend():
            return type(get_active_backend()[0]).__name__, get_active_backend()[1]

    for torch_is_there in (True, False):
        if torch_is_there:
            monkeypatch.setitem(sys.modules, "torch", object())
        else:
            monkeypatch.delitem(sys.modules, "torch")
        with joblib.parallel_config("multiprocessing", n_jobs=3):
            found = backend()
        assert found == ("LokyBackend" if torch_is_there else "MultiprocessingBackend", 3)
        with joblib.parallel_config("threading", n_jobs=2):
            assert backend() == ("ThreadingBackend", 2)


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX")
def test_files_of_models_without_a_guarantee_are_for_their_owner_alone(tmp_path):
    ShadowPool(GaussianNB(), n_shadows=2, path=tmp_path / "pool").fit(*records())
    found = [tmp_path / "pool", *(tmp_path / "pool").iterdir()]
    assert len(found) == 4
    assert not any(path.stat().st_mode & 0o077 for path in found)


@pytest.mark.parametrize("plan", [None, "{", "[]", '{"content": "", "seed": "x"}'])
def test_models_without_their_plan_are_not_used_again(tmp_path, plan):
    """Taken for models of new halves, they would make every attack say that nothing leaks."""
    X, y = records()
    ShadowPool(GaussianNB(), n_shadows=2, path=tmp_path).fit(X, y)
    file = tmp_path / "pool.json"
    if plan is None:
        file.unlink()
    else:
        file.write_text(plan)
    with pytest.raises(ValueError, match=r"trained on.* Restore that file, pass another folder"):
        ShadowPool(GaussianNB(), n_shadows=2, path=tmp_path).fit(X, y)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("stacked", [False, True])
def test_resumes_after_a_real_kill(tmp_path, stacked):
    code = f"""
        import os, pathlib, signal
        import numpy as np
        from sklearn.neural_network import MLPClassifier
        from skprivacy.attacks import ShadowPool

        replace, folder = os.replace, pathlib.Path({str(tmp_path)!r})

        def die_before_the_third(unfinished, file):
            if len(list(folder.glob("*.joblib"))) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(unfinished, file)

        os.replace = die_before_the_third

        X, y = np.arange(400.0).reshape(200, 2) / 400, np.arange(200) % 3
        net = MLPClassifier((50,), max_iter=20, tol=0.0, n_iter_no_change=20)
        pool = ShadowPool(net, n_shadows=6, path={str(tmp_path)!r}, stacked={stacked})
        pool.fit(X, y)
    """
    process = run(code, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.wait(timeout=300) == -signal.SIGKILL
    there = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.joblib")}
    assert len(there) == 2
    (draft,) = (file for file in tmp_path.glob(".*"))  # written, and not yet in its place
    assert draft.stat().st_size > 1000
    X, y = np.arange(400.0).reshape(200, 2) / 400, np.arange(200) % 3
    net = MLPClassifier((50,), max_iter=20, tol=0.0, n_iter_no_change=20)
    pool = ShadowPool(net, n_shadows=6, path=tmp_path, stacked=stacked)
    for changed, rows in (({}, X[::-1]), ({"estimator": GaussianNB()}, X), ({"n_shadows": 4}, X)):
        with pytest.raises(
            ValueError, match="of other records, of another estimator, or of a pool"
        ):
            clone(pool).set_params(**changed, stacked="auto").fit(rows, y)
    (tmp_path / "shadow_0005.joblib.1").write_bytes(b"half a file")  # left by a kill
    pool.fit(X, y)
    assert {file: file.stat().st_mtime_ns for file in there} == there  # none trained again
    assert (pool.membership(X)[0].sum(0) == 3).all()  # the seed was kept
    assert np.isfinite(pool.logits(X, y)).all()


def test_memory_of_the_last_answer_knows_its_question():
    X, y = records()
    pool = ShadowPool(GaussianNB(), n_shadows=2, random_state=0).fit(X, y)
    first = pool.logits(X, y)
    assert pool.logits(X, y) is first
    assert (pool.logits(X, (y + 1) % 3) != first).any()
    assert (pool.logits(X[::-1], y[::-1]) == first[:, ::-1]).all()


def test_labels_the_pool_never_saw_have_no_probability():
    X, y = records()
    pool = ShadowPool(GaussianNB(), n_shadows=2, random_state=0).fit(X, y)
    assert (pool.logits(X[:1], [9]) < -20).all()


@pytest.mark.parametrize(
    ("change", "X", "y", "word"),
    [
        ({"n_shadows": 3}, *records(), "even"),
        ({}, np.ones((40, 2)), records()[1], "distinct rows"),
        ({}, records()[0], np.zeros(40), "y has only one class.* such as LossThreshold"),
        ({}, records()[0], np.r_[1, np.zeros(39)], "too rare"),
        ({}, records()[0], records()[1][:7], "inconsistent"),
        ({}, records()[0], np.linspace(0, 1, 40), "label type"),
    ],
)
def test_bad_input_is_named(change, X, y, word):
    pool = ShadowPool(GaussianNB(), n_shadows=2, random_state=0).set_params(**change)
    with pytest.raises(ValueError, match=word):
        pool.fit(X, y)


class TellsThreads(DecisionTreeClassifier):
    """It keeps how many threads linear algebra had while it was fitted."""

    def fit(self, X, y):
        self.threads_ = blas_threads()
        return super().fit(X, y)


def test_linear_algebra_of_shadow_models_has_one_thread():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        assert blas_threads() == 2
        pool = ShadowPool(TellsThreads(), n_shadows=4, random_state=0).fit(*records())
        assert {model.threads_ for model in pool.estimators_} == {1}
        assert blas_threads() == 2
