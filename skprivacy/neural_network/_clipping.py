"""By how much each example's gradient is scaled down, given the squared norms of its parts.

Each function maps the squared norms, shape (parts, batch), their sum over the parts, and the norm
that is allowed, to factors of shape (parts, batch). Whatever the function, the scaled gradient of
an example has at most that norm over all parts jointly.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["CLIPPING", "Clip"]

Clip = Callable[[Tensor, Tensor, float], Tensor]

# Norms in single precision are off by about 1e-5 relative, and the sum over a batch, of which at
# most 2,048 rows are added up in single precision, by up to 5e-4 of one contribution (measured, on
# sums of one sign; rounding errors that all point one way would be more). Clipping this much below
# the declared norm keeps the distance between neighbouring sums within it.
_SAFETY = 1.0 - 1e-3

# Added to the norm by automatic clipping: what is close to zero stays so.
_STABILITY = 0.01


def _flat(squared: Tensor, total: Tensor, allowed: float) -> Tensor:
    """Scale the whole gradient to the allowed norm if it is longer."""
    return (allowed * _SAFETY / total.sqrt()).clamp_(max=1.0).expand_as(squared)


def _per_layer(squared: Tensor, total: Tensor, allowed: float) -> Tensor:
    """Clip each of k parts to ``allowed / sqrt(k)``."""
    return (allowed / len(squared) ** 0.5 * _SAFETY / squared.sqrt()).clamp_(max=1.0)


def _automatic(squared: Tensor, total: Tensor, allowed: float) -> Tensor:
    """Scale every gradient to about the allowed norm, long or short.

    Z. Bu, Y.-X. Wang, S. Zha and G. Karypis, "Automatic clipping: differentially private deep
    learning made easier and stronger", NeurIPS 2023.
    """
    return (allowed * _SAFETY / (total.sqrt() + _STABILITY)).expand_as(squared)


CLIPPING: dict[str, Clip] = {
    "flat": _flat,
    "per-layer": _per_layer,
    "automatic": _automatic,
}
