"""Where odd input may write nothing."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def empty_folder(tmp_path_factory):
    """Work in a folder of our own: a file that a call leaves there is seen."""
    earlier = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("cwd"))
    yield
    os.chdir(earlier)
