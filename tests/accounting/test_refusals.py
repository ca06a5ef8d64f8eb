"""Refusals of the accounting, by the parameter or fact that the refusal names."""

import math
from functools import partial

import pytest

from skprivacy.accounting import (
    GNMaxEvent,
    LaplaceEvent,
    PrivacyBudget,
    PrivacyGuarantee,
    calibrate_noise_multiplier,
    calibrate_to_attack,
    compare_accountants,
    events,
)
from skprivacy.accounting.event import Event, check_delta, flatten
from skprivacy.accounting.events import ComposedEvent, GaussianEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.smooth_sensitivity import smoothed_cost
from skprivacy.base import reserve_release

NAN, INF = math.nan, math.inf
GAUSSIAN = GaussianEvent(1.0)
TWO = (GAUSSIAN, GaussianEvent(2.0))
VOTES = GNMaxEvent(4.0, (10, 0))
GUARANTEE = PrivacyGuarantee(GAUSSIAN, 1e-5)
DESCRIPTION = PrivacyGuarantee(GaussianEvent(2.0), 1e-6, kind="estimate").to_dict()
OF_ONE_NUMBER = [
    events.GaussianEvent, events.LaplaceEvent, events.LogisticEvent, events.DiscreteLaplaceEvent,
    events.DiscreteGaussianEvent, events.RandomizedResponseEvent, events.ExponentialEvent,
    events.ReportNoisyMaxEvent, events.GNMaxEvent, events.LNMaxEvent, events.VoteThresholdEvent,
]  # fmt: skip


def each(call, *bad):
    """Return a call for each of several bad arguments."""
    return [partial(call, value) for value in bad]


def calibrated(target, epsilon=1.0, delta=1e-5, *rest, **options):
    return partial(calibrate_noise_multiplier, target, epsilon, delta, *rest, **options)


def without(key):
    return partial(PrivacyGuarantee.from_dict, {k: v for k, v in DESCRIPTION.items() if k != key})


REFUSED = {
    "must be a finite number > 0": [
        *(partial(kind, bad) for kind in OF_ONE_NUMBER
          for bad in (0, -1.0, NAN, INF, "1", None, True, 1j)),
        *(partial(events.SmoothGaussianEvent, *bad) for bad in (
            (0.0, 0.1, 0.0), (1.0, 0.0, 0.0), (1.0, 0.1, -1.0), (1.0, 0.1, NAN))),
    ],
    r"noise_multiplier=.* must be between 1e-15 and 1e\+15": [
        partial(kind, value) for kind in OF_ONE_NUMBER[:3] for value in (1e-300, 1e-16, 1e16, 1e300)
    ],
    "norm=3": [lambda: events.LogisticEvent(1.0, norm=3)],
    "delta=1.0": [lambda: events.ApproxDPEvent(1.0, 1.0)],
    "epsilon=-1.0": [lambda: events.ApproxDPEvent(-1.0)],
    "sampling_rate=1.5": [
        lambda: events.PoissonSampledEvent(1.5, GAUSSIAN),
        lambda: events.SampledGroupEvent(1.5, GAUSSIAN, 2),
    ],
    "sampling_rate=0.0": [lambda: events.PoissonSampledEvent(0.0, GAUSSIAN)],
    "must be an Event": [
        lambda: events.PoissonSampledEvent(0.1, 1.0), lambda: ComposedEvent((GAUSSIAN, "x")),
        lambda: events.MixtureEvent((1.0,), ("x",)), lambda: flatten("x"),
        lambda: PrivacyGuarantee(1.0), lambda: PrivacyBudget(1.0).reserve(0.5),
    ],
    "must be a GaussianEvent": [lambda: events.SampledGroupEvent(0.5, LaplaceEvent(1.0), 2)],
    "size": [lambda: events.SampledGroupEvent(0.5, GAUSSIAN, 0)],
    "count=-1": [lambda: events.RepeatedEvent(GAUSSIAN, -1)],
    "count=1.5": [lambda: events.RepeatedEvent(GAUSSIAN, 1.5)],
    "sensitivity=1.5": [lambda: events.DiscreteLaplaceEvent(1.0, 1.5)],
    "must be a whole number": [lambda: events.DiscreteGaussianEvent(1.0, 1.5)],
    "n_categories=1": [lambda: events.RandomizedResponseEvent(1.0, 1)],
    "eta=-1.0": [lambda: events.PrivateSelectionEvent(GAUSSIAN, -1.0)],
    "gamma=1.0": [lambda: events.PrivateSelectionEvent(GAUSSIAN, 1.0, 1.0)],
    "at least two": each(partial(GNMaxEvent, 1.0), (1.0,), (1.0, NAN)),
    "threshold=None": [lambda: events.VoteThresholdEvent(1.0, (1.0, 2.0))],
    "moved=0 must be an integer >= 1": [lambda: GNMaxEvent(1.0, moved=0)],
    "moved=1.0 must be an integer": [lambda: GNMaxEvent(1.0, moved=1.0)],
    "offset=.* for each class": [lambda: events.VoteThresholdEvent(1.0, (1, 2), 0.0, (1.0,))],
    "offset=.* finite": [lambda: events.VoteThresholdEvent(1.0, offset=(NAN,))],
    "votes must be": [lambda: events.VoteThresholdEvent(10.0, (-70.0, -80.0), -60.0)],
    "kind='argmax' must be one of": [lambda: events.VoteBlockEvent("argmax", 1.0, 1)],
    "noise_multiplier=0": [
        lambda: events.VoteBlockEvent("gnmax", 0.0, 1),
        lambda: events.BandedFactorizationEvent(0.0, 4, 1),
    ],
    "n_queries=0": [lambda: events.VoteBlockEvent("gnmax", 1.0, 0)],
    "moved=0": [lambda: events.VoteBlockEvent("gnmax", 1.0, 1, 0)],
    "steps_per_epoch=4.0": [lambda: events.BandedFactorizationEvent(1.0, 4.0, 1)],
    "epochs=0": [lambda: events.TreeAggregationEvent(1.0, 4, 0)],
    "coefficients=": [lambda: events.BandedFactorizationEvent(1.0, 4, 1, ())],
    "begin with 1": [lambda: events.BandedFactorizationEvent(1.0, 4, 1, (2.0, 1.0))],
    ">= 0": each(partial(events.BandedFactorizationEvent, 1.0, 4, 1), (1.0, -0.5), (1.0, NAN)),
    "add up to 1": [
        lambda: events.MixtureEvent((0.5, 0.4), TWO), lambda: events.MixtureEvent((), ()),
    ],
    "above 0": [
        lambda: events.MixtureEvent((1.5, -0.5), TWO), lambda: events.MixtureEvent((NAN, 0.5), TWO),
    ],
    "never happen": [lambda: events.MixtureEvent((1.0, 0.0), TWO)],
    "one probability for each event": [lambda: events.MixtureEvent((1.0,), TWO)],
    "known event": each(Event.from_dict, {"type": "Unknown"}, {"type": ["Gaussian"]}),
    "type=None": [lambda: Event.from_dict([])],
    "does not match its type": [lambda: Event.from_dict({"type": "Gaussian", "sd": 1.0})],
    r"(moved|offset)=.*Account for it without votes": [
        lambda: smoothed_cost(GNMaxEvent(1.0, (10, 0), moved=2), 2.0, 0.1),
        lambda: smoothed_cost(events.VoteThresholdEvent(1.0, (10, 0), 5.0, moved=2), 2.0, 0.1),
        lambda: smoothed_cost(events.VoteThresholdEvent(1.0, (10, 0), 5.0, (1.0, 0.5)), 2.0, 0.1),
    ],
    "LNMaxEvent": [lambda: smoothed_cost(events.LNMaxEvent(4.0, (10, 0)), 2.0, 0.1)],
    "order=": each(lambda order: smoothed_cost(VOTES, order, 0.1), 1.0, 0, NAN, INF, None),
    "smoothness=": each(lambda smooth: smoothed_cost(VOTES, 2.0, smooth), 0, -1.0, NAN),
    "delta=": [
        *each(partial(PrivacyGuarantee, GAUSSIAN), 1.0, -1e-9, NAN, "1e-5"),
        *each(partial(PrivacyBudget, 1.0), -1e-9, 1.0, NAN, "0"),
    ],
    "must be in": each(pld(GAUSSIAN).epsilon, -1e-9, 1.0, NAN),
    "must be >= 0": each(pld(GAUSSIAN).delta, -0.1, NAN),
    "privacy loss is unbounded": [lambda: pld(GAUSSIAN).epsilon(0.0)],
    "relation='swap'": [lambda: PrivacyGuarantee(GAUSSIAN, 1e-5, "swap")],
    "kind='hoped'": [lambda: PrivacyGuarantee(GAUSSIAN, 1e-5, "zero_out", "hoped")],
    "assumptions must be a sequence": [
        lambda: PrivacyGuarantee(GAUSSIAN, 1e-5, "zero_out", "proved", "one")
    ],
    "unit=": [
        *(partial(PrivacyGuarantee, GAUSSIAN, unit=bad) for bad in ("", None, 1)),
        *(partial(GUARANTEE.group, 2, unit=bad) for bad in ("", "record", 3)),
        *(partial(PrivacyBudget(1.0).reserve, LaplaceEvent(10.0), unit=bad)
          for bad in ("", 3, None)),
        lambda: PrivacyBudget(1.0, unit=""),
    ],
    "describe|description": each(
        PrivacyGuarantee.from_dict, {},
        {"event": {"type": "Gaussian", "noise_multiplier": 1.0}, "colour": 1},
    ),
    **{key: [without(key)] for key in ("event", "relation", "kind", "assumptions")},
    "assumptions='n is public'": [
        lambda: PrivacyGuarantee.from_dict({**DESCRIPTION, "assumptions": "n is public"})
    ],
    "epsilon=": [
        *each(GUARANTEE.delta, -0.1, NAN, "1", None),
        *each(PrivacyBudget, 0, -1, NAN, INF, "1", None, True),
        *(calibrated(GaussianEvent, bad) for bad in (0, -1, NAN, INF, None)),
    ],
    "fpr=": [
        *each(GUARANTEE.tpr_bound, -0.1, 1.1, NAN),
        *(partial(calibrate_to_attack, GaussianEvent, tpr_at_fpr=(tpr, fpr))
          for tpr, fpr in ((0.01, 0.02), (1.0, 0.1), (0.1, 0.0))),
    ],
    "delta=0 has no finite epsilon": [
        lambda: GUARANTEE.epsilon(0), calibrated(GaussianEvent, 1.0, 0.0),
        lambda: PrivacyGuarantee(events.LogisticEvent(1.0, norm=2)).epsilon(),
    ],
    "k=": each(GUARANTEE.group, 0, -1, 1.5, True),
    "below 1/n": [
        lambda: check_delta(1e-3, n_records=1000),
        lambda: PrivacyBudget(1.0, delta=0.01, n_records=100),
    ],
    "delta=0": [lambda: compare_accountants(GAUSSIAN, 0.0)],
    "advantage=": [lambda: calibrate_to_attack(GaussianEvent, advantage=1.0)],
    "reaches the target": [
        calibrated(lambda z: events.NonPrivateEvent()),
        calibrated(lambda z: ComposedEvent(
            (events.RepeatedEvent(events.ApproxDPEvent(1.0), 3), GaussianEvent(z)))),
    ],
    "callable": [calibrated(1.0)],
    "relation=": [calibrated(GaussianEvent, 1.0, 1e-5, "swap")],
    "accountant='gdp' must be one of": [calibrated(GaussianEvent, accountant="gdp")],  # no proof
    **{f"accountant='{name}' needs a delta > 0": [
        calibrated(LaplaceEvent, 1.0, 0.0, accountant=name)]
       for name in ("naive", "advanced", "zcdp", "rdp")},
    "filter=": [lambda: PrivacyBudget(1.0, filter="hope")],
    "only proved ones": [
        lambda: reserve_release(PrivacyBudget(1.0), LaplaceEvent(9.0), kind="estimate")
    ],
    "must be a PrivacyBudget": [lambda: reserve_release(3.0, LaplaceEvent(9.0))],
    "never mixed": [
        lambda: PrivacyBudget(1.0, relation="label").reserve(LaplaceEvent(9.0), relation="zero_out")
    ],
    "private data": [lambda: PrivacyBudget(1.0).reserve(GNMaxEvent(40.0, (10, 0)))],
    "is not a charge": [lambda: PrivacyBudget(1.0).commit(17)],
    "name=": each(PrivacyBudget(1.0).scope, "", "a/b", "=a", 3, None),
    "key=": each(PrivacyBudget(1.0).partition, "", "a/b", 3, None),
    "scope=None must be a string": [lambda: PrivacyBudget.open(PrivacyBudget(1.0).path, None)],
    "at least 16 hexadecimal digits": each(
        PrivacyBudget(1.0).verify, "", "0123456789abcde", "g" * 16, "A" * 16
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_it_is_refused_by_name(message):
    for call in REFUSED[message]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()
