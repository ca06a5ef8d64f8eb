"""Settings of private networks: values for "auto", from public facts only, and rare options.

The constants were fitted by the benchmarks of automatic settings, which also measure them.
:class:`Optimizer`, :class:`Clipping` and :class:`Distributed` are values of one parameter of a
network each, such as ``optimizer=Optimizer(momentum=0.5)``. This file needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting.calibration import analytic_noise_multiplier
from ._gradients.clipped_sum import CLIPPING
from ._training.training_config import SCHEDULES

_MAX_BATCH = 1024  # larger batches cost time and do not reduce the noise of a run
_MIN_STEPS, _MAX_STEPS = 128, 1536
_MAX_RATE = 2.0
_HIDDEN_UNITS = 64
_MIN_SIGNAL_RATIO, _MIN_SIGNAL_RATIO_OF_REGRESSION = 5.0, 15.0
# With few records of a class, hidden layers soon learn noise, so they train for a shorter time.
# Only the gradients of these records are long: a norm below theirs makes predicted rates too low,
# and a norm above it wastes signal.
_RARITY_POWER, _MAX_LINEAR_NORM = 0.25, 2.0
# Without privacy, large tables take larger batches: accuracy is the same with fewer Python calls.
_PLAIN_BATCH, _MAX_BATCH_FACTOR, _STEPS_PER_EPOCH = 128, 4.0, 40
# Without privacy, held-out records end the training, and the network has units of quantiles.
# A tenth of fewer records decides too little; and shadow models of small tables are stacked.
_HELD_OUT_SHARE, _MAX_HELD_OUT, _MIN_RECORDS_TO_HOLD_OUT = 0.1, 5000, 2000
_UNITS_BEHIND_QUANTILES = 128
_NO_LIMIT = 1e9  # clipping norm that clips nothing; single precision holds its square
# A regressor releases the mean target first, trains on what is left, and releases how much of its
# outputs the records support. Residuals of heavy-tailed targets are small, so their clipping norm
# is small; long training would add up more noise than they hold.
_TARGET_SHARE = 0.1  # of the squared Gaussian-DP parameter, at most, for each of these releases
_TARGET_SIGNAL = 150.0  # records times the Gaussian-DP parameter that are enough for one of them
_RESIDUAL_NORM = 0.3
_LONG_TIME = 30.0  # beyond it, a linear model trains for the square root of the signal only
_MIN_SIGNAL_PER_ROOT_OF_BITS = 10.0  # less, and the weights of bins are mostly noise
_MAX_BITS = 600  # of 40 columns; bins of pixels and word counts cost time and accuracy

GRAD_NORM = Interval(Real, 1e-20, 1e20, closed="both")  # the range of single precision
AVERAGING: list[Any] = [Interval(Real, 0, 1, closed="both"), StrOptions({"ema"})]


@dataclass(frozen=True)
class PublicFacts:
    """Facts of a run that are public before its data is read."""

    n_records: int
    n_features: int
    n_outputs: int  # outputs of the network: 1 for regression
    epsilon: float | None
    delta: float
    clipping: str
    classifies: bool
    perceptron: bool  # the built-in network, not a user's module
    studied: bool  # independent noise calibrated to an epsilon, as in the benchmarks
    momentum: float
    rarity: float = 1.0  # public share of the rarest class, in units of an even share
    weighted: bool = False  # whether the loss weights the classes
    plain: bool = True  # whether one process has all records, and shows them as they are

    @property
    def is_free(self) -> bool:
        """Whether the fit adds no noise."""
        return self.epsilon is not None and math.isinf(self.epsilon)

    @property
    def signal(self) -> float:
        """Records times the Gaussian-DP parameter mu: the signal-to-noise ratio of a whole run.

        The noise on a mean gradient, added up over a run of T steps, has a standard deviation of
        ``max_grad_norm * sqrt(T) / signal`` in each coordinate, whatever the batches.
        """
        assert self.epsilon is not None
        return self.n_records / analytic_noise_multiplier(self.epsilon, self.delta)

    @property
    def signal_of_hidden_layer(self) -> float:
        """Signal of the rarest class over the norm of noise in the usual hidden layer's weights."""
        weights = _HIDDEN_UNITS * (self.n_features + 1 + self.n_outputs) + self.n_outputs
        return self.signal * self.rarity / math.sqrt(weights)

    @property
    def target_share(self) -> float:
        """Share of the squared Gaussian-DP parameter for each of a regressor's target releases.

        With a share p, the noise on a released mean has a standard deviation of
        ``1 / (signal * sqrt(p))``. The share falls with the signal so that it stays the same.
        """
        return min(_TARGET_SHARE, (_TARGET_SIGNAL / self.signal) ** 2)

    @property
    def target_noise(self) -> float | None:
        """Noise multiplier of each of a regressor's three other releases; None if it has none."""
        applies = self.perceptron and self.studied and not self.classifies
        if not applies or self.epsilon is None or self.is_free:
            return None
        return analytic_noise_multiplier(self.epsilon, self.delta) / math.sqrt(self.target_share)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Values of all "auto" settings; only the learning rate may still be "auto"."""

    hidden_layer_sizes: tuple[int, ...]
    activation: str
    batch_size: int
    epochs: int
    optimizer: str
    learning_rate: float | str
    schedule: str
    averaging: float | str
    max_grad_norm: float


def resolve_auto_settings(settings: Mapping[str, Any], facts: PublicFacts) -> Recipe:
    """Return the settings with a value for each "auto"; given values stay."""
    given = {
        field.name: settings[field.name]
        for field in fields(Recipe)
        if not _is_auto(settings.get(field.name, "auto"))
    }
    if facts.is_free:
        return _nonprivate_settings(given, facts)
    if not (facts.perceptron and facts.studied):
        return _default_settings(given, facts)
    return (_classifier_settings if facts.classifies else _regressor_settings)(given, facts)


def held_out_share(settings: Mapping[str, Any], facts: PublicFacts) -> float:
    """Return the share of records that decide when training ends; 0 with privacy."""
    automatic = all(_is_auto(settings.get(name, "auto")) for name in ("epochs", "learning_rate"))
    studied = facts.perceptron and facts.studied and facts.classifies and facts.plain
    adam = settings.get("optimizer", "auto") != "sgd"
    if not (facts.is_free and studied and automatic and adam):
        return 0.0
    enough = facts.n_records >= _MIN_RECORDS_TO_HOLD_OUT
    return min(_HELD_OUT_SHARE, _MAX_HELD_OUT / facts.n_records) if enough else 0.0


def starts_from_quantiles(settings: Mapping[str, Any], facts: PublicFacts) -> bool:
    """Return whether the first units start from quantiles of the records; False with privacy."""
    return _is_auto(settings["hidden_layer_sizes"]) and held_out_share(settings, facts) > 0


def add_quantile_layer(recipe: Recipe, n_units: int) -> Recipe:
    """Return the recipe of a network whose first layer has units of quantiles."""
    sizes = n_units, _UNITS_BEHIND_QUANTILES
    return replace(recipe, hidden_layer_sizes=sizes, activation="tanh")


def do_bins_pay_off(facts: PublicFacts, n_bits: int) -> bool:
    """Return whether ``n_bits`` features of public bins raise the accuracy of a network."""
    studied = facts.perceptron and facts.studied and facts.classifies
    if not studied or n_bits > _MAX_BITS:
        return False
    # without privacy as with little noise, so that a sweep compares equal features
    return facts.is_free or facts.signal >= _MIN_SIGNAL_PER_ROOT_OF_BITS * math.sqrt(n_bits)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _nonprivate_settings(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return the usual settings without privacy."""
    n, studied = facts.n_records, facts.perceptron and facts.classifies
    own_rate = "learning_rate" in given
    optimizer = given.get("optimizer", "sgd" if own_rate else "adam")
    larger = 1.0
    if studied and optimizer == "adam" and not given.keys() & {"batch_size", "learning_rate"}:
        larger = min(max(1.0, n / _STEPS_PER_EPOCH / _PLAIN_BATCH), _MAX_BATCH_FACTOR)
    batch = min(given.get("batch_size", round(_PLAIN_BATCH * larger)), n)
    adams_rate = 0.003 * larger**0.75 if studied else 0.001
    if held_out_share(given, facts):
        given, adams_rate = {"averaging": "ema", **given}, 0.003
    return _complete_settings(
        given,
        hidden_layer_sizes=(256,),
        activation="tanh" if own_rate else "relu",
        batch_size=batch,
        epochs=min(100, _epochs_for_steps(8000 / larger, batch, n)),
        optimizer=optimizer,
        learning_rate=adams_rate if optimizer == "adam" else 0.1,
        schedule="linear",
        max_grad_norm=1.0 if own_rate or facts.clipping != "flat" else _NO_LIMIT,
    )


def _classifier_settings(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return the settings of a classifier: training ends before noise outweighs the signal."""
    hidden = _hidden_layers(given, facts)
    units = facts.signal / math.sqrt(facts.n_features)
    rarity = facts.rarity**_RARITY_POWER
    time, norm = (
        (0.5 * rarity * units, 1.0 / rarity)
        if len(np.atleast_1d(hidden))
        else (units, min(1.0 / rarity, _MAX_LINEAR_NORM))
    )
    return _settings_for_training_time(
        {"max_grad_norm": 1.0 if facts.weighted else norm, **given}, facts, hidden,
        time, 32 * math.sqrt(time),
    )  # fmt: skip


def _regressor_settings(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return the settings of a regressor, which trains on residuals from a released mean."""
    hidden = _hidden_layers(given, facts)
    # Training time is the number of steps times the learning rate, without momentum.
    time = 0.5 * facts.signal * math.sqrt((1.0 - 3.0 * facts.target_share) / facts.n_features)
    if len(np.atleast_1d(hidden)):
        time *= min(3.0, max(1.0, facts.signal_of_hidden_layer / 25.0))
    elif time > _LONG_TIME:
        time = math.sqrt(_LONG_TIME * time)
    return _settings_for_training_time(
        {"max_grad_norm": _RESIDUAL_NORM, **given}, facts, hidden,
        time * (1.0 - facts.momentum), 64 * math.sqrt(time),
    )  # fmt: skip


def _hidden_layers(given: dict[str, Any], facts: PublicFacts) -> Any:
    """Return the hidden layers: none where noise would outweigh what they learn."""
    least = _MIN_SIGNAL_RATIO if facts.classifies else _MIN_SIGNAL_RATIO_OF_REGRESSION
    worth = facts.signal_of_hidden_layer >= least
    return given.get("hidden_layer_sizes", (_HIDDEN_UNITS,) if worth else ())


def _settings_for_training_time(
    given: dict[str, Any], facts: PublicFacts, hidden: Any, time: float, steps: float
) -> Recipe:
    """Return settings for gradient descent whose steps times learning rate make ``time``."""
    n = facts.n_records
    batch = min(given.get("batch_size", max(min(n // 4, _MAX_BATCH), n // _MAX_STEPS, 1)), n)
    most = min(max(steps, _MIN_STEPS), _MAX_STEPS)
    epochs = given.get("epochs", _epochs_for_steps(most, batch, n))
    norm = given.get("max_grad_norm", 1.0)
    rate = min(time / (epochs * round(n / batch)), _MAX_RATE) / norm
    return _complete_settings(
        given,
        hidden_layer_sizes=hidden,
        activation="tanh",
        batch_size=batch,
        epochs=epochs,
        optimizer="sgd",
        learning_rate="auto" if given.get("optimizer") == "adam" else rate,
        schedule="linear",
        max_grad_norm=norm,
    )


def _default_settings(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return settings outside the study: batches of a quarter of the records, 30 epochs."""
    return _complete_settings(
        given,
        hidden_layer_sizes=(_HIDDEN_UNITS,),
        activation="tanh",
        batch_size=max(1, facts.n_records // 4),
        epochs=30,
        optimizer="sgd" if facts.classifies else "adam",
        learning_rate="auto",
        schedule="constant",
        max_grad_norm=1.0,
    )


def _complete_settings(given: dict[str, Any], **automatic: Any) -> Recipe:
    """Return the given settings with automatic ones; averaging is off if the step size falls."""
    settings = {**automatic, **given}
    return Recipe(**{"averaging": 0.5 if settings["schedule"] == "constant" else 0.0, **settings})


def _epochs_for_steps(steps: float, batch: int, n: int) -> int:
    """Return the number of epochs closest to a number of steps."""
    return max(1, round(steps * batch / n))


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
        "averaging": [StrOptions({"auto"}), *AVERAGING],
    }

    def __init__(
        self,
        method: str = "auto",
        *,
        momentum: float = 0.9,
        schedule: str = "auto",
        averaging: float | str = "auto",
    ) -> None:
        self.method = method
        self.momentum = momentum
        self.schedule = schedule
        self.averaging = averaging


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
        With ``groups``: clips the mean or the sum of a group's gradients to the norm.

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
