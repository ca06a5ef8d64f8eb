"""The strongest attack is chosen by shadow models, and the choice costs nothing in error."""

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import (
    RMIA,
    LabeledRecords,
    LearnedRatio,
    LiRA,
    LossThreshold,
    StrongestAttack,
)
from skprivacy.attacks.membership import shadow_attack as _rehearsal
from skprivacy.audit import audit

from ..conftest import attack_halves

pytestmark = pytest.mark.heavy

SMALL = DecisionTreeClassifier(max_depth=3, random_state=0)
NOTHING = PrivacyGuarantee(ApproxDPEvent(0.0, 0.0), at_delta=1e-9)


def problem(seed, n, flip_y=0.3):
    return make_classification(n, n_features=6, flip_y=flip_y, random_state=seed)


def attacked(attack, case):
    attack.set_params(target=case.target, pool=case.pool)
    return attack, attack_halves(attack, case.X, case.y)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("case", ["leaky", "neighbours"])
def test_the_choice_of_the_shadows_is_the_best_on_the_target(case, request):
    case = request.getfixturevalue(case)
    chosen, result = attacked(StrongestAttack(online=True), case)
    for online in (False, True):
        for kind in (RMIA, LiRA):
            assert result.auc > attacked(kind(online=online), case)[1].auc - 0.02
    assert result.attack in chosen.powers_
    assert chosen.attack_.power_ == max(chosen.powers_.values())


def test_offline_a_is_what_the_shadows_show(neighbours):
    """0.3 is the paper's for networks of a kind; nearest neighbours want much more."""
    chosen, result = attacked(RMIA(), neighbours)
    given, usual = attacked(RMIA(offline_a=0.3), neighbours)
    assert (given.offline_a_, chosen.offline_a_ > 0.5) == (0.3, True)
    assert chosen.power_ > given.power_
    assert result.tpr_at_fpr(0.1).tpr > usual.tpr_at_fpr(0.1).tpr
    with pytest.raises(ValueError, match="offline_a"):
        RMIA(neighbours.target, offline_a="best").fit(LabeledRecords(neighbours.X, neighbours.y))


def test_power_is_the_share_of_members_found():
    rng = np.random.default_rng(0)
    halves = [rng.permuted(np.arange(5000) < 2500) for _ in range(4)]
    trained = np.concatenate([[half, ~half] for half in halves])
    said = logit(np.where(trained, 0.9, 0.6))
    found = _rehearsal.SelfAttack.from_pool(said, trained).score_settings(
        _rehearsal.AttackSetting([view.__name__], view, lambda target, shadow, out: [target])
        for view in (np.asarray, np.negative, np.zeros_like)
    )
    told, reversed_, constant = found.values()
    assert told == pytest.approx(1)
    assert reversed_ < 0.1  # all at a rate of 1, nothing below
    assert constant == pytest.approx(_rehearsal.RATES.mean())


@pytest.mark.slow
def test_neither_the_target_nor_the_order_of_records_plays_a_part(neighbours):
    X, y, pool = neighbours.X, neighbours.y, neighbours.pool
    other = SMALL.fit(X[1500:], y[1500:])
    order = np.random.default_rng(0).permutation(len(X))
    attacks = [
        StrongestAttack(model, pool=pool, online=True).fit(LabeledRecords(X, y)[rows])
        for model, rows in ((neighbours.target, slice(None)), (other, slice(None)), (other, order))
    ]
    assert attacks[0].powers_ == attacks[1].powers_ == attacks[2].powers_


def test_without_shadows_to_attack_the_first_is_taken(neighbours):
    X, y, target = neighbours.X[:400], neighbours.y[:400], neighbours.target
    records = LabeledRecords(X, y)
    two = StrongestAttack(target, pool=2, online=True, random_state=0).fit(records)
    assert set(two.powers_.values()) == {0.0}
    assert isinstance(two.attack_, RMIA)
    strangers = LabeledRecords(neighbours.X, neighbours.y)[400:500]
    with pytest.raises(ValueError, match="100 records are not in the pool"):
        two.decision_function(strangers)
    assert len(StrongestAttack(target, pool=2).fit(records).decision_function(strangers)) == 100


class FromItsFirst(DecisionTreeClassifier):
    """A model that learns from the first 50 records that it is given."""

    def fit(self, X, y):
        return super().fit(X[:50], y[:50])


def test_an_audit_trains_its_shadows_in_an_order_that_tells_no_member():
    """Members came first, so a choice by these shadow models was a choice by the members."""
    X, y = problem(0, 400)
    model = FromItsFirst(random_state=0).fit(X[:200], y[:200])
    groups = (X[:200], y[:200]), (X[200:], y[200:])
    one = audit(model, *groups[0], *groups[1], n_shadows=4, random_state=0).findings[1].result
    two = audit(model, *groups[1], *groups[0], n_shadows=4, random_state=0).findings[1].result
    assert one.attack == two.attack
    assert one.scores_in == pytest.approx(two.scores_out)
    assert one.scores_out == pytest.approx(two.scores_in)


class Guess(LiRA):
    """An attack that knows nothing."""

    def _learn(self, X, y, member):
        pass

    def _tune(self, known):
        self.power_ = float(np.random.default_rng(self.random_state).random())

    def _learn_population(self, said, X, y):
        pass

    def _score(self, X, y):
        return np.random.default_rng(self.random_state).normal(size=len(y))


class OfMany(StrongestAttack):
    """The choice among the real attacks and 300 guesses."""

    def _candidates(self):
        guesses = [Guess(random_state=seed) for seed in range(300)]
        return [*super()._candidates(), *guesses]


def accused(attack, runs, alpha):
    """Count the audits that accuse models which never saw the "members"."""
    wrong = 0
    for seed in range(runs):
        X, y = problem(seed, 500)
        model = clone(SMALL).fit(X[:100], y[:100])
        model.privacy_ = NOTHING
        groups = X[100:300], y[100:300], X[300:], y[300:]
        attacks = None if attack is None else [LossThreshold(), attack]
        report = audit(model, *groups, attacks=attacks, n_shadows=4, alpha=alpha, random_state=seed)
        assert len(report.findings) == 2
        wrong += report.verdict == "violated"
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("attack", [None, OfMany(pool=4, online=True)])
def test_choosing_by_shadows_in_200_audits(attack):
    assert accused(attack, 200, 0.05) <= binom.isf(1e-6, 200, 0.05)


ALONE = [
    LiRA(variance="global"), LiRA(online=True), LearnedRatio(), StrongestAttack(online=True),
]  # fmt: skip


@pytest.mark.everyday(1)
@pytest.mark.parametrize("attack", ALONE, ids=str)
def test_a_record_asked_alone_has_the_score_that_it_has_among_others(attack, neighbours):
    records, some = LabeledRecords(neighbours.X, neighbours.y), [0, 7, 1200]
    attack = clone(attack).set_params(target=neighbours.target, pool=neighbours.pool).fit(records)
    alone = [attack.decision_function(records[i : i + 1])[0] for i in some]
    np.testing.assert_allclose(alone, attack.decision_function(records)[some], rtol=1e-9)
