"""However writers are disturbed, no charge is missed, and no paid result lost or half read."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_hostile_hour():
    """It forks, and so runs in a process of its own, before any thread of another test."""
    command = [sys.executable, "-m", "tests.nightly.hostile_hour", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'released'" in done.stdout
