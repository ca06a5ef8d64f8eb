"""Optimizer, Clipping and Distributed: settings of private training that are rarely changed.

Each is a value of one parameter of a network, such as ``optimizer=Optimizer(momentum=0.5)``. They
hold settings and do nothing themselves. This file needs no torch.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

from sklearn.base import BaseEstimator

from .._sklearn import StrOptions
from .._validation import Interval
from ._gradients.clipping import CLIPPING
from ._training.training_config import SCHEDULES

GRAD_NORM = Interval(Real, 1e-20, 1e20, closed="both")  # the range of single precision
AVERAGING: dict[str, list[Any]] = {
    "averaging": [Interval(Real, 0, 1, closed="both"), StrOptions({"ema"})],
    "averaging_decay": [Interval(Real, 0, 1, closed="neither")],
}


class TrainingOption(BaseEstimator):
    """Settings that searches can vary, for instance as ``optimizer__momentum``."""

    _parameter_constraints: dict[str, list[Any]]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # its settings may change


class Optimizer(TrainingOption):
    """Optimizer of a private network, with its momentum, schedule and averaging.

    A value of the parameter ``optimizer`` of :class:`DPSGDClassifier` and :class:`DPSGDRegressor`.

    Parameters
    ----------
    method : {"auto", "sgd", "adam"}, default="auto"
        "adam" subtracts the known variance of the noise from its second moment. "auto" is "sgd",
        but "adam" where the notes of the network say so.
    momentum : float, default=0.9
        Momentum of the updates, in [0, 1); for Adam, the decay of its first moment.
    schedule : {"auto", "constant", "linear", "cosine"}, default="auto"
        Decay of the step size, to zero unless "constant". "auto" is "linear", but "constant" where
        the notes of the network say so.
    averaging : float, "ema" or "auto", default="auto"
        Share of the last steps whose weights are averaged into the final model, in [0, 1], or "ema"
        for an exponential moving average. Averaging costs no privacy and reduces the noise, as does
        a step size that falls to zero. "auto" is 0 with a falling step size, and 0.5 with a
        constant one.
    averaging_decay : float, default=0.95
        For "ema": weight of a step relative to the step after it, in (0, 1).

    Examples
    --------
    >>> from skprivacy.neural_network import DPSGDClassifier, Optimizer
    >>> model = DPSGDClassifier(optimizer=Optimizer("sgd", schedule="cosine"))
    >>> model.set_params(optimizer__momentum=0.5).optimizer
    Optimizer(method='sgd', momentum=0.5, schedule='cosine')
    """

    _parameter_constraints = {
        "method": [StrOptions({"auto", "sgd", "adam"})],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "schedule": [StrOptions({"auto", *SCHEDULES})],
        "averaging": [StrOptions({"auto"}), *AVERAGING["averaging"]],
        "averaging_decay": AVERAGING["averaging_decay"],
    }

    def __init__(
        self,
        method: str = "auto",
        *,
        momentum: float = 0.9,
        schedule: str = "auto",
        averaging: float | str = "auto",
        averaging_decay: float = 0.95,
    ) -> None:
        self.method = method
        self.momentum = momentum
        self.schedule = schedule
        self.averaging = averaging
        self.averaging_decay = averaging_decay


class Clipping(TrainingOption):
    """Way of clipping the gradient of each record, or of each group.

    A value of the parameter ``max_grad_norm`` of networks. A number there means flat clipping.

    Parameters
    ----------
    method : {"flat", "per-layer", "automatic", "adaptive"}, default="flat"
        "flat" shortens gradients longer than the norm. "automatic" also lengthens short ones.
        "per-layer" clips the gradient of each layer by itself. "adaptive" starts at ``norm`` and
        follows ``target_quantile``; the size of a step still follows from ``norm``.
    norm : float or "auto", default="auto"
        The L2 norm. "auto" is the network's default.
    target_quantile : float, default=0.5
        For "adaptive": the share of gradients that should be below the norm. The norm is learned
        privately within each step, from a small part of ``epsilon``.
    group_contribution : {"mean", "sum"}, default="mean"
        With ``groups`` in ``fit``: whether the mean or the sum of a group's gradients is clipped,
        once, to the norm.

    Examples
    --------
    >>> from skprivacy.neural_network import Clipping, DPSGDClassifier
    >>> DPSGDClassifier(max_grad_norm=Clipping("adaptive", target_quantile=0.3))
    DPSGDClassifier(max_grad_norm=Clipping(method='adaptive', target_quantile=0.3))
    """

    _parameter_constraints = {
        "method": [StrOptions({*CLIPPING, "adaptive"})],
        "norm": [StrOptions({"auto"}), GRAD_NORM],
        "target_quantile": [Interval(Real, 0, 1, closed="neither")],
        "group_contribution": [StrOptions({"mean", "sum"})],
    }

    def __init__(
        self,
        method: str = "flat",
        norm: float | str = "auto",
        *,
        target_quantile: float = 0.5,
        group_contribution: str = "mean",
    ) -> None:
        self.method = method
        self.norm = norm
        self.target_quantile = target_quantile
        self.group_contribution = group_contribution


class Distributed(TrainingOption):
    """All processes of ``torch.distributed``, which train one network together.

    A value of the parameter ``device`` of :class:`DPSGDClassifier` and :class:`DPSGDRegressor`.
    ``torch.distributed`` must be initialised. One process draws the noise and charges the budget.
    The processes, and the network between them, must be trusted with the records. Needs torch 2.8.

    Parameters
    ----------
    records : {"replicated", "sharded"}
        With "replicated" each process holds all records and works on a part of every batch. With
        "sharded" each process holds different records.
    device : str, default="auto"
        Where this process trains: "cpu", "cuda", "cuda:1"... "auto" takes a GPU if there is one.

    Examples
    --------
    >>> from skprivacy.neural_network import Distributed, DPSGDClassifier
    >>> DPSGDClassifier(device=Distributed("sharded"))
    DPSGDClassifier(device=Distributed(records='sharded'))
    """

    _parameter_constraints = {
        "records": [StrOptions({"replicated", "sharded"})],
        "device": [str],
    }

    def __init__(self, records: str, *, device: str = "auto") -> None:
        self.records = records
        self.device = device


def as_optimizer(given: Any) -> Optimizer:
    """Return the settings that a value of ``optimizer`` means."""
    return given if isinstance(given, Optimizer) else Optimizer(given)


def as_clipping(given: Any) -> Clipping:
    """Return the settings that a value of ``max_grad_norm`` means."""
    return given if isinstance(given, Clipping) else Clipping(norm=given)
