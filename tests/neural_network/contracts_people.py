"""What a training that protects people owes, as functions that raise AssertionError if not kept.

They hold it to what ``contracts.py`` holds one to that protects records: what goes through the
mechanism may differ by the sensitivity when one person is blanked, however many rows she has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from skprivacy._groups import Groups
from skprivacy.neural_network._gradients.clipped_sum import ClippedGradientSum
from skprivacy.neural_network._training.engine import Training

from ..contracts import CHANCE, RECORDS, Tape, compare, recording
from ..private_estimators import Case

SIZES = (1, 2, 3, 4, 7, 1, 2, 5)
Table = tuple[NDArray, NDArray, NDArray]


def table(case: Case, sizes: tuple[int, ...] = SIZES) -> Table:
    """Return rows, targets and whose they are; the first rows are of one person each, in order."""
    whose = np.repeat(np.arange(len(sizes)), sizes)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rest = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(whose)), first))
    return *case.data(len(whose)), whose[np.concatenate([first, rest])]


@contextmanager
def settled_rows() -> Iterator[None]:
    """Keep the first rows of everybody: a replay needs the same choice twice."""

    def first(self: Groups, k: int, random: Any) -> NDArray[np.int64]:
        order = np.argsort(self.codes, kind="stable")
        sizes = self.sizes()
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[rank < k])

    with mock.patch.object(Groups, "at_most", first):
        yield


def check_replay(case: Case) -> None:
    """Who is blanked, with all her rows or with another number of them, moves one contribution."""
    reached = []
    with settled_rows():
        for name, change in RECORDS.items():
            for person in (3, 4, 7):
                X, y, whose = table(case)
                own = whose == person
                # Equal rows and labels: their gradients add up at full length.
                X[own], y[own] = change(X[own.argmax()]), y[own.argmax()]
                X_null, y_null = X.copy(), y.copy()
                X_null[own], y_null[own] = np.nan, case.null_label
                data, null = (X, y, whose), (X_null, y_null, whose)
                reached += compare(case.make(), data, null, name, always=person)
                fewer = ~own | (np.arange(len(own)) == own.argmax())
                shorter = tuple(values[fewer] for values in null)
                reached += compare(case.make(), data, shorter, f"{name}, fewer", always=person)
    assert max(reached) > case.reaches, "no neighbour comes near the sensitivity: proves nothing"


def check_added(case: Case) -> None:
    """With a public figure for their number, one person more is one contribution more."""
    with settled_rows():
        for name, change in RECORDS.items():
            X, y, whose = table(case)
            extra = whose == len(SIZES) - 1
            last = np.argsort(extra, kind="stable")
            X, y, whose, extra = X[last], y[last], whose[last], extra[last]
            X[extra], y[extra] = change(X[-1]), y[-1]
            rest = X[~extra], y[~extra], whose[~extra]
            model = case.make(n_records=len(SIZES) - 1)
            compare(model, rest, (X, y, whose), f"added {name}", extra=len(SIZES) - 1)


def check_rows(case: Case, most: int | None = 2) -> None:
    """In every step exactly who is drawn takes part, with the same rows of hers, in one piece."""
    X, y, whose = table(case, SIZES * 4)
    X[:, 0] = np.linspace(-1, 1, len(X))  # by which a row is known
    X = X.astype(np.float32)
    code = dict(zip(X[:, 0].tolist(), whose.tolist(), strict=True))
    steps: list[list[Any]] = []
    call, step = ClippedGradientSum.__call__, Training.step

    def seen(self, inputs, targets, shares=None, **given):
        rows = inputs[:, 0].tolist()
        owners = np.arange(len(rows)) if shares is None else shares._owner.numpy()
        steps[-1].append((rows, owners))
        call(self, inputs, targets, shares, **given)

    def begun(self, *args):
        steps.append([])
        step(self, *args)

    tape = Tape()
    with (
        mock.patch.object(ClippedGradientSum, "__call__", seen),
        mock.patch.object(Training, "step", begun),
        recording(tape),
    ):
        case.make(batch_size=8, max_group_rows=most).fit(X, y, whose)
    used = defaultdict(set)
    for drawn, calls in zip(tape.draws, steps, strict=True):
        met: dict[int, frozenset] = {}
        for rows, owners in calls:
            for owner in np.unique(owners):
                own = [row for row, o in zip(rows, owners, strict=True) if o == owner]
                people = {code[row] for row in own}
                assert len(people) == 1, "a contribution holds rows of two people"
                (person,) = people
                assert person not in met, "a person contributes twice"
                assert len(set(own)) == len(own), "a row counts twice"
                met[person] = frozenset(own)
        assert sorted(met) == drawn.tolist(), "who contributes is not who was drawn"
        for person, rows in met.items():
            used[person].add(rows)
    for person, choices in used.items():
        assert len(choices) == 1, "other rows of a person in another step"
        (rows,) = choices
        size = int((whose == person).sum())
        assert len(rows) == min(size, most or size), "not as many rows as may be"


def check_inclusion(case: Case) -> None:
    """Every person takes part in each step independently, at the rate accounted for."""
    n, tape = 300, Tape()
    sizes = tuple(np.random.default_rng(0).integers(1, 6, n))
    with recording(tape):
        model = case.make(batch_size=30, epochs=20).fit(*table(case, sizes))
    rate, steps = model.privacy_event_.event.sampling_rate, model.n_steps_
    assert (rate, steps, len(tape.draws)) == (30 / n, 20 * n // 30, steps)
    counts = np.bincount(np.concatenate(tape.draws), minlength=n)
    assert len(counts) == n, "more are drawn than there are people"
    drawn = np.array([len(d) for d in tape.draws])
    for values, trials in ((counts, steps), (drawn, n)):
        spread = ((values - trials * rate) ** 2).sum() / (trials * rate * (1 - rate))
        p = stats.chi2(len(values)).cdf(spread)
        assert CHANCE < p < 1 - CHANCE, "people do not take part as a Poisson sample does"


def check_public_size(case: Case) -> None:
    """With ``n_records`` nothing depends on how many people or rows there are."""
    n, fits = len(SIZES), []
    for sizes in (SIZES, SIZES[:-1], (*SIZES, 9), (1,) * n):
        fits.append(case.make(n_records=n, batch_size=3).fit(*table(case, sizes)))
    assert len({(m.n_steps_, m.noise_multiplier_, m.privacy_event_) for m in fits}) == 1
    assert len({str(getattr(m, "settings_", None)) for m in fits}) == 1
    assert {(m.privacy_.relation, m.privacy_.unit) for m in fits} == {("add_remove", "group")}


def check_chosen_rows(case: Case) -> None:
    """Which rows are used is a matter of chance, anew in every fit."""
    X, y, whose = table(case, (8,) * 12)
    kept: list[list[int]] = []
    at_most = Groups.at_most

    def noted(self, k, random):
        kept.append(at_most(self, k, random).tolist())
        return np.array(kept[-1])

    with mock.patch.object(Groups, "at_most", noted):
        for _ in range(2):
            case.make(random_state=3).fit(X, y, whose)
    assert len(kept) == 2, "drawn once a fit"
    assert kept[0] != kept[1]  # alike with a chance of 28**-12


PEOPLE: tuple[Callable[[Case], None], ...] = (
    check_replay,
    check_rows,
    check_inclusion,
    check_chosen_rows,
    check_public_size,
    check_added,
)
