"""SCARFEncoder: contrastive features of tables (Bahri et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from .._docs import fill_docs
from .._validation import Interval
from .contrastive import CONSTRAINTS, ENCODER_DOCS, ContrastiveEncoder, Views

_MAX_DEVIATIONS = (
    5.0  # standard deviations at which columns are clipped: rare categories are outliers
)


@fill_docs(ENCODER_DOCS)
class SCARFEncoder(ContrastiveEncoder):
    """Encoder of tables trained by SCARF on public records without labels.

    A perceptron learns to match each record with a copy in which most columns come from other
    records.

    Parameters
    ----------
    n_components : int, default=64
        Number of features.
    hidden_layer_sizes : sequence of int, default=(256, 256)
        Units of the hidden layers.
    corruption : float, default=0.6
        Share of the columns that are replaced.
    column_groups : array-like of shape (n_features,), default=None
        A number for each column. Columns of equal number, such as the indicators of one category,
        are replaced together. ``None`` replaces each column by itself.
    temperature : float, default=1.0
        Divisor of similarities before the softmax of the loss.
    batch_size : int, default=128
        Records that the loss compares with each other.
    epochs : int, default=30
        Passes over the public records.
    learning_rate : float, default=0.001
        The largest step size of Adam.
    %(contrastive_training)s

    Attributes
    ----------
    module_ : torch.nn.Module
        Maps rows to features.
    %(encoder_attributes)s
    %(feature_attributes)s

    Notes
    -----
    %(public_encoder)s

    **Edge cases.** Columns are standardised by the public records' means and deviations, and
    clipped at five deviations. Constant columns are centred. NaN and infinity are refused. On a
    GPU, equal ``random_state`` may give slightly different weights.

    References
    ----------
    D. Bahri, H. Jiang, Y. Tay, D. Metzler, "SCARF: Self-supervised contrastive learning using
    random feature corruption", ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from skprivacy.neural_network import SCARFEncoder
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> encoder = SCARFEncoder(n_components=8, epochs=2, random_state=0).fit(X[:300])
    >>> encoder.transform(X[300:]).shape
    (269, 8)
    """

    _computes_records_apart = True
    _parameter_constraints = {
        **CONSTRAINTS,
        "hidden_layer_sizes": ["array-like"],
        "corruption": [Interval(Real, 0, 1, closed="right")],
        "column_groups": ["array-like", None],
    }

    def __init__(
        self,
        n_components: int = 64,
        *,
        hidden_layer_sizes: Sequence[int] = (256, 256),
        corruption: float = 0.6,
        column_groups: ArrayLike | None = None,
        temperature: float = 1.0,
        batch_size: int = 128,
        epochs: int = 30,
        learning_rate: float = 0.001,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.corruption = corruption
        self.column_groups = column_groups
        self.temperature = temperature
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _make_module(self, rows: NDArray[np.float32]) -> nn.Module:
        exact = rows.astype(np.float64)  # means of a million rows in single precision drift
        mean, deviation = exact.mean(axis=0), exact.std(axis=0)
        scale = np.where(deviation > 0, deviation, 1.0)
        return self._perceptron(
            torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(scale.astype(np.float32))
        )

    def _make_views(self, rows: Tensor) -> Views:
        column_groups = _column_groups(self.column_groups, rows.shape[1]).to(rows.device)
        n_groups = int(column_groups.max()) + 1
        n_replaced = max(1, round(self.corruption * n_groups))

        # Bahri et al. 2022, Algorithm 1: replace random features by draws from their marginals
        def corrupted(batch: Tensor) -> Tensor:
            n = len(batch)
            rank = torch.rand(n, n_groups, device=rows.device).argsort(1).argsort(1)
            donors = torch.randint(len(rows), (n, n_groups), device=rows.device)
            others = rows[donors[:, column_groups], torch.arange(rows.shape[1], device=rows.device)]
            return torch.where((rank < n_replaced)[:, column_groups], others, batch)

        return lambda batch: (batch, corrupted(batch))

    def _saved(self) -> dict[str, Any]:
        return {}

    def _restore(self, saved: dict[str, Any]) -> nn.Module:
        return self._perceptron(torch.zeros(self.n_features_in_), torch.ones(self.n_features_in_))

    def _perceptron(self, mean: Tensor, scale: Tensor) -> nn.Module:
        layers: list[nn.Module] = [_StandardizedColumns(mean, scale)]
        width = len(mean)
        for wanted in np.atleast_1d(np.asarray(self.hidden_layer_sizes)).tolist():
            if type(wanted) is not int or wanted < 1:
                raise ValueError(
                    f"hidden_layer_sizes={self.hidden_layer_sizes!r} must be positive whole "
                    "numbers, such as (256, 256)."
                )
            layers += [nn.Linear(width, wanted), nn.ReLU()]
            width = wanted
        return nn.Sequential(*layers, nn.Linear(width, self.n_components))


class _StandardizedColumns(nn.Module):
    """Columns of mean 0 and deviation 1 among the public records."""

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.mean: Tensor
        self.scale: Tensor

    def forward(self, rows: Tensor) -> Tensor:
        return ((rows - self.mean) / self.scale).clamp(-_MAX_DEVIATIONS, _MAX_DEVIATIONS)


def _column_groups(given: Any, n_features: int) -> Tensor:
    """Return the group index of each column, from 0."""
    if given is None:
        return torch.arange(n_features)
    found = np.asarray(given)
    if found.shape != (n_features,):
        raise ValueError(
            f"column_groups has shape {found.shape}; expected ({n_features},). Pass one number per "
            "column of X."
        )
    return torch.from_numpy(np.unique(found, return_inverse=True)[1].reshape(-1))
