"""Attacks on generators, and the audit that runs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import ApproxDPEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.attacks import (
    DensityRatio,
    GenerativeAttack,
    LikelihoodRatio,
    MarginalAttack,
    NearestGenerated,
    ShadowGenerators,
)
from skprivacy.attacks.record_tables import fingerprints
from skprivacy.audit import audit_synthetic
from skprivacy.audit.synthetic_records import _default_attacks
from skprivacy.exceptions import PrivacyWarning
from skprivacy.preprocessing import BoundedColumn, Schema
from skprivacy.synthesis import MarginalSynthesizer

ATTACKS = [NearestGenerated, DensityRatio, LikelihoodRatio]
EVERY = [*ATTACKS, MarginalAttack]


def area(attack, generated, people, n_out=300):
    """Return the area of an attack on the first hundred, whose author knows the last records."""
    return attack.fit(generated, people[n_out:]).evaluate(people[:100], people[100:n_out]).auc


def copies(seed, noise, size=3):
    """People, and records generated around the first hundred of them."""
    rng = np.random.default_rng(seed)
    people = rng.normal(size=(600, size))
    generated = people[rng.integers(0, 100, 900)] + noise * rng.normal(size=(900, size))
    return people, generated


@pytest.mark.slow
def test_copies_with_little_noise_are_found_by_where_they_lie():
    people, generated = copies(0, 0.05)
    found = {a: area(a(), generated, people) for a in ATTACKS}
    assert found[DensityRatio] > 0.99
    assert found[LikelihoodRatio] > 0.99
    assert found[NearestGenerated] > 0.96
    alone = NearestGenerated().fit(generated).evaluate(people[:100], people[100:300])
    assert alone.auc > 0.98
    assert min(found.values()) > area(GenerativeAttack(), generated, people) > 0.6


@pytest.mark.heavy
def test_copies_with_much_noise_are_found_in_many_columns():
    people, generated = copies(0, 0.6, 15)
    assert area(LikelihoodRatio(), generated, people) > 0.94


FEW_LEAVES = DecisionTreeClassifier(min_samples_leaf=20, class_weight="balanced", random_state=0)


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "attack",
    [
        MarginalAttack, lambda: GenerativeAttack(FEW_LEAVES), DensityRatio, NearestGenerated,
        LikelihoodRatio,
    ],
)  # fmt: skip
def test_a_generator_that_generalises_is_not_accused(attack, assert_chance):
    """Also if the attacker's own records are the ones that were not used."""
    results = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        people, generated = rng.normal(size=(600, 3)), rng.normal(size=(900, 3))
        parts = people[:300], people[300:]
        results.append(attack().fit(generated, people[300:]).evaluate(*parts))
    assert_chance(results, epsilon=False, chance=0.9999)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("attack", EVERY)
def test_tables_of_text_and_missing_numbers_are_points_too(attack):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({f"x{i}": rng.choice(list("abcdef"), 600) for i in range(8)})
    people["age"] = np.where(rng.uniform(size=600) < 0.1, np.nan, rng.integers(0, 90, 600))
    generated = people.iloc[rng.integers(0, 100, 900)].reset_index(drop=True)
    result = attack().fit(generated, people[300:]).evaluate(people[:100], people[100:300])
    assert result.auc > 0.95
    unknown = people[:3].assign(x0="z", age=np.inf)
    assert np.isfinite(attack().fit(generated, people[300:]).score_samples(unknown)).all()


@pytest.mark.slow
def test_texts_can_be_told_from_generated_ones():
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"job": rng.choice(list("abc"), 600), "age": rng.integers(0, 90, 600)})
    generated = people.assign(job="a").sample(900, replace=True, random_state=0)
    for kind in (lambda frame: frame, lambda frame: frame.to_numpy(dtype=object)):
        attack = GenerativeAttack().fit(kind(generated), kind(people[300:]))
        scores = attack.score_samples(kind(people[:300]))
        is_a = (people["job"][:300] == "a").to_numpy()
        assert scores[is_a].min() > scores[~is_a].max()
    assert np.isfinite(attack.score_samples(kind(people[:3].assign(job="z")))).all()


@pytest.mark.heavy
def test_points_far_from_all_have_finite_scores_in_order():
    people, generated = copies(0, 0.01)
    attack = DensityRatio().fit(generated, people[300:])
    far = np.array([[1e3] * 3, [1e6] * 3])
    assert np.isfinite(attack.score_samples(far)).all()


@pytest.mark.heavy
def test_too_few_records_are_named():
    people, generated = copies(0, 0.1)
    with pytest.raises(ValueError, match="reference=None"):
        DensityRatio().fit(generated, None)
    for attack in EVERY:
        with pytest.raises(ValueError, match="generated holds 1 records"):
            attack().fit(generated[:1], people)
        with pytest.raises(ValueError, match="reference holds 1 records"):
            attack().fit(generated, people[:1])
        with pytest.raises(ValueError, match="expected 3 and 0"):
            attack().fit(generated, people).score_samples(people[:, :2])
    with pytest.raises(ValueError, match="X_train must hold"):
        audit_synthetic(generated, people[:1], people)
    with pytest.raises(ValueError, match="attacks is empty"):
        audit_synthetic(generated, people, people, attacks=[])
    with pytest.raises(TypeError, match=r"claim='1' must be a number \(epsilon\)"):
        audit_synthetic(generated, people, people, claim="1")


@pytest.mark.heavy
def test_an_audit_refutes_the_claim_of_a_generator_that_copies():
    people, generated = copies(0, 0.05)
    claim = PrivacyGuarantee(ApproxDPEvent(0.1, 1e-6), at_delta=1e-6)
    report = audit_synthetic(
        generated, people[:100], people[100:300], reference=people[300:], claim=claim
    )
    assert report.verdict == "violated"
    assert report.epsilon_lower_bound > 0.5
    assert len(report.findings) == 5
    assert "DensityRatio" in report._repr_html_()
    assert "DensityRatio" in str(report)
    alone = audit_synthetic(generated, people[:100], people[100:300])
    assert alone.not_measured == (
        "DensityRatio", "LikelihoodRatio", "GenerativeAttack", "MarginalAttack",
    )  # fmt: skip
    assert "reference" in alone.why_not_measured


@pytest.mark.slow
def test_an_audit_leaves_the_claim_of_a_private_synthesizer():
    rng = np.random.default_rng(0)
    people = rng.normal(size=(900, 3))
    schema = Schema({f"x{i}": BoundedColumn(-4, 4) for i in range(3)})
    synthesizer = MarginalSynthesizer(1.0, 1e-6, schema=schema).fit(people[:300])
    synthetic = synthesizer.sample(3000, random_state=0).to_numpy()
    report = audit_synthetic(
        synthetic, people[:300], people[300:600], reference=people[600:],
        claim=synthesizer.privacy_,
        alpha=1e-8,  # how often it is accused, or doubted: the noise is fresh
    )  # fmt: skip
    assert report.verdict == "consistent"
    assert report.epsilon_lower_bound < 1.0


TREE = MarginalSynthesizer(
    50.0, 1e-6, schema=Schema({f"x{i}": BoundedColumn(-4, 4) for i in range(4)}), method="tree"
)


class ByName(BaseEstimator):
    """Counts a column under another name."""

    def fit(self, X, y=None):
        self.cliques_ = [("x0",)]
        return self


@pytest.mark.slow
def test_a_marginal_attack_weighs_tables_as_often_as_shadows_choose_them():
    rng = np.random.default_rng(0)
    people = rng.normal(size=(900, 4))
    people[:, 1] = people[:, 0] + 0.1 * rng.normal(size=900)
    frame = pd.DataFrame(people, columns=[f"x{i}" for i in range(4)])
    generated = TREE.fit(frame[:300]).sample(2000, random_state=0)
    attack = MarginalAttack(TREE, n_shadows=3, random_state=0).fit(generated, frame[600:])
    assert attack.weights_["x0", "x1"] == 1.0
    assert all(attack.weights_[name,] == 1.0 for name in frame)
    assert sum(
        weight for names, weight in attack.weights_.items() if len(names) == 2
    ) == pytest.approx(3)
    arrays = MarginalAttack(TREE, n_shadows=3, random_state=0).fit(
        generated.to_numpy(), frame[600:].to_numpy()
    )
    assert arrays.weights_[0, 1] == arrays.weights_[2,] == 1.0
    of_others = frame.rename(columns={"x0": "z"})
    with pytest.raises(ValueError, match="x0"):
        MarginalAttack(ByName()).fit(of_others, of_others)
    unweighed = MarginalAttack().fit(generated, frame[600:])
    assert len(unweighed.weights_) == 4 + 6


@pytest.mark.heavy
def test_shadows_find_members_and_accuse_nobody_else():
    rng = np.random.default_rng(0)
    people = rng.normal(size=(500, 4))
    copying = KernelDensity(bandwidth=0.05)
    attack = ShadowGenerators(copying, n_shadows=6, random_state=0)
    generated = copying.fit(people[:100]).sample(900, random_state=0)
    attack.fit(generated, people[300:])
    assert attack.evaluate(people[:100], people[100:300]).auc > 0.8
    again = attack.evaluate(people[:100], people[100:300]).scores_in
    np.testing.assert_array_equal(again, attack.evaluate(people[:100], people[100:300]).scores_in)
    fair = attack.fit(rng.normal(size=(900, 4)), people[300:])
    low, high = fair.evaluate(people[:150], people[150:300]).auc_interval
    assert low <= 0.5 <= high
    mixture = ShadowGenerators(GaussianMixture(2, random_state=0), n_shadows=2, random_state=0)
    assert len(mixture.fit(generated, people[300:]).score_samples(people[:10])) == 10
    with pytest.raises(TypeError, match="fit and sample"):
        ShadowGenerators(3).fit(generated, people)
    with pytest.raises(ValueError, match="n_shadows=1"):
        ShadowGenerators(copying, n_shadows=1).fit(generated, people)


@pytest.mark.heavy
def test_the_strongest_attack_is_chosen_on_the_reference_alone():
    people, generated = copies(0, 0.05)
    copying = KernelDensity(bandwidth=0.05)
    audited = {"reference": people[300:], "generator": copying}
    orders = []
    for members, others in ((people[:100], people[100:300]), (people[100:300], people[:100])):
        attacks = [MarginalAttack(), NearestGenerated(), DensityRatio()]
        report = audit_synthetic(generated, members, others, attacks=attacks, **audited)
        orders.append([finding.result.attack for finding in report.findings])
    assert orders[0] == orders[1] == ["DensityRatio", "NearestGenerated", "MarginalAttack"]
    usual = [type(attack) for attack in _default_attacks(people, copying, 0)]
    assert {*usual} == {*EVERY, GenerativeAttack, ShadowGenerators}
    with pytest.raises(ValueError, match="at least 20"):
        audit_synthetic(generated, people[:100], people[100:], generator=copying)
    with pytest.raises(TypeError, match="generator=3"):
        audit_synthetic(generated, people[:100], people[100:], generator=3)


def test_shadows_have_whoever_is_asked_about_by_a_coin_alone():
    """Also if the attacker's own records are the ones that were not used."""
    people, generated = copies(0, 0.05)
    trained = []

    class Recording(KernelDensity):
        def fit(self, X, y=None):
            trained.append(fingerprints(X))
            return super().fit(X)

    attack = ShadowGenerators(Recording(bandwidth=0.05), n_shadows=2, random_state=0)
    attack.fit(generated, people[100:300]).evaluate(people[:100], people[100:300])
    asked = fingerprints(people[:300])
    inside = np.array([np.isin(asked, own) for own in trained])
    assert (inside.sum(axis=0) == 1).all()


def test_no_budget_within_a_generator_is_charged():
    class Wrapped(BaseEstimator):
        def __init__(self, synthesizer=None):
            self.synthesizer = synthesizer

        def fit(self, X, y=None):
            self.fitted_ = self.synthesizer.fit(X)
            self.cliques_, self.schema_ = self.fitted_.cliques_, self.fitted_.schema_
            return self

        def sample(self, n, random_state=None):
            return self.fitted_.sample(n, random_state=random_state).to_numpy()

    budget = PrivacyBudget(100.0, 1e-3)
    schema = Schema({f"x{i}": BoundedColumn(-4, 4) for i in range(3)})
    generator = Wrapped(
        MarginalSynthesizer(1.0, 1e-6, schema=schema, method="independent", budget=budget)
    )
    people, generated = copies(0, 0.05)
    for attack in (ShadowGenerators(generator, n_shadows=2), MarginalAttack(generator)):
        attack.fit(generated, people[300:]).evaluate(people[:100], people[100:300])
    assert budget.entries().empty


def test_non_members_who_are_members_are_told():
    people, generated = copies(0, 0.05)
    with pytest.raises(ValueError, match="X_train and X_test share 100 of 100 rows"):
        audit_synthetic(generated, people[:200], people[:100])
    report = audit_synthetic(generated, people[:100], people[50:200])
    assert report.n_shared == 50
    assert any("50 of the 150 non-members" in caveat for caveat in report.caveats)


def test_people_are_members_in_an_audit():
    """Ten copies of everybody are ten times the evidence, unless ``groups`` joins them."""
    rng = np.random.default_rng(0)
    people, n = rng.normal(size=(60, 3)), 30
    generated = people[rng.integers(0, 12, 900)] + 0.05 * rng.normal(size=(900, 3))
    parts = np.repeat(people[:n], 10, axis=0), np.repeat(people[n:], 10, axis=0)
    groups = tuple(
        pd.Series(np.repeat(who, 10), name="person") for who in (range(n), range(n, 2 * n))
    )
    claim = PrivacyGuarantee(ApproxDPEvent(1.0, 1e-6), at_delta=1e-6)
    alone = audit_synthetic(generated, *parts, claim=claim)
    assert alone.epsilon_lower_bound > 1
    assert alone.verdict == "doubtful"  # a copy in the same sample reveals the person
    named = audit_synthetic(generated, *parts, claim=claim, groups=groups)
    assert named.reason.startswith("no claim for person")
    assert (named.n_train, named.n_test, named.attacked) == (n, n, "person")
    whole = replace(claim, unit="person")
    report = audit_synthetic(generated, *parts, claim=whole, groups=groups)
    assert report.verdict == "consistent"
    assert report.epsilon_lower_bound < alone.epsilon_lower_bound
    assert len(report.findings) == 2
    with pytest.raises(ValueError, match="groups must be a pair"):
        audit_synthetic(generated, *parts, groups=groups[0])
    frames = [pd.DataFrame(part, columns=["pupil_no", "b", "c"]) for part in parts]
    with pytest.warns(PrivacyWarning, match="pupil_no"):
        audit_synthetic(frames[0], *frames)


def test_a_reference_that_holds_members_is_told():
    people, generated = copies(0, 0.05)
    with pytest.raises(ValueError, match="reference holds 50 of the 100 records of X_train"):
        audit_synthetic(generated, people[:100], people[100:300], reference=people[50:100])
    # Equal records of different people are no evidence: non-members have them too.
    coarse = np.random.default_rng(0).integers(0, 3, (600, 2)).astype(float)
    report = audit_synthetic(
        coarse[:200], coarse[:200], coarse[200:400], reference=coarse[400:],
        attacks=[NearestGenerated()],
    )  # fmt: skip
    assert report.findings


def generator(seed, share_copied):
    """People, and records generated from the first 200 of them: some copied with noise."""
    rng = np.random.default_rng(seed)
    people = rng.normal(size=(800, 4))
    copied = people[rng.integers(0, 200, 1000)] + 0.05 * rng.normal(size=(1000, 4))
    return people, np.where(
        rng.random((1000, 1)) < share_copied, copied, rng.normal(size=(1000, 4))
    )


def test_own_discriminator_is_used_as_it_is():
    people, generated = generator(0, 0.8)
    own = LogisticRegression().fit(np.r_[people[:200], generated], np.arange(1200) < 200)
    attack = GenerativeAttack(own, prefit=True).fit(None, None)
    order = np.argsort(own.decision_function(people))
    assert (np.diff(attack.score_samples(people)[order]) >= 0).all()
    with pytest.raises(ValueError, match="fitted discriminator"):
        GenerativeAttack(prefit=True).fit(None, None)
    with pytest.raises(ValueError, match="expected dozens"):
        GenerativeAttack().fit(np.ones((1, 2)), np.zeros((0, 2)))
