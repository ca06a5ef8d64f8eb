"""ConsistencyStudent: semi-supervised learning with FixMatch (Sohn et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._docs import fill_docs
from .._validation import Interval, is_number
from ._semi_supervised import SemiSupervisedNetwork

__all__ = ["ColumnCorruption", "ConsistencyStudent"]


@dataclass(frozen=True)
class ColumnCorruption:
    """Replace some numbers of each row by numbers of other rows in the same column.

    It mixes rows, so it is for public records only, never for private training.

    Parameters
    ----------
    share : float, default=0.3
        Probability of replacing each number, in (0, 1).

    Raises
    ------
    ValueError
        If ``share`` is not in (0, 1).

    References
    ----------
    D. Bahri et al., "SCARF: self-supervised contrastive learning using random feature corruption",
    ICLR 2022.

    Examples
    --------
    >>> import torch
    >>> from skprivacy.neural_network import ColumnCorruption
    >>> ColumnCorruption(0.5)(torch.eye(4)).shape
    torch.Size([4, 4])
    """

    share: float = 0.3

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 < self.share < 1:
            raise ValueError(f"share={self.share!r} must be a number between 0 and 1, such as 0.3.")

    def __call__(self, rows: Tensor) -> Tensor:
        others = rows.gather(0, torch.randint(len(rows), rows.shape))
        return torch.where(torch.rand(rows.shape) < self.share, others, rows)


@fill_docs
class ConsistencyStudent(SemiSupervisedNetwork):
    """Classifier trained by FixMatch: confident predictions become labels of distorted views.

    Parameters
    ----------
    weak : callable or list of callables, default=None
        Weak augmentation of all records: functions of a tensor of rows, such as
        :class:`RandomShift`. ``None`` leaves the records as they are.
    strong : callable or list of callables, default=None
        Strong augmentation, likewise. ``None`` is :class:`ColumnCorruption`, which suits tables.
    threshold : float, default=0.95
        Least probability of a confident prediction, in (0, 1).
    unlabelled_weight : float, default=1.0
        Weight of the loss on distorted views relative to the loss on labels.
    %(student_training)s

    Attributes
    ----------
    %(student_attributes)s

    Notes
    -----
    **Guarantees.** The student is private only if its labels are; it adds no protection.

    **Edge cases.** All columns share one scale; standardise them by public facts. Without confident
    predictions only the labels teach. A single class is always predicted.

    References
    ----------
    K. Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and
    confidence", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.neural_network import ConsistencyStudent
    >>> rng = np.random.default_rng(0)
    >>> centre = np.repeat([[-1.0], [1.0]], 200, axis=0)
    >>> X = rng.normal(centre, 1.0, (400, 20))
    >>> y = np.full(400, -1)
    >>> y[[0, 1, 200, 201]] = 0, 0, 1, 1  # two labels a class
    >>> student = ConsistencyStudent(random_state=0).fit(X, y)
    >>> float((student.predict(X) == np.repeat([0, 1], 200)).mean()) > 0.9
    True
    """

    _parameter_constraints: dict = {
        **SemiSupervisedNetwork._parameter_constraints,
        "weak": [callable, "array-like", None],
        "strong": [callable, "array-like", None],
        "threshold": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        weak: Any = None,
        strong: Any = None,
        threshold: float = 0.95,
        unlabelled_weight: float = 1.0,
        module: Any = None,
        hidden_layer_sizes: tuple[int, ...] = (256,),
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.weak = weak
        self.strong = strong
        self.threshold = threshold
        self.unlabelled_weight = unlabelled_weight
        self.module = module
        self.hidden_layer_sizes = hidden_layer_sizes
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _labeled_view(self, rows: Tensor) -> Tensor:
        return _view(self.weak, rows)

    def _unlabeled_loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        # FixMatch (Sohn et al. 2020), Section 2: pseudo-labels from weakly augmented rows
        with torch.no_grad():
            sureness, answer = network(_view(self.weak, rows)).softmax(1).max(1)
        # ... and their cross-entropy on strongly augmented rows, where the network is confident
        distorted = network(_view(self.strong or ColumnCorruption(), rows))
        sure = (sureness >= self.threshold).float()
        return (sure * F.cross_entropy(distorted, answer, reduction="none")).mean()


def _view(steps: Any, rows: Tensor) -> Tensor:
    given = steps if isinstance(steps, list | tuple) else [steps]
    if steps is not None and not all(map(callable, given)):
        raise TypeError(f"weak or strong={steps!r} must be a function of rows, or a list of them.")
    for step in [steps] if callable(steps) else steps or []:
        rows = step(rows)
    return rows
