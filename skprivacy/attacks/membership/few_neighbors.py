"""Membership inference on unusual records of well-generalised models (Long et al. 2018).

:class:`VulnerableRecordsAttack` calls members among records with few neighbours.
:class:`IndirectInference` uses predictions for other records.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from ..._docs import fill_docs
from ..._input_data import label_columns
from ..._sklearn import safe_indexing
from ..._validation import Interval
from ..model_answers import predict_aligned
from ..record_tables import fingerprints
from .membership_attack import MEMBERSHIP_DOCS
from .shadow_attack import Moments, ShadowAttack, standard_score

Float64Array = NDArray[np.float64]
# Smoothing of log-odds. A record raises the small probabilities that its class has at records of
# other classes. On Location-30 and Purchase-like networks, 1e-3 to 1e-6 work equally well.
FLOOR = 1e-4
# Weight of the mean variance over all queries in the variance of each query.
SHARE_OF_MEAN = 0.2


@fill_docs(MEMBERSHIP_DOCS)
class VulnerableRecordsAttack(ShadowAttack):
    """Call members only among records that have few neighbours (Long et al. 2018).

    A model that generalises well reveals little about most records, but a record unlike all others
    may still influence it. Such records have few neighbours in the space of shadow models'
    predictions. They are ranked by how far the target's log-odds exceed the log-odds of models
    not trained on them. All other records rank below, so the attack calls few members, with high
    precision.

    Parameters
    ----------
    %(target_classifier)s
    radius : float, default=0.1
        Records whose predictions are closer than this are neighbours, in (0, sqrt(2)). The distance
        is the Euclidean distance of the probabilities, as a root mean square over models.
    max_neighbors : int, default=5
        Records with more neighbours among those given to ``fit`` rank below all others.
    %(shadow_parameters)s

    References
    ----------
    Y. Long, V. Bindschaedler, L. Wang, D. Bu, X. Wang, H. Tang, C. A. Gunter, K. Chen.
    Understanding membership inferences on well-generalized learning models. arXiv:1802.04889.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import VulnerableRecordsAttack
    >>> attack = VulnerableRecordsAttack(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.6
    True
    """

    _needs_classes = True

    _parameter_constraints = ShadowAttack._parameter_constraints | {
        "radius": [Interval(Real, 0, 2**0.5, closed="neither")],
        "max_neighbors": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        radius: float = 0.1,
        max_neighbors: int = 5,
        pool: Any = 16,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state, fpr=fpr)
        self.radius = radius
        self.max_neighbors = max_neighbors

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        self._prints = np.unique(fingerprints(X))
        # one more than needed, because a record of the pool is its own nearest neighbour
        wanted = min(self.max_neighbors + 2, len(y))
        self._neighbours = NearestNeighbors(n_neighbors=wanted).fit(self._compute_coordinates(X))

    def _compute_coordinates(self, X: Any) -> NDArray[np.float64]:
        """Return the shadow models' predictions, scaled to distances that are root mean squares."""
        proba = np.hstack(list(self.pool_.iter_proba(X)))
        return proba / np.sqrt(self.pool_.n_shadows)

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        distance = self._neighbours.kneighbors(self._compute_coordinates(X))[0]
        shadows = self.pool_._ask_models(X, y)
        near = np.sum(distance < self.radius, axis=1) - np.isin(shadows.prints, self._prints)
        out = Moments.from_values(shadows.logits, shadows.out)
        z = standard_score(self._target_logit(X, y), out, np.inf)
        rank = z / (1 + np.abs(z))  # within (-1, 1), saturating slowly
        # Long et al. 2018: only vulnerable records, those with few neighbours, are attacked
        return np.where(near <= self.max_neighbors, rank + 2, rank)


@fill_docs(MEMBERSHIP_DOCS)
class IndirectInference(ShadowAttack):
    """Infer membership without querying the record itself: indirect inference (Long et al. 2018).

    A training record also changes predictions for other records. The attacker queries the
    probability of the record's class at records of OTHER classes. The weight of an answer
    is the record's effect on it: the difference between shadow models that were trained on the
    record and other shadow models. A defence that watches for queries of training records does not
    detect this attack.

    Parameters
    ----------
    %(target_classifier)s
    n_queries : int, default=2000
        Maximum number of the records given to ``fit`` that are queried.
    %(shadow_parameters)s

    Attributes
    ----------
    %(pool_)s

    Notes
    -----
    The pool must have been trained on every scored record. Answers at records of the same class are
    left out, because the membership of those records changes them far more.

    The score is a log-likelihood ratio that treats answers as normal and independent. The attack is
    much weaker than a direct attack: on Location-30 (3,200 records, a network of 128 units, 16
    shadow models) its AUC is .57, against .93 for offline LiRA. On forests it finds nothing.

    References
    ----------
    Y. Long, V. Bindschaedler, L. Wang, D. Bu, X. Wang, H. Tang, C. A. Gunter, K. Chen.
    Understanding membership inferences on well-generalized learning models. arXiv:1802.04889.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import IndirectInference, LabeledRecords
    >>> X, y = make_classification(200, n_informative=5, n_classes=3, random_state=0)
    >>> target = MLPClassifier((30,), solver="lbfgs", random_state=0).fit(X[:100], y[:100])
    >>> attack = IndirectInference(target, pool=4, random_state=0).fit(LabeledRecords(X, y))
    >>> attack.decision_function(LabeledRecords(X[:5], y[:5])).shape
    (5,)
    """

    _needs_classes = True

    _parameter_constraints = ShadowAttack._parameter_constraints | {
        "n_queries": [Interval(Integral, 1, None, closed="left")]
    }

    def __init__(
        self,
        target: Any = None,
        *,
        n_queries: int = 2000,
        pool: Any = 16,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state, fpr=fpr)
        self.n_queries = n_queries

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        prints = fingerprints(X)
        chosen = np.argsort(prints)[: self.n_queries]  # pseudo-random: the order of a hash
        queries = safe_indexing(X, chosen)
        self._query_prints, self._query_labels = prints[chosen], y[chosen]
        self._answers = _log_odds(predict_aligned(self.target, queries, self._label_classes))
        shadow = self.pool_.iter_proba(queries, self._label_classes)
        self._shadow_answers = np.stack([_log_odds(proba) for proba in shadow])

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        trained, known = self.pool_.membership(X)
        if not known.all():
            raise ValueError(
                f"X holds {int((~known).sum())} records that the pool was not trained on; expected "
                "none. Train the pool on all records to be scored."
            )
        column, prints = label_columns(y, self._label_classes), fingerprints(X)
        values = np.zeros(len(y))
        for c in np.unique(column):
            here = column == c
            asked = self._query_labels != self._label_classes[c]
            if not asked.any():
                continue
            # Long et al. 2018: the record itself is never among its queries
            itself = prints[here, None] == self._query_prints[asked]
            answers, shadow = self._answers[asked, c], self._shadow_answers[:, asked, c]
            weight, middle = _measure_influence(shadow, trained[:, here])
            values[here] = np.where(itself, 0.0, weight) @ (answers - middle)
        return values


def _log_odds(proba: Float64Array) -> Float64Array:
    return np.log(proba + FLOOR) - np.log(1 - proba + FLOOR)


def _measure_influence(
    shadow: Float64Array, trained: NDArray[np.bool_]
) -> tuple[Float64Array, Float64Array]:
    """Return each record's effect on each answer, divided by its variance, and the mean answers."""
    # exactly half of the models trained on each record
    n_shadows = len(shadow)
    middle = shadow.mean(axis=0)
    centred = shadow - middle
    effect = np.where(trained, 2.0, -2.0).T @ centred / n_shadows
    within = np.sum(centred**2, axis=0) - n_shadows * effect**2 / 4
    variance = np.maximum(within, 0.0) / max(n_shadows - 2, 1)
    variance = (1 - SHARE_OF_MEAN) * variance + SHARE_OF_MEAN * variance.mean()
    return effect / (variance + 1e-9), middle
