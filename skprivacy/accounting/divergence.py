"""Renyi divergence of two discrete distributions (van Erven and Harremoes 2014)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from .._validation import not_negative

__all__ = ["renyi_divergence"]

_SUM_TOLERANCE = 1e-9  # largest deviation of a sum of probabilities from 1


def renyi_divergence(p: ArrayLike, q: ArrayLike, order: float) -> float:
    """Return the Renyi divergence of one discrete distribution from another.

    Parameters
    ----------
    p, q : array-like of float
        Probabilities of the same outcomes, of the same shape, each adding up to 1.
    order : float
        At least 0. Order 1 is the Kullback-Leibler divergence, infinity the largest privacy loss.

    Returns
    -------
    float
        In nats, at least 0. Infinity for orders of 1 and above if ``p`` has an outcome that ``q``
        lacks, and for all orders if they have no outcome in common.

    Raises
    ------
    ValueError
        If ``p`` or ``q`` is not a distribution, their shapes differ, or ``order`` is out of range.

    Notes
    -----
    This function returns the divergence of one pair of distributions, in one direction. The Renyi
    cost of a mechanism bounds both directions over all neighbouring data sets.

    References
    ----------
    T. van Erven and P. Harremoes, "Renyi divergence and Kullback-Leibler divergence", IEEE
    Transactions on Information Theory 60 (2014).

    Examples
    --------
    >>> from skprivacy.accounting import RandomizedResponseEvent, rdp, renyi_divergence
    >>> p, q = [0.75, 0.25], [0.25, 0.75]
    >>> round(renyi_divergence(p, q, 2), 6)
    0.847298
    >>> round(renyi_divergence(p, q, float("inf")), 6)
    1.098612
    """
    first, second = _distribution("p", p), _distribution("q", q)
    if first.shape != second.shape:
        raise ValueError(
            f"p and q have the shapes {np.shape(p)} and {np.shape(q)}; expected equal shapes. Pass "
            "the probabilities of the same outcomes."
        )
    not_negative("order", order)
    order = float(order)
    possible = first > 0  # outcomes that are impossible under p contribute nothing
    log_p = np.log(first[possible])
    with np.errstate(divide="ignore"):
        loss = log_p - np.log(second[possible])
    if order == 1:
        return max(0.0, float(np.exp(log_p) @ loss))
    if math.isinf(order):
        return max(0.0, float(loss.max()))
    if order > 1 and np.isinf(loss).any():
        return math.inf
    terms = (order - 1) * loss
    if np.abs(terms).max() < 1:  # near order 1 the moment is 1 to many digits: expm1 keeps the rest
        moment = math.log1p(float(np.exp(log_p) @ np.expm1(terms)))
    else:
        moment = float(logsumexp(log_p + terms))
    return max(0.0, moment / (order - 1))


def _distribution(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be probabilities; got {values!r}.") from None
    total = float(array.sum())
    if not ((array >= 0).all() and abs(total - 1) <= _SUM_TOLERANCE):
        raise ValueError(
            f"{name} must be probabilities >= 0 that add up to 1; got the sum {total!r}. Normalise "
            "them."
        )
    return np.atleast_1d(array) / total
