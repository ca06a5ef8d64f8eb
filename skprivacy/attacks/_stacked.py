"""Many small neural networks trained at once.

A shadow model alone is too small to keep the processor busy: most of its time goes into the
overhead of each step. A few of them side by side on each core, within its cache, run about as
fast as matrix products can.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.pipeline import Pipeline
from sklearn.utils import check_X_y
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from .._sklearn import safe_indexing
from ._clones import shadow_clone
from ._perceptrons import Layers
from ._predictions import label_columns
from ._stacked_dpsgd import PrivateTask, train_private
from ._stacked_mlp import MLPTask, is_plain_mlp, train_mlps

__all__ = ["StackedMember", "is_stackable", "train_stacked"]

# Models whose records are in memory at once, for each thread.
_PREPARED = 8
# Numbers that the networks side by side may hold: about as many as a core's own cache.
_CACHED = 1 << 18
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}
_Task = MLPTask | PrivateTask


@dataclass(frozen=True)
class StackedMember:
    """One trained network of a stack, with its own preprocessing."""

    classes_: NDArray[Any]
    layers: Layers
    activation: str
    preprocessing: Any = None

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return class probabilities of shape (n_records, n_classes)."""
        hidden = X if self.preprocessing is None else self.preprocessing.transform(X)
        hidden = np.asarray(hidden.toarray() if hasattr(hidden, "toarray") else hidden, np.float32)
        for weight, bias in self.layers[:-1]:
            hidden = _ACTIVATIONS[self.activation](hidden @ weight + bias)
        weight, bias = self.layers[-1]
        logits = (hidden @ weight + bias).astype(float)
        if logits.shape[1] == 1:
            return np.hstack([expit(-logits), expit(logits)])
        return softmax(logits, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def is_stackable(estimator: Any) -> bool:
    """Whether :func:`train_stacked` trains what ``estimator.fit`` would."""
    net = _network(estimator)
    return is_plain_mlp(net) or _description(net) is not None


def train_stacked(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    rows: Sequence[NDArray[np.intp]],
    seeds: Sequence[int],
    *,
    n_jobs: int | None = None,
    done: Callable[[int, StackedMember], Any] = lambda place, member: None,
) -> list[StackedMember]:
    """Train one network for each of ``rows`` on these rows of ``X``.

    Parameters
    ----------
    estimator : stackable network, or Pipeline ending in one
        Never changed. The steps before the network are fitted for each model apart.
    X : records of shape (n_records, n_features)
    y : ndarray of shape (n_records,)
    rows : sequence of index arrays, one for each model
    seeds : sequence of int, one for each model
    n_jobs : int, default=None
        Threads. None: as many as the linear algebra underneath would take.
    done : callable, default does nothing
        Called with the place and the model as soon as it is trained, in the thread that did it.

    Notes
    -----
    An ``MLPClassifier`` gets an output for every class in ``y``, also for those missing among its
    rows.
    """
    classes = np.unique(y)
    controller = ThreadpoolController()
    n_threads = _blas_threads(controller) if n_jobs is None else effective_n_jobs(n_jobs)
    together = max(1, min(_PREPARED, -(-len(rows) // n_threads)))
    members: dict[int, StackedMember] = {}

    def train_block(places: range) -> None:
        tasks, steps = {}, {}
        for i in places:
            tasks[i], steps[i] = _prepare(estimator, X, y, rows[i], seeds[i], classes)
        for group in _side_by_side(tasks):
            own = [tasks[i] for i in group]
            train: Any = train_mlps if isinstance(own[0], MLPTask) else train_private
            with np.errstate(all="ignore"):
                trained = train(own)
            for i, task, layers in zip(group, own, trained, strict=True):
                members[i] = StackedMember(task.classes, layers, task.activation, steps[i])
                done(i, members[i])

    everyone = range(len(rows))
    with (
        warnings.catch_warnings(),
        controller.limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(n_threads) as threads,
    ):
        warnings.simplefilter("ignore")  # the target raised the same ones
        blocks = [everyone[i : i + together] for i in everyone[::together]]
        list(threads.map(train_block, blocks))
    return [members[i] for i in everyone]


def _blas_threads(controller: ThreadpoolController) -> int:
    pools = [pool["num_threads"] for pool in controller.info() if pool["user_api"] == "blas"]
    return max(pools, default=effective_n_jobs(-1))


def _network(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _description(net: Any) -> Callable[[Any, Any], Any] | None:
    """Return what describes a fit of a private network, if it can be."""
    return net._stacked_training() if hasattr(net, "_stacked_training") else None


def _prepare(
    estimator: Any, X: Any, y: NDArray[Any], rows: NDArray[np.intp], seed: int, classes: Any
) -> tuple[_Task, Any]:
    """Return one network about to be trained, and the fitted steps before it."""
    model = shadow_clone(estimator, int(seed))
    own, label, steps = safe_indexing(X, rows), y[rows], None
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        steps = model[:-1]
        own = steps.fit_transform(own, label)
    net = _network(model)
    if describe := _description(net):
        return PrivateTask(describe(own, label), int(seed)), steps
    net._validate_params()
    own, _ = check_X_y(own, label, accept_sparse="csr", dtype=np.float32)
    dense = own.toarray() if hasattr(own, "toarray") else own
    return MLPTask(net, dense, label_columns(label, classes), classes, int(seed)), steps


def _side_by_side(tasks: dict[int, _Task]) -> Iterator[list[int]]:
    """Yield groups of tasks of one kind that fit the cache together."""
    kinds: dict[Hashable, list[int]] = {}
    for place, task in tasks.items():
        kinds.setdefault(task.kind, []).append(place)
    for places in kinds.values():
        size = max(1, _CACHED // max(tasks[i].numbers for i in places))
        for start in range(0, len(places), size):
            yield places[start : start + size]
