"""Every class that releases private data, and how the noise that it adds is observed.

A new class with ``release`` is one more entry in ``CASES``; without it a test fails. ``observe``
runs the class with a given share of the noise and yields pairs of an event and the noise: the event
claims the law of all of it. Tests pass a share of 1, and one that they must notice.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from skprivacy._input_data import resolve_groups
from skprivacy.accounting import Event, GaussianEvent, PoissonSampledEvent, VoteBlockEvent
from skprivacy.accounting.event import flatten
from skprivacy.accounting.events import (
    BandedFactorizationEvent,
    ExponentialEvent,
    TreeAggregationEvent,
)
from skprivacy.accounting.smooth_sensitivity import Smoothed
from skprivacy.ensemble import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from skprivacy.fine_tuning import NetworkHead, SoftmaxHead
from skprivacy.fine_tuning.head import HeadInput, Task
from skprivacy.fine_tuning.heads import GradientHead, LeastSquaresHead, PrototypeHead
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.mechanisms import (
    Exponential,
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    Mechanism,
    RandomizedResponse,
    ReportNoisyMax,
    SecureRandom,
)
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.mechanisms.secure_random import PrefetchedNoise
from skprivacy.mechanisms.selection import RandomizedResponseWithPrior
from skprivacy.mechanisms.special_noise import Logistic, SmoothGaussian
from skprivacy.neural_network._training.engine import Peers, SingleProcess
from skprivacy.neural_network._training.gradient_canaries import _Watched
from skprivacy.neural_network._training.process_group import ProcessGroup
from skprivacy.preprocessing.statistics.moments import BoundedColumns
from skprivacy.sums.sources import ArraySource, SumRelease

from ..contracts.noise_laws import choice_as_normal, claim_of, noise_of
from ..contracts.tape import Tape, recording
from .test_selection import exponential_law, permute_and_flip_law

Observed = Iterator[tuple[Event, NDArray[Any]]]  # noise has shape (times, size)

Z, SENSITIVITY = 0.7, 2.5
LONG = 1 << 18  # numbers of one vector: beyond the chunks in which noise is made


@dataclass(frozen=True)
class NoiseCase:
    """A class with ``release``, and the largest share of its noise that must be noticed."""

    covers: type
    observe: Callable[[float], Observed]
    notices: float


def _vector(
    kind: Callable[..., Any],
    share: float,
    form: Any = np.float64,
    random: Any = None,
    times: int = 18,
) -> Observed:
    """Observe a mechanism that adds noise to long vectors, 4.7 million numbers if 18 times."""
    claim, mechanism = kind(Z, SENSITIVITY).event, kind(share * Z, SENSITIVITY)
    source = SecureRandom()
    for _ in range(times):
        value = torch.zeros(LONG) if form is torch.Tensor else np.zeros(LONG, form)
        output = mechanism.release(value, source if random is None else random(source))
        yield claim, np.asarray(output, float)[None] / SENSITIVITY


def _drawn_ahead(source: SecureRandom) -> SecureRandom:
    return PrefetchedNoise(source, LONG, elsewhere=True)


def _grid(kind: Callable[..., Any], size: int, share: float, times: int = 1) -> Observed:
    """Observe a mechanism that is exact on a grid, with a value off the grid."""
    claim, mechanism = kind(Z, SENSITIVITY).event, kind(share * Z, SENSITIVITY)
    for _ in range(times):
        output = mechanism.release(np.full(size, -17.3), SecureRandom())
        yield claim, (output + 17.3)[None] / SENSITIVITY


def _stream(run: Callable[[float], Any], share: float) -> Observed:
    """Observe all steps of one stream."""
    claim, mechanism = run(Z), MatrixGaussian(run(share * Z), SENSITIVITY)
    random = SecureRandom()
    steps = [mechanism.release(np.zeros(400_000), random) for _ in range(claim.n_steps)]
    yield claim, np.array(steps) / SENSITIVITY


def _distributed(share: float) -> Observed:
    """Observe the sum of the two parties that answer, out of three."""
    claim = DistributedGaussian(Z, 3, n_untrusted=1).event
    mechanism = DistributedGaussian(share * Z, 3, n_untrusted=1)
    value = np.random.default_rng(0).integers(-(2**35), 2**35, (2, 200_000))
    output = mechanism.release(value, SecureRandom())
    yield claim, noise_of(mechanism, value, output)[None] / mechanism.sensitivity


def _responses(kind: Callable[..., Any], share: float) -> Observed:
    """Observe randomised responses of records that all hold one category."""
    claim, mechanism = kind(1 / Z, 3).event, kind(1 / (share * Z), 3)
    reports = mechanism.release(np.ones(1_000_000, int), SecureRandom())
    laws = np.broadcast_to(_response_law(claim.epsilon), (len(reports), 3))
    yield ExponentialEvent(claim.epsilon), choice_as_normal(laws, reports)[None]


def _response_law(epsilon: float) -> NDArray[Any]:
    return np.array([1.0, math.exp(epsilon), 1.0]) / (math.exp(epsilon) + 2)


SCORES = np.array([0.0, 1.0, 2.5, 3.0, 3.0, 1.7])


def _choices(kind: Callable[..., Any], law: Callable[..., Any], share: float) -> Observed:
    """Observe choices among six candidates."""
    claim, mechanism = kind(1 / Z, 0.7).event, kind(1 / (share * Z), 0.7)
    random = SecureRandom()
    chosen = np.array([mechanism.release(SCORES, random) for _ in range(4000)])
    laws = np.broadcast_to(law(SCORES, claim.epsilon, 0.7), (len(chosen), len(SCORES)))
    yield ExponentialEvent(claim.epsilon), choice_as_normal(laws, chosen)[None]


def _smooth(share: float) -> Observed:
    """Observe noise in units of a smooth sensitivity, far from both ends of the range."""
    value = Smoothed(0.5, 0.02)
    claim, mechanism = SmoothGaussian(Z, 0.1).event, SmoothGaussian(share * Z, 0.1)
    random = SecureRandom()
    released = np.array([mechanism.release(value, random) for _ in range(1500)])
    yield GaussianEvent(claim.noise_multiplier), (released - value.cost)[None] / value.sensitivity


def _objective(delta: float, n_classes: int, share: float) -> Observed:
    """Observe the random linear term of objective perturbation, from its minimiser."""
    mechanism = ObjectivePerturbation(2.0, delta, n_classes)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(6, 20)) / 9
    targets = np.eye(n_classes)[rng.integers(n_classes, size=6)]
    value = rows, targets[:, 1:] if n_classes == 2 else targets, np.ones(6)
    claim = claim_of(mechanism, value)
    all_of_it = mechanism.scale(rows.shape[1])
    with mock.patch.object(ObjectivePerturbation, "scale", return_value=share * all_of_it):
        outputs = [mechanism.release(value, SecureRandom()) for _ in range(300)]
    noise = [noise_of(mechanism, value, output).ravel() for output in outputs]
    yield claim, np.array(noise) / mechanism.sensitivity


# ---------------------------------------------------------------------- votes and their aggregators


def _votes(make: Callable[[float], Any], n_queries: int, n_classes: int, share: float) -> Observed:
    """Observe the noise on counts of votes; the event claims its law in votes."""
    for moved in (1, 2):
        claimed = {b.kind: b for b in _blocks(make(1.0).event(n_queries, moved))}
        tape, votes = Tape(), np.random.default_rng(0).integers(0, 9, (n_queries, n_classes))
        with recording(tape):
            make(share).release(votes, moved, SecureRandom(), _no_student)
        n_tests, n_rows = 0, 0
        for value, output in zip(tape.inputs, tape.outputs, strict=True):
            is_test = value.ndim == 1 and "threshold" in claimed
            block = claimed["threshold"] if is_test else next(iter(_winners(claimed)))
            n_tests, n_rows = n_tests + is_test * len(value), n_rows + len(np.atleast_2d(value))
            yield replace(block, n_queries=1, moved=1), (output - value).reshape(1, -1)
        if "threshold" in claimed:
            assert n_tests == claimed["threshold"].n_queries, "tests that are not charged"


def _with_threshold(kind: Callable[..., Any]) -> Any:
    return lambda share: kind(-900.0, 10, 9.0 * share, 3.0 * share)


def _blocks(event: Event) -> Iterator[VoteBlockEvent]:
    """Yield the blocks of votes that an event is composed of."""
    if isinstance(event, VoteBlockEvent):
        yield event
    else:
        for part in event.events:
            yield from _blocks(part)


def _winners(claimed: dict[str, VoteBlockEvent]) -> Iterator[VoteBlockEvent]:
    return (block for kind, block in claimed.items() if kind != "threshold")


def _no_student(labels: NDArray[Any]) -> NDArray[Any]:
    return np.zeros((len(labels), 1))


# ------------------------------------------------------------------ classes that call a mechanism


@contextmanager
def less_noise(share: float) -> Iterator[None]:
    """Let every mechanism add ``share`` of its noise."""
    release = Mechanism.release

    def lighter(self: Mechanism, value: Any, random: SecureRandom) -> Any:
        before = np.array(value, dtype=float)
        output = release(self, value, random)
        return before + share * (output - before)

    with mock.patch.object(Mechanism, "release", lighter):
        yield


def _passes_on(
    mechanism: Mechanism, call: Callable[[SecureRandom], Any], share: float, times: int = 1
) -> Observed:
    """Observe what is released by the one mechanism that was handed over."""
    for _ in range(times):
        tape = Tape()
        with less_noise(share), recording(tape):
            call(SecureRandom())
        assert tape.mechanisms == [mechanism], "not one release by the given mechanism"
        yield mechanism.event, _noise(tape, 0)


def _noise(tape: Tape, i: int) -> NDArray[Any]:
    noise = tape.outputs[i] - tape.inputs[i]
    return noise.reshape(1, -1) / tape.mechanisms[i].sensitivity


def _head(
    head: Any, size: int, n_classes: int, share: float, delta: float = 1e-4, times: int = 1
) -> Observed:
    """Observe the releases of a head against the event that it declares for all of them."""
    task = Task(size, n_classes, 1.0, delta, "zero_out", 24, noise_seed=None)
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(24, size)) / (4 * math.sqrt(size)) * 2**16) / 2**16
    records = HeadInput(rows, np.ones(24), rng.integers(n_classes, size=24), n_classes)
    for _ in range(times):
        tape = Tape()
        with less_noise(share), recording(tape):
            head.release(task, records, SecureRandom())
        ((event, count),) = flatten(head.event(task)).items()
        assert len(tape.mechanisms) == count, "not as many releases as the event has"
        each = event.event if isinstance(event, PoissonSampledEvent) else event
        for i in range(count):
            yield each, _noise(tape, i)


def _watched() -> _Watched:
    canaries = SimpleNamespace(clean=torch.zeros(1), weights=torch.zeros(1, dtype=torch.int64))
    return _Watched(canaries, SimpleNamespace(released=lambda noisy, clean: None))


def _first_of_group() -> ProcessGroup:
    """Return the process that adds the noise, without the others."""
    group = object.__new__(ProcessGroup)
    group.rank, group._meet = 0, lambda *_: None
    return group


STEP = FloatGaussian(Z, SENSITIVITY)
COLUMNS = ArraySource(np.zeros((9, 50_000)), None, resolve_groups(None, np.zeros(9)))
MOMENTS = (
    BoundedColumns(COLUMNS, tuple(map(str, range(50_000))), (-1, 1))
    .moments(2, "zero_out", lambda moments: moments)
    .calibrated(1.0, 1e-4)
)


def _of_network(peers: Any) -> Any:
    return partial(
        _passes_on, STEP, lambda random: peers.release(STEP, np.zeros(LONG), random), times=18
    )


def _case(covers: type, observe: Any, *given: Any, notices: float = 0.997, **named: Any) -> Any:
    return NoiseCase(covers, partial(observe, *given, **named), notices)


def _of_kind(kind: type, observe: Any, *given: Any, **named: Any) -> Any:
    return _case(kind, observe, kind, *given, **named)


CASES = {
    "FloatGaussian": _of_kind(FloatGaussian, _vector),
    "FloatGaussian-float32": _of_kind(FloatGaussian, _vector, form=np.float32),
    "FloatGaussian-tensor": _of_kind(
        FloatGaussian, _vector, form=torch.Tensor, times=5, notices=0.993
    ),
    "FloatGaussian-ahead": _of_kind(FloatGaussian, _vector, form=np.float32, random=_drawn_ahead),
    "FloatLogistic": _of_kind(FloatLogistic, _vector, notices=0.996),
    "FloatLogistic-tensor": _of_kind(
        FloatLogistic, _vector, form=torch.Tensor, times=5, notices=0.99
    ),
    # The grid counts a vector's rounding: 1e-4 of the noise of so many numbers.
    "RoundedGaussian": _of_kind(RoundedGaussian, _vector),
    "MatrixGaussian-banded": _case(
        MatrixGaussian, _stream, lambda z: BandedFactorizationEvent(z, 6, 2, (1.0, 0.5, 0.25))
    ),
    "MatrixGaussian-tree": _case(MatrixGaussian, _stream, lambda z: TreeAggregationEvent(z, 6, 2)),
    "Laplace": _of_kind(Laplace, _grid, 500_000, notices=0.985),
    "Gaussian": _of_kind(Gaussian, _grid, 400_000, notices=0.985),
    "Logistic": _of_kind(Logistic, _grid, 200_000, notices=0.97),
    "KNorm": _of_kind(KNorm, _grid, 150_000, times=2, notices=0.98),
    "KNorm-short": _of_kind(KNorm, _grid, 3, times=400, notices=0.8),
    "DistributedGaussian": _case(DistributedGaussian, _distributed, notices=0.98),
    "RandomizedResponse": _of_kind(RandomizedResponse, _responses, notices=0.97),
    "RandomizedResponseWithPrior": _of_kind(RandomizedResponseWithPrior, _responses, notices=0.97),
    "Exponential": _of_kind(Exponential, _choices, exponential_law, notices=0.7),
    "ReportNoisyMax": _of_kind(ReportNoisyMax, _choices, permute_and_flip_law, notices=0.7),
    "SmoothGaussian": _case(SmoothGaussian, _smooth, notices=0.8),
    "ObjectivePerturbation-pure": _case(ObjectivePerturbation, _objective, 0.0, 2, notices=0.9),
    "ObjectivePerturbation": _case(ObjectivePerturbation, _objective, 1e-4, 2, notices=0.9),
    "ObjectivePerturbation-pure-classes": _case(
        ObjectivePerturbation, _objective, 0.0, 3, notices=0.9
    ),
    "ObjectivePerturbation-classes": _case(ObjectivePerturbation, _objective, 1e-4, 3, notices=0.9),
    "GNMax": _case(GNMax, _votes, lambda share: GNMax(3.0 * share), 20, 10_000, notices=0.98),
    "LNMax": _case(LNMax, _votes, lambda share: LNMax(3.0 * share), 20, 10_000, notices=0.98),
    "ConfidentGNMax": _case(
        ConfidentGNMax, _votes, _with_threshold(ConfidentGNMax), 20_000, 10, notices=0.97
    ),
    "InteractiveGNMax": _case(
        InteractiveGNMax, _votes, _with_threshold(InteractiveGNMax), 20_000, 10, notices=0.97
    ),
    "SoftmaxHead": _case(SoftmaxHead, _head, SoftmaxHead(20.0), 30, 4, times=40, notices=0.85),
    "SoftmaxHead-k-norm": _case(
        SoftmaxHead, _head, SoftmaxHead(20.0), 30, 4, delta=0.0, times=40, notices=0.85
    ),
    "LeastSquaresHead": _case(LeastSquaresHead, _head, LeastSquaresHead(), 400, 4, notices=0.97),
    "PrototypeHead": _case(PrototypeHead, _head, PrototypeHead(), 4000, 20, notices=0.97),
    "GradientHead": _case(GradientHead, _head, GradientHead(n_steps=4), 2000, 10, notices=0.97),
    "NetworkHead": _case(
        NetworkHead, _head, NetworkHead((1000,), epochs=3, batch_size=8), 4, 3, notices=0.95
    ),
    "SumRelease": _case(
        SumRelease,
        _passes_on,
        MOMENTS.mechanism,
        lambda random: MOMENTS.release(COLUMNS, random),
        notices=0.97,
    ),
    "Peers": _case(Peers, _of_network(Peers())),
    "SingleProcess": _case(SingleProcess, _of_network(SingleProcess())),
    "_Watched": _case(_Watched, _of_network(_watched())),
    "ProcessGroup": _case(ProcessGroup, _of_network(_first_of_group())),
}
