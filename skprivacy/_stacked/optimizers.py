"""Adam and momentum for the weights of a stack of networks, in numpy or on a torch device.

Tensors bring their own operations, so nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Weights that numpy updates at a time, so that its dozen passes stay in the cache.
_CHUNK = 1 << 18


class Momentum:
    """Stochastic gradient descent with momentum on all weights of a stack."""

    def __init__(self, stack: Any, momentum: float) -> None:
        self.stack, self.momentum = stack, momentum
        self.velocity = _zeros_like(stack.weights)

    def step(self, rate: Any) -> None:
        """Update by the stack's gradient; ``rate`` has the shape (n_networks, 1)."""
        weights, gradient = self.stack.weights, self.stack.gradient
        self.velocity *= self.momentum
        self.velocity += gradient
        if isinstance(weights, np.ndarray):
            weights -= np.multiply(self.velocity, rate, out=gradient)
        else:
            weights.addcmul_(self.velocity, rate, value=-1.0)


class Adam:
    """Adam (Kingma and Ba 2015) on all weights of a stack; it overwrites the stack's gradient.

    The moments are stored without their constant factors. ``epsilon`` is added before the bias
    correction, as in scikit-learn. With ``noise``, the variance of the noise in each network's
    gradient, that variance is subtracted from the second moment (DP-AdamBC, Tang et al. 2024), and
    ``epsilon`` is added after the correction.
    """

    def __init__(
        self,
        stack: Any,
        betas: tuple[float, float],
        epsilon: float,
        noise: Sequence[float] | None = None,
    ) -> None:
        self.stack, self.betas, self.epsilon = stack, betas, epsilon
        self.noise: Any = None
        if noise is not None:
            self.noise = _column_like(stack.weights, noise)
        self.mean, self.square = _zeros_like(stack.weights), _zeros_like(stack.weights)
        self.steps = 0
        self._scratch = np.zeros(0, np.float32)

    def step(self, rate: Any, pull: Any = None) -> None:
        """Update by the stack's gradient plus, in numpy, ``pull`` times the weights.

        ``rate`` is a number or has the shape (n_networks, 1), as ``pull`` has.
        """
        self.steps += 1
        (first, second), epsilon, variance = self.betas, self.epsilon, None
        correction = math.sqrt(1 - second**self.steps)
        last = math.sqrt(1 - second)
        rate = rate * correction
        rate = rate * ((1 - first) / (1 - first**self.steps) / last)
        if self.noise is not None:
            # Tang et al. 2024: subtract the variance of the DP noise; floor as in PrivateAdam
            variance = self.noise * (correction / last) ** 2
            epsilon *= correction
        independent = min(self.steps, (1 + second) / (1 - second))
        terms = rate, epsilon / last, variance, math.sqrt(2 / independent)
        if isinstance(self.stack.weights, np.ndarray):
            self._step_in_slices(*terms, pull)
        else:
            self._step_on_device(*terms)

    def _step_in_slices(
        self, rate: Any, epsilon: float, variance: Any, least: float, pull: Any
    ) -> None:
        stack, (first, second) = self.stack, self.betas
        if not len(self._scratch):
            self._scratch = np.zeros(max(_CHUNK, stack.weights.shape[1]), np.float32)
        for part in self._slices():
            rows = part[0]
            w, g, m, v = (x[part] for x in (stack.weights, stack.gradient, self.mean, self.square))
            t = self._scratch[: w.size].reshape(w.shape)
            if pull is not None:
                g += np.multiply(w, pull[rows], out=t)
            m *= first
            m += g
            g *= g
            v *= second
            v += g
            if variance is None:
                np.sqrt(v, out=t)
            else:
                np.subtract(v, variance[rows], out=t)
                np.sqrt(np.maximum(t, variance[rows] * least, out=t), out=t)
            t += epsilon
            np.divide(m, t, out=t)
            t *= rate[rows] if isinstance(rate, np.ndarray) else rate
            w -= t

    def _step_on_device(self, rate: Any, epsilon: float, variance: Any, least: float) -> None:
        weights, gradient, (first, second) = self.stack.weights, self.stack.gradient, self.betas
        self.mean.mul_(first).add_(gradient)
        self.square.mul_(second).addcmul_(gradient, gradient)
        if variance is None:
            root = self.square.sqrt()
        else:
            root = (self.square - variance).maximum(variance * least).sqrt_()
        root.add_(epsilon)
        if isinstance(rate, float):
            weights.addcdiv_(self.mean, root, value=-rate)
        else:
            weights.addcmul_(self.mean / root, rate, value=-1.0)

    def _slices(self) -> Iterator[tuple[slice, slice]]:
        """Yield slices of a few whole networks, or of a part of one; contiguous either way."""
        n_networks, n_parameters = self.stack.weights.shape
        whole = max(1, _CHUNK // n_parameters)
        for top in range(0, n_networks, whole):
            for left in range(0, n_parameters, _CHUNK):
                yield slice(top, top + whole), slice(left, left + _CHUNK)


def _zeros_like(weights: Any) -> Any:
    if isinstance(weights, np.ndarray):
        return np.zeros_like(weights)
    return weights.new_zeros(weights.shape)


def _column_like(weights: Any, values: Sequence[float]) -> Any:
    column = np.array(values, np.float32)[:, None]
    return column if isinstance(weights, np.ndarray) else weights.new_tensor(column)
