"""Contract of training that protects groups; its checks raise AssertionError.

The mechanism's input may differ by the sensitivity if a group is blanked or added, however many
rows it has.
"""

from collections import defaultdict
from typing import Any
from unittest import mock

import numpy as np

from skprivacy._groups import Groups
from skprivacy.neural_network._gradients.clipped_sum import ClippedGradientSum
from skprivacy.neural_network._training.engine import Training

from .cases import Case
from .neighbors import SAMPLED_GROUP, SIZES, group_table
from .records import check_poisson, check_same_plan
from .replay import replay
from .tape import Tape, recording


def check_replay(case: Case) -> None:
    """A group that is blanked, added or has fewer rows moves one contribution."""
    replay(case, SAMPLED_GROUP)


def check_rows(case: Case, most: int | None = 2) -> None:
    """In every step exactly who is drawn takes part, with the same rows of hers, in one piece."""
    X, y, whose = group_table(case, SIZES * 4)
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
        case.make(batch_size=8, max_group_size=most).fit(X, y, groups=whose)
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
        X, y, whose = group_table(case, sizes)
        model = case.make(batch_size=30, epochs=20).fit(X, y, groups=whose)
    rate, steps = model.privacy_event_.event.sampling_rate, model.n_steps_
    assert (rate, steps, len(tape.draws)) == (30 / n, 20 * n // 30, steps)
    check_poisson(tape.draws, n, rate)


def check_public_size(case: Case) -> None:
    """With ``n_records`` nothing depends on how many people or rows there are."""
    n, fits = len(SIZES), []
    for sizes in (SIZES, SIZES[:-1], (*SIZES, 9), (1,) * n):
        X, y, whose = group_table(case, sizes)
        fits.append(case.make(n_records=n, batch_size=3).fit(X, y, groups=whose))
    check_same_plan(fits)
    assert {m.privacy_.unit for m in fits} == {"group"}


def check_chosen_rows(case: Case) -> None:
    """The rows in use are drawn anew in every fit."""
    X, y, whose = group_table(case, (8,) * 12)
    kept: list[list[int]] = []
    at_most = Groups.at_most

    def noted(self, k, random):
        kept.append(at_most(self, k, random).tolist())
        return np.array(kept[-1])

    with mock.patch.object(Groups, "at_most", noted):
        for _ in range(2):
            case.make(random_state=3).fit(X, y, groups=whose)
    assert len(kept) == 2, "drawn once a fit"
    assert kept[0] != kept[1]  # alike with a chance of 28**-12
