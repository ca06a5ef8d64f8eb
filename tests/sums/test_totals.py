"""A part counts once; other content, other plans and partly known totals are refused."""

import json
import stat

import numpy as np
import pytest

from skprivacy.sums import SumTotal

from .engines import COLUMNS, MODELS, OF_TOTALS, fit_in_memory, patients, same_fits

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
TABLE = patients(900)
NAME = "AdaSSPRegressor"
make = MODELS[NAME][0]
PLAN = make().plan(COLUMNS, y="cost")
PARTS = {f"part {i}": PLAN.partial(TABLE[i * 300 : i * 300 + 300]) for i in range(3)}


def total_of(*names):
    total = SumTotal(PLAN)
    for name in names:
        total.add(name, PARTS[name])
    return total


def assert_whole(total):
    assert total.n_units == len(TABLE)
    expected = fit_in_memory(make(noise_seed=1), TABLE, NAME, False)
    assert same_fits(make(noise_seed=1).fit_sums(total), expected)


@pytest.mark.parametrize("groups", [None, "patient"])
def test_a_guarantee_assumes_what_no_check_of_a_total_finds(groups):
    """The same rows under two names, or groups said to be small, double a record's contribution."""
    plan = make().plan(COLUMNS, y="cost", groups=groups)
    rows, total = TABLE.assign(skprivacy_group_size=1), SumTotal(plan)
    for name in ("one", "other"):
        total.add(name, plan.partial(rows))
    assumed = make().fit_sums(total).privacy_.assumptions
    assert assumed == (OF_TOTALS if groups else OF_TOTALS[:1])


def test_a_part_that_arrives_twice_counts_once():
    """As after a retry, or with speculative execution."""
    total = total_of(*PARTS, *PARTS)
    assert total.names == set(PARTS)
    assert_whole(total)


def test_a_part_with_other_integers_is_refused():
    """A reader that samples gives other rows at each read."""
    total = total_of(*PARTS)
    sampled = PLAN.partial(TABLE[:300].sample(frac=0.9, random_state=0))
    with pytest.raises(ValueError, match="'part 0' was added before with other integers"):
        total.add("part 0", sampled)
    assert_whole(total)


def test_a_total_of_another_plan_is_refused():
    with pytest.raises(ValueError, match="total is the sum of another plan"):
        make(bounds=(0, 99)).fit_sums(total_of("part 0"))


@pytest.mark.parametrize(
    "integers", [np.zeros((2, 3), np.int64), np.zeros((2, PLAN.size)), np.zeros(PLAN.size)]
)
def test_integers_of_another_shape_are_refused(integers):
    with pytest.raises(ValueError, match="expected int64 of shape"):
        SumTotal(PLAN).add("part", integers)


def test_the_text_of_a_total_holds_no_number():
    total = total_of(*PARTS)
    assert repr(total) == str(total) == "SumTotal of a GramPlan, private"


def test_a_total_on_disk_says_that_it_is_private(tmp_path):
    total = total_of("part 0", "part 1")
    total.save(tmp_path / "total.json")
    assert stat.S_IMODE((tmp_path / "total.json").stat().st_mode) == 0o600
    assert json.loads((tmp_path / "total.json").read_text())["warning"].startswith("PRIVATE")
    found = SumTotal.load(tmp_path / "total.json", PLAN)
    found.add("part 1", PARTS["part 1"])
    found.add("part 2", PARTS["part 2"])
    assert_whole(found)
    with pytest.raises(ValueError, match="another plan or version"):
        SumTotal.load(tmp_path / "total.json", make(radius=0.1).plan(COLUMNS, y="cost"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"high": 3}', '{"high": [1e99], "low": []}'])
def test_a_file_that_holds_no_total_is_refused(tmp_path, text):
    (tmp_path / "total.json").write_text(text)
    with pytest.raises(ValueError, match="holds no total"):
        SumTotal.load(tmp_path / "total.json", PLAN)
