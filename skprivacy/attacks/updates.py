"""Updates of federated training as seen by passive and active attackers (Nasr et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import describe_error
from .._input_data import check_consistent_length, label_columns
from .._validation import not_negative, num_samples, positive, sequence, whole
from ..metrics.rates import as_numbers
from .network_view import Network, open_network, weights_of
from .record_gradients import RecordGradients, record_gradients
from .record_tables import as_nonempty_records

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Updates:
    """Weights before and after each round of federated training, as an attacker sees them.

    A server sees the updates of each party. A party sees the sum of the others' updates. A reader
    of every version of a model sees the updates of the whole training. ``Updates`` is the target of
    :class:`UpdatesMembership`, :class:`AttributeInference` and :class:`PropertyInference`.

    Parameters
    ----------
    model : fitted network
        Network architecture; its own weights are not used. A torch module, a classifier that has
        one as ``module_``, an ``MLPClassifier`` or a linear classifier, alone or at the end of a
        pipeline.
    before : array-like of shape (n_rounds, n_weights)
        The weights before each round, in chronological order and as by :meth:`weights_of`.
    after : array-like of shape (n_rounds, n_weights)
        The weights that came back, from one party or as the mean over several.
    step : float or array-like of shape (n_rounds,)
        Step along the mean gradient in a round: the learning rate times the number of a party's
        steps in a round.
    n_records : int
        Number of records over which the update is a mean.
    max_grad_norm : float, default=None
        L2 norm to which each record's gradient was clipped. None: not clipped.
    noise_std : float, default=0.0
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
    noise_std: float = 0.0
    _network: Network = field(init=False, repr=False, compare=False)
    _as_inputs: Callable[[Any], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        network, as_inputs = open_network(self.model)
        object.__setattr__(self, "_network", network)
        object.__setattr__(self, "_as_inputs", as_inputs)
        n_weights = len(weights_of(self.model))
        for name in ("before", "after"):
            object.__setattr__(self, name, _check_weights(name, getattr(self, name), n_weights))
        if len(self.before) != len(self.after):
            raise ValueError(
                f"before has {len(self.before)} rounds and after {len(self.after)}; expected "
                "equally many."
            )
        steps = as_numbers("step", self.step, "one number, or one for each round")
        fits = steps.shape in ((), (self.n_rounds,))
        if not (fits and (np.isfinite(steps) & (steps > 0)).all()):
            raise ValueError(
                f"step={self.step!r} must be a positive number, or one for each of the "
                f"{self.n_rounds} rounds."
            )
        object.__setattr__(self, "step", np.broadcast_to(steps, self.n_rounds))
        whole("n_records", self.n_records)
        if self.max_grad_norm is not None:
            positive("max_grad_norm", self.max_grad_norm)
        not_negative("noise_std", self.noise_std)

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
            Weights of a module in the order of :meth:`torch.nn.Module.parameters`; otherwise each
            layer's matrix, in scikit-learn's layout, and its intercepts.
        """
        return weights_of(model)

    @classmethod
    def averaged(cls, updates: Sequence[Updates]) -> Updates:
        """Return the mean over several parties, the view of an attacker under secure aggregation.

        Parameters
        ----------
        updates : sequence of Updates
            Updates of each party in the same rounds; parties are weighted by their records.

        Returns
        -------
        Updates
            The mean of the updates.

        Raises
        ------
        ValueError
            If the parties did not begin the rounds with the same weights.
        """
        given = sequence("updates", updates)
        if not given or not all(isinstance(one, Updates) for one in given):
            raise ValueError("updates must be a non-empty sequence of Updates, one per party.")
        first = given[0]
        for one in given:
            if one.before.shape != first.before.shape or (one.before != first.before).any():
                raise ValueError(
                    "updates must have equal weights before each round. Pass the parties' updates "
                    "of the same rounds, in the same order."
                )
        if len({one.max_grad_norm for one in given}) > 1:
            raise ValueError("updates must have the same max_grad_norm. Average those that agree.")
        total = sum(one.n_records for one in given)
        share = np.array([one.n_records / total for one in given])
        noises = share * [one.noise_std for one in given]
        return cls(
            first.model,
            first.before,
            first.before + sum(s * (u.after - u.before) for s, u in zip(share, given, strict=True)),
            step=sum(s * u.step for s, u in zip(share, given, strict=True)),
            n_records=total,
            max_grad_norm=first.max_grad_norm,
            noise_std=float(np.linalg.norm(noises)),
        )

    @classmethod
    def from_gradient_ascent(
        cls,
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
        noise_std: float = 0.0,
    ) -> Updates:
        """Run rounds as an active attacker by gradient ascent on target records (Nasr et al. 2019).

        Before each round, the weights move up the gradient of the target records' loss. A party
        that trains on some of these records reduces their loss again, while the loss of other
        records stays high. :class:`UpdatesMembership` then attacks the weights that come back.

        Parameters
        ----------
        model : fitted network
            The model that the first round begins with, as in :class:`Updates`.
        train : callable
            One round of the other parties: takes a vector of weights and returns the vector that
            comes back. A server isolates a party by asking only this one.
        X : {array-like, DataFrame} of shape (n_targets, n_features)
            The target records.
        y : array-like of shape (n_targets,)
            Their classes.
        ascent : float
            Step along the sum of the target records' gradients before each round; 0 for an attacker
            who only isolates a party.
        n_rounds : int
            Number of rounds.
        step, n_records, max_grad_norm, noise_std : float or None
            As in :class:`Updates`, about what ``train`` does.

        Returns
        -------
        Updates
            The weights that were sent and those that came back.

        References
        ----------
        M. Nasr, R. Shokri, A. Houmansadr. Comprehensive privacy analysis of deep learning: passive
        and active white-box inference attacks. IEEE S&P 2019.
        """
        not_negative("ascent", ascent)
        whole("n_rounds", n_rounds)
        network, as_inputs = open_network(model)
        X = as_nonempty_records(X, "X")
        inputs, label = as_inputs(X), labels_as_columns(model, y)
        check_consistent_length(X, label)
        weights = weights_of(model)
        before, after = [], []
        for _ in range(n_rounds):
            found = record_gradients(network.with_weights(weights), inputs, label)
            # Nasr et al. 2019, active attack: gradient ascent on the target records
            weights = weights + ascent * num_samples(X) * found.mean(len(weights))
            before.append(weights)
            weights = call_train(train, weights)
            after.append(weights)
        return cls(model, before, after, step, n_records, max_grad_norm, noise_std)

    def __repr__(self) -> str:
        return (
            f"Updates({self.n_rounds} rounds of {self.before.shape[1]} weights, each a mean over "
            f"{self.n_records} records)"
        )

    def _gradients(self, t: int, X: Any, label: NDArray[np.intp]) -> RecordGradients:
        """Return the records' gradients at the weights before round ``t``, clipped if required."""
        inputs = self._as_inputs(X)
        found = record_gradients(self._network.with_weights(self.before[t]), inputs, label)
        return found if self.max_grad_norm is None else found.clip_to(self.max_grad_norm)

    def _implied_gradient(self, t: int) -> Float64Array:
        """Return the mean gradient implied by the update of round ``t``."""
        return (self.before[t] - self.after[t]) / self.step[t]


def call_train(train: Callable[..., Any], weights: Float64Array, *given: Any) -> Float64Array:
    """Call ``train`` on a copy of the weights and return the resulting vector of weights."""
    try:
        return np.array(train(weights.copy(), *given), dtype=float).reshape(weights.shape)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"train={train!r} must take and return a vector of {len(weights)} weights. It failed: "
            f"{describe_error(error)}"
        ) from None


def labels_as_columns(model: Any, y: Any) -> NDArray[np.intp]:
    """Return the index of the network's output for each label; labels of modules are indices."""
    known = getattr(model, "classes_", None)
    return nearest_columns(model, y) if known is None else label_columns(y, known)


def nearest_columns(model: Any, y: Any) -> NDArray[np.intp]:
    """Return the index of the network's output for each label, any output for unknown labels."""
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y has shape {y.shape}; expected one label for each record.")
    known = getattr(model, "classes_", None)
    try:
        if known is None:
            return y.astype(np.intp)
        return np.minimum(np.searchsorted(known, y), len(known) - 1)
    except (TypeError, ValueError):
        raise TypeError("y must hold labels of the same type as the model's classes.") from None


def _check_weights(name: str, given: Any, n_weights: int) -> Float64Array:
    matrix = as_numbers(name, given, "one vector of weights for each round")
    if matrix.ndim != 2 or not len(matrix) or matrix.shape[1] != n_weights:
        raise ValueError(
            f"{name} has shape {matrix.shape}; expected (n_rounds, {n_weights}), where {n_weights} "
            "is the number of the model's weights."
        )
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} holds NaN or infinity. Leave out rounds that diverged.")
    return matrix
