"""Model inversion: reconstruct a typical input of a class from confidences (Fredrikson 2015)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..._input_data import label_columns
from ..._validation import check_random_state, whole
from ...mechanisms.base import check_bounds
from ..model_answers import predict_aligned

Float64Array = NDArray[np.float64]


def invert_class(
    target: Any,
    label: Any,
    bounds: Any,
    *,
    max_iter: int = 200,
    n_init: int = 8,
    random_state: Any = None,
) -> Float64Array:
    """Find an input that the target assigns to a class most confidently (Fredrikson et al. 2015).

    Only ``predict_proba`` is used. The search is an evolution strategy with a separate step for
    each feature, so it needs neither gradients nor a differentiable model. It makes no progress on
    a plateau, as with trees. Every useful model reveals typical inputs of its classes: an inversion
    leaks members only if it lies nearer to them than to other records of the class.

    Parameters
    ----------
    target : fitted classifier with ``predict_proba``
        The target model.
    label : object
        The class, one of ``target.classes_``.
    bounds : (float, float) or (array-like, array-like)
        Lowest and highest value, for all features or of shape (n_features,).
    max_iter : int, default=200
        Number of rounds; each queries ``4 * n_init`` inputs.
    n_init : int, default=8
        Number of searches from different starting points; the best result is returned.
    random_state : int, RandomState instance or None, default=None
        Seed of the starting points and steps.

    Returns
    -------
    ndarray of shape (n_features,)
        The input, within ``bounds``.

    Raises
    ------
    ValueError
        If ``label`` is not a class of the target, or ``bounds`` do not match its features.

    References
    ----------
    M. Fredrikson, S. Jha, T. Ristenpart. Model inversion attacks that exploit confidence
    information and basic countermeasures. CCS 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.attacks import AttackResult, invert_class
    >>> X, y = load_iris(return_X_y=True)
    >>> target = LogisticRegression(max_iter=500).fit(X[::2], y[::2])
    >>> x = invert_class(target, 0, (0, 8), random_state=0)
    >>> int(target.predict([x])[0])
    0
    >>> nearness = -np.linalg.norm(X[y == 0] - x, axis=1)  # every second record is a member
    >>> AttackResult(nearness[::2], nearness[1::2]).is_chance
    True
    """
    whole("max_iter", max_iter)
    whole("n_init", n_init)
    rng = check_random_state(random_state)
    if not hasattr(target, "classes_"):
        raise TypeError(f"target={target!r} must be a fitted classifier.")
    classes = np.asarray(target.classes_)
    column = int(label_columns([label], classes, "label")[0])
    width = getattr(target, "n_features_in_", None)
    low, high = check_bounds("bounds", bounds, np.size(bounds[0]) if width is None else width)
    names = getattr(target, "feature_names_in_", None)

    def log_odds(points: Float64Array) -> Float64Array:
        # log-odds still increase where the probability saturates at 1
        X = points if names is None else pd.DataFrame(points, columns=names)
        proba = predict_aligned(target, X, classes)
        rest = np.delete(proba, column, axis=1).sum(axis=1)
        return np.log(np.maximum(proba[:, column], 1e-300)) - np.log(np.maximum(rest, 1e-300))

    point = rng.uniform(low, high, size=(n_init, len(low)))
    reached = log_odds(point)
    step = np.full(n_init, 0.3)
    for _ in range(max_iter):
        noise = rng.normal(size=(4, *point.shape)) * (high - low) * step[:, None]
        changed = rng.uniform(size=noise.shape) < max(0.2, 1 / len(low))
        trial = np.clip(point + noise * changed, low, high)
        found_odds = log_odds(trial.reshape(-1, len(low))).reshape(4, n_init)
        best = found_odds.argmax(axis=0)
        found = found_odds[best, np.arange(n_init)]
        up = found > reached
        point[up], reached[up] = trial[best, np.arange(n_init)][up], found[up]
        step = np.clip(np.where(up, step * 1.2, step * 0.9), 1e-3, 0.5)
    return point[reached.argmax()]
