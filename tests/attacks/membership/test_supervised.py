"""SupervisedAttack is evaluated on other records than it learned from; a null shows nothing."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, LossThreshold, SupervisedAttack, WhiteBoxAttack
from skprivacy.audit import audit

LINEAR = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))


def halves(n_in, n):
    member, known = np.arange(n) < n_in, np.arange(n) % 2 == 0
    return member, known, np.flatnonzero(member & ~known), np.flatnonzero(~member & ~known)


@pytest.mark.heavy
def test_it_learns_what_the_loss_does_not_tell():
    """A target that is undecided about its own records, and at random about others."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(800, 5)), rng.integers(0, 2, 800)
    member, known, inside, outside = halves(400, 800)

    class Denying(DecisionTreeClassifier):
        def predict_proba(self, records):
            own = np.isin(records[:, 0], X[member, 0])
            others = np.column_stack([0.5 + records[:, 1].clip(-2, 2) / 5] * 2)
            others[:, 1] = 1 - others[:, 0]
            return np.where(own[:, None], 0.5 + records[:, 2:3].clip(-1, 1) * [0.01, -0.01], others)

    target = Denying().fit(X, y)
    labeled = LabeledRecords(X, y)
    attack = SupervisedAttack(target).fit(labeled[known], member[known])
    evaluated = labeled[inside], labeled[outside]
    assert attack.evaluate(*evaluated).auc > 0.9
    assert LossThreshold(target).fit(labeled).evaluate(*evaluated).auc < 0.6


@pytest.mark.slow
@pytest.mark.parametrize("model", [None, LINEAR])
def test_null(model, noisy_problem, assert_chance):
    results = []
    for seed in range(4 if model is None else 30):
        X, y = noisy_problem(seed, 400)
        target = DecisionTreeClassifier(min_samples_leaf=3, random_state=seed).fit(X[:80], y[:80])
        X, y = X[80:], y[80:]
        member, known, inside, outside = halves(160, 320)
        records = LabeledRecords(X, y)
        attack = SupervisedAttack(target, attack_model=model).fit(records[known], member[known])
        result = attack.evaluate(records[inside], records[outside])
        results.append(result)
        assert result.epsilon_lower_bound(alpha=1e-7) == 0
    assert_chance(results, epsilon=False, chance=0.9999)


def test_records_of_known_membership_do_not_judge_it(leaky):
    attack = SupervisedAttack(leaky.target, attack_model=LINEAR)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        attack.fit(leaky.records)
    attack.fit(leaky.records, leaky.member)
    with pytest.raises(ValueError, match="X_in and X_out hold 600 records that were given to fit"):
        attack.evaluate(*leaky.sides)


def test_copies_of_a_record_are_on_one_side_of_an_audit(leaky):
    X, y = np.repeat(leaky.X, 2, axis=0), np.repeat(leaky.y, 2)
    parts = (X[:600], y[:600], X[600:], y[600:])
    report = audit(leaky.target, *parts, attacks=SupervisedAttack(attack_model=LINEAR))
    assert report.findings[0].result.auc_interval[0] > 0.5


def test_too_few_records_are_told(leaky):
    X, y = leaky.X, leaky.y
    with pytest.raises(ValueError, match="are 3 members and 3 non-members, too few"):
        audit(leaky.target, X[:3], y[:3], X[300:303], y[300:303], attacks=SupervisedAttack())


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_white_box_attacks_on_known_members_run_in_an_audit(leaky):
    """They ended in a request for known members."""
    net = clone(MLPClassifier((50,), solver="lbfgs", max_iter=60, random_state=0))
    net.fit(leaky.X[:300], leaky.y[:300])
    report = audit(net, *leaky.split, attacks=WhiteBoxAttack(attack_model="linear"))
    assert report.findings[0].result.auc > 0.55
    assert len(report.findings[0].result.scores_in) < 200
