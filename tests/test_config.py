from __future__ import annotations

import subprocess
import sys

import pytest

from skprivacy import _config, config_context, get_config, set_config
from skprivacy.exceptions import PrivacyLeakWarning


def test_a_leak_warns_and_is_an_error_when_strict():
    with pytest.warns(PrivacyLeakWarning, match="bounds"):
        _config.leak("bounds were read off X")
    with config_context(strict=True), pytest.raises(ValueError, match="strict=True"):
        _config.leak("bounds were read off X")
    assert get_config() == {"strict": False}


def test_none_leaves_the_setting():
    with config_context(strict=True):
        set_config()
        assert get_config()["strict"]


def test_worker_processes_inherit_strictness():
    code = "import skprivacy; assert skprivacy.get_config()['strict']"
    with config_context(strict=True):
        subprocess.run([sys.executable, "-c", code], check=True)
