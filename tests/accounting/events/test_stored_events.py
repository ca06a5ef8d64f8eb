"""Stored events stay readable: the tags of events and the names of their fields."""

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from skprivacy.accounting import Event, LedgerError, PrivacyBudget, epsilon_of, events
from skprivacy.accounting.work_limit import closed_form_work


def twice(event):
    return events.RepeatedEvent(event, 2)


# Rows are added for new events. From the first release on, they are never changed.
STORED = json.loads(Path(__file__).with_name("stored_events.json").read_text())
EVENTS = [
    events.NonPrivateEvent(),
    events.GaussianEvent(2.0),
    events.LaplaceEvent(2.0),
    events.LogisticEvent(2.0),
    events.LogisticEvent(3.0, norm=2),
    events.ApproxDPEvent(1.0),
    events.ApproxDPEvent(0.5, 1e-7),
    events.DiscreteLaplaceEvent(3.0, 2),
    events.DiscreteGaussianEvent(3.0, 2),
    events.DiscreteGaussianEvent(4.0, 1.5, 3),
    events.RandomizedResponseEvent(1.0),
    events.RandomizedResponseEvent(1.0, 4),
    events.ExponentialEvent(1.0),
    events.ReportNoisyMaxEvent(1.0),
    events.GNMaxEvent(40.0),
    events.LNMaxEvent(20.0),
    events.VoteThresholdEvent(40.0),
    events.VoteThresholdEvent(40.0, threshold=200.0),
    events.PrivateSelectionEvent(events.GaussianEvent(5.0), 0.0, 0.3),
    events.SmoothGaussianEvent(3.0, 0.01),
    events.SmoothGaussianEvent(3.0, 0.01, 2.0),
    events.BandedFactorizationEvent(2.0, 100, 2, (1.0, 0.5, 0.375)),
    events.TreeAggregationEvent(2.0, 8, 3),
    events.PoissonSampledEvent(0.1, events.GaussianEvent(1.0)),
    events.RepeatedEvent(events.PoissonSampledEvent(0.05, events.GaussianEvent(1.5)), 50),
    events.RepeatedEvent(events.PoissonSampledEvent(0.1, events.LogisticEvent(2.0, norm=2)), 5),
    events.ComposedEvent(
        (events.GaussianEvent(1.0), events.RepeatedEvent(events.LaplaceEvent(3.0), 2))
    ),
    events.MixtureEvent(
        (0.25, 0.75), (events.GaussianEvent(2.0), events.RepeatedEvent(events.LaplaceEvent(4.0), 2))
    ),
    events.GNMaxEvent(40.0, moved=2),
    events.LNMaxEvent(20.0, moved=2),
    events.VoteThresholdEvent(40.0, moved=2),
    events.VoteThresholdEvent(40.0, threshold=200.0, offset=(1.5, 0.0, 100.0)),
    events.VoteBlockEvent("gnmax", 20.0, 12),
    events.VoteBlockEvent("gnmax", 20.0, 12, moved=2),
    events.VoteBlockEvent("threshold", 20.0, 12),
    events.VoteBlockEvent("lnmax", 20.0, 12),
    events.SampledGroupEvent(0.1, events.GaussianEvent(2.0), 3),
]


def every(cls):
    return [cls, *(c for below in cls.__subclasses__() for c in every(below))]


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("row", "event"), list(zip(STORED, EVENTS, strict=True)), ids=lambda v: type(v).__name__
)
def test_the_stored_form_is_read_and_written(row, event):
    assert Event.from_dict(row["event"]) == event
    for relation, epsilon in row["epsilon"].items():
        if epsilon is None:
            with pytest.raises(TypeError):
                epsilon_of(event, 1e-6, relation)
        else:
            # Accounting may become tighter in the fourth digit, and not looser.
            found = epsilon_of(event, 1e-6, relation)
            assert (1 - 1e-3) * float(epsilon) <= found <= (1 + 1e-9) * float(epsilon)
    assert event.to_dict() == row["event"]


def test_every_event_of_the_library_is_in_the_file():
    tags = {c._tag for c in every(Event) if c.__module__.startswith("skprivacy.")} - {None}
    stored = {row["event"]["type"] for row in STORED}
    assert tags == stored, "add a new event to EVENTS and its row to stored_events.json"
    assert not any("." in tag for tag in tags)  # a name of our source would be gone with the source


def test_every_event_is_used_in_a_test_of_bounds():
    """The stored epsilons are computed by the bounds themselves, so a wrong bound agrees."""
    files = [
        path for path in Path(__file__).parents[1].rglob("test_*.py") if path != Path(__file__)
    ]
    used = {word for path in files for word in re.findall(r"\w+Event\b", path.read_text("utf-8"))}
    ours = {c.__name__ for c in every(Event) if c.__module__.startswith("skprivacy.") and c._tag}
    assert not ours - used, "compare its bounds with numbers that share no code with them"


def test_a_class_of_the_same_name_takes_no_ledger_over(tmp_path):
    path = tmp_path / "ledger"
    PrivacyBudget(5.0, 1e-6, path).reserve(events.LaplaceEvent(1.0))

    mine = type("Laplace", (Event,), {"__module__": "notebook", "work": closed_form_work})
    assert (
        type(Event.from_dict({"type": "Laplace", "noise_multiplier": 1.0})) is events.LaplaceEvent
    )
    assert PrivacyBudget.open(path).spent() == pytest.approx(1.0, rel=1e-3)
    assert mine().to_dict() == {"type": "notebook.Laplace"}
    assert type(Event.from_dict({"type": "notebook.Laplace"})) is mine
    with pytest.raises(ValueError, match=r"type='Gaussain'.*Import the module"):
        Event.from_dict({"type": "Gaussain", "noise_multiplier": 1.0})


def test_a_tag_belongs_to_one_class():
    with pytest.raises(TypeError, match=r"'Gaussian'.*skprivacy\.accounting.*unique tag"):

        class Mine(Event, tag="Gaussian"):
            work = closed_form_work

    assert Event.from_dict(events.GaussianEvent(1.0).to_dict()) == events.GaussianEvent(1.0)
    assert "Mine" not in {c._tag for c in every(Event) if c._tag}


def define(**keywords):
    """Define a class anew, as a notebook's cell that is run again does."""

    @dataclass(frozen=True)
    class Count(Event, **keywords):
        number: int
        work = closed_form_work

    return Count


def test_a_class_that_is_defined_again_keeps_its_tag():
    for keywords in ({}, {"tag": "tests.Count"}):
        old, new = define(**keywords), define(**keywords)
        assert Event.from_dict(old(3).to_dict()) == new(3)
    assert new(3).to_dict() == {"type": "tests.Count", "number": 3}


def test_base_class_has_no_stored_form():
    with pytest.raises(TypeError, match="base class"):
        Event().to_dict()


@pytest.mark.slow
def test_unknown_event_in_a_ledger_names_its_class(tmp_path):
    """Charged in another process, as an event of a module that is not imported here."""
    program = """
        import sys
        from dataclasses import dataclass
        from skprivacy.accounting import events.ApproxDPEvent, PrivacyBudget

        @dataclass(frozen=True)
        class Gone(events.ApproxDPEvent, tag="tests.Gone"):
            pass

        PrivacyBudget(1.0, 1e-6, sys.argv[1]).reserve(Gone(0.5))
    """
    path = tmp_path / "ledger"
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(path)], check=True)
    with pytest.raises(LedgerError, match=r"tests\.Gone.*Import the module"):
        PrivacyBudget.open(path).spent()
