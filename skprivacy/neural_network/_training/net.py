"""skorch's net around the engine: it makes module and loss, and its loop is the engine's run."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

from skorch import NeuralNet
from skorch.utils import to_device
from torch import Tensor, nn

from .engine import Peers, Training
from .rows import MappedRows

__all__ = ["PrivateNet"]


class PrivateNet(NeuralNet):
    """A net of skorch's that trains in no other way than by :class:`~.engine.Training`.

    skorch makes the module and the loss from classes and their ``module__x`` and ``criterion__x``,
    and moves them to their device. Its own loop, with batches that it draws, a loss that it keeps,
    and callbacks that see both, is not there.
    """

    prefixes_ = [*NeuralNet.prefixes_, "optimizer"]
    module_: nn.Module

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's own record and print the loss, which is private

    def initialize_criterion(self) -> PrivateNet:
        """Make the loss, with one number for each example."""
        self.criterion_ = per_example_criterion(self.criterion, self.get_params_for("criterion"))
        return self

    def initialize_optimizer(self, triggered_directly: Any = None) -> PrivateNet:
        """Make nothing: the optimizer is the engine's, for its state is not released."""
        self._register_virtual_param(["optimizer__*"])  # may be set, and nobody need be told
        return self

    def fit_loop(
        self,
        X: Tensor | MappedRows,
        y: Tensor | None = None,
        epochs: int | None = None,
        *,
        training: Training | None = None,
        peers: Peers | None = None,
        **fit_params: Any,
    ) -> PrivateNet:
        """Carry out a run that is ready to start, and keep the module that it returns."""
        if training is None or y is None:
            self._refuse()
        self.module_ = to_device(training.run(X, y, peers, int(self.verbose)), self.device)
        return self

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"A single step of {type(self).__name__} cannot be called: it would be outside of the "
            "guarantee. Use fit or partial_fit."
        )

    run_single_epoch = train_step = train_step_single = validation_step = _refuse


def per_example_criterion(criterion: Any, params: dict[str, Any]) -> nn.Module:
    """Return the loss with one number for each example or output, never a mean over a batch."""
    if params.get("reduction", "none") != "none":
        raise ValueError(
            f"criterion__reduction={params['reduction']!r} mixes examples: the gradient of each is "
            "clipped by itself. Leave it out; the sum is divided by the expected batch size."
        )
    if isinstance(criterion, nn.Module):
        made = type(criterion)(**params) if params else criterion
        if getattr(made, "reduction", "none") != "none":
            raise ValueError(
                f"criterion={type(made).__name__}(reduction={made.reduction!r}) mixes examples. "
                "Give the class, or reduction='none'."
            )
        return made
    if "reduction" in inspect.signature(criterion).parameters:
        params = {**params, "reduction": "none"}
    return criterion(**params)
