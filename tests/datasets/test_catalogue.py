"""Every data set that has a name: the shape it is said to have, inside its own public schema."""

import inspect
import re
from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skprivacy import datasets
from skprivacy.datasets.adult import ADULT_SCHEMA
from skprivacy.datasets.catalogue import CATALOGUE
from skprivacy.preprocessing import SchemaTransformer

GENERATED = 40  # rows of a data set that is made to order


def said(name):
    """Return how many rows, columns and classes the catalogue says that there are."""
    numbers = re.search(r"([\d,]+) x ([\d,]+), (\d+) classes", CATALOGUE[name].summary).groups()
    return tuple(int(number.replace(",", "")) for number in numbers)


# A table of a hundred million cells takes gigabytes: of those, test_archives.py reads small ones.
TABLES = [
    name
    for name in CATALOGUE
    if name.endswith("-like") or np.prod(said(name)[:2]) < 1e8  # the former in any size
]


def load(name, **how):
    """Load a data set, without downloading it."""
    entry = CATALOGUE[name]
    parameters = inspect.signature(entry.load).parameters
    if "n_samples" in parameters:
        return entry.load(n_samples=GENERATED, **how)
    if "download_if_missing" in parameters:
        how["download_if_missing"] = False
    try:
        return entry.load(**how)
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", TABLES)
def test_shape_and_schema(name):
    bunch = load(name, as_frame=True)
    rows, columns, classes = said(name)
    assert len(bunch.data) in (rows, GENERATED)
    assert bunch.data.shape[1] == columns
    assert list(bunch.data) == list(bunch.schema) == bunch.feature_names
    assert len(bunch.classes) == classes == len(bunch.target_names)
    assert set(bunch.target) <= set(bunch.classes) == set(bunch.schema.classes)
    assert bunch.target.name == bunch.schema.target_column
    assert bunch.DESCR


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize("name", TABLES)
def test_no_record_is_out_of_bounds(name):
    bunch = load(name, as_frame=True)
    rows = bunch.data.iloc[:: max(1, len(bunch.data) // 1000)]
    for column, fact in bunch.schema.items():
        if hasattr(fact, "values"):
            assert set(rows[column]) - set(fact.values) <= {"?"}, column
        else:
            assert rows[column].between(fact.lower, fact.upper).all(), column
    features = SchemaTransformer(bunch.schema).fit(rows).transform(rows)
    assert np.abs(features).max() <= 1


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize("name", TABLES)
def test_frames_and_arrays_hold_the_same(name):
    frame, bunch = load(name, as_frame=True), load(name)
    X, y = load(name, return_X_y=True)
    assert bunch.frame is None
    assert list(frame.frame) == [*frame.feature_names, frame.target.name]
    for data, target in ((frame.data, frame.target), (bunch.data, bunch.target)):
        np.testing.assert_array_equal(np.asarray(data), X)
        np.testing.assert_array_equal(np.asarray(target), y)
    assert X.flags.writeable
    assert y.flags.writeable


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith("-like")])
def test_a_seed_means_the_same_rows(name):
    one, two, other = (
        CATALOGUE[name].load(n_samples=50, random_state=seed, return_X_y=True) for seed in (0, 0, 1)
    )
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)
    assert (one[0] != other[0]).any()
    named, again = (load(name, return_X_y=True)[0] for _ in range(2))
    np.testing.assert_array_equal(named, again)


def accuracy(bunch):
    model = make_pipeline(
        SchemaTransformer(bunch.schema, dtype=np.float32), LogisticRegression(C=0.05, max_iter=200)
    )
    parts = train_test_split(bunch.data, bunch.target, test_size=0.3, random_state=0)
    X_train, X_test, y_train, y_test = parts
    return model.fit(X_train, y_train).score(X_test, y_test)


def test_adult_like_is_like_adult():
    bunch = datasets.make_adult_like(10_000, random_state=0)
    assert bunch.schema is ADULT_SCHEMA
    assert 0.2 < np.mean(bunch.target == ">50K") < 0.28  # Adult: 0.241
    assert 0.82 < accuracy(bunch) < 0.88  # Adult: 0.85


@pytest.mark.slow
def test_location_like_is_like_location():
    bunch = datasets.make_membership_benchmark("location30", random_state=0)
    assert 0.10 < bunch.data.mean() < 0.14  # Location-30: 0.120
    assert 0.6 < accuracy(bunch) < 0.75  # Location-30: 0.675


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10"])
def test_wrong_sizes(wrong):
    words = f"n_samples={wrong!r} must be an integer"
    with pytest.raises(ValueError, match=words):
        datasets.make_adult_like(wrong)
    with pytest.raises(ValueError, match=words):
        datasets.make_membership_benchmark("texas100", wrong)


def test_wrong_benchmarks():
    with pytest.raises(ValueError, match="n_classes=1 must be at least 2"):
        datasets.make_membership_benchmark("texas100", 10, n_classes=1)
    for load_one in (datasets.make_membership_benchmark, datasets.fetch_membership_benchmark):
        with pytest.raises(ValueError, match="name='texas' must be one of"):
            load_one("texas")


def test_every_loader_is_in_the_catalogue():
    of_others = {datasets.open_parquet, datasets.make_grouped_table}  # what is made of any table
    loaders = {getattr(datasets, name) for name in datasets.__all__} - of_others
    named = {entry.load for entry in CATALOGUE.values()}
    assert {load.func if isinstance(load, partial) else load for load in named} == loaders
