"""Label-only membership inference: distance to the decision boundary, or robustness to noise.

:class:`BoundarySearch` measures the distance within a query budget: HopSkipJump (Chen 2020).
Start reading at :class:`LabelOnlyAttack`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._clones import call_model
from ..._docs import fill_docs
from ..._sklearn import StrOptions
from ..._validation import Interval, check_random_state
from ..attack_result import AttackResult
from ..record_tables import encode, fingerprints, numeric_columns
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack

Float64Array = NDArray[np.float64]
NOISE_LEVELS = (0.05, 0.1, 0.2, 0.4)
NOISE_HALVINGS = 8
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
BOUNDARY_HALVINGS = 10
STEPS = 6
TRIES = 5
PASSES = 3


@fill_docs(MEMBERSHIP_DOCS)
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
    >>> from skprivacy.attacks import LabelOnlyAttack, LabeledRecords
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
    >>> records = LabeledRecords(X, y)
    >>> attack = LabelOnlyAttack(target).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.6
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "method": [StrOptions({"noise", "boundary", "hopskipjump"})],
        "n_queries": [Interval(Integral, NOISE_HALVINGS + 1, None, closed="left")],
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
        if self.method == "noise":
            return self._noise_robustness(X, y)
        if self.method == "hopskipjump":
            return self._decision_distance(X, y)
        return self._boundary_distance(X, y)

    def evaluate(self, X_in: Any, X_out: Any) -> AttackResult:
        result = super().evaluate(X_in, X_out)
        result.details["queries"] = int(self.queries_.max())
        return result

    def _predict(self, X: Any) -> NDArray[Any]:
        return np.asarray(call_model(self.target, "predict", X))

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
            kept += self._predict(decode(moved)) == y
        right = self._predict(X) == y
        return np.where(right, 1 + kept / len(levels), kept / len(levels))

    def _boundary_distance(self, X: Any, y: NDArray[Any]) -> Float64Array:
        rng = np.random.default_rng(self._seed)
        matrix, others, decode = encode(X, self._others)
        prints = fingerprints(X)
        nearest = np.full(len(y), np.inf)
        n_paths = (self.n_queries - 1) // NOISE_HALVINGS
        self.queries_ = np.full(len(y), n_paths * NOISE_HALVINGS + 1)
        for path in range(n_paths):
            goal = others[self._differently_labelled(prints, y, path)]
            swap_at = rng.uniform(size=matrix.shape[1:])

            # bisection of the path for the first change of the label
            inside, outside = np.zeros(len(y)), np.ones(len(y))
            for _ in range(NOISE_HALVINGS):
                middle = (inside + outside) / 2
                moved = self._move_towards(matrix, goal, swap_at, middle)
                keeps = self._predict(decode(moved)) == y
                inside, outside = np.where(keeps, middle, inside), np.where(keeps, outside, middle)
            change = self._move_towards(matrix, goal, swap_at, outside) - matrix
            in_units = np.where(self._continuous, change / self._scale, change != 0)
            nearest = np.minimum(nearest, np.linalg.norm(np.nan_to_num(in_units), axis=1))
        return np.where(self._predict(X) == y, nearest, 0.0)

    def _decision_distance(self, X: Any, y: NDArray[Any]) -> Float64Array:
        matrix, others, decode = encode(X, self._others)
        rows = np.flatnonzero(self._predict(X) == y)

        def changed(queried: NDArray[np.intp], points: Float64Array) -> NDArray[np.bool_]:
            return self._predict(decode(points)) != y[rows[queried]]

        prints = fingerprints(X)
        goals = (others[self._differently_labelled(prints, y, path)][rows] for path in count())
        distance, self.queries_ = np.zeros(len(y)), np.ones(len(y), dtype=int)
        if len(rows):
            rng, budget = np.random.default_rng(self._seed), self.n_queries - 1
            search = BoundarySearch(
                changed, matrix[rows], self._continuous, self._scale, budget, rng
            )
            distance[rows] = search.distances(goals)
            self.queries_[rows] += search.used
        return distance

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


class BoundarySearch:
    """Search of each record's nearest point with another label, within a budget of queries.

    ``changed(rows, points)`` returns which points have another label than these records.
    """

    def __init__(
        self,
        changed: Callable[[Rows, Float64Array], Mask],
        matrix: Float64Array,
        continuous: Mask,
        scale: Float64Array,
        budget: int,
        rng: np.random.Generator,
    ) -> None:
        self.used = np.zeros(len(matrix), dtype=int)
        self._changed, self._budget, self._rng = changed, budget, rng
        self._matrix, self._continuous, self._scale = matrix, continuous, scale

    def ask(self, rows: Rows, points: Float64Array, *, reserve: int = 0) -> Mask:
        """Query the records; False for records with fewer than ``reserve + 1`` queries left."""
        answer = np.zeros(len(rows), dtype=bool)
        may = self.used[rows] + reserve < self._budget
        if may.any():
            self.used[rows[may]] += 1
            answer[may] = self._changed(rows[may], points[may])
        return answer

    def distances(self, goals: Iterable[Float64Array]) -> Float64Array:
        """Return the distances found, starting from points that probably have another label."""
        point, found = self._find_start(goals)
        continuous, spent = self._continuous, 1 + TRIES
        if not continuous.all():
            # continuous features, if any, use the other half of the queries
            reserve = self._budget // 2 if continuous.any() else 0
            self._reset_discrete(point, found, reserve)
            spent += self._budget // 2
        if continuous.any():
            self._approach(point, found, self._budget - spent)
        straight = np.linalg.norm(((point - self._matrix) / self._scale)[:, continuous], axis=1)
        flips = _differ(point, self._matrix)[:, ~continuous].sum(axis=1)
        return np.sqrt(np.nan_to_num(straight) ** 2 + flips)

    def _find_start(self, goals: Iterable[Float64Array]) -> tuple[Float64Array, Rows]:
        point, found = self._matrix.copy(), np.zeros(len(self._matrix), dtype=bool)
        for _, goal in zip(range(TRIES), goals, strict=False):
            rows = np.flatnonzero(~found)
            own, other = self._matrix[rows], goal[rows]
            # a missing number has no distance from a known one
            missing = self._continuous & (np.isnan(own) | np.isnan(other))
            point[rows] = np.where(missing, own, other)
            found[rows] = self.ask(rows, point[rows])
        return point, np.flatnonzero(found)

    def _reset_discrete(self, point: Float64Array, found: Rows, reserve: int) -> None:
        """Reset discrete features while the label stays changed: many at once, then one by one."""
        order = self._rng.permutation(np.flatnonzero(~self._continuous))
        position = np.full(point.shape[1], len(order) + 1)
        position[order] = np.arange(len(order))

        def reset_first(count: NDArray[np.int_]) -> Float64Array:
            return np.where(position < count[:, None], self._matrix[found], point[found])

        kept, lost = np.zeros(len(found), dtype=int), np.full(len(found), len(order) + 1)
        for _ in range(int(np.ceil(np.log2(len(order) + 1)))):
            middle = (kept + lost) // 2
            open_ = lost - kept > 1
            stays = np.zeros(len(found), dtype=bool)
            stays[open_] = self.ask(found[open_], reset_first(middle)[open_], reserve=reserve)
            kept, lost = np.where(stays, middle, kept), np.where(stays | ~open_, lost, middle)
        point[found] = reset_first(kept)
        # several passes, because one reset may make another possible that was not before
        for column in np.tile(order, PASSES):
            rows = found[_differ(point[found, column], self._matrix[found, column])]
            trial = point[rows]
            trial[:, column] = self._matrix[rows, column]
            stays = self.ask(rows, trial, reserve=reserve)
            point[rows[stays], column] = self._matrix[rows[stays], column]

    def _approach(self, point: Float64Array, rows: Rows, queries: int) -> None:
        """Move points along the decision boundary towards the records, by HopSkipJump."""
        continuous = self._continuous
        unit, n_continuous = np.where(continuous, self._scale, 0.0), int(continuous.sum())
        n_rounds = min(8, max(0, (queries - BOUNDARY_HALVINGS) // (BOUNDARY_HALVINGS + STEPS + 30)))
        self._bisect(point, rows)
        for turn in range(1, n_rounds + 1):
            n_directions = (queries - BOUNDARY_HALVINGS) // n_rounds - BOUNDARY_HALVINGS - STEPS
            away = np.nan_to_num((point[rows] - self._matrix[rows]) / self._scale)[:, continuous]
            distance = np.linalg.norm(away, axis=1)[:, None]
            reach = distance * max(1 / n_continuous, 0.01)
            votes = np.zeros((len(rows), point.shape[1]))
            total, plain = np.zeros((len(rows), 1)), np.zeros(point.shape[1])
            # Chen et al. 2020: Monte Carlo estimate of the boundary's gradient direction
            for _ in range(n_directions):
                direction = self._rng.normal(size=point.shape[1]) * continuous
                direction /= np.linalg.norm(direction)
                sign = 2.0 * self.ask(rows, point[rows] + reach * direction * unit)[:, None] - 1
                votes, total, plain = votes + sign * direction, total + sign, plain + direction
            # Chen et al. 2020: subtract the mean label as a baseline, unless all labels agree
            mean = total / n_directions
            way = votes - np.where(np.abs(mean) < 1, mean, 0.0) * plain
            way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-12)
            # Chen et al. 2020: geometric progression of the step, halved until the label changes
            step, waiting = distance / np.sqrt(turn), np.arange(len(rows))
            for _ in range(STEPS):
                trial = point[rows[waiting]] + step[waiting] * way[waiting] * unit
                changed = self.ask(rows[waiting], trial)
                point[rows[waiting[changed]]] = trial[changed]
                waiting, step = waiting[~changed], step / 2
            self._bisect(point, rows)

    def _bisect(self, point: Float64Array, rows: Rows) -> None:
        """Move points straight to the records, as near as the label stays changed."""
        inside, outside = np.zeros(len(rows)), np.ones(len(rows))
        away = np.where(self._continuous, point[rows] - self._matrix[rows], 0.0)
        start = point[rows] - away
        for _ in range(BOUNDARY_HALVINGS):
            middle = (inside + outside) / 2
            changed = self.ask(rows, start + middle[:, None] * away)
            inside, outside = np.where(changed, inside, middle), np.where(changed, middle, outside)
        point[rows] = start + outside[:, None] * away


def _differ(one: Float64Array, other: Float64Array) -> Mask:
    return (one != other) & ~(np.isnan(one) & np.isnan(other))
