"""Private runs trained side by side: one stack of perceptrons computes their clipped sums.

A step of a small network spends much of its time between operations. In a stack, one call of numpy
serves several networks. The code of a single run draws the batches and the noise of each run, from
a separate stream, and makes its releases and updates. Only the clipped sums are computed together.
Start reading at :func:`train_side_by_side`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..._environment import blas_threads, one_blas_thread, one_torch_thread
from ..._stacked.perceptrons import Float32Array, PerceptronStack, append_columns, count_numbers
from ..._stacked.stacked_dpsgd import sum_clipped_gradients
from .._gradients.clipped_sum import AdaptiveClipping
from .._gradients.contributions import LOST, SUMMED
from .._gradients.perceptron import ACTIVATIONS, PerceptronGradients
from .engine import ChargedRun, SingleProcess, Training
from .torch_modes import flush_denormals, ordinary_torch, private_randomness

_N_FACTS = 3  # label, weight and squared norm of a record
_CACHED_NUMBERS = 3 << 19  # numbers that the networks of a stack may hold to fit the cache
# Multiplications by weights in a step from which on stacks run in several threads: a step of a run
# then takes a tenth of a millisecond. In shorter ones, threads would wait for Python's lock.
_MIN_THREAD_WORK = 1 << 20
# ... and up to which runs are stacked: at 7 million a stack takes 1.1 to 1.3 times less processor
# time than its runs one by one, at 14 million 1.05 times more, because products decide.
_MAX_STACK_WORK = 1 << 23
_NAMES = {kind: name for name, kind in ACTIVATIONS.items()}


def train_side_by_side(runs: Sequence[ChargedRun]) -> None:
    """Train runs in stacks of one kind, and others singly; set ``trained``, or ``error``.

    **Guarantees.** A run releases what ``Training.run`` releases: the clipped sums of its batches,
    by its mechanism, with noise of a separate stream. With one noise seed, both give the
    same module up to rounding. The rounding of a sum depends on the length of the longest batch of
    the stack, which no record changes, and on nothing else of the other runs.

    **Edge cases.** A run that fails ends no other. An interrupt ends all, and none is trained.
    """
    short = [run for run in runs if _is_short(run)]
    for run in runs:
        if run not in short:  # it uses all threads by itself
            _train_alone(run)
    n_threads, stop = _count_threads(short), threading.Event()
    works = _divide_into_works(short, n_threads, stop)
    with one_blas_thread():
        if n_threads < 2:
            for work in works:
                work()
            return
        with ThreadPoolExecutor(n_threads) as pool:
            try:  # the context holds what records releases
                for done in [pool.submit(copy_context().run, work) for work in works]:
                    done.result()
            except BaseException:
                stop.set()
                raise


def stack_kind(run: ChargedRun) -> Hashable | None:
    """Return the kind of a run that a stack can train beside others of its kind, or None."""
    training, (X, _, groups) = run.training, run.data
    gradients = training._clipped.gradients
    if (
        not _is_short(run)
        or groups is not None
        or not isinstance(X, Tensor)
        or type(gradients) is not PerceptronGradients
        or training.config.views is not None
        or isinstance(training._clip, AdaptiveClipping)
        or training._grad is not training._sums  # sums in double precision
        or not training._sum.is_single(X.shape[1])
        or max(_sizes(training)) > SUMMED  # norms in double precision
        or _step_work(run) > _MAX_STACK_WORK
    ):
        return None
    kinds = tuple(gradients.activations)
    return tuple(_sizes(training)), kinds, training._clip, training._clipped.max_grad_norm


def _is_short(run: ChargedRun) -> bool:
    """Return True for a run in one process whose steps use a single thread."""
    own = type(run.training) is Training and type(run.peers) is SingleProcess
    return own and run.training._is_short()


def _step_work(run: ChargedRun) -> int:
    """Return the multiplications by weights in a step."""
    return run.training.config.batch_size * len(run.training._weights)


def _sizes(training: Training) -> list[int]:
    """Return the numbers of features, hidden units and outputs of a perceptron."""
    layers = training._clipped.gradients.layers  # type: ignore[attr-defined]
    return [layers[0][0].shape[1], *(len(bias) for _, bias in layers)]


def _count_threads(runs: Sequence[ChargedRun]) -> int:
    """Return the number of threads: as many as linear algebra may use, if no step is tiny."""
    if any(_step_work(run) < _MIN_THREAD_WORK for run in runs):
        return 1
    return min(blas_threads(), len(runs))


def _divide_into_works(
    runs: Sequence[ChargedRun], n_threads: int, stop: threading.Event
) -> list[Callable[[], None]]:
    """Return functions that train stacks, which fit the cache, or single runs."""
    kinds: dict[Hashable, list[ChargedRun]] = {}
    for run in sorted(runs, key=lambda run: -run.training.config.n_steps):
        kinds.setdefault(stack_kind(run), []).append(run)
    works: list[Callable[[], None]] = [partial(_train_alone, run) for run in kinds.pop(None, [])]
    for own in kinds.values():
        longest = max(run.training.config.batch_size for run in own)
        fitting = max(1, _CACHED_NUMBERS // count_numbers(_sizes(own[0].training), longest))
        n_stacks = max(-(-len(own) // fitting), min(n_threads, len(own)))
        works += [partial(_train_stack, own[i::n_stacks], stop) for i in range(n_stacks)]
    return works


def _train_alone(run: ChargedRun) -> None:
    """Train a run by its own steps."""
    X, y, groups = run.data
    try:
        run.trained = run.training.run(X, y, run.peers, groups=groups)
    except Exception as error:
        run.error = error


def _train_stack(runs: list[ChargedRun], stop: threading.Event) -> None:
    """Train runs of one kind; an error outside the steps of one run ends all."""
    try:
        with flush_denormals(), one_torch_thread(), ordinary_torch("cpu"), ExitStack() as hidden:
            for run in runs:
                hidden.enter_context(private_randomness(run.training.random, "cpu"))
            _train_until_stopped(runs, stop)
    except Exception as error:
        for run in runs:
            if run.trained is None and run.error is None:
                run.error = error
    except BaseException:
        stop.set()
        raise


def _train_until_stopped(runs: list[ChargedRun], stop: threading.Event) -> None:
    """Train runs of one kind; where one ends, a smaller stack goes on."""
    tables = dict(zip(runs, _append_facts(runs), strict=True))
    while runs and not stop.is_set():
        stack = _ClippedStack(runs, [tables[run] for run in runs])
        left = min(run.training.config.n_steps - run.training._step for run in runs)
        while left and not stop.is_set() and not any(run.error for run in runs):
            stack.step()
            left -= 1
        for run in runs:
            if run.training._step == run.training.config.n_steps and run.error is None:
                run.trained = run.training._released_module()
        runs = [run for run in runs if run.trained is None and run.error is None]


def _append_facts(runs: Sequence[ChargedRun]) -> list[Float32Array]:
    """Return the records of each run with a one, the label, the weight 1 and their squared norm."""
    found: list[Float32Array] = []
    for i, run in enumerate(runs):
        rows, labels = _records(run)
        for other, table in zip(runs[:i], found, strict=True):
            others, names = _records(other)
            same = rows.ctypes.data == others.ctypes.data and rows.shape == others.shape
            if same and np.array_equal(labels, names):
                found.append(table)
                break
        else:
            square = np.einsum("nk,nk->n", rows, rows) + np.float32(1.0)
            found.append(append_columns(rows, labels, np.ones(len(rows), np.float32), square))
    return found


def _records(run: ChargedRun) -> tuple[Float32Array, NDArray[np.int64]]:
    """Return the records and labels of a run as arrays."""
    X, y, _ = run.data
    assert isinstance(X, Tensor)
    return X.numpy(), y.numpy()


class _ClippedStack:
    """Steps of runs of one kind; the weights and sums of each stay in its own ``Training``."""

    def __init__(self, runs: Sequence[ChargedRun], tables: Sequence[Float32Array]) -> None:
        self._runs, self._tables = runs, tables
        first = runs[0].training
        gradients, sizes = first._clipped.gradients, _sizes(first)
        kinds: set[Any] = set(gradients.activations)  # type: ignore[attr-defined]
        name = _NAMES[kinds.pop()] if kinds else "identity"
        blank = [
            (np.zeros(pair, np.float32), np.zeros(pair[1], np.float32)) for pair in pairwise(sizes)
        ]
        self._stack = PerceptronStack([blank] * len(runs), name, _N_FACTS)
        self._order = _stack_order(sizes)
        self._inverse = np.argsort(self._order)

    def step(self) -> None:
        """Carry out a step of each run; keep the error of one that fails."""
        stack, trainings = self._stack, [run.training for run in self._runs]
        # Abadi et al. 2016, Algorithm 1, "Take a random sample": each run for itself
        drawn = [
            training._sampler.draw(len(table), training.random)
            for training, table in zip(trainings, self._tables, strict=True)
        ]
        for training, weights in zip(trainings, stack.weights, strict=True):
            np.take(training._weights.data.numpy(), self._order, out=weights, mode="clip")
        stack.load(self._tables, drawn)
        # "Compute gradient" and "Clip gradient", of all runs at once
        sum_clipped_gradients(stack, trainings[0]._clip, trainings[0]._clipped.max_grad_norm, LOST)
        for run, total in zip(self._runs, stack.gradient, strict=True):
            np.take(total, self._inverse, out=run.training._grad.numpy(), mode="clip")
            try:
                # "Add noise" and "Descent", each run by its own mechanism and optimizer
                run.training.release_and_update(run.training._grad, run.peers, run.training.random)
            except Exception as error:
                run.error = error


def _stack_order(sizes: Sequence[int]) -> NDArray[np.intp]:
    """Return where the weights of a stack are in torch's vector, which has outputs first."""
    first, order = 0, []
    for fan_in, fan_out in pairwise(sizes):
        places = first + np.arange((fan_in + 1) * fan_out)
        weights, biases = places[:-fan_out].reshape(fan_out, fan_in), places[-fan_out:]
        order.append(np.vstack([weights.T, biases]).ravel())
        first += len(places)
    return np.concatenate(order)
