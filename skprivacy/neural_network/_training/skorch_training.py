"""The private training of a module that skorch has made, by the engine of the other networks."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._gradients.losses import PerExample
from .._gradients.trial import PROBES, Probe
from .._network import PrivateNetwork
from ..dpsgd import DPSGDClassifier
from .config import Plan
from .distributed import meeting
from .optimizers import PrivateAdam
from .rows import MappedRows, is_mapped

__all__ = ["SkorchTraining", "as_rows", "as_targets"]

_CLASS_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)  # of numbers of classes


class SkorchTraining(PrivateNetwork):
    """One run on the module, loss and optimizer of a net.

    Parameters
    ----------
    module : torch.nn.Module
        Is copied; where training starts.
    criterion : torch.nn.Module
        Gives a loss for each example.
    optimizer : type
    optimizer_params : dict
    before : dict
        Fitted attributes of an earlier run that this one continues; empty for none.
    **params
        As of the other networks.
    """

    def __init__(
        self,
        module: nn.Module,
        criterion: nn.Module,
        optimizer: type,
        optimizer_params: dict[str, Any],
        before: dict[str, Any],
        **params: Any,
    ) -> None:
        own = {"module": module, "optimizer": optimizer, **params}
        self.__dict__.update({**DPSGDClassifier().get_params(), **own, **before})
        self._criterion = criterion
        self._optimizer_params = optimizer_params
        self._own = own

    def run(self, rows: Tensor | MappedRows, targets: NDArray) -> None:
        """Train; the results are this object's attributes."""
        # The probe has the shape and the type of the data, and nothing else of it.
        self._shapes = (rows.shape[1:], rows.index_select(0, torch.zeros(0).int()).dtype)
        self._labels = targets if targets.dtype.kind in "iu" else None
        self._target_shapes = (targets.shape[1:], torch.from_numpy(targets[:0]).dtype)
        with meeting(self.distributed) as peers:
            first = not hasattr(self, "privacy_")
            loss = copy.deepcopy(self._criterion)  # what it may keep of the records is dropped
            if type(loss) is not nn.CrossEntropyLoss or targets.dtype.kind == "f":
                loss = PerExample(loss)
            self._train(
                rows, targets, None, [], first, peers, criterion=lambda reduction: loss
            )  # fmt: skip

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return dict(self._own)

    def _start(self, n_features: int, n_outputs: int, first: bool) -> nn.Module:
        made = copy.deepcopy(self.module).cpu()
        if not any(p.requires_grad for p in made.parameters()):
            raise ValueError(f"module={type(made).__name__} has no parameters to train.")
        made = made.float()
        if isinstance(self._criterion, _CLASS_LOSSES) and self._labels is not None:
            self._refuse_unknown_classes(made, self._labels)
        return made

    def _refuse_unknown_classes(self, module: nn.Module, labels: NDArray) -> None:
        with torch.no_grad():
            n_outputs = copy.deepcopy(module)(self._probe(None, "cpu", 1).inputs).shape[1]
        ignored = getattr(self._criterion, "ignore_index", -1)
        unknown = labels[(labels != ignored) & ((labels < 0) | (labels >= n_outputs))]
        if len(unknown):
            raise ValueError(
                f"y has the class {int(unknown[0])}, but module={type(module).__name__} has "
                f"{n_outputs} outputs, for the classes 0 to {n_outputs - 1}. Number the classes "
                "from 0, or give the module more outputs."
            )

    def _probe(self, n_classes: int | None, device: str, views: int) -> Probe:
        generator = torch.Generator().manual_seed(0)
        (shape, dtype), (target_shape, target_dtype) = self._shapes, self._target_shapes
        X = torch.randn(PROBES * views, *shape, generator=generator)
        X = X.to(dtype) if dtype.is_floating_point else (X > 0).to(dtype)
        y = torch.rand(PROBES, *target_shape, generator=generator)
        # Zero is a class whatever the module's outputs are.
        y = y.to(target_dtype) if target_dtype.is_floating_point else torch.zeros_like(y).long()
        return Probe(X.to(device), y.to(device), None, views)

    def _optimizer(self, noise_std: float, plan: Plan) -> dict[str, Any]:
        params = {f"optimizer__{k}": v for k, v in self._optimizer_params.items()}
        if issubclass(self.optimizer, PrivateAdam):
            params["optimizer__noise_std"] = noise_std * self.max_grad_norm / plan.divisor
        return {"optimizer": self.optimizer, **params}

    def _learning_rate(self, module: nn.Module, noise_std: float, plan: Plan) -> float:
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        if not issubclass(self.optimizer, torch.optim.SGD):
            return 0.01
        # What the other networks take is meant for a momentum of 0.9.
        momentum = float(self._optimizer_params.get("momentum", 0.0))
        usual = super()._learning_rate(module, noise_std, plan)
        return usual * (1.0 - momentum) / (1.0 - 0.9)


def as_rows(X: Any) -> Tensor | MappedRows:
    """Return a tensor in single precision or of integers; a memory-mapped array stays on disk."""
    if is_mapped(X):
        return MappedRows(X, dtype=np.float32 if X.dtype.kind == "f" else np.int64)
    array = _numbers(X, "X")
    if array.ndim < 2:
        raise ValueError(f"X has shape {array.shape}; it must have a row for each record.")
    return torch.from_numpy(array)


def as_targets(y: Any, n: int) -> NDArray:
    """Return targets in single precision or as integers, one for each of ``n`` records."""
    if y is None:
        raise ValueError("y=None: the targets are needed. Data sets that hold both are not taken.")
    array = _numbers(y, "y")
    if len(array) != n:
        raise ValueError(f"X has {n} records and y has {len(array)}.")
    return array


def _numbers(values: Any, name: str) -> NDArray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().numpy()
    elif hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        array = np.asarray(values)
    except ValueError:  # a data set, or a list of arrays of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise ValueError(
            f"{name} must be one array, tensor or frame of numbers, got "
            f"{type(values).__name__} of type {array.dtype}."
        )
    if len(array) == 0:
        raise ValueError(f"{name} has 0 records: at least one is needed.")
    with np.errstate(over="ignore"):  # beyond single precision means infinite, hence no part
        return np.array(array, dtype=np.int64 if array.dtype.kind in "iu" else np.float32)
