"""Shrinkage of noisy Newton steps by empirical Bayes, with effects that vary smoothly over bins.

All of it is computed from released tables and costs no privacy. The equations are of Rasmussen and
Williams, "Gaussian processes for machine learning", 2006.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..synthesis.marginal_tables import project_to_counts
from .losses import NewtonSums

Floats = NDArray[np.float64]

_LENGTHS = 2.0, 6.0, 20.0  # bins over which effects of neighbours are correlated
_SPREADS = 2.0 ** np.arange(-5.0, 2.0)  # standard deviation of effects, in Newton steps
_MAX_CELLS = 300  # of a table whose effects may be correlated: eigenvalues take cubic time
_LEAST_NOISE = 1e-9  # of a cell without noise or records, in units of the mean


def shrink_step(
    sums: NewtonSums, dispersion: float, n_ordered: tuple[int, ...]
) -> tuple[Floats, Floats]:
    """Return a Newton step for each cell, shrunk by empirical Bayes, and the noise in it.

    A cell's gradient is its hessian H times an effect, plus sampling noise of variance
    ``dispersion`` * H, plus the mechanism's noise. Effects have the likeliest normal prior, or are
    0. The first ``n_ordered`` bins of each axis have similar neighbours.
    """
    step, noise = np.zeros_like(sums.gradient), np.zeros_like(sums.gradient)
    stds = np.broadcast_to(sums.std, step.shape)
    correlations = list(_list_correlations(step.shape[:-1], n_ordered))
    for k in range(step.shape[-1]):
        raw = sums.hessian[..., k]
        hessian = project_to_counts(raw, max(float(raw.sum()), 1.0)).ravel()
        std = stds[..., k].ravel()
        found = _shrink_output(
            sums.gradient[..., k].ravel(), hessian, std, dispersion, correlations
        )
        step[..., k], noise[..., k] = (values.reshape(raw.shape) for values in found)
    return step, noise


def _list_correlations(
    shape: tuple[int, ...], n_ordered: tuple[int, ...]
) -> Iterator[Floats | None]:
    """Yield matrices of correlations between cells; None stands for independent effects."""
    yield None
    if any(n_ordered) and np.prod(shape) <= _MAX_CELLS:
        for length in _LENGTHS:
            correlation: Floats = np.ones((1, 1))
            for n_bins, n_similar in zip(shape, n_ordered, strict=True):
                own = _correlate(n_bins, n_similar, length)
                correlation = np.kron(correlation, own).astype(np.float64, copy=False)
            yield correlation


def _correlate(n_bins: int, n_ordered: int, length: float) -> Floats:
    """Return correlations that decay exponentially between ordered bins, and 0 for other bins."""
    correlation = np.eye(n_bins)
    place = np.arange(n_ordered)
    distance = np.abs(place[:, None] - place)
    correlation[:n_ordered, :n_ordered] = np.exp(-distance / length)
    return correlation


def _shrink_output(
    gradient: Floats,
    hessian: Floats,
    std: Floats,
    dispersion: float,
    correlations: list[Floats | None],
) -> tuple[Floats, Floats]:
    """Return the posterior mean of the effects under the likeliest prior, and its noise."""
    other = dispersion * hessian + std**2
    root = np.sqrt(np.maximum(other, _LEAST_NOISE * other.mean() + 1e-12))
    observed, scale = -gradient / root, hessian / root  # observed = scale * effect + unit noise
    best = 0.0, np.zeros_like(gradient), np.zeros_like(gradient)
    for correlation in correlations:
        if correlation is None:
            spectrum, rotated = scale**2, observed
        else:
            spectrum, basis = np.linalg.eigh(scale[:, None] * correlation * scale)
            spectrum, rotated = np.maximum(spectrum, 0.0), basis.T @ observed
        growth = 1.0 + np.outer(_SPREADS**2, spectrum)
        # eq. (2.30): log marginal likelihood, less the one without effects
        likelihood = 0.5 * (rotated**2 * (1 - 1 / growth) - np.log(growth)).sum(axis=1)
        i = int(likelihood.argmax())
        if likelihood[i] <= best[0]:
            continue
        # eq. (2.25): posterior mean, a linear function of the observations
        if correlation is None:
            gain = _SPREADS[i] ** 2 * scale / growth[i]
            best = likelihood[i], gain * observed, gain * std / root
        else:
            gain = _SPREADS[i] ** 2 * (correlation * scale) @ (basis / growth[i]) @ basis.T
            best = likelihood[i], gain @ observed, np.sqrt(gain**2 @ (std / root) ** 2)
    return best[1], best[2]
