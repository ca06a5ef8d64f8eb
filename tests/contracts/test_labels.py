"""Labels in any form: the different ones, and cells that hold several."""

import numpy as np
import pytest

from skprivacy._input_data import check_one_type, distinct_labels, holds_collections


class NoHash(str):
    __hash__ = None


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2, 0, 2, 1]),
        np.array([0.5, -1.0, 0.5]),
        np.array(["no", "yes", "no"]),
        np.array(["no", "yes", "no", "a word"], dtype=object),
        np.array([3, 1, 3, 2.5, True], dtype=object),
        np.array([("b", 1), ("a", 2), ("b", 1), 0], dtype=object)[:3],
        np.array([NoHash("b"), NoHash("a"), NoHash("b")], dtype=object),
        np.array([], dtype=object),
    ],
)
def test_the_different_labels_are_those_of_numpy(labels):
    found = distinct_labels(labels)
    assert found.dtype == labels.dtype
    assert found.tolist() == np.unique(labels).tolist()


def test_labels_without_an_order_are_refused():
    for labels in (["no", "yes", 1, 1], ["no", None], [("a",), "a"]):
        mixed = np.empty(len(labels), object)
        mixed[:] = labels
        with pytest.raises(TypeError, match="y must have labels of one type"):
            check_one_type("y", mixed)
    check_one_type("y", np.array(["no", "yes"] * 9, dtype=object))


@pytest.mark.parametrize("several", [[1, 2], (1,), {"a": 1}, np.array([1])])
def test_a_cell_of_several_values_is_found_anywhere(several):
    cells = np.array(["a", 1, 0.5, True, np.float64(2), np.array(3), b"c"], dtype=object)
    assert not holds_collections(cells)
    assert not holds_collections(cells[:4])
    for place in range(len(cells)):
        with_one = cells[:4].copy() if place < 4 else cells.copy()
        with_one[place] = several
        assert holds_collections(with_one)
