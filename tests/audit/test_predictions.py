"""audit_predictions(): tables of probabilities, with shadow models trained elsewhere or none."""

import json
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from skprivacy.attacks import (
    RMIA,
    AttackResult,
    LabeledRecords,
    LiRA,
    LossThreshold,
    ShadowPool,
    SignalThreshold,
    SupervisedAttack,
)
from skprivacy.audit import audit, audit_predictions, predictions
from skprivacy.audit import runner as _attacking
from skprivacy.audit.runner import concat_records

pytestmark = pytest.mark.heavy

N = 300
X, y = make_classification(4 * N, n_informative=6, n_classes=3, flip_y=0.3, random_state=0)
X_other, y_other, X, y = X[2 * N :], y[2 * N :], X[: 2 * N], y[: 2 * N]
FOREST = RandomForestClassifier(20, min_samples_leaf=2, random_state=0)
TARGET = clone(FOREST).fit(X[:N], y[:N])
POOL = ShadowPool(FOREST, n_shadows=8, random_state=0).fit(X, y)
PROBA = TARGET.predict_proba(X)
TABLES = (PROBA[:N], y[:N], PROBA[N:], y[N:])
SHADOW_PROBAS = np.stack(list(POOL.iter_proba(X)))
TRAINED = POOL.membership(X)[0]
SHADOWS = {"shadow_probas": SHADOW_PROBAS, "shadow_trained": TRAINED}


def aucs(report):
    return {finding.result.attack: finding.result.auc for finding in report.findings}


def test_shadow_predictions_give_what_the_models_give():
    attacks = [LossThreshold(), RMIA(online=True), LiRA()]
    by_table = audit_predictions(*TABLES, **SHADOWS, attacks=attacks)
    pooled = [clone(attack).set_params(pool=POOL) for attack in attacks[1:]]
    by_model = audit(TARGET, X[:N], y[:N], X[N:], y[N:], attacks=[attacks[0], *pooled])
    assert aucs(by_table) == pytest.approx(aucs(by_model), abs=1e-3)
    assert (by_table.n_shadows, by_table.not_measured) == (8, ())


def test_the_strongest_attack_does_not_learn_from_the_order_of_rows():
    """Members stand beside members in the tables, which an attacker does not know."""
    report = audit_predictions(*TABLES, **SHADOWS)
    loss, strongest = aucs(report).values()
    assert strongest > loss + 0.05
    order = np.random.default_rng(0).permutation(N)
    both = np.r_[order, N + order]
    shuffled = audit_predictions(
        *(table[order] for table in TABLES),
        shadow_probas=SHADOW_PROBAS[:, both],
        shadow_trained=TRAINED[:, both],
    )
    assert list(aucs(shuffled).values()) == pytest.approx([loss, strongest], abs=2e-3)
    assert {exposure.by for exposure in report.exposures} == {"class"}


def test_without_shadow_models_nothing_is_printed_as_measured_that_was_not():
    """LiRA printed .500 [.499, .501] for a table."""
    report = audit_predictions(*TABLES)
    assert list(aucs(report)) == ["LossThreshold", "SupervisedAttack"]
    assert min(aucs(report).values()) > 0.6
    for text in (repr(report), report.to_html(), json.dumps(report.to_dict())):
        assert "Not measured: StrongestAttack" in text
        assert "need none and are weaker" in text
        assert "shadow models return the same answers" not in text
    with pytest.raises(ValueError, match="holds LiRA, which needs shadow models"):
        audit_predictions(*TABLES, attacks=[LiRA()])


def test_shadow_models_of_other_records_serve_offline():
    others = np.zeros_like(TRAINED)
    rows = [np.random.default_rng(i).permutation(2 * N)[:N] for i in range(8)]
    fits = [clone(FOREST).fit(X_other[row], y_other[row]) for row in rows]
    probas = np.stack([forest.predict_proba(X) for forest in fits])
    report = audit_predictions(*TABLES, shadow_probas=probas, shadow_trained=others)
    name = report.findings[1].result.attack
    assert name == "offline RMIA"
    assert aucs(report)[name] > aucs(report)["LossThreshold"]


@pytest.mark.parametrize(("epsilon", "verdict"), [(0.1, "violated"), (50.0, "consistent")])
def test_the_claim_is_what_was_passed(epsilon, verdict):
    report = audit_predictions(*TABLES, **SHADOWS, claim=(epsilon, 1e-5))
    assert report.verdict == verdict
    assert (report.claimed_epsilon, report.claimed_delta) == pytest.approx((epsilon, 1e-5))
    assert "the passed claim was obtained correctly" in repr(report)


def of_noise(rng, n, n_shadows=6):
    """Predictions by a target and by shadow models that saw none of the records."""
    proba, label = rng.dirichlet(np.ones(3), size=2 * n), rng.integers(0, 3, 2 * n)
    half = rng.random((n_shadows // 2, 2 * n)) < 0.5
    shadows = {
        "shadow_probas": rng.dirichlet(np.ones(3), size=(n_shadows, 2 * n)),
        "shadow_trained": np.concatenate([half, ~half]),
    }
    return (proba[:n], label[:n], proba[n:], label[n:]), shadows


@pytest.mark.slow
def test_a_model_that_never_saw_the_records_is_not_refuted():
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(15):
        tables, shadows = of_noise(rng, 80)
        for given in ({}, shadows):
            wrong += audit_predictions(*tables, claim=0.0, **given).verdict == "violated"
    assert wrong <= binom.ppf(1 - 1e-6, 30, 0.05)


def test_an_attack_judged_on_what_it_learned_from_would_be_noticed():
    def cheat(attack, records, people):
        X, y = concat_records(records)
        member = np.arange(len(y)) < len(y) // 2
        labeled = LabeledRecords(X, y)
        scores = attack.fit(labeled, member).decision_function(labeled)
        return [AttackResult(scores[member], scores[~member])], None

    tables, _ = of_noise(np.random.default_rng(0), 80)
    with mock.patch.object(_attacking, "_attack_known_members", cheat):
        assert audit_predictions(*tables, claim=0.0).verdict == "violated"


def test_shadow_models_that_tell_members_would_be_noticed():
    """Members were compared with 15 models and others with one, which alone separates them."""
    tables, shadows = of_noise(np.random.default_rng(0), 3000, n_shadows=16)
    told = np.ones((16, 6000), dtype=bool)
    told[:, :3000] = told[0] = False
    shadows["shadow_trained"] = told
    attack = LiRA(floor=0.01, variance="global")
    with pytest.raises(ValueError, match="depends on membership"):
        audit_predictions(*tables, claim=0.0, attacks=attack, **shadows)
    with mock.patch.object(predictions, "_check_drawn_blindly"):
        report = audit_predictions(*tables, claim=0.0, attacks=attack, **shadows)
    assert report.findings[0].refutation
    assert report.verdict == "doubtful"  # their answers show who the members are


def test_labels_may_be_names_and_columns_in_any_order():
    names = np.array(["oak", "ash", "elm"])
    label = names[y]
    plain = aucs(audit_predictions(*TABLES, **SHADOWS, attacks=LossThreshold()))
    frame = pd.DataFrame(PROBA, columns=names)
    named = audit_predictions(frame[:N], label[:N], frame[N:], label[N:], attacks=LossThreshold())
    assert aucs(named) == plain
    given = audit_predictions(
        PROBA[:N], label[:N], PROBA[N:], label[N:], classes=names, attacks=LossThreshold()
    )
    assert aucs(given) == plain


def test_the_supervised_attack_is_judged_on_what_it_did_not_learn_from():
    report = audit_predictions(*TABLES, attacks=[SupervisedAttack(), SignalThreshold()])
    sizes = [
        (len(finding.result.scores_in), len(finding.result.scores_out))
        for finding in report.findings
    ]
    assert sizes[1] == (N, N)
    assert 0.35 * N < min(sizes[0]) <= max(sizes[0]) < 0.65 * N


def change(table, at, value):
    changed = np.array(table, dtype=float)
    changed[at] = value
    return changed


MEMBERS = np.tile(np.arange(2 * N) < N, (8, 1))
MEMBERS[0] = False


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"proba_train": PROBA[:N, :, None]}, r"proba_train has shape \(300, 3, 1\); expected"),
        ({"proba_test": PROBA[N:, 0]}, r"proba_test has shape \(300,\); expected probabilities"),
        ({"proba_train": change(TABLES[0], (3, 1), np.nan)}, r"proba_train has rows .* first at 3"),
        ({"proba_test": change(TABLES[2], (3, 1), 7)}, "proba_test has rows that are not prob"),
        ({"proba_train": change(TABLES[0], 3, [-0.1, 0.6, 0.5])}, r"rows .* first at 3"),
        ({"proba_train": TABLES[0] * 0.9}, "proba_train has rows that are not prob"),
        ({"proba_train": [["a", "b"]] * N}, "proba_train must be an array of numbers"),
        ({"proba_test": np.full((N, 2), 0.5)}, "proba_test has 2 columns; expected one for each"),
        ({"y_train": y[:5]}, r"y_train has shape \(5,\); expected one label for each of the 300"),
        ({"y_test": y[N:] + 1}, "y_test holds labels without a column in proba_test"),
        ({"classes": [0, 1]}, "classes=.* must be one distinct name"),
        ({"shadow_probas": SHADOW_PROBAS}, "must both be given, or neither"),
        (SHADOWS | {"shadow_probas": SHADOW_PROBAS[0]}, "shadow_probas has shape"),
        (SHADOWS | {"shadow_probas": SHADOW_PROBAS[:, :9]}, r"shadow_probas has shape \(8, 9, 3\)"),
        (SHADOWS | {"shadow_probas": SHADOW_PROBAS * 0.5}, r"shadow_probas has rows .*\(0, 0\)"),
        (SHADOWS | {"shadow_trained": TRAINED[:, :9]}, r"shadow_trained has shape \(8, 9\)"),
        (SHADOWS | {"shadow_trained": TRAINED * 0.5}, "shadow_trained has shape .* float64"),
        (SHADOWS | {"shadow_trained": TRAINED | True}, "marks 600 records as training records"),
        (SHADOWS | {"shadow_trained": MEMBERS}, "depends on membership: shadow model 1"),
        (SHADOWS | {"shadow_probas": SHADOW_PROBAS[[0] * 8]}, "cannot measure anything"),
        ({"claim": -1}, "claim=-1 must have a finite epsilon"),
        ({"claim": (1.0, 2)}, r"claim=\(1.0, 2\) must have"),
        ({"alpha": 0}, "alpha=0 must be"),
        ({"alpha": 1e-99}, "at least 1e-80"),
    ],
)  # fmt: skip
def test_wrong_tables_are_named(changes, words):
    names = ("proba_train", "y_train", "proba_test", "y_test")
    with pytest.raises(ValueError, match=words):
        audit_predictions(**(dict(zip(names, TABLES, strict=True)) | changes))


def test_the_least_alpha_is_enough_for_all_who_share_it():
    """Attacks, thresholds and groups: no interval is computed at so little that it underflows."""
    report = audit_predictions(*TABLES, **SHADOWS, claim=1.0, alpha=1e-80)
    assert report.verdict == "consistent"
    assert len(report.exposures) == 6
    assert "alpha" in report.to_json()


def test_records_that_the_table_does_not_hold_are_refused():
    pool = ShadowPool.from_predictions(X, SHADOW_PROBAS, TRAINED, [0, 1, 2])
    with pytest.raises(ValueError, match="X holds 600 records without stored predictions"):
        pool.logits(X + 1, y)


def test_an_online_attack_needs_models_trained_on_each_record():
    trained = TRAINED.copy()
    trained[:, 5] = False
    pool = ShadowPool.from_predictions(X, SHADOW_PROBAS, trained, [0, 1, 2])
    records = LabeledRecords(X, y)
    with pytest.raises(ValueError, match="no model was trained on 1 of them"):
        LiRA(TARGET, pool=pool, online=True).fit(records).decision_function(records)
