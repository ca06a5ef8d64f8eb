"""Odd tables, schemas and files for what describes, sums up, perturbs or makes up tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy import datasets, preprocessing, synthesis
from skprivacy.accounting import PrivacyBudget
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

from .oracle import Refused, attempt, few
from .values import arguments

pytestmark = pytest.mark.heavy

N = 24
TABLE = pd.DataFrame(
    {
        "age": np.arange(N) * 2.0,
        "job": ["cook", "smith", "clerk"] * (N // 3),
        "ill": np.arange(N) % 2,
    }
)
FACTS = {"age": BoundedColumn(0, 100), "job": CategoricalColumn(["cook", "smith", "clerk"])}
SCHEMA = Schema({**FACTS, "ill": CategoricalColumn([0, 1])})
COLUMN, ROWS = np.linspace(0, 1, N), np.linspace(0, 1, 2 * N).reshape(N, 2)
PRIVATE = {"epsilon": 1.0, "delta": 1e-6, "relation": "add_remove", "noise_seed": None}
# What releases something: nothing may be charged if it is refused.
RELEASES = {
    preprocessing.private_count: {"x": COLUMN, **PRIVATE},
    preprocessing.private_group_size: {
        "groups": [0, 0, 1, 1, 1, 2], "max_group_size": 4, "epsilon": 1.0, "quantile": 0.9,
        "relation": "add_remove", "noise_seed": None,
    },
    preprocessing.private_histogram: {"x": COLUMN, "bins": [0.0, 0.5, 1.0], **PRIVATE},
    preprocessing.private_mean: {"X": ROWS, "bounds": (0, 1), **PRIVATE},
    preprocessing.private_quantile: {
        "x": COLUMN, "q": 0.5, "bounds": (0, 1), "n_candidates": 8, "epsilon": 1.0,
        "relation": "add_remove", "noise_seed": None,
    },
    preprocessing.private_sum: {"X": ROWS, "bounds": (0, 1), **PRIVATE},
    preprocessing.private_variance: {"X": ROWS, "bounds": (0, 1), **PRIVATE},
}  # fmt: skip
FUNCTIONS = {
    BoundedColumn: {"lower": 0, "upper": 1, "missing": False},
    CategoricalColumn: {"values": ["a", "b"], "missing": False},
    preprocessing.DateColumn: {"first": "2020-01-01", "last": "2020-12-31", "parts": ("month",)},
    preprocessing.HashedColumn: {"n_features": 4},
    Schema: {
        "columns": FACTS, "target": None, "classes": None, "target_bounds": None, "inferred": False
    },
    Schema.infer: {"X": TABLE, "y": None, "max_categories": 10},
    Schema.from_json: {"source": SCHEMA.to_json()},
    SCHEMA.check: {"table": TABLE, "y": None, "groups": None},
    SCHEMA.with_bins: {"bins": {"age": [10, 20]}},
    preprocessing.draft_schema: {"table": TABLE, "target": "ill"},
    preprocessing.make_private_pipeline: {
        "schema": SCHEMA, "model": "passthrough", "n_records": None, "feature_range": (-1, 1),
        "memory": None, "verbose": False,
    },
    synthesis.Grid: {"step": None, "cells": 10, "atoms": ()},
    synthesis.synthetic_quality: {
        "real": TABLE, "synthetic": TABLE[::-1], "schema": SCHEMA, "grids": None, "model": None,
        "target": None, "test": None, "scoring": None,
    },
}  # fmt: skip
SYNTHESIZER = {
    "epsilon": 1.0, "delta": 1e-6, "schema": SCHEMA, "method": "tree", "label": None,
    "workload": None, "grids": None, "missing": (), "max_bins": 4, "rounds": 2, "max_cells": 1000,
    "relation": "add_remove",
}  # fmt: skip


@pytest.mark.parametrize("function", RELEASES)
@given(data=st.data())
@few(8)
def test_releases(function, data):
    budget = PrivacyBudget(1e6, 0.01)
    given_ = data.draw(arguments(RELEASES[function], least=1))
    attempt(
        lambda: function(**given_, budget=budget),
        {*given_, "categories", "seed", "budget", "noise_multiplier"},
        unchanged=lambda: len(budget.entries()),
    )


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
@given(data=st.data())
@few(8)
def test_descriptions(function, data):
    given_ = data.draw(arguments(FUNCTIONS[function], least=1))
    attempt(
        lambda: function(**given_),
        {*given_, "schema", "columns", "X", "column", "CategoricalColumn"},
    )


@given(data=st.data())
@few(4)
def test_synthesizers(data):
    budget = PrivacyBudget(1e6, 0.01)
    given_ = data.draw(arguments(SYNTHESIZER))
    model = synthesis.MarginalSynthesizer(**given_, budget=budget)
    valid = {"X": TABLE, "y": None, "groups": None}
    fitted = attempt(
        lambda: model.fit(**data.draw(arguments(valid, most=1))),
        {*given_, *valid, "column", "columns"},
        unchanged=lambda: (len(budget.entries()), sorted(vars(model))),
    )
    if not isinstance(fitted, Refused):
        asked = data.draw(arguments({"n": 5, "return_X_y": False, "random_state": 0}))
        attempt(lambda: model.sample(**asked), {*asked, "label", "seed"})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "table.parquet"
    TABLE.to_parquet(path)
    return path


@given(data=st.data())
@few(6)
def test_summaries_of_files(file, data):
    budget = PrivacyBudget(1e6, 0.01)
    valid = {
        "path": file, "schema": SCHEMA, "marginals": [("job",)], "means": ["age"], "groups": None,
        "max_group_size": 1, **PRIVATE, "memory": "512MB", "directory": None,
    }  # fmt: skip
    given_ = data.draw(arguments(valid, least=1))
    attempt(
        lambda: preprocessing.private_summary(**given_, budget=budget),
        {*given_, "column", "columns", "seed", "budget"},
        unchanged=lambda: len(budget.entries()),
    )


@given(data=st.data())
@few(6)
def test_files_that_are_opened(file, data):
    valid = {
        "path": file, "target": "ill", "columns": ["age"], "transformer": None, "directory": None,
        "return_X_y": False,
    }  # fmt: skip
    given_ = data.draw(arguments(valid, least=1))
    attempt(lambda: datasets.open_parquet(**given_), {*given_, "column"})
