"""What an attacker sees of a training that exchanges weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import without_values
from .._validation import is_number, label_columns, positive, sequence, whole
from ..metrics._samples import as_numbers
from ._networks import Network, open_network
from ._record_gradients import RecordGradients, network_at, record_gradients, weights_of
from ._records import num_samples, some_records

__all__ = [
    "Updates",
    "as_weights",
    "gradient_ascent",
    "labels_as_columns",
    "nearest_columns",
    "trained",
]

Float64Array = NDArray[np.float64]
ARRAYS = (np.ndarray, list, tuple)  # what holds weights as they are, beside networks


@dataclass(frozen=True, eq=False)
class Updates:
    """What an attacker sees of a training that exchanges weights: round by round, before and after.

    A server sees this of each party, a party sees it of the sum of the others, and whoever gets
    every version of a model sees it of the whole training. It is the target of
    :class:`UpdatesAttack`, :class:`UpdatesAttributeInference` and
    :class:`UpdatesPropertyInference`.

    Parameters
    ----------
    model : fitted network
        Says what is computed with the weights; its own weights are not used. A torch module, a
        classifier that has one as ``module_``, an ``MLPClassifier`` or a linear classifier, alone
        or at the end of a pipeline.
    before : sequence of networks or array-like of shape (n_rounds, n_weights)
        The weights that each round began with, in the order of time: networks like ``model``, or
        vectors in the order of :meth:`weights_of`.
    after : sequence of networks or array-like of shape (n_rounds, n_weights)
        The weights that came back, of one party or the mean over several.
    step : float or array-like of shape (n_rounds,)
        How far a round goes along the mean gradient of its records: the learning rate times the
        number of steps that a party makes in a round.
    n_records : int
        Number of records that the update is a mean over.
    max_grad_norm : float, default=None
        L2 norm to which each record's gradient was clipped. None: not clipped.
    noise : float, default=0.0
        Standard deviation of the noise in each weight of an update.

    Attributes
    ----------
    n_rounds : int
        Number of rounds.

    Raises
    ------
    ValueError
        If shapes differ, a number is out of its range or a weight is not finite.

    Examples
    --------
    A model is published after every pass over its records:

    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import SGDClassifier
    >>> from skprivacy.attacks import Updates
    >>> X, y = make_classification(400, random_state=0)
    >>> model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01, alpha=0)
    >>> weights = [Updates.weights_of(model.partial_fit(X, y, [0, 1])) for _ in range(5)]
    >>> seen = Updates(model, weights[:-1], weights[1:], step=0.01 * 400, n_records=400)
    >>> seen
    Updates(4 rounds of 21 weights, each a mean over 400 records)
    """

    model: Any
    before: Any
    after: Any
    step: Any
    n_records: int
    max_grad_norm: float | None = None
    noise: float = 0.0
    _network: Network = field(init=False, repr=False, compare=False)
    _as_inputs: Callable[[Any], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        network, as_inputs = open_network(self.model)
        object.__setattr__(self, "_network", network)
        object.__setattr__(self, "_as_inputs", as_inputs)
        n_weights = len(weights_of(self.model))
        for name in ("before", "after"):
            object.__setattr__(self, name, _vectors(name, getattr(self, name), n_weights))
        if len(self.before) != len(self.after):
            raise ValueError(
                f"before has {len(self.before)} rounds and after {len(self.after)}; expected one "
                "of each for every round."
            )
        steps = as_numbers("step", self.step, "one number, or one for each round")
        if (
            steps.shape not in ((), (self.n_rounds,))
            or not (np.isfinite(steps) & (steps > 0)).all()
        ):
            raise ValueError(
                f"step={self.step!r} must be a positive number, or {self.n_rounds} of them."
            )
        object.__setattr__(self, "step", np.broadcast_to(steps, self.n_rounds))
        _check_party(self.n_records, self.max_grad_norm, self.noise)

    @property
    def n_rounds(self) -> int:
        return len(self.before)

    @staticmethod
    def weights_of(model: Any) -> Float64Array:
        """Return all weights of a network as one vector.

        Parameters
        ----------
        model : fitted network
            As in :class:`Updates`.

        Returns
        -------
        ndarray of shape (n_weights,)
            Those of a module in the order of ``parameters()``; otherwise each layer's matrix, as
            scikit-learn keeps it, and its intercepts.
        """
        return weights_of(model)

    @classmethod
    def averaged(cls, updates: Sequence[Updates]) -> Updates:
        """Return what is left for an attacker who sees but the mean over several parties.

        Parameters
        ----------
        updates : sequence of Updates
            Of the same rounds; parties count by their records.

        Returns
        -------
        Updates
            Their mean, as secure aggregation shows it.

        Raises
        ------
        ValueError
            If the parties did not begin the rounds with the same weights.
        """
        given = sequence("updates", updates)
        if not given or not all(isinstance(one, Updates) for one in given):
            raise ValueError("updates must be a non-empty sequence of Updates, one of each party.")
        first = given[0]
        for one in given:
            if one.before.shape != first.before.shape or (one.before != first.before).any():
                raise ValueError(
                    "updates are of different rounds: before differs. Pass the parties' updates of "
                    "the same rounds, in the same order."
                )
        if len({one.max_grad_norm for one in given}) > 1:
            raise ValueError("updates have different max_grad_norm. Average those that agree.")
        total = sum(one.n_records for one in given)
        share = np.array([one.n_records / total for one in given])
        noises = share * [one.noise for one in given]
        return cls(
            first.model,
            first.before,
            first.before + sum(s * (u.after - u.before) for s, u in zip(share, given, strict=True)),
            step=sum(s * u.step for s, u in zip(share, given, strict=True)),
            n_records=total,
            max_grad_norm=first.max_grad_norm,
            noise=float(np.linalg.norm(noises)),
        )

    def __repr__(self) -> str:
        return (
            f"Updates({self.n_rounds} rounds of {self.before.shape[1]} weights, each a mean over "
            f"{self.n_records} records)"
        )

    def _network_at(self, weights: Float64Array) -> Network:
        return network_at(self._network, weights)

    def _gradients(self, t: int, X: Any, label: NDArray[np.intp]) -> RecordGradients:
        """Return the records' gradients as they went into round ``t``."""
        inputs = self._as_inputs(X)
        found = record_gradients(self._network_at(self.before[t]), inputs, label)
        return found if self.max_grad_norm is None else found.clipped(self.max_grad_norm)

    def _descent(self, t: int) -> Float64Array:
        """Return the mean gradient that the update of round ``t`` shows."""
        return (self.before[t] - self.after[t]) / self.step[t]


def gradient_ascent(
    model: Any,
    train: Callable[[Float64Array], Any],
    X: Any,
    y: Any,
    *,
    ascent: float,
    n_rounds: int,
    step: float,
    n_records: int,
    max_grad_norm: float | None = None,
    noise: float = 0.0,
) -> Updates:
    """Run rounds as an active attacker, who raises the loss of the records he asks about.

    Before each round the weights are moved up the gradient of these records' loss. A party that
    was given some of them pulls their loss back; those it does not hold stay where they are
    (Nasr et al. 2019). What it sends back is then judged by :class:`UpdatesAttack`.

    Parameters
    ----------
    model : fitted network
        The model that the first round begins with, as in :class:`Updates`.
    train : callable
        One round of the others: takes a vector of weights and returns the weights that come back,
        as a vector or a network. A server isolates a party by asking it alone.
    X : {array-like, DataFrame} of shape (n_targets, n_features)
        The records asked about.
    y : array-like of shape (n_targets,)
        Their classes.
    ascent : float
        How far the weights move along the sum of the records' gradients before each round; 0 for
        an attacker who only isolates.
    n_rounds : int
        Number of rounds.
    step : float
        How far a round goes along the mean gradient: the learning rate times the number of steps.
    n_records : int
        Number of records behind ``train``, of one party or several.
    max_grad_norm : float, default=None
        L2 norm to which each record's gradient is clipped. None: not clipped.
    noise : float, default=0.0
        Standard deviation of the noise in each weight of what comes back.

    Returns
    -------
    Updates
        What came back, with the weights that were sent.

    References
    ----------
    M. Nasr, R. Shokri, A. Houmansadr. Comprehensive privacy analysis of deep learning: passive
    and active white-box inference attacks. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import SGDClassifier
    >>> from skprivacy.attacks import UpdatesAttack, gradient_ascent
    >>> X, y = make_classification(900, 100, flip_y=0.3, random_state=0)
    >>> party = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=1e-4, alpha=0)
    >>> party = party.partial_fit(X[:100], y[:100], [0, 1])
    >>> def train(weights):
    ...     party.coef_, party.intercept_ = weights[None, :-1], weights[-1:]
    ...     return party.partial_fit(X[:100], y[:100])
    >>> seen = gradient_ascent(
    ...     party, train, X[:200], y[:200], ascent=1e-3, n_rounds=3, step=1e-2, n_records=100
    ... )
    >>> attack = UpdatesAttack(seen).fit(X[200:], y[200:])
    >>> attack.evaluate(X[:100], y[:100], X[100:200], y[100:200]).auc > 0.6
    True
    """
    if not callable(train):
        raise TypeError(f"train={train!r} must be a function of weights that returns weights.")
    if not (is_number(ascent) and 0 <= ascent < np.inf):
        raise ValueError(f"ascent={ascent!r} must be a finite number of 0 or more.")
    whole("n_rounds", n_rounds)
    network, as_inputs = open_network(model)
    X = some_records(X, "X")
    inputs, label = as_inputs(X), labels_as_columns(model, y)
    if len(label) != num_samples(X):
        raise ValueError(f"y has {len(label)} labels; expected one for each record of X.")
    weights = weights_of(model)
    before, after = [], []
    for _ in range(n_rounds):
        found = record_gradients(network_at(network, weights), inputs, label)
        weights = weights + ascent * num_samples(X) * found.mean(len(weights))
        before.append(weights)
        weights = trained(train, weights)
        after.append(weights)
    return Updates(model, before, after, step, n_records, max_grad_norm, noise)


def trained(train: Callable[..., Any], weights: Float64Array, *given: Any) -> Float64Array:
    """Return what comes back for a vector of weights, and for what else ``train`` is given."""
    try:
        return as_weights(train(weights.copy(), *given))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"train={train!r} must take a vector of {len(weights)} weights and return such a "
            f"vector, or a network. It failed: {without_values(error)}"
        ) from None


def labels_as_columns(model: Any, y: Any) -> NDArray[np.intp]:
    """Return the network's output of each label; a module's outputs are numbered from 0."""
    known = getattr(model, "classes_", None)
    return nearest_columns(model, y) if known is None else label_columns(y, known)


def nearest_columns(model: Any, y: Any) -> NDArray[np.intp]:
    """Return the network's output of each label, and any output for one that it does not know."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; expected one label for each record.")
    known = getattr(model, "classes_", None)
    try:
        if known is None:
            return y.astype(np.intp)
        return np.minimum(np.searchsorted(known, y), len(known) - 1)
    except (TypeError, ValueError):
        raise TypeError("y holds labels of another type than the model's.") from None


def as_weights(given: Any) -> Float64Array:
    """Return weights as a vector, be they one already or those of a network."""
    return np.array(given, dtype=float) if isinstance(given, ARRAYS) else weights_of(given)


def _check_party(n_records: Any, max_grad_norm: Any, noise: Any) -> None:
    whole("n_records", n_records)
    if max_grad_norm is not None:
        positive("max_grad_norm", max_grad_norm)
    if not (is_number(noise) and 0 <= noise < np.inf):
        raise ValueError(f"noise={noise!r} must be a standard deviation of 0 or more.")


def _vectors(name: str, given: Any, n_weights: int) -> Float64Array:
    rows = given
    if not isinstance(given, np.ndarray):
        rows = [as_weights(one) for one in sequence(name, given)]
    matrix = as_numbers(name, rows, "one vector of weights for each round")
    if matrix.ndim != 2 or not len(matrix) or matrix.shape[1] != n_weights:
        raise ValueError(
            f"{name} has shape {matrix.shape}; expected (n_rounds, {n_weights}): the model has "
            f"{n_weights} weights."
        )
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} has NaN or infinity. Leave out rounds that diverged.")
    return matrix
