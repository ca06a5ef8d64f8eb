"""What "auto" stands for in a private training: settings that follow from public facts alone.

The constants were fitted by ``benchmarks/accuracy/automatic_settings.py`` (for numbers,
``automatic_settings_regression.py``), which also measure them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..mechanisms import analytic_noise_multiplier

__all__ = ["PublicFacts", "Recipe", "chosen"]

_BATCH = 1024  # larger ones cost time and gain nothing: the noise of a run is the same
_FEWEST_STEPS, _MOST_STEPS = 128, 1536
_LARGEST_RATE = 2.0
_HIDDEN = 64
_WORTH_HIDDEN = 5.0
# Without privacy: larger batches of large tables are no worse, and Python is called less often.
_PLAIN_BATCH, _LARGER, _STEPS_AN_EPOCH = 128, 4.0, 40
_NO_LIMIT = 1e9  # on the norm of a gradient: single precision holds its square


@dataclass(frozen=True)
class PublicFacts:
    """What is known of a run before its data is looked at."""

    n_records: int
    n_features: int
    n_outputs: int  # of the network: 1 for numbers
    epsilon: float | None
    delta: float
    clipping: str
    classifies: bool
    perceptron: bool  # not a network of the user's own
    studied: bool  # independent noise, and an epsilon that it follows from

    @property
    def signal(self) -> float:
        """Records times the Gaussian-DP parameter: what all the noise of a run is measured by.

        The noise on a mean gradient, added up over a run of T steps, has a standard deviation of
        ``max_grad_norm * sqrt(T) / signal`` in each coordinate, whatever the batches.
        """
        assert self.epsilon is not None
        return self.n_records / analytic_noise_multiplier(self.epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings that can be "auto", chosen; only a learning rate may still be."""

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
    """Return the settings with a value for each "auto"; what was given stays as it is."""
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
    """Train as one would if nobody's privacy were at stake.

    A learning rate that was given is one of clipped gradient descent, as it is with privacy.
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
    """Train a classifier for as long as it learns more than noise."""
    hidden = _hidden(given, facts)
    units = facts.signal / math.sqrt(facts.n_features)
    time = (0.5 if len(np.atleast_1d(hidden)) else 1.0) * units
    return _for_a_time(given, facts, hidden, time, 32 * math.sqrt(time))


def _for_numbers(given: dict[str, Any], facts: PublicFacts) -> Recipe:
    """Train a regressor: as many steps, but a quarter of the time.

    A squared error pulls less the nearer it is, while the noise stays what it is.
    """
    time = 0.125 * facts.signal / math.sqrt(facts.n_features)
    return _for_a_time(given, facts, _hidden(given, facts), time, 64 * math.sqrt(time))


def _hidden(given: dict[str, Any], facts: PublicFacts) -> Any:
    """Return the hidden layers: none where noise would outgrow what they learn."""
    weights = _HIDDEN * (facts.n_features + 1 + facts.n_outputs) + facts.n_outputs
    worth = facts.signal >= _WORTH_HIDDEN * math.sqrt(weights)
    return given.get("hidden_layer_sizes", (_HIDDEN,) if worth else ())


def _for_a_time(
    given: dict[str, Any], facts: PublicFacts, hidden: Any, time: float, steps: float
) -> Recipe:
    """Train a perceptron by gradient descent: the steps times the learning rate make the time."""
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
    """Train what the study does not know: a quarter of the records a step, 30 times each."""
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
    """Return what was given, and the rest as chosen: what falls to zero needs no averaging."""
    settings = {**automatic, **given}
    return Recipe(**{"averaging": 0.5 if settings["schedule"] == "constant" else 0.0, **settings})


def _epochs(steps: float, batch: int, n: int) -> int:
    """Return the passes over the records that come nearest to a number of steps."""
    return max(1, round(steps * batch / n))
