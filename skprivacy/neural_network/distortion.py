"""RandomDistortion: random affine and elastic distortions of drawings and handwriting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._validation import is_number
from .augmentation import check_image_shape, rows_as_images

__all__ = ["RandomDistortion"]

_ELASTIC_POINTS = 4  # control points per axis of the elastic movement, which is smooth between them


@dataclass(frozen=True)
class RandomDistortion:
    """Rotate, scale, slant, shift and bend each image, change its strokes, and cover a part of it.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of the image in each row. Pixels from outside of an image are
        zero.
    degrees : float, default=20.0
        The largest rotation either way.
    scale : float, default=0.25
        The largest relative change of size.
    slant : float, default=0.3
        The largest shear, as a share of the height.
    shift : float, default=0.1
        The largest shift in each direction, as a share of height and width.
    bend : float, default=0.08
        Standard deviation of the elastic movement, as a share of half of height and width.
    thickness : float, default=1.0
        Growth or shrinkage of strokes: 1 is up to one pixel on each side, 0 is none.
    cover : float, default=0.4
        The longest side of the covered rectangle, as a share of height and width.

    Raises
    ------
    ValueError
        If ``shape`` is not three positive integers, another parameter is negative or not finite, or
        the rows do not hold images of that shape.

    Examples
    --------
    >>> import torch
    >>> from skprivacy.neural_network import RandomDistortion
    >>> RandomDistortion((1, 28, 28))(torch.ones(5, 784)).shape
    torch.Size([5, 784])
    """

    shape: tuple[int, int, int]
    degrees: float = 20.0
    scale: float = 0.25
    slant: float = 0.3
    shift: float = 0.1
    bend: float = 0.08
    thickness: float = 1.0
    cover: float = 0.4

    def __post_init__(self) -> None:
        check_image_shape(self.shape)
        for name, value in vars(self).items():
            if name != "shape" and not (is_number(value) and 0 <= value < math.inf):
                raise ValueError(f"{name}={value!r} must be a number of at least 0.")

    def __call__(self, rows: Tensor) -> Tensor:
        images = rows_as_images(rows, self.shape)
        moved = F.grid_sample(images, self._grid(images), align_corners=False)
        return (self._change_strokes(moved) * self._mask(images)).flatten(1)

    def _grid(self, images: Tensor) -> Tensor:
        """Return the source position of each pixel, from -1 to 1."""
        n, like = len(images), _device_and_dtype(images)
        angle, size, slant, *shift = _draw_symmetric(5, n, like)
        angle = angle * math.radians(self.degrees)
        size = torch.exp(size * math.log1p(self.scale))
        slant = slant * self.slant
        cos, sin = size * torch.cos(angle), size * torch.sin(angle)
        across = torch.stack([cos, cos * slant - sin, 2 * self.shift * shift[0]], 1)
        down = torch.stack([sin, sin * slant + cos, 2 * self.shift * shift[1]], 1)
        moves = torch.stack([across, down], 1)
        grid = F.affine_grid(moves, list(images.shape), align_corners=False)
        points = self.bend * torch.randn(n, 2, _ELASTIC_POINTS, _ELASTIC_POINTS, **like)
        bends = F.interpolate(points, images.shape[2:], mode="bicubic", align_corners=True)
        return grid + bends.movedim(1, -1)

    def _change_strokes(self, images: Tensor) -> Tensor:
        """Return images with strokes between their own and those one pixel wider or narrower."""
        change = self.thickness * next(
            _draw_symmetric(1, len(images), _device_and_dtype(images))
        ).reshape(-1, 1, 1, 1)
        last = images.contiguous(memory_format=torch.channels_last)
        wider = F.max_pool2d(last, 3, stride=1, padding=1)
        narrower = -F.max_pool2d(-last, 3, stride=1, padding=1)
        return (
            images
            + change.clamp(min=0) * (wider - images)
            - change.clamp(max=0) * (narrower - images)
        )

    def _mask(self, images: Tensor) -> Tensor:
        """Return zeros in one rectangle of each image, and ones elsewhere."""
        height, width = images.shape[2:]
        n, device = len(images), images.device
        inside = []
        for pixels in (height, width):
            centre, side = torch.rand(2, n, 1, device=device)
            at = (torch.arange(pixels, device=device) + 0.5) / pixels
            inside.append((at - centre).abs() < self.cover * side / 2)
        covered = inside[0][:, None, :, None] & inside[1][:, None, None, :]
        return (~covered).to(images.dtype)


def _device_and_dtype(images: Tensor) -> dict[str, Any]:
    return {"device": images.device, "dtype": images.dtype}


def _draw_symmetric(count: int, n: int, like: dict[str, Any]) -> Iterator[Tensor]:
    """Yield ``count`` vectors of n numbers between -1 and 1."""
    return iter(2 * torch.rand(count, n, **like) - 1)
