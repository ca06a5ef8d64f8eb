"""Stacked training is MLPClassifier's, several side by side."""

import warnings

import numpy as np
import pytest
from joblib import Parallel, parallel_config
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skprivacy._stacked import scheduling as training
from skprivacy._stacked import train_stacked
from skprivacy._stacked.stacked_mlp import batches_of_epoch
from skprivacy.attacks import ShadowPool


def problem(n_classes, n=400):
    return make_classification(
        n, 12, n_informative=8, n_classes=n_classes, n_clusters_per_class=1, random_state=0
    )


def start_from(net, X, y, layers):
    """Return ``net`` trained by scikit-learn in full batches from the given weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        own = clone(net).set_params(max_iter=1, warm_start=True).fit(X, y)
        own.coefs_[:] = [weight.astype(float) for weight, _ in layers]
        own.intercepts_[:] = [bias.astype(float) for _, bias in layers]
        del own._optimizer  # its moments and the best loss belong to the discarded first step
        own.best_loss_ = np.inf
        return own.set_params(max_iter=net.max_iter).fit(X, y)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_equals_scikit_learn_step_by_step(n_classes, activation):
    # full batches in the order given leave nothing to chance but the initial weights
    X, y = problem(n_classes, 200)
    net = MLPClassifier(
        (8, 5), activation=activation, shuffle=False, batch_size=200, max_iter=40, alpha=1.0
    ).set_params(n_iter_no_change=1000)
    rows = [np.arange(200)]
    untrained = clone(net).set_params(max_iter=1, learning_rate_init=1e-30)
    (start,) = train_stacked(untrained, X, y, rows, [7])
    (stacked,) = train_stacked(net, X, y, rows, [7])
    own = start_from(net, X, y, start.layers)
    assert stacked.predict_proba(X) == pytest.approx(own.predict_proba(X), abs=2e-4)


def test_members_do_not_mix():
    X, y = problem(3)
    net = MLPClassifier((6,), max_iter=20, batch_size=64)
    rows = [np.arange(150), np.arange(230, 400), np.arange(0, 400, 3)]  # three steps each
    together = train_stacked(net, X, y, rows, [1, 2, 3], n_jobs=1)
    for place, chosen in enumerate(rows):
        (alone,) = train_stacked(net, X, y, [chosen], [place + 1])
        difference = together[place].predict_proba(X) - alone.predict_proba(X)
        assert np.abs(difference).max() < 1e-4


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("backend", ["multiprocessing", "threading", "loky"])
def test_jobs_change_nothing(backend, monkeypatch, tmp_path):
    monkeypatch.setattr(training, "_MIN_PROCESS_WORK", 0)
    X, y = problem(3)
    pool = ShadowPool(MLPClassifier((6,), max_iter=5), n_shadows=6, random_state=0, stacked=True)
    with parallel_config(backend, n_jobs=2):
        several = clone(pool).set_params(path=tmp_path).fit(X, y)
    assert len(list(tmp_path.glob("shadow_*.joblib"))) == 6  # saved on the way
    alone = pool.set_params(n_jobs=1).fit(X, y)
    assert several.logits(X, y) == pytest.approx(alone.logits(X, y), abs=1e-3)


def test_little_work_starts_no_processes(monkeypatch):
    X, y = problem(3)
    asked = []

    def parallel(n_jobs, prefer, return_as):
        asked.append((n_jobs, prefer))
        return Parallel(n_jobs=1, return_as=return_as)

    monkeypatch.setattr(training, "Parallel", parallel)
    net = MLPClassifier((2,), max_iter=1)
    train_stacked(net, X, y, [np.arange(400)] * 4, range(4), n_jobs=2)
    monkeypatch.setattr(training, "_MIN_PROCESS_WORK", 0)
    train_stacked(net, X, y, [np.arange(400)] * 4, range(4), n_jobs=2)
    with parallel_config("threading", n_jobs=3):
        train_stacked(net, X, y, [np.arange(400)] * 4, range(4))
    assert asked == [(2, "threads"), (2, "processes"), (3, "processes")]


@pytest.mark.heavy
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_on_the_way_is_raised(n_jobs, monkeypatch):
    monkeypatch.setattr(training, "_MIN_PROCESS_WORK", 0)
    monkeypatch.setattr(
        training, "_MODELS_PER_PROCESS", 1
    )  # the last is prepared when others are trained
    X, y = problem(2)
    rows = [np.arange(400)] * 20 + [np.arange(0)]  # the last model has no records
    net = make_pipeline(StandardScaler(), MLPClassifier((2,), max_iter=2))
    trained = []
    with pytest.raises(ValueError, match="minimum of 1"):
        train_stacked(
            net, X, y, rows, range(21), n_jobs=n_jobs, done=lambda place, _: trained.append(place)
        )
    assert trained == list(range(20))


@pytest.mark.parametrize("counts", [[7], [150, 171, 134], [3, 40], [64, 64]])
def test_every_record_is_in_one_batch_of_its_own_member(counts):
    rng = np.random.default_rng(0)
    batches = list(batches_of_epoch([rng.permutation(count) for count in counts], 64))
    for member, count in enumerate(counts):
        own = [chosen[member] for chosen in batches]
        assert sorted(np.concatenate(own)) == list(range(count))
        assert 1 <= min(map(len, own)) <= max(map(len, own)) <= 64


def test_stops_as_scikit_learn_does():
    X, y = problem(2)
    net = MLPClassifier((4,), max_iter=1000, tol=1.0, n_iter_no_change=2, batch_size=400)
    three = clone(net).set_params(max_iter=4)
    one, other = (train_stacked(each, X, y, [np.arange(400)], [0])[0] for each in (net, three))
    # no epoch improves by 1.0 after the first: 1 + 2 + 1 epochs are trained
    assert one.predict_proba(X) == pytest.approx(other.predict_proba(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("stacked", [True, False])
def test_progress_is_shown_when_asked(stacked, capsys):
    """One bar for all models; joblib's own words, which name no end, were there beside it."""
    X, y = problem(3)
    pool = ShadowPool(MLPClassifier((2,), max_iter=1), n_shadows=2, stacked=stacked)
    pool.fit(X, y)
    assert capsys.readouterr().err == ""
    pool.set_params(verbose=1).fit(X, y)
    shown = capsys.readouterr()
    assert "shadow models: 100%" in shown.err
    assert "Parallel" not in shown.err + shown.out


@pytest.mark.parametrize(
    "estimator",
    [
        MLPClassifier(solver="lbfgs"),
        MLPClassifier(early_stopping=True),
        make_pipeline(StandardScaler()),
    ],
)
def test_unstackable_models_are_reported(estimator):
    with pytest.raises(ValueError, match="stacked=False"):
        ShadowPool(estimator, n_shadows=2, stacked=True).fit(*problem(2))


def test_members_may_know_different_categories():
    X, y = problem(2)
    X = np.c_[X[:, :1] > 0, np.arange(400) // 3]  # each half has categories of its own
    net = make_pipeline(OneHotEncoder(handle_unknown="ignore"), MLPClassifier((2,), max_iter=1))
    pool = ShadowPool(net, n_shadows=4, random_state=0, stacked=True).fit(X, y)
    assert len({len(model.layers[0][0]) for model in pool.estimators_}) > 1
    assert np.isfinite(pool.logits(X, y)).all()
