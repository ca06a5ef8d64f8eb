"""Modules of users: how they are built, and batch normalisation as a fixed scale and shift."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def make_module(
    module: Any, params: dict[str, Any], random_state: np.random.RandomState
) -> nn.Module:
    """Return a new module in single precision; ``module`` itself is not changed."""
    if isinstance(module, nn.Module):
        if params:
            raise ValueError(
                f"module__{next(iter(params))} is given, but module={type(module).__name__} is an "
                "instance. Pass its class instead."
            )
        made = copy.deepcopy(module)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random_state.randint(2**31)))
            try:
                made = module(**params)
            except TypeError as error:
                raise TypeError(f"module={module!r} cannot be made: {error}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"module={module!r} made a {type(made).__name__}, not a torch module.")
    if not any(p.requires_grad for p in made.parameters()):
        raise ValueError(f"module={type(made).__name__} has no parameters to train.")
    return made.float()


def has_random_start(module: nn.Module, again: nn.Module) -> bool:
    """Return True if two modules, made alike, share no weights except layers of zeros or ones."""
    first, second = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (module, again))
    return not any(
        name in second and torch.equal(p.cpu(), second[name].cpu())
        for name, p in first.items()
        if not bool((p == 0).all() or (p == 1).all())
    )


def freeze_batch_norm(module: nn.Module) -> nn.Module:
    """Return a copy of a pre-trained module with fixed scales and shifts for batch normalisation.

    Each normalisation is replaced by the scale and shift that it applies in evaluation mode, from
    its running statistics. The copy can be fine-tuned with DP-SGD. The original cannot, because
    batch normalisation mixes records.

    Parameters
    ----------
    module : torch.nn.Module
        Trained on public records. It is not changed.

    Returns
    -------
    torch.nn.Module
        In evaluation mode. The scales and shifts are buffers: training does not change them.

    Raises
    ------
    ValueError
        If a batch normalisation has no running statistics.

    Notes
    -----
    **Guarantees.** The frozen layers compute each example's output only from that example. The
    statistics describe the records that the module was trained on, and are published with it. Like
    the weights, they must be public.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from torch import nn
    >>> from skprivacy.neural_network import DPSGDClassifier, SimCLREncoder, freeze_batch_norm
    >>> X, y = load_digits(return_X_y=True)
    >>> encoder = SimCLREncoder(16, epochs=1, random_state=0).fit(X[:200])
    >>> body = freeze_batch_norm(encoder.module_)
    >>> module = nn.Sequential(body, nn.ReLU(), nn.Linear(16, 10))
    >>> model = DPSGDClassifier(module=module, classes=range(10), epsilon=8.0, epochs=5)
    >>> model.fit(X[200:600], y[200:600]).privacy_.assumptions[1]
    'the weights that training starts from are public'
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module={module!r} must be a torch.nn.Module.")
    frozen = copy.deepcopy(module).eval()
    if isinstance(frozen, _BatchNorm):
        return _ScaleAndShift(frozen, "")
    made: dict[nn.Module, nn.Module] = {}  # a layer that is used twice stays shared
    for path, parent in list(frozen.named_modules()):
        for name, layer in parent._modules.items():
            if isinstance(layer, _BatchNorm):
                if layer not in made:
                    made[layer] = _ScaleAndShift(layer, f"{path}.{name}".lstrip("."))
                setattr(parent, name, made[layer])
    return frozen


class _ScaleAndShift(nn.Module):
    """A fixed scale and shift of each channel, the second dimension."""

    def __init__(self, norm: _BatchNorm, name: str) -> None:
        super().__init__()
        mean, variance = norm.running_mean, norm.running_var
        if mean is None or variance is None:
            raise ValueError(
                f"module: layer {name!r} is a {type(norm).__name__} without running statistics, so "
                "nothing can be frozen. Train it with track_running_stats=True, or use GroupNorm."
            )
        with torch.no_grad():
            scale = torch.rsqrt(variance.double() + norm.eps)
            if norm.affine:
                scale = scale * norm.weight.double()
            shift = -mean.double() * scale
            if norm.affine and norm.bias is not None:
                shift = shift + norm.bias.double()
        self.register_buffer("scale", scale.to(mean.dtype))
        self.register_buffer("shift", shift.to(mean.dtype))
        self.scale: Tensor
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.ndim - 2))
        return x * self.scale.reshape(shape) + self.shift.reshape(shape)
