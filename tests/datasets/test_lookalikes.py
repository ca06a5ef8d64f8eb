"""Look-alikes have the shape, the schema and about the difficulty of what they stand for."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skprivacy.datasets import (
    make_adult_like,
    make_location_like,
    make_purchase_like,
    make_texas_like,
)
from skprivacy.datasets.adult import ADULT_SCHEMA
from skprivacy.datasets.catalogue import CATALOGUE
from skprivacy.preprocessing import SchemaTransformer

MAKERS = [make_adult_like, make_location_like, make_purchase_like, make_texas_like]


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_means_the_same_rows(make):
    one, two, other = (make(50, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.data, two.data)
    np.testing.assert_array_equal(one.target, two.target)
    assert (one.data != other.data).any()
    assert set(one.target) <= set(one.classes)
    frame = make(50, random_state=0, as_frame=True)
    np.testing.assert_array_equal(frame.data.to_numpy(), one.data)
    X, _ = make(50, random_state=0, return_X_y=True)
    np.testing.assert_array_equal(X, one.data)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("make", "features", "classes"),
    [
        (make_location_like, 446, 30),
        (make_purchase_like, 600, 100),
        (make_texas_like, 6_169, 100),
        (make_adult_like, 14, 2),
    ],
)
def test_shapes(make, features, classes):
    bunch = make(20, random_state=0)
    assert bunch.data.shape == (20, features)
    assert len(bunch.classes) == classes
    assert len(bunch.schema) == features


def accuracy(bunch):
    model = make_pipeline(
        SchemaTransformer(bunch.schema, dtype=np.float32), LogisticRegression(C=0.05, max_iter=200)
    )
    parts = train_test_split(bunch.data, bunch.target, test_size=0.3, random_state=0)
    X_train, X_test, y_train, y_test = parts
    return model.fit(X_train, y_train).score(X_test, y_test)


def test_adult_like_is_like_adult():
    bunch = make_adult_like(10_000, random_state=0)
    assert bunch.schema is ADULT_SCHEMA
    assert 0.2 < np.mean(bunch.target == ">50K") < 0.28  # Adult: 0.241
    assert 0.82 < accuracy(bunch) < 0.88  # Adult: 0.85
    out = SchemaTransformer(bunch.schema).fit_transform(bunch.data)
    assert (np.abs(out).max(axis=0) <= 1).all()


@pytest.mark.slow
def test_location_like_is_like_location():
    bunch = make_location_like(random_state=0)
    assert 0.10 < bunch.data.mean() < 0.14  # Location-30: 0.120
    assert 0.6 < accuracy(bunch) < 0.75  # Location-30: 0.675


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "10"])
def test_wrong_sizes(wrong):
    for make in MAKERS:
        with pytest.raises(ValueError, match=f"n_samples={wrong!r} must be an integer"):
            make(wrong)
    with pytest.raises(ValueError, match="n_classes=1 must be at least 2"):
        make_purchase_like(10, n_classes=1)


@pytest.mark.heavy
def test_the_catalogue_names_the_same_rows_each_time():
    one, two = (CATALOGUE["adult-like"].load(return_X_y=True)[0] for _ in range(2))
    np.testing.assert_array_equal(one, two)
