"""Files that are damaged or never were what they should be, and odd command lines."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy import cli
from skprivacy.accounting import LaplaceEvent, PrivacyBudget
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.persistence import load_model, save_model
from skprivacy.preprocessing import Schema

from . import oracle
from .oracle import Refused, attempt, few

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model and a ledger as they were written, and a place to damage them."""
    folder = tmp_path_factory.mktemp("files")
    X = np.random.RandomState(0).uniform(size=(50, 2))
    model = AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 0])
    save_model(model, folder / "model")
    budget = PrivacyBudget(1.0, path=folder / "ledger")
    for _ in range(3):
        budget.reserve(LaplaceEvent(10.0))
    return folder, {name: (folder / name).read_bytes() for name in ("model", "ledger")}


@st.composite
def damage(draw, length):
    """How bytes are damaged: cut off, overwritten or put in."""
    cut = draw(st.one_of(st.just(length), st.integers(0, length)))
    at = draw(st.integers(0, max(cut - 1, 0)))
    return cut, at, draw(st.binary(max_size=8)), draw(st.booleans())


def _damaged(content, how):
    cut, at, new, inserted = how
    return content[:at] + new + content[at + (0 if inserted else len(new)) : cut]


@given(data=st.data())
@few(40)
def test_damaged_models(whole, data):
    folder, contents = whole
    place = folder / "damaged-model"
    place.write_bytes(_damaged(contents["model"], data.draw(damage(len(contents["model"])))))
    attempt(lambda: load_model(place), {"path", "damaged-model", "file", "model"})


@given(data=st.data())
@few(25)
def test_damaged_ledgers(whole, data):
    """A ledger is the one that was written, or it is refused for reading and for charging."""
    folder, contents = whole
    place = folder / "damaged-ledger"
    place.write_bytes(_damaged(contents["ledger"], data.draw(damage(len(contents["ledger"])))))
    before = place.read_bytes()
    budget = attempt(lambda: PrivacyBudget.open(place), {"path", "ledger"})
    if isinstance(budget, Refused):
        assert place.read_bytes() == before
        return
    assert budget.spent() == pytest.approx(0.3)
    attempt(lambda: budget.reserve(LaplaceEvent(10.0)), {"ledger"})
    # A journal that stayed would be played back into the ledger that is next put there.
    assert list(folder.glob("damaged-ledger?*")) == []


@given(st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["columns", "type", "lower", "upper", "values", "version", "a"]),
            inner, max_size=4,
        ),
    ),
    max_leaves=8,
))  # fmt: skip
@few(40)
def test_descriptions_of_schemas(description):
    names = {"columns", "type", "lower", "upper", "values", "version", "schema", "Schema", "a"}
    attempt(lambda: Schema.from_dict(description), names)


WORDS = st.one_of(
    st.sampled_from(
        ["budget", "create", "show", "charge", "verify", "sweep", "audit", "demo", "--epsilon",
         "--delta", "--path", "--help", "ledger", "1.0", "-1", "nan", "1e-300", "--noise"]
    ),
    st.text(alphabet=st.characters(codec="ascii"), max_size=5),
)  # fmt: skip


@given(st.lists(WORDS, max_size=4).filter(lambda words: "demo" not in words))
@few(30)
def test_command_lines(words):
    """A command line is understood, or refused with a line on the error stream and no traceback."""
    oracle.N_CALLS += 1
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = cli.main(words)
        except SystemExit as end:
            code = end.code
    assert not code or told.getvalue()
    assert "Traceback" not in told.getvalue()
