"""VATStudent: semi-supervised learning with virtual adversarial training (Miyato et al. 2018)."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._docs import fill_docs
from .._validation import Interval
from ._semi_supervised import SemiSupervisedNetwork

__all__ = ["VATStudent"]

_PROBE = 1e-3  # length of the step that finds the worst direction, in the unit of the radius


@fill_docs
class VATStudent(SemiSupervisedNetwork):
    """Classifier trained by virtual adversarial training on partly labelled records.

    For each record it finds the direction in which the prediction changes most, and penalises that
    change. It also penalises the entropy of predictions, so that boundaries between classes stay
    away from records.

    Parameters
    ----------
    radius : float, default=0.3
        Distance over which predictions must not change, as a share of the root mean square distance
        of records from their mean.
    unlabelled_weight : float, default=1.0
        Weight of the penalties relative to the loss on labels.
    %(student_training)s

    Attributes
    ----------
    %(student_attributes)s

    Notes
    -----
    **Guarantees.** The student is private only if its labels are; it adds no protection.

    **Edge cases.** All columns share one scale; standardise them by public facts. A single class is
    always predicted.

    References
    ----------
    T. Miyato et al., "Virtual adversarial training: a regularization method for supervised and
    semi-supervised learning", TPAMI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.neural_network import VATStudent
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-2, 1, (200, 2)), rng.normal(2, 1, (200, 2))])
    >>> y = np.full(400, -1)
    >>> y[[0, 200]] = 0, 1  # one label a class
    >>> student = VATStudent(random_state=0).fit(X, y)
    >>> float((student.predict(X) == np.repeat([0, 1], 200)).mean()) > 0.9
    True
    """

    _parameter_constraints: dict = {
        **SemiSupervisedNetwork._parameter_constraints,
        "radius": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        radius: float = 0.3,
        unlabelled_weight: float = 1.0,
        module: Any = None,
        hidden_layer_sizes: tuple[int, ...] = (256,),
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.radius = radius
        self.unlabelled_weight = unlabelled_weight
        self.module = module
        self.hidden_layer_sizes = hidden_layer_sizes
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _labeled_view(self, rows: Tensor) -> Tensor:
        return rows

    def _unlabeled_loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        unit = float(network[0].scale) * math.sqrt(rows.shape[1])  # type: ignore[index]
        logs = network(rows).log_softmax(1)
        # Miyato et al. 2018, "VAT+EntMin": the conditional entropy of the predictions
        entropy = -(logs.exp() * logs).sum(1).mean()
        worst = _worst_direction(network, rows, logs.detach(), _PROBE * unit)
        # The local distributional smoothness loss of Miyato et al. 2018
        moved = network(rows + self.radius * unit * worst).log_softmax(1)
        return entropy + F.kl_div(moved, logs.detach(), log_target=True, reduction="batchmean")


def _worst_direction(network: nn.Module, rows: Tensor, logs: Tensor, length: float) -> Tensor:
    """Return for each row the unit vector along which its prediction changes most.

    One power iteration, as in Algorithm 1 of Miyato et al. 2018.
    """
    start = F.normalize(torch.randn_like(rows), dim=1).requires_grad_()
    moved = network(rows + length * start).log_softmax(1)
    change = F.kl_div(moved, logs, log_target=True, reduction="sum")
    [gradient] = torch.autograd.grad(change, start)
    return F.normalize(gradient / gradient.abs().amax(1, keepdim=True).clamp_min(1e-30), dim=1)
