"""Label-only membership inference: distance to the decision boundary, robustness to noise."""

from __future__ import annotations

from itertools import count
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import asked
from .._docs import fill_docs
from .._sklearn import StrOptions
from .._validation import Interval, check_random_state
from ._decision_distance import Oracle, decision_distance
from ._records import encode, fingerprints, numeric_columns
from .membership import MembershipAttack
from .result import AttackResult

__all__ = ["LabelOnlyAttack"]

Float64Array = NDArray[np.float64]
NOISE_LEVELS = (0.05, 0.1, 0.2, 0.4)
HALVINGS = 8


@fill_docs
class LabelOnlyAttack(MembershipAttack):
    """Infer membership from predicted labels (Choquette-Choo et al. 2021; Li & Zhang 2021).

    Only ``target.predict`` is queried, so hiding or rounding probabilities does not defend against
    it. A model trained on a record keeps the label under larger changes of the record.

    Parameters
    ----------
    target : fitted classifier, default=None
        The target model. None makes a template for ``clone`` and ``set_params``.
    method : {"noise", "boundary", "hopskipjump"}, default="noise"
        "noise" scores the share of perturbed copies that keep the right label, over several noise
        levels. "boundary" scores the distance at which the label changes on the way to records of
        other classes. "hopskipjump" scores the distance to the decision boundary, approached in
        directions estimated from labels (Chen et al. 2020); it pays off from some hundreds of
        queries on. With each method, records that the target labels wrongly score lowest.
    n_queries : int, default=100
        Maximum number of queries for each record.
    random_state : int, RandomState instance or None, default=0
        Seed of the noise and the paths, which are the same for every record.
    %(attack_fpr)s

    Attributes
    ----------
    queries_ : int ndarray of shape (n_records,)
        Number of queries for each record in the latest scoring. ``evaluate`` stores the largest
        one in ``details["queries"]``.

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
    J. Chen, M. I. Jordan, M. J. Wainwright. HopSkipJumpAttack: a query-efficient decision-based
    attack. IEEE S&P 2020.
    Z. Li, Y. Zhang. Membership leakage in label-only exposures. CCS 2021.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.attacks import LabelOnlyAttack
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
    >>> attack = LabelOnlyAttack(target).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.6
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "method": [StrOptions({"noise", "boundary", "hopskipjump"})],
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
        self._labels = np.asarray(asked(self.target, "predict", X))
        self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        if y.ndim != 1:
            raise ValueError(f"y has shape {y.shape}; expected one label for each record.")
        if self.method == "noise":
            return self._noise_robustness(X, y)
        if self.method == "hopskipjump":
            return self._decision_distance(X, y)
        return self._boundary_distance(X, y)

    def evaluate(self, X_in: Any, y_in: Any, X_out: Any, y_out: Any) -> AttackResult:
        result = super().evaluate(X_in, y_in, X_out, y_out)
        result.details["queries"] = int(self.queries_.max())
        return result

    def _noise_robustness(self, X: Any, y: NDArray[Any]) -> Float64Array:
        rng = np.random.default_rng(self._seed)
        matrix, others, decode = encode(X, self._others)
        kept = np.zeros(len(y))
        # one query less than n_queries, which is left for the record itself
        levels = np.sort(np.resize(NOISE_LEVELS, self.n_queries - 1))
        self.queries_ = np.full(len(y), len(levels) + 1)
        # Choquette-Choo et al. 2021: robustness of the label to random noise
        for level in levels:
            shifted = matrix + rng.normal(size=matrix.shape[1]) * level * self._scale
            other = others[rng.integers(len(others))]
            swapped = np.where(rng.random(matrix.shape[1]) < level, other, matrix)
            moved = np.where(self._continuous, shifted, swapped)
            kept += asked(self.target, "predict", decode(moved)) == y
        right = np.asarray(asked(self.target, "predict", X)) == y
        return np.where(right, 1 + kept / len(levels), kept / len(levels))

    def _boundary_distance(self, X: Any, y: NDArray[Any]) -> Float64Array:
        rng = np.random.default_rng(self._seed)
        matrix, others, decode = encode(X, self._others)
        prints = fingerprints(X)
        nearest = np.full(len(y), np.inf)
        n_paths = (self.n_queries - 1) // HALVINGS
        self.queries_ = np.full(len(y), n_paths * HALVINGS + 1)
        for path in range(n_paths):
            goal = others[self._differently_labelled(prints, y, path)]
            swap_at = rng.uniform(size=matrix.shape[1:])

            # bisection of the path for the first change of the label
            inside, outside = np.zeros(len(y)), np.ones(len(y))
            for _ in range(HALVINGS):
                middle = (inside + outside) / 2
                keeps = (
                    asked(
                        self.target,
                        "predict",
                        decode(self._move_towards(matrix, goal, swap_at, middle)),
                    )
                    == y
                )
                inside, outside = np.where(keeps, middle, inside), np.where(keeps, outside, middle)
            change = self._move_towards(matrix, goal, swap_at, outside) - matrix
            in_units = np.where(self._continuous, change / self._scale, change != 0)
            nearest = np.minimum(nearest, np.linalg.norm(np.nan_to_num(in_units), axis=1))
        return np.where(asked(self.target, "predict", X) == y, nearest, 0.0)

    def _decision_distance(self, X: Any, y: NDArray[Any]) -> Float64Array:
        matrix, others, decode = encode(X, self._others)
        wrong = np.asarray(asked(self.target, "predict", X)) != y
        rows = np.flatnonzero(~wrong)

        def changed(queried: NDArray[np.intp], points: Float64Array) -> NDArray[np.bool_]:
            return np.asarray(asked(self.target, "predict", decode(points))) != y[rows[queried]]

        oracle = Oracle(changed, len(rows), self.n_queries - 1)
        prints = fingerprints(X)
        goals = (others[self._differently_labelled(prints, y, path)][rows] for path in count())
        distance = np.zeros(len(y))
        if len(rows):
            rng = np.random.default_rng(self._seed)
            distance[rows] = decision_distance(
                oracle, matrix[rows], goals, self._continuous, self._scale, rng
            )
        self.queries_ = np.ones(len(y), dtype=int)
        self.queries_[rows] += oracle.used
        return distance

    def _differently_labelled(
        self, prints: NDArray[np.uint64], y: NDArray[Any], path: int
    ) -> NDArray[np.intp]:
        """Choose for each record another one that the target labels differently, if there is one.

        The choice depends only on the record and the path, not on the other records of a call.
        """
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
        """Go the share ``way`` of the path to ``goal``; discrete features change at ``swap_at``."""
        swapped = np.where(swap_at <= way[:, None], goal, matrix)
        straight = matrix + way[:, None] * (goal - matrix)
        return np.where(self._continuous, straight, swapped)
