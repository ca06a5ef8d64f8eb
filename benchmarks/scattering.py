"""The scattering transform of small images: fixed wavelets, nothing learned, one image at a time.

With two scales and eight angles an image of 28 by 28 pixels becomes 81 channels of 7 by 7. Groups
of channels are then brought to mean 0 and variance 1 within the image. No image sees another, so
that the features cost no privacy.

J. Bruna and S. Mallat, "Invariant scattering convolution networks", TPAMI 2013.
F. Tramer and D. Boneh, "Differentially private learning needs better features", ICLR 2021.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["scattering"]

_ANGLES, _SLANT = 8, 0.5
_GROUPS = 27


def scattering(images: Tensor, part: int = 64) -> Tensor:
    """Return normalised features of shape (n, 81 * 7 * 7) for images of shape (n, 28, 28)."""
    fine, coarse = _wavelets(scale=0), _wavelets(scale=1)
    maps = torch.cat([_maps(p, fine, coarse) for p in images[:, None].split(part)])
    return F.group_norm(maps, _GROUPS).flatten(1)


def _maps(images: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
    """Return blurred: the image, the moduli of its wavelets, and the moduli of their wavelets."""
    at_fine = _modulus(images, fine, 1)
    at_coarse = _modulus(images, coarse, 2)
    of_fine = _modulus(at_fine, coarse, 2)
    return torch.cat([_blurred(m) for m in (images, at_fine, at_coarse, of_fine)], 1)


def _modulus(maps: Tensor, wavelets: Tensor, step: int) -> Tensor:
    """Return every map's response to every wavelet, at every ``step``-th pixel."""
    margin = wavelets.shape[-1] // 2
    single = maps.flatten(0, 1)[:, None]
    real, imaginary = F.conv2d(single, wavelets, stride=step, padding=margin).chunk(2, 1)
    return torch.hypot(real, imaginary).unflatten(0, maps.shape[:2]).flatten(1, 2)


def _blurred(maps: Tensor) -> Tensor:
    """Return averages of shape (7, 7) under a Gaussian bell of 1.6 pixels of the image."""
    size = maps.shape[-1]
    step, pixels = 28 / size, torch.arange(size)
    distance = step * pixels - (4.0 * torch.arange(7)[:, None] + 1.5)
    weights = torch.exp(-(distance**2) / (2 * 1.6**2))
    weights /= weights.sum(1, keepdim=True)
    return weights @ maps @ weights.T


def _wavelets(scale: int) -> Tensor:
    """Return Morlet wavelets of all angles, real parts and then imaginary ones.

    A wave under a bell that is longer across the wave, with the mean taken off.
    """
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
