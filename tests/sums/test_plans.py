"""Plans are frozen public facts; their integers are exact, pure and canonical."""

import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy.linear_model import AdaSSPRegressor, FunctionalMechanismRegressor
from skprivacy.preprocessing import PrivateStandardScaler
from skprivacy.sums import sum_plan
from skprivacy.sums.sum_plan import GROUP_SIZE, add_limbs, limbs_to_floats, split_limbs

from .engines import COLUMNS, MODELS, patients

TABLE = patients(500)


def plan_of(name, **params):
    make, target = MODELS[name]
    groups = params.pop("groups", None)
    return make(**params).plan(COLUMNS, y=target, groups=groups)


def to_integers(limbs):
    """Return Python integers."""
    return [(int(high) << 32) + int(low) for high, low in limbs.T]


whole = st.integers(-(2**62), 2**62)


@given(st.lists(whole, min_size=1, max_size=20))
def test_limbs_add_up_exactly_and_are_canonical(values):
    total = np.zeros((2, 1), np.int64)
    for value in values:
        total = add_limbs(total, split_limbs(np.array([value])))
    assert to_integers(total) == [sum(values)]
    assert 0 <= total[1, 0] < 2**32
    assert limbs_to_floats(total)[0] == float(sum(values))


def test_sums_of_a_thousand_million_full_parts_do_not_overflow():
    """A slice of 2**14 records adds at most 2**62."""
    total = split_limbs(np.array([2**62, -(2**62)]))
    for _ in range(30):
        total = add_limbs(total, total)
    assert to_integers(total) == [2**92, -(2**92)]


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_is_small_frozen_and_travels(name):
    plan = plan_of(name)
    assert len(pickle.dumps(plan)) < 2_000
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert again.digest == plan.digest
    assert np.array_equal(again.partial(TABLE), plan.partial(TABLE))
    with pytest.raises(FrozenInstanceError):
        plan.unit = "patient"


@pytest.mark.parametrize("name", MODELS)
def test_every_fact_and_the_version_change_the_digest(name, monkeypatch):
    digests = {
        plan_of(name).digest,
        plan_of(name, bounds=(0, 101)).digest,
        plan_of(name, groups="patient").digest,
        plan_of(name, groups="visit").digest,
        MODELS[name][0]().plan(COLUMNS[::-1], y=MODELS[name][1]).digest,
    }
    monkeypatch.setattr(sum_plan, "__version__", "999")
    assert len(digests | {plan_of(name).digest}) == 6


def test_noise_and_budget_are_no_part_of_a_plan():
    plan = plan_of("AdaSSPRegressor")
    assert plan.digest == plan_of("AdaSSPRegressor", epsilon=0.1, noise_seed=3).digest


def test_models_of_other_sums_have_other_digests():
    facts = {"bounds": (0, 100), "target_bounds": (0, 90)}
    plans = [
        AdaSSPRegressor(**facts).plan(COLUMNS, y="cost"),
        FunctionalMechanismRegressor(**facts).plan(COLUMNS, y="cost"),
        FunctionalMechanismRegressor(delta=1e-6, **facts).plan(COLUMNS, y="cost"),
        AdaSSPRegressor(radius=0.5, **facts).plan(COLUMNS, y="cost"),
        AdaSSPRegressor(fit_intercept=False, **facts).plan(COLUMNS, y="cost"),
        PrivateStandardScaler(bounds=(0, 100)).plan(COLUMNS),
    ]
    assert len({plan.digest for plan in plans}) == len(plans)


def test_the_integers_are_those_of_exact_arithmetic():
    plan = plan_of("AdaSSPRegressor")
    rows, weights = plan.ball.transform(TABLE[COLUMNS].to_numpy())
    target = np.clip((np.clip(TABLE["cost"], 0, 90) - 0) * (2 / 90) - 1, -1, 1).to_numpy()
    slopes = np.trunc(target * weights * 2**16)
    exact = [[Fraction(x) * 2**16 for x in row] for row in rows]
    moments = [
        sum(row[i] * row[j] for row in exact)
        for i in range(len(rows[0]))
        for j in range(len(rows[0]))
    ]
    products = [
        sum(row[i] * int(s) for row, s in zip(exact, slopes, strict=True))
        for i in range(len(rows[0]))
    ]
    assert to_integers(plan.partial(TABLE)) == [len(TABLE), *moments, *products]


@pytest.mark.parametrize("name", MODELS)
def test_the_size_is_known_before_any_batch(name):
    plan = plan_of(name)
    assert plan.partial(TABLE).shape == (2, plan.size) == plan.partial(TABLE[:0]).shape
    assert not plan.partial(TABLE[:0]).any()


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_is_the_sum_of_its_rows(name):
    plan = plan_of(name, groups="patient")
    rows = TABLE.assign(**{GROUP_SIZE: 3})[:60]
    total = np.zeros((2, plan.size), np.int64)
    for i in range(len(rows)):
        total = add_limbs(total, plan.partial(rows[i : i + 1]))
    assert np.array_equal(total, plan.partial(rows))


def test_groups_are_counted_exactly_from_the_sizes_of_their_rows():
    """Sums of floor(2**48 / m) round down by less than one, whatever the sizes."""
    plan = plan_of("PrivateStandardScaler", groups="patient")
    for sizes in ([1], [3, 3, 7], [2**20 + 1], [1000] * 40):
        rows = pd.DataFrame(0.0, index=range(sum(sizes)), columns=COLUMNS)
        rows[GROUP_SIZE] = np.repeat(sizes, sizes)
        assert sum_plan.count_units("patient", plan.partial(rows)) == len(sizes)


def test_rows_without_a_group_add_nothing():
    for name in MODELS:
        plan = plan_of(name, groups="patient")
        rows = TABLE.assign(**{GROUP_SIZE: [np.nan, 0, -3, None] * 125})
        assert not plan.partial(rows).any(), name


@pytest.mark.parametrize("missing", ["bounds", "target_bounds"])
def test_a_plan_demands_public_facts(missing):
    facts = {"bounds": (0, 100), "target_bounds": (0, 90), missing: None}
    with pytest.raises(ValueError, match=f"{missing}=None"):
        AdaSSPRegressor(**facts).plan(COLUMNS, y="cost")


def test_a_plan_leaves_the_model_as_it_was():
    model = MODELS["AdaSSPRegressor"][0]()
    before = dict(vars(model))
    model.plan(COLUMNS, y="cost")
    assert vars(model) == before


def test_a_batch_without_a_column_is_refused():
    with pytest.raises(KeyError, match="0 columns named 'dose'"):
        plan_of("AdaSSPRegressor").partial(TABLE.drop(columns="dose"))
    with pytest.raises(KeyError, match=GROUP_SIZE):
        plan_of("AdaSSPRegressor", groups="patient").partial(TABLE)
    with pytest.raises(TypeError, match="batch is a ndarray"):
        plan_of("AdaSSPRegressor").partial(TABLE.to_numpy())


@pytest.mark.parametrize(
    ("name", "column", "values"),
    [
        ("AdaSSPRegressor", "cost", [np.nan, None]),
        ("FunctionalMechanismRegressor", "cost", [np.nan, None]),
        ("FunctionalMechanismClassifier", "outcome", ["unknown", None, "Home", "home "]),
        ("AdaSSPRegressor", "age", [np.nan, None]),
    ],
)
def test_records_without_a_feature_or_a_known_target_add_nothing_but_their_number(
    name, column, values
):
    rows = TABLE[TABLE["age"].notna()][:40].assign(**{column: np.resize(values, 40)})
    integers = plan_of(name).partial(rows)
    assert integers[:, 0].tolist() == [0, 40]
    assert not integers[:, 1:].any()
