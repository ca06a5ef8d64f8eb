"""Random views of images: what each record's gradient is averaged over before it is clipped."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ._gradients.trial import elsewhere

__all__ = ["RandomFlip", "RandomShift", "Views"]

Augment = Callable[[Tensor], Tensor]
_TRIALS = 3  # seeds: a row may by chance be mixed with nothing but itself


@dataclass(frozen=True)
class RandomShift:
    """Shift each image by some pixels up or down, left or right; what comes in is zero.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of an image, whose pixels are a row of the data.
    pixels : int, default=2
        The furthest shift in each direction. All shifts are equally likely.

    Raises
    ------
    ValueError
        If ``shape`` is not three positive numbers, ``pixels`` is not a positive number, or the rows
        do not hold images of that shape.

    Examples
    --------
    >>> import torch
    >>> from skprivacy.neural_network import RandomShift
    >>> RandomShift((1, 28, 28), pixels=2)(torch.ones(5, 784)).shape
    torch.Size([5, 784])
    """

    shape: tuple[int, int, int]
    pixels: int = 2

    def __post_init__(self) -> None:
        check_image_shape(self.shape)
        if not isinstance(self.pixels, int) or self.pixels < 1:
            raise ValueError(f"pixels={self.pixels!r} must be a positive whole number.")

    def __call__(self, rows: Tensor) -> Tensor:
        images = F.pad(rows_as_images(rows, self.shape), [self.pixels] * 4)
        n, (channels, height, width) = len(rows), self.shape
        start = torch.randint(2 * self.pixels + 1, (2, n), device=rows.device)
        down = start[0][:, None] + torch.arange(height, device=rows.device)
        across = start[1][:, None] + torch.arange(width, device=rows.device)
        example = torch.arange(n, device=rows.device)[:, None, None, None]
        channel = torch.arange(channels, device=rows.device)[:, None, None]
        return images[example, channel, down[:, None, :, None], across[:, None, None, :]].flatten(1)


@dataclass(frozen=True)
class RandomFlip:
    """Mirror each image left to right, or leave it, with equal chances.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of an image, whose pixels are a row of the data.

    Raises
    ------
    ValueError
        If ``shape`` is not three positive numbers, or the rows do not hold images of that shape.

    Examples
    --------
    >>> import torch
    >>> from skprivacy.neural_network import RandomFlip
    >>> RandomFlip((3, 32, 32))(torch.ones(5, 3072)).shape
    torch.Size([5, 3072])
    """

    shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        check_image_shape(self.shape)

    def __call__(self, rows: Tensor) -> Tensor:
        images = rows_as_images(rows, self.shape)
        flipped = torch.rand(len(rows), 1, 1, 1, device=rows.device) < 0.5
        return torch.where(flipped, images.flip(-1), images).flatten(1)


@dataclass(frozen=True)
class Views:
    """``count`` random views of each row, one after another.

    Notes
    -----
    **Guarantees.** :meth:`check` tries on random numbers that an augmentation treats each row by
    itself, remembers nothing of the rows before, and draws its randomness from torch, in a way that
    does not depend on the values. A record then touches only the views of itself, and the mean of
    their gradients is clipped like any gradient: the sensitivity stays what it was. The steps are
    copies of the caller's, which never see a record.

    **Edge cases.** What an augmentation does only at values far from those of the trial, or keeps
    outside of itself, is not noticed.
    """

    augment: tuple[Augment, ...]
    count: int

    @classmethod
    def of(cls, augment: Any, count: int) -> Views | None:
        """Return the views that these parameters ask for; ``None`` for each row itself."""
        if augment is None:
            if count > 1:
                raise ValueError(
                    f"augmentations={count} views of a record are all the same with augment=None. "
                    "Say how they differ, for instance augment=RandomShift((1, 28, 28))."
                )
            return None
        steps = (augment,) if callable(augment) else tuple(augment)
        if not steps or not all(callable(step) for step in steps):
            raise ValueError(
                f"augment={augment!r} must be a function of a tensor of rows, or a list of such "
                "functions, for instance RandomShift((1, 28, 28))."
            )
        return cls(copy.deepcopy(steps), int(count))

    @property
    def ours(self) -> bool:
        """Whether all steps are of this library, hence known to treat each record by itself."""
        return all(isinstance(step, RandomShift | RandomFlip) for step in self.augment)

    def __call__(self, rows: Tensor) -> Tensor:
        rows = rows.repeat_interleave(self.count, 0)
        for step in self.augment:
            rows = step(rows)
        return rows

    def check(self, inputs: Tensor) -> None:
        """Refuse, after a trial on public numbers, what mixes rows or changes their form.

        On another device, what is refused on the processor is refused, and what fails.
        """
        if not elsewhere(inputs):
            return self._check(inputs)
        self._check(inputs.cpu())
        try:
            self._check(inputs)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"augment={self.augment!r} works on the processor and fails on "
                f"{inputs.device} ({error}). Compute with torch, on the device of the rows."
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
        if not all(self._keeps_apart(inputs, other, seed) for seed in range(_TRIALS)):
            raise ValueError(
                f"augment={self.augment!r} gave other views of a row when the other rows were "
                "changed: it mixes records, or its randomness is not torch's or depends on the "
                "values. Treat each row by itself, and draw as many random numbers for any row, "
                "with torch."
            )
        if not torch.equal(self._after(other, inputs), self._after(inputs, inputs)):
            raise ValueError(
                f"augment={self.augment!r} gave other views of the same rows after it had seen "
                "other ones: it keeps something of private records. Make it a function of its rows."
            )

    def _keeps_apart(self, inputs: Tensor, other: Tensor, seed: int) -> bool:
        """Tell whether the views of each row stay as they are when all other rows change."""
        views = self._seeded(inputs, seed).unflatten(0, (-1, self.count))
        for i, (row, expected) in enumerate(zip(inputs, views, strict=True)):
            rows = other.clone()
            rows[i] = row
            if not torch.equal(
                self._seeded(rows, seed).unflatten(0, (-1, self.count))[i], expected
            ):
                return False
        return True

    def _after(self, first: Tensor, then: Tensor) -> Tensor:
        """Return the views of ``then`` that are shown after those of ``first``."""
        fresh = copy.deepcopy(self)
        fresh._seeded(first)
        return fresh._seeded(then)

    def _seeded(self, inputs: Tensor, seed: int = 0) -> Tensor:
        devices = [inputs.device] if inputs.is_cuda else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            return self(inputs.clone())


def check_image_shape(shape: Any) -> None:
    good = isinstance(shape, tuple) and len(shape) == 3
    if not good or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(
            f"shape={shape!r} must be (channels, height, width), for instance (1, 28, 28)."
        )


def rows_as_images(rows: Tensor, shape: tuple[int, int, int]) -> Tensor:
    if rows[0].numel() != math.prod(shape):
        raise ValueError(
            f"shape={shape!r} makes {math.prod(shape)} numbers an image, but rows have "
            f"{rows[0].numel()}. Give the shape of the images in the rows."
        )
    return rows.reshape(-1, *shape)
