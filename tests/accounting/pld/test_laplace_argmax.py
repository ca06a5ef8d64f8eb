"""Winners of votes with Laplace noise: the block's bound against exact attacks.

The attacks are computed apart from the library: by quadrature between the kinks, and by counting.
"""

import math
from contextlib import ExitStack
from itertools import product
from unittest import mock

import numpy as np
import pytest

from skprivacy.accounting import RepeatedEvent, VoteBlockEvent, epsilon_of
from skprivacy.accounting.accountants import delta_of
from skprivacy.accounting.events import LNMaxEvent
from skprivacy.accounting.pld import argmax
from skprivacy.accounting.pld import channels as laplace_channels
from skprivacy.ensemble import LNMax

from ...planted_bugs.bug import calling, patched
from .rounding import answer
from .test_argmax import caught, curve_of, fewer_queries, hockey_stick, random_products, worst

pytestmark = pytest.mark.heavy

DELTA = 1e-5
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
FAR = 40.0  # scales: beyond lies less than 1e-17


def lnmax(noise, n_queries):
    return VoteBlockEvent("lnmax", noise, n_queries)


def density(z):
    return np.exp(-np.abs(z)) / 2


def cdf(z):
    return np.where(z < 0, density(z), 1 - density(z))


def between(kinks, integrand):
    """Integrate over rows of sorted kinks, cell by cell: the integrand is smooth within."""
    half = np.diff(kinks, axis=-1)[..., None] / 2
    z = kinks[..., :-1, None] + half * (NODES + 1)
    return (integrand(z) * half * WEIGHTS).sum(axis=(-2, -1))


def against_zero(x, y):
    """Return the probabilities that X, Y and 0 are the largest, of shape (3, ...)."""
    x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
    kinks = np.maximum(np.stack([np.zeros(x.shape), x, y]), 0.0)
    kinks = np.moveaxis(np.sort(np.concatenate([kinks, kinks.max(0)[None] + FAR]), axis=0), 0, -1)
    x, y = x[..., None, None], y[..., None, None]
    wins = [
        between(kinks, lambda z, m=m: density(z - m[0]) * cdf(z - m[1])) for m in ((x, y), (y, x))
    ]
    return np.array([*wins, (cdf(-x) * cdf(-y))[..., 0, 0]])


def channel(x, y, h):
    """Return the two laws of X, Y and 0, before and after a vote moves from X to Y."""
    return against_zero(x, y), against_zero(np.subtract(x, h), np.add(y, h))


def level(gap, h):
    """Return the two laws of two classes of which one is ``gap`` ahead."""
    far = 60.0  # the third hardly ever wins, at 1e-26
    p, q = channel(far + np.asarray(gap), np.full_like(np.asarray(gap, float), far), h)
    return np.maximum(p, 1e-300), np.maximum(q, 1e-300)


def places(h, seed, size=60):
    """Return means of X and Y all over the plane, with more around the kinks."""
    rng = np.random.default_rng(seed)
    near = rng.uniform(-1.5 * h, 1.5 * h, (size, 2))
    strips = np.c_[rng.uniform(0, h, size), rng.exponential(1.5, size)]
    strips = np.r_[strips, np.c_[rng.exponential(1.5, size), rng.uniform(-h, 0, size)]]
    corners = np.array(list(product((0, h / 2, h, -h / 2, -h), repeat=2)))
    everywhere = rng.uniform(-3, 5, (size, 2)), rng.uniform(-25, 25, (size // 3, 2))
    return np.concatenate([near, strips, corners, *everywhere]).T


def all_channels(h, seed=0, size=60):
    """Return laws of many channels, each with its exchange of P and Q."""
    p, q = channel(*places(h, seed, size), h)
    gaps = np.r_[np.linspace(-4, 4, 33), np.linspace(-1, 3, 17) * h]
    two = level(gaps, h)
    p, q = np.concatenate([p, two[0]], axis=1), np.concatenate([q, two[1]], axis=1)
    return np.concatenate([p, q], axis=1), np.concatenate([q, p], axis=1)


def value(p, q, before, gamma):
    """Return the sum over outcomes of P V(gamma Q / P), of each channel."""
    return (p * before(gamma * q / p)).sum(axis=0)


# -------------------------------------------------------------------------------------- the figures


@pytest.mark.everyday(2)
@pytest.mark.parametrize(
    ("noise", "n_queries", "least", "most"),
    [
        (1.5, 3, 3.5338, 3.5515),
        (3.0, 5, 2.7436, 2.7490),
        (20.0, 10, 0.6088, 0.6096),
        (20.0, 100, 2.3016, 2.3036),
        (40.0, 100, 1.0717, 1.0725),
    ],
)
def test_epsilon_is_that_of_an_independent_recursion_rounded_up(noise, n_queries, least, most):
    """The least is a recursion over possible channels alone, without slack, on a finer grid."""
    assert least <= epsilon_of(lnmax(noise, n_queries), DELTA) <= most


@pytest.mark.slow
def test_votes_level_with_a_third_in_many_queries_are_bounded():
    LEVEL(20.0, 1000)
    assert level_with_a_third(20.0, 1000, 8.8553) > DELTA
    assert epsilon_of(lnmax(20.0, 1000), DELTA) <= 8.88


def level_with_a_third(noise, n_queries, epsilon):
    """Return the exact divergence if two votes are level with a fixed third in all queries."""
    h = 1 / noise
    a, b, other = against_zero(h / 2, -h / 2)
    law = np.ones(1)
    for _ in range(n_queries):
        law = np.convolve(law, [b, other, a])
    losses = math.log(a / b) * np.arange(-n_queries, n_queries + 1)
    return (law * np.maximum(-np.expm1(epsilon - losses), 0)).sum()


@pytest.mark.parametrize("h", [1.0, 0.5, 0.05])
def test_one_query_is_its_best_channel(h):
    """Unlike with Gaussian noise it gains, though not at the largest losses."""
    p, q = all_channels(h, size=300)
    x, y = (a.ravel() for a in np.meshgrid(np.linspace(0, h, 9), np.linspace(-h, 25, 400)))
    fine = channel(x, y, h)
    p, q = np.concatenate([p, *fine], axis=1), np.concatenate([q, *fine[::-1]], axis=1)
    for epsilon in h * np.array([0.0, 0.25, 1.0, 1.75, 1.875]):
        exact = np.maximum(p - math.exp(epsilon) * q, 0).sum(axis=0).max()
        # nodes are wide apart in the tail; elsewhere it is within 3 %
        assert exact <= delta_of(lnmax(1 / h, 1), epsilon) <= 1.3 * exact
    assert delta_of(lnmax(1 / h, 1), 0.0) < 0.61 * delta_of(LNMaxEvent(1 / h), 0.0)


# --------------------------------------------------------------------- attacks that it must bound


@pytest.mark.parametrize(
    ("noise", "n_queries"), [(1.0, 2), (1.5, 3), (3.0, 6), (20.0, 100), (1e3, 50)]
)
def test_votes_level_with_a_third_are_bounded(noise, n_queries):
    for epsilon in np.linspace(0, 1, 4) * math.sqrt(n_queries) / noise:
        exact = level_with_a_third(noise, n_queries, epsilon)
        assert exact <= delta_of(lnmax(noise, n_queries), epsilon)


@pytest.mark.parametrize("noise", [1.0, 1 / 0.7, 3.0, 20.0, 500.0])
def test_any_first_query_and_the_best_second_are_bounded(noise):
    """The second may be chosen after the first: at every ratio the best of many channels."""
    h = 1 / noise
    p, q = all_channels(h)
    ratios = np.exp(h * np.linspace(-6, 6, 241))
    second = np.array([np.maximum(p - ratio * q, 0).sum(axis=0).max() for ratio in ratios])
    for epsilon in h * np.array([0.0, 0.5, 1.0, 2.0, 3.0, 3.9]):
        # the best second is convex in the ratio, and lies above its tangents; below, by its values
        step = np.searchsorted(ratios, math.exp(epsilon) * q / p)  # at the next ratio: not more
        exact = (p * np.r_[second, 0.0][step]).sum(axis=0).max()
        assert exact <= delta_of(lnmax(noise, 2), epsilon)


def winners(votes, scale):
    """Return the probability that each class wins."""
    places = np.asarray(votes, float) / scale
    ends = places.min() - np.array([FAR, 10, 2]), places.max() + np.array([2, 10, FAR])
    kinks = np.unique(np.concatenate([places, *ends]))

    def law(j):
        return lambda z: (
            density(z - places[j])
            * np.prod([cdf(z - place) for place in np.delete(places, j)], axis=0)
        )

    return np.array([between(kinks, law(j)) for j in range(len(places))])


@pytest.mark.parametrize("noise", [3.0, 1 / 0.7])
def test_random_votes_are_bounded(noise):
    """2 to 8 classes, whole votes, one to three queries, in both directions."""
    rng = np.random.default_rng(1)
    gammas = np.exp(np.linspace(-5, 5, 25) / noise)
    bounds = {n: curve_of(lnmax(noise, n), gammas) for n in (1, 2, 3)}
    closest = 0.0
    for trial in range(45):
        n_queries = trial % 3 + 1
        for p, q in (pair := random_products(rng, winners, noise, n_queries), pair[::-1]):
            exact = np.array([hockey_stick(p, q, gamma) for gamma in gammas])
            assert (exact <= bounds[n_queries] + 1e-12).all()
            closest = max(closest, (exact - np.maximum(1 - gammas, 0))[12] / bounds[n_queries][12])
    assert closest > 0.6  # at gamma = 1: the bound is within reach


# ----------------------------------------------------------------------------------- the proof


@pytest.mark.parametrize("h", [1.0, 0.3, 0.01])
def test_closed_forms_are_the_integrals(h):
    x, y = places(h, seed=2)
    exact = against_zero(x, y)
    np.testing.assert_allclose(
        laplace_channels._winner_probabilities(x, y), exact, rtol=1e-9, atol=1e-14
    )


def part_covers(part, h, laws):
    p, q, slack = part
    factor = np.exp(slack)
    cover = laplace_channels.Channels(p * factor, np.log(q / p) - 2 * slack)
    kinks = (0.0, h, 3 * h)
    gammas = np.exp(h * np.r_[np.linspace(-6, 6, 13), 1.98, 2.98, 4.98])  # losses are up to 2h
    for kink, gamma in product(kinks, gammas):

        def before(ratio, kink=kink):
            return answer(kink, ratio)

        bound = np.maximum(worst(cover, before)(gamma), before(gamma))
        assert value(*laws, before, gamma).max() <= bound * (1 + 1e-12)


def join(*parts):
    return tuple(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))


@pytest.mark.parametrize("h", [1.0, 0.1, 0.001])
def test_each_part_covers_its_channels(h):
    """Without help from the other parts; P and Q are exchanged elsewhere."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, h, 400), h + np.r_[rng.exponential(2, 300), rng.uniform(20, 60, 100)]
    part_covers(laplace_channels._near_lattice(h), h, channel(x, rng.uniform(-h, h, 400), h))
    tail = laplace_channels._tail_limit(h)
    part_covers(join(laplace_channels._ahead_corners(h), tail), h, channel(x, y, h))
    inside, outside = rng.uniform(0, 2 * h, 200), 2 * h + rng.exponential(2, 200)
    part_covers(laplace_channels._level_lattice(h), h, level(inside, h))
    swapped = (tail[1], tail[0], tail[2])  # the class behind is the rare one, after the vote moves
    part_covers(join(laplace_channels._level_corners(h), swapped), h, level(outside, h))
    alone = np.full(200, -700.0)
    for means in (rng.uniform(-h, 0, 200), rng.uniform(-5, 5, 200)):
        laws = [np.maximum(law, 1e-300) for law in channel(alone, means, h)]
        part_covers(laplace_channels._threshold_lattice(h), h, laws)


@pytest.mark.parametrize("h", [1.0, 0.3, 0.01])
def test_a_channel_is_nearly_a_mixture_of_those_on_the_lattice(h):
    """The lemma: by the slack it may be off, and half of that is not enough."""
    rng = np.random.default_rng(6)
    cell, slack = (
        h / laplace_channels._CELLS,
        laplace_channels._bound_error(h / laplace_channels._CELLS),
    )
    off = []
    for x, y in [*rng.uniform(-1.5, 1.5, (40, 2)), (0.5 * cell, 0.2), (0.5 * cell, -3.0)]:
        low = math.floor(x / cell) * cell
        weights = np.array([math.sinh(low + cell - x), math.sinh(x - low)])
        mixed = against_zero(np.array([low, low + cell]), y) @ (weights / weights.sum())
        off.append(abs(np.log(against_zero(x, y) / mixed)).max())
    assert slack / 2 < max(off) <= slack * (1 + 1e-6)


@pytest.mark.parametrize("h", [1.0, 0.1, 0.001])
def test_one_step_covers_all_channels(h):
    step = h / 16
    pad = argmax._KINDS["lnmax"].pad(h, step)
    grid = argmax._Grid(step, 24 * pad, pad)
    query = argmax._laplace_query(h, grid)
    gamma = np.exp(grid.losses[: 4 * pad])
    p, q = all_channels(h, seed=7, size=100)
    for kink in (0, 5, 16, 48):
        before = answer(kink * step, np.exp(grid.losses))
        few, many = query(before, len(gamma), 2), query(before, 20 * pad, 300)[: len(gamma)]
        exact = [value(p, q, lambda r, k=kink: answer(k * step, r), g).max() for g in gamma]
        assert all((exact <= bound * (1 + 1e-12) + 1e-16).all() for bound in (few, many))
        assert (few < many).any()  # of many points few are worked out


# -------------------------------------------------------------------------- how it fits with others


def test_nothing_is_saved_where_no_delta_is_allowed():
    for noise, n_queries in ((1.0, 1), (3.0, 7), (20.0, 100)):
        block, plain = lnmax(noise, n_queries), RepeatedEvent(LNMaxEvent(noise), n_queries)
        assert epsilon_of(block, 0.0) == pytest.approx(2 * n_queries / noise, rel=1e-12)
        assert epsilon_of(plain, 0.0) == pytest.approx(2 * n_queries / noise, rel=1e-12)


def test_more_queries_cost_more_and_more_noise_less():
    costs = [[epsilon_of(lnmax(z, n), DELTA) for z in (20.0, 10.0, 5.0)] for n in (1, 3, 10, 30)]
    assert all(row == sorted(row) for row in (*costs, *np.transpose(costs).tolist()))


def test_more_queries_than_declared_break_the_claim():
    claimed = delta_of(lnmax(10.0, 10), 1.0)
    assert level_with_a_third(10.0, 10, 1.0) <= claimed < level_with_a_third(10.0, 14, 1.0)


def test_the_aggregator_charges_winners():
    assert LNMax(20.0).event(100, moved=1) == lnmax(20.0, 100)
    found = LNMax()._calibrated(30, 1, epsilon=1.0, delta=DELTA, relation="zero_out")
    assert 0.999 <= epsilon_of(found.event(30, 1), DELTA) <= 1.0
    pure = LNMax()._calibrated(30, 1, epsilon=1.0, delta=0.0, relation="zero_out")
    assert pure.noise == pytest.approx(60.0, rel=1e-3)


# ----------------------------------------------------------------------------------- planted bugs


def left_out(original):
    """Leave out a part, except one channel without information."""
    flat = np.full((3, 1), 1 / 3)
    return lambda h: (flat, flat, np.zeros(1))


@calling
def centred(original, x, y, h):
    """Take the kinks to be at 0, as if the votes were half-way between P and Q."""
    return original(x + h / 2, y - h / 2, h)


def near_zero_missed(original):
    """Take a lattice that ends short of the kink of X at 0."""
    return lambda h: tuple(a[..., np.arange(a.shape[-1]) % 13 > 6] for a in original(h))


LEVEL, PARTS = test_votes_level_with_a_third_are_bounded, test_each_part_covers_its_channels
STEP = test_one_step_covers_all_channels
MUTANTS = {
    "one query fewer": (argmax, "argmax_curve", fewer_queries, LEVEL, 3.0, 6),
    "no slack": (laplace_channels, "_bound_error", lambda original: lambda cell: 0.0, PARTS, 0.1),
    "no lattice around the kinks": (laplace_channels, "_near_lattice", left_out, LEVEL, 3.0, 6),
    "half a lattice": (laplace_channels, "_near_lattice", near_zero_missed, PARTS, 0.1),
    "kinks in the wrong place": (laplace_channels, "_neighbour_laws", centred, STEP, 0.1),
    "points of the curve for corners": (
        laplace_channels, "_scale_departure", lambda original: lambda law, sure, more: law,
        PARTS, 0.1,
    ),
    "no rare outcomes": (laplace_channels, "_tail_limit", left_out, PARTS, 0.1),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, *case = MUTANTS[name]
    caught(patched(owner, attribute, make), lambda: check(*case))


@pytest.mark.everyday(1)
@pytest.mark.parametrize("deviation", [1.0, math.sqrt(2)])
def test_the_channels_of_normal_noise_are_caught(deviation):
    """Of as much noise, or of noise of the same deviation."""
    normal = argmax._Gaussian(
        lambda h, grid: argmax._argmax_query(h / deviation, grid), math.sqrt(2)
    )
    planted = mock.patch.dict(argmax._KINDS, {"lnmax": normal})
    caught(planted, lambda: LEVEL(20.0, 100))


def test_the_value_of_two_classes_for_more_is_caught():
    with ExitStack() as planted:
        for name in ("_near_lattice", "_ahead_corners", "_threshold_lattice"):
            planted.enter_context(patched(laplace_channels, name, left_out))
        caught(planted, lambda: LEVEL(20.0, 100))
