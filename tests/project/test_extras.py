"""Libraries: the package does without the optional ones, and the oldest versions are tried."""

import sys
import warnings
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from skprivacy import _environment, _extras
from tests.tools.blocked_imports import run_without

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPORT = ("matplotlib", "jinja2", "markupsafe", "tqdm")
# Required by the library that the extra names.
BROUGHT_BY = {"markupsafe": "jinja2"}
TRAINING = """
import numpy as np
X = np.random.RandomState(0).uniform(-1, 1, size=(80, 3))
y = (X[:, 0] > 0).astype(int)
"""


@pytest.mark.parametrize("library", sorted(_extras.EXTRAS))
def test_the_extra_of_an_error_installs_the_library(library):
    lines = PROJECT["optional-dependencies"][_extras.EXTRAS[library]]
    assert BROUGHT_BY.get(library, library) in {Requirement(line).name for line in lines}
    expected = rf"{library} .*skprivacy\[{_extras.EXTRAS[library]}\]"
    with pytest.raises(ImportError, match=expected), _extras.name_missing_extra():
        raise ModuleNotFoundError(name=f"{library}.part")


def test_a_missing_library_of_no_extra_is_not_explained():
    with pytest.raises(ModuleNotFoundError) as caught, _extras.name_missing_extra():
        raise ModuleNotFoundError("theirs", name="theirs")
    assert str(caught.value) == "theirs"


@pytest.mark.heavy
def test_estimators_fit_and_are_audited_without_the_report_libraries():
    printed = run_without(REPORT, TRAINING + """
import skprivacy
for part in skprivacy._SUBPACKAGES - {"neural_network"}:  # skorch brings tqdm
    module = getattr(skprivacy, part)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)
from skprivacy.audit import audit
model = skprivacy.ObjectivePerturbationClassifier(epsilon=1, delta=1e-5, classes=[0, 1], radius=2)
model.fit(X[:40], y[:40])
report = audit(model, X[:40], y[:40], X[40:], y[40:], n_shadows=4, alpha=1e-8)
print(report.verdict, report._repr_html_())  # a notebook prints the text
for name, draw in (("page", lambda: report.to_html("a.html")), ("plot", lambda: skprivacy.display
                   .MembershipRocDisplay.from_result(report.findings[0].result))):
    try:
        draw()
    except ImportError as error:
        print(name, error)
""")  # fmt: skip
    assert printed.startswith("consistent None\n")
    assert [line.split()[0] for line in printed.splitlines()[1:]] == ["page", "plot"]
    assert printed.count("pip install 'skprivacy[report]'") == 2


@pytest.mark.slow
def test_networks_fit_without_libraries_for_pages():
    pytest.importorskip("torch")
    printed = run_without({"matplotlib", "jinja2", "markupsafe"}, TRAINING + """
from skprivacy import DPSGDClassifier
model = DPSGDClassifier(epsilon=1, delta=1e-5, classes=[0, 1], epochs=1).fit(X, y)
print(model.privacy_.epsilon() <= 1)
""")  # fmt: skip
    assert printed == "True\n"


def test_the_package_itself_imports_without_cryptography():
    """Mechanisms draw their noise with it, so only the import of the package can do without."""
    assert run_without({*REPORT, "cryptography"}, "import skprivacy; print(1)") == "1\n"


@pytest.mark.heavy
def test_a_command_names_the_extra_of_its_page_before_it_trains():
    printed = run_without(REPORT, """
from skprivacy.cli import main
sys.stderr = sys.stdout
try:
    print(main(["audit", "digits", "--epsilon", "1", "--out", "a.html"]))
except SystemExit as stop:
    print(stop.code)
""")  # fmt: skip
    assert "pip install 'skprivacy[report]'" in printed
    assert "Traceback" not in printed
    assert len(printed.splitlines()) == 2  # the refusal and the exit code


def test_a_bar_without_tqdm_is_silent_and_warns(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.warns(UserWarning, match=r"No progress is shown: tqdm .*skprivacy\[report\]"):
        bar = _environment.progress_bar([1, 2], shown=True)
    assert list(bar) == [1, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with _environment.progress_bar(shown=False, total=2, desc="fits") as silent:
            silent.update()


# --------------------------------- pyproject.toml and constraints-lowest.txt name the same versions


def required():
    extras = PROJECT["optional-dependencies"]
    used = ("torch", "report", "parquet", "excel", "duckdb", "postgres", "test")
    lines = [*PROJECT["dependencies"], *(line for extra in used for line in extras[extra])]
    return [r for r in map(Requirement, lines) if r.name != PROJECT["name"]]


def pinned():
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pins = [Requirement(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]
    return {pin.name: next(iter(pin.specifier)) for pin in pins}


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_the_lowest_version_allowed_is_the_one_that_is_tried(requirement):
    lowest = [s.version for s in requirement.specifier if s.operator in (">=", "==")]
    pin = pinned()[requirement.name]
    assert pin.operator == "=="
    assert [Version(v) for v in lowest] == [Version(pin.version)]


def test_extras_bring_what_their_names_promise():
    extras = PROJECT["optional-dependencies"]
    of_ours = {
        "all": {"torch", "report", "parquet", "excel", "duckdb", "postgres"},
        "test": {"all"},
        "dev": {"test", "peers", "lora"},
    }
    for extra, parts in of_ours.items():
        named = [r.extras for r in map(Requirement, extras[extra]) if r.name == "skprivacy"]
        assert named == [parts]
        assert parts <= set(extras)
