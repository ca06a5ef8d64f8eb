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
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it has no types

from .._sklearn import safe_indexing
from ._clones import shadow_clone
from ._perceptrons import Layers
from ._predictions import label_columns
from ._stacked_dpsgd import PrivateTask, train_private
from ._stacked_mlp import MLPTask, is_plain_mlp, train_mlps

__all__ = ["StackedMember", "is_stackable", "train_stacked"]

# Models whose records are in memory at once, for each thread.
_PREPARED = 8
# Numbers that the networks side by side may hold and stay in the cache.
_CACHED = 3 << 19
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
    controller = ThreadpoolController()
    n_threads = _blas_threads(controller) if n_jobs is None else effective_n_jobs(n_jobs)
    together = max(1, min(_PREPARED, -(-len(rows) // n_threads)))
    members: dict[int, StackedMember] = {}
    prepare = _preparation(estimator, X, y, rows, seeds)

    def train_block(places: range) -> None:
        tasks, steps = {}, {}
        for i in places:
            tasks[i], steps[i] = prepare(i)
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


def _preparation(
    estimator: Any, X: Any, y: NDArray[Any], rows: Sequence[NDArray[np.intp]], seeds: Sequence[int]
) -> Callable[[int], tuple[_Task, Any]]:
    """Return what maps a place to a network about to be trained and the steps before it."""
    classes = np.unique(y)
    label = label_columns(y, classes)
    alone = _network(estimator) is estimator or len(estimator.steps) == 1
    # without steps that change them, all networks read the same records: they stay in the cache
    shared = _dense(X, y) if alone and is_plain_mlp(_network(estimator)) else None

    def prepare(i: int) -> tuple[_Task, Any]:
        model, steps = shadow_clone(estimator, int(seeds[i])), None
        net = _network(model)
        if shared is not None:
            net._validate_params()
            return MLPTask(net, shared, label, rows[i], classes, int(seeds[i])), None
        own, truth = safe_indexing(X, rows[i]), y[rows[i]]
        if not alone:
            steps = model[:-1]
            own = steps.fit_transform(own, truth)
        if describe := _description(net):
            return PrivateTask(describe(own, truth), int(seeds[i])), steps
        net._validate_params()
        everyone = np.arange(len(truth))
        own = _dense(own, truth)
        return MLPTask(net, own, label[rows[i]], everyone, classes, int(seeds[i])), steps

    return prepare


def _dense(X: Any, y: NDArray[Any]) -> NDArray[np.float32]:
    checked, _ = check_X_y(X, y, accept_sparse="csr", dtype=np.float32)
    return checked.toarray() if hasattr(checked, "toarray") else checked


def _side_by_side(tasks: dict[int, _Task]) -> Iterator[list[int]]:
    """Yield groups of tasks of one kind that fit the cache together."""
    kinds: dict[Hashable, list[int]] = {}
    for place, task in tasks.items():
        kinds.setdefault(task.kind, []).append(place)
    for places in kinds.values():
        fitting = max(1, _CACHED // max(tasks[i].numbers for i in places))
        for group in np.array_split(places, -(-len(places) // fitting)):
            yield group.tolist()
