"""A public choice among releases: its delta is the mean of deltas, by brute force."""

import itertools
import math

import numpy as np
import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.accounting.accountants import delta_of, rdp_delta, zcdp
from skprivacy.accounting.event import NoLossDistributionError
from skprivacy.accounting.events import (
    DiscreteLaplaceEvent,
    ExponentialEvent,
    NonPrivateEvent,
    RandomizedResponseEvent,
    TreeAggregationEvent,
)
from skprivacy.accounting.events.mixtures import MixtureEvent
from skprivacy.accounting.pld.distribution import pld
from skprivacy.accounting.renyi import rdp

EPSILONS = [0.0, 0.1, 0.3, 0.7, 1.2, 2.0]


def response(epsilon, k):
    """Return the reports of randomised response on the first category, and on the second."""
    low = 1 / (math.exp(epsilon) + k - 1)
    p, q = np.full((2, k), low)
    p[0] = q[1] = math.exp(epsilon) * low
    return p, q


def joined(weights, *pairs):
    """Return the distributions of (choice, answer) under both neighbours."""
    return tuple(
        np.concatenate([w * pair[i] for w, pair in zip(weights, pairs, strict=True)])
        for i in (0, 1)
    )


def product(one, other):
    return tuple(np.outer(one[i], other[i]).ravel() for i in (0, 1))


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def renyi_divergence(p, q, order):
    return math.log(float(p**order @ q ** (1 - order))) / (order - 1)


WEIGHTS = (0.5, 0.3, 0.2)
RESPONSES = (0.3, 3), (0.7, 2), (2.0, 6)
EACH = tuple(RandomizedResponseEvent(*response) for response in RESPONSES)
PAIRS = [response(*given) for given in RESPONSES]
MIXTURE = MixtureEvent(WEIGHTS, EACH)


def test_one_choice_is_exact():
    p, q = joined(WEIGHTS, *PAIRS)
    for epsilon in EPSILONS:
        exact = hockey_stick(p, q, epsilon)
        assert pld(MIXTURE).delta(epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-15)
        mean = sum(w * delta_of(e, epsilon) for w, e in zip(WEIGHTS, EACH, strict=True))
        assert exact == pytest.approx(mean, rel=1e-9, abs=1e-15)
    assert epsilon_of(MIXTURE, 0.0) == pytest.approx(2.0)
    orders = [1.01, 1.5, 2.0, 7.0, 60.0]
    exact = [renyi_divergence(p, q, a) for a in orders]
    np.testing.assert_allclose(rdp(MIXTURE, orders), exact, rtol=1e-9)


@pytest.mark.parametrize("count", [2, 4])
def test_choices_compose(count):
    """Every sequence of choices and answers, one after the other."""
    pair = one = joined(WEIGHTS, *PAIRS)
    for _ in range(count - 1):
        pair = product(pair, one)
    for epsilon in EPSILONS:
        exact = hockey_stick(*pair, epsilon)
        ours = pld(RepeatedEvent(MIXTURE, count)).delta(epsilon)
        # nine large losses that share no grid: the engine comes within 1.3e-3 of them
        assert exact * (1 - 1e-9) <= ours <= exact * (1 + 2e-3)
    (found,) = rdp(RepeatedEvent(MIXTURE, count), [3.0])
    assert found == pytest.approx(renyi_divergence(*pair, 3.0))


def test_branches_that_are_compositions_are_bounded_from_above_and_closely():
    events = (RepeatedEvent(EACH[0], 3), ComposedEvent((EACH[1], EACH[2])), ComposedEvent(()))
    three = product(product(PAIRS[0], PAIRS[0]), PAIRS[0])
    p, q = joined(WEIGHTS, three, product(PAIRS[1], PAIRS[2]), (np.ones(1), np.ones(1)))
    loss = pld(MixtureEvent(WEIGHTS, events))
    for epsilon in EPSILONS:
        exact = hockey_stick(p, q, epsilon)
        assert exact * (1 - 1e-9) <= loss.delta(epsilon) <= exact * 1.02 + 1e-9
    assert loss.epsilon(0.0) == pytest.approx(2.7)
    a = 4.0
    assert rdp(MixtureEvent(WEIGHTS, events), [a])[0] == pytest.approx(renyi_divergence(p, q, a))


@pytest.mark.heavy
def test_every_sequence_of_branches_of_sampled_noise():
    """Two steps, each at a rate that is drawn: the mean over the four sequences of rates."""
    rates, weights = (0.05, 0.3), (0.9, 0.1)
    steps = [PoissonSampledEvent(q, GaussianEvent(0.8)) for q in rates]
    two = RepeatedEvent(MixtureEvent(weights, steps), 2)
    for relation in ("add_remove", "replace_one", "zero_out"):
        for epsilon in (0.05, 0.5, 1.5):
            pairs = itertools.product(zip(weights, steps, strict=True), repeat=2)
            exact = sum(
                p * q * delta_of(ComposedEvent((one, two)), epsilon, relation)
                for (p, one), (q, two) in pairs
            )
            # The worse direction may change from sequence to sequence, and the mean is of one.
            assert pld(two, relation).delta(epsilon) == pytest.approx(exact, rel=2e-3)


def test_concentrated_cost_is_that_of_the_dearest_event():
    cheap, dear = GaussianEvent(20.0), GaussianEvent(2.0)
    mixture = MixtureEvent((0.99, 0.01), (cheap, dear))
    assert zcdp(mixture) == zcdp(dear)
    assert zcdp(MixtureEvent((1.0,), (ExponentialEvent(1.0),))) == zcdp(ExponentialEvent(1.0))


def test_rare_nonprivate_branch_costs_its_probability():
    mixture = MixtureEvent((0.999, 0.001), (DiscreteLaplaceEvent(2.0), NonPrivateEvent()))
    assert delta_of(mixture, 10.0) == pytest.approx(0.001)
    assert epsilon_of(mixture, 0.002) < 0.5
    assert epsilon_of(mixture, 0.0005) == math.inf
    assert math.isinf(rdp(mixture, [2.0])[0])
    both = ComposedEvent((ApproxDPEvent(0.5, 1e-7), GaussianEvent(3.0)))
    approximate = MixtureEvent((0.5, 0.5), (LaplaceEvent(2.0), both))
    assert 0.5 < epsilon_of(approximate, 1e-6) < 2.5
    assert delta_of(approximate, 20.0) >= 0.5e-7


def test_a_sample_of_a_choice_is_a_choice_of_samples():
    inner = (GaussianEvent(1.0), GaussianEvent(3.0))
    outside = PoissonSampledEvent(0.1, MixtureEvent((0.4, 0.6), inner))
    inside = MixtureEvent((0.4, 0.6), tuple(PoissonSampledEvent(0.1, e) for e in inner))
    for epsilon in (0.1, 0.5, 1.0):
        assert delta_of(outside, epsilon) == pytest.approx(delta_of(inside, epsilon), rel=1e-9)
    np.testing.assert_allclose(rdp(outside, [2.0, 9.0]), rdp(inside, [2.0, 9.0]), rtol=1e-12)


def test_digits_survive_where_costs_are_tiny():
    cheap = MixtureEvent((0.5, 0.5), (GaussianEvent(1e7), GaussianEvent(2e7)))
    mean = (0.5 * rdp(GaussianEvent(1e7), [1.01]) + 0.5 * rdp(GaussianEvent(2e7), [1.01]))[0]
    assert rdp(cheap, [1.01])[0] == pytest.approx(mean, rel=1e-9)
    assert epsilon_of(MIXTURE, 1e-6) <= 2.0
    alone = MixtureEvent((1.0,), (GaussianEvent(2.0),))
    assert delta_of(alone, 1.0) == delta_of(GaussianEvent(2.0), 1.0)


def test_renyi_alone_covers_what_has_no_distribution():
    mixture = MixtureEvent((0.5, 0.5), (TreeAggregationEvent(5.0, 4, 1), GaussianEvent(3.0)))
    assert epsilon_of(mixture, 1e-6, "zero_out") <= epsilon_of(GaussianEvent(5.0 / 3**0.5), 1e-6)
    with pytest.raises(NoLossDistributionError, match="zero_out"):
        epsilon_of(mixture, 1e-6)  # add_remove
    private = MixtureEvent((0.5, 0.5), (GNMaxEvent(40.0, (200.0, 5.0)), GaussianEvent(3.0)))
    assert private.data_dependent
    with pytest.raises(ValueError, match="private data"):
        private.to_dict()
    assert rdp_delta(private, 1.0) < rdp_delta(GaussianEvent(3.0), 1.0)
