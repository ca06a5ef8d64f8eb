"""Values for "auto" settings of private networks, from public facts only.

``benchmarks/defaults.py`` and ``defaults_regression.py`` fitted the constants and measure how good
they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..mechanisms import analytic_noise_multiplier

__all__ = ["PublicFacts", "Recipe", "chosen"]

_BATCH = 1024  # larger batches cost time and do not reduce the noise of a run
_FEWEST_STEPS, _MOST_STEPS = 128, 1536
_LARGEST_RATE = 2.0
_HIDDEN = 64
_WORTH_HIDDEN = 5.0
# Without privacy, large tables take larger batches: accuracy is the same with fewer Python calls.
_PLAIN_BATCH, _LARGER, _STEPS_AN_EPOCH = 128, 4.0, 40
_NO_LIMIT = 1e9  # clipping norm that clips nothing; single precision holds its square


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

    @property
    def signal(self) -> float:
        """Records times the Gaussian-DP parameter mu: the signal-to-noise ratio of a whole run.

        The noise on a mean gradient, added up over a run of T steps, has a standard deviation of
        ``max_grad_norm * sqrt(T) / signal`` in each coordinate, whatever the batches.
        """
        assert self.epsilon is not None
        return self.n_records / analytic_noise_multiplier(self.epsilon, self.delta)


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


def chosen(settings: Mapping[str, Any], facts: PublicFacts) -> Recipe:
    """Return the settings with a value for each "auto"; given values stay."""
    given = {
        field.name: settings[field.name]
        for field in fields(Recipe)
        if not _is_auto(settings[field.name])
    }
    if facts.epsilon is not None and math.isinf(facts.epsilon):
        return _without_privacy(given, facts)
    if not (facts.perceptron and facts.studied):
        return _any_network(given, facts)
    return (_for_labels if facts.classifies else _for_numbers)(given, facts)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _without_privacy(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return the usual settings without privacy.

    A given learning rate means clipped gradient descent, as with privacy.
    """
    n, studied = facts.n_records, facts.perceptron and facts.classifies
    own_rate = "learning_rate" in given
    optimizer = given.get("optimizer", "sgd" if own_rate else "adam")
    larger = 1.0
    if studied and optimizer == "adam" and not given.keys() & {"batch_size", "learning_rate"}:
        larger = min(max(1.0, n / _STEPS_AN_EPOCH / _PLAIN_BATCH), _LARGER)
    batch = min(given.get("batch_size", round(_PLAIN_BATCH * larger)), n)
    adams_rate = 0.003 * larger**0.75 if studied else 0.001
    return _completed(
        given,
        hidden_layer_sizes=(256,),
        activation="relu",
        batch_size=batch,
        epochs=min(100, _epochs(8000 / larger, batch, n)),
        optimizer=optimizer,
        learning_rate=adams_rate if optimizer == "adam" else 0.1,
        schedule="linear",
        max_grad_norm=1.0 if own_rate or facts.clipping != "flat" else _NO_LIMIT,
    )


def _for_labels(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return the settings of a classifier: training ends before noise outweighs the signal."""
    hidden = _hidden(given, facts)
    units = facts.signal / math.sqrt(facts.n_features)
    time = (0.5 if len(np.atleast_1d(hidden)) else 1.0) * units
    return _for_a_time(given, facts, hidden, time, 32 * math.sqrt(time))


def _for_numbers(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return the settings of a regressor: as many steps as a classifier, for a quarter of the time.

    The gradient of a squared error shrinks near the target, but the noise does not.
    """
    time = 0.125 * facts.signal / math.sqrt(facts.n_features)
    return _for_a_time(given, facts, _hidden(given, facts), time, 64 * math.sqrt(time))


def _hidden(given: dict[str, Any], facts: PublicFacts) -> Any:
    """Return the hidden layers: none where noise would outweigh what they learn."""
    weights = _HIDDEN * (facts.n_features + 1 + facts.n_outputs) + facts.n_outputs
    worth = facts.signal >= _WORTH_HIDDEN * math.sqrt(weights)
    return given.get("hidden_layer_sizes", (_HIDDEN,) if worth else ())


def _for_a_time(
    given: dict[str, Any], facts: PublicFacts, hidden: Any, time: float, steps: float
) -> Recipe:
    """Return settings for gradient descent whose steps times learning rate make ``time``."""
    n = facts.n_records
    batch = min(given.get("batch_size", max(min(n // 4, _BATCH), n // _MOST_STEPS, 1)), n)
    most = min(max(steps, _FEWEST_STEPS), _MOST_STEPS)
    epochs = given.get("epochs", _epochs(most, batch, n))
    norm = given.get("max_grad_norm", 1.0)
    rate = min(time / (epochs * round(n / batch)), _LARGEST_RATE) / norm
    return _completed(
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


def _any_network(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Return settings outside the study: batches of a quarter of the records, 30 epochs."""
    return _completed(
        given,
        hidden_layer_sizes=(_HIDDEN,),
        activation="tanh",
        batch_size=max(1, facts.n_records // 4),
        epochs=30,
        optimizer="sgd" if facts.classifies else "adam",
        learning_rate="auto",
        schedule="constant",
        max_grad_norm=1.0,
    )


def _completed(given: dict[str, Any], **automatic: Any) -> Recipe:
    """Return the given settings with automatic ones; averaging is off if the step size falls."""
    settings = {**automatic, **given}
    return Recipe(**{"averaging": 0.5 if settings["schedule"] == "constant" else 0.0, **settings})


def _epochs(steps: float, batch: int, n: int) -> int:
    """Return the number of epochs closest to a number of steps."""
    return max(1, round(steps * batch / n))
