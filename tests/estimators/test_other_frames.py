"""Tables of pyarrow and polars are taken where a DataFrame is, by the names of columns."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from skprivacy.attacks import LossThreshold
from skprivacy.audit import audit
from skprivacy.label_privacy import RandomizedResponseClassifier
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    PrivateStandardScaler,
    Schema,
    SchemaTransformer,
)

SCHEMA = Schema(
    {"age": BoundedColumn(0, 120), "sex": CategoricalColumn(["f", "m"]), "pay": BoundedColumn(0, 9)}
)
random = np.random.RandomState(0)
FRAME = pd.DataFrame(
    {
        "pay": random.uniform(0, 9, 120),  # not in the order of the schema
        "age": np.where(random.rand(120) < 0.1, np.nan, random.uniform(0, 99, 120)),
        "sex": random.choice(["f", "m", None], 120),
    }
)
Y = np.asarray(FRAME["pay"] > 4).astype(int)


def arrow(frame):
    pyarrow = pytest.importorskip("pyarrow", reason="tables of pyarrow")
    return pyarrow.Table.from_pandas(frame, preserve_index=False)


def polars(frame):
    library = pytest.importorskip("polars", reason="frames of polars")
    columns = {name: [None if pd.isna(v) else v for v in frame[name]] for name in frame}
    return library.DataFrame(columns)


def model():
    classifier = ObjectivePerturbationClassifier(
        epsilon=1, delta=1e-5, classes=[0, 1], bounds=(-1, 1)
    )
    return make_pipeline(SchemaTransformer(SCHEMA), classifier)


@pytest.mark.parametrize("table", [arrow, polars])
def test_a_schema_finds_columns_by_name(table):
    expected = SchemaTransformer(SCHEMA).fit_transform(FRAME)
    found = SchemaTransformer(SCHEMA).fit_transform(table(FRAME))
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="lacks the schema's columns"):
        SchemaTransformer(SCHEMA).fit(table(FRAME.rename(columns={"age": "years"})))


@pytest.mark.parametrize("table", [arrow, polars])
def test_a_pipeline_is_fitted_and_asked(table):
    rows = table(FRAME)
    fitted = model().fit(rows, table(pd.DataFrame({"y": Y}))["y"])
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(FRAME))


@pytest.mark.parametrize("table", [arrow, polars])
def test_estimators_of_numbers_take_tables(table):
    rows = table(FRAME[["pay"]])
    PrivateStandardScaler(bounds=(0, 9)).fit(rows).transform(rows)
    labels = RandomizedResponseClassifier(epsilon=2, classes=[0, 1]).fit(rows, Y)
    np.testing.assert_array_equal(labels.predict(rows), labels.predict(FRAME[["pay"]]))


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The columns 'age' have missing values")
@pytest.mark.parametrize("table", [arrow, polars])
def test_an_audit_and_a_sweep_take_tables(table):
    fitted = model().fit(FRAME[:60], Y[:60])
    attacks = [LossThreshold()]
    report, expected = (
        audit(fitted, wrap(FRAME[:60]), Y[:60], wrap(FRAME[60:]), Y[60:], attacks=attacks)
        for wrap in (table, lambda frame: frame)
    )
    assert report.findings[0].result.auc == expected.findings[0].result.auc
    sweep = PrivacySweepCV(model(), epsilons=[1], cv=2, baseline=None).fit(table(FRAME), Y)
    assert np.isfinite(sweep.cv_results_["mean_test_score"]).all()


def test_two_columns_of_one_name_are_refused():
    pyarrow = pytest.importorskip("pyarrow", reason="tables of pyarrow")
    twice = pyarrow.Table.from_arrays([pyarrow.array([1.0, 2.0])] * 2, names=["age", "age"])
    for estimator in (SchemaTransformer(SCHEMA), PrivateStandardScaler(bounds=(0, 9))):
        with pytest.raises(ValueError, match="more than one column named 'age'"):
            estimator.fit(twice)
