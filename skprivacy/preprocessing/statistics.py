"""Private statistics of bounded columns."""

from __future__ import annotations

import math
import warnings
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array

from ..accounting import Event, PrivacyBudget, PrivacyGuarantee, charge
from ..exceptions import PrivacyWarning
from ..mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    SecureRandom,
    analytic_noise_multiplier,
)
from ..mechanisms.bounds import exact_product, quantize

__all__ = [
    "Release",
    "private_histogram",
    "private_mean",
    "private_quantile",
    "private_variance",
]

RELATIONS = ("add_remove", "zero_out", "replace_one")


class Release(NamedTuple):
    """A private number, or array of numbers, and its guarantee."""

    value: Any
    privacy: PrivacyGuarantee


def private_mean(
    X: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return the mean of each column.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, n_features)
        NaN counts as the middle of the bounds; infinity is clipped.
    bounds : tuple (lower, upper)
        Public bounds: two numbers, or two sequences of length n_features.
    epsilon : float
        Privacy loss, in nats, of all columns together.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        What neighbouring data sets are. Under "add_remove" the number of records is private, and
        is paid for; otherwise it is public.
    budget : PrivacyBudget, default=None
        Is charged before the data is touched; refuses what it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), within the bounds, and ``privacy``.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with a row as the unit. Values are
    scaled to [-1, 1] and rounded towards 0 to a grid on which sums are exact, the noise is exact.

    **Edge cases.** Where noise drowns the number of records the middle of the bounds is the mean.

    Examples
    --------
    >>> from skprivacy.preprocessing.statistics import private_mean
    >>> ages = [25, 52, 38] * 1000
    >>> mean, privacy = private_mean(ages, bounds=(0, 120), epsilon=1.0)
    >>> 30 < mean < 46
    True
    >>> privacy
    1.00-DP, add-remove, proved
    """
    columns = Columns(X, bounds)
    moments, privacy = columns.release(
        1, epsilon, delta, relation, noise_seed, budget, "private_mean"
    )
    return Release(columns.shaped(columns.means(moments)), privacy)


def private_variance(
    X: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return the (population) variance of each column.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, n_features)
        NaN counts as the middle of the bounds; infinity is clipped.
    bounds : tuple (lower, upper)
        Public bounds: two numbers, or two sequences of length n_features.
    epsilon : float
        Privacy loss, in nats, of all columns together.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        What neighbouring data sets are. Under "add_remove" the number of records is private, and
        is paid for; otherwise it is public.
    budget : PrivacyBudget, default=None
        Is charged before the data is touched; refuses what it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), between 0 and a quarter of the squared width of
        the bounds, and ``privacy``.

    Examples
    --------
    >>> from skprivacy.preprocessing.statistics import private_variance
    >>> ages = [25, 52, 38] * 1000
    >>> variance, privacy = private_variance(ages, bounds=(0, 120), epsilon=1.0)
    >>> 50 < variance < 250
    True
    """
    columns = Columns(X, bounds)
    moments, privacy = columns.release(
        2, epsilon, delta, relation, noise_seed, budget, "private_variance"
    )
    return Release(columns.shaped(columns.variances(moments)), privacy)


def private_quantile(
    x: ArrayLike,
    q: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    relation: str = "add_remove",
    n_candidates: int = 1024,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a quantile of one column, by the exponential mechanism on a public grid.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        NaN is left out; infinity is clipped.
    q : float
        In [0, 1].
    bounds : tuple (lower, upper)
        Public bounds; the answer is one of ``n_candidates`` equally spaced numbers between.
    epsilon : float
        Privacy loss, in nats.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        What neighbouring data sets are.
    n_candidates : int, default=1024
        At least 2.
    budget : PrivacyBudget, default=None
        Is charged before the data is touched; refuses what it cannot afford.
    noise_seed : int, default=None
        Makes the choice reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` differential privacy. The score of r is
    -abs(#(x < r) - q #(x)); a record moves it by max(q, 1 - q) at most, or by 1 if replaced.

    References
    ----------
    A. Smith, "Privacy-preserving statistical estimation with optimal convergence rates",
    STOC 2011.

    Examples
    --------
    >>> from skprivacy.preprocessing.statistics import private_quantile
    >>> median, privacy = private_quantile(range(1001), 0.5, bounds=(0, 1000), epsilon=1.0)
    >>> 450 < median < 550
    True
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q={q!r} must be in [0, 1].")
    if not (isinstance(n_candidates, Integral) and n_candidates >= 2):
        raise ValueError(f"n_candidates={n_candidates!r} must be an integer >= 2.")
    _check_target(epsilon, 0.0, relation)
    lower, upper = _bounds(bounds, 1)
    values = np.asarray(x, np.float64)
    if values.ndim != 1:
        raise ValueError(f"x has shape {values.shape}; expected one column, (n_samples,).")
    values = np.sort(np.clip(values[~np.isnan(values)], lower, upper))
    candidates = np.linspace(lower[0], upper[0], int(n_candidates))
    below = np.searchsorted(values, candidates, side="left")
    sensitivity = 1.0 if relation == "replace_one" else max(q, 1.0 - q)
    mechanism = Exponential(float(epsilon), sensitivity)
    privacy = _guarantee(mechanism.event, 0.0, relation, noise_seed)
    scores = -np.abs(below - q * values.size)
    with charge(budget, mechanism.event, relation, "private_quantile", privacy.kind):
        chosen = mechanism.release(scores, SecureRandom(noise_seed))
    return Release(float(candidates[chosen]), privacy)


def private_histogram(
    x: ArrayLike,
    *,
    bins: ArrayLike | None = None,
    categories: ArrayLike | None = None,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return how many records fall into each public bin, or have each public category.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        Values outside all bins, unknown categories and NaN are not counted.
    bins : array-like of shape (n_bins + 1,), default=None
        Public edges, increasing. The last bin includes its right edge.
    categories : array-like of shape (n_categories,), default=None
        Public categories, instead of ``bins``.
    epsilon : float
        Privacy loss, in nats.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        What neighbouring data sets are.
    budget : PrivacyBudget, default=None
        Is charged before the data is touched; refuses what it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value`` of shape (n_bins,), counts that can be fractional and negative. Clipping and
        rounding them is free.

    Examples
    --------
    >>> from skprivacy.preprocessing.statistics import private_histogram
    >>> counts, privacy = private_histogram(["a", "b", "a"], categories=["a", "b"], epsilon=1.0)
    >>> counts.shape
    (2,)
    """
    _check_target(epsilon, delta, relation)
    if (bins is None) == (categories is None):
        raise ValueError("Give either bins=edges or categories=values, and from public knowledge.")
    if bins is not None:
        edges = np.asarray(bins, np.float64)
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(f"bins={bins!r} must be at least two increasing edges.")
        counts = np.histogram(np.asarray(x, np.float64), edges)[0]
    else:
        known = np.asarray(categories)
        if known.ndim != 1 or not known.size or len(np.unique(known)) != known.size:
            raise ValueError(f"categories={categories!r} must be distinct values, at least one.")
        counts = np.array([(np.asarray(x) == value).sum() for value in known])
    two = 2.0 if relation == "replace_one" else 1.0
    mechanism = _mechanism(epsilon, delta, two, math.sqrt(two))
    privacy = _guarantee(mechanism.event, delta, relation, noise_seed)
    with charge(budget, mechanism.event, relation, "private_histogram", privacy.kind):
        return Release(mechanism.release(counts, SecureRandom(noise_seed)), privacy)


class Columns:
    """Columns scaled to [-1, 1], whose moments are released together."""

    def __init__(self, X: ArrayLike, bounds: Any) -> None:
        given = np.asarray(X)
        self.flat = given.ndim == 1
        X = check_array(
            given[:, None] if self.flat else given, dtype=np.float64, ensure_all_finite=False,
            input_name="X",
        )  # fmt: skip
        self.n, self.d = X.shape  # type: ignore[union-attr]
        self.lower, self.upper = _bounds(bounds, self.d)
        self.half = (self.upper - self.lower) / 2
        self.middle = (self.upper + self.lower) / 2
        scaled = (np.clip(X, self.lower, self.upper) - self.middle) / np.where(
            self.half > 0, self.half, 1.0
        )
        scaled = np.nan_to_num(np.clip(scaled, -1.0, 1.0))  # NaN: the middle
        self.z = quantize(scaled)

    def release(
        self,
        degree: int,
        epsilon: float,
        delta: float,
        relation: str,
        noise_seed: int | None,
        budget: PrivacyBudget | None,
        who: str,
        assumptions: tuple[str, ...] = (),
    ) -> tuple[NDArray[np.float64], PrivacyGuarantee]:
        """Return the mean of z, and that of 2 z**2 - 1 if ``degree`` is 2: (degree, n_features).

        All these lie in [-1, 1]; z = 1 reaches the bound of each, so the sensitivities are tight.
        """
        _check_target(epsilon, delta, relation)
        parts = [self.z, quantize(2.0 * self.z**2 - 1.0)][:degree]
        if relation == "add_remove":
            parts.append(np.ones((self.n, 1)))
        values = np.hstack(parts)
        size = float(values.shape[1])
        two = 2.0 if relation == "replace_one" else 1.0
        mechanism = _mechanism(epsilon, delta, two * size, two * math.sqrt(size))
        privacy = _guarantee(mechanism.event, delta, relation, noise_seed, assumptions)
        with charge(budget, mechanism.event, relation, who, privacy.kind):
            sums = exact_product(values, np.ones((self.n, 1)))[:, 0]
            noisy = mechanism.release(sums, SecureRandom(noise_seed))
        count = self.n if relation != "add_remove" else max(1.0, noisy[-1], mechanism.std)
        means = np.clip(noisy[: degree * self.d] / count, -1.0, 1.0)
        return means.reshape(degree, self.d), privacy

    def means(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.middle + self.half * moments[0]

    def variances(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.half**2 * np.clip((moments[1] + 1.0) / 2.0 - moments[0] ** 2, 0.0, 1.0)

    def shaped(self, values: NDArray[np.float64]) -> Any:
        return float(values[0]) if self.flat else values


def _mechanism(epsilon: float, delta: float, l1: float, l2: float) -> Laplace | Gaussian:
    if delta == 0:
        return Laplace.calibrated(float(epsilon), l1)
    return Gaussian(analytic_noise_multiplier(float(epsilon), float(delta)), l2)


def _guarantee(
    event: Event,
    delta: float,
    relation: str,
    noise_seed: int | None,
    assumptions: tuple[str, ...] = (),
) -> PrivacyGuarantee:
    if relation != "add_remove":
        assumptions += ("the number of records is public",)
    if noise_seed is not None:
        warnings.warn(
            f"noise_seed={noise_seed!r} makes the noise predictable: there is no privacy. Use it "
            "in tests only.",
            PrivacyWarning,
            stacklevel=4,
        )
        assumptions += ("nobody knows or guesses noise_seed",)
    return PrivacyGuarantee(
        event,
        at_delta=float(delta),
        relation=relation,
        kind="proved" if noise_seed is None else "estimate",
        assumptions=assumptions,
    )


def _check_target(epsilon: float, delta: float, relation: str) -> None:
    if not (isinstance(epsilon, Real) and 1e-6 <= epsilon < math.inf):
        raise ValueError(f"epsilon={epsilon!r} must be a finite number >= 1e-6.")
    if not (isinstance(delta, Real) and 0 <= delta < 1):
        raise ValueError(f"delta={delta!r} must be a number in [0, 1).")
    if relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")


def _bounds(bounds: Any, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    wanted = (
        f"bounds={bounds!r} must be a pair (lower, upper) of finite numbers, or of sequences of "
        f"length {size}, with lower <= upper."
    )
    try:
        lower, upper = (np.broadcast_to(np.asarray(b, np.float64), (size,)) for b in bounds)
    except (TypeError, ValueError):
        raise ValueError(wanted) from None
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower <= upper).all()):
        raise ValueError(wanted)
    return lower.copy(), upper.copy()
