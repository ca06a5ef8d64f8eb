"""The reference describes every public name."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import skprivacy
from skprivacy.attacks import SignalThreshold
from skprivacy.attacks.model_answers import SIGNALS

DOC = Path(__file__).parents[2] / "doc"
PARTS = [
    "accounting", "additive_model", "attacks", "audit", "base", "certificates", "datasets",
    "defenses", "display", "ensemble", "exceptions", "federated", "fine_tuning", "label_privacy",
    "linear_model", "mechanisms", "metrics", "model_selection", "neural_network", "persistence",
    "preprocessing", "sums", "synthesis",
]  # fmt: skip


CONFIGURATION = {"config_context", "get_config", "set_config"}
MAX_NAMES = 185
MAX_PARAMETERS = 22


def listed():
    """Return every public class and function; constants have no page."""
    names = set()
    for part in PARTS:
        module = importlib.import_module(f"skprivacy.{part}")
        names |= {f"{part}.{n}" for n in module.__all__ if callable(getattr(module, n))}
    return names | CONFIGURATION


def resolved(name):
    part, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"skprivacy.{part}".rstrip(".")), attribute)


def test_the_reference_is_made_of_every_part():
    tree = ast.parse((DOC / "conf.py").read_text())
    shown = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") in ("REFERENCE", "CONFIGURATION")
    }
    assert sorted(shown["REFERENCE"].values()) == PARTS
    assert set(shown["CONFIGURATION"]) == CONFIGURATION


def test_every_public_name_is_in_the_reference():
    parts = {m.name for m in pkgutil.iter_modules(skprivacy.__path__) if m.name[0] != "_"} - {"cli"}
    assert parts == {part for part in PARTS if "." not in part}
    modules = [importlib.import_module(f"skprivacy.{part}") for part in PARTS]
    names = [name for module in modules for name in module.__all__]
    assert sorted(names) == sorted({name.rpartition(".")[2] for name in listed() - CONFIGURATION})
    known = {*names, *CONFIGURATION, "__version__"}
    assert set(skprivacy.__all__) <= known, "the package itself has no name of its own"


def test_the_public_names_are_few():
    """Export a name only if users write it: they learn, and we keep, each one of them."""
    assert len(listed()) <= MAX_NAMES, "delete a name, or raise MAX_NAMES and say why"


def many_parameters(values):
    """Return the estimators whose constructors name too many parameters, ``**`` apart."""
    found = {n: inspect.signature(v).parameters for n, v in values.items() if hasattr(v, "fit")}
    named = {n: [p for p in own.values() if p.kind != p.VAR_KEYWORD] for n, own in found.items()}
    return {n for n, own in named.items() if len(own) > MAX_PARAMETERS}


def test_the_parameters_of_an_estimator_are_few():
    """Group what is never set alone into one value, as Optimizer does."""
    pytest.importorskip("torch")
    assert many_parameters({name: resolved(name) for name in listed()}) == set()


def test_an_estimator_of_many_parameters_is_found():
    named = [inspect.Parameter(f"p{i}", inspect.Parameter.KEYWORD_ONLY) for i in range(23)]
    few, many = (
        type("Endless", (), {"fit": None, "__signature__": inspect.Signature(named[:most])})
        for most in (MAX_PARAMETERS, MAX_PARAMETERS + 1)
    )
    assert many_parameters({"few": few, "many": many}) == {"many"}


def sections(docstring):
    """Return the sections of a numpydoc docstring by their names."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", inspect.cleandoc(docstring or ""), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def described(section):
    """Return the names that a section of parameters describes; several may share a line."""
    heads = re.findall(r"^([*\w][*\w, ]*)(?: :|$)", section, re.MULTILINE)
    return {name.strip("* ") for head in heads for name in head.split(",")}


def parameters(value):
    try:
        found = inspect.signature(value).parameters
    except ValueError:  # made of C
        return set()
    return {name for name in found if name not in ("self", "args", "kwargs")}


def test_a_page_describes_every_estimator_attack_and_signal():
    pytest.importorskip("torch")
    folders = ("tutorials", "how_to", "reference", "explanation")
    pages = [
        page for folder in folders for page in (DOC / folder).glob("*.rst") if page.stem != "api"
    ]
    words = {word for page in pages for word in re.findall(r"\w+", page.read_text("utf-8"))}
    fitted = {name.rpartition(".")[2] for name in listed() if hasattr(resolved(name), "fit")}
    undescribed = fitted - words - {"MembershipAttack"}
    assert not undescribed, "describe it in the page of its family"
    unlisted = {name for name in SIGNALS if f'"{name}"' not in SignalThreshold.__doc__}
    assert not unlisted, "list it in SignalThreshold"


def lacks(value):
    """Return what the docstring of a class or function lacks."""
    found = sections(value.__doc__)
    told = described(found.get("Parameters", ""))
    if inspect.isclass(value):  # results are read, not made
        told |= described(found.get("Attributes", ""))
    problems = [f"parameter {name}" for name in sorted(parameters(value) - told)]
    if not inspect.isclass(value):
        returns = inspect.signature(value).return_annotation
        if returns not in (None, "None") and not {"Returns", "Yields"} & set(found):
            problems.append("Returns")
    return problems


@pytest.mark.parametrize("name", sorted(listed()))
def test_the_reference_describes_what_is_taken_and_returned(name):
    pytest.importorskip("torch")
    assert not lacks(resolved(name))


def wrong_defaults(value):
    """Return the parameters whose docstring states another default than the signature has."""
    stated, wrong = sections(value.__doc__).get("Parameters", ""), set()
    taken = inspect.signature(value).parameters if stated else {}
    heads = re.findall(r"^(\w[\w, ]*) : .*\bdefault=(.+)$", stated, re.MULTILINE)
    for names, text in heads:
        names = names.split(", ")
        texts = text.split(", ") if len(names) > 1 and ", " in text else [text] * len(names)
        for name, default in zip(names, texts, strict=True):
            known = taken[name].default if name in taken else inspect.Parameter.empty
            if is_value(known) and not is_stated(known, default):
                wrong.add(name)
    return wrong


def is_value(default):
    """Return whether a default is written as it is: no class, and no factory of a dataclass."""
    return default is None or isinstance(default, (bool, int, float, str, tuple))


def is_stated(default, text):
    """Return whether a docstring writes a default as it is."""
    try:
        return ast.literal_eval(text) == default
    except ValueError:  # a name, such as inf
        return text.rpartition(".")[2] == str(default)


@pytest.mark.parametrize("name", sorted(listed()))
def test_a_stated_default_is_the_default(name):
    pytest.importorskip("torch")
    value = resolved(name)
    members = inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else []
    ours = [m for name, m in members if name[0] != "_" and m.__module__.startswith("skprivacy")]
    for taker in (value, *ours):
        assert not wrong_defaults(taker)


def test_a_stale_default_is_found():
    def attack(n_shadows=8, fpr=0.05, lower=0.0, upper=np.inf):
        """Attack.

        Parameters
        ----------
        n_shadows : int, default=16
            Number of models.
        fpr : float, default=0.05
            Rate.
        lower, upper : float, default=-inf, inf
            Bounds.
        """

    assert wrong_defaults(attack) == {"n_shadows", "lower"}


def test_private_estimators_state_guarantees_and_edge_cases():
    pytest.importorskip("torch")
    parts = (
        "additive_model.", "ensemble.", "fine_tuning.", "label_privacy.", "linear_model.",
        "model_selection.", "neural_network.", "preprocessing.", "synthesis.",
    )  # fmt: skip
    values = {name: resolved(name) for name in listed() if name.startswith(parts)}
    estimators = {name: value for name, value in values.items() if hasattr(value, "fit")}
    assert len(estimators) >= 13
    words = ("**Guarantees.**", "**Edge cases.**")
    missing = {n for n, value in estimators.items() if not all(w in value.__doc__ for w in words)}
    assert not missing


def test_a_parameter_or_a_result_that_is_not_described_is_found():
    def gap(first, second=None) -> int:
        """Do something.

        Parameters
        ----------
        first : int
        """

    assert lacks(gap) == ["parameter second", "Returns"]


# Classes that users only give settings; the library calls their methods, which take one line.
SETTINGS = {"NetworkHead", "SoftmaxHead"}


def documented(part):
    """Yield every public class, function, method and property of ours in a part, once."""
    for name in sorted(listed()):
        if name.rpartition(".")[0] != part:
            continue
        value = resolved(name)
        yield value
        has_methods = inspect.isclass(value) and value.__name__ not in SETTINGS
        for member in dir(value) if has_methods else ():
            raw = inspect.getattr_static(value, member)
            own = getattr(raw, "__func__", getattr(raw, "fget", raw))
            ours = inspect.isfunction(own) and own.__module__.startswith("skprivacy.")
            if ours and not member.startswith("_"):
                yield own


# Keywords of a subclass's definition, and some of skorch's parameters, which **kwargs take.
NOT_OF_INIT = ("Event", "DPNeuralNet")


def faults(value):
    """Return what numpydoc finds wrong with the parameters and the results in a docstring."""
    from numpydoc.validate import validate

    found = validate(f"{value.__module__}.{value.__qualname__}")["errors"]
    problems = {code: message for code, message in found if code.startswith(("PR", "RT"))}
    if "PR01" in problems and inspect.isclass(value) and not lacks(value):
        del problems["PR01"]  # results are read, not made: their fields are attributes
    if value.__qualname__ in NOT_OF_INIT:
        problems.pop("PR02", None)
    return problems


@pytest.mark.everyday(6)
@pytest.mark.heavy
@pytest.mark.parametrize("part", ["", *PARTS])
def test_numpydoc_finds_nothing_wrong_with_parameters_and_results(part):
    pytest.importorskip("torch")
    found = {
        value.__qualname__: problems for value in documented(part) if (problems := faults(value))
    }
    assert not found


class Documented:
    """Have methods whose docstrings lack something."""

    def unnamed(self, first):
        """Do something."""

    def undescribed(self, first):
        """Do something.

        Parameters
        ----------
        first : int
        """

    def nothing_returned(self):
        """Return something."""
        return 1


def test_missing_parts_of_a_docstring_are_found():
    methods = (Documented.unnamed, Documented.undescribed, Documented.nothing_returned)
    assert [list(faults(method)) for method in methods] == [["PR01"], ["PR07"], ["RT01"]]
