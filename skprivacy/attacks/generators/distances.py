"""Membership inference on generators from distances and densities of generated records."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from ..._docs import fill_docs
from ..._validation import whole
from ..record_tables import Coordinates, as_records
from .generator_attack import GENERATOR_DOCS, GeneratorAttack, check_generated

_WIDTHS = np.geomspace(0.01, 2.0, 12)  # of kernels, in standard deviations of a column
_MOST = 5000  # records in a density
_TRIED = 300  # records that choose the width of kernels
_AT_ONCE = 1000  # points whose density is computed together
_TINY = 1e-9  # distance of equal records
_NEARLY_ALL = 1 - 1e-12
_DENSITY_NEEDS_REFERENCE = (
    "a density alone only shows where records are frequent. Pass some, or use NearestGenerated."
)


class _DistanceAttack(GeneratorAttack):
    """Base of attacks that compare records with generated and reference records as points."""

    def _points(self, generated: Any, reference: Any, otherwise: str = "") -> tuple[Any, Any]:
        generated, reference = check_generated(generated, reference, otherwise)
        known, name = (generated, "generated") if reference is None else (reference, "reference")
        coordinates = Coordinates(known, name)
        points = coordinates.encode(generated, "generated")
        near = None if reference is None else coordinates.encode(reference, "reference")
        self.coordinates_ = coordinates
        return points, near

    def _score_records(self, name: str, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "coordinates_")
        return self._scores(self.coordinates_.encode(as_records(X, name), name))

    @abstractmethod
    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]: ...


@fill_docs(GENERATOR_DOCS)
class NearestGenerated(_DistanceAttack):
    """Score a record by its distance to the nearest generated record (Chen et al. 2020).

    With ``reference`` records, it is divided by the distance to the nearest reference record,
    since every record in a dense part of the population has near neighbours.

    Notes
    -----
    **It is a baseline.** It detects a generator that copies records. Synthetic records far from all
    real records prove nothing, and "distance to the closest record" does not measure privacy: noisy
    counts can reveal a record although no synthetic record comes near it.

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
    %(copied_people)s
    >>> attack = NearestGenerated().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.95
    True
    """

    def fit(self, generated: Any, reference: Any = None) -> NearestGenerated:
        """Index the generated records and the attacker's own records.

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
            # a reference record at distance 0 may be the scored record itself
            score += np.log(np.where(nearest > 0, nearest, second) + _TINY)
        return np.asarray(score, dtype=np.float64)


@fill_docs(GENERATOR_DOCS)
class DensityRatio(_DistanceAttack):
    """Score by the ratio of generated to population density: DOMIAS (van Breugel et al. 2023).

    Both densities are sums of normal kernels. Their width maximises the leave-one-out likelihood of
    the records. If a generator repeats records with a little noise, this width is the noise level.

    Notes
    -----
    At most 5,000 records of each kind are used. Many uninformative columns hide the informative
    ones: also try a subset of the columns.

    References
    ----------
    B. van Breugel, H. Sun, Z. Qian and M. van der Schaar, "Membership inference attacks against
    synthetic data through overfitting detection", AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import DensityRatio
    %(copied_people)s
    >>> attack = DensityRatio().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.95
    True
    """

    def fit(self, generated: Any, reference: Any) -> DensityRatio:
        """Estimate both densities.

        %(fit_sections)s
        """
        made, near = self._points(generated, reference, _DENSITY_NEEDS_REFERENCE)
        self.generated_, self.reference_ = _Density(made), _Density(near)
        return self

    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        # van Breugel et al. 2023 (DOMIAS): log of the ratio of p_G(x) to p_R(x)
        return self.generated_.log(points) - self.reference_.log(points, leave_one=True)


@fill_docs(GENERATOR_DOCS)
class LikelihoodRatio(_DistanceAttack):
    """Score by the likelihood of generated records with and without a record (Ward et al. 2025).

    This is Gen-LRA. The density of the population is estimated from reference records, and once
    more with the scored record added. The score is the gain in log-likelihood of the generated
    records that are nearest to the scored record. The record's own kernel has the width that
    maximises the likelihood of generated records. If a generator repeats records with a little
    noise, this width is the noise level.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number of nearest generated records that count.

    Notes
    -----
    The attack suits generators that draw too many records near their training records. At most
    5,000 reference records are used.

    References
    ----------
    J. Ward, X. Lin, C.-H. Wang and G. Cheng, "Synth-MIA: a testbed for auditing privacy leakage in
    tabular data synthesis" and "Privacy auditing synthetic data release through local likelihood
    attacks", 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import LikelihoodRatio
    %(copied_people)s
    >>> attack = LikelihoodRatio().fit(generated, people[300:])
    >>> attack.evaluate(people[:100], people[100:300]).auc > 0.9
    True
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = n_neighbors

    def fit(self, generated: Any, reference: Any) -> LikelihoodRatio:
        """Estimate the density of the population, and index the generated records.

        %(fit_sections)s
        """
        whole("n_neighbors", self.n_neighbors)
        made, near = self._points(generated, reference, _DENSITY_NEEDS_REFERENCE)
        self.generated_, self.reference_ = cKDTree(made), _Density(near)
        self._explained = self.reference_.log(made)
        self._width = _Density(made).width
        return self

    def _scores(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        k = min(self.n_neighbors, self.generated_.n)
        distances, nearest = self.generated_.query(points, k=np.arange(1, k + 1))
        explained = self._explained[nearest]
        # a scored record that is in the reference is first taken out of the density
        known = self.reference_.holds(points)[:, None]
        own = self.reference_.share(distances, explained, self.reference_.width)
        without = np.log1p(-np.where(known, np.minimum(own, _NEARLY_ALL), 0.0))
        # Ward et al. 2025 (Gen-LRA): sum over nearest generated records of the log-likelihood gain
        gain = np.log1p(self.reference_.share(distances, explained + without, self._width))
        return np.asarray(gain.sum(axis=1), dtype=np.float64)


class _Density:
    """Kernel density estimate with normal kernels, whose width maximises the likelihood."""

    def __init__(self, points: NDArray[np.float64]) -> None:
        random = np.random.RandomState(0)
        chosen = random.permutation(len(points))
        self._points = points[chosen[:_MOST]]
        tried = self._points[:_TRIED]
        squares = cdist(tried, self._points, "sqeuclidean")
        squares[np.arange(len(tried)), np.arange(len(tried))] = np.inf  # leaves each record out
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
        """Return the log-density at points, up to a constant; ``leave_one`` omits an equal one."""
        found = np.empty(len(points))
        for start in range(0, len(points), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            squares = cdist(points[part], self._points, "sqeuclidean")
            if leave_one:
                nearest = squares.argmin(axis=1)[:, None]
                least = np.take_along_axis(squares, nearest, axis=1)
                np.put_along_axis(squares, nearest, np.where(least > 0, least, np.inf), axis=1)
            kernels = _log_kernel(squares, self.width, self._size)
            # a faint wide kernel keeps the logarithm finite far from all records
            wide = _log_kernel(squares, _WIDTHS[-1], self._size) - 20.0
            both = np.stack([logsumexp(kernels, axis=1), logsumexp(wide, axis=1)])
            found[part] = logsumexp(both, axis=0) - np.log(len(self._points))
        return found

    def share(
        self, distances: NDArray[np.float64], densities: NDArray[np.float64], width: float
    ) -> NDArray[np.float64]:
        """Return the relative increase of the density by one more record at ``distances``."""
        kernel = _log_kernel(distances**2, width, self._size)
        return np.exp(np.minimum(kernel - np.log(len(self._points)) - densities, 700.0))

    def holds(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which points equal a record of the density."""
        return np.asarray(self._tree.query(points)[0] == 0)


def _log_kernel(squares: NDArray[np.float64], width: float, size: int) -> NDArray[np.float64]:
    return -squares / (2 * width**2) - size * np.log(width)
