"""Encoders of public records: SCARF (Bahri et al. 2022) and SimCLR (Chen et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from .._docs import fill_docs
from .augmentation import RandomDistortion, augmentation_steps
from .contrastive import CONSTRAINTS, ENCODER_DOCS, ContrastiveEncoder, Views

_CHANNELS = (32, 64, 128)
_CORRUPTION = 0.6  # share of the columns that SCARF replaces
_MAX_DEVIATIONS = 5.0  # at which columns are clipped: rare categories are outliers


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
        "column_groups": ["array-like", None],
    }

    def __init__(
        self,
        n_components: int = 64,
        *,
        hidden_layer_sizes: Sequence[int] = (256, 256),
        column_groups: ArrayLike | None = None,
        temperature: float = 1.0,
        batch_size: int = 128,
        epochs: int = 30,
        learning_rate: float = 0.001,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.column_groups = column_groups
        self.temperature = temperature
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state

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
        n_replaced = max(1, round(_CORRUPTION * n_groups))

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


@fill_docs(ENCODER_DOCS)
class SimCLREncoder(ContrastiveEncoder):
    """Encoder of images trained by SimCLR on public images without labels.

    A convolutional network learns to match two distorted views of the same image. A model on its
    features needs far fewer private records, and less noise, than a model on pixels.

    Parameters
    ----------
    n_components : int, default=64
        Number of features.
    image_shape : tuple, default=None
        ``(height, width)`` or ``(channels, height, width)``. ``None`` reads rows as square grey
        images, or as images of height 1 if their number of pixels is not a square.
    augment : callable or list of callables, default=None
        Random view of each row: maps a tensor of rows to one of the same shape, such as
        :class:`~skprivacy.neural_network.RandomShift`. ``None`` rotates, scales, slants, shifts and
        bends images, changes their strokes and covers a part: it suits drawings and handwriting.
        For photographs use the augmentations of Chen et al.
    temperature : float, default=0.2
        Divisor of similarities before the softmax of the loss.
    batch_size : int, default=256
        Images that the loss compares with each other.
    epochs : int, default=8
        Passes over the public images.
    learning_rate : float, default=0.002
        The largest step size of Adam.
    %(contrastive_training)s

    Attributes
    ----------
    module_ : torch.nn.Module
        Maps rows to features.
    image_shape_ : tuple (channels, height, width)
        The shape in use.
    %(encoder_attributes)s
    %(feature_attributes)s

    Notes
    -----
    %(public_encoder)s

    **Edge cases.** Images are divided by the largest absolute value of the public ones. NaN and
    infinity are refused. On a GPU, equal ``random_state`` may give slightly different weights.

    References
    ----------
    T. Chen, S. Kornblith, M. Norouzi, G. Hinton, "A simple framework for contrastive learning of
    visual representations", ICML 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.frozen import FrozenEstimator
    >>> from sklearn.pipeline import make_pipeline
    >>> from skprivacy.linear_model import OutputPerturbationClassifier
    >>> from skprivacy.neural_network import SimCLREncoder
    >>> X, y = load_digits(return_X_y=True)
    >>> X_public, X, y = X[:1000], X[1000:], y[1000:]
    >>> encoder = SimCLREncoder(n_components=16, epochs=1, random_state=0).fit(X_public)
    >>> encoder.transform(X).shape
    (797, 16)
    >>> model = make_pipeline(
    ...     FrozenEstimator(encoder),
    ...     OutputPerturbationClassifier(epsilon=3.0, bounds=(-1, 1), classes=range(10)),
    ... ).fit(X, y)
    """

    _computes_records_apart = True
    _parameter_constraints = {
        **CONSTRAINTS,
        "image_shape": [tuple, list, None],
        "augment": [callable, tuple, list, None],
    }

    def __init__(
        self,
        n_components: int = 64,
        *,
        image_shape: Sequence[int] | None = None,
        augment: Callable | Sequence[Callable] | None = None,
        temperature: float = 0.2,
        batch_size: int = 256,
        epochs: int = 8,
        learning_rate: float = 0.002,
        device: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.image_shape = image_shape
        self.augment = augment
        self.temperature = temperature
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.device = device
        self.random_state = random_state

    def _make_module(self, rows: NDArray[np.float32]) -> nn.Module:
        self.image_shape_ = _resolve_image_shape(self.image_shape, rows.shape[1])
        largest = float(np.abs(rows).max())
        return convolution_net(self.image_shape_, self.n_components, largest or 1.0)

    def _make_views(self, rows: Tensor) -> Views:
        given = RandomDistortion(self.image_shape_) if self.augment is None else self.augment
        steps = augmentation_steps("augment", given)

        def view(batch: Tensor) -> Tensor:
            shape = batch.shape
            for step in steps:
                batch = step(batch)
            if not isinstance(batch, Tensor) or batch.shape != shape:
                raise ValueError(
                    f"augment={self.augment!r} must keep the shape of its rows, {tuple(shape)}; "
                    f"got {getattr(batch, 'shape', type(batch))}."
                )
            return batch

        return lambda batch: (view(batch), view(batch))

    def _saved(self) -> dict[str, Any]:
        return {"image_shape_": list(self.image_shape_)}

    def _restore(self, saved: dict[str, Any]) -> nn.Module:
        self.image_shape_ = _resolve_image_shape(saved["image_shape_"], self.n_features_in_)
        return convolution_net(self.image_shape_, self.n_components)


class _Images(nn.Module):
    """Layer that turns rows into images of a public scale."""

    def __init__(self, shape: tuple[int, ...], scale: float) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("scale", torch.tensor(scale))
        self.scale: Tensor

    def forward(self, rows: Tensor) -> Tensor:
        images = rows.reshape(-1, *self.shape) / self.scale
        return images.contiguous(memory_format=torch.channels_last)


def convolution_net(
    shape: tuple[int, int, int], n_components: int, scale: float = 1.0
) -> nn.Sequential:
    """Return three convolutions, each halving height and width, and a linear layer."""
    layers: list[nn.Module] = [_Images(shape, scale)]
    channels, height, width = shape
    for wider in _CHANNELS:
        layers += [
            nn.Conv2d(channels, wider, 3, padding=1, bias=False),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
        ]
        channels, height, width = wider, -(-height // 2), -(-width // 2)
    layers += [nn.Flatten(), nn.Linear(channels * height * width, n_components)]
    # On a CPU, channels-last memory nearly halves the time of a step.
    net = nn.Sequential(*layers)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in stubs


def _resolve_image_shape(given: Any, pixels: int) -> tuple[int, int, int]:
    """Return channels, height and width of images of ``pixels`` numbers."""
    side = math.isqrt(pixels)
    if given is None:
        return (1, side, side) if side * side == pixels else (1, 1, pixels)
    shape = tuple(given) if len(given) == 3 else (1, *given)
    whole = all(isinstance(n, Integral) and int(n) >= 1 for n in shape)
    if len(shape) != 3 or not whole or math.prod(shape) != pixels:
        raise ValueError(
            f"image_shape={given!r} does not fit rows of {pixels} numbers; expected (height, "
            "width) or (channels, height, width) with that product."
        )
    return int(shape[0]), int(shape[1]), int(shape[2])
