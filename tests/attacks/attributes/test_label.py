"""LabelInferenceAttack: labels, not features, and fair coins."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import PrivacyGuarantee
from skprivacy.accounting.events import RandomizedResponseEvent
from skprivacy.attacks import AttackResult, LabelInferenceAttack
from skprivacy.attacks.attributes.label import LabelCanaries, LabelInferenceResult
from skprivacy.display import MembershipRocDisplay
from skprivacy.metrics.coin_guesses import epsilon_from_guesses

X, y = make_classification(4000, n_features=6, flip_y=0.1, random_state=0)
OWN, OTHERS = slice(0, 2000), slice(2000, None)
CANARIES = LabelCanaries.draw(y[OWN], 500, random_state=0)


def attacked(target, **params):
    attack = LabelInferenceAttack(target.fit(X[OWN], CANARIES.labels), random_state=0, **params)
    return attack.fit(X[OTHERS], y[OTHERS])


def test_coins_are_fair_and_flip_to_every_other_label():
    labels = np.arange(60_000) % 4
    canaries = LabelCanaries.draw(labels, 40_000, random_state=1)
    assert len(np.unique(canaries.rows)) == 40_000
    assert stats.binomtest(int(canaries.kept.sum()), 40_000).pvalue > 1e-6
    assert (canaries.other != canaries.label).all()
    turns = np.bincount((canaries.other - canaries.label) % 4, minlength=4)
    assert turns[0] == 0
    assert stats.chisquare(turns[1:]).pvalue > 1e-6
    trained = np.where(canaries.kept, canaries.label, canaries.other)
    np.testing.assert_array_equal(canaries.labels[canaries.rows], trained)
    rest = np.setdiff1d(np.arange(60_000), canaries.rows)
    np.testing.assert_array_equal(canaries.labels[rest], labels[rest])
    again = LabelCanaries.draw(labels, 40_000, random_state=2)
    assert not np.array_equal(again.kept, canaries.kept)


def test_a_model_that_memorises_labels_is_caught():
    result = attacked(DecisionTreeClassifier(random_state=0)).evaluate(X[OWN], CANARIES)
    assert result.epsilon_lower_bound() > 4
    assert result.auc > 0.99
    assert result.details["guessed"] > 0.99
    # The prior guesses the true label, which the coin has taken away in half of all cases.
    assert 0.4 < result.details["guessed_by_prior"] < 0.6


def test_a_good_model_that_never_saw_the_labels_leaks_nothing():
    """It predicts labels well without any coin: features predict labels, not training."""
    target = LogisticRegression().fit(X[OTHERS], y[OTHERS])
    assert target.score(X[OWN], y[OWN]) > 0.8
    attack = LabelInferenceAttack(target, prior=DecisionTreeClassifier(max_depth=3), random_state=0)
    result = attack.fit(X[OTHERS], y[OTHERS]).evaluate(X[OWN], CANARIES)
    assert result.epsilon_lower_bound() == 0
    assert attack.predict(X[OWN]).tolist() == target.predict(X[OWN]).tolist()


@pytest.mark.slow
def test_a_true_claim_is_refuted_as_rarely_as_alpha_says():
    """Answers by randomised response at epsilon 1 show more than 1 in at most alpha of all runs."""
    random = np.random.default_rng(0)
    runs, n, alpha = 150, 300, 0.2
    high = 0
    for _ in range(runs):
        kept = random.random(n) < 0.5
        told = np.where(random.random(n) < 1 / (1 + math.exp(-1)), kept, ~kept)
        scores = np.where(told, 1.0, -1.0) * random.random(n)
        result = LabelInferenceResult(scores[kept], scores[~kept])
        high += result.epsilon_lower_bound(alpha=alpha) > 1
    assert stats.binom(runs, alpha).sf(high) > 1e-6
    assert high > 0


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_equal_scores_show_nothing(score):
    """A tie is never right, and the order of a result, kept labels first, is not evidence."""
    equal = np.full(500, score)
    assert LabelInferenceResult(equal, equal).epsilon_lower_bound() == 0


def test_hard_predictions_and_frames_will_do():
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)])
    target = RidgeClassifier().fit(frame.iloc[OWN], CANARIES.labels)
    attack = LabelInferenceAttack(target, random_state=0).fit(frame.iloc[OTHERS], y[OTHERS])
    assert attack.evaluate(frame.iloc[OWN], CANARIES).details["n_canaries"] == 500
    assert clone(attack).target is target


def test_a_bound_of_labels_is_no_bound_on_membership():
    import matplotlib

    matplotlib.use("Agg")
    guarantee = PrivacyGuarantee(RandomizedResponseEvent(1.0), relation="label")
    scores = np.arange(50.0), np.arange(50.0)
    with pytest.raises(ValueError, match="no attack on membership"):
        MembershipRocDisplay.from_result(AttackResult(*scores), bound=guarantee)
    MembershipRocDisplay.from_result(LabelInferenceResult(*scores), bound=guarantee)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelCanaries.draw(np.zeros(9), 3), "at least two"),
        (lambda: LabelCanaries.draw(y, 0), "n_canaries=0"),
        (lambda: LabelCanaries.draw(y, 5000), "n_canaries=5000"),
        (lambda: LabelInferenceAttack().fit(X, y), "target=None"),
        (lambda: epsilon_from_guesses(5, 4, 10), "in this order"),
        (lambda: epsilon_from_guesses(3, 4, 10, delta=1.0), "delta"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_labels_are_no_canaries():
    attack = LabelInferenceAttack(LogisticRegression().fit(X, y)).fit(X, y)
    with pytest.raises(TypeError, match=r"must be LabelCanaries, got ndarray\. Draw them by"):
        attack.evaluate(X, y)


@pytest.mark.parametrize(("right", "guesses"), [(90, 100), (60, 100), (1000, 1000), (51, 60)])
def test_guesses_are_bounded_by_clopper_and_pearson(right, guesses):
    low = stats.beta(right, guesses - right + 1).ppf(0.05)
    expected = max(0.0, math.log(low / (1 - low)))
    assert epsilon_from_guesses(right, guesses, 1000) == pytest.approx(expected, abs=1e-6)


def test_a_delta_takes_off_what_may_have_failed():
    """By the worst case: with probability m delta ... every guess but what is needed is told."""
    bounds = [epsilon_from_guesses(90, 100, 1000, delta=d) for d in (0.0, 1e-9, 1e-5, 1e-3)]
    assert bounds[0] > bounds[2] > bounds[3]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-4)
    # The published function (appendix D of Steinke et al. 2023), written out anew.
    m, r, v, epsilon, delta = 1000, 100, 90, 1.2, 1e-4
    q = 1 / (1 + math.exp(-epsilon))
    beta, alpha, total = stats.binom.sf(v - 1, r, q), 0.0, 0.0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, q)
        alpha = max(alpha, total / i)
    p = min(1.0, beta + alpha * delta * 2 * m)
    assert epsilon_from_guesses(v, r, m, delta=delta, alpha=p) == pytest.approx(epsilon, rel=1e-6)
