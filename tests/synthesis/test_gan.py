"""DPGANSynthesizer from a user's view."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from skprivacy import load_model, save_model
from skprivacy.accounting import PrivacyBudget
from skprivacy.neural_network._training import adversarial
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.synthesis import DPGANSynthesizer, Grid
from skprivacy.synthesis import gan_features as _moments
from skprivacy.synthesis.domain import Domain
from skprivacy.synthesis.gan_features import Features, Moments

from .tables import SCHEMA, people

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
SMALL = {"hidden_layer_sizes": (8,), "generator_layer_sizes": (8,), "batch_size": 40, "epochs": 2}


def fitted(X, y=None, schema=SCHEMA, epsilon=50.0, **params):
    return DPGANSynthesizer(
        epsilon, 1e-5, schema=schema, **{**SMALL, "noise_seed": 0, **params}
    ).fit(X, y)


@pytest.mark.heavy
def test_labels_are_drawn_as_often_as_they_were_counted():
    X, y = people(2000).drop(columns="rich"), people(2000)["rich"]
    schema = Schema({name: SCHEMA[name] for name in X}, target_column="rich", classes=["no", "yes"])
    synthesizer = fitted(X, y, schema)
    assert synthesizer.label_ == synthesizer.target_ == "rich"
    labels = synthesizer.sample(5000, return_X_y=True, random_state=0)[1]
    assert abs((labels == "yes").mean() - (y == "yes").mean()) < 0.05
    assert abs(synthesizer.rates_[1] - (y == "yes").mean()) < 0.03


@pytest.mark.heavy
def test_the_first_records_have_the_moments_of_their_label():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    line = rng.normal(size=(3000, 1))
    X = np.clip(0.3 + 0.4 * y[:, None] + 0.1 * line * [1, -1], 0, 1)
    schema = Schema({"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1)}, classes=[0, 1])
    # The correlation is -.995 +- .005; at epsilon 50 it was -.985 +- .023.
    synthesizer = fitted(X, y, schema, 500.0, epochs=1, learning_rate=1e-6, random_state=0)
    drawn, labels = synthesizer.sample(2000, return_X_y=True, random_state=0)
    for k in (0, 1):
        own = drawn[labels == k]
        np.testing.assert_allclose(own.mean(), 0.3 + 0.4 * k, atol=0.03)
        np.testing.assert_allclose(own.std(), 0.1, atol=0.02)
        assert own.corr().iloc[0, 1] < -0.9


@pytest.mark.slow
def test_columns_tied_to_the_label_are_learned_from_the_discriminator(monkeypatch):
    """Also by a generator that starts from nothing, in steps as large as the discriminator's."""
    monkeypatch.setattr(adversarial.Generator, "start", lambda self, means, factor: None)
    monkeypatch.setattr(adversarial, "_GENERATOR_RATE", 1.0)
    monkeypatch.setattr(adversarial, "_HEAD_START", 0.0)
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=3000)
    X = np.clip(rng.normal(0.25 + 0.5 * y[:, None], 0.1, size=(3000, 4)), 0, 1)
    schema = Schema({f"x{i}": BoundedColumn(0, 1) for i in range(4)}, classes=[0, 1])
    synthesizer = DPGANSynthesizer(
        20.0, 1e-5, schema=schema, hidden_layer_sizes=(32,), generator_layer_sizes=(32,),
        batch_size=100, epochs=12, discriminator_steps=1, learning_rate=4e-3, random_state=0,
    ).fit(X, y)  # fmt: skip
    drawn, labels = synthesizer.sample(2000, return_X_y=True, random_state=0)
    right = (drawn.mean(axis=1) > 0.5) == (labels == 1)
    assert right.mean() > 0.9


def test_samples_repeat_by_seed_and_leave_the_chance_of_the_caller():
    synthesizer = fitted(people(300))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two = (synthesizer.sample(50, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(one, two)
    assert not synthesizer.sample(50, random_state=4).equals(one)
    assert torch.equal(torch.get_rng_state(), before)
    again = pickle.loads(pickle.dumps(synthesizer)).sample(50, random_state=3)
    pd.testing.assert_frame_equal(one, again)
    assert len(synthesizer.sample()) == 300


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"label": "age"}, "label='age' must be a column with categories"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
        ({"generator_layer_sizes": ("a",)}, "generator_layer_sizes"),
        ({"epsilon": 1e-9}, "epsilon"),
        ({"delta": 1 / 50}, "delta"),
        ({"columns_with_missing": ["name"]}, "names 'name', which is not a column"),
        ({"epochs": 4}, "discriminator_steps=5 exceeds the total of 4 steps"),
    ],
)
def test_a_wrong_parameter_is_named_and_nothing_is_charged(params, said):
    budget = PrivacyBudget(1.0, 1e-2, relation="zero_out")
    model = DPGANSynthesizer(1.0, 1e-4, schema=SCHEMA, budget=budget).set_params(**params)
    with pytest.raises(ValueError, match=said):
        model.fit(people(50))
    assert budget.spent() == 0


def test_a_training_that_overflows_is_told_and_not_kept():
    model = DPGANSynthesizer(50.0, 1e-5, schema=SCHEMA, learning_rate=1e29, **SMALL)
    with pytest.raises(ValueError, match=r"learning_rate=1e\+29 is too large"):
        model.fit(people(300))
    assert not hasattr(model, "generator_")


def test_a_file_holds_the_generator_that_there_is(tmp_path):
    """Whatever has been set for another fit since."""
    model = fitted(people(300)).set_params(generator_layer_sizes=(9, 9), latent_size=3)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    rows = (m.sample(20, random_state=0) for m in (again, model))
    pd.testing.assert_frame_equal(*rows)


def test_features_come_back_as_the_codes_that_they_were():
    facts = {
        "age": BoundedColumn(0, 9),
        "job": CategoricalColumn(["a", "b", "c"]),
        "ill": CategoricalColumn([0, 1]),
    }
    domain = Domain.from_facts(facts, {"age": Grid(cells=7)}, ["age", "job"], {})
    for label in ("ill", "job", None):
        features = Features(domain, label)
        rng = np.random.default_rng(0)
        codes = np.column_stack([rng.integers(size, size=50) for size in domain.sizes])
        rows = features.rows(codes)
        assert rows.shape == (50, sum(features.widths))
        assert rows.min() >= 0
        assert rows.max() <= 1
        assert (features.codes(rows, features.labels(codes)) == codes).all()


WIDE = (2, 4)  # choices, whose rows may be of length 2**.5


def normal_rows(n, seed=0):
    """Rows of two labels around .3 and .6, in one direction more than in others."""
    rng = np.random.default_rng(seed)
    labels = (rng.uniform(size=n) < 0.25).astype(np.int64)
    factor = np.array([[0.1, 0.05, 0.0], [0.0, 0.02, 0.02]])
    rows = 0.3 + 0.3 * labels[:, None] + rng.normal(size=(n, 2)) @ factor
    return rows.astype(np.float32), labels, factor


def test_exact_moments_are_those_of_the_rows():
    rows, labels, factor = normal_rows(20_000)
    moments = Moments(2, (1, 1, 1))
    found = moments.start(moments.sums(rows, labels, None), 1e-9, 5)
    np.testing.assert_allclose(found.rates, [0.75, 0.25], atol=0.02)
    means = [rows[labels == k].mean(axis=0) for k in (0, 1)]
    np.testing.assert_allclose(found.means, means, atol=1e-3)
    np.testing.assert_allclose(found.factor.T @ found.factor, factor.T @ factor, atol=5e-4)
    assert found.factor.shape == (5, 3)
    assert np.all(found.factor[3:] == 0)  # more random numbers than columns


def test_directions_of_mere_noise_are_left_out():
    rows, labels, _ = normal_rows(2000)
    moments = Moments(2, (1, 1, 1))
    sums = moments.sums(rows, labels, None)
    noisy = sums + np.random.default_rng(0).normal(scale=50.0, size=sums.shape)
    assert np.all(moments.start(noisy, 50.0, 5).factor == 0)


def test_sums_are_exact_however_rows_are_cut(monkeypatch):
    rows, labels, _ = normal_rows(1000)
    shares = np.random.default_rng(1).integers(1, 1 << 20, size=1000) / (1 << 20)
    whole = Moments(2, (1, 1, 1)).sums(rows, labels, shares)
    monkeypatch.setattr(_moments, "row_slices", lambda n: (slice(i, i + 7) for i in range(0, n, 7)))
    np.testing.assert_array_equal(Moments(2, (1, 1, 1)).sums(rows, labels, shares), whole)


def test_of_wide_rows_the_means_alone_are_told(monkeypatch):
    rows, labels, _ = normal_rows(2000)
    moments = Moments(2, (1, 1, 1))
    sums = moments.sums(rows, labels, None)
    known = moments.start(sums, 1e-9, 5)
    monkeypatch.setattr(_moments, "_MAX_COVARIANCE_WIDTH", 2)
    few = moments.sums(rows, labels, None)
    assert len(few) == 3 + 6 < len(sums)  # each pair of labels; a mean for each
    found = moments.start(few, 1e-9, 5)
    np.testing.assert_array_equal(found.means, known.means)
    assert found.factor.shape == known.factor.shape
    assert np.all(found.factor == 0)


def test_a_label_that_is_hardly_counted_has_the_mean_of_all():
    rows, labels, _ = normal_rows(2000)
    labels[labels == 1] = 0
    labels[0] = 1
    moments = Moments(2, (1, 1, 1))
    found = moments.start(moments.sums(rows, labels, None), 10.0, 3)
    np.testing.assert_allclose(found.means[1], rows.mean(axis=0), atol=0.03)
    assert 0 <= found.means.min() <= found.means.max() <= 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_a_unit_adds_no_more_than_the_sensitivity(size):
    """A record, or a group whose records have shares of it, of whatever length."""
    rng = np.random.default_rng(size)
    shares = None if size == 1 else np.full(size, (1 << 20) // size / (1 << 20))
    longest = 0.0
    for length in (0.0, 0.5, 1.0, 1e3, 1e30):
        rows = rng.normal(size=(size, 6)).astype(np.float32)
        rows *= np.float32(length) / np.linalg.norm(rows, axis=1, keepdims=True)
        labels = np.full(size, 2) if length > 1 else rng.integers(4, size=size)
        added = Moments(4, WIDE).sums(rows, labels, shares)
        longest = max(longest, float(np.linalg.norm(added)))
        rows[:] = rows[0]  # all alike: the most that a group can add
        alike = Moments(4, WIDE).sums(rows, np.zeros(size, int), shares)
        longest = max(longest, float(np.linalg.norm(alike)))
    assert longest <= Moments.sensitivity
    # Reached by a row in one direction.
    row = np.sqrt(np.float32(2)) * np.eye(6, dtype=np.float32)[[0] * size]
    added = Moments(4, WIDE).sums(row, np.zeros(size, int), shares)
    assert np.linalg.norm(added) > 0.999 * Moments.sensitivity


def test_no_row_is_longer_than_the_radius():
    """So that none is shortened: a number at its end, and one category of each column."""
    moments = Moments(2, (1, 2, 3))
    assert moments.radius == 1.5
    row = np.array([[1, 0, 1, 0, 0, 1]], dtype=np.float32)
    added = moments.sums(row, np.array([0]), None)
    assert np.linalg.norm(added) == pytest.approx(Moments.sensitivity, rel=0.2)
    found = moments.start(
        moments.sums(np.repeat(row, 50, axis=0), np.zeros(50, int), None), 1e-9, 3
    )
    np.testing.assert_allclose(found.means[0], row[0], atol=1e-4)
