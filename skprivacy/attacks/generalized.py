"""Membership inference on unusual records of well-generalised models (Long et al. 2018)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from .._docs import fill_docs
from .._validation import Interval
from . import scores
from ._records import fingerprints
from ._shadowed import ShadowAttack

__all__ = ["VulnerableRecordsAttack"]


@fill_docs
class VulnerableRecordsAttack(ShadowAttack):
    """Call members only among records that have few neighbours (Long et al. 2018).

    A model that generalises well reveals little about most records, but a record unlike all others
    may still influence it. Such records have few neighbours in the space of shadow models'
    predictions. They are ranked by how far the target's log-odds lie above those of models not
    trained on them. All other records rank below, so the attack calls few members, but with high
    precision.

    Parameters
    ----------
    %(target_classifier)s
    %(n_shadows)s
    radius : float, default=0.1
        Records whose predictions are closer than this are neighbours, in (0, sqrt(2)). The distance
        is the Euclidean distance of the probabilities, as a root mean square over models.
    max_neighbours : int, default=5
        Records with more neighbours among those given to ``fit`` rank below all others.
    %(shadow_pool)s
    %(attack_fpr)s

    References
    ----------
    Y. Long, V. Bindschaedler, L. Wang, D. Bu, X. Wang, H. Tang, C. A. Gunter, K. Chen.
    Understanding membership inferences on well-generalized learning models. arXiv:1802.04889.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import VulnerableRecordsAttack
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = VulnerableRecordsAttack(target, n_shadows=4, random_state=0).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.6
    True
    """

    _needs_classes = True

    _parameter_constraints: dict[str, Any] = {
        **ShadowAttack._parameter_constraints,
        "radius": [Interval(Real, 0, 2**0.5, closed="neither")],
        "max_neighbours": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        n_shadows: int = 16,
        radius: float = 0.1,
        max_neighbours: int = 5,
        pool: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.n_shadows = n_shadows
        self.radius = radius
        self.max_neighbours = max_neighbours
        self.pool = pool
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        self._prints = np.unique(fingerprints(X))
        # one more than needed, because a record of the pool is its own nearest neighbour
        wanted = min(self.max_neighbours + 2, len(y))
        self._neighbours = NearestNeighbors(n_neighbors=wanted).fit(self._coordinates(X))

    def _coordinates(self, X: Any) -> NDArray[np.float64]:
        """Return the shadow models' predictions, scaled to distances that are root mean squares."""
        proba = np.hstack(list(self.pool_.iter_proba(X)))
        return proba / np.sqrt(self.pool_.n_shadows)

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        distance = self._neighbours.kneighbors(self._coordinates(X))[0]
        shadows = self.pool_._ask_models(X, y)
        near = np.sum(distance < self.radius, axis=1) - np.isin(shadows.prints, self._prints)
        z = scores.lira_offline(self._target_logit(X, y), shadows.logits, shadows.out)
        rank = z / (1 + np.abs(z))  # within (-1, 1), saturating slowly
        # Long et al. 2018: only vulnerable records, those with few neighbours, are attacked
        return np.where(near <= self.max_neighbours, rank + 2, rank)
