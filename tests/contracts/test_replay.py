"""The replay contract in every form of the data, and on more records than are worked on together.

``test_records.py`` runs it on two dozen records, in a selection of forms.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from dataclasses import replace
from itertools import combinations
from types import ModuleType

import numpy as np
import pytest

import skprivacy
from skprivacy.federated import plan

from . import neighbors as neighbours
from .cases import CASES
from .neighbors import CHANGES, COVERING, EVERY, PARTS, Choice, of_one_change
from .replay import compare, replay

pytestmark = pytest.mark.heavy

MANY = 20_000  # records: several parts of all that are worked on a part at a time
AT_MANY = [
    Choice("typical", "first", "inserted", np.float32, "pandas"),
    Choice("outlier", "middle", "inserted"),
    Choice("typical", "last", "inserted", np.float32),
    Choice("typical", "first", "blanked", np.float32, "pandas"),
    Choice("outlier", "middle", "blanked"),
    Choice("typical", "last", "blanked", np.float32),
]
EVERYDAY = "AdaSSPRegressor"
# Those of records that are never worked on a part at a time, and of numbers instead of records.
WHOLE = {
    ("skprivacy._stacked.perceptrons", "_CHUNK"): "numbers of noise, in models that attacks train",
    ("skprivacy.mechanisms.base", "_ROWS"): "sums of parts are exact: test_bounds.py",
    (
        "skprivacy.fine_tuning.leave_one_out",
        "_RECORDS_PER_PART",
    ): "sampled sensitivities, no release",
    ("skprivacy.mechanisms.matrix_gaussian", "_CHUNK"): "numbers of noise",
    ("skprivacy.mechanisms.secure_random", "_CHUNK"): "numbers of noise",
    ("skprivacy.mechanisms.float_noise", "_CHUNK"): "numbers of noise",
    ("skprivacy.mechanisms.rounded_gaussian", "_CHUNK"): "numbers of noise",
    ("skprivacy.neural_network.semi_supervised", "_PREDICT_ROWS_PER_PASS"): "public records",
    ("skprivacy.synthesis.gan", "_ROWS_PER_BATCH"): "rows drawn from a released generator",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_form(name):
    case = CASES[name]
    replay(case, neighbours.RECORD, neighbours.RECORD.pairs(case, EVERY))


@pytest.mark.parametrize(
    "name", [k if k == EVERYDAY else pytest.param(k, marks=pytest.mark.slow) for k in CASES]
)
def test_more_records_than_are_worked_on_together(name):
    case = CASES[name]
    for choice in AT_MANY[1:2] if name == EVERYDAY else AT_MANY:
        if choice.change in neighbours.changes_of(case):
            for pair in neighbours.record_pairs(case, choice, MANY):
                pair = neighbours.formed(pair, choice)
                compare(case.make(**pair.params, **_for_many(name, case)), pair)


def _for_many(name, case):
    """Return parameters for many records: a delta that is small enough, and few steps."""
    params = {"delta": 1e-6} if getattr(case.make(), "delta", 0) else {}
    if case.samples or not case.once:
        rounds = {"n_rounds": 4} if name.startswith("DPFederated") else {"epochs": 1}
        params |= {"batch_size": MANY // 4, **rounds}
    return params


def test_any_two_properties_of_a_choice_meet():
    def met(choices):
        return {pair for c in choices for pair in combinations(vars(c).items(), 2)}

    assert met(COVERING) == met(EVERY)
    for change in CHANGES:
        typical = [replace(c, kind="typical") for c in EVERY if c.change == change]
        assert met(replace(c, kind="typical") for c in of_one_change(change)) == met(typical)
        assert {c.kind for c in of_one_change(change)} == set(neighbours.KINDS)


def test_every_number_of_records_that_make_a_part_is_known():
    """A test makes parts short; one that it does not know stays longer than its data."""
    parts = {(module.__name__, name) for module, name in PARTS.items()}
    found = set(_numbers_of_records())
    assert parts <= found
    assert found - parts == set(WHOLE), "add it to PARTS in tests/contracts/neighbors.py"
    of_rows = {m: n for m, n in PARTS.items() if n != "_CHUNK" and m is not plan}  # not of numbers
    large = {m.__name__ for m, n in of_rows.items() if getattr(m, n) >= MANY}
    assert large == {
        "skprivacy.neural_network.network", "skprivacy.defenses.randomized_smoothing",
        "skprivacy.sums.tables",  # whose sums are whole numbers
    }  # fmt: skip


def _numbers_of_records():
    """Yield module and name of each constant that says how much is worked on at a time."""
    named = re.compile(
        r"_(ROWS|ROWS_AT_A_TIME|ROWS_PER_\w+|RECORDS_PER_\w+|AT_A_TIME|CHUNK|PART|PREDICT_ROWS\w*|SUMMED_ROWS"
        r"|MAX_NUMBERS_IN_MEMORY)"
    )
    left_out = ("accounting", "attacks", "audit", "cli", "datasets", "metrics")  # not private fits
    for found in pkgutil.walk_packages(skprivacy.__path__, "skprivacy."):
        if found.name.split(".")[1] in left_out or found.name.endswith("chacha_triton"):
            continue
        module: ModuleType = importlib.import_module(found.name)
        for node in ast.parse(inspect.getsource(module)).body:
            for target in getattr(node, "targets", []):
                if isinstance(target, ast.Name) and named.fullmatch(target.id):
                    yield module.__name__, target.id
