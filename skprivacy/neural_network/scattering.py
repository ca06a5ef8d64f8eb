"""ScatteringTransformer: the scattering transform of small images (Bruna and Mallat 2013)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import functional as F

from .._environment import one_torch_thread
from .._input_data import check_array
from .._validation import sequence, whole
from ._training.torch_modes import map_each_record

_ANGLES, _SLANT = 8, 0.5
_GROUPS = 27
_POOLED = 4  # pixels of the image per feature, along each axis


class ScatteringTransformer(TransformerMixin, BaseEstimator):
    """Scattering transform of small grey images: features from fixed wavelets, without training.

    With two scales and eight angles, an image becomes 81 channels of a quarter of its height and
    width. Groups of channels are then normalised to mean 0 and variance 1 within the image. A
    linear model on these features is about as good as a small convolutional network.

    Parameters
    ----------
    image_shape : tuple (height, width), default=None
        Multiples of 4, at least 12. ``None`` reads rows as square images.

    Attributes
    ----------
    image_shape_ : tuple
        The shape in use.
    n_features_in_ : int
        Pixels of an image.
    data_independent_ : bool
        True: nothing is learned.

    Notes
    -----
    **Guarantees.** The features of an image are a function of that image alone, to the last bit:
    each image is transformed in its own call. ``fit`` reads only the number of pixels. So the
    features cost no privacy, and a guarantee on features is a guarantee on images.

    **Edge cases.** A black image has features of 0. NaN and infinity stay within their image.

    References
    ----------
    J. Bruna and S. Mallat, "Invariant scattering convolution networks", TPAMI 2013.
    F. Tramer and D. Boneh, "Differentially private learning needs better features (or much more
    data)", ICLR 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.neural_network import ScatteringTransformer
    >>> images = np.random.default_rng(0).uniform(size=(5, 784))
    >>> ScatteringTransformer().fit_transform(images).shape
    (5, 3969)
    """

    _computes_records_apart = True

    # written by save_model, in the words of persistence.attribute_states
    _saved_state = {"image_shape_": "image_shape"}

    def __init__(self, image_shape: tuple[int, int] | None = None) -> None:
        self.image_shape = image_shape

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = True
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def _finish_loading(self) -> None:
        self.data_independent_ = True

    def fit(self, X: ArrayLike, y: Any = None) -> ScatteringTransformer:
        """Check that rows are images of the right shape.

        Parameters
        ----------
        X : array-like of shape (n_samples, height * width) or (n_samples, height, width)
            Images; only their shape is read.
        y : None
            Ignored.

        Returns
        -------
        ScatteringTransformer
            The fitted transformer.

        Raises
        ------
        ValueError
            If rows are not images of ``image_shape``.
        """
        images = _check_images(X)
        pixels = math.prod(images.shape[1:])
        side = math.isqrt(pixels)
        if self.image_shape is not None:
            shape = sequence("image_shape", self.image_shape)
            for size in shape:
                whole("image_shape", size)
        else:
            shape = images.shape[1:] if images.ndim == 3 else (side, side)
        fits = len(shape) == 2 and math.prod(shape) == pixels and min(shape) >= 12
        if not fits or any(size % _POOLED for size in shape):
            raise ValueError(
                f"image_shape={self.image_shape!r} does not fit rows of {pixels} pixels; expected "
                "a height and a width with that product, multiples of 4 and at least 12. Pad or "
                "resize the images."
            )
        self.image_shape_ = int(shape[0]), int(shape[1])
        self.n_features_in_ = pixels
        self.data_independent_ = True
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the features of each image.

        Parameters
        ----------
        X : array-like of shape (n_samples, height * width) or (n_samples, height, width)
            Images. Each is transformed by itself.

        Returns
        -------
        ndarray of shape (n_samples, 81 * height * width / 16)
            The scattering coefficients.
        """
        check_is_fitted(self, "image_shape_")
        rows = _check_images(X)
        if math.prod(rows.shape[1:]) != self.n_features_in_:
            raise ValueError(
                f"X has {math.prod(rows.shape[1:])} features, but ScatteringTransformer is "
                f"expecting {self.n_features_in_} features as input."
            )
        images = torch.from_numpy(np.ascontiguousarray(rows, np.float32))
        images = images.reshape(-1, 1, *self.image_shape_)
        fine, coarse = _wavelets(scale=0), _wavelets(scale=1)

        def features(image: Tensor) -> Tensor:
            return F.group_norm(_channels(image, fine, coarse), _GROUPS).flatten(1)

        with torch.inference_mode(), one_torch_thread():
            return np.asarray(map_each_record(features, images).numpy())


def _check_images(X: ArrayLike) -> NDArray:
    return np.asarray(
        check_array(X, dtype=np.float32, allow_nd=True, ensure_all_finite=False, input_name="X")
    )


def _channels(images: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
    """Return blurred channels of order 0 (the image), order 1 (both scales) and order 2."""
    size = images.shape[-2] // _POOLED, images.shape[-1] // _POOLED
    # Bruna and Mallat 2013: |x * psi|, and | |x * psi| * psi'| at a coarser scale; then averages
    at_fine = _wavelet_modulus(images, fine, 1)
    at_coarse = _wavelet_modulus(images, coarse, 2)
    of_fine = _wavelet_modulus(at_fine, coarse, 2)
    return torch.cat([_blur_maps(m, size) for m in (images, at_fine, at_coarse, of_fine)], 1)


def _wavelet_modulus(maps: Tensor, wavelets: Tensor, step: int) -> Tensor:
    """Return the modulus of each map's response to each wavelet, at every ``step``-th pixel."""
    margin = wavelets.shape[-1] // 2
    single = maps.flatten(0, 1)[:, None]
    real, imaginary = F.conv2d(single, wavelets, stride=step, padding=margin).chunk(2, 1)
    return torch.hypot(real, imaginary).unflatten(0, maps.shape[:2]).flatten(1, 2)


def _blur_maps(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Return averages of shape ``size`` under a Gaussian of 1.6 pixels of the image."""
    rows, columns = (_gaussian_weights(n, at) for n, at in zip(maps.shape[-2:], size, strict=True))
    return rows @ maps @ columns.T


@lru_cache(maxsize=8)
def _gaussian_weights(n: int, size: int) -> Tensor:
    step = _POOLED * size / n  # pixels of the image
    distance = step * torch.arange(n) - (_POOLED * torch.arange(size)[:, None] + 1.5)
    weights = torch.exp(-(distance**2) / (2 * 1.6**2))
    return weights / weights.sum(1, keepdim=True)


def _wavelets(scale: int) -> Tensor:
    """Return Morlet wavelets of all angles: real parts, then imaginary parts."""
    width, frequency = 0.8 * 2**scale, 0.75 * math.pi / 2**scale
    x = torch.arange(-5.0 * 2**scale, 5 * 2**scale + 1)
    angles = math.pi / _ANGLES * torch.arange(_ANGLES)[:, None, None]
    along = x[:, None] * angles.cos() + x * angles.sin()
    across = x * angles.cos() - x[:, None] * angles.sin()
    bell = torch.exp(-(along**2 + (_SLANT * across) ** 2) / (2 * width**2))
    bell *= _SLANT / (2 * math.pi * width**2)
    real = bell * (frequency * along).cos()
    real -= bell * (real.sum((1, 2)) / bell.sum((1, 2)))[:, None, None]
    return torch.cat([real, bell * (frequency * along).sin()])[:, None]
