"""Run one benchmark: ``python benchmarks/run.py NAME [--quick] [OPTION ...]``.

``--list`` prints the names. ``NAME --help`` prints what a benchmark measures and its options.
``--quick`` runs every part of it on tiny data, in seconds: its numbers mean nothing, and data sets
that must be downloaded are replaced by generated ones of the same form.
"""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
FOLDERS = ("speed", "accuracy", "tables", "attacks", "audits", "papers")


def find_benchmarks() -> dict[str, Path]:
    """Return the file of each benchmark by its name, such as "speed/ledger"."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py"))]
    return {f"{path.parent.name}/{path.stem}": path for path in paths}


def read_title(path: Path) -> str:
    """Return the first line of a file's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def print_list(benchmarks: dict[str, Path]) -> None:
    for name, path in benchmarks.items():
        print(f"{name:40}{read_title(path)}")


def resolve_name(name: str, benchmarks: dict[str, Path]) -> str:
    """Return the full name; the folder can be left out where one file alone has the name."""
    found = [full for full in benchmarks if name in (full, full.partition("/")[2])]
    if len(found) == 1:
        return found[0]
    choices = ", ".join(found or benchmarks)
    sys.exit(f"Expected the name of one benchmark, found {name!r}. Choose from: {choices}")


def main(arguments: list[str]) -> None:
    benchmarks = find_benchmarks()
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
    elif arguments[0] == "--list":
        print_list(benchmarks)
    else:
        name = resolve_name(arguments[0], benchmarks)
        if "--quick" in arguments[1:]:
            os.environ["SKPRIVACY_BENCHMARK_QUICK"] = "1"  # subprocesses inherit it
        sys.path[0] = str(ROOT.parent)  # in place of this folder
        sys.argv[1:] = arguments[1:]
        runpy.run_module(f"benchmarks.{name.replace('/', '.')}", run_name="__main__",
                         alter_sys=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
