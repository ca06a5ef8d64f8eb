"""Tables of people with several records: their numbers and their similarity."""

import numpy as np
import pandas as pd
import pytest

from skprivacy.datasets import load_demo, make_adult_like, make_grouped_table

TABLE = make_adult_like(3000, random_state=0, as_frame=True)
X, Y = TABLE.data, TABLE.target


@pytest.mark.parametrize("rows", ["nearest", "copies", "random"])
def test_people_have_up_to_fifty_records_of_zipfs_law(rows):
    people = make_grouped_table(X, Y, rows=rows, random_state=0)
    sizes = people.groups.value_counts()
    assert sizes.sum() == len(people.data) == len(people.target) == 3000
    assert sizes.max() <= 50
    assert people.groups.name == "person"
    assert sorted(people.groups.unique()) == list(range(len(sizes)))
    weights = np.arange(1, 51) ** -1.75
    expected = weights[0] / weights.sum()
    assert (sizes == 1).mean() == pytest.approx(expected, abs=5 * (0.25 / len(sizes)) ** 0.5)
    assert list(people.data.columns) == list(X.columns)
    assert (people.data.dtypes == X.dtypes).all()
    again = make_grouped_table(X, Y, rows=rows, random_state=0)
    pd.testing.assert_frame_equal(people.data, again.data)
    pd.testing.assert_series_equal(people.groups, again.groups)


@pytest.mark.parametrize("rows", ["nearest", "random"])
def test_every_record_is_somebodys_once_with_its_label(rows):
    table = X.assign(number=np.arange(3000))
    people = make_grouped_table(table, Y, rows=rows, random_state=1)
    assert sorted(people.data["number"]) == list(range(3000))
    assert (people.target == Y.to_numpy()[people.data["number"]]).all()
    few = make_grouped_table(table, Y, rows=rows, n_groups=200, random_state=1)
    assert few.groups.nunique() == 200
    assert few.data["number"].is_unique


def spread(people):
    numbers = people.data[["age", "education-num", "hours-per-week"]]
    within = numbers.groupby(people.groups.to_numpy()).var().dropna().mean()
    return float((within / numbers.var()).mean())


def test_nearest_records_are_near_and_copies_nearer():
    found = {
        rows: spread(make_grouped_table(X, Y, rows=rows, random_state=0))
        for rows in ("nearest", "copies", "random")
    }
    assert found["copies"] < 0.05
    assert found["copies"] < found["nearest"] < 0.5
    assert found["random"] == pytest.approx(1.0, abs=0.15)


def test_copies_keep_the_label_and_most_values():
    people = make_grouped_table(X, Y, rows="copies", random_state=0)
    assert (pd.Series(people.target).groupby(people.groups).nunique() == 1).all()
    kept = people.data["occupation"].groupby(people.groups).agg(lambda v: v.mode().size == 1)
    assert kept.mean() > 0.5
    assert people.data["age"].between(X["age"].min(), X["age"].max()).all()


def test_arrays_stay_arrays():
    data, target = load_demo(return_X_y=True)
    people = make_grouped_table(data, target, max_group_size=3, random_state=0)
    assert isinstance(people.data, np.ndarray)
    assert people.groups.value_counts().max() == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": "far"}, "rows='far' must be one of"),
        ({"max_group_size": 0}, "max_group_size=0 must be an integer"),
        ({"n_groups": True}, "n_groups=True must be an integer"),
        ({"exponent": -1}, "exponent=-1 must be a number >= 0"),
        ({"n_groups": 3000}, "and the table has 3000"),
    ],
)
def test_what_cannot_be_made_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        make_grouped_table(X, Y, random_state=0, **changes)
    with pytest.raises(ValueError, match="inconsistent"):
        make_grouped_table(X, Y[:-1])
