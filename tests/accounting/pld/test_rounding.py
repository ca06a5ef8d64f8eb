"""No rounding of a privacy loss distribution is on the unsafe side, and no place is left out.

Every ``floor`` and ``ceil`` of ``skprivacy.accounting.pld`` belongs to a check of ``rounding.py``,
or to a reason why its direction does not matter. Each one is turned round, and its check must fail.
"""

import __future__

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from skprivacy.accounting.pld import pairs

from . import rounding

pytestmark = pytest.mark.heavy

CHECKS = {name: check for name, check in vars(rounding).items() if name.startswith("check_")}
TURNED = {"floor": "ceil", "ceil": "floor"}

# Reference of each function that rounds.
ROUNDING: dict[str, Callable[[], None]] = {
    "argmax._Grid.filter": rounding.check_filter,
    "channels.censored_channels": rounding.check_censored_channels,
    "channels.argmax_channels": rounding.check_lattice,
    "compose._connect_the_dots": rounding.check_dots,
}
# Calls that may round either way.
HARMLESS = {
    "argmax._Laplace.pad: math.ceil(2 * h / step)": "four points more are added",
    "argmax.argmax_curve: math.ceil(noise.reach(h, n_queries) / step)": (
        "the curve is held constant beyond its last point, and one point more is added"
    ),
    "argmax.argmax_curve: math.ceil(noise.end(h, t) / step)": (
        "beyond its last point a query keeps the known bound"
    ),
    "channels.max_shift_in_steps: math.ceil((9 * mu + mu ** 2) / step)": (
        "four points more are added"
    ),
    "channels._edges: math.ceil((_REACH * t + t ** 2 / 2) / step)": (
        "a step more or less of 8.3 deviations leaves less than the 1e-14 that argmax._RARE adds"
    ),
    "compose._connect_the_dots: math.floor(low / step)": (
        "what lies below the first loss is counted at it, which is larger"
    ),
    "compose.compose: math.ceil(gap / step)": "any whole number of steps in a gap is a grid",
    "compose._transform: math.floor(low / step)": "loss below the window is counted above it",
    "compose._transform: math.ceil(high / step)": "the window has two points more",
    "sampled_pairs.MixedGaussians._point: "
    "math.ceil(_PER_DEVIATION * (high - low) / self.z)": "Newton's method finds the place exactly",
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A call of ``floor`` or ``ceil`` in a function of the package."""

    module: ModuleType
    function: str  # qualified by its class
    call: str
    number: int  # among the calls of the function

    def __str__(self) -> str:
        return f"{self.owner}: {self.call}"

    @property
    def owner(self) -> str:
        return f"{self.module.__name__.rpartition('.')[2]}.{self.function}"


def places() -> Iterator[Place]:
    package = pairs.__name__.rpartition(".")[0]
    for found in pkgutil.iter_modules([str(Path(pairs.__file__).parent)], f"{package}."):
        module = importlib.import_module(found.name)
        for name, node in _functions(ast.parse(inspect.getsource(module))):
            for number, call in enumerate(_calls(node)):
                yield Place(module, name, ast.unparse(call), number)


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _calls(node: ast.AST) -> list[ast.Call]:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
    return [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in TURNED]


@contextmanager
def turned(place: Place) -> Iterator[None]:
    """Let one call round the other way."""
    tree = ast.parse(inspect.getsource(place.module))
    node = dict(_functions(tree))[place.function]
    call: Any = _calls(node)[place.number]
    call.func.attr = TURNED[call.func.attr]
    code = ast.fix_missing_locations(ast.Module([node], []))
    flags = __future__.annotations.compiler_flag
    namespace: dict[str, Any] = {}
    exec(compile(code, place.module.__file__ or "", "exec", flags), vars(place.module), namespace)
    *owners, name = place.function.split(".")
    owner = reduce(getattr, owners, place.module)
    with mock.patch.object(owner, name, namespace[name]):
        yield


PLACES = list(places())


@pytest.mark.everyday(4)
@pytest.mark.parametrize("name", CHECKS)
def test_the_discretisation_dominates(name):
    CHECKS[name]()


@pytest.mark.parametrize("place", [p for p in PLACES if str(p) not in HARMLESS], ids=str)
def test_rounding_the_other_way_is_caught(place):
    assert place.owner in ROUNDING, (
        f"{place}: add the function to ROUNDING, with a check in rounding.py, or a reason to "
        "HARMLESS why its direction does not matter"
    )
    with turned(place), pytest.raises(AssertionError):
        ROUNDING[place.owner]()


@pytest.mark.everyday(4)
@pytest.mark.parametrize("place", [p for p in PLACES if str(p) in HARMLESS], ids=str)
def test_harmless_rounding_is_harmless(place):
    checks = [rounding.check_dots, rounding.check_composition, rounding.check_window]
    if place.owner.startswith(("argmax", "channels")):
        checks = [rounding.check_gaussian_channels, rounding.check_refinement]
    with turned(place):
        for check in checks:
            check()


def test_no_entry_is_out_of_date():
    found = {str(place) for place in PLACES}
    assert set(HARMLESS) <= found
    assert set(ROUNDING) <= {place.owner for place in PLACES}


def test_every_kind_of_pair_is_discretised_by_a_check():
    concrete, left = set(), [pairs.Pair]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if not inspect.isabstract(kind) and kind.__module__.startswith("skprivacy"):
            concrete.add(kind)
    assert concrete == {type(pair) for pair in rounding.PAIRS.values()}
