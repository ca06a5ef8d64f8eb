"""Where odd input may write nothing, and how many calls a run has made."""

import os

import pytest

from . import oracle


@pytest.fixture(scope="session", autouse=True)
def empty_folder(tmp_path_factory):
    """Work in a folder of our own: a file that a call leaves there is seen."""
    earlier = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("cwd"))
    yield
    os.chdir(earlier)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["odd_calls"] = oracle.N_CALLS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Add what a worker of pytest-xdist has counted."""
    oracle.N_CALLS += getattr(node, "workeroutput", {}).get("odd_calls", 0)


def pytest_terminal_summary(terminalreporter):
    if oracle.N_CALLS:
        terminalreporter.write_line(f"{oracle.N_CALLS} calls with odd input")
