"""Neighbouring data sets for the replay contract, in every form in which records may come.

A ``Choice`` says what is unusual about a record, where it is, whether it is blanked or inserted,
and in which form the data comes. The everyday tests take a selection in which any two of these
properties meet (``covering``); the slow tests take ``EVERY`` choice.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations, cycle, product
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import get_tags

from skprivacy import _input_data
from skprivacy._stacked import perceptrons
from skprivacy.defenses import randomized_smoothing as smoothing
from skprivacy.ensemble import teachers as partition
from skprivacy.federated import plan
from skprivacy.linear_model.perturbation import _PerturbedClassifier
from skprivacy.mechanisms import base as mechanism_base
from skprivacy.neural_network import network as _network
from skprivacy.neural_network._gradients import clipped_sum, contributions
from skprivacy.neural_network._gradients import perceptron as perceptron_sum
from skprivacy.neural_network._training import target_releases
from skprivacy.sums import sum_plan, tables

from .cases import Case
from .replay import Neighbourhood, Pair, cost_of_a_label, within_sensitivity

N = 24
ALONE = "alone in its class"  # all other records have one label, or one target
KINDS: dict[str, Callable[[NDArray], NDArray]] = {
    "typical": lambda row: row,
    "outlier": lambda row: row + 1e3,
    "huge": lambda row: np.full_like(row, 1e38),
    "beyond single precision": lambda row: np.full_like(row, 1e300),
    "infinite": lambda row: np.where(np.arange(row.size) == 1, np.inf, row),
    "zero": np.zeros_like,
    ALONE: lambda row: row,
}
POSITIONS = "first", "middle", "last"
CHANGES = "blanked", "inserted"
DTYPES = np.float64, np.float32
CONTAINERS = "numpy", "pandas"
CHUNKS = "long", "short"


@dataclass(frozen=True)
class Choice:
    """What is unusual about a pair of neighbours, and the form in which both come."""

    kind: str = "typical"
    position: str = "last"
    change: str = "blanked"
    dtype: type = np.float64
    container: str = "numpy"
    chunks: str = "long"

    def __str__(self) -> str:
        form = f"{self.dtype.__name__} {self.container}, {self.chunks} chunks"
        return f"{self.change} {self.kind}, {self.position}, {form}"


def covering(choices: list[Choice]) -> list[Choice]:
    """Return few of the choices in which every pair of properties occurs that occurs in any."""
    left = {pair for choice in choices for pair in _pairs_of(choice)}
    found = []
    while left:
        found.append(max(choices, key=lambda choice: len(left & _pairs_of(choice))))
        left -= _pairs_of(found[-1])
    return found


def _pairs_of(choice: Choice) -> set[Any]:
    return set(combinations(vars(choice).items(), 2))


EVERY = [Choice(*c) for c in product(KINDS, POSITIONS, CHANGES, DTYPES, CONTAINERS, CHUNKS)]
COVERING = covering(EVERY)


def of_one_change(change: str) -> list[Choice]:
    """Return few choices with one change: each kind of record, and any two other properties."""
    typical = [c for c in EVERY if c.change == change and c.kind == "typical"]
    return [replace(c, kind=k) for c, k in zip(covering(typical), cycle(KINDS))]


def everyday(case: Case) -> list[Choice]:
    """Return the choices of the everyday tests: fewer for one that hides one change."""
    changes = changes_of(case)
    return COVERING if len(changes) == 2 else of_one_change(*changes)


# Where records are worked on a part at a time: how many make a part.
PARTS: dict[Any, str] = {
    mechanism_base: "_AT_A_TIME",
    sum_plan: "_ROWS_AT_A_TIME",
    tables: "_ROWS",
    partition: "_ROWS_PER_SLICE",
    plan: "_MAX_NUMBERS_IN_MEMORY",
    perceptron_sum: "_ROWS",
    perceptrons: "_ROWS",
    contributions: "_SUMMED_ROWS",
    clipped_sum: "_CHUNK",
    target_releases: "_ROWS_AT_A_TIME",
    _input_data: "_ROWS_AT_A_TIME",
    _network: "_PREDICT_ROWS",
    smoothing: "_ROWS",
}


@contextmanager
def short_parts(size: int = 7) -> Iterator[None]:
    """Work on so few records at a time that two dozen are several parts."""
    with ExitStack() as stack:
        for module, name in PARTS.items():
            stack.enter_context(mock.patch.object(module, name, size))
        yield


# ------------------------------------------------------------------------------------------ forms


def formed(pair: Pair, choice: Choice) -> Pair:
    """Return the pair with both data sets in the chosen form."""
    data, neighbour = (_in_form(data, choice) for data in (pair.data, pair.neighbour))
    around = short_parts if choice.chunks == "short" else nullcontext
    name = f"{pair.name}{choice}"
    return replace(pair, name=name, data=data, neighbour=neighbour, around=around)


def _in_form(data: tuple[Any, ...], choice: Choice) -> tuple[Any, ...]:
    X, y, *groups = data
    with np.errstate(over="ignore"):  # what is beyond single precision is infinite there
        X = X.astype(choice.dtype)
        y = y.astype(choice.dtype) if y.dtype.kind == "f" else y
    if choice.container == "sparse":
        return sparse.csr_matrix(X), y, *groups
    if choice.container == "numpy":
        return X, y, *groups
    X = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    y = pd.Series(y, name="y") if y.ndim == 1 else y
    return X, y, *(pd.Series(g, name="patient") for g in groups)


def accepts_sparse(model: Any) -> bool:
    return get_tags(model).input_tags.sparse


def pairs_of(
    build: Callable[[Case, Choice], Iterable[Pair]],
) -> Callable[..., Iterator[Pair]]:
    """Return a function that yields the pairs of an estimator for its everyday or other choices."""

    def pairs(case: Case, choices: Iterable[Choice] | None = None) -> Iterator[Pair]:
        for choice in everyday(case) if choices is None else choices:
            if choice.change in changes_of(case):
                for pair in build(case, choice):
                    yield formed(pair, choice)

    return pairs


def changes_of(case: Case) -> list[str]:
    """Return the changes that an estimator hides."""
    inserted = case.add_remove and (case.samples or case.once)  # streams: zero-out alone
    return ["blanked"] * (case.null_label is not None) + ["inserted"] * inserted


def place_of(position: str, n: int) -> int:
    return {"first": 0, "middle": n // 2, "last": n - 1}[position]


# ---------------------------------------------------------------------------------------- records


def record_pairs(case: Case, choice: Choice, n: int = N) -> Iterator[Pair]:
    """Yield a data set in which one record is unusual, and its neighbour without that record."""
    is_inserted = choice.change == "inserted"
    X, y = case.data(n + is_inserted)
    place = place_of(choice.position, len(X))
    X[place] = KINDS[choice.kind](X[place])
    own = np.arange(len(X)) == place
    if choice.kind == ALONE:
        y[~own] = next(label for label in y if np.any(label != y[place]))
    if is_inserted:
        yield Pair("", (X[~own], y[~own]), (X, y), {"n_records": n}, extra=place)
    else:
        yield Pair("", (X, y), _blank((X, y), own, case), always=place)


def _blank(data: tuple[Any, ...], own: NDArray[np.bool_], case: Case) -> tuple[Any, ...]:
    """Return the data with some records that contribute nothing."""
    X, y, *groups = data
    X, y = X.copy(), y.copy()
    X[own], y[own] = np.nan, case.null_label
    return X, y, *groups


# ----------------------------------------------------------------------------------------- groups

# Of 24 records. The first group to appear has the last record, too; the last group has one record.
GROUPS = np.array([3, 1, 0, 1, 2, 1, 4, 3, 5, 6, 2, 7, 3, 9, 1, 4, 7, 9, 1, 0, 9, 3, 8, 3])
NAMES = np.array(["Ada", "Bea", "Cy", "Dan", "Eve", "Flo", "Gil", "Hal", "Ida", "Jo"])
CHOSEN = {"first": 3, "middle": 1, "last": 8}  # of 5, 5 and 1 records
SIZES = (1, 2, 3, 4, 7, 1, 2, 5)


def takes_groups(case: Case) -> bool:
    return "groups" in inspect.signature(type(case.make()).fit).parameters


def group_pairs(case: Case, choice: Choice) -> Iterator[Pair]:
    """Yield pairs of data sets that differ in all records of a group.

    Its records are unusual in the same way. Where records are blanked, the neighbour has as many
    of the group's, and in a second pair, where they are sampled, only one.
    """
    X, y = case.data(N)
    codes = GROUPS
    own = codes == CHOSEN[choice.position]
    X[own] = [KINDS[choice.kind](row) for row in X[own]]
    if choice.dtype == np.float32:  # in the other half, labels of one group differ
        y[own] = y[own][0]
    yield from _without_group(case, choice, (X, y, NAMES[codes]), own)


def sampled_group_pairs(case: Case, choice: Choice) -> Iterator[Pair]:
    """Yield the same for trainings: all rows of a group are equal, so that gradients add up."""
    X, y, codes = group_table(case)
    own = codes == {"first": 3, "middle": 4, "last": len(SIZES) - 1}[choice.position]
    if choice.change == "inserted":
        order = _moved({"first": 0, "middle": 3, "last": len(SIZES)}[choice.position], own, codes)
        X, y, codes, own = X[order], y[order], codes[order], own[order]
    X[own], y[own] = KINDS[choice.kind](X[own.argmax()]), y[own.argmax()]
    yield from _without_group(case, choice, (X, y, codes), own)


def _moved(place: int, own: NDArray[np.bool_], codes: NDArray[Any]) -> NDArray[np.int64]:
    """Return an order in which the group comes up ``place``-th, and the others as they did."""
    others = np.flatnonzero(~own)
    return np.concatenate([others[:place], np.flatnonzero(own), others[place:]])


def _without_group(
    case: Case, choice: Choice, data: tuple[Any, ...], own: NDArray[np.bool_]
) -> Iterator[Pair]:
    """Yield the pairs of a data set and its neighbours without the group that owns some records."""
    codes = pd.factorize(data[2])[0]
    place = int(codes[own][0])  # in the order in which groups appear
    if choice.change == "inserted":
        rest = tuple(values[~own] for values in data)
        yield Pair("", rest, data, {"n_records": codes.max()}, extra=place)
        return
    null = _blank(data, own, case)
    yield Pair("", data, null, always=place)
    if case.samples:
        one_left = ~own | (np.arange(len(own)) == own.argmax())
        yield Pair("fewer, ", data, tuple(v[one_left] for v in null), always=place)


def group_table(case: Case, sizes: tuple[int, ...] = SIZES) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows, targets and groups; the first rows are of one group each, in order."""
    codes = np.repeat(np.arange(len(sizes)), sizes)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rest = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(codes)), first))
    return *case.data(len(codes)), codes[np.concatenate([first, rest])]


def replaced_pairs(case: Case, choice: Choice) -> Iterator[Pair]:
    """Yield data sets in which another group, of more records, is in the place of one."""
    if "replace_one" not in _relations(case) or choice.change == "blanked":
        return
    params = {"relation": "replace_one"}
    # Perturbed objectives remove and add: each is charged for half of epsilon.
    most = 2.0 if isinstance(case.make(**params), _PerturbedClassifier) else 1.0
    X, y = case.data(N)
    one, other = GROUPS == 2, CHOSEN[choice.position] == GROUPS
    X[one] = [-KINDS[choice.kind](row) for row in X[one]]
    X[other] = [KINDS[choice.kind](row) for row in X[other]]
    data = X, y, NAMES[GROUPS]
    both = (tuple(values[~away] for values in data) for away in (one, other))
    yield Pair("replaced, ", next(both), next(both), params, most=most)


def _relations(case: Case) -> set[str]:
    known = getattr(type(case.make()), "_parameter_constraints", {}).get("relation", [])
    return {option for kind in known if kind is not None for option in kind.options}


# ----------------------------------------------------------------------------------------- labels


def label_choices(case: Case) -> list[Choice]:
    """Return nine choices: at each position each container, and each type of number."""
    containers = [*CONTAINERS, *["sparse"] * accepts_sparse(case.make())]
    return [
        Choice("typical", position, "blanked", DTYPES[(i + j) % 2], containers[j], CHUNKS[i % 2])
        for (i, position), j in product(enumerate(POSITIONS), range(len(containers)))
    ]


def label_pairs(case: Case, groups: NDArray[Any] | None = None) -> Iterator[Pair]:
    """Yield data sets in which one label, or all labels of a group, are another in turn."""
    X, y = case.data(N)
    for number, choice in enumerate(label_choices(case)):
        if groups is None:
            own = np.arange(N) == place_of(choice.position, N)
        else:
            own = groups == CHOSEN[choice.position]
        others = [label for label in np.unique(y) if (y[own] != label).any()]
        label = others[number % len(others)]
        other = np.where(own, label, y)
        rest = () if groups is None else (groups,)
        yield formed(Pair(f"label {label}, ", (X, y, *rest), (X, other, *rest)), choice)


RECORD = Neighbourhood(pairs_of(record_pairs), within_sensitivity)
GROUP = Neighbourhood(pairs_of(group_pairs), within_sensitivity)
SAMPLED_GROUP = Neighbourhood(pairs_of(sampled_group_pairs), within_sensitivity)
REPLACED_GROUP = Neighbourhood(pairs_of(replaced_pairs), within_sensitivity)
LABEL = Neighbourhood(label_pairs, cost_of_a_label)
LABELS_OF_GROUP = Neighbourhood(lambda case: label_pairs(case, GROUPS), cost_of_a_label)
