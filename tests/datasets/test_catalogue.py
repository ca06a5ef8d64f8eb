"""Every data set that has a name: the shape it is said to have, inside its own public schema."""

from __future__ import annotations

import inspect
import re
from functools import partial

import numpy as np
import pytest

from skprivacy import datasets
from skprivacy.datasets.catalogue import CATALOGUE
from skprivacy.exceptions import DatasetNotFoundError
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
        return entry.load(GENERATED, **how)
    if "download_if_missing" in parameters:
        how["download_if_missing"] = False
    try:
        return entry.load(**how)
    except DatasetNotFoundError as error:
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


def test_every_loader_is_in_the_catalogue():
    of_others = {datasets.open_parquet, datasets.make_grouped_table}  # what is made of any table
    loaders = {getattr(datasets, name) for name in datasets.__all__} - of_others
    named = {entry.load for entry in CATALOGUE.values()}
    assert {load.func if isinstance(load, partial) else load for load in named} == loaders
