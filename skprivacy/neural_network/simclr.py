"""SimCLREncoder: contrastive features of images (Chen et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._docs import fill_docs
from .augmentation import RandomDistortion, augmentation_steps
from .contrastive import CONSTRAINTS, ENCODER_DOCS, ContrastiveEncoder, Views

_CHANNELS = (32, 64, 128)


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
        verbose: int = 0,
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
        self.verbose = verbose

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
