"""Membership inference against generators by where their records lie."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from .._validation import whole
from ._coordinates import Coordinates
from ._generated import GeneratorAttack, checked
from ._records import as_records

__all__ = ["DensityRatio", "LikelihoodRatio", "NearestGenerated"]

_WIDTHS = np.geomspace(0.01, 2.0, 12)  # of kernels, in deviations of a column
_MOST = 5000  # records that a density is made of
_TRIED = 300  # of these, to choose a width by
_AT_ONCE = 1000  # points whose density is worked out together
_TINY = 1e-9  # distance of equal records
_NEARLY_ALL = 1 - 1e-12
_ALONE = "a density alone tells where people are many. Pass some, or use NearestGenerated."


class _ByPlace(GeneratorAttack):
    """An attack that knows generated records and perhaps others, as points."""

    def _points(self, generated: Any, reference: Any, otherwise: str = "") -> tuple[Any, Any]:
        generated, reference = checked(generated, reference, otherwise)
        coordinates = Coordinates(generated if reference is None else reference)
        points = coordinates.of(generated, "generated")
        near = None if reference is None else coordinates.of(reference, "reference")
        self.coordinates_ = coordinates
        return points, near

    def _scored(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "coordinates_")
        return self._scores(self.coordinates_.of(as_records(X, name), name))

    @abstractmethod
    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]: ...


class NearestGenerated(_ByPlace):
    """How near the nearest generated record is (Chen et al. 2020).

    With ``reference`` records the distance is compared with that to the nearest of these, since in
    dense parts of the population any record is near.

    Notes
    -----
    **It is a baseline.** A generator that copies is found by it at once. That synthetic records are
    far from all real ones shows nothing, and "distance to the closest record" is no measure of
    privacy: noisy counts tell of a record without ever coming near it.

    References
    ----------
    D. Chen, N. Yu, Y. Zhang and M. Fritz, "GAN-Leaks: a taxonomy of membership inference attacks
    against generative models", CCS 2020.
    Z. Yao, N. Krco, G. Ganev and Y.-A. de Montjoye, "The DCR delusion: measuring the privacy risk
    of synthetic data", 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import NearestGenerated
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(600, 3))
    >>> generated = people[rng.integers(0, 100, 900)] + 0.05 * rng.normal(size=(900, 3))
    >>> attack = NearestGenerated().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.95
    True
    """

    def fit(self, generated: Any, reference: Any = None) -> NearestGenerated:
        """Look at generated records, and at the attacker's own.

        Parameters
        ----------
        generated : {array-like, DataFrame} of shape (n_generated, n_features)
            Records that the generator made.
        reference : {array-like, DataFrame} of shape (n_reference, n_features), default=None
            Records like its training records, but not among them.

        Returns
        -------
        NearestGenerated
            Itself, fitted.
        """
        made, near = self._points(generated, reference)
        self.generated_ = cKDTree(made)
        self.reference_ = None if near is None else cKDTree(near)
        return self

    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        score = -np.log(self.generated_.query(points)[0] + _TINY)
        if self.reference_ is not None:
            nearest, second = self.reference_.query(points, k=2)[0].T
            # One of equal records is left out: it may be the one that is scored.
            score += np.log(np.where(nearest > 0, nearest, second) + _TINY)
        return np.asarray(score, dtype=np.float64)


class DensityRatio(_ByPlace):
    """Density of generated records over that of the population (DOMIAS, van Breugel et al. 2023).

    Both densities are sums of normal kernels, each of the width under which the records themselves
    are most probable, every one left out in turn. Where a generator repeats records with little
    noise, that width is the noise.

    Notes
    -----
    At most 5,000 records of each kind are used. Many columns that tell nothing hide those that do:
    try some columns alone.

    References
    ----------
    B. van Breugel, H. Sun, Z. Qian and M. van der Schaar, "Membership inference attacks against
    synthetic data through overfitting detection", AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import DensityRatio
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(600, 3))
    >>> generated = people[rng.integers(0, 100, 900)] + 0.05 * rng.normal(size=(900, 3))
    >>> attack = DensityRatio().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.95
    True
    """

    def fit(self, generated: Any, reference: Any) -> DensityRatio:
        """Learn both densities.

        Parameters
        ----------
        generated : {array-like, DataFrame} of shape (n_generated, n_features)
            Records that the generator made.
        reference : {array-like, DataFrame} of shape (n_reference, n_features)
            Records like its training records, but not among them.

        Returns
        -------
        DensityRatio
            Itself, fitted.
        """
        made, near = self._points(generated, reference, _ALONE)
        self.generated_, self.reference_ = _Density(made), _Density(near)
        return self

    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.generated_.log(points) - self.reference_.log(points, leave_one=True)


class LikelihoodRatio(_ByPlace):
    """Likelihood of generated records with a record and without it (Gen-LRA, Ward et al. 2025).

    A density of the population is estimated from reference records, and once more with the record
    that is asked about among them. The score is how much better the second one explains those
    generated records that are nearest to it. The record's own kernel is as wide as makes generated
    records most probable: where a generator repeats records with little noise, that is the noise.

    Parameters
    ----------
    n_neighbors : int, default=10
        How many of the nearest generated records count.

    Notes
    -----
    It looks at the place of a record alone, as it is for generators that draw too many records near
    those that they were trained on. At most 5,000 reference records are used.

    References
    ----------
    J. Ward, X. Lin, C.-H. Wang and G. Cheng, "Synth-MIA: a testbed for auditing privacy leakage in
    tabular data synthesis" and "Privacy auditing synthetic data release through local likelihood
    attacks", 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import LikelihoodRatio
    >>> rng = np.random.default_rng(0)
    >>> people = rng.normal(size=(600, 3))
    >>> generated = people[rng.integers(0, 100, 900)] + 0.05 * rng.normal(size=(900, 3))
    >>> attack = LikelihoodRatio().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.9
    True
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = n_neighbors

    def fit(self, generated: Any, reference: Any) -> LikelihoodRatio:
        """Learn the density of the population, and where generated records lie.

        Parameters
        ----------
        generated : {array-like, DataFrame} of shape (n_generated, n_features)
            Records that the generator made.
        reference : {array-like, DataFrame} of shape (n_reference, n_features)
            Records like its training records, but not among them.

        Returns
        -------
        LikelihoodRatio
            Itself, fitted.
        """
        whole("n_neighbors", self.n_neighbors)
        made, near = self._points(generated, reference, _ALONE)
        self.generated_, self.reference_ = cKDTree(made), _Density(near)
        self._explained = self.reference_.log(made)
        self._width = _Density(made).width
        return self

    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        k = min(self.n_neighbors, self.generated_.n)
        distances, nearest = self.generated_.query(points, k=np.arange(1, k + 1))
        explained = self._explained[nearest]
        known = self.reference_.holds(points)[:, None]
        own = self.reference_.share(distances, explained, self.reference_.width)
        without = np.log1p(-np.where(known, np.minimum(own, _NEARLY_ALL), 0.0))
        gain = np.log1p(self.reference_.share(distances, explained + without, self._width))
        return np.asarray(gain.sum(axis=1), dtype=np.float64)


class _Density:
    """A sum of normal kernels."""

    def __init__(self, points: NDArray[np.float64]) -> None:
        random = np.random.RandomState(0)
        chosen = random.permutation(len(points))
        self._points = points[chosen[:_MOST]]
        tried = self._points[:_TRIED]
        squares = cdist(tried, self._points, "sqeuclidean")
        squares[np.arange(len(tried)), np.arange(len(tried))] = np.inf
        floor = _log_kernel(np.array(squares[np.isfinite(squares)].max()), _WIDTHS[-1], self._size)
        likelihoods = [
            np.maximum(logsumexp(_log_kernel(squares, width, self._size), axis=1), floor).mean()
            for width in _WIDTHS
        ]
        self.width = float(_WIDTHS[int(np.argmax(likelihoods))])
        self._tree = cKDTree(self._points)

    @property
    def _size(self) -> int:
        return self._points.shape[1]

    def log(self, points: NDArray[np.float64], leave_one: bool = False) -> NDArray[np.float64]:
        """Return the logarithm of the density at points, up to a constant.

        ``leave_one`` leaves out one of the records at which a point lies exactly: it may be the
        point itself.
        """
        found = np.empty(len(points))
        for start in range(0, len(points), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            squares = cdist(points[part], self._points, "sqeuclidean")
            if leave_one:
                nearest = squares.argmin(axis=1)[:, None]
                least = np.take_along_axis(squares, nearest, axis=1)
                np.put_along_axis(squares, nearest, np.where(least > 0, least, np.inf), axis=1)
            kernels = _log_kernel(squares, self.width, self._size)
            wide = _log_kernel(squares, _WIDTHS[-1], self._size) - 20.0  # far from all: no infinity
            both = np.stack([logsumexp(kernels, axis=1), logsumexp(wide, axis=1)])
            found[part] = logsumexp(both, axis=0) - np.log(len(self._points))
        return found

    def share(
        self, distances: NDArray[np.float64], densities: NDArray[np.float64], width: float
    ) -> NDArray[np.float64]:
        """Return what one more record adds at some distances, as a share of what is there.

        ``densities`` are logarithms of what is there; the kernel of the record has a width.
        """
        kernel = _log_kernel(distances**2, width, self._size)
        return np.exp(np.minimum(kernel - np.log(len(self._points)) - densities, 700.0))

    def holds(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which points are those of a record that the density is made of."""
        return np.asarray(self._tree.query(points)[0] == 0)


def _log_kernel(squares: NDArray[np.float64], width: float, size: int) -> NDArray[np.float64]:
    return -squares / (2 * width**2) - size * np.log(width)
