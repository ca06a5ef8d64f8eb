"""Contract of every private estimator; its checks raise AssertionError.

``test_records.py`` runs them on every estimator, ``tests/planted_bugs`` on estimators with a
planted bug, where they must fail.

The replay contract, ``tests/contracts/replay.py``, is the strongest of them.
"""

import gc
import pickle
import random
import warnings
from collections.abc import Iterator
from itertools import compress, repeat
from operator import is_
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from skprivacy.accounting import ComposedEvent

from . import neighbors as neighbours
from .cases import Case
from .neighbors import N
from .noise_laws import (
    CHANCE,
    check_independent,
    check_not_repeated,
    check_standard_normal,
    noise_of,
    standardised,
)
from .replay import replay
from .tape import Tape, recording, replaying


def check_replay(case: Case) -> None:
    """One record more or less changes the inputs of mechanisms alone, within their sensitivity."""
    replay(case, neighbours.RECORD)


def of_training(case: Case, tape: Tape) -> Tape:
    """Return the releases of the steps, without those that come before and after."""
    steps = slice(case.before, len(tape.outputs) - case.after)
    return Tape(tape.mechanisms[steps], tape.inputs[steps], tape.outputs[steps], tape.draws)


def event_of_training(model: Any) -> Any:
    """Return the event of the steps, which at most one release precedes."""
    event = model.privacy_event_
    return event.events[:2][-1] if isinstance(event, ComposedEvent) else event


def check_noise(case: Case) -> None:
    """Noise has the declared law and size, and is new at every number of every step."""
    tape = Tape()
    with recording(tape):
        model = case.make(hidden_layer_sizes=(1000,), epochs=70).fit(*case.data(N))
    tape = of_training(case, tape)
    assert {m.noise_multiplier for m in tape.mechanisms} == {model.noise_multiplier_}
    releases = zip(tape.mechanisms, tape.inputs, tape.outputs, strict=True)
    noise = np.array([noise_of(m, value, out) / m.sensitivity for m, value, out in releases])
    noise = standardised(tape.mechanisms[0].event, noise)
    check_standard_normal(noise)
    check_independent(noise)
    check_not_repeated(noise)


def check_accounting(case: Case) -> None:
    """The guarantee counts every release that was made, and keeps the target."""
    tape = Tape()
    with recording(tape):
        model = case.make().fit(*case.data(N))
    event, steps = event_of_training(model), of_training(case, tape)
    parts = getattr(model.privacy_event_, "events", (event,))
    others = [m for m in tape.mechanisms if not any(m is step for step in steps.mechanisms)]
    assert [part for part in parts if part != event] == [m.event for m in others]
    tape = steps
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
    assert len(tape.draws) == model.n_steps_
    check_poisson(tape.draws, n, event_of_training(model).event.sampling_rate)


def check_poisson(draws: list[NDArray], n: int, rate: float) -> None:
    """Test how often each of ``n`` units is drawn, and how many each draw has."""
    counts = np.bincount(np.concatenate(draws), minlength=n)
    assert len(counts) == n, "more are drawn than there are"
    sizes = np.array([len(drawn) for drawn in draws])
    for values, trials in ((counts, len(draws)), (sizes, n)):
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
    check_same_plan(fits)


def check_same_plan(fits: list[Any]) -> None:
    """Demand the same steps, noise and settings of fits that hide how many records there are."""
    assert len({(m.n_steps_, m.noise_multiplier_, m.privacy_event_) for m in fits}) == 1
    assert len({str(getattr(m, "settings_", None)) for m in fits}) == 1
    assert {m.privacy_.relation for m in fits} == {"add_remove"}
