"""No error, warning or log record of any public entry quotes a value of the data."""

import logging
import warnings
from functools import cache

import pytest

from .entries import DATA, ENTRIES
from .markers import FORMS, hear

# Words that select something, which a caller writes in the code: not data.
OF_WORDS = {("subgroups", "string"), ("canaries", "string"), ("subgroups", "number")}
# Names of a column, and votes that are public or sanitised.
NOT_DATA = {
    "DPGANSynthesizer.fit": {"label"}, "MarginalSynthesizer.fit": {"label"},
    "SCARFEncoder.fit": {"label"}, "GNMaxEvent": {"votes"}, "LNMaxEvent": {"votes"},
    "VoteThresholdEvent": {"votes"}, "VoteBlockEvent": {"votes"},
}  # fmt: skip
EVERYDAY = 71  # every so many calls; without a common factor with the number of forms


@cache
def calls():
    return [
        (entry, name, form)
        for entry in ENTRIES
        for name in sorted(DATA & {*entry.valid} - NOT_DATA.get(entry.name, set()))
        for form in FORMS
        if (name, form) not in OF_WORDS
    ]


def leaks(some):
    found = []
    for entry, name, form in some:
        try:
            call = entry.call_with(name, FORMS[form])
        except (TypeError, ValueError):  # such an argument has no such form
            continue
        heard = hear(call)
        found += [f"{entry.name}({name}= as {form}): {told}" for told in heard.leaks()]
    return "\n".join(found)


def test_a_marker_that_is_told_is_found():
    """The search itself: in a message, a cause, a context, a note, a warning and a log record."""

    def cause():
        raise ValueError("fine") from ValueError(73941.5)

    def context():
        try:
            float("Zqvx")
        except ValueError:
            raise ValueError("fine") from None

    def note():
        error = ValueError("fine")
        error.add_note("7.39415e+04")
        raise error

    for call in (
        cause, context, note, lambda: float("Zqvx"), lambda: warnings.warn("Zqvx", stacklevel=1),
        lambda: logging.getLogger("skprivacy").debug("2173-09-14"),
    ):  # fmt: skip
        assert hear(call).leaks()
    assert not hear(lambda: float("fine")).leaks()


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_no_value_is_told_in_a_sample():
    assert not (told := leaks(calls()[::EVERYDAY])), told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", dict.fromkeys(entry.name for entry in ENTRIES))
def test_no_value_is_told(name):
    assert not (told := leaks(call for call in calls() if call[0].name == name)), told
