"""The quality report against counts by hand."""

from __future__ import annotations

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.synthesis import Grid, synthetic_quality

from .tables import SCHEMA, people

PLAIN = Schema(
    {"a": CategoricalColumn([0, 1]), "b": CategoricalColumn([0, 1]), "c": BoundedColumn(0, 10)}
)


def frame(a, b, c):
    return pd.DataFrame({"a": a, "b": b, "c": c})


def test_variations_and_correlations_are_those_counted_by_hand():
    real = frame([0, 0, 1, 1], [0, 0, 1, 1], [0.0, 1.0, 9.0, 10.0])
    synthetic = frame([0, 0, 1, 1], [0, 1, 0, 1], [0.0, 1.0, 9.0, np.nan])
    quality = synthetic_quality(real, synthetic, PLAIN, grids={"c": Grid(cells=2)})
    assert quality.columns["total_variation"].tolist() == [0.0, 0.0, 0.25]
    pairs = quality.pairs.set_index(["first", "second"])["total_variation"]
    assert pairs["a", "b"] == 0.5
    assert pairs["a", "c"] == 0.25
    assert pairs["b", "c"] == 0.75
    assert quality.pairs["total_variation"].is_monotonic_decreasing
    assert quality.columns.loc["c", "real_mean"] == 5.0
    assert np.isclose(quality.columns.loc["c", "synthetic_mean"], 10 / 3)
    assert quality.shares["c"].loc["missing"].tolist() == [0.0, 0.25]
    assert quality.pairs[["real", "synthetic"]].isna().all().all()  # one numeric column
    assert quality.scores is None


def test_correlations_are_of_two_numeric_columns():
    schema = Schema({"x": BoundedColumn(0, 1), "y": BoundedColumn(0, 1)})
    x = np.linspace(0, 1, 50)
    real = pd.DataFrame({"x": x, "y": x})
    synthetic = pd.DataFrame({"x": x, "y": 1 - x})
    row = synthetic_quality(real, synthetic, schema).pairs.iloc[0]
    assert np.isclose(row["real"], 1.0)
    assert np.isclose(row["synthetic"], -1.0)
    assert "off by 2.000" in str(synthetic_quality(real, synthetic, schema))


def test_the_same_records_in_another_order_are_perfect():
    real = people(500)
    quality = synthetic_quality(
        real, real.sample(frac=1, random_state=0)[real.columns[::-1]], SCHEMA
    )
    assert quality.columns["total_variation"].max() < 1e-12
    assert quality.pairs["total_variation"].max() < 1e-12
    assert len(quality.pairs) == 10


def test_models_are_trained_on_each_and_tested_on_real_records():
    real, test = people(1000), people(1000, seed=1)
    swapped = {"no": "yes", "yes": "no"}
    synthetic = people(1000, seed=2).assign(rich=lambda t: t["rich"].map(swapped))
    keep = ["age", "gain", "rich"]
    schema = Schema({name: SCHEMA[name] for name in keep})
    parts = real[keep], synthetic[keep], schema
    quality = synthetic_quality(
        *parts, model=LogisticRegression(max_iter=1000), target_column="rich", test=test[keep],
        scoring={"accuracy": "accuracy", "area": "roc_auc"},
    )  # fmt: skip
    assert list(quality.scores.index) == ["accuracy", "area"]
    assert quality.scores.loc["area", "real"] > 0.9
    assert quality.scores.loc["area", "synthetic"] < 0.1
    assert "area: " in str(quality)
    alone = synthetic_quality(
        *parts, model=DummyClassifier(), target_column="rich", test=test[keep]
    )
    majority = (test["rich"] == real["rich"].mode()[0]).mean()
    assert alone.scores.loc["score", "real"] == pytest.approx(majority)


@pytest.mark.slow
def test_columns_are_drawn():
    matplotlib.use("Agg")
    real = people(200)
    quality = synthetic_quality(real, people(200, seed=1), SCHEMA)
    axes = quality.plot()
    assert [ax.get_title() for ax in axes.flat[:5]] == list(SCHEMA)
    heights = [bar.get_height() for bar in axes.flat[3].patches]
    assert np.isclose(sum(heights), 2.0)  # shares of real and of synthetic records
    matplotlib.pyplot.close("all")


def test_mismatches_are_named():
    real = people(50)
    with pytest.raises(ValueError, match="lacks the schema's columns"):
        synthetic_quality(real, real.drop(columns="age"), SCHEMA)
    with pytest.raises(ValueError, match="must be DataFrames"):
        synthetic_quality(real, real[:0], SCHEMA)
    with pytest.raises(ValueError, match="model needs target"):
        synthetic_quality(real, real, SCHEMA, model=DummyClassifier())


@pytest.mark.heavy
def test_a_page_shows_all_columns_and_says_that_it_is_not_private(tmp_path):
    real = people(500).rename(columns={"job": r"$\frac<b>", "age": "age"})
    facts = {r"$\frac<b>" if name == "job" else name: SCHEMA[name] for name in SCHEMA}
    synthetic = real.sample(300, random_state=0).reset_index(drop=True)
    quality = synthetic_quality(
        real, synthetic, Schema(facts), model=DummyClassifier(), target_column="rich", test=real
    )
    claim = PrivacyGuarantee(
        ApproxDPEvent(1.0, 1e-6), at_delta=1e-6, assumptions=("types are public",)
    )
    page = quality.to_html(tmp_path / "quality.html", name="<i>people</i>", guarantee=claim)
    assert page == (tmp_path / "quality.html").read_text(encoding="utf-8")
    for text in ("not private", "&lt;i&gt;people", r"$\frac&lt;b&gt;", "1e-06)-DP", "types are"):
        assert text in page
    assert "It has noise of unspecified arithmetic: assume floating point" in page
    assert page.count("<tr>") == 3 + 1 + 5 + 10  # heads, a score, columns, pairs
    assert "Trained on real records" in page
    plain = synthetic_quality(real[["city"]], synthetic[["city"]], Schema({"city": SCHEMA["city"]}))
    assert "Pairs" not in plain.to_html()
    with pytest.raises(ValueError, match="must end in"):
        quality.to_html(tmp_path / "quality.txt")
