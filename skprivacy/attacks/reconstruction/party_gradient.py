"""Gradient that a party sends in federated learning, to simulate it for reconstruction attacks."""

from __future__ import annotations

from typing import Any

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
        noise = generator("random_state", random_state).normal(scale=scale, size=len(mean))
        mean = mean + mean.new_tensor(noise)
    return {name: part.numpy() for name, part in gradients.split_weights(mean).items()}
