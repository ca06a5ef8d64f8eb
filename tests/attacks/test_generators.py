"""Attacks on generators, and the audit that runs them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from skprivacy.accounting import ApproxDP, PrivacyGuarantee
from skprivacy.attacks import DensityRatio, GenerativeAttack, NearestGenerated
from skprivacy.audit import audit_synthetic
from skprivacy.preprocessing import Bounded, Schema
from skprivacy.synthesis import PrivateSynthesizer

ATTACKS = [NearestGenerated, DensityRatio]


def copies(seed, noise, size=3):
    """People, and records generated around the first hundred of them."""
    rng = np.random.default_rng(seed)
    people = rng.normal(size=(600, size))
    generated = people[rng.integers(0, 100, 900)] + noise * rng.normal(size=(900, size))
    return people, generated


def test_copies_with_little_noise_are_found_by_where_they_lie():
    people, generated = copies(0, 0.05)
    parts = people[:100], people[100:300]
    found = {a: a().fit(generated, people[300:]).evaluate(*parts).auc for a in ATTACKS}
    assert found[DensityRatio] > 0.99
    assert found[NearestGenerated] > 0.96
    assert NearestGenerated().fit(generated).evaluate(*parts).auc > 0.98
    assert (
        min(found.values()) > GenerativeAttack().fit(generated, people[300:]).evaluate(*parts).auc
    )


def test_a_density_tells_more_than_a_distance_where_noise_is_large():
    found = np.zeros(2)
    for seed in range(3):
        people, generated = copies(seed, 0.2)
        parts = people[:100], people[100:300]
        found += [a().fit(generated, people[300:]).evaluate(*parts).auc / 3 for a in ATTACKS]
    assert found[1] > found[0] + 0.05


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_generator_that_generalises_is_not_accused(attack):
    """Also if the attacker's own records are the ones that were not used."""
    wrong = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        people, generated = rng.normal(size=(600, 3)), rng.normal(size=(900, 3))
        parts = people[:300], people[300:]
        low, high = attack().fit(generated, people[300:]).evaluate(*parts).auc_interval
        wrong += not low <= 0.5 <= high
    assert wrong <= binom.ppf(0.9999, 10, 0.05)


@pytest.mark.parametrize("attack", ATTACKS)
def test_tables_of_text_and_missing_numbers_are_points_too(attack):
    rng = np.random.default_rng(0)
    people = pd.DataFrame({f"x{i}": rng.choice(list("abcdef"), 600) for i in range(8)})
    people["age"] = np.where(rng.uniform(size=600) < 0.1, np.nan, rng.integers(0, 90, 600))
    generated = people.iloc[rng.integers(0, 100, 900)].reset_index(drop=True)
    result = attack().fit(generated, people[300:]).evaluate(people[:100], people[100:300])
    assert result.auc > 0.95
    unknown = people[:3].assign(x0="z", age=np.inf)
    assert np.isfinite(attack().fit(generated, people[300:]).score_samples(unknown)).all()


def test_points_far_from_all_have_finite_scores_in_order():
    people, generated = copies(0, 0.01)
    attack = DensityRatio().fit(generated, people[300:])
    far = np.array([[1e3] * 3, [1e6] * 3])
    assert np.isfinite(attack.score_samples(far)).all()


def test_what_is_too_little_is_named():
    people, generated = copies(0, 0.1)
    with pytest.raises(ValueError, match="reference=None"):
        DensityRatio().fit(generated, None)
    for attack in ATTACKS:
        with pytest.raises(ValueError, match="generated holds 1 records"):
            attack().fit(generated[:1], people)
        with pytest.raises(ValueError, match="reference holds 1 records"):
            attack().fit(generated, people[:1])
        with pytest.raises(ValueError, match="expected 3 and 0"):
            attack().fit(generated, people).score_samples(people[:, :2])
    with pytest.raises(ValueError, match="X_in must hold"):
        audit_synthetic(generated, people[:1], people)
    with pytest.raises(ValueError, match="attacks is empty"):
        audit_synthetic(generated, people, people, attacks=[])
    with pytest.raises(TypeError, match="must be a PrivacyGuarantee"):
        audit_synthetic(generated, people, people, guarantee=1.0)


def test_an_audit_refutes_the_claim_of_a_generator_that_copies():
    people, generated = copies(0, 0.05)
    claim = PrivacyGuarantee(ApproxDP(0.1, 1e-6), at_delta=1e-6)
    report = audit_synthetic(
        generated, people[:100], people[100:300], reference=people[300:], guarantee=claim
    )
    assert report.verdict == "VIOLATED"
    assert report.epsilon_lower_bound > 0.5
    assert len(report.findings) == 3
    assert "DensityRatio" in report._repr_html_()
    assert "DensityRatio" in str(report)
    alone = audit_synthetic(generated, people[:100], people[100:300])
    assert alone.not_measured == ("DensityRatio", "GenerativeAttack")
    assert "reference" in alone.why_not_measured


def test_an_audit_leaves_the_claim_of_a_private_synthesizer():
    rng = np.random.default_rng(0)
    people = rng.normal(size=(900, 3))
    schema = Schema({f"x{i}": Bounded(-4, 4) for i in range(3)})
    synthesizer = PrivateSynthesizer(1.0, 1e-6, schema=schema).fit(people[:300])
    synthetic = synthesizer.sample(3000, random_state=0).to_numpy()
    report = audit_synthetic(
        synthetic, people[:300], people[300:600], reference=people[600:],
        guarantee=synthesizer.privacy_,
    )  # fmt: skip
    assert report.verdict == "consistent"
    assert report.epsilon_lower_bound < 1.0
