"""What every private estimator owes, as functions that raise AssertionError when it is not kept.

``test_contracts.py`` runs them on every estimator, ``test_mutants.py`` on estimators with a planted
bug, where they must fail.

The record/replay check is the strongest: private data may reach the result only through
``Mechanism.release``. A fit on D records what every release was given and what it gave. A fit on a
neighbour D' is given the same answers; then everything but the inputs of the releases must be
equal, and the inputs must lie within the declared sensitivity.
"""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress, repeat
from operator import is_
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import toeplitz

from skprivacy.accounting import (
    BandedFactorization,
    Composed,
    Event,
    GaussianEvent,
    LogisticEvent,
    PrivacyBudget,
    TreeAggregation,
)
from skprivacy.linear_model._logistic import LogisticLoss
from skprivacy.linear_model.objective import ObjectivePerturbation
from skprivacy.mechanisms import (
    DistributedGaussian,
    Exponential,
    Laplace,
    Mechanism,
    PoissonSampler,
)

from .private_estimators import Case

N = 24
# How often a sound estimator fails one comparison of a check; all tests make a few hundred.
CHANCE = 1e-9
RECORDS: dict[str, Callable[[NDArray], NDArray]] = {
    "typical": lambda row: row,
    "outlier": lambda row: row + 1e3,
    "huge": lambda row: np.full_like(row, 1e38),
    "beyond single precision": lambda row: np.full_like(row, 1e300),
    "infinite": lambda row: np.where(np.arange(row.size) == 1, np.inf, row),
    "zero": np.zeros_like,
}


@dataclass
class Tape:
    """What went through the mechanisms and the sampler during a fit."""

    mechanisms: list[Mechanism] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    draws: list[NDArray] = field(default_factory=list)


def of_training(case: Case, tape: Tape) -> Tape:
    """Return the releases of the steps, without those that come before."""
    first = case.before
    steps = tape.mechanisms[first:], tape.inputs[first:], tape.outputs[first:]
    return Tape(*steps, tape.draws)


def event_of_training(model: Any) -> Any:
    """Return the event of the steps."""
    event = model.privacy_event_
    return event.events[-1] if isinstance(event, Composed) else event


@contextmanager
def recording(tape: Tape, always: int | None = None) -> Iterator[None]:
    """Record; the record numbered ``always`` is made to take part in every step."""
    release, draw = Mechanism.release, PoissonSampler.draw

    def recorded_release(self, value, random):
        tape.mechanisms.append(self)
        tape.inputs.append(_copied(value))
        output = release(self, value, random)
        tape.outputs.append(_copied(output))
        return output

    def recorded_draw(self, n, random):
        indices = draw(self, n, random)
        if always is not None:
            indices = np.union1d(indices, [always])
        tape.draws.append(indices)
        return indices

    with (
        mock.patch.object(Mechanism, "release", recorded_release),
        mock.patch.object(PoissonSampler, "draw", recorded_draw),
    ):
        yield


@contextmanager
def replaying(recorded: Tape, tape: Tape, extra: int | None = None) -> Iterator[None]:
    """Answer as recorded; ``extra`` is the number of a record that D' has and D has not."""

    def replayed_release(self, value, random):
        tape.mechanisms.append(self)
        tape.inputs.append(_copied(value))
        place = len(tape.inputs) - 1
        assert place < len(recorded.outputs), "more releases on the neighbour"
        assert self == recorded.mechanisms[place], "another mechanism on the neighbour"
        if not isinstance(value, tuple):
            same = np.shape(value) == np.shape(recorded.inputs[place])
            assert same, "the shape of a release depends on the data"
        output = np.array(recorded.outputs[place], copy=True)
        if isinstance(value, torch.Tensor):
            return torch.from_numpy(output).to(value.device)
        return output

    def replayed_draw(self, n, random):
        assert len(tape.draws) < len(recorded.draws), "more steps on the neighbour"
        indices = recorded.draws[len(tape.draws)]
        if extra is not None:
            indices = np.union1d(indices, [extra])
        tape.draws.append(indices)
        return indices[indices < n]

    with (
        mock.patch.object(Mechanism, "release", replayed_release),
        mock.patch.object(PoissonSampler, "draw", replayed_draw),
    ):
        yield


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(np.array, value))
    return np.array(value.cpu().numpy() if isinstance(value, torch.Tensor) else value, copy=True)


def noise_of(mechanism: Mechanism, value: Any, output: NDArray) -> NDArray:
    """Return the noise that led from a mechanism's input to its output.

    That of an objective perturbation is the random linear term that makes ``output`` the minimum.
    That of a choice is the place of the choice among the probabilities of the candidates, drawn
    within its own, as a normal number: a choice has no noise to be seen.
    """
    if isinstance(mechanism, Exponential):
        return _noise_of_choice(mechanism, value, int(output))
    if isinstance(mechanism, DistributedGaussian):  # of all parties: the sum alone is released
        return output - value.sum(axis=0)
    if not isinstance(mechanism, ObjectivePerturbation):
        return output - value
    rows, targets, weights = value
    ridge = mechanism.ridge(rows.shape[1])
    problem = LogisticLoss(rows, targets, weights, ridge, np.zeros_like(output))
    return -problem.gradient(output, problem.probabilities(output))


def _noise_of_choice(mechanism: Exponential, scores: NDArray, chosen: int) -> NDArray:
    odds = mechanism.epsilon * (scores - scores.max()) / (2 * mechanism.sensitivity)
    shares = np.exp(odds) / np.exp(odds).sum()
    place = shares[:chosen].sum() + np.random.default_rng().uniform() * shares[chosen]
    return stats.norm.ppf(np.clip([place], 1e-12, 1 - 1e-12))


def check_replay(case: Case) -> None:
    """Neighbours differ in mechanism inputs alone, and in those by the sensitivity at most."""
    reached = []
    for name, change in RECORDS.items():
        # Of those without a null record, only removal is a neighbour.
        places = () if case.null_label is None else (0, N - 1)  # the last is alone in its class
        for place in places:
            X, y = case.data(N)
            X[place] = change(X[place])
            X_null, y_null = X.copy(), y.copy()
            X_null[place], y_null[place] = np.nan, case.null_label
            reached += compare(case.make(), (X, y), (X_null, y_null), name, always=place)
    hides_size = case.add_remove and (case.samples or case.once)  # streams: zero-out alone
    for name, change in RECORDS.items() if hides_size else ():
        X, y = case.data(N + 1)
        X[-1] = change(X[-1])
        model = case.make(n_records=N)
        reached += compare(model, (X[:-1], y[:-1]), (X, y), f"added {name}", extra=N)
    assert max(reached) > case.reaches, "no neighbour comes near the sensitivity: proves nothing"


def fitted(model: Any, X: NDArray, y: NDArray, groups: Any = None) -> Any:
    """Fit, with groups if there are any: not every estimator takes them."""
    return model.fit(X, y) if groups is None else model.fit(X, y, groups=groups)


def compare(model, data, neighbour, name, always=None, extra=None, most=1.0) -> list[float]:
    """Return the distances of the inputs, in units of the sensitivity; none exceeds ``most``."""
    tape, again = Tape(), Tape()
    blob = pickle.dumps(model)  # both from a copy: then equal words are the same objects in both
    model, other = pickle.loads(blob), pickle.loads(blob)
    with recording(tape, always), _said() as said:
        fitted(model, *data)
    with replaying(tape, again, extra), _said() as said_again:
        fitted(other, *neighbour)
    assert said == said_again, f"{name}: what is printed or warned depends on the data"
    assert tape.mechanisms, "nothing passed through a mechanism"
    assert tape.mechanisms == again.mechanisms, f"{name}: other mechanisms on the neighbour"
    distances = []
    for mechanism, a, b, output in zip(
        tape.mechanisms, tape.inputs, again.inputs, tape.outputs, strict=True
    ):
        if isinstance(a, np.ndarray):
            assert a.shape == b.shape, f"{name}: the shape of a release depends on the data"
            assert a.dtype == b.dtype, f"{name}: the type of a release depends on the data"
            difference = a.astype(float) - b.astype(float)
        else:  # the data itself is given: what counts is the noise that leads to one answer
            difference = noise_of(mechanism, a, output) - noise_of(mechanism, b, output)
        distance = np.linalg.norm(difference.ravel(), _order(mechanism))
        # Sums of single-precision numbers round at 1e-6 of the sensitivity for batches this small.
        assert distance <= most * mechanism.sensitivity * (1 + 1e-6), (
            f"{name}: inputs differ by {distance}, declared {mechanism.sensitivity}"
        )
        distances.append(distance / mechanism.sensitivity)
    assert fingerprint(model) == fingerprint(other), f"{name}: the result depends on the data"
    return distances


@contextmanager
def _said() -> Iterator[list[str]]:
    """Collect what is printed and warned."""
    said: list[str] = []
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        yield said
    said += [out.getvalue(), err.getvalue(), *(str(w.message) for w in caught)]


def _order(mechanism: Mechanism) -> float:
    """Return 1, 2 or infinity: the norm that the sensitivity of a mechanism is measured in."""
    if isinstance(mechanism, Exponential):
        return np.inf
    named = getattr(mechanism, "norm", "l1" if isinstance(mechanism, Laplace) else "l2")
    return int(named[1])


class _Pickler(pickle.Pickler):
    """Pickle tensors by their values: torch writes memory addresses; and budgets by their ledger.

    A budget also remembers the last line of the ledger that it has seen, whoever wrote it.
    """

    def reducer_override(self, obj):
        if isinstance(obj, torch.Tensor):
            return bytes, (obj.detach().cpu().numpy().tobytes(),)
        if isinstance(obj, PrivacyBudget):
            return str, (f"{obj.path} {obj._scope}",)
        return NotImplemented


def fingerprint(model: Any) -> bytes:
    """Everything that a fitted model holds, whichever of it is one object in two places."""
    out = io.BytesIO()
    pickler = _Pickler(out)
    pickler.fast = True  # no memo: equal models are equal bytes, also after a copy
    pickler.dump(vars(model))  # skorch's nets pickle their tensors by themselves
    return out.getvalue()


def check_noise(case: Case) -> None:
    """Noise has the declared law and size, and is new at every number of every step."""
    tape = Tape()
    with recording(tape):
        model = case.make(hidden_layer_sizes=(1000,), epochs=70).fit(*case.data(N))
    tape = of_training(case, tape)
    assert {m.noise_multiplier for m in tape.mechanisms} == {model.noise_multiplier_}
    noise = _independent_normal(
        tape.mechanisms[0].event,
        np.array(
            [
                noise_of(m, value, out) / (m.noise_multiplier * m.sensitivity)
                for m, value, out in zip(tape.mechanisms, tape.inputs, tape.outputs, strict=True)
            ]
        ),
    )
    check_normal(noise)
    size = noise.shape[1]
    spectrum = np.abs(np.fft.rfft(noise, 2 * size, axis=1)) ** 2
    lags = np.fft.irfft(spectrum, axis=1).sum(0)[1:size]
    assert np.abs(lags).max(initial=0) < 8 * np.sqrt(noise.size), "noise is repeated in a step"


def check_normal(noise: NDArray) -> None:
    """Noise, shape (times, size), is standard normal and independent of time and of place."""
    times, size = noise.shape
    squares = noise**2
    assert _two_sided(stats.chi2(noise.size), squares.sum()) > CHANCE, "noise of another size"
    each = stats.chi2(times)
    least = min(_two_sided(each, s) for s in (squares.sum(0).min(), squares.sum(0).max()))
    assert least * size > CHANCE, "a number has noise of another size"
    assert stats.kstest(noise.ravel()[:100_000], "norm").pvalue > CHANCE, "the noise is not normal"
    for rows in (noise, noise.T[:1000]):  # every pair of times, and of a thousand numbers
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = np.abs(unit @ unit.T)[np.triu_indices(len(rows), 1)]
        half = (rows.shape[1] - 1) / 2
        if cosines.size and half:  # of independent directions (1 + cosine) / 2 is Beta(half, half)
            least = 2 * stats.beta(half, half).sf((1 + cosines.max()) / 2)
            assert least * cosines.size > CHANCE, "noise is repeated"


def _independent_normal(event: Event, noise: NDArray) -> NDArray:
    """Turn noise, shape (steps, size), into what is independent and normal if it is as claimed."""
    if isinstance(event, LogisticEvent):
        return np.sign(noise) * stats.norm.isf(stats.logistic.sf(np.abs(noise)))
    if isinstance(event, BandedFactorization):
        column = np.zeros(len(noise))
        column[: len(event.coefficients)] = event.coefficients[: len(noise)]
        return toeplitz(column, np.zeros(len(noise))) @ noise
    if isinstance(event, TreeAggregation):
        sums = np.concatenate([np.zeros((1, noise.shape[1])), noise.cumsum(0)])
        steps = np.arange(1, len(sums))
        return sums[steps] - sums[steps - (steps & -steps)]  # without the last binary digit
    assert isinstance(event, GaussianEvent)
    return noise


def _two_sided(distribution, value: float) -> float:
    return 2 * min(distribution.cdf(value), distribution.sf(value))


def check_accounting(case: Case) -> None:
    """The guarantee counts every release that was made, and keeps the target."""
    tape = Tape()
    with recording(tape):
        model = case.make().fit(*case.data(N))
    before, event = tape.mechanisms[: case.before], event_of_training(model)
    assert not before or model.privacy_event_.events[:-1] == tuple(m.event for m in before)
    tape = of_training(case, tape)
    if case.samples:
        assert event.count == len(tape.outputs) == model.n_steps_
        assert event.event.event == tape.mechanisms[0].event
    else:
        assert event.n_steps == len(tape.outputs) == model.n_steps_
        assert event == tape.mechanisms[0].event
    assert 0.99 * model.epsilon < model.epsilon_ <= model.epsilon
    assert model.delta_ == model.delta
    assert model.privacy_.kind == "proved"
    assert model.privacy_.relation == "zero_out"
    assert "the number of records is public" in model.privacy_.assumptions
    if not case.samples:
        assert any("which batch" in assumption for assumption in model.privacy_.assumptions)
        return
    assert case.make(n_records=N).fit(*case.data(N)).privacy_.relation == "add_remove"


def check_turns(case: Case) -> None:
    """In a stream a record is met at its public place in every epoch, and nowhere else."""
    model = case.make(batch_size=7, epochs=3)
    X, y = case.data(N)
    for place in (0, 6, 7, N - 1):
        X_null, y_null = X.copy(), y.copy()
        X_null[place], y_null[place] = np.nan, case.null_label
        tape, again = Tape(), Tape()
        with recording(tape):
            fitted = model.fit(X, y)
        with replaying(tape, again):
            case.make(batch_size=7, epochs=3).fit(X_null, y_null)
        pairs = zip(tape.inputs, again.inputs, strict=True)
        met = [step for step, (a, b) in enumerate(pairs) if not np.array_equal(a, b)]
        every = fitted.privacy_event_.steps_per_epoch
        assert met == [place // 7 + every * epoch for epoch in range(fitted.privacy_event_.epochs)]


def check_inclusion(case: Case) -> None:
    """Every record takes part in each step independently, at the rate accounted for."""
    n, tape = 400, Tape()
    with recording(tape):
        model = case.make(batch_size=40, epochs=20).fit(*case.data(n))
    counts = np.bincount(np.concatenate(tape.draws), minlength=n)
    rate, steps = event_of_training(model).event.sampling_rate, model.n_steps_
    assert len(tape.draws) == steps
    sizes = np.array([len(d) for d in tape.draws])
    for values, trials in ((counts, steps), (sizes, n)):
        spread = ((values - trials * rate) ** 2).sum() / (trials * rate * (1 - rate))
        p = stats.chi2(len(values)).cdf(spread)
        assert CHANCE < p < 1 - CHANCE, "records do not take part as a Poisson sample does"


def check_fresh_noise(case: Case) -> None:
    """Equal seeds, of whatever kind, and equal data never meet equal noise or equal batches."""
    tapes = [Tape(), Tape()]
    for tape in tapes:
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002 - the legacy state is what is meant
        torch.manual_seed(3)
        with recording(tape):
            case.make(random_state=3).fit(*case.data(N))
    noise = [list(map(noise_of, t.mechanisms, t.inputs, t.outputs)) for t in tapes]
    for first, second in zip(*noise, strict=True):
        if first.shape != second.shape:
            continue  # earlier noise decides how much is released
        assert not np.isclose(first, second, rtol=1e-6, atol=0).all(), "the noise is repeated"
    draws = [[d.tolist() for d in tape.draws] for tape in tapes]
    always = all(len(d) == N for d in draws[0])
    assert always or draws[0] != draws[1], "who takes part is repeated"


def check_no_traces(case: Case) -> None:
    """Neither private values nor what was computed from them unreleased is in a fitted model."""
    tape = Tape()
    X, y = case.data(N)
    canary = np.array([0.123456789, -0.987654321, 0.314159265, -0.271828182])
    X[3] = canary
    known = {id(X), id(y), *map(id, tape.inputs)}
    with recording(tape):
        model = case.make().fit(X, y)
    blob = pickle.dumps(model)
    known |= {id(value) for values in (tape.inputs, tape.draws) for value in values}
    if any(_among_the_living(X, known)):
        gc.unfreeze()  # what has died since it was frozen is among them
        gc.collect()
        assert not any(_among_the_living(X, known)), "the data is kept somewhere"
    secrets = [canary, canary.astype(np.float32), *canary[:, None]]
    given = [v for value in tape.inputs for v in (value if isinstance(value, tuple) else (value,))]
    secrets += given + [value.astype(np.float32) for value in given]
    secrets += [d[:4] for d in tape.draws if len(d) > 3]
    for secret in secrets:
        if np.any(secret):
            assert np.ascontiguousarray(secret).tobytes() not in blob, "a private value is kept"
    for name in ("seed", "_average", "optimizer", "history"):
        others = {k: v for k, v in vars(model).items() if k not in model.get_params()}
        kept = [k for k, v in others.items() if name in k and (not hasattr(v, "__len__") or len(v))]
        assert not kept, f"training leftovers are kept: {kept}"


def _among_the_living(X: NDArray, known: set[int]) -> Iterator[bool]:
    for thing in _alive():
        if id(thing) not in known and tuple(thing.shape) == X.shape and thing.dtype != object:
            here = thing.detach().cpu() if isinstance(thing, torch.Tensor) else thing
            yield np.allclose(here, X, equal_nan=True)


def _alive() -> Iterator[Any]:
    """Return every tensor, and every array that anything alive holds.

    Arrays do not take part in garbage collection: only what holds them can be looked through. What
    conftest.py has frozen, such as the modules, must be among it. A million things are looked at,
    for each estimator: none of them by a line of Python.
    """
    gc.collect()
    gc.unfreeze()
    things = gc.get_objects()
    gc.freeze()
    held = gc.get_referents(*things)
    tensors = compress(things, map(is_, map(type, things), repeat(torch.Tensor)))
    arrays = compress(held, map(is_, map(type, held), repeat(np.ndarray)))
    return iter({id(value): value for value in (*tensors, *arrays)}.values())


def check_empty_batches(case: Case) -> None:
    """A step without any record adds noise, counts, and moves the model by noise alone."""
    X, y = case.data(N)
    tape = Tape()
    with recording(tape):
        model = case.make(n_records=10**5, batch_size=1000, epochs=1, delta=1e-7).fit(X, y)
    assert min(len(d) for d in tape.draws) == 0, "no batch was empty: the check proves nothing"
    tape = of_training(case, tape)
    assert len(tape.outputs) == model.n_steps_
    for draw, value, output in zip(tape.draws, tape.inputs, tape.outputs, strict=True):
        assert len(draw) or not value.any()
        assert output.any()


def check_public_size(case: Case) -> None:
    """With ``n_records`` nothing depends on how many records there are."""
    fits = []
    for n in (N - 1, N, N + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fits.append(case.make(n_records=N, batch_size=7).fit(*case.data(n)))
    assert len({(m.n_steps_, m.noise_multiplier_, m.privacy_event_) for m in fits}) == 1
    assert len({str(getattr(m, "settings_", None)) for m in fits}) == 1
    assert {m.privacy_.relation for m in fits} == {"add_remove"}
