"""Gradient canaries for DP-SGD: the check that a network allows them, and a fit with them.

Nasr et al. 2023 ("Tight auditing"); Steinke, Nasr and Jagielski 2023.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from .._sklearn import num_samples
from .._validation import check_numbers
from ..accounting import PrivacyGuarantee
from ..attacks._records import concat
from ..metrics import GuessBound
from ..metrics._one_run import inverse_line_curve, largest_refuted, refutes_curve
from ._canaries import CanaryRun
from ._curves import inverse_curve
from ._noisy_sums import SCORED_NOISE, NoisySums

if TYPE_CHECKING:
    from ..neural_network._training.config import TrainingConfig

__all__ = ["SEEN", "bound_on_noise", "check_gradient_canaries", "run_with_gradients"]

SEEN = (
    "the claim holds for gradients of any direction and for the sums of all steps together, as it "
    "is accounted for: real records may leak less, and so may the final weights alone"
)
_BUT_FOR_NOISE = "the training is the claimed one, except for the size of its noise"
_FARTHEST = 16.0  # largest tested ratio of claimed noise to actual noise
_NEVER = 1e-6  # probability of a false alarm about the sampling


def check_gradient_canaries(network: Any, X: Any) -> None:
    """Raise TypeError or ValueError for networks and records that allow no gradient canaries."""
    name = type(network).__name__
    if not hasattr(network, "_training"):
        raise TypeError(
            f"canaries='gradient' needs a network trained by private gradient descent, such as "
            f"DPSGDClassifier or DPSGDRegressor, outside of a pipeline; got {name}. Leave canaries "
            "out, or pass records."
        )
    network._validate_params()
    wanted: dict[str, tuple[bool, str]] = {
        "epsilon": (
            network.epsilon is None or math.isfinite(network.epsilon),
            "finite: without noise there is nothing to test",
        ),
        "noise": (network.noise in SCORED_NOISE, f"one of {list(SCORED_NOISE)}"),
        "clipping": (
            network.clipping != "per-layer",
            "'flat', 'automatic' or 'adaptive': with 'per-layer' a canary, which is in one weight, "
            "shows only part of what a record can",
        ),
        "augment": (network.augment is None, "None: canaries must not be changed"),
        "distributed": (network.distributed is None, "None: one process must see all sums"),
    }
    for parameter, (fits, expected) in wanted.items():
        if not fits:
            raise ValueError(
                f"canaries='gradient' does not work for {name} with "
                f"{parameter}={getattr(network, parameter)!r}; it must be {expected}. Audit a "
                "clone with that value, or leave canaries out."
            )
    if sparse.issparse(X) or np.ndim(X) != 2 or not num_samples(X):
        raise ValueError(
            f"canaries='gradient' needs X as a dense matrix with a row for each record; got "
            f"{type(X).__name__} of shape {np.shape(X)}. Convert it, for instance by X.toarray()."
        )
    check_numbers(X)


def run_with_gradients(
    network: Any, X: Any, y: NDArray[Any], n_canaries: int, random: np.random.Generator
) -> CanaryRun:
    """Fit a clone once, on all records and on the canaries whose coin says so."""
    from ..neural_network._training.canaries import CanaryCode, CanaryTraining

    code = CanaryCode.beyond(np.asarray(X.iloc[:, 0] if isinstance(X, pd.DataFrame) else X[:, 0]))
    coin = "zero_out" if network.n_records is None else "add_remove"
    # Steinke, Nasr and Jagielski 2023, randomised inclusion: a fair coin for each canary.
    trained = random.random(n_canaries) < 0.5
    rows: Any = code.rows(trained, X.shape[1])
    if coin == "add_remove":
        rows = rows[trained]
    if isinstance(X, pd.DataFrame):
        rows = pd.DataFrame(rows, columns=X.columns)
    watched: list[tuple[TrainingConfig, NoisySums]] = []

    def training(config: TrainingConfig, *rest: Any) -> CanaryTraining:
        watcher = NoisySums(config, n_canaries)
        watched.append((config, watcher))
        return CanaryTraining(
            config, *rest, code=code, n_canaries=n_canaries, watcher=watcher, public=random
        )

    fitted = clone(network)
    fitted._training = training
    try:
        fitted.fit(concat(X, rows), np.concatenate([y, np.repeat(y[:1], len(rows), axis=0)]))
    finally:
        del fitted._training
    ((config, sums),) = watched
    return CanaryRun(
        canaries="gradient",
        coin=coin,
        fitted=fitted,
        trained=trained,
        scores=sums.scores(),
        sampled=sums.participation.surprise() > _NEVER,
        event_at=config.event_at,
    )


def bound_on_noise(
    counts: tuple[int, int, int], guarantee: PrivacyGuarantee, run: CanaryRun, alpha: float
) -> GuessBound:
    """Return the epsilon of the claimed training with the least noise that is still refuted.

    Noise below a sixteenth of the claimed noise is not tried.
    """
    claimed, event_at = run.fitted.noise_multiplier_, run.event_at
    assert event_at is not None

    def at(share: float) -> PrivacyGuarantee:
        return replace(guarantee, event=event_at(claimed / share))

    def is_refuted(share: float) -> bool:  # share: ratio of claimed noise to the noise tried
        if share == 0 or share > _FARTHEST:
            return share == 0 and refutes_curve(*counts, inverse_line_curve(0.0, 0.0), alpha)
        return refutes_curve(*counts, inverse_curve(at(share), run.coin), alpha)

    share = largest_refuted(is_refuted, tolerance=0.01)
    epsilon = at(share).epsilon() if share else 0.0
    delta = guarantee.at_delta or 0.0
    return GuessBound(epsilon, delta, float(alpha), "noise", None, (_BUT_FOR_NOISE,))
