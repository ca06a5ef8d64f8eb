from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skprivacy import _config, config_context, get_config, set_config
from skprivacy.exceptions import PrivacyLeakWarning


def test_a_leak_warns_and_is_an_error_when_strict():
    with pytest.warns(PrivacyLeakWarning, match="bounds"):
        _config.leak("bounds were read off X")
    with config_context(strict=True), pytest.raises(ValueError, match="strict=True"):
        _config.leak("bounds were read off X")
    assert get_config() == {"strict": False, "progress": False}


def test_none_leaves_the_setting():
    with config_context(strict=True):
        set_config()
        assert get_config()["strict"]


@pytest.mark.heavy
def test_worker_processes_inherit_strictness():
    code = "import skprivacy; assert skprivacy.get_config()['strict']"
    with config_context(strict=True):
        subprocess.run([sys.executable, "-c", code], check=True)


def other_thread(job):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(job).result(timeout=60)


def strict():
    return get_config()["strict"]


def test_a_thread_that_leaves_its_block_takes_no_other_threads_strictness():
    """Each put back what it had found, so the first to leave made the second lenient."""
    inside, leave = threading.Event(), threading.Event()

    def first():
        with config_context(strict=True):
            inside.set()
            leave.wait(60)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first)
        inside.wait(60)
        with config_context(strict=True):
            leave.set()
            done.result(timeout=60)
            assert strict()
            assert other_thread(strict)
    assert not strict()


def test_threads_started_within_a_strict_block_are_strict():
    with config_context(strict=True):
        assert other_thread(strict)
    assert not other_thread(strict)


def test_a_lenient_block_makes_no_other_thread_lenient(monkeypatch):
    monkeypatch.setenv("SKPRIVACY_STRICT", "1")
    with config_context(strict=False):
        assert not strict()
        assert other_thread(strict)
    assert strict()


def test_a_lenient_block_within_a_strict_one():
    with config_context(strict=True):
        with config_context(strict=False):
            assert not strict()
        assert strict()
        with config_context():
            assert strict()


def test_set_config_within_a_block_ends_with_it():
    with config_context(strict=True):
        set_config(strict=False)
        assert not strict()
    assert not strict()
    with config_context(strict=False):
        set_config(strict=True)
        assert strict()
    assert not strict()


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # Python 3.12
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_fork_while_another_thread_holds_the_lock_goes_on():
    held, release = threading.Event(), threading.Event()

    def hold():
        with _config._lock:
            held.set()
            release.wait(60)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(hold)
        held.wait(60)
        child = os.fork()
        if child == 0:
            os._exit(0 if not get_config()["strict"] else 1)
        release.set()
        done.result(timeout=60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
