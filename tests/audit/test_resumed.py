"""An audit that was killed goes on with the shadow models that its pool has kept."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .killed_audit import LAST, N_SHADOWS, audited

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_audit_trains_only_the_shadow_models_that_are_left(tmp_path, monkeypatch):
    command = [sys.executable, "-m", "tests.audit.killed_audit", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    monkeypatch.setenv("AUDIT_FOLDER", str(tmp_path))

    def fits():
        return len((tmp_path / "fits").read_text().splitlines())

    assert fits() == LAST
    resumed = audited(tmp_path)
    assert fits() == LAST + N_SHADOWS - (LAST - 1)  # the killed one again, and those left
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("AUDIT_FOLDER", str(tmp_path / "elsewhere"))
    whole = audited(tmp_path / "elsewhere")
    assert resumed.to_dict() == whole.to_dict()
    assert resumed.epsilon_lower_bound > 0
