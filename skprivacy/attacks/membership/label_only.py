"""Label-only membership inference: distance to the decision boundary, or robustness to noise."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._clones import call_model
from ..._docs import fill_docs
from ..._sklearn import StrOptions
from ..._validation import Interval, check_random_state
from ..record_tables import encode, fingerprints, numeric_columns
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack

Float64Array = NDArray[np.float64]
NOISE_LEVELS = (0.05, 0.1, 0.2, 0.4)
HALVINGS = 8


@fill_docs(MEMBERSHIP_DOCS)
class LabelOnlyAttack(MembershipAttack):
    """Infer membership from predicted labels (Choquette-Choo et al. 2021; Li & Zhang 2021).

    Only ``target.predict`` is queried, so hiding or rounding probabilities does not defend against
    it. A model trained on a record keeps the label under larger changes of the record.

    Parameters
    ----------
    target : fitted classifier, default=None
        The target model. None makes a template for ``clone`` and ``set_params``.
    method : {"noise", "boundary"}, default="noise"
        "noise" scores the share of perturbed copies that keep the right label, over several noise
        levels. "boundary" scores the distance at which the label changes on the way to records of
        other classes. With both, records that the target labels wrongly score lowest.
    n_queries : int, default=100
        Maximum number of queries for each record, at least 9.
    random_state : int, RandomState instance or None, default=0
        Seed of the noise and the paths, which are the same for every record.
    %(attack_fpr)s

    Notes
    -----
    Numeric features with more than two values are continuous: they get Gaussian noise and straight
    paths, in units of their standard deviation among the attacker's records. Binary, categorical
    and text features take the values of other records. A distance is the square root of the sum of
    the squared continuous distance and the number of replaced discrete features.

    References
    ----------
    C. A. Choquette-Choo, F. Tramer, N. Carlini, N. Papernot. Label-only membership inference
    attacks. ICML 2021.
    Z. Li, Y. Zhang. Membership leakage in label-only exposures. CCS 2021.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.attacks import LabelOnlyAttack, LabeledRecords
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
    >>> records = LabeledRecords(X, y)
    >>> attack = LabelOnlyAttack(target).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.6
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "method": [StrOptions({"noise", "boundary"})],
        "n_queries": [Interval(Integral, HALVINGS + 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        method: str = "noise",
        n_queries: int = 100,
        random_state: Any = 0,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.method = method
        self.n_queries = n_queries
        self.random_state = random_state
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        self._others = X
        matrix = encode(X, X)[0]
        distinct = np.array([len(np.unique(column)) for column in matrix.T])
        self._continuous = numeric_columns(X) & (distinct > 2)
        self._scale = np.maximum(np.nanstd(matrix, axis=0), 1e-12)
        self._labels = self._predict(X)
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        if y.ndim != 1:
            raise ValueError(f"y has shape {y.shape}; expected one label for each record.")
        score = self._noise_robustness if self.method == "noise" else self._boundary_distance
        return score(X, y)

    def _predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(call_model(self.target, "predict", X))

    def _noise_robustness(self, X: Any, y: NDArray[Any]) -> Float64Array:
        rng = np.random.default_rng(self._seed)
        matrix, others, decode = encode(X, self._others)
        kept = np.zeros(len(y))
        # one query less than n_queries, which is left for the record itself
        levels = np.sort(np.resize(NOISE_LEVELS, self.n_queries - 1))
        # Choquette-Choo et al. 2021: robustness of the label to random noise
        for level in levels:
            shifted = matrix + rng.normal(size=matrix.shape[1]) * level * self._scale
            other = others[rng.integers(len(others))]
            swapped = np.where(rng.random(matrix.shape[1]) < level, other, matrix)
            perturbed = np.where(self._continuous, shifted, swapped)
            kept += self._predict(decode(perturbed)) == y
        right = self._predict(X) == y
        return np.where(right, 1 + kept / len(levels), kept / len(levels))

    def _boundary_distance(self, X: Any, y: NDArray[Any]) -> Float64Array:
        rng = np.random.default_rng(self._seed)
        matrix, others, decode = encode(X, self._others)
        prints = fingerprints(X)
        nearest = np.full(len(y), np.inf)
        for path in range((self.n_queries - 1) // HALVINGS):
            goal = others[self._differently_labelled(prints, y, path)]
            swap_at = rng.uniform(size=matrix.shape[1:])

            # bisection of the path for the first change of the label
            inside, outside = np.zeros(len(y)), np.ones(len(y))
            for _ in range(HALVINGS):
                middle = (inside + outside) / 2
                perturbed = self._move_towards(matrix, goal, swap_at, middle)
                keeps = self._predict(decode(perturbed)) == y
                inside, outside = np.where(keeps, middle, inside), np.where(keeps, outside, middle)
            change = self._move_towards(matrix, goal, swap_at, outside) - matrix
            in_units = np.where(self._continuous, change / self._scale, change != 0)
            nearest = np.minimum(nearest, np.linalg.norm(np.nan_to_num(in_units), axis=1))
        return np.where(self._predict(X) == y, nearest, 0.0)

    def _differently_labelled(
        self, prints: NDArray[np.uint64], y: NDArray[Any], path: int
    ) -> NDArray[np.intp]:
        """Choose another record with another label, as a function of the record and the path."""
        mixed = (prints ^ np.uint64(path * 0x9E3779B1 + self._seed)) * np.uint64(0xBF58476D1CE4E5B9)
        draw = (mixed >> np.uint64(33)).astype(np.intp)
        rows = draw % len(self._labels)
        for c in np.unique(y):
            others = np.flatnonzero(self._labels != c)
            if len(others):
                rows[y == c] = others[draw[y == c] % len(others)]
        return rows

    def _move_towards(
        self, matrix: Float64Array, goal: Float64Array, swap_at: Float64Array, way: Float64Array
    ) -> Float64Array:
        """Move the share ``way`` towards ``goal``; discrete features switch at ``swap_at``."""
        swapped = np.where(swap_at <= way[:, None], goal, matrix)
        straight = matrix + way[:, None] * (goal - matrix)
        return np.where(self._continuous, straight, swapped)
