"""Options that all benchmarks share: ``--quick``, a help text, and optional libraries."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
QUICK = os.environ.get("SKPRIVACY_BENCHMARK_QUICK") == "1"
T = TypeVar("T")


def choose(full: T, quick: T) -> T:
    """Return the setting of a full run, or that of a run with ``--quick``."""
    return quick if QUICK else full


def make_parser(docstring: str | None) -> argparse.ArgumentParser:
    """Return a parser that prints a benchmark's docstring as its help."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/run.py NAME",
        description=docstring,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny data, to see that all of it runs"
    )
    return parser


def has_peer(module: str, install: str) -> bool:
    """Return True if a library to compare with can be imported; else print how to install it."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"left out: {module} cannot be imported ({error}); {install}")
        return False
    return True


def results_folder() -> Path:
    """Return the folder for figures and tables, made if need be."""
    folder = ROOT / "benchmarks" / "results" / ("quick" if QUICK else "")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
