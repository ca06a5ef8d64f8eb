"""Averages of the weights in the course of training: post-processing, so they cost no privacy."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["WeightAverage"]


class WeightAverage:
    """The mean of the weights after each step, the last ones alone or with falling weight.

    Parameters
    ----------
    averaging : float or "ema"
        Share of the last steps, all of one weight; or every step, each of ``decay`` times the
        weight of the one after it.
    decay : float
    n_steps : int

    Notes
    -----
    The weights of an exponential average add up to one from the first step on, so the initial
    weights have no part in it.
    """

    def __init__(self, averaging: float | str, decay: float, n_steps: int) -> None:
        exponential = averaging == "ema"
        self._decay = decay if exponential else 1.0
        self._first = 0 if exponential else int(n_steps * (1.0 - float(averaging)))
        self._step = 0
        self._mass = 0.0
        self._mean: Tensor | None = None

    def add(self, weights: Tensor) -> None:
        """Take the weights after one more step in."""
        if self._step >= self._first:
            if self._mean is None:
                self._mean = torch.zeros_like(weights)
            self._mass = 1.0 + self._decay * self._mass
            self._mean.lerp_(weights, 1.0 / self._mass)
        self._step += 1

    def of(self, weights: Tensor) -> Tensor:
        """Return the average, or ``weights``, the last ones, if none were to be averaged."""
        return weights if self._mean is None else self._mean
