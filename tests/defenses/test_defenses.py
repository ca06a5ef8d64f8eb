"""Output defences: what they show, and that nobody calls it private."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, LabelOnlyAttack, LiRA, ShadowPool
from skprivacy.audit import claim_of
from skprivacy.datasets import make_membership_benchmark
from skprivacy.defenses import CoarsenedClassifier, MemGuardClassifier
from skprivacy.defenses.memguard import _attack_logit
from skprivacy.linear_model import OutputPerturbationClassifier

X, y = make_blobs(300, centers=4, cluster_std=3.0, random_state=0)
DEFENCES = [
    MemGuardClassifier(LogisticRegression(), random_state=0),
    CoarsenedClassifier(LogisticRegression(), decimals=1),
    CoarsenedClassifier(LogisticRegression(), temperature=5.0),
    CoarsenedClassifier(LogisticRegression(), top_k=1),
]
KINDS = ["memguard", "decimals", "temperature", "top_k"]


def raw(defended):
    return defended.estimator_.predict_proba(X)


@pytest.mark.heavy
@pytest.mark.parametrize("defence", DEFENCES, ids=KINDS)
def test_probabilities_stay_probabilities_and_nothing_is_claimed(defence):
    model = clone(defence).fit(X, y)
    shown = model.predict_proba(X)
    assert (shown >= 0).all()
    np.testing.assert_allclose(shown.sum(axis=1), 1)
    assert not np.allclose(shown, raw(model))
    np.testing.assert_array_equal(model.predict(X), model.classes_[shown.argmax(axis=1)])
    if getattr(model, "decimals", None) is None:
        np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))
    said = f"no claim: {type(model).__name__} changes what the model shows, but proves nothing"
    assert claim_of(model).reason == said
    assert claim_of(make_pipeline(model).fit(X, y)).reason == said


@pytest.mark.parametrize("defence", DEFENCES, ids=KINDS)
def test_a_defence_around_a_private_model_claims_nothing_either(defence):
    private = OutputPerturbationClassifier(
        epsilon=1.0, classes=[0, 1, 2, 3], bounds=(-15, 15), noise_seed=None
    )
    model = clone(defence).set_params(estimator=private).fit(X, y)
    assert claim_of(model).guarantee is None
    assert claim_of(model).reason.startswith("no claim")


def test_temperature_divides_log_odds_and_can_be_undone():
    model = CoarsenedClassifier(LogisticRegression(), temperature=4.0).fit(X, y)
    undone = model.predict_proba(X) ** 4.0
    np.testing.assert_allclose(undone / undone.sum(axis=1, keepdims=True), raw(model), atol=1e-12)
    certain = CoarsenedClassifier(DecisionTreeClassifier(), temperature=1e-3).fit(X, y)
    np.testing.assert_allclose(certain.predict_proba(X), raw(certain))


@pytest.mark.parametrize("k", [1, 2, 4, 9])
def test_the_likeliest_are_shown_and_the_others_share_the_rest(k):
    model = CoarsenedClassifier(LogisticRegression(), top_k=k).fit(X, y)
    shown, true = np.sort(model.predict_proba(X), axis=1), np.sort(raw(model), axis=1)
    np.testing.assert_allclose(shown[:, -k:], true[:, -k:])
    assert (np.ptp(shown[:, :-k], axis=1) < 1e-12).all() if k < 4 else True


def test_rounded_probabilities_are_those_of_the_model_rounded():
    model = CoarsenedClassifier(LogisticRegression(), decimals=1).fit(X, y)
    rounded = raw(model).round(1)
    np.testing.assert_allclose(model.predict_proba(X), rounded / rounded.sum(axis=1, keepdims=True))
    all_three = clone(model).set_params(temperature=4.0, top_k=2).fit(X, y)
    softer = CoarsenedClassifier(LogisticRegression(), temperature=4.0, top_k=2).fit(X, y)
    np.testing.assert_array_equal(
        all_three.predict_proba(X), model._disguise(softer.predict_proba(X))
    )
    many = np.full((1, 30), 1 / 31)
    many[0, 7] = 2 / 31
    assert model._disguise(many).argmax() == 7
    assert model._disguise(many).max() == 1.0


def test_the_gradient_of_the_defenders_attack_is_right():
    random = np.random.default_rng(0)
    net = MLPClassifier((7, 5), tol=1e9, random_state=0)  # any weights will do
    net.fit(np.sort(random.dirichlet(np.ones(4), 200), axis=1), random.integers(2, size=200))
    for row in random.dirichlet(np.ones(4), 20):
        error = check_grad(
            lambda p: _attack_logit(p[None], net)[0][0],
            lambda p: _attack_logit(p[None], net)[1][0],
            row,
        )
        assert error < 1e-5
    rows = random.dirichlet(np.ones(4), 50)
    odds = np.exp(_attack_logit(rows, net)[0])
    believed = net.predict_proba(np.sort(rows, axis=1))[:, 1]
    np.testing.assert_allclose(odds / (1 + odds), believed, rtol=1e-9)


@pytest.fixture(scope="module")
def leaking():
    """Records of Location's look-alike, and a network that learned half of 800 by heart."""
    rows, labels = make_membership_benchmark("location30", 1600, random_state=0, return_X_y=True)
    rows = np.asarray(rows, dtype=float)
    net = MLPClassifier((64,), max_iter=60, n_iter_no_change=60, random_state=0)
    guarded = MemGuardClassifier(net, max_distortion=2.0, validation_fraction=0.5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        guarded.fit(rows[:800], labels[:800])
    return rows[::5], guarded


@pytest.mark.slow
def test_memguard_makes_the_defenders_attack_guess_and_no_other(leaking):
    rows, guarded = leaking
    true, shown = guarded.estimator_.predict_proba(rows), guarded.predict_proba(rows)
    told = guarded.attack_.predict(np.sort(true, axis=1))
    left = guarded.attack_.predict_proba(np.sort(shown, axis=1))[:, 1]
    changed = np.abs(shown - true).sum(axis=1) > 0
    assert changed.mean() > 0.9
    turned = (left[changed] > 0.5) != told[changed]
    assert (turned | (np.abs(left[changed] - 0.5) < 0.01)).all()
    np.testing.assert_array_equal(shown, guarded.predict_proba(rows))  # asked twice, told the same
    np.testing.assert_allclose(shown[:5], guarded.predict_proba(rows[:5]), atol=1e-5)


@pytest.mark.slow
def test_memguard_keeps_its_distortion_on_average(leaking):
    rows, guarded = leaking
    sizes = []
    for allowed in (0.0, 0.1, 0.3):
        less = clone(guarded).set_params(max_distortion=allowed)
        vars(less).update(
            {k: v for k, v in vars(guarded).items() if k.endswith("_") or k == "_key"}
        )
        true, shown = less.estimator_.predict_proba(rows), less.predict_proba(rows)
        sizes.append(np.abs(shown - true).sum(axis=1).mean())
    assert sizes[0] == 0
    # a mean of 320 sizes of at most 2, of 0.1 in expectation: the coins are seeded
    assert sizes[1] < 0.1 + 5 * np.sqrt(2 * 0.1 / 320)
    assert sizes[0] < sizes[1] < sizes[2]


NET = LogisticRegression(C=30.0, tol=1e-2, max_iter=1000)  # learns 300 records by heart


@pytest.fixture(scope="module")
def attacked():
    rows, labels = make_membership_benchmark("location30", 600, random_state=0, return_X_y=True)
    return np.asarray(rows, dtype=float)[:, :200], labels


def found(attack, target, attacked):
    """Return the area under the curve of an attack on a model of the first half."""
    rows, labels = attacked
    records = LabeledRecords(rows, labels)
    attack.set_params(target=target).fit(records)
    return attack.evaluate(records[:300], records[300:]).auc


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "defence",
    [
        CoarsenedClassifier(NET, temperature=20.0),
        CoarsenedClassifier(NET, top_k=1),
        CoarsenedClassifier(NET, decimals=1),
        CoarsenedClassifier(NET, decimals=0),
    ],
    ids=["temperature", "top", "decimal", "label"],
)
def test_no_defence_survives_an_attacker_who_adapts(attacked, defence):
    rows, labels = attacked
    target = clone(defence).fit(rows[:300], labels[:300])
    alike = ShadowPool(defence, n_shadows=8, random_state=0)
    assert found(LiRA(pool=alike, online=True), target, attacked) > 0.95
    labels_alone = LabelOnlyAttack(method="boundary", n_queries=50)
    assert found(labels_alone, target, attacked) > 0.9


@pytest.mark.slow
def test_memguard_predicts_without_noise_what_it_would_with_it(leaking, monkeypatch):
    rows, guarded = leaking
    shown = guarded.predict_proba(rows)
    monkeypatch.setattr("skprivacy.defenses.memguard._least_noise", None)  # fails if it is called
    expected = guarded.classes_[shown.argmax(axis=1)]
    np.testing.assert_array_equal(guarded.predict(rows), expected)


@pytest.mark.heavy
def test_memguard_predicts_by_what_it_shows_where_rounding_decides():
    class AlmostEven(LogisticRegression):
        """Of two classes the second is ahead by less than rounding leaves."""

        def predict_proba(self, X):
            return np.tile([0.5 - 1e-9, 0.5 + 1e-9], (len(X), 1))

    guarded = MemGuardClassifier(AlmostEven(), max_distortion=2.0, random_state=0).fit(X, y % 2)
    expected = guarded.predict_proba(X).argmax(axis=1)
    np.testing.assert_array_equal(guarded.predict(X), expected)
