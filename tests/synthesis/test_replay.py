"""Replay on frames of odd values: neighbours differ only in the release."""

from __future__ import annotations

import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from skprivacy.preprocessing import Schema, SchemaTransformer
from skprivacy.synthesis import (
    DPGANSynthesizer,
    MarginalSynthesizer,
    SyntheticDataClassifier,
    marginal_selection,
)

from ..contracts.replay import Pair, compare
from .tables import SCHEMA, people

TABLE = Schema(
    {name: SCHEMA[name] for name in SCHEMA if name != "rich"},
    target_column="rich",
    classes=["no", "yes"],
)
COUNTING = MarginalSynthesizer(
    50.0, 1e-5, schema=TABLE, columns_with_missing=["gain"], relation="zero_out"
)
MODELS = {
    "few": COUNTING,
    "tree": COUNTING,
    "generator": DPGANSynthesizer(
        50.0, 1e-5, schema=TABLE, columns_with_missing=["gain"], hidden_layer_sizes=(4,),
        generator_layer_sizes=(4,), batch_size=20, epochs=1, discriminator_steps=1, random_state=0,
    ),
    "classifier": SyntheticDataClassifier(
        make_pipeline(SchemaTransformer(TABLE), GaussianNB()), COUNTING, random_state=0
    ),
}  # fmt: skip
ODD = ["no such", "12", 10**400, [1, 2], "\ud800", object()]


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", MODELS)
def test_a_record_with_an_odd_value_is_one_record(name, monkeypatch):
    X, y = people(60).drop(columns="rich").astype(object), people(60)["rich"]
    null = X.copy()
    null.iloc[0] = None
    if name == "tree":  # as with many records: pairs are chosen, and counted with the label
        monkeypatch.setattr(marginal_selection, "_LEAST_FOR_TRIPLES", 0.0)
    reached = []
    for place, value in enumerate(ODD):
        odd = X.copy()
        column = odd.columns[place % 3]
        values = odd[column].tolist()
        values[0] = value
        odd[column] = pd.Series(values, dtype=object)  # types are public
        always = 0 if name == "generator" else None
        pair = Pair(f"{column}: {value!r}", (odd, y), (null, y), always=always)
        reached += compare(MODELS[name], pair)
    assert max(reached) > 0.5
