"""Stochastic gradient descent with momentum, without what a single vector of weights needs not."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["MomentumSGD"]


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
