"""Settings of skorch that private training cannot keep: refused, with their alternatives."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from skorch.dataset import Dataset
from torch import nn
from torch.utils.data import DataLoader

_INSTEAD_OF_CALLBACKS = {
    "LRScheduler": "use schedule='cosine' or 'linear'",
    "EarlyStopping": "fix max_epochs beforehand, or tune it at its price",
    "EpochScoring": "score public records after fit",
    "Checkpoint": "save the fitted net with skprivacy.save_model",
    "GradientNormClipping": "use max_grad_norm",
    "ProgressBar": "use verbose=1",
    "Freezer": "set requires_grad=False in the module",
}
# Methods that private training skips: an override would be ignored, or would see private records.
_REPLACED_METHODS = (
    "fit_loop", "get_loss", "infer", "on_batch_begin", "on_batch_end",
    "on_epoch_begin", "on_epoch_end", "on_grad_computed", "on_train_begin", "on_train_end",
    "run_single_epoch", "train_step", "train_step_single", "validation_step",
)  # fmt: skip


def refuse_nonprivate_settings(net: Any, base: type) -> None:
    """Raise ValueError for the first setting of a net that would break its guarantee."""
    if net.train_split is not None:
        raise ValueError(
            f"train_split={net.train_split!r} would publish a measurement of private records. "
            "Leave train_split=None, and score public records after fit."
        )
    for callback in () if net.callbacks in (None, "disable") else net.callbacks:
        kind = type(callback[1] if isinstance(callback, tuple) else callback).__name__
        if isinstance(callback, type):
            kind = callback.__name__
        raise ValueError(
            f"callbacks={kind}: callbacks see private records, losses and gradients. Leave "
            f"callbacks=None; {_INSTEAD_OF_CALLBACKS.get(kind, 'do it after fit')}."
        )
    given = [k for k in vars(net) if k.startswith(("iterator_train__", "dataset__"))]
    if net.iterator_train is not DataLoader or net.dataset is not Dataset or given:
        raise ValueError(
            f"{given[0] if given else 'iterator_train or dataset'} is given, but private batches "
            "must be Poisson samples of the rows of X. Use batch_size for their expected size."
        )
    if net.compile:
        raise ValueError("compile=True is not supported: per-example gradients are needed. "
                         "Use compile=False.")  # fmt: skip
    _refuse_optimizer(net)
    for name in _REPLACED_METHODS:
        if getattr(type(net), name) is not getattr(base, name):
            raise ValueError(
                f"{type(net).__name__} overrides {name}, which private training does not call. "
                "Put the loss into criterion, and other code into the module."
            )


def refuse_several_modules(net: Any) -> None:
    """Raise ValueError if a net has several modules or several losses."""
    if len(net._modules) > 1 or len(net._criteria) > 1:
        raise ValueError(
            f"{type(net).__name__} has the modules {net._modules} and the criteria "
            f"{net._criteria}; expected one of each. Combine them in one module."
        )


def _refuse_optimizer(net: Any) -> None:
    if hasattr(net, "optimizer__param_groups"):
        raise ValueError(
            "optimizer__param_groups is not supported, because all weights form one vector. Set "
            "requires_grad=False on weights that stay fixed."
        )
    if isinstance(net.optimizer, str) and net.optimizer == "adam":
        return
    if not (isinstance(net.optimizer, type) and issubclass(net.optimizer, torch.optim.Optimizer)):
        raise ValueError(f"optimizer={net.optimizer!r} must be 'adam' or a class of torch.optim.")
    closure = inspect.signature(net.optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"optimizer={net.optimizer.__name__} needs a closure: it computes several gradients a "
            "step, and each would cost privacy. Use torch.optim.SGD or 'adam'."
        )


def per_example_criterion(criterion: Any, params: dict[str, Any]) -> nn.Module:
    """Return the loss with one number per example or output, never a mean over a batch."""
    if params.get("reduction", "none") != "none":
        raise ValueError(
            f"criterion__reduction={params['reduction']!r} mixes examples, but each gradient is "
            "clipped by itself. Leave it out; sums are divided by the expected batch size."
        )
    if isinstance(criterion, nn.Module):
        made = type(criterion)(**params) if params else criterion
        if getattr(made, "reduction", "none") != "none":
            raise ValueError(
                f"criterion={type(made).__name__}(reduction={made.reduction!r}) mixes examples. "
                "Pass the class, or reduction='none'."
            )
        return made
    if "reduction" in inspect.signature(criterion).parameters:
        params = {**params, "reduction": "none"}
    return criterion(**params)
