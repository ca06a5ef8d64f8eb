"""Distribution of stacked training over processes or onto a torch device.

A single shadow model is too small to keep a CPU busy: each step is mostly overhead. A few models
side by side on each core, within its cache, run about as fast as matrix products can. Each core
gets its own process if the work justifies starting it. Threads would often wait for Python's lock,
because the calls are short. A device trains as many networks at once as its memory holds; torch is
imported only then. Start reading at :func:`train_stacked`.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from .._clones import shadow_clone
from .._environment import PREDICT_WORK, blas_threads, one_blas_thread, one_thread
from .._input_data import check_X_y, distinct_labels, label_columns
from .._sklearn import safe_indexing
from .perceptrons import ACTIVATIONS, Float32Array, Layers, append_columns
from .stacked_dpsgd import PrivateTask, train_private
from .stacked_mlp import MLPTask, hidden_sizes, train_mlps

# Devices on which ``stacked_dpsgd`` and ``stacked_mlp`` train, with numpy.
_PROCESSORS = {"cpu"}
# Numbers that a device of unknown memory may hold.
_DEFAULT_FREE_NUMBERS = 1 << 28

# Maximum number of models whose records are sent to a process at once.
_MODELS_PER_PROCESS = 8
# Multiplications that justify starting processes: about fifteen seconds of a core. With less work,
# two processes take longer to start (three seconds of a core) than threads wait for each other.
_MIN_PROCESS_WORK = 4e11
# Numbers that networks trained side by side may hold to fit the cache.
_CACHED = 3 << 19
_Task = MLPTask | PrivateTask


def resolve_device(device: str) -> str | None:
    """Return the torch device to train on; None for the CPU, ValueError if it is not usable."""
    if device in _PROCESSORS:
        return None
    from ..neural_network._training.torch_modes import usable_device

    device = usable_device(device)
    return None if device in _PROCESSORS else device


def train_on_device(
    prepared: Iterator[Prepared], device: str
) -> Iterator[tuple[int, StackedMember]]:
    """Yield models with their indices, trained on a device in groups that fit its memory."""
    import torch

    from ..neural_network._training.torch_modes import ordinary_torch
    from . import device_networks

    for group in _groups_within_memory(prepared, _free_numbers(device)):
        tasks: list[Any] = [model.task for model in group]
        mlps = isinstance(tasks[0], MLPTask)
        train: Any = device_networks.train_mlps if mlps else device_networks.train_private
        with ordinary_torch(device), torch.no_grad(), np.errstate(all="ignore"):
            trained = train(tasks, device)
        for model, layers in zip(group, trained, strict=True):
            yield model.position, model.member(layers)


def train_isolated_networks(
    estimator: MLPClassifier,
    parts: Sequence[tuple[Any, NDArray[Any]]],
    n_features: int,
    classes: NDArray[Any],
    seeds: Sequence[int] | NDArray[np.int64],
    device: str,
) -> list[StackedMember | None]:
    """Train a plain ``MLPClassifier`` on each part (records, labels), all at once on a device.

    The networks have an output for each of the sorted ``classes``. None stands for a part that
    :func:`train_alone` would refuse.

    **Guarantees.** As for :func:`train_alone`, a network depends only on its part, to the last bit.
    """
    import torch

    from ..neural_network._training.torch_modes import ordinary_torch
    from . import device_networks

    net = clone(estimator)
    net._validate_params()
    records = [_records_of(X, y, n_features, classes) for X, y in parts]
    with ordinary_torch(device), torch.no_grad(), np.errstate(all="ignore"):
        trained = device_networks.train_isolated(net, records, n_features, classes, seeds, device)
    return [
        StackedMember(classes, layers, net.activation)
        if layers is not None and all(np.isfinite(v).all() for layer in layers for v in layer)
        else None
        for layers in trained
    ]


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
        # The number of queries decides the threads: queries are public and not part of a release.
        work = len(hidden) * sum(weight.size for weight, _ in self.layers)
        with one_thread(work, PREDICT_WORK):
            for weight, bias in self.layers[:-1]:
                hidden = ACTIVATIONS[self.activation].function(hidden @ weight + bias)
            weight, bias = self.layers[-1]
            logits = (hidden @ weight + bias).astype(float)
        if logits.shape[1] == 1:
            return np.hstack([expit(-logits), expit(logits)])
        return softmax(logits, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each record."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class Prepared(NamedTuple):
    """A network to train, and the function that makes a model of its layers."""

    position: int
    task: _Task
    member: Callable[[Layers], StackedMember]


def is_stackable(estimator: Any, n_records: float = math.inf) -> bool:
    """Return True if :func:`train_stacked` trains the same model as ``estimator.fit``."""
    net = _network(estimator)
    return is_plain_mlp(net) or _fit_description(net, n_records) is not None


def is_plain_mlp(net: Any) -> bool:
    """Return True if :func:`train_mlps` can train this; False for subclasses."""
    return (
        type(net) is MLPClassifier
        and net.solver == "adam"
        and not net.early_stopping
        and all(isinstance(size, int) and size > 0 for size in hidden_sizes(net))
    )


def train_stacked(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    rows: Sequence[NDArray[np.intp]],
    seeds: Sequence[int],
    *,
    n_jobs: int | None = None,
    device: str | None = None,
    done: Callable[[int, StackedMember], Any] = lambda index, member: None,
) -> list[StackedMember]:
    """Train one network for each of ``rows`` on these rows of ``X``.

    ``estimator`` is a stackable network or a pipeline ending in one; it is not changed. The steps
    before the network are fitted separately for each model. ``n_jobs`` counts processes, or threads
    if the work is short; None is joblib's configuration, or else the number of BLAS threads.
    ``device`` is a torch device, or "auto" for a GPU if there is one; None is the estimator's.
    ``done`` is called in this process with the index and the model as soon as it is trained.

    An ``MLPClassifier`` gets an output for every class in ``y``, also for those missing among its
    rows. Each model has its own seed, so the distribution over processes affects rounding only.
    """
    members: dict[int, StackedMember] = {}
    device = resolve_device(
        getattr(_network(estimator), "device", "cpu") if device is None else device
    )
    n_jobs = min(_n_jobs(n_jobs), max(1, len(rows)))
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")  # the target model has raised the same warnings
        prepare = _make_preparation(estimator, X, y, distinct_labels(y), rows, seeds)
        prepared = map(prepare, range(len(rows)))
        for index, member in (
            _train_models(prepared, len(rows), n_jobs)
            if device is None
            else train_on_device(prepared, device)
        ):
            members[index] = member
            done(index, member)
    return [members[index] for index in range(len(rows))]


def is_mlp(estimator: Any) -> bool:
    """Return True if :func:`train_alone` trains the same model as ``estimator.fit``.

    Subclasses, also of Pipeline, are refused: their resampling, for instance, would be skipped.
    """
    return type(estimator) in (MLPClassifier, Pipeline) and is_plain_mlp(_network(estimator))


def train_alone(
    estimator: Any, X: Any, y: NDArray[Any], classes: NDArray[Any], seed: int
) -> StackedMember:
    """Train one ``MLPClassifier``, alone or at the end of a pipeline.

    The network has an output for each of the sorted ``classes``, whichever are in ``y``. ValueError
    is raised if a record or a weight is not finite.

    **Guarantees.** The network is a function of the arguments, to the last bit: every array has the
    shape of this network and its batches. Networks side by side lack this: the largest of them
    decides the number of steps, and matrix products of another shape round otherwise.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = [np.arange(len(y))]
        prepared = _make_preparation(estimator, X, y, classes, every, [seed])(0)
        (layers,) = _train([prepared.task])
    if not all(np.isfinite(values).all() for layer in layers for values in layer):
        raise ValueError("The weights have diverged. Scale the features, or lower the step size.")
    return prepared.member(layers)


def as_dense_records(X: Any, y: NDArray[Any], label: NDArray[np.intp]) -> Float32Array:
    checked, _ = check_X_y(X, y, accept_sparse="csr", dtype=np.float32)
    return append_columns(checked.toarray() if hasattr(checked, "toarray") else checked, label)


def _free_numbers(device: str) -> int:
    """Return how many numbers may be on a device: a quarter of its free memory."""
    import torch

    if torch.device(device).type != "cuda":
        return _DEFAULT_FREE_NUMBERS
    free, _ = torch.cuda.mem_get_info(device)
    return int(free // 16)


def _groups_within_memory(prepared: Iterator[Prepared], size: int) -> Iterator[list[Prepared]]:
    """Yield groups of models of one kind within ``size`` numbers, or single models."""
    groups: dict[Hashable, list[Prepared]] = {}
    for model in prepared:
        group = groups.setdefault(model.task.kind, [])
        if group and _numbers([*group, model]) > size:
            yield list(group)
            group.clear()
        group.append(model)
    yield from groups.values()


def _numbers(group: list[Prepared]) -> int:
    sources = {id(model.task.source): model.task.source.size for model in group}
    return sum(model.task.numbers for model in group) + sum(sources.values())


def _records_of(
    X: Any, y: NDArray[Any], n_features: int, classes: NDArray[Any]
) -> Float32Array | None:
    """Return records in the form of the networks, or None if they are invalid."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = as_dense_records(X, y, label_columns(y, classes))
    except ValueError:  # caused by a private record, so the error must not be shown
        return None
    return records if records.shape[1] == n_features + 2 else None


def _train_models(
    prepared: Iterator[Prepared], n_models: int, n_jobs: int
) -> Iterator[tuple[int, StackedMember]]:
    """Yield models with their indices; few are prepared at a time, as each has its own records."""
    first = next(prepared, None)
    if first is None:
        return
    most = min(_MODELS_PER_PROCESS, -(-n_models // n_jobs))
    sent: deque[list[tuple[int, Any]]] = deque()
    failed: list[Exception] = []

    def jobs() -> Iterator[Any]:
        try:
            for group in _group_by_kind(chain([first], prepared), most):
                sent.append([(model.position, model.member) for model in group])
                yield delayed(_train)([model.task for model in group])
        except Exception as error:  # raised in joblib's thread, it would hang some versions
            failed.append(error)

    worthwhile = n_models * first.task.multiplications > _MIN_PROCESS_WORK
    prefer = "processes" if worthwhile else "threads"
    backend, _ = get_active_backend(prefer=prefer)
    one_by_one = getattr(backend, "supports_return_generator", False)
    return_as = "generator" if one_by_one else "list"
    for trained in Parallel(n_jobs=n_jobs, prefer=prefer, return_as=return_as)(jobs()):
        for (index, member), layers in zip(sent.popleft(), trained, strict=True):
            yield index, member(layers)
    if failed:
        raise failed[0]


def _train(tasks: list[Any]) -> list[Layers]:
    """Train tasks of one kind, in whatever process or thread this runs."""
    with np.errstate(all="ignore"), one_blas_thread():
        return (train_mlps if isinstance(tasks[0], MLPTask) else train_private)(tasks)


def _n_jobs(n_jobs: int | None) -> int:
    _, configured = get_active_backend()
    if n_jobs is None and configured is None:
        return blas_threads()
    return effective_n_jobs(n_jobs)


def _network(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _fit_description(net: Any, n_records: float) -> Callable[[Any, Any], Any] | None:
    """Return the function that describes a fit of a private network, or None."""
    return net._stacked_training(n_records) if hasattr(net, "_stacked_training") else None


def _make_preparation(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    classes: NDArray[Any],
    rows: Sequence[NDArray[np.intp]],
    seeds: Sequence[int],
) -> Callable[[int], Prepared]:
    """Return a function from a model's index to the network prepared for training."""
    label = label_columns(y, classes)
    alone = _network(estimator) is estimator or len(estimator.steps) == 1
    # Without preprocessing, all networks share the same records, which stay in the cache.
    shared = as_dense_records(X, y, label) if alone and is_plain_mlp(_network(estimator)) else None

    def prepare(i: int) -> Prepared:
        model, steps = shadow_clone(estimator, int(seeds[i])), None
        net = _network(model)
        inputs, labels, chosen = X, y, rows[i]
        if shared is None:
            inputs, labels, chosen = safe_indexing(X, chosen), y[chosen], np.arange(len(chosen))
        if not alone:
            steps = model[:-1]
            inputs = steps.fit_transform(inputs, labels)
        task: _Task
        if describe := _fit_description(net, len(chosen)):
            task = replace(describe(inputs, labels), seed=int(seeds[i]))
        else:
            net._validate_params()
            records = as_dense_records(inputs, labels, label[rows[i]]) if shared is None else shared
            task = MLPTask(net, records, chosen, classes, int(seeds[i]))
        member = partial(
            StackedMember, task.classes, activation=task.activation, preprocessing=steps
        )
        return Prepared(i, task, member)

    return prepare


def _group_by_kind(prepared: Iterator[Prepared], most: int) -> Iterator[list[Prepared]]:
    """Yield groups of at most ``most`` models of one kind that fit the cache."""
    while block := list(islice(prepared, most)):
        kinds: dict[Hashable, list[Prepared]] = {}
        for model in block:
            kinds.setdefault(model.task.kind, []).append(model)
        for group in kinds.values():
            fitting = max(1, _CACHED // max(model.task.numbers for model in group))
            n_parts = -(-len(group) // fitting)
            for part in range(n_parts):
                yield group[part::n_parts]
