"""Odd sizes and seeds for data sets that are made, and odd places for those that are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy import datasets

from .oracle import attempt, few
from .values import arguments

pytestmark = pytest.mark.heavy

SHAPE = {"as_frame": False, "return_X_y": False}
MADE = {"n_samples": 10, "random_state": 0, **SHAPE}
SIZES = {"n_features": 8, "n_classes": 3}
STORED = {"download_if_missing": False, **SHAPE}
CALLS = {
    datasets.load_demo: SHAPE,
    datasets.make_adult_like: MADE,
    datasets.make_location_like: {**MADE, **SIZES},
    datasets.make_grouped_table: {
        "X": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [0.2, 0.1]], "y": [0, 1, 0, 1],
        "rows": "nearest", "n_people": 2, "max_group_size": 2, "exponent": 1.75, "random_state": 0,
    },
    datasets.make_purchase_like: {**MADE, **SIZES},
    datasets.make_texas_like: {**MADE, **SIZES},
    datasets.fetch_adult: {"subset": "train", **STORED},
    datasets.fetch_mnist: {"subset": "train", **STORED},
    datasets.fetch_location30: STORED,
    datasets.fetch_purchase100: STORED,
    datasets.fetch_texas100: STORED,
}  # fmt: skip


@pytest.mark.parametrize("function", CALLS)
@given(data=st.data())
@few(4)
def test_datasets(function, data, tmp_path_factory):
    valid = dict(CALLS[function])
    if "download_if_missing" in valid:
        valid["data_home"] = tmp_path_factory.getbasetemp() / "nowhere"
    given_ = data.draw(arguments(valid, least=1))
    if "download_if_missing" in given_:
        given_["download_if_missing"] = False  # nothing is downloaded, whatever is true here
    attempt(lambda: function(**given_), {*given_, "seed"})
