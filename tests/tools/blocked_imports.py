"""Processes in which some libraries cannot be imported, as if they were not installed."""

import subprocess
import sys
from collections.abc import Collection

_BLOCK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {libraries!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without(libraries: Collection[str], code: str) -> str:
    """Run code in a process without some libraries; return what it printed."""
    block = _BLOCK.format(libraries=sorted(libraries))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", block + code],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return run.stdout
