"""Checks that each rounding of a privacy loss distribution is on the safe side.

A privacy curve is the hockey-stick divergence of P from Q as a function of gamma. An approximation
is safe if its curve is nowhere below the exact one. Exact curves are computed apart from the
library: in rational numbers, by mpmath, or from closed forms.
"""

import math
from collections import Counter
from fractions import Fraction
from typing import Any
from unittest import mock

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import norm

from skprivacy.accounting.pld import argmax, channels, compose, distribution, pairs
from skprivacy.accounting.pld import sampled_pairs as sampled
from skprivacy.accounting.pld.pairs import pair_from_curve
from skprivacy.accounting.pld.saddle_point import Group, saddle_point
from skprivacy.accounting.pld.sampled_pairs import MixedGaussians

ROUNDED = 1e-13  # of sums of a few hundred probabilities in double precision
STEPS = 0.1, 0.0071, 0.3  # of a grid; losses below are no multiples of them

ATOMS = pairs.AtomPair(
    (-0.95, -0.2, 0.13, 0.95),
    (0.15, 0.25, 0.25, 0.35 - 1 / 64),
    tuple(p * math.exp(-x) for p, x in zip((0.15, 0.25, 0.25, 0.35 - 1 / 64),
                                         (-0.95, -0.2, 0.13, 0.95), strict=True)),
    1 / 64,
)  # fmt: skip
PAIRS: dict[str, pairs.Pair] = {
    "GaussianPair": pairs.GaussianPair(0.83),
    "GaussianPair-loose": pairs.GaussianPair(0.83, loose=True),
    "AtomPair": ATOMS,
    "SlopePair": pairs.SlopePair(1.03),
    "SlopePair-atoms": pairs.SlopePair(1.03, atoms=True),
    "MixedPair": pairs.MixedPair((0.3, 0.7), (pairs.SlopePair(1.03), pairs.GaussianPair(2.1))),
    "Removed": sampled.Removed(pairs.GaussianPair(0.83), 0.13),
    "Removed-bounded": sampled.Removed(pairs.SlopePair(1.03, atoms=True), 0.13),
    "Added": sampled.Added(pairs.GaussianPair(0.83), 0.13),
    "Added-bounded": sampled.Added(pairs.SlopePair(1.03, atoms=True), 0.13),
    "ReplacedGaussian": sampled.ReplacedGaussian(0.83, 0.13),
    "MixedGaussians": MixedGaussians(0.83, (0.7, 0.2, 0.1), (0.0, 1.0, 2.0), (0.0, 0.0, 0.0)),
}


def curve(pair: pairs.Pair, epsilon: float) -> float:
    """Return the exact divergence of a pair, from its masses beyond one loss."""
    p, q = pair.masses(np.array([epsilon]))
    return float(p[1] - math.exp(epsilon) * q[1]) + pair.infinity


def lattice_curve(lattice: Any, epsilon: float) -> float:
    ahead = np.maximum(-np.expm1(epsilon - lattice.loss), 0)
    return float(ahead @ lattice.mass) + lattice.infinity


# ------------------------------------------------------------------- grids of losses, composition


def check_dots() -> None:
    """The losses on a grid have a curve above that of the pair, and so has the coarser grid."""
    for pair in PAIRS.values():
        for step in STEPS:
            for tail in (1e-9, 1e-3):
                lattice = compose._connect_the_dots(pair, step, tail)
                coarse = compose._coarsen(lattice)
                for epsilon in (0.0, 0.055, 0.61, 0.955, 1.025, 1.7):
                    exact = curve(pair, epsilon)
                    assert lattice_curve(lattice, epsilon) >= exact - ROUNDED, (pair, step, epsilon)
                    assert lattice_curve(coarse, epsilon) >= exact - ROUNDED, (pair, step, epsilon)


def check_composition() -> None:
    """Compositions of atoms cost no less than their exact sums of losses, in rational numbers.

    The losses are multiples of a hundredth and P is rational. Powers of e are irrational, and
    rounded to 60 digits.
    """
    hundredths = (-95, -20, 13, 95)
    p = [
        Fraction(15, 100),
        Fraction(25, 100),
        Fraction(25, 100),
        Fraction(35, 100) - Fraction(1, 64),
    ]
    for count in (2, 7):
        law = Counter({0: Fraction(1)})
        for _ in range(count):
            law = _added(law, hundredths, p)
        infinite = 1 - (1 - Fraction(1, 64)) ** count
        groups = [Group(ATOMS, count)]
        for delta in (0.2 + float(infinite), 1e-3 + float(infinite)):
            where = saddle_point(groups, log_delta=math.log(delta))
            for tolerance in (0.5, 1e-3):
                composed = compose.compose(groups, where, tolerance)
                for epsilon in (0.0, 0.31, 1.333, 2.007, 5.9):
                    exact = _exact_delta(law, epsilon) + infinite
                    assert composed.delta(epsilon) >= float(exact) * (1 - 1e-12)
                found = composed.epsilon(delta)
                assert _exact_delta(law, found) + infinite <= delta * (1 + 1e-12)


def _added(law: Counter, losses: tuple[int, ...], p: list[Fraction]) -> Counter:
    found: Counter = Counter()
    for total, mass in law.items():
        for loss, share in zip(losses, p, strict=True):
            found[total + loss] += mass * share
    return found


def _exact_delta(law: Counter, epsilon: float) -> mpmath.mpf:
    found = mpmath.mpf(0)
    with mpmath.workdps(60):
        for loss, mass in law.items():
            if loss > 100 * epsilon:
                share = -mpmath.expm1(epsilon - mpmath.mpf(loss) / 100)
                found += share * mass.numerator / mass.denominator
    return found


def check_window() -> None:
    """Composed Gaussians cost no less than the Gaussian that they are, whatever the window."""
    for z, count, log_delta in ((3.0, 20, -9.0), (1.0, 5, -4.0), (30.0, 500, -14.0)):
        groups = [Group(pairs.GaussianPair(z), count)]
        where = saddle_point(groups, log_delta=log_delta)
        composed = compose.compose(groups, where, 1e-2)
        for share in (0.3, 1.0, 1.5):
            epsilon = share * where.epsilon
            exact = _gaussian_delta(math.sqrt(count) / z, epsilon)
            assert composed.delta(epsilon) >= exact * (1 - 1e-12), (z, count, share)


def _gaussian_delta(mu: float, epsilon: float) -> float:
    with mpmath.workdps(40):
        a, b = mpmath.mpf(mu) / 2, mpmath.mpf(epsilon) / mu
        return float(mpmath.ncdf(a - b) - mpmath.exp(epsilon) * mpmath.ncdf(-a - b))


def check_closed_forms() -> None:
    """Curves of single Gaussians are rounded up."""
    for z in (100.0, 4.0, 0.5):  # whose inverses are exact, or nearly so
        mu = 1 / z
        epsilons = mu**2 / 2 + mu * np.array([0.0, 0.5, 2.0, 5.0, 6.8])
        found = argmax.gaussian_curve(mu, epsilons)
        for epsilon, delta in zip(epsilons, found, strict=True):
            exact = _gaussian_delta(mu, epsilon)
            assert delta >= exact
            assert distribution._single_loss_delta(pairs.GaussianPair(z), epsilon) >= exact
            smallest = distribution._single_loss_epsilon(pairs.GaussianPair(z), float(delta))
            assert _gaussian_delta(mu, smallest) <= delta


def check_pair_of_curve() -> None:
    """The pair of a curve that is given at some points lies above it at all points."""
    for mu in (0.2, 1.0):
        epsilons = np.linspace(0, 6 * mu, 23)
        pair = pair_from_curve(epsilons, argmax.gaussian_curve(mu, epsilons))
        for epsilon in np.linspace(0, 7 * mu, 101):
            assert curve(pair, epsilon) >= _gaussian_delta(mu, epsilon) - ROUNDED


# -------------------------------------------------------------------- the recursion over channels


def answer(kink: float, gamma: NDArray[Any]) -> NDArray[Any]:
    """Return the curve of a randomised answer, which is sharp at both ends of its losses."""
    p = np.array([1.0, math.exp(-kink)]) / (1 + math.exp(-kink))
    return np.maximum(p[0] - gamma * p[1], 0) + np.maximum(p[1] - gamma * p[0], 0)


def _grid(h: float) -> argmax._Grid:
    pad = channels.max_shift_in_steps(math.sqrt(2) * h, h / argmax._POINTS)
    return argmax._Grid(h / argmax._POINTS, 6 * pad, pad)


def check_filter() -> None:
    """A step on the grid is above the same step on the exact, convex curve."""
    rng = np.random.default_rng(0)
    h = 0.37
    grid = _grid(h)
    p = rng.dirichlet(np.ones(3), 40).T
    tilted = p * np.exp(h * rng.uniform(-1.3, 1.3, p.shape))
    several = channels.Channels(p, np.log(tilted / tilted.sum(axis=0) / p))
    weights = grid.filter(several)
    gamma = np.exp(grid.losses[: 2 * grid.pad])
    for kink in h * np.array([0.0, 0.71, 1.93, 3.3]):
        v = grid.extend(answer(kink, np.exp(grid.losses)))
        exact = np.max(
            (several.p * answer(kink, gamma[:, None, None] * np.exp(several.shift))).sum(1), axis=1
        )
        for every in (1, 2, 4, 8, 16):
            found = argmax._filtered_maximum(grid, weights, v, len(gamma), every)
            assert (found >= exact - ROUNDED).all(), (kink, every)


def check_refinement() -> None:
    """On a grid of three times the points, the bound of a block is no larger."""
    for kind, h, n_queries in (("gnmax", 0.3, 4), ("threshold", 0.3, 4), ("lnmax", 0.3, 4)):
        coarse = argmax.argmax_curve(kind, h, n_queries)
        with mock.patch.object(argmax, "_POINTS", 3 * argmax._POINTS):
            fine = argmax.argmax_curve(kind, h, n_queries)
        at = coarse[0][coarse[1] > 1e-9]
        bounds = (np.interp(np.exp(at), np.exp(e), d) for e, d in (coarse, fine))
        assert (next(bounds) >= next(bounds) * (1 - 1e-12)).all(), kind


def channel_curve(several: channels.Channels, gamma: float) -> NDArray[Any]:
    """Return the divergence of each channel."""
    return np.maximum(several.p * (1 - gamma * np.exp(several.shift)), 0).sum(axis=0)


def check_gaussian_channels() -> None:
    """The channel that tells a normal number, on the grid, costs no less than the number."""
    for t in (0.9, 0.05):
        for step in (t / 16, t / 3.7):
            for mu, several in (
                (t, channels.gaussian_channel(t, step)),
                (math.sqrt(2) * t, channels.far_shift_channel(t, step)),
            ):
                for epsilon in t * np.array([-2.0, 0.0, 0.33, 2.1, 5.0]):
                    a, b = mu / 2, epsilon / mu
                    exact = ndtr(a - b) - math.exp(epsilon) * ndtr(-a - b)
                    assert channel_curve(several, math.exp(epsilon)).max() >= exact - 1e-15


def check_censored_channels() -> None:
    """All values that are to be seen are seen, and together they are the normal number."""
    t, lowest = 0.31, -2.5
    for step in (t / 16, t / 9.3):
        for side in (-1, 1):
            unseen, seen = channels.censored_channels(t, lowest, step, side)
            loss = -seen.shift
            reaches = loss.max() if side < 0 else loss.min()
            assert side * reaches <= side * -side * t * lowest + 1e-6, "too little is seen"
            for gamma in np.exp(t * np.array([-2.0, 0.0, 0.4, 2.2])):
                exact = norm.cdf(t / 2 - math.log(gamma) / t)
                exact -= gamma * norm.cdf(-t / 2 - math.log(gamma) / t)
                merged = channel_curve(seen, gamma).max() + channel_curve(unseen, gamma).max()
                cut = t * lowest if side < 0 else -t * lowest
                if side * math.log(gamma) >= side * cut:  # there, what is seen decides
                    assert merged >= exact - 1e-14


def check_lattice() -> None:
    """The lattice of an arg-max reaches as far as the bound on what it misses says."""
    met: list[tuple[NDArray[Any], NDArray[Any], Any]] = []
    original = channels._gaussian_argmax_law

    def noted(s: Any, d: Any, variances: Any) -> Any:
        met.append((s, d, variances))
        return original(s, d, variances)

    for h in (0.9, 0.1, 0.011):
        met.clear()
        with mock.patch.object(channels, "_gaussian_argmax_law", noted):
            channels.argmax_channels(h, -2.5, 2.7, 1.3)
        for (s, first, variances), (_, second, _) in zip(met[::2], met[1::2], strict=True):
            d = (first + second) / 2
            margins = [channels._MARGIN * math.sqrt(v) for v in variances]
            bottom = math.sqrt(2) * -2.5
            assert s[0] <= bottom - margins[1]
            assert s[-1] >= 2.7 + margins[1]
            assert d[-1] >= 2.7 - bottom + margins[0]
            assert d[0] <= -(2.7 - bottom + margins[0])
