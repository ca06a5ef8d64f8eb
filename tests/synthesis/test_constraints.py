"""Constraints of a schema: every synthetic record satisfies them, at no cost, whatever the data."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    EqualColumns,
    ImpossibleValues,
    MappedColumn,
    OrderedColumns,
    Schema,
    SummedColumns,
)
from skprivacy.synthesis import DPGANSynthesizer, Grid, MarginalSynthesizer
from skprivacy.synthesis.constrained_records import Constraints

METHODS = ["tree", "adaptive", "independent"]


def breaks(rule, row, tolerance):
    """Whether a record breaks a constraint, written once more and differently."""
    values = [row[name] for name in rule.names]
    if any(pd.isna(value) for value in values):
        return False
    if isinstance(rule, EqualColumns):
        return any(
            not math.isclose(value, values[0], rel_tol=tolerance)
            if isinstance(value, float | int)
            else str(value) != str(values[0])
            for value in values[1:]
        )
    if isinstance(rule, OrderedColumns):
        return any(
            a >= b if rule.strict else a > b for a, b in zip(values, values[1:], strict=False)
        )
    if isinstance(rule, SummedColumns):
        error = abs(math.fsum(values[:-1]) - values[-1])
        return error > max(tolerance, 1e-11) * max(map(abs, values))
    if isinstance(rule, MappedColumn):
        return dict(rule.values)[values[0]] != values[1]
    for name, of in rule.values:
        if isinstance(row[name], str):
            inside = row[name] in of
        else:
            low, high = of
            inside = (low is None or low <= row[name]) and (high is None or row[name] <= high)
        if not inside:
            return False
    return True


def count_broken(rules, frame, tolerance=1e-6):
    rows = frame.astype(object).to_dict("records")
    return sum(breaks(rule, row, tolerance) for rule in rules for row in rows)


def random_columns(rng):
    """Return numbers and categories, and the types of their columns."""
    columns, types = {}, {}
    for i in range(rng.integers(3, 6)):
        low = float(rng.integers(-20, 20))
        columns[f"n{i}"] = BoundedColumn(low, low + float(rng.integers(5, 60)))
        types[f"n{i}"] = rng.choice(["int64", "float64", "float32", "int8"])
    for i in range(rng.integers(2, 4)):
        columns[f"c{i}"] = CategoricalColumn([f"v{k}" for k in range(rng.integers(2, 6))])
        types[f"c{i}"] = rng.choice(["object", "category"])
    return columns, types


def random_constraint(rng, columns):
    numbers = [n for n in columns if n.startswith("n")]
    words = [n for n in columns if n.startswith("c")]

    def some(names, k):
        return [str(n) for n in rng.choice(names, k, replace=False)]

    kind = rng.integers(6)
    if kind == 0:
        return EqualColumns(some(numbers, 2))
    if kind == 1:
        return EqualColumns(some(words, 2))
    if kind == 2:
        return OrderedColumns(some(numbers, rng.integers(2, 4)), bool(rng.integers(2)))
    if kind == 3:
        *parts, total = some(numbers, 3)
        return SummedColumns(parts, total)
    if kind == 4:
        source, target = some(words, 1)[0], some(numbers, 1)[0]
        fact = columns[target]
        values = rng.integers(fact.lower, fact.upper + 1, len(columns[source].values))
        return MappedColumn(source, target, dict(zip(columns[source].values, values, strict=True)))
    chosen = {}
    for name in some(list(columns), rng.integers(1, 4)):
        fact = columns[name]
        if isinstance(fact, CategoricalColumn):
            chosen[name] = some(list(fact.values), rng.integers(1, len(fact.values)))
        else:
            low = float(rng.integers(fact.lower, fact.upper))
            chosen[name] = [(low, low + 5), (None, low), (low, None)][rng.integers(3)]
    return ImpossibleValues(chosen)


def random_table(rng, columns, types, n=150):
    """Return records that break most constraints."""
    drawn = {}
    for name, fact in columns.items():
        if isinstance(fact, CategoricalColumn):
            drawn[name] = pd.Series(rng.choice(fact.values, n)).astype(types[name])
        else:
            drawn[name] = pd.Series(rng.uniform(fact.lower, fact.upper, n).round()).astype(
                types[name]
            )
    return pd.DataFrame(drawn)


@pytest.mark.parametrize("seed", range(24))
def test_every_record_satisfies_random_constraints(seed):
    """Or the constraints are refused before anything is charged."""
    rng = np.random.default_rng(seed)
    columns, types = random_columns(rng)
    rules = [random_constraint(rng, columns) for _ in range(rng.integers(1, 5))]
    schema = Schema(columns, constraints=rules)
    X = random_table(rng, columns, types)
    missing = [name for name in columns if types[name] in ("float64", "object") and rng.integers(2)]
    for name in missing:
        X.loc[rng.integers(0, len(X), 30), name] = None
    budget = PrivacyBudget(1e9, 0.1)
    label = "c0" if rng.integers(2) else None
    model = MarginalSynthesizer(
        rng.choice([0.1, 3.0, 500.0]), 1e-6, schema=schema, label=label, budget=budget, n_rounds=2,
        method=METHODS[seed % 3], columns_with_missing=missing, noise_seed=None, max_bins=6,
    )  # fmt: skip
    try:
        drawn = model.fit(X).sample(400, random_state=seed)
    except ValueError as error:
        assert "no record was found that satisfies all" in str(error)
        assert not len(budget.entries())
        return
    assert count_broken(rules, drawn) == 0
    assert (drawn.dtypes == X.dtypes).all()
    for name, fact in columns.items():
        assert name in missing or not drawn[name].isna().any()
        if isinstance(fact, BoundedColumn):
            assert drawn[name].dropna().between(fact.lower, fact.upper).all()
