"""A schema that does not fit to a table loses accuracy in silence: its check says where and why."""

import numpy as np
import pandas as pd
import pytest

from skprivacy.preprocessing import Bounded, Categories, Dates, Hashed, Schema

TABLE = pd.DataFrame(
    {
        "age": [31.0, 64.0, np.nan, 200.0],
        "smokes": ["No", "Yes", "no", ""],
        "weight": ["70,5", "81,2", "x", None],
        "born": ["2020-01-01", "31.12.1999", None, "1800-01-01"],
        "code": ["a", "b", None, "c"],
        "ill": ["yes", "Yes", "no", "no"],
        "cost": [1.0, 2.0, 3.0, 4.0],
    }
)
SCHEMA = Schema(
    {
        "age": Bounded(0, 120),
        "smokes": Categories(["no", "yes"]),
        "weight": Bounded(0, 300),
        "born": Dates("1900-01-01", "2030-01-01"),
        "code": Hashed(4),
        "height": Bounded(0, 3),
    },
    target="ill",
    classes=["no", "yes"],
)


def test_what_is_lost_is_counted():
    found = SCHEMA.check(TABLE)
    counts = found.to_frame().set_index("column")[["clipped", "unknown", "missing"]]
    assert counts.T.to_dict("list") == {
        "age": [1, 0, 1],
        "smokes": [0, 2, 1],
        "weight": [0, 3, 1],
        "born": [1, 1, 1],
        "code": [0, 0, 1],
        "ill": [0, 1, 0],
    }
    assert found.absent == ("height",)
    assert found.undescribed == ("cost",)
    assert not found.fits


def test_what_is_likely_meant_is_said():
    text = repr(SCHEMA.check(TABLE))
    assert text.startswith("This is about private data: do not publish it")
    assert "1 times 'No', the schema has 'no'" in text
    assert "1 times 'Yes', the schema has 'yes'" in text
    assert "--decimal ','" in text
    assert "no date in the format ISO 8601" in text
    assert "height: the table has no such column" in text
    assert "not described, so not used: cost" in text
    assert "6 of 7 columns" in text  # all but code


def test_close_spellings():
    schema = Schema({"country": Categories(["Switzerland", "Germany"])})
    text = repr(schema.check(pd.DataFrame({"country": ["Swizerland", "FRANCE", "germany "]})))
    assert "'Swizerland', the schema has 'Switzerland'" in text
    assert "'FRANCE', which is in no category" in text
    assert "'germany ', the schema has 'Germany'" in text


def test_bounds_in_another_unit_and_bounds_too_wide():
    X = pd.DataFrame({"age": np.linspace(18, 90, 50)})
    small = Schema({"age": Bounded(0, 1)}).check(X)
    assert small.columns[0].share_lost == 1.0
    assert "values reach from 18 to 90, the bounds are 0 and 1" in repr(small)
    wide = Schema({"age": Bounded(0, 1e6)}).check(X)
    assert wide.fits
    assert "hardly tell them apart" in repr(wide)
    assert "hardly" not in repr(Schema({"age": Bounded(0, 1e6, scale="log")}).check(X))


def test_a_table_that_fits():
    found = Schema({"age": Bounded(0, 120)}).check(pd.DataFrame({"age": [1, 100]}))
    assert found.fits
    assert "0 of 1 columns lose" in repr(found)


def test_a_target_beside_the_table():
    schema = Schema({"age": Bounded(0, 120)}, target_bounds=(0, 1))
    found = schema.check(pd.DataFrame({"age": [1, 100]}), y=[0.5, 7])
    assert (found.columns[-1].name, found.columns[-1].n_clipped) == ("target", 1)


def test_names_cannot_forge_lines():
    text = repr(SCHEMA.check(TABLE.assign(smokes="\x1b[2J")))
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("wrong", "words"), [([[1]], "expected a DataFrame"), (TABLE[:0], "no rows")]
)
def test_wrong_tables(wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        SCHEMA.check(wrong)
