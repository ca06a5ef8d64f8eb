"""The likelihood ratio attack on models whose probabilities saturate."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from skprivacy.attacks import RMIA, LabeledRecords, LiRA, ShadowPool
from skprivacy.attacks import record_tables as _records
from skprivacy.attacks.membership import shadow_attack as _rehearsal
from skprivacy.attacks.membership.likelihood_ratio import DEFAULT_FLOOR_AND_PRIOR
from skprivacy.attacks.membership.shadow_attack import PoolRecords, smooth_logit

from ..conftest import attack_halves

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def forest():
    """An unpruned forest, which votes all but unanimously for its own records."""
    X, y = make_classification(
        2000, n_features=10, n_informative=6, n_classes=4, flip_y=0.4, random_state=0
    )
    target = RandomForestClassifier(50, random_state=0).fit(X[:1000], y[:1000])
    pool = ShadowPool(target, n_shadows=16, random_state=0).fit(X, y)
    return target, pool, X, y


@pytest.fixture(scope="module")
def small():
    """A forest of few trees on few records, where no strength is measured."""
    X, y = make_classification(400, n_features=10, n_informative=6, flip_y=0.4, random_state=0)
    target = RandomForestClassifier(5, random_state=0).fit(X[:200], y[:200])
    return target, ShadowPool(target, n_shadows=8, random_state=0).fit(X, y), X, y


def found(attack, forest):
    target, pool, X, y = forest
    return attack_halves(attack.set_params(target=target, pool=pool), X, y)


@pytest.mark.slow
@pytest.mark.everyday(1)
@pytest.mark.parametrize("online", [False, True])
def test_an_unpruned_forest_is_found_out(forest, online):
    rmia = found(RMIA(online=online), forest)
    result = found(LiRA(online=online), forest)
    assert result.auc > rmia.auc - 0.02
    # offline, RMIA gains from records that stand for those not trained on
    assert result.tpr_at_fpr(0.01).tpr > rmia.tpr_at_fpr(0.01).tpr - (0.03 if online else 0.08)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("online", [False, True])
def test_records_are_compared_a_part_at_a_time_with_the_same_scores(small, online, monkeypatch):
    target, pool, X, y = small
    records = LabeledRecords(X, y)
    attack = LiRA(target, pool=pool, online=online).fit(records)
    whole = attack.decision_function(records)
    monkeypatch.setattr(_records, "_PART", 70)
    np.testing.assert_allclose(attack.decision_function(records), whole, rtol=1e-12)


def gaussians(n_shadows, n, sd, gap, rng):
    """Log-odds of shadow models that rise by ``gap`` for records trained on."""
    halves = [rng.permuted(np.arange(n) < n // 2) for _ in range(n_shadows // 2)]
    trained = np.concatenate([[half, ~half] for half in halves])
    return rng.normal(3 * rng.normal(size=n) + gap * trained, sd), trained


def tuned(shadow, trained, **settings):
    """Let LiRA choose by these log-odds of shadow models."""
    attack = LiRA(**settings)
    rows = np.ones(shadow.shape[1], dtype=bool)
    attack._tune(PoolRecords(None, None, rows, None, shadow, trained))
    return attack


def test_the_variance_is_what_the_shadows_show():
    """Records that differ tenfold in spread need separate variances; equal ones share one."""
    rng = np.random.default_rng(0)
    equal = gaussians(64, 1000, 1.0, 0.5, rng)
    unequal = gaussians(64, 1000, np.exp(rng.normal(size=1000) * 1.5), 0.5, rng)
    assert tuned(*equal, floor=0).prior_ >= 16
    assert tuned(*unequal, floor=0).prior_ <= 4


def test_the_floor_is_what_the_shadows_show():
    rng = np.random.default_rng(0)
    shadow, trained = gaussians(16, 2000, 1.0, 1.0, rng)
    # a few models answer exactly 0 or 1, which says nothing
    saturated = np.where(rng.random(shadow.shape) < 0.1, 27.6 * np.sign(shadow), shadow)
    assert tuned(saturated, trained).floor_ > 1e-6


def test_the_target_plays_no_part_in_the_choice(small):
    target, pool, X, y = small
    other = RandomForestClassifier(2, max_depth=1, random_state=1).fit(X[300:], y[300:])
    one, two = (LiRA(model, pool=pool).fit(LabeledRecords(X, y)) for model in (target, other))
    assert (one.floor_, one.prior_) == (two.floor_, two.prior_)


def test_the_twin_of_an_attacked_model_is_left_out():
    """Its members are exactly the others' non-members: with it, the choice would be of a twin."""
    trained = gaussians(8, 100, 1.0, 1.0, np.random.default_rng(0))[1]
    trials = dict(_rehearsal.iter_self_attacks(trained))
    assert sorted(trials) == list(range(8))
    assert all(len(others) == 6 and k ^ 1 not in others for k, others in trials.items())


def test_given_settings_are_kept_and_impossible_choices_fall_back(small):
    target, _, X, y = small
    two = ShadowPool(target, n_shadows=2, random_state=0).fit(X[:200], y[:200])
    records = LabeledRecords(X, y)
    usual = LiRA(target, pool=two).fit(records)
    assert (usual.floor_, usual.prior_) == DEFAULT_FLOOR_AND_PRIOR
    stranger = LiRA(target, pool=two).fit(records[300:])
    assert (stranger.floor_, stranger.prior_) == DEFAULT_FLOOR_AND_PRIOR
    given = LiRA(target, pool=two, floor=0.2, variance="per_example").fit(records)
    assert (given.floor_, given.prior_) == (0.2, 0)


def test_smoothing_keeps_the_order_and_bounds_the_gap():
    values = np.linspace(-28, 28, 57)
    smooth = smooth_logit(values, 0.01)
    assert (np.diff(smooth) >= 0).all()
    assert np.abs(smooth).max() <= np.log(101)
    assert smooth_logit(values, 0.0) == pytest.approx(values)
    assert smooth[28] == 0
