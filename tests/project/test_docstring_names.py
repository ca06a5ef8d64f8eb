"""Every name in a docstring exists: objects in roles and calls, modules, files and pages."""

import ast
import builtins
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from sklearn.utils import all_estimators

import skprivacy

pytest.importorskip("torch")

ROOT = Path(skprivacy.__file__).parent
REPOSITORY = ROOT.parent
ROLE = re.compile(r":(?:py:)?(class|func|meth|mod|attr|exc|data|obj|doc|ref):`([^`]+)`")
LITERAL = re.compile(r"(?<!`)``([^`\n]+)``(?!`)")
FILE = re.compile(r"[\w./-]+\.(?:py|rst|md)")
DATA_FILE = re.compile(r"\w+\.(?:csv|data|json|test|toml)")
CLASS = re.compile(r"_?(?:[A-Z]+[a-z]\w*){2,}")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
# Needs a GPU's compiler to be imported.
NOT_IMPORTED = {"mechanisms/chacha_triton.py"}


class Docstring(NamedTuple):
    """Text of a docstring, its module, and the class that it stands in."""

    text: str
    module: str
    owner: str = ""
    known: frozenset[str] = frozenset()  # parameters and variables of its file


def module_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def docstrings_of(path: Path) -> Iterator[Docstring]:
    """Yield the docstrings of a file; of the shared paragraphs, every text."""
    tree, module = tree_of(path), module_of(path)
    known = frozenset(variables_of(tree))
    if module == "skprivacy._docs":
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        yield from (Docstring(text, module) for text in texts if isinstance(text, str))
        return

    def visit(node: ast.AST, owner: str) -> Iterator[Docstring]:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            owner = node.name if isinstance(node, ast.ClassDef) else owner
            if text:
                yield Docstring(text, module, owner, known)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, owner)

    yield from visit(tree, "")


def variables_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def wrong_names(doc: Docstring) -> list[str]:
    """Return the names in a docstring that lead nowhere."""
    wrong = [
        f":{role}:`{target}`"
        for role, target in ROLE.findall(doc.text)
        if not role_resolves(doc, role, target)
    ]
    literals = LITERAL.findall(doc.text)
    return wrong + [f"``{text}``" for text in literals if not literal_resolves(doc, text)]


def role_resolves(doc: Docstring, role: str, target: str) -> bool:
    target = re.sub(r".*<(.*)>", r"\1", target).lstrip("~")
    if role == "doc":
        return (REPOSITORY / "doc" / f"{target.lstrip('/')}.rst").exists()
    if role == "ref":
        return target in labels()
    return name_resolves(doc, target.lstrip(".").removesuffix("()"))


def literal_resolves(doc: Docstring, text: str) -> bool:
    if FILE.fullmatch(text):
        here = REPOSITORY.joinpath(*doc.module.split("."))
        return any((folder / text).exists() for folder in (here, here.parent, ROOT, REPOSITORY))
    if DATA_FILE.fullmatch(text):
        return True
    name = called_name(text) or text
    if name == text and not DOTTED.fullmatch(text) and not CLASS.fullmatch(text):
        return True
    return is_member_of_a_variable(doc, name) or name_resolves(doc, name)


def called_name(text: str) -> str | None:
    """Return the name of the function in a text such as ``fit(X, ...)``."""
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name) else None


def is_member_of_a_variable(doc: Docstring, name: str) -> bool:
    """Return whether a name is a variable of its file, or one that the reader imagines.

    Of an imagined one, as in ``model.fit``, some class of the library has the member.
    """
    first, last = name.split(".")[0], name.split(".")[-1]
    return first in doc.known | {"self"} or (first[0].islower() and last in members())


def name_resolves(doc: Docstring, name: str) -> bool:
    """Return whether a dotted name leads to an object from its class, module or package."""
    path = name.split(".")
    starts: list[object] = [sys.modules[doc.module]] if doc.module in sys.modules else []
    if doc.owner:
        starts += [getattr(start, doc.owner) for start in starts if hasattr(start, doc.owner)]
    packages = doc.module.split(".")
    starts += [sys.modules[".".join(packages[:n])] for n in range(1, len(packages))]
    starts += [builtins, *definitions().get(path[0], ())]
    return any(leads_somewhere(start, path) for start in starts) or is_importable(path)


def leads_somewhere(start: object, path: list[str]) -> bool:
    for name in path:
        if isinstance(start, type) and has_instance_attribute(start, name):
            return True  # the type of its value is not followed
        if isinstance(start, ModuleType) and not hasattr(start, name):
            with suppress(ImportError):
                import_module(f"{start.__name__}.{name}")
        if not hasattr(start, name):
            return False
        start = getattr(start, name)
    return True


@cache
def has_instance_attribute(kind: type, name: str) -> bool:
    """Return whether a class of the library annotates an attribute or assigns it to ``self``."""
    if hasattr(kind, name):
        return False
    return any(name in attributes_of(base.__module__, base.__name__) for base in kind.__mro__)


@cache
def attributes_of(module: str, kind: str) -> set[str]:
    path = REPOSITORY.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not module.startswith("skprivacy") or not path.exists():
        return set()
    classes = [n for n in tree_of(path).body if isinstance(n, ast.ClassDef) and n.name == kind]
    return {
        node.attr if isinstance(node, ast.Attribute) else node.target.id
        for of_class in classes
        for node in ast.walk(of_class)
        if (isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"))
        or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
    }


@cache
def members() -> set[str]:
    """Return the names of all methods and annotated fields of the library's classes."""
    return {
        node.name if isinstance(node, ast.FunctionDef) else node.target.id
        for path in sources()
        for of_class in ast.walk(tree_of(path)) if isinstance(of_class, ast.ClassDef)
        for node in of_class.body
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
    }  # fmt: skip


@cache
def definitions() -> dict[str, list[ModuleType]]:
    """Return the modules that define a public name of the library or scikit-learn."""
    found: dict[str, list[ModuleType]] = {}
    for name, kind in all_estimators():
        found[name] = [sys.modules[kind.__module__]]
    for path in sources():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(import_module(module_of(path)))
    return found


def is_importable(path: list[str]) -> bool:
    """Return whether a dotted name leads to a package of others, or to an object inside one."""
    try:
        package = import_module(path[0])
    except ImportError:
        return False
    return leads_somewhere(package, path[1:])


@cache
def labels() -> set[str]:
    pages = (REPOSITORY / "doc").rglob("*.rst")
    return {name for page in pages for name in re.findall(r"^\.\. _(.+):$", page.read_text(), re.M)}


@cache
def sources() -> list[Path]:
    files = sorted(ROOT.rglob("*.py"))
    return [p for p in files if p.relative_to(ROOT).as_posix() not in NOT_IMPORTED]


@pytest.mark.parametrize("path", sources(), ids=module_of)
def test_names_in_docstrings_exist(path):
    if path.stem != "__main__":
        import_module(module_of(path))
    assert not [name for doc in docstrings_of(path) for name in wrong_names(doc)]


def test_python_files_named_in_comments_exist():
    folders = [ROOT, *(REPOSITORY / name for name in ("tests", "benchmarks", "examples"))]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    names = {path.name for path in paths}
    lost = {
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in paths
        for text in comments_of(path)
        for name in re.findall(r"\b\w+\.py\b", text)
        if name not in names
    }
    assert not lost, "name the file as it is called now"


def comments_of(path: Path) -> Iterator[str]:
    """Yield the comments and docstrings of a file; nothing if it names no file of Python."""
    source = path.read_text(encoding="utf-8")
    if not re.search(r"\w\.py\b", source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def test_files_that_are_not_imported_exist():
    assert all((ROOT / name).exists() for name in NOT_IMPORTED)


@pytest.mark.parametrize(
    "wrong",
    [
        ":class:`PrivacyGuarante`",
        ":func:`~skprivacy.accounting.epsilon_off`",
        ":meth:`Event.costs`",
        ":meth:`costs`",
        ":mod:`skprivacy.accounting.rules`",
        ":doc:`/old_page`",
        ":ref:`old-label`",
        "``mlp.py``",
        "``doc/old_page.rst``",
        "``skprivacy.accounting.rules``",
        "``Event.costs``",
        "``EventOfOld``",
        "``compose_all(events)``",
        "``_told()``",
    ],
)
def test_a_name_that_leads_nowhere_is_found(wrong):
    right = (
        ":class:`Event`, :meth:`rdp`, :doc:`/explanation/guarantees_and_accounting`, ``event.py``, "
        "``check_event(event)``"
    )
    doc = Docstring(f"{right} and {wrong}.", "skprivacy.accounting.event", "Event")
    assert wrong_names(doc) == [wrong]
