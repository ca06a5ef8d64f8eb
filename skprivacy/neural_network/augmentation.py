"""Random views of images for augmentation multiplicity (De et al. 2022).

Start reading at :class:`Views`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .._validation import flag, is_whole, whole
from ._training.torch_modes import is_off_cpu

Augment = Callable[[Tensor], Tensor]
_TRIAL_SEEDS = 3  # seeds: with one, a row might by chance be mixed only with itself
_ELASTIC_POINTS = 4  # control points per axis of the elastic movement, which is smooth between them


@dataclass(frozen=True)
class RandomShift:
    """Shift each image by some pixels up or down and left or right, and mirror it if asked.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of the image in each row.
    pixels : int, default=2
        The largest shift in each direction. All shifts are equally likely; new pixels are zero.
    flip : bool, default=False
        Whether to mirror each image left to right with probability 1/2.

    Raises
    ------
    ValueError
        If ``shape`` is not three positive integers, ``pixels`` is not an integer of at least 0, or
        the rows do not hold images of that shape.

    Examples
    --------
    >>> import torch
    >>> from skprivacy.neural_network import RandomShift
    >>> RandomShift((1, 28, 28), pixels=2)(torch.ones(5, 784)).shape
    torch.Size([5, 784])
    """

    shape: tuple[int, int, int]
    pixels: int = 2
    flip: bool = False

    def __post_init__(self) -> None:
        check_image_shape(self.shape)
        whole("pixels", self.pixels, least=0)
        flag("flip", self.flip)

    def __call__(self, rows: Tensor) -> Tensor:
        images = F.pad(rows_as_images(rows, self.shape), [self.pixels] * 4)
        if self.flip:
            mirrored = torch.rand(len(rows), 1, 1, 1, device=rows.device) < 0.5
            images = torch.where(mirrored, images.flip(-1), images)
        n, (channels, height, width) = len(rows), self.shape
        start = torch.randint(2 * self.pixels + 1, (2, n), device=rows.device)
        down = start[0][:, None] + torch.arange(height, device=rows.device)
        across = start[1][:, None] + torch.arange(width, device=rows.device)
        example = torch.arange(n, device=rows.device)[:, None, None, None]
        channel = torch.arange(channels, device=rows.device)[:, None, None]
        return images[example, channel, down[:, None, :, None], across[:, None, None, :]].flatten(1)


@dataclass(frozen=True)
class Views:
    """``count`` random views of each row, consecutively.

    **Guarantees.** :meth:`check` tests three properties on random numbers. An augmentation treats
    each row by itself. It remembers nothing of earlier rows. It draws its random numbers from
    torch, independently of the values. Then a record affects only its own views, and the mean of
    their gradients is clipped like any gradient: the sensitivity does not change. The steps are
    copies of the caller's, which never see a record.

    **Edge cases.** The trial misses an augmentation that misbehaves only at values unlike the
    trial's, or that stores records outside of itself.
    """

    augment: tuple[Augment, ...]
    count: int

    @classmethod
    def from_augment(cls, augment: Any) -> Views:
        """Return the views that a value of ``augment`` means."""
        given, count = augment, 1
        if isinstance(augment, tuple) and len(augment) == 2 and not callable(augment[1]):
            given, count = augment
        steps = augmentation_steps("augment", given)
        if not is_whole(count) or count < 1:
            raise ValueError(
                f"augment={augment!r} must end with the number of views, a positive integer."
            )
        return cls(copy.deepcopy(steps), int(count))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the steps, and the number of views; equal in all processes."""
        steps = (getattr(step, "__qualname__", repr(step)) for step in self.augment)
        return (*steps, str(self.count))

    @property
    def are_built_in(self) -> bool:
        """Whether all steps come from this library, hence treat each record by itself."""
        return all(isinstance(step, RandomShift) for step in self.augment)

    def __call__(self, rows: Tensor) -> Tensor:
        # De et al. 2022, augmentation multiplicity: K views of each record, consecutively
        rows = rows.repeat_interleave(self.count, 0)
        for step in self.augment:
            rows = step(rows)
        return rows

    def check(self, inputs: Tensor) -> None:
        """Refuse, after a trial on public numbers, views that mix rows or change their shape."""
        if not is_off_cpu(inputs):
            return self._check(inputs)
        self._check(inputs.cpu())
        try:
            self._check(inputs)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"augment={self.augment!r} works on the CPU and fails on {inputs.device} "
                f"({error}). Compute with torch, on the device of the rows."
            ) from error

    def _check(self, inputs: Tensor) -> None:
        other = inputs.flip(-1) * 3 + 1
        views = copy.deepcopy(self)._seeded(inputs)
        if not isinstance(views, Tensor):
            raise ValueError(f"augment={self.augment!r} must return a tensor, got {views!r}.")
        expected = (len(inputs) * self.count, *inputs.shape[1:])
        if views.shape != expected or views.dtype != inputs.dtype:
            raise ValueError(
                f"augment={self.augment!r} turned rows of shape {expected} and {inputs.dtype} into "
                f"{tuple(views.shape)} and {views.dtype}. It must keep both."
            )
        if not all(self._treats_rows_alone(inputs, other, seed) for seed in range(_TRIAL_SEEDS)):
            raise ValueError(
                f"augment={self.augment!r} gave other views of a row when the other rows were "
                "changed: it mixes records, or its randomness is not torch's or depends on the "
                "values. Treat each row by itself, and draw a fixed number of torch's random "
                "numbers per row."
            )
        if not torch.equal(self._views_after(other, inputs), self._views_after(inputs, inputs)):
            raise ValueError(
                f"augment={self.augment!r} gave other views of the same rows after it had seen "
                "others: it stores private records. Make it a function of its rows."
            )

    def _treats_rows_alone(self, inputs: Tensor, other: Tensor, seed: int) -> bool:
        """Return True if the views of each row stay the same when all other rows change."""
        views = self._seeded(inputs, seed).unflatten(0, (-1, self.count))
        for i, (row, expected) in enumerate(zip(inputs, views, strict=True)):
            rows = other.clone()
            rows[i] = row
            if not torch.equal(
                self._seeded(rows, seed).unflatten(0, (-1, self.count))[i], expected
            ):
                return False
        return True

    def _views_after(self, first: Tensor, then: Tensor) -> Tensor:
        """Return the views of ``then`` by a copy of the steps that has seen ``first``."""
        fresh = copy.deepcopy(self)
        fresh._seeded(first)
        return fresh._seeded(then)

    def _seeded(self, inputs: Tensor, seed: int = 0) -> Tensor:
        devices = [inputs.device] if inputs.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            return self(inputs.clone())


def augmentation_steps(name: str, given: Any) -> tuple[Augment, ...]:
    """Return the functions of rows that the value of a parameter means."""
    steps = (given,) if callable(given) else tuple(given) if np.iterable(given) else ()
    if not steps or not all(map(callable, steps)):
        raise ValueError(
            f"{name}={given!r} must be a function of a tensor of rows or a list of functions, such "
            "as RandomShift((1, 28, 28))."
        )
    return steps


def check_image_shape(shape: Any) -> None:
    good = isinstance(shape, tuple) and len(shape) == 3
    if not good or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(f"shape={shape!r} must be (channels, height, width), such as (1, 28, 28).")


def rows_as_images(rows: Tensor, shape: tuple[int, int, int]) -> Tensor:
    if rows[0].numel() != math.prod(shape):
        raise ValueError(
            f"shape={shape!r} means {math.prod(shape)} numbers per image, but rows have "
            f"{rows[0].numel()}. Pass the shape of the images in the rows."
        )
    return rows.reshape(-1, *shape)


@dataclass(frozen=True)
class RandomDistortion:
    """Rotate, scale, slant, shift and bend each image, change its strokes and cover a part."""

    shape: tuple[int, int, int]
    degrees: float = 20.0  # the largest rotation either way
    scale: float = 0.25  # the largest relative change of size
    slant: float = 0.3  # the largest shear, as a share of the height
    shift: float = 0.1  # the largest shift in each direction, as a share of height and width
    bend: float = 0.08  # deviation of the elastic movement, as a share of half of height and width
    thickness: float = 1.0  # 1 lets strokes grow or shrink by up to one pixel on each side
    cover: float = 0.4  # longest side of the covered rectangle, as a share of height and width

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
