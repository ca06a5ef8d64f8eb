"""A pipeline with a schema fits a table in its engine, with the bits of a fit in memory."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

from skprivacy.linear_model import AdaSSPRegressor, FunctionalMechanismClassifier
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    PrivateStandardScaler,
    Schema,
    SchemaTransformer,
    make_private_pipeline,
)

from .engines import ENGINES, patients, refused, same_fits

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
TABLE = patients(1_500)
TABLE["ward"] = np.resize(["A", "B", None, "??", " A\t"], len(TABLE))
SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100, bins=4, missing=True),
        "visits": BoundedColumn(0, 9),
        "ward": CategoricalColumn(["A", "B"]),
    },
    classes=["home", "ward", "died"],
    target_bounds=(0, 90),
)
MODELS = {"cost": AdaSSPRegressor, "outcome": FunctionalMechanismClassifier}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("target", MODELS)
def test_a_pipeline_gives_the_bits_of_a_fit_in_memory(target, engine, tmp_path):
    name = MODELS[target].__name__.lower()
    pipeline = make_private_pipeline(SCHEMA, MODELS[target](noise_seed=1))
    columns = [*SCHEMA, target, "patient"]
    table = ENGINES[engine](TABLE[columns], tmp_path)
    found = pipeline.fit(table, target, **{f"{name}__groups": "patient"})[-1]
    answers = pipeline.predict(TABLE[list(SCHEMA)][:20])
    expected = make_private_pipeline(SCHEMA, MODELS[target](noise_seed=1)).fit(
        TABLE[list(SCHEMA)], TABLE[target], **{f"{name}__groups": TABLE["patient"]}
    )
    assert same_fits(found, expected[-1])
    assert found.n_features_in_ == expected[-1].n_features_in_ == 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answers.tolist() == expected.predict(TABLE[list(SCHEMA)][:20]).tolist()


def test_a_scaler_takes_encoded_features(tmp_path):
    schema = Schema({name: SCHEMA[name] for name in ("age", "visits")})
    table = ENGINES["dataset"](TABLE[["age", "visits"]], tmp_path)
    scalers = [
        make_pipeline(
            SchemaTransformer(schema), PrivateStandardScaler(bounds=(-1, 1), noise_seed=1)
        )
        for _ in range(2)
    ]
    found = scalers[0].fit(table)[-1]
    assert same_fits(found, scalers[1].fit(TABLE[["age", "visits"]])[-1])


def test_decimals_count_as_numbers():
    ages = [Decimal(i % 1000) / 10 for i in range(2_000)]
    table = pa.table({"age": pa.array(ages, pa.decimal128(10, 1)), "cost": np.arange(2_000.0)})
    frame = pd.DataFrame({"age": [float(age) for age in ages]})
    schema = Schema({"age": BoundedColumn(0, 100)}, target_bounds=(0, 2_000))
    found, expected = (make_private_pipeline(schema, AdaSSPRegressor(noise_seed=1)) for _ in "ab")
    found.fit(table, "cost")
    assert same_fits(found[-1], expected.fit(frame, np.arange(2_000.0))[-1])


def test_a_missing_column_is_refused_before_the_charge(tmp_path):
    table = ENGINES["dataset"](TABLE[["age", "visits", "cost"]], tmp_path)
    with refused(ValueError, r"lacks the schema's columns \['ward'\]") as budget:
        make_private_pipeline(SCHEMA, AdaSSPRegressor(budget=budget)).fit(table, "cost")


def test_columns_beside_schema_and_target_are_refused(tmp_path):
    """They would be features without an encoding."""
    pipeline = make_private_pipeline(SCHEMA, AdaSSPRegressor())
    table = ENGINES["dataset"](TABLE[[*SCHEMA, "cost", "dose"]], tmp_path)
    with pytest.raises(ValueError, match=r"does not describe: \['dose'\]"):
        pipeline.fit(table, "cost")
