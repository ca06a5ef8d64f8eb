"""What moves the weights: momentum without torch's bookkeeping, and Adam that knows the noise."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..._validation import is_number, not_negative, sequence

__all__ = ["OPTIMIZERS", "MomentumSGD", "PrivateAdam"]


class PrivateAdam(torch.optim.Optimizer):
    """Adam with the variance of the added noise subtracted from its second moment.

    The noise that privacy adds has a known variance. Left in, it drowns the gradient's own second
    moment and Adam becomes plain momentum. What is left after the subtraction is known no better
    than the noise's own estimate, so it is not let below that estimate's standard deviation.

    Parameters
    ----------
    params : iterable of torch.nn.Parameter
        What is trained.
    lr : float, default=1e-2
        Step size.
    betas : tuple of float, default=(0.9, 0.999)
        How much of the first and of the second moment is kept from step to step.
    noise_std : float, default=0.0
        Standard deviation of the noise in each coordinate of the gradient.
    eps : float, default=1e-8
        Added to the root of the second moment.

    References
    ----------
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
        for name, value in {"lr": lr, "noise_std": noise_std, "eps": eps}.items():
            not_negative(name, value)
        if not all(map(is_number, sequence("betas", betas))) or len(betas) != 2:
            raise ValueError(f"betas={betas!r} must be two numbers, such as (0.9, 0.999).")
        params = params if isinstance(params, Tensor) else sequence("params", params)
        super().__init__(params, {"lr": lr, "betas": betas, "noise_std": noise_std, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch: may return a loss
        """Update every parameter that has a gradient.

        Parameters
        ----------
        closure : object, default=None
            Ignored; PyTorch passes it.
        """
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)

    def _update(self, p: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if not state:
            state.update(steps=0, mean=torch.zeros_like(p), square=torch.zeros_like(p))
        state["steps"] += 1
        t, (first, second) = state["steps"], group["betas"]
        state["mean"].lerp_(grad, 1 - first)
        state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
        noise = group["noise_std"] ** 2
        independent = min(t, (1 + second) / (1 - second))
        square = state["square"] / (1 - second**t) - noise
        square.clamp_(min=noise * math.sqrt(2 / independent))
        p.addcdiv_(
            state["mean"], square.sqrt_().add_(group["eps"]), value=-group["lr"] / (1 - first**t)
        )


class MomentumSGD(torch.optim.Optimizer):
    """Gradient descent with momentum: the same numbers as :class:`torch.optim.SGD`.

    torch's own groups and sorts the parameters in every step, which on the one short vector of a
    small network takes longer than the arithmetic.

    Parameters
    ----------
    params : iterable of torch.nn.Parameter
    lr : float, default=1e-2
    momentum : float, default=0.0
    """

    def __init__(self, params: Any, lr: float = 1e-2, momentum: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch: may return a loss
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(self._velocity(p, group["momentum"]), alpha=-group["lr"])

    step.hooked = True  # type: ignore[attr-defined]  # or torch's profiler wraps it

    def _velocity(self, p: torch.Tensor, momentum: float) -> torch.Tensor:
        assert p.grad is not None
        if momentum == 0:
            return p.grad
        if p not in self.state:
            self.state[p]["velocity"] = p.grad.clone()
            return self.state[p]["velocity"]
        return self.state[p]["velocity"].mul_(momentum).add_(p.grad)


# By the names that the estimators give them.
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"sgd": MomentumSGD, "adam": PrivateAdam}
