"""Fixtures of the accounting's tests."""

import pytest


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "adult.ledger"
