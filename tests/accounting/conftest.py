"""Fixtures of the accounting's tests."""

import pytest

from skprivacy.accounting import PrivacyBudget


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "adult.ledger"


@pytest.fixture
def budget(ledger):
    return PrivacyBudget(1.0, path=ledger)
