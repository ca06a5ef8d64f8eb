"""Attribute inference from the updates of federated training (Melis et al. 2019)."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._records import concat
from .attribute import AttributeInference
from .update_membership import UpdatesAttack
from .updates import Updates

__all__ = ["UpdatesAttributeInference"]


class UpdatesAttributeInference(AttributeInference):
    """Infer one attribute of a record from its other attributes, its class and model updates.

    Each value of the attribute is tried in turn. With the true value, the gradient of a training
    record agrees best with the updates. Values are weighted by their probability without the
    updates, so the updates must improve on imputation.

    Parameters
    ----------
    target : Updates, default=None
        The updates that the attacker has seen.
    attribute : int or str, default=0
        Column of the attribute; a name if records are DataFrames.
    prior : {"imputation", "marginal", "uniform"}, default="imputation"
        Prior probabilities of the attribute, before seeing the updates.
    imputer : classifier with ``predict_proba``, default=None
        Learns the attribute from the other columns and the class. None: a random forest.
    n_reference : int, default=1000
        Maximum number of the attacker's records that estimate the distribution of gradients.

    Attributes
    ----------
    attack_ : UpdatesAttack
        Scores a record with each value.
    values_ : ndarray of shape (n_values,)
        Values of the attribute among the records given to ``fit``.

    References
    ----------
    L. Melis, C. Song, E. De Cristofaro, V. Shmatikov. Exploiting unintended feature leakage in
    collaborative learning. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import Updates, UpdatesAttributeInference
    >>> rng = np.random.default_rng(0)
    >>> X = np.c_[rng.integers(0, 2, 900), rng.normal(size=(900, 10))]
    >>> y = rng.integers(0, 2, 900)
    >>> party = MLPClassifier((64,), solver="sgd", momentum=0, batch_size=20, random_state=0)
    >>> def after_a_pass():
    ...     return Updates.weights_of(party.partial_fit(X[:20], y[:20], classes=[0, 1]))
    >>> weights = [after_a_pass() for _ in range(3)]
    >>> seen = Updates(party, weights[:-1], weights[1:], step=0.001, n_records=20)
    >>> attack = UpdatesAttributeInference(seen, attribute=0).fit(X[100:], y[100:])
    >>> result = attack.evaluate(X[:20], y[:20], X[20:100], y[20:100])
    >>> result.advantage > 0.2
    True
    """

    def __init__(
        self,
        target: Updates | None = None,
        *,
        attribute: int | str = 0,
        prior: str = "imputation",
        imputer: Any = None,
        n_reference: int = 1000,
    ) -> None:
        super().__init__(target, attribute=attribute, prior=prior, imputer=imputer)
        self.n_reference = n_reference

    def _target_classes(self, X: Any) -> Any:
        attack = UpdatesAttack(self.target)
        attack._check_target(X, np.empty(0))
        return attack._target_classes(X)

    def _prepare_likelihoods(self, X: Any, y: NDArray[Any]) -> None:
        self.attack_ = UpdatesAttack(self.target, n_reference=self.n_reference).fit(X, y)

    def _likelihoods(self, filled: list[Any], y: Any) -> NDArray[np.float64]:
        """Score every record with every value in one call, which factorises each round once."""
        found = self.attack_.score_samples(reduce(concat, filled), np.tile(y, len(filled)))
        return found.reshape(len(filled), -1).T
