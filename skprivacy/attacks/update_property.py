"""Property inference from the updates of federated training (Melis et al. 2019, passive)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ._records import safe_indexing
from .property import PropertyAttack
from .updates import Updates, call_train, labels_as_columns

__all__ = ["UpdatesPropertyInference"]

Float64Array = NDArray[np.float64]


class UpdatesPropertyInference(PropertyAttack):
    """Infer from a party's updates the share of its records in a group (Melis et al. 2019).

    The attacker draws shadow sets with and without the property from his own records, and computes
    their updates at the weights he has seen. For each round, an attack model learns to distinguish
    the two kinds of updates. The log-odds of the rounds are added. The attack is passive.

    Parameters
    ----------
    target : Updates
        Updates of the attacked training. Only the weights before each round are used, so the
        updates may be those of any party.
    train : callable, default=None
        One round of a party: takes weights, records, classes and a seed, and returns the weights
        that the party sends back, including its clipping, noise and compression. None: one step on
        the mean of (clipped) gradients, with the noise of the target.
    n_shadows : int, default=40
        Number of shadow sets, at least 2; every second one has the property.
    n_train : int, default=None
        Number of records in each shadow set. None: as many as in the target.
    attack_model : classifier with ``predict_proba``, default=None
        None: logistic regression on scaled updates.
    n_jobs : int, default=None
        Number of shadow sets processed in parallel, as in scikit-learn; it does not change the
        result.
    random_state : int, RandomState instance or None, default=None
        Seed of the shadow sets and the noise.

    Attributes
    ----------
    attack_models_ : list of classifiers
        One for each round.

    References
    ----------
    L. Melis, C. Song, E. De Cristofaro, V. Shmatikov. Exploiting unintended feature leakage in
    collaborative learning. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import clone
    >>> from sklearn.linear_model import SGDClassifier
    >>> from skprivacy.attacks import Updates, UpdatesPropertyInference
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(900, 5))
    >>> old = X[:, 0] > 0
    >>> y = (X[:, 0] + rng.normal(size=900) > 0).astype(int)
    >>> model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=1e-3)
    >>> start = np.zeros(6)
    >>> def sent_by(rows):
    ...     party = clone(model).partial_fit(X, y, [0, 1])
    ...     party.coef_, party.intercept_ = start[None, :-1].copy(), start[-1:].copy()
    ...     after = [party.partial_fit(X[rows], y[rows])]
    ...     return Updates(party, [start], after, step=1e-3 * len(rows), n_records=len(rows))
    >>> rows_with, rows_without = np.flatnonzero(old)[:50], np.flatnonzero(~old)[:50]
    >>> attack = UpdatesPropertyInference(sent_by(rows_with), n_shadows=20, random_state=0)
    >>> attack = attack.fit(X[200:], y[200:], old[200:], shares=(0.0, 1.0))
    >>> attack.predict(sent_by(rows_with)), attack.predict(sent_by(rows_without))
    (True, False)
    """

    def __init__(
        self,
        target: Updates,
        *,
        train: Callable[[Float64Array, Any, NDArray[Any], int], Any] | None = None,
        n_shadows: int = 40,
        n_train: int | None = None,
        attack_model: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.train = train
        self.n_shadows = n_shadows
        self.n_train = n_train
        self.attack_model = attack_model
        self.n_jobs = n_jobs
        self.random_state = random_state

    def decision_function(self, target: Updates) -> float:
        """Return the log-odds that the records of a party have the property.

        Parameters
        ----------
        target : Updates
            Updates of one party, from the same rounds as in ``fit`` and in the same order.

        Returns
        -------
        float
            Above 0 if they probably have it.

        Raises
        ------
        ValueError
            If the rounds began with other weights than in ``fit``.
        """
        check_is_fitted(self, "attack_models_")
        if not isinstance(target, Updates):
            raise TypeError(f"target={target!r} must be Updates, of one party.")
        if (
            target.before.shape != self.target.before.shape
            or (target.before != self.target.before).any()
        ):
            raise ValueError(
                "target has other weights before its rounds than in fit; expected the same rounds "
                "in the same order. Fit an attack on these rounds."
            )
        views = target.after - target.before
        return sum(map(self._log_odds, self.attack_models_, views))

    def _check_parameters(self) -> None:
        if not isinstance(self.target, Updates):
            raise TypeError(f"target={self.target!r} must be Updates.")
        if self.train is not None and not callable(self.train):
            raise TypeError(f"train={self.train!r} must be a function, or None.")

    def _size(self, n_records: int) -> int:
        return self.n_train or self.target.n_records

    def _learn(self, X: Any, y: Any, group: Any, shares: tuple[float, ...], rng: Any) -> None:
        has_property, drawn = self._shadow_sets(group, shares, rng)
        views = np.array(
            Parallel(n_jobs=self.n_jobs)(
                delayed(self._shadow_view)(safe_indexing(X, rows), y[rows], seed)
                for rows, seed in drawn
            )
        )
        self.attack_models_ = [
            self._fit_attack_model(views[:, t], has_property) for t in range(self.target.n_rounds)
        ]

    def _shadow_view(self, X: Any, y: NDArray[Any], seed: int) -> Float64Array:
        """Return the updates that a party with these records would send."""
        if self.train is not None:
            return np.array([call_train(self.train, w, X, y, seed) - w for w in self.target.before])
        seen, label = self.target, labels_as_columns(self.target.model, y)
        random, n_weights = np.random.default_rng(seed), self.target.before.shape[1]
        return np.array(
            [
                -seen.step[t] * seen._gradients(t, X, label).mean(n_weights)
                + seen.noise * random.normal(size=n_weights)
                for t in range(seen.n_rounds)
            ]
        )
