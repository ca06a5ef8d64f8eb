"""Multi-layer perceptron head, trained by DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._validation import is_whole, sequence
from ..accounting import Event
from ..mechanisms import SecureRandom
from .head import Head, HeadInput, Task

if TYPE_CHECKING:
    from ..neural_network import DPSGDClassifier

_LEAST = 1e-300  # a probability whose logarithm is finite


@dataclass(frozen=True)
class NetworkHead(Head):
    """Network with hidden layers, trained by DP-SGD.

    It is a :class:`~skprivacy.neural_network.DPSGDClassifier`. Noise is added in training, since no
    bound is known on how far a record moves the trained weights of a network.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=(64,)
        Units in each hidden layer.
    epochs : int, default=30
        Expected number of times that each record takes part.
    batch_size : int or "auto", default="auto"
        Expected number of records in a step.
    n_records : int, default=None
        Public figure for the number of records, or of groups, which ``relation="add_remove"``
        needs.
    random_state : int, default=None
        Seed of the initial weights only.
    max_group_size : int or None, default=2
        With ``groups``: largest number of records used of each group, drawn once. ``None`` uses
        all.
    group_contribution : {"mean", "sum"}, default="mean"
        With ``groups``: whether the mean or the sum of the gradients of a group is clipped.

    Notes
    -----
    **Guarantees.** As for DP-SGD: each step is a Poisson-sampled Gaussian mechanism. Under
    "zero_out" the number of records, or of groups, is public.
    """

    hidden_layer_sizes: tuple[int, ...] = (64,)
    epochs: int = 30
    batch_size: int | str = "auto"
    n_records: int | None = None
    random_state: int | None = None
    max_group_size: int | None = 2
    group_contribution: str = "mean"

    def __post_init__(self) -> None:
        sizes = self.hidden_layer_sizes
        given = sequence("hidden_layer_sizes", sizes)
        if not all(is_whole(size) and size > 0 for size in given):
            raise ValueError(
                f"hidden_layer_sizes={sizes!r} must hold positive whole numbers, such as (64,)."
            )

    def event(self, task: Task) -> Event:
        event: Event = self._config(task).event
        return event

    def arithmetic(self, task: Task) -> str:
        arithmetic: str = self._config(task).noise_kind.arithmetic
        return arithmetic

    def _config(self, task: Task) -> Any:
        """Return the configuration of the training, from public facts only."""
        if task.mechanism not in ("auto", "gaussian"):
            raise ValueError(
                f"mechanism={task.mechanism!r} does not fit head='dpsgd', which adds Gaussian "
                "noise to gradients. Use mechanism='auto'."
            )
        if task.delta == 0:
            raise ValueError("delta=0.0 must be above 0 for head='dpsgd'. Use delta=1e-6.")
        if task.relation == "replace_one":
            raise ValueError(
                "relation='replace_one' is not supported by head='dpsgd'. Use 'zero_out', or "
                "'add_remove' with NetworkHead(n_records=...)."
            )
        if task.relation == "add_remove" and self.n_records is None:
            raise ValueError(
                "relation='add_remove' with head='dpsgd' needs a public figure for the number of "
                "records: pass head=NetworkHead(n_records=...), or relation='zero_out'."
            )
        if task.relation == "zero_out" and self.n_records is not None:
            raise ValueError(
                f"n_records={self.n_records!r} is for relation='add_remove'; under 'zero_out' the "
                "number of records is public. Remove n_records, or change the relation."
            )
        classifier = self._classifier(task)
        classifier._validate_params()
        # The number of features affects the step size only, which costs no privacy.
        recipe = classifier._recipe(task.n_records, 1, task.n_classes)
        plan = classifier._plan(task.n_records, recipe)
        return plan.with_noise_for(task.epsilon, task.delta, None)

    def _classifier(self, task: Task) -> DPSGDClassifier:
        from ..neural_network import Clipping, DPSGDClassifier

        return DPSGDClassifier(
            hidden_layer_sizes=self.hidden_layer_sizes,
            epsilon=task.epsilon,
            delta=task.delta,
            batch_size=self.batch_size,
            epochs=self.epochs,
            classes=range(task.n_classes),
            relation=task.relation,
            n_records=self.n_records,
            max_group_size=self.max_group_size,
            max_grad_norm=Clipping(group_contribution=self.group_contribution),
            random_state=self.random_state,
            noise_seed=task.noise_seed,
        )

    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> DPSGDClassifier:
        rows = np.where(records.counts[:, None] > 0, records.rows, np.nan)
        own = records.groups
        if own is None or own.unit == "record":
            return self._classifier(task).fit(rows, records.labels)
        groups = pd.Series(own.codes, name=own.unit)
        return self._classifier(task).fit(rows, records.labels, groups=groups)

    def scores(self, rows: NDArray[np.float64], weights: DPSGDClassifier) -> NDArray[np.float64]:
        return np.asarray(np.log(np.maximum(weights.predict_proba(rows), _LEAST)))
