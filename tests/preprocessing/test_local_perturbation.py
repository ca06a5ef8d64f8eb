"""Local perturbation of records."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from skprivacy.exceptions import PrivacyLeakWarning, PrivacyWarning
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer
from skprivacy.preprocessing.local_perturbation import LocalPerturbation

SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100),
        "sex": CategoricalColumn(["F", "M", "X"]),
        "pay": BoundedColumn(-1, 1),
    }
)


def frame(n, age=30, sex="M", pay=0.5):
    return pd.DataFrame({"age": [age] * n, "sex": [sex] * n, "pay": [pay] * n})


def joint_cells(output, low=-1.0, high=1.0):
    """Number the cells of a coarse partition of the outputs: both numbers, and the category."""
    category = np.where(output[:, 1:4].any(axis=1), output[:, 1:4].argmax(axis=1), 3)
    numbers = [(output[:, i] > 0).astype(int) for i in (0, 4)]
    return category + 4 * numbers[0] + 8 * numbers[1]


def largest_ratio(epsilon, records, n=60_000):
    """Return a lower confidence bound on the log ratio of any cell's probability."""
    tables = []
    for seed, record in enumerate(records):
        local = LocalPerturbation(SCHEMA, epsilon=epsilon, noise_seed=seed)
        tables.append(
            np.bincount(joint_cells(local.fit_transform(frame(n, **record))), minlength=16)
        )
    worst = 0.0
    for a in tables:
        for b in tables:
            low = stats.beta.ppf(1e-6, a, n - a + 1)
            high = stats.beta.isf(1e-6, b + 1, n - b)
            worst = max(worst, np.log(low / high).max())
    return worst


RECORDS = [
    {"age": 0, "sex": "F", "pay": -1},
    {"age": 100, "sex": "M", "pay": 1},
    {"age": np.nan, "sex": "?", "pay": np.inf},
]


@pytest.mark.filterwarnings("ignore:noise_seed")
def test_whole_records_are_private_and_the_claim_is_nearly_used():
    measured = largest_ratio(1.5, RECORDS)
    assert measured <= 1.5
    assert measured > 0.6 * 1.5


@pytest.mark.filterwarnings("ignore:noise_seed")
def test_planted_budget_for_each_column_is_caught(monkeypatch):
    """The bug: every column spends all of epsilon, so that a record costs three times it."""
    response, noise = LocalPerturbation._category_response, LocalPerturbation._number_noise
    thrice = LocalPerturbation(SCHEMA, epsilon=4.5).fit(frame(1))
    monkeypatch.setattr(
        LocalPerturbation, "_category_response", lambda self, f: response(thrice, f)
    )
    monkeypatch.setattr(LocalPerturbation, "_number_noise", lambda self: noise(thrice))
    assert largest_ratio(1.5, RECORDS) > 1.5


@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_noise_of_numbers(delta):
    local = LocalPerturbation(SCHEMA, epsilon=600.0, delta=delta)  # little noise: nothing clipped
    out = local.fit_transform(frame(20_000))
    scale = 2 * local._number_noise().scale
    noise = np.r_[out[:, 0] - (-0.4), out[:, 4] - 0.5] / scale
    assert stats.kstest(noise, "norm" if delta else "laplace").pvalue > 1e-8
    if delta == 0:
        assert scale == pytest.approx(2 * 3 / 600, rel=1e-3)


def test_categories_are_told_with_the_right_probability():
    local = LocalPerturbation(SCHEMA, epsilon=3.0)
    out = local.fit_transform(frame(20_000))[:, 1:4]
    truth = np.e / (np.e + 3)  # a third of epsilon, and "missing" as a fourth category
    assert stats.binomtest(int(out[:, 1].sum()), 20_000, truth).pvalue > 1e-8
    assert (out.sum(axis=1) <= 1).all()
    assert (out.sum(axis=1) == 0).any()


def test_the_guarantee():
    local = LocalPerturbation(SCHEMA, epsilon=2.0).fit(frame(3))
    claim = (
        "2.00-DP, replace-one, exact noise, proved assuming one record per person, perturbed once; "
        "the number of records is public"
    )
    assert repr(local.privacy_) == claim
    assert local.privacy_.epsilon() <= 2.0 * (1 + 1e-9)
    gaussian = LocalPerturbation(SCHEMA, epsilon=np.float32(2.0), delta=1e-5).fit(frame(3))
    assert gaussian.privacy_.epsilon() <= 2.0
    assert gaussian.epsilon_ == 2.0
    with pytest.warns(PrivacyWarning, match="noise_seed"):
        seeded = LocalPerturbation(SCHEMA, noise_seed=1).fit(frame(3))
    assert seeded.privacy_.kind == "estimate"
    with pytest.warns(PrivacyLeakWarning):
        inferred = LocalPerturbation().fit([[1.0], [2.0]])
    assert "read off" in inferred.privacy_.assumptions[1]


def test_when_to_perturb():
    X = frame(50)
    plain = SchemaTransformer(SCHEMA).fit_transform(X)
    always = LocalPerturbation(SCHEMA).fit(X)
    assert not np.allclose(always.transform(X), plain)
    once = LocalPerturbation(SCHEMA, perturb="fit")
    assert not np.allclose(once.fit_transform(X), plain)
    np.testing.assert_array_equal(once.transform(X), plain)


@pytest.mark.parametrize(
    "change", [{"epsilon": 500.0}, {"delta": 0.1}, {"perturb": "fit"}, {"noise_seed": 0}]
)
def test_a_claim_does_not_outlive_a_change_of_what_is_done(change):
    local = LocalPerturbation(SCHEMA, epsilon=1.0).fit(frame(2)).set_params(**change)
    with pytest.raises(ValueError, match="changed after fit"):
        local.transform(frame(2))


def test_output_keeps_names_type_and_range():
    X = frame(100)
    local = LocalPerturbation(SCHEMA, dtype=np.float32).set_output(transform="pandas")
    out = local.fit_transform(X)
    assert out.columns.tolist() == ["age", "sex_F", "sex_M", "sex_X", "pay"]
    assert (out.dtypes == np.float32).all()
    assert np.abs(out.to_numpy()).max() <= 1


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": True}, "epsilon=True"),
        ({"delta": 1.5}, "delta=1.5"),
        ({"delta": True}, "delta=True"),
        ({"perturb": "no"}, "perturb="),
    ],
)
def test_bad_parameters(params, named):
    with pytest.raises(ValueError, match=named):
        LocalPerturbation(SCHEMA, **params).fit(frame(2))


def test_bins_tell_no_more_than_the_noisy_number():
    """The bits of the true number, kept beside the noisy one, would be a release without noise."""
    binned = SCHEMA.with_bins(8)
    local = LocalPerturbation(binned, epsilon=0.5)
    outputs = [local.fit_transform(frame(500, age=age)) for age in (0, 100)]
    for out in outputs:
        assert out.shape == (500, binned.n_features_out)
        for at, name in ((0, "age"), (8 + 3, "pay")):
            bits = binned[name]._thermometer((out[:, at] + 1) / 2)
            np.testing.assert_array_equal(out[:, at + 1 : at + 8], bits)
            assert len(np.unique(bits, axis=0)) > 1
        assert set(np.unique(out[:, 8:11])) <= {0.0, 1.0}
