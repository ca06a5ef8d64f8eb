"""Every check of a release that needs no publishing; run it with ``make release-check``.

The version is the same everywhere, two builds in different folders are equal to the last bit, and
the wheel trains a private model in an environment that holds nothing else. ``dist`` then holds the
archives, and ``build/sbom.cdx.json`` lists the components that an installation brings (CycloneDX).
"""

import argparse
import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
IN_WHEEL = ("skprivacy/py.typed", "skprivacy/templates/audit.html")
IN_SOURCES = ("LICENSE", "Makefile", "tests/conftest.py", "doc/conf.py", "constraints.txt")
TRAINING = """
import numpy as np
import skprivacy

X = np.random.default_rng(0).uniform(-1, 1, size=(200, 3))
model = skprivacy.AdaSSPRegressor(epsilon=1.0, bounds=(-1, 1), target_bounds=(-1, 1))
print(skprivacy.__version__, model.fit(X, X[:, 0]).privacy_)
"""


def main() -> None:
    """Run all checks; exit with a sentence at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="", help="name of the tag, such as v1.2.3")
    tag = parser.parse_args().tag
    version = check_version(tag)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (build_archives(Path(folder, name)) for name in ("one", "another/place"))
        compare_archives(first, second)
        check_contents(first)
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(first, ROOT / "dist")
        python = install_alone(Path(folder, "alone"), next(first.glob("*.whl")))
        describe_components(python)
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, (ROOT / "dist").iterdir()))
    print(f"skprivacy {version} can be released; dist and build/sbom.cdx.json are complete")


def check_version(tag: str) -> str:
    """Return the version, which code, citation, release notes and tag must share."""
    version: str = runpy.run_path(str(ROOT / "skprivacy" / "_version.py"))["__version__"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    if f"version: {version}\n" not in citation:
        sys.exit(f"CITATION.cff must state version {version}.")
    if heading is None or heading[1].split()[0] != version:
        sys.exit(f"CHANGELOG.md must begin with the notes of version {version}.")
    if tag and tag != f"v{version}":
        sys.exit(f"The tag is {tag!r}; expected 'v{version}'.")
    if tag and ("unreleased" in heading[1] or "date-released" not in citation):
        sys.exit("CHANGELOG.md and CITATION.cff must state the date of the release.")
    return version


def build_archives(folder: Path) -> Path:
    """Build the last commit in a folder; return the folder of the archives."""
    folder.mkdir(parents=True)
    sources = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=sources.stdout, check=True)
    date = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": date.stdout.strip()}
    subprocess.run([sys.executable, "-m", "build"], cwd=folder, env=environment, check=True)
    return folder / "dist"


def compare_archives(first: Path, second: Path) -> None:
    """Exit unless both folders hold the same files, and print their SHA-256."""
    found = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
        for folder in (first, second)
    ]
    if found[0] != found[1]:
        sys.exit(f"Two builds of one commit differ: {found[0]} and {found[1]}.")
    for name, digest in sorted(found[0].items()):
        print(digest, name)


def check_contents(folder: Path) -> None:
    """Exit unless the archives hold the files that users and packagers need."""
    wheel = set(zipfile.ZipFile(next(folder.glob("*.whl"))).namelist())
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    missing = {*IN_WHEEL} - wheel | {*IN_SOURCES} - sources
    if missing:
        sys.exit(f"The archives lack {sorted(missing)}.")
    if strangers := {name for name in wheel if not name.startswith("skprivacy")}:
        sys.exit(f"The wheel holds files outside the package: {sorted(strangers)}.")


def install_alone(folder: Path, wheel: Path) -> Path:
    """Install the wheel in a new environment, and train a model there; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    run(str(python), "-W", "ignore", "-c", TRAINING, cwd=folder)
    run(str(python), "-m", "skprivacy", "--version", cwd=folder)
    return python


def describe_components(python: Path) -> None:
    """Write the components of an environment to ``build/sbom.cdx.json``."""
    target = ROOT / "build" / "sbom.cdx.json"
    target.parent.mkdir(exist_ok=True)
    run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library"),
        *("--output-file", str(target), str(python)),
    )


def run(*command: str, cwd: Path = ROOT) -> None:
    """Run a command, and exit if it fails."""
    if subprocess.run(command, cwd=cwd).returncode:
        sys.exit(f"failed: {' '.join(command)}")


if __name__ == "__main__":
    main()
