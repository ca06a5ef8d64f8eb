"""Gradient that a party sends in federated learning, to simulate it for reconstruction attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._extras import name_missing_extra
from ..._validation import generator, not_negative, positive
from .inversion_attack import check_labelled_rows


def party_gradient(
    target: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    loss: Any = None,
    max_grad_norm: float | None = None,
    noise_multiplier: float = 0.0,
    random_state: Any = None,
) -> dict[str, NDArray[Any]]:
    """Compute the gradient that a party with these records sends, to attack it.

    It is the mean of the records' gradients, each clipped if ``max_grad_norm`` is given, plus
    normal noise of standard deviation ``noise_multiplier * max_grad_norm / n_records``. The noise
    is for experiments only and gives no privacy guarantee.

    Parameters
    ----------
    target : torch module or fitted estimator
        See :class:`GradientInversion`.
    X : array-like of shape (n_records, n_features)
        The party's records.
    y : array-like of shape (n_records,)
        Their labels.
    loss : callable, default=None
        See :class:`GradientInversion`.
    max_grad_norm : float, default=None
        Norm to which the gradient of each record is clipped. None: not clipped.
    noise_multiplier : float, default=0.0
        Standard deviation of the noise on the sum, in units of ``max_grad_norm``.
    random_state : int, Generator or None, default=None
        Seed of the noise.

    Returns
    -------
    dict of ndarray
        The gradient by the names of the target's weights, in their order.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.attacks import party_gradient
    >>> model = LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 0, 1])
    >>> sorted(party_gradient(model, [[3.0]], [1]))
    ['0.bias', '0.weight']
    """
    if max_grad_norm is not None:
        positive("max_grad_norm", max_grad_norm)
    not_negative("noise_multiplier", noise_multiplier)
    if noise_multiplier and max_grad_norm is None:
        raise ValueError(
            f"noise_multiplier={noise_multiplier!r} needs max_grad_norm, its unit. Pass the norm "
            "to which gradients are clipped."
        )
    with name_missing_extra():
        from ..torch_gradients import LossGradients
    rows, labels = check_labelled_rows(X, y, "X")
    gradients = LossGradients(target, loss, max_grad_norm)
    each = gradients.per_record(gradients.records(rows), gradients.targets(labels))
    mean = each.mean(0)
    if noise_multiplier:
        scale = noise_multiplier * float(max_grad_norm or 0.0) / len(rows)
        drawn = generator("random_state", random_state).normal(scale=scale, size=len(mean))
        mean = mean + mean.new_tensor(drawn)
    return {name: part.numpy() for name, part in gradients.parts(mean).items()}


def gradient_of_step(before: Any, after: Any, learning_rate: float) -> Any:
    """Compute the gradient of one step of gradient descent from the weights before and after it.

    Parameters
    ----------
    before, after : list or dict of arrays
        Weights before and after the step, in the same structure.
    learning_rate : float
        Learning rate of the step, without momentum.

    Returns
    -------
    list or dict of ndarray
        The gradient, in the structure of ``before``.

    Raises
    ------
    ValueError
        If the structures or shapes differ, or the learning rate is not positive.

    Examples
    --------
    >>> from skprivacy.attacks import gradient_of_step
    >>> gradient_of_step([[1.0, 2.0]], [[0.5, 2.0]], learning_rate=0.5)
    [array([1., 0.])]
    """
    positive("learning_rate", learning_rate)
    for name, weights in (("before", before), ("after", after)):
        if not isinstance(weights, Mapping | Sequence) or isinstance(weights, str | bytes):
            raise TypeError(
                f"{name} must be a list of arrays, or a dict, not of type {type(weights).__name__}."
            )
    if isinstance(before, Mapping) != isinstance(after, Mapping) or len(before) != len(after):
        raise ValueError(
            "before and after must be two lists of equally many arrays, or two dicts with the same "
            "keys."
        )
    if isinstance(before, Mapping):
        if set(before) != set(after):
            raise ValueError(
                f"before has the keys {sorted(before)} and after {sorted(after)}; expected the "
                "same keys."
            )
        return {key: _gradient_of_weight(before[key], after[key], learning_rate) for key in before}
    return [_gradient_of_weight(b, a, learning_rate) for b, a in zip(before, after, strict=True)]


def _gradient_of_weight(before: Any, after: Any, learning_rate: float) -> NDArray[Any]:
    old, new = (_as_array(value) for value in (before, after))
    if not all(np.issubdtype(weight.dtype, np.number) for weight in (old, new)):
        raise TypeError(f"before and after must hold numbers, not {old.dtype} and {new.dtype}.")
    if old.shape != new.shape:
        raise ValueError(
            f"before has an array of shape {old.shape} and after of shape {new.shape}; expected "
            "equal shapes."
        )
    return np.asarray((old - new) / learning_rate)


def _as_array(value: Any) -> NDArray[Any]:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
