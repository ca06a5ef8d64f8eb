"""Odd arguments for every public callable: an answer, or a refusal by name that costs nothing.

The first example of each is a call with arguments that it accepts.
"""

from collections import defaultdict

import matplotlib.pyplot as plt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skprivacy.accounting import Event, PrivacyBudget
from skprivacy.base import reserve_release
from skprivacy.fine_tuning import ALMFineTuner, SampledSensitivity
from skprivacy.fine_tuning.head import Head
from skprivacy.mechanisms import Mechanism, SecureRandom

from .arguments import CHEAP, NEEDED, ONE, OPTIONAL, OTHERS, OWN, X, y
from .entries import ENTRIES, EXEMPTED, MISSING, public
from .oracle import Refused, attempt, few
from .values import drawn_arguments, odd_arrays

pytestmark = pytest.mark.heavy

# Words that refusals may use besides the parameters of a call.
ALIASES = {"seed", "labels", "relation", "member", "column", "columns", "schema", "subgroups"}
MORE_NAMES = {
    "PrivacyGuarantee": {"delta"}, "weakest_arithmetic": {"arithmetic"},
}  # fmt: skip
# Their arguments are right, but something else is not there.
REFUSED = {
    "InteractiveGNMax.release": "there is no student",
    **{f"fetch_{name}": "there is no file" for name in ("adult", "mnist", "membership_benchmark")},
}
ANSWERS = ("predict", "predict_proba", "decision_function", "transform", "certify")


SLOW = {"verify_privacy"}  # its runs take seconds
# The library calls them, with what it has checked.
INSIDE = {f"{kind}.release" for kind in ("GNMax", "LNMax", "ConfidentGNMax", "InteractiveGNMax")}


def names_of(entry):
    owner = entry.name.partition(".")[0]
    names = {owner, *entry.valid, *entry.names, *ALIASES, *MORE_NAMES.get(owner, ())}
    if "labels" in entry.valid:
        names.add("y")  # of LabeledRecords
    return names | {"X" for name in names if name.startswith("X_")}


def test_every_public_name_is_called():
    called = {entry.name.partition(".")[0] for entry in ENTRIES}
    assert not MISSING, f"add to NEEDED in arguments.py a value for {MISSING}"
    missing = set(public()) - called - EXEMPTED
    assert not missing, f"call {missing}, or say in EXEMPT why not"


def test_nothing_is_listed_that_is_not_needed():
    names = {entry.name for entry in ENTRIES}
    known = set(public())
    assert {name.partition(".")[0] for name in EXEMPTED} <= known, "every exemption is needed"
    assert not EXEMPTED & names
    assert {name.partition(".")[0] for name in OWN} <= known
    assert set(REFUSED) <= names
    taken = defaultdict(set)
    for entry in ENTRIES:
        for part in (entry.name.partition("(")[0], entry.name.partition(".")[0], "any"):
            taken[part] |= set(entry.valid)
    for name, own in [*OWN.items(), *(("any", t) for t in (NEEDED, CHEAP, OPTIONAL))]:
        assert not set(own) - taken[name], f"{name} takes no such arguments"


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(e, id=e.name, marks=[pytest.mark.slow] if e.name in SLOW else [])
        for e in ENTRIES
        if e.name not in INSIDE
    ],
)
@given(data=st.data())
@few(2)
def test_odd_arguments(entry, data):
    given_ = data.draw(drawn_arguments(entry.valid, entry.types))
    names = names_of(entry)
    begun = attempt(lambda: entry.begin(given_), names)
    if isinstance(begun, Refused):
        return
    answer = attempt(begun.call, names, begun.unchanged)
    if all(given_[name] is entry.valid[name] for name in given_):
        assert isinstance(answer, Refused) == (entry.name in REFUSED), answer
    elif not isinstance(answer, Refused):
        check_claim(begun)
        use(answer if begun.model is None else begun.model, names, data)
    plt.close("all")


def check_claim(begun):
    """Every claim was charged in full for any records, and is not NaN."""
    if begun.budget is not None and hasattr(begun.model, "epsilon_"):
        assert list(begun.budget.entries()["status"]) == ["commit"]
        spent = begun.budget.spent(begun.model.delta_)
        assert 0 <= begun.model.epsilon_ <= spent * 1.000001


def use(made, names, data):
    """Use the result of odd arguments as callers do."""
    for answer in ANSWERS:
        if hasattr(made, answer) and hasattr(made, "fit"):
            rows = data.draw(odd_arrays())
            asked = {*names, "X", "target"}
            attempt(lambda answer=answer, rows=rows: getattr(made, answer)(rows), asked)
    if isinstance(made, Event):
        description = attempt(made.to_dict, names)
        if not isinstance(description, Refused):
            assert Event.from_dict(description).to_dict() == description
    if isinstance(made, Mechanism):
        value = data.draw(st.one_of(st.just([0.0, 3.0, 1.0]), odd_arrays()))
        attempt(lambda: made.release(value, SecureRandom()), {*names, "value", "random", "size"})
        for fact in ("event", "grid", "scale", "std", "truth_probability"):
            attempt(lambda fact=fact: getattr(made, fact, None), names)
    if isinstance(made, Head):
        train(names, head=made)
    if isinstance(made, SampledSensitivity):
        train(names, sensitivity=made)


def train(names, **part):
    """Parts of a fine-tuner are checked when it is fitted, before anything is charged."""
    budget = PrivacyBudget(1e6, 0.01)
    model = ALMFineTuner(classes=[0, 1], budget=budget, **part)
    attempt(
        lambda: model.fit(X, y, X_public=OTHERS),
        {*names, "head", "sensitivity", "X_public", "mechanism"},
        lambda: (len(budget.entries()), sorted(vars(model))),
    )


@given(data=st.data())
@few(10)
def test_charges(data):
    budget = PrivacyBudget(5.0, 1e-5)
    valid = {
        "budget": budget, "event": ONE, "relation": "add_remove", "source": "me", "kind": "proved",
        "unit": "record",
    }  # fmt: skip
    given_ = data.draw(drawn_arguments(valid))

    def released():
        with reserve_release(**given_):
            pass

    attempt(released, given_, unchanged=lambda: len(budget.entries()))
