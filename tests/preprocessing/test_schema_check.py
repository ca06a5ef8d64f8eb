"""A schema that does not fit to a table loses accuracy in silence: its check says where and why."""

import numpy as np
import pandas as pd
import pytest

from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    HashedColumn,
    Schema,
)
from skprivacy.preprocessing.inferred_facts import identifier_evidence
from skprivacy.preprocessing.schema_check import find_unmarked_gaps

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
        "age": BoundedColumn(0, 120),
        "smokes": CategoricalColumn(["no", "yes"]),
        "weight": BoundedColumn(0, 300),
        "born": DateColumn("1900-01-01", "2030-01-01"),
        "code": HashedColumn(4),
        "height": BoundedColumn(0, 3),
    },
    target_column="ill",
    classes=["no", "yes"],
)


def test_lost_values_are_counted():
    found = SCHEMA.check(TABLE)
    counts = {c.name: [c.n_clipped, c.n_unknown, c.n_missing] for c in found.columns}
    assert counts == {
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


def test_the_likely_meaning_is_suggested():
    text = repr(SCHEMA.check(TABLE))
    assert text.startswith("This is about private data: do not publish it")
    assert "1 times 'No', the schema has 'no'" in text
    assert "1 times 'Yes', the schema has 'yes'" in text
    assert "--decimal ','" in text
    assert "no date in the format ISO 8601" in text
    assert '"format": "%d.%m.%Y"' in text
    assert "height: the table has no such column" in text
    assert "not described, so not used: cost" in text
    assert "6 of 7 columns" in text  # all but code


def test_close_spellings():
    schema = Schema({"country": CategoricalColumn(["Switzerland", "Germany"])})
    text = repr(schema.check(pd.DataFrame({"country": ["Swizerland", "FRANCE", "germany "]})))
    assert "'Swizerland', the schema has 'Switzerland'" in text
    assert "'FRANCE', which is in no category" in text
    assert "'germany ', the schema has 'Germany'" in text


def test_bounds_in_another_unit_and_bounds_too_wide():
    X = pd.DataFrame({"age": np.linspace(18, 90, 50)})
    small = Schema({"age": BoundedColumn(0, 1)}).check(X)
    assert small.columns[0].share_lost == 1.0
    assert "values reach from 18 to 90, the bounds are 0 and 1" in repr(small)
    wide = Schema({"age": BoundedColumn(0, 1e6)}).check(X)
    assert wide.fits
    assert "hardly tell them apart" in repr(wide)
    assert "hardly" not in repr(Schema({"age": BoundedColumn(0, 1e6, scale="log")}).check(X))


def test_a_table_that_fits():
    found = Schema({"age": BoundedColumn(0, 120)}).check(pd.DataFrame({"age": [1, 100]}))
    assert found.fits
    assert "0 of 1 columns lose" in repr(found)


def test_a_numeric_target_is_checked():
    schema = Schema({"age": BoundedColumn(0, 120)}, target_column="cost", target_bounds=(0, 1))
    found = schema.check(pd.DataFrame({"age": [1, 100], "cost": [0.5, 7]}))
    assert (found.columns[-1].name, found.columns[-1].n_clipped) == ("cost", 1)


def test_names_cannot_forge_lines():
    text = repr(SCHEMA.check(TABLE.assign(smokes="\x1b[2J")))
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("wrong", "words"), [([[1]], "expected a DataFrame"), (TABLE[:0], "no rows")]
)
def test_wrong_tables(wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        SCHEMA.check(wrong)


def test_bounds_that_are_the_extremes_of_the_data():
    """Bounds of a draft pass every other check, and their origin went unreported."""
    table = pd.DataFrame(
        {"age": [18, 40, 89], "cost": [1.5, 2, 3], "on": ["2020-01-02", "2020-03-01", "2020-02-01"]}
    )
    schema = Schema(
        {
            "age": BoundedColumn(18, 89),
            "cost": BoundedColumn(0, 3),
            "on": DateColumn("2020-01-02", "2020-03-02"),
        }
    )
    both = "the lower bound is the smallest value and the upper bound is the largest value"
    hints = {column.name: column.hints for column in schema.check(table).columns}
    assert hints["age"] == hints["on"] == (f"{both}: read off the data?",)
    assert hints["cost"] == ("the upper bound is the largest value: read off the data?",)
    assert schema.check(table).fits
    public = Schema(
        {
            "age": BoundedColumn(0, 120),
            "cost": BoundedColumn(0, 9),
            "on": DateColumn("2020-01-01", "2021-01-01"),
        }
    )
    assert not any(column.hints for column in public.check(table).columns)


def visits():
    rng = np.random.default_rng(0)
    number = rng.choice(np.arange(10**6, 10**7), 250, replace=False)[rng.integers(0, 250, 1000)]
    return pd.DataFrame({"kennz": number, "age": rng.integers(18, 90, 1000)})


@pytest.mark.heavy
def test_rows_of_a_person():
    table = visits()
    sizes = table["kennz"].value_counts()
    schema = Schema({"age": BoundedColumn(0, 120)})
    (found,) = schema.check(table).people
    assert (found.name, found.n_people, found.n_most) == ("kennz", len(sizes), sizes.max())
    assert found.n_several == (sizes > 1).sum()
    text = repr(schema.check(table))
    assert f"kennz (perhaps an identifier, by its values): {len(sizes)} people have 4." in text
    assert str(number := table["kennz"][0]) not in text, number
    (named,) = schema.check(table.rename(columns={"kennz": "PatNr"})[:50]).people
    assert named.reason == "an identifier by its name"
    assert schema.check(table[["age"]]).people == ()
    (given,) = schema.check(table[["age"]], groups=table["kennz"] % 7).people
    assert (given.name, given.reason, given.n_people) == ("kennz", "as given", 7)
    with pytest.raises(ValueError, match="groups has 3 values for 1000 records"):
        schema.check(table, groups=[1, 2, 3])


def test_one_row_each_and_missing_values():
    table = pd.DataFrame({"patient": ["a", "b", None, " "], "age": [1, 2, 3, 4]})
    text = repr(Schema({"age": BoundedColumn(0, 120)}).check(table))
    assert "patient (an identifier by its name): each of 2 people has one row. 2 rows have" in text


def test_a_feature_that_identifies_people():
    schema = Schema({"kennz": BoundedColumn(0, 10**7), "age": BoundedColumn(0, 120)})
    hints = schema.check(visits()).columns[0].hints
    assert any("does it identify people (" in hint for hint in hints)
    schema = Schema({"PatNr": BoundedColumn(0, 9), "age": BoundedColumn(0, 120)})
    check = schema.check(pd.DataFrame({"PatNr": [1, 2], "age": [3, 4]}))
    assert "its name says that it identifies people" in repr(check)


def test_a_gap_that_becomes_the_middle_of_the_range_is_named():
    table = pd.DataFrame(
        {"a": [1.0, None], "b": [None, 2.0], "c": ["x", None], "d": ["2020-02-01", None]}
    )
    columns = {
        "a": BoundedColumn(0, 9),
        "b": BoundedColumn(0, 9, missing=True),
        "c": CategoricalColumn(["x"]),
        "d": DateColumn("2020-01-01", "2021-01-01"),
    }
    found = Schema(columns).check(table)
    hinted = [each.name for each in found.columns if "middle of the range" in str(each)]
    assert hinted == ["a", "d"]
    assert "a: 50.00% missing; the missing ones become the middle" in repr(found)
    assert find_unmarked_gaps(columns, table) == ["a", "d"]
    assert find_unmarked_gaps(columns, table.dropna()) == []


N_ROWS = 3000
RNG = np.random.default_rng(0)
PEOPLE = RNG.choice(np.arange(10**6, 10**7), 700, replace=False)
WHO = RNG.integers(0, 700, N_ROWS)
STRONG = {
    "serial numbers": np.arange(N_ROWS),
    "random numbers": RNG.choice(900_000, N_ROWS, replace=False) + 100_000,
    "numbers with gaps in a float column": np.append(np.arange(N_ROWS - 1.0), np.nan),
    "long numbers of people": PEOPLE[WHO],
    "numbers by year": RNG.integers(2015, 2021, N_ROWS) * 10**6 + RNG.integers(0, 900, N_ROWS),
    "blocks of rows": np.repeat(PEOPLE[:600], 5),
    "codes": [f"{value:x}" for value in RNG.integers(0, 2**60, N_ROWS)],
    "social security numbers": [
        f"{n // 10**6}-{n // 10**4 % 100:02}-{n % 10**4:04}"
        for n in RNG.integers(10**8, 10**9, N_ROWS)
    ],
    "numbers beyond the floats": [10**400 + i for i in range(60)],
    "blocks of codes": np.repeat([f"P{value}" for value in PEOPLE[:600]], 5),
}
WEAK = {
    "codes of people or places": [f"P{value:05}" for value in WHO],
    "numbers of a few people": np.repeat(np.arange(1, 61), 50),
    "whole incomes": np.exp(RNG.normal(10, 1, N_ROWS)).round(),
    "sorted ages": np.sort(RNG.integers(18, 90, N_ROWS)),
    "minutes of a day": RNG.integers(0, 1440, N_ROWS),
}
for kind in ("Int64", "int64[pyarrow]", "category", object, pd.SparseDtype(np.int64)):
    STRONG[f"numbers of people as {kind}"] = pd.Series(PEOPLE[np.sort(WHO)], dtype=kind)
STRONG["nullable numbers with a gap"] = pd.Series([*PEOPLE[WHO], None], dtype="Int64")
STRONG["codes as category"] = pd.Series(STRONG["codes"], dtype="category")
STRONG["codes in Arrow"] = pd.Series(STRONG["codes"], dtype="string[pyarrow]")
NONE = {
    "ages": RNG.integers(18, 90, N_ROWS),
    "ages of few people": RNG.permutation(np.arange(18, 63)),
    "pressures": RNG.normal(120, 15, N_ROWS).round(),
    "rounded incomes": np.exp(RNG.normal(10, 1, N_ROWS)).round(-3),
    "counts": RNG.poisson(3, N_ROWS),
    "mostly zero": np.where(RNG.random(N_ROWS) < 0.9, 0, RNG.integers(0, 99_999, N_ROWS)),
    "years": RNG.integers(1950, 2020, N_ROWS),
    "fractions": RNG.random(N_ROWS),
    "fractions as text": [f"{value:.3f}" for value in RNG.random(N_ROWS)],
    "truth values": RNG.random(N_ROWS) > 0.5,
    "words": RNG.choice(["A", "B", "C"], N_ROWS),
    "dates": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N_ROWS), "D"),
    "dates as text": [f"{day}.{month}.2020" for day in range(1, 29) for month in range(1, 13)],
    "times as text": [
        f"2020-01-{day:02}T{hour:02}:00" for day in range(1, 29) for hour in range(24)
    ],
    "nothing": [None] * 30,
    "lists": [[1], [2]] * 30,
    "durations": pd.to_timedelta(np.arange(N_ROWS), "D"),
    "complex numbers": np.arange(N_ROWS) * 1j,
    "infinities": [np.inf, -np.inf, np.nan] * 30,
    "objects": [object() for _ in range(60)],
}


@pytest.mark.parametrize("values", STRONG.values(), ids=STRONG)
def test_identifiers(values):
    assert identifier_evidence(pd.Series(values)).is_strong


@pytest.mark.parametrize("values", WEAK.values(), ids=WEAK)
def test_columns_that_may_be_identifiers_are_asked_about(values):
    assert not identifier_evidence(pd.Series(values)).is_strong


@pytest.mark.parametrize("values", NONE.values(), ids=NONE)
def test_other_columns(values):
    assert identifier_evidence(pd.Series(values)) is None


def test_the_words_name_no_value():
    evidence = identifier_evidence(pd.Series(PEOPLE[WHO]))
    n = len(set(WHO))
    assert evidence.words == f"{n} different values with {N_ROWS / n:.1f} rows each on average"
    assert evidence.has_several_rows
    assert not identifier_evidence(pd.Series(np.arange(N_ROWS))).has_several_rows
