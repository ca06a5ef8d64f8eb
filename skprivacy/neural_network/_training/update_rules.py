"""Optimizers of flat weight vectors: momentum SGD, and Adam with noise correction (DP-AdamBC)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .torch_modes import numpy_sees

_NUMBERS_PER_SLICE = 1 << 15  # numbers updated at a time, so that they stay in the cache


class PrivateAdam(torch.optim.Optimizer):
    """Adam that subtracts the noise variance from its second moment (DP-AdamBC, Tang et al. 2024).

    The noise of DP-SGD has a known variance. Uncorrected, it dominates the second moment, and Adam
    becomes plain momentum. The second moment averages few steps, so the corrected moment has an
    error. Its smallest value is therefore set to the standard deviation of that error.
    ``noise_std`` is the standard deviation of the noise in each coordinate of the gradient.

    Q. Tang, F. Shpilevskiy and M. Lécuyer, "DP-AdamBC: your DP-Adam is actually DP-SGD (unless you
    apply bias correction)", AAAI 2024.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        noise_std: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "noise_std": noise_std, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch: may return a loss
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p.detach(), p.grad.detach(), self.state[p], group)

    step.hooked = True  # type: ignore[attr-defined]  # or torch's profiler wraps it

    @staticmethod
    def _update(p: Tensor, grad: Tensor, state: Any, group: dict[str, Any]) -> None:
        if not state:
            state.update(steps=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
        state["steps"] += 1
        t, (first, second) = state["steps"], group["betas"]
        noise = group["noise_std"] ** 2
        # A squared normal number has variance 2 noise^2, and the moment averages this many.
        independent = min(t, (1 + second) / (1 - second))
        least = noise * math.sqrt(2 / independent)
        rate = group["lr"] / (1 - first**t)
        if numpy_sees(p) and p.dtype == torch.float32 and p.numel() <= _NUMBERS_PER_SLICE:
            # for short vectors, the overhead of torch's calls exceeds the arithmetic
            g, mean, own = grad.numpy(), state["mean"].numpy(), state["square"].numpy()
            with np.errstate(all="ignore"):
                buffer = np.subtract(g, mean)
                buffer *= np.float32(1 - first)
                mean += buffer
                np.multiply(g, g, out=buffer)
                buffer *= np.float32(1 - second)
                own *= np.float32(second)
                own += buffer
                root = np.divide(own, np.float32(1 - second**t), out=buffer)
                root -= np.float32(noise)
                np.maximum(root, np.float32(least), out=root)
                np.sqrt(root, out=root)
                root += np.float32(group["eps"])
                change = np.divide(mean, root, out=buffer)
                change *= np.float32(rate)
                p.numpy()[...] -= change
            return
        state["mean"].lerp_(grad, 1 - first)
        state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
        # Tang et al. 2024: subtract the variance of the DP noise from the second moment, then floor
        square = (state["square"] / (1 - second**t) - noise).clamp_(min=least)
        p.addcdiv_(state["mean"], square.sqrt_().add_(group["eps"]), value=-rate)


class MomentumSGD(torch.optim.Optimizer):
    """Gradient descent with momentum: the numbers of :class:`torch.optim.SGD`, at less overhead."""

    def __init__(
        self, params: Any, lr: float = 1e-2, momentum: float = 0.0, divisor: float = 1.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "divisor": divisor})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch: may return a loss
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    update = _update_in_slices if numpy_sees(p) else _update
                    update(
                        p.detach(),
                        self._velocity(p),
                        p.grad,
                        group["lr"],
                        group["momentum"],
                        1.0 / group["divisor"],
                    )

    step.hooked = True  # type: ignore[attr-defined]  # or torch's profiler wraps it

    def _velocity(self, p: Tensor) -> Tensor:
        state = self.state[p]
        if not state:
            state["velocity"] = torch.zeros_like(p)
        velocity: Tensor = state["velocity"]
        return velocity


def _update(
    p: Tensor, velocity: Tensor, grad: Tensor, lr: float, momentum: float, scale: float
) -> None:
    p.add_(velocity.mul_(momentum).add_(grad, alpha=scale), alpha=-lr)


def _update_in_slices(
    p: Tensor, velocity: Tensor, grad: Tensor, lr: float, momentum: float, scale: float
) -> None:
    """Update the weights with numpy, in slices that fit the cache."""
    weights, moving, towards = p.numpy(), velocity.numpy(), grad.numpy()
    buffer = np.empty(min(len(weights), _NUMBERS_PER_SLICE), weights.dtype)
    with np.errstate(all="ignore"):  # like torch, which ignores overflow of weights
        for start in range(0, len(weights), _NUMBERS_PER_SLICE):
            part = slice(start, start + _NUMBERS_PER_SLICE)
            w, v = weights[part], moving[part]
            change = np.multiply(towards[part], scale, out=buffer[: len(w)])
            v *= momentum
            v += change
            w -= np.multiply(v, lr, out=change)


# By the estimators' names for them.
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"sgd": MomentumSGD, "adam": PrivateAdam}
