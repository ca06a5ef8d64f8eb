"""Modules to train, built in or the user's, and the skorch net that trains with the engine."""

from __future__ import annotations

import inspect
from typing import Any, NoReturn

from skorch import NeuralNet
from skorch.utils import to_device
from torch import Tensor, nn

from ..._groups import Groups
from .engine import Peers, Training
from .mapped_rows import MappedRows

__all__ = [
    "PrivateNet",
]


class PrivateNet(NeuralNet):
    """A skorch net that trains only through :class:`~.engine.Training`.

    skorch makes the module and the loss from classes and their ``module__x`` and ``criterion__x``,
    and moves them to their device. Its own loop is disabled: it would draw batches, store the loss,
    and show both to callbacks.
    """

    prefixes_ = [*NeuralNet.prefixes_, "optimizer"]
    module_: nn.Module

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's default callbacks record and print the loss, which is private

    def initialize_criterion(self) -> PrivateNet:
        """Create the loss, with one number per example.

        Returns
        -------
        PrivateNet
            The net itself.
        """
        self.criterion_ = per_example_criterion(self.criterion, self.get_params_for("criterion"))
        return self

    def initialize_optimizer(self, triggered_directly: Any = None) -> PrivateNet:
        """Do nothing: the engine creates the optimizer, whose state is not released.

        Parameters
        ----------
        triggered_directly : object, default=None
            Ignored; skorch passes it.

        Returns
        -------
        PrivateNet
            The net itself.
        """
        self._register_virtual_param(
            ["optimizer__*"]
        )  # so that skorch accepts optimizer__ settings
        return self

    def fit_loop(
        self,
        X: Tensor | MappedRows,
        y: Tensor | None = None,
        epochs: int | None = None,
        *,
        training: Training | None = None,
        peers: Peers | None = None,
        groups: Groups | None = None,
        **fit_params: Any,
    ) -> PrivateNet:
        """Carry out a prepared run, and store the trained module.

        Parameters
        ----------
        X : tensor or mapped rows of shape (n_samples, ...)
            Private records.
        y : tensor of shape (n_samples, ...)
            Targets, as the loss takes them.
        epochs : int, default=None
            Ignored: the run has a fixed length.
        training : Training
            The run, whose cost is charged.
        peers : Peers, default=None
            The other processes of a distributed run.
        groups : Groups, default=None
            Group of each record; ``None`` if single records are protected.
        **fit_params : dict
            Ignored.

        Returns
        -------
        PrivateNet
            The net itself, with the trained ``module_``.
        """
        if training is None or y is None:
            self._refuse()
        trained = training.run(X, y, peers, int(self.verbose), groups)
        self.module_ = to_device(trained, self.device)
        return self

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no public single steps, because no guarantee would cover "
            "them. Use fit or partial_fit."
        )

    run_single_epoch = train_step = train_step_single = validation_step = _refuse


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
