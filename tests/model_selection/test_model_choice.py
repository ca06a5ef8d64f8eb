"""The model to begin with follows from public facts, and takes the rows of the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.model_selection import suggest_model
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    HashedColumn,
    Schema,
)

COLUMNS = {"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["f", "m"])}
TWO = Schema(COLUMNS, classes=["no", "yes"])
THREE = Schema(COLUMNS, classes=["a", "b", "c"])
NUMBER = Schema(COLUMNS, target_bounds=(0, 10))


@pytest.mark.parametrize(("schema", "least"), [(TWO, 200), (THREE, 600), (NUMBER, 400)])
def test_tables_of_effects_need_a_signal_for_each_column_and_class(schema, least):
    n = least * analytic_noise_multiplier(1.0, 1e-5)
    assert "Additive" in type(suggest_model(schema, int(n) + 1)).__name__
    assert "dpsgd" in str(list(suggest_model(schema, int(n) - 1).named_steps))


@pytest.mark.parametrize("schema", [TWO, THREE, NUMBER])
@pytest.mark.parametrize("n_records", [100, 100_000])
def test_the_model_takes_rows_and_charges_the_budget(schema, n_records):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(0, 100, 200), "sex": rng.choice(["f", "m"], 200)})
    y = X["age"] / 10 if schema.classes is None else rng.choice(schema.classes, 200)
    budget = PrivacyBudget(2.0, 1e-6)
    model = suggest_model(schema, n_records, epsilon=0.5, delta=1e-6, budget=budget)
    assert len(model.fit(X, y).predict(X)) == 200
    assert 0.45 < budget.spent() <= 0.5


@pytest.mark.parametrize("column", [DateColumn("2020-01-01", "2025-12-31"), HashedColumn(4)])
def test_no_additive_model_is_suggested_for_columns_that_it_refuses(column):
    schema = Schema({"age": BoundedColumn(0, 100), "other": column}, classes=["no", "yes"])
    X = pd.DataFrame({"age": np.arange(100.0), "other": "2021-05-01"})
    model = suggest_model(schema, 1_000_000)
    assert len(model.fit(X, np.resize(["no", "yes"], 100)).predict(X)) == 100


def test_a_schema_without_target_and_numbers_out_of_range_are_refused():
    with pytest.raises(ValueError, match="schema describes no target"):
        suggest_model(Schema(COLUMNS), 1000)
    with pytest.raises(ValueError, match="n_records"):
        suggest_model(TWO, 0)
    with pytest.raises(ValueError, match="epsilon"):
        suggest_model(TWO, 1000, epsilon=-1.0)
