"""Bounded columns and the private release of their moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_array

from .._validation import check_numbers
from ..mechanisms import Gaussian, Laplace, SecureRandom
from ..mechanisms.bounds import checked_bounds, exact_product, quantize
from ._target import additive

__all__ = ["Columns", "one_column"]


def one_column(x: ArrayLike) -> NDArray:
    """Return a dense column of real values."""
    if sparse.issparse(x):
        raise TypeError("x is sparse; expected one dense column, such as x.toarray().ravel().")
    values = np.asarray(x)
    if values.ndim != 1:
        raise ValueError(
            f"x has shape {values.shape}; expected one column, (n_samples,): of several a record "
            "would count several times. Ask about each column, and pay for each."
        )
    if values.dtype.kind == "c":
        raise ValueError("x holds complex numbers; expected real ones.")
    return values


class Columns:
    """Columns scaled to [-1, 1], whose moments are released together."""

    def __init__(self, X: ArrayLike, bounds: Any) -> None:
        check_numbers(X)
        given: Any = X if sparse.issparse(X) else np.asarray(X)  # sparse is refused below
        self.flat = given.ndim == 1
        rows = np.asarray(check_array(
            given[:, None] if self.flat else given, dtype=np.float64, ensure_all_finite=False,
            input_name="X",
        ))  # fmt: skip
        self.n, self.d = rows.shape
        self.lower, self.upper = checked_bounds("bounds", bounds, self.d)
        self.half = (self.upper - self.lower) / 2
        self.middle = (self.upper + self.lower) / 2
        scaled = (np.clip(rows, self.lower, self.upper) - self.middle) / np.where(
            self.half > 0, self.half, 1.0
        )
        scaled = np.nan_to_num(np.clip(scaled, -1.0, 1.0))  # NaN: the middle
        self.z = quantize(scaled)

    def mechanism(
        self, degree: int, epsilon: float, delta: float, relation: str
    ) -> Laplace | Gaussian:
        """Return the mechanism that :meth:`release` needs to spend (epsilon, delta)."""
        size = float(degree * self.d + (relation == "add_remove"))
        two = 2.0 if relation == "replace_one" else 1.0
        return additive(epsilon, delta, two * size, two * math.sqrt(size))

    def release(
        self, degree: int, mechanism: Laplace | Gaussian, relation: str, random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the mean of z, and that of 2 z**2 - 1 if ``degree`` is 2: (degree, n_features).

        All these lie in [-1, 1]; z = 1 reaches the bound of each, so the sensitivities are tight.
        """
        parts = [self.z, quantize(2.0 * self.z**2 - 1.0)][:degree]
        if relation == "add_remove":
            parts.append(np.ones((self.n, 1)))
        sums = exact_product(np.hstack(parts), np.ones((self.n, 1)))[:, 0]
        noisy = mechanism.release(sums, random)
        count = self.n if relation != "add_remove" else max(1.0, noisy[-1], mechanism.std)
        means = np.clip(noisy[: degree * self.d] / count, -1.0, 1.0)
        return means.reshape(degree, self.d)

    def means(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.middle + self.half * moments[0]

    def variances(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.half**2 * np.clip((moments[1] + 1.0) / 2.0 - moments[0] ** 2, 0.0, 1.0)

    def shaped(self, values: NDArray[np.float64]) -> Any:
        return float(values[0]) if self.flat else values
