"""The layers of the library: who may import whom, read from the source."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from graphlib import TopologicalSorter
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

import skprivacy
from skprivacy import config_context, get_config
from tests.tools.blocked_imports import run_without

from ..tools.files_entered import CALLS, entered_when_warm, files_entered

ROOT = Path(skprivacy.__file__).parent
# The layers, from the command line down to the accounting. A file belongs to the layer of the
# longest name that it starts with. It imports files of the same layer and of lower ones.
LAYERS = [
    {"__main__"},
    {"cli.main"},
    {"cli.commands"},
    {"cli"},
    {"certificates", "model_selection"},
    {"audit"},
    {"audit.canaries", "audit.verification"},
    {"audit.comparability", "audit.report"},
    {"persistence"},
    {"audit.inspection"},
    {"display"},
    {"attacks.attributes", "attacks.reconstruction", "attacks.generators"},
    {"attacks.membership"},
    {"attacks"},
    {"fine_tuning", "label_privacy"},
    {"additive_model", "datasets", "ensemble", "federated", "synthesis"},
    {"_stacked", "defenses", "linear_model", "neural_network", "preprocessing"},
    {"base", "metrics", "sums.sum_estimator"},
    {"_clones", "sums"},
    {"_groups", "_input_data"},
    {"mechanisms"},
    {"accounting"},
]  # fmt: skip
ANYWHERE = {
    "_config", "_docs", "_environment", "_extras", "_files", "_report_facts", "_sklearn",
    "_validation", "_version", "exceptions",
}  # fmt: skip
LAYER_OF = {name: depth for depth, names in enumerate(LAYERS) for name in names}
# Attacks that look into torch modules, and what trains on a device; torch is imported when it is
# used.
MAY_IMPORT_TORCH = {
    "neural_network",
    "_environment.py",
    "_stacked/device_networks.py",
    "_stacked/scheduling.py",
    "attacks/membership/white_box_encoder.py",
    "attacks/module_classifier.py",
    "attacks/network_view.py",
    "attacks/reconstruction/bayes.py",
    "attacks/reconstruction/first_layer.py",
    "attacks/reconstruction/inversion_attack.py",
    "attacks/reconstruction/optimization.py",
    "attacks/record_gradients.py",
    "attacks/torch_gradients.py",
    "mechanisms/chacha.py",
    "mechanisms/chacha_triton.py",
    "persistence/networks.py",
}


def sources() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem != "__init__")


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    """Return the absolute names of the modules that a file imports, wherever in it."""
    package = ["skprivacy", *path.relative_to(ROOT).parts[:-1]]
    names = set()
    for node in statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Walk through statements alone: expressions are nine tenths of a tree, and import nothing."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, name, []))
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(branch.body)


def module_of(path: Path) -> str:
    """Return the dotted name of a file within the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def layer_of(module: str) -> int | None:
    """Return the layer of the longest name in LAYER_OF that contains a module."""
    while module and module not in LAYER_OF:
        module = module.rpartition(".")[0]
    return LAYER_OF.get(module)


def test_every_file_has_a_layer():
    without = [
        p for p in sources() if part_of(p) not in ANYWHERE and layer_of(module_of(p)) is None
    ]
    assert not without
    names = [name for names in LAYERS for name in names] + sorted(ANYWHERE)
    assert len(names) == len(set(names))
    parts = {part for path in sources() for part in parts_of(module_of(path))}
    assert set(names) <= parts


def test_the_architecture_page_draws_these_layers():
    page = (ROOT.parent / "doc" / "development" / "architecture.rst").read_text(encoding="utf-8")
    [picture] = re.findall(r"^.. code-block:: text\n\n((?: {4}.*\n)+)", page, flags=re.MULTILINE)
    assert [set(line.split()) for line in picture.splitlines()] == LAYERS


def parts_of(module: str) -> set[str]:
    words = module.split(".")
    return {".".join(words[: n + 1]) for n in range(len(words))}


def imports_of_all() -> Iterator[tuple[Path, str]]:
    return ((path, name) for path in sources() for name in imported(path))


@cache
def modules_of_the_package() -> frozenset[str]:
    return frozenset(module_of(path) for path in sources())


@cache
def imported_module(name: str) -> str:
    """Return the module of an imported name, within the package."""
    modules = modules_of_the_package()
    name = name.partition(".")[2]
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def is_of_a_layer_above(path: Path, name: str) -> bool:
    there = layer_of(imported_module(name))
    if part_of(path) in ANYWHERE or path.stem == "__init__" or there is None:
        return False
    return there < layer_of(module_of(path))


def test_a_layer_imports_those_below_it():
    own = ((path, name) for path, name in imports_of_all() if name.startswith("skprivacy."))
    assert not [pair for pair in own if is_of_a_layer_above(*pair)]


def test_no_files_import_one_another_in_a_circle():
    """Imports inside functions and for type checkers count."""
    graph = {}
    for path, name in imports_of_all():
        here, there = module_of(path), imported_module(name)
        if name.startswith("skprivacy.") and there and there != here:
            graph.setdefault(here, set()).add(there)
    TopologicalSorter(graph).prepare()


def test_a_folder_holds_at_most_20_files_and_lists_them():
    for init in ROOT.rglob("__init__.py"):
        files = {p.stem for p in init.parent.glob("*.py")} - {"__init__", "__main__", "_version"}
        assert len(files) < 20, init.parent
        if init.parent != ROOT:
            doc = ast.get_docstring(ast.parse(init.read_text()))
            folders = {f"{path.parent.name}/" for path in init.parent.glob("*/__init__.py")}
            listed = set(re.findall(r"^- ``(\w+/?)``", doc, flags=re.MULTILINE))
            assert listed == files | folders, f"list each file and folder in {init}"


def test_private_scikit_learn_names_live_in_one_file():
    private = {
        path for path, name in imports_of_all()
        if name.startswith("sklearn") and any(p.startswith("_") for p in name.split("."))
    }  # fmt: skip
    assert private == {ROOT / "_sklearn.py"}


def test_torch_is_imported_by_the_networks_alone():
    importing = {
        path.relative_to(ROOT) for path, name in imports_of_all()
        if name.split(".")[0] in ("torch", "skorch")
    }  # fmt: skip
    elsewhere = {path for path in importing if path.parts[0] not in MAY_IMPORT_TORCH}
    assert {str(path) for path in elsewhere} <= MAY_IMPORT_TORCH


@pytest.mark.parametrize("part", ["accounting", "metrics"])
def test_the_ground_floor_needs_numpy_and_scipy_only(part):
    allowed = {"numpy", "scipy"}
    if part == "accounting":  # a budget's entries are a frame, and its statement draws a plot
        allowed |= {"pandas", "matplotlib"}
    names = {n.split(".")[0] for p in sources() if part_of(p) == part for n in imported(p)}
    assert names - {"__future__", "skprivacy"} - set(sys.stdlib_module_names) == allowed


def test_importing_the_package_takes_no_torch():
    run_without((), "import skprivacy; assert not {'torch', 'skorch'} & set(sys.modules)")


@pytest.mark.parametrize("package", ["skprivacy", "skprivacy.neural_network"])
def test_editors_see_the_names_that_are_loaded_on_first_use(package):
    module = import_module(package)
    tree = ast.parse(Path(module.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    rooms = {name for name, origin in seen.items() if origin is None}
    assert rooms == getattr(module, "_SUBPACKAGES", set()) - {"audit"}  # it is seen as a function
    names = {name: origin for name, origin in seen.items() if origin}
    assert {**module._PUBLIC, **({"audit": "audit"} if rooms else {})} == names
    assert set(names) <= set(module.__all__)


@pytest.mark.parametrize("package", ["skprivacy", "skprivacy.neural_network"])
def test_type_checkers_see_misspelt_names(package):
    """A module's ``__getattr__`` would tell them that every name exists."""
    body = ast.parse(Path(import_module(package).__file__).read_text()).body
    assert "__getattr__" not in {node.name for node in body if isinstance(node, ast.FunctionDef)}


without_torch = partial(run_without, {"torch", "skorch"})


@pytest.mark.heavy
def test_all_but_the_networks_works_without_torch():
    printed = without_torch("""
import numpy as np, skprivacy
from importlib import import_module
from skprivacy.audit import audit
for part in ("accounting", "additive_model", "attacks", "audit", "cli", "datasets", "defenses",
             "display", "ensemble", "federated", "fine_tuning", "label_privacy", "linear_model",
             "mechanisms", "metrics",
             "model_selection", "persistence", "preprocessing", "sums", "synthesis"):
    module = import_module(f"skprivacy.{part}")
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
X = np.random.RandomState(0).uniform(-1, 1, size=(80, 3))
y = (X[:, 0] > 0).astype(int)
model = skprivacy.ObjectivePerturbationClassifier(epsilon=1, delta=1e-5, classes=[0, 1], radius=2)
model.fit(X[:40], y[:40])
parts = X[:40], y[:40], X[40:], y[40:]
print(audit(model, *parts, n_shadows=4, alpha=1e-8).verdict)  # the noise is fresh
""")
    assert "consistent" in printed


@pytest.mark.slow
def test_linear_models_are_saved_and_loaded_without_torch(tmp_path):
    file = tmp_path / "network.safetensors"
    rows = np.random.RandomState(0).uniform(-1, 1, size=(80, 3))
    network = skprivacy.DPSGDRegressor(target_bounds=(0, 1), epochs=1, hidden_layer_sizes=(2,))
    skprivacy.save_model(network.fit(rows, np.zeros(80)), file)
    printed = without_torch(f"""
import numpy as np, skprivacy
from skprivacy.preprocessing import PrivateStandardScaler
from sklearn.pipeline import make_pipeline
X = np.random.RandomState(0).uniform(-1, 1, size=(80, 3))
model = skprivacy.AdaSSPRegressor(bounds=(-3, 3), target_bounds=(-1, 1))
model = make_pipeline(PrivateStandardScaler(bounds=(-1, 1)), model).fit(X, X[:, 0])
skprivacy.save_model(model, {str(tmp_path / "m")!r})
found = skprivacy.load_model({str(tmp_path / "m")!r})
print(np.array_equal(found.predict(X), model.predict(X)))
try:
    skprivacy.load_model({str(file)!r})
except ImportError as error:
    print(error)
""")
    assert printed.startswith("True\n")
    assert "pip install 'skprivacy[torch]'" in printed


@pytest.mark.slow
def test_networks_and_commands_without_torch_say_what_to_install():
    printed = without_torch("""
import skprivacy
from skprivacy.cli import main
sys.stderr = sys.stdout
for use in (
    lambda: skprivacy.DPSGDClassifier,
    lambda: skprivacy.neural_network.VATStudent,
    lambda: main(["sweep", "demo", "--epsilons", "1"]),
):
    try:
        use()
    except (ImportError, SystemExit) as error:
        print(error)
""")
    assert printed.count("pip install 'skprivacy[torch]'") == 3
    assert "Traceback" not in printed


@pytest.mark.heavy
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_each_subpackage_can_be_the_first_to_be_imported(step):
    pytest.importorskip("torch")
    code = f"""
import sys
from importlib import import_module
for part in {sorted(skprivacy._SUBPACKAGES)[::step]}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "skprivacy"]:
        del sys.modules[name]
    import_module(f"skprivacy.{{part}}")
"""
    run_without((), code)


@pytest.mark.heavy
def test_accounting_loads_neither_attacks_nor_audits_and_of_scikit_learn_its_base_alone():
    code = """
import sys, sklearn.base, pandas
before = set(sys.modules)
import skprivacy.accounting
new = [name.split(".") for name in set(sys.modules) - before]
assert not [n for n in new if n[0] == "sklearn" and len(n) > 1], new
rooms = {"attacks", "audit", "model_selection", "cli"}
assert not [n for n in new if n[0] == "skprivacy" and rooms & set(n[1:2])], new
"""
    run_without((), code)


@pytest.mark.heavy
def test_audit_is_a_function_and_a_subpackage():
    code = """
import pickle
import skprivacy.audit as room
import skprivacy
from skprivacy import audit
from skprivacy.audit import AuditReport
assert room is audit is skprivacy.audit
assert room.AuditReport is AuditReport
assert pickle.loads(pickle.dumps(audit)) is audit
try:
    audit()
except TypeError as error:
    assert "X_train" in str(error), error
"""
    run_without((), code)
    assert signature(skprivacy.audit) == signature(skprivacy.audit.audit)


@pytest.mark.heavy
def test_public_names_resolve():
    pytest.importorskip("torch")
    for name in skprivacy.__all__:
        assert getattr(skprivacy, name) is not None
    assert set(skprivacy.__all__) <= set(dir(skprivacy))
    assert callable(skprivacy.audit)
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and p.name[0] != "_"}
    assert folders - {"cli", "templates"} == skprivacy._SUBPACKAGES
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = skprivacy.no_such_name


# If a call enters more, merge two files of one idea, or move a function to the file that uses it.
LIMITS = {
    "DPSGDClassifier.fit": 22,
    "PATEClassifier.fit": 17,
    "FunctionalMechanismRegressor.fit": 14,
    "audit of a forest": 26,
    "PrivacySweepCV.fit of a linear model": 30,
}


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", LIMITS)
def test_a_call_enters_few_files(name):
    pytest.importorskip("torch")
    found = entered_when_warm(CALLS[name])
    assert len(found) <= LIMITS[name], found


def test_a_file_that_a_call_enters_is_found():
    assert files_entered(lambda: None) == []
    assert files_entered(get_config) == ["_config.py"]
    with config_context():
        assert files_entered(lambda: [get_config() for _ in range(3)]) == ["_config.py"]
