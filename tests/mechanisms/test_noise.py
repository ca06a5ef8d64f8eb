"""Every class that releases private data adds the noise that its event claims."""

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

import skprivacy
from skprivacy.base import PrivateEstimatorMixin

from ..contracts.noise_laws import (
    check_independent,
    check_not_repeated,
    check_standard_normal,
    standardised,
)
from .noise_cases import CASES, NoiseCase


def check_noise(case: NoiseCase, share: float = 1.0) -> None:
    """Test ``share`` of the noise against the law that is claimed of all of it."""
    observed = defaultdict(list)
    for event, noise in case.observe(share):
        observed[event].append(standardised(event, noise))
    assert observed, "nothing passed through a mechanism"
    for rows in observed.values():
        check_standard_normal(np.concatenate([row.ravel() for row in rows]))
        if all(row.shape == rows[0].shape for row in rows):
            check_independent(np.concatenate([row[:64, :2000] for row in rows[:64]]))
        check_not_repeated(rows[0][:1])


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize("name", CASES)
def test_noise_has_the_law_that_its_event_claims(name):
    check_noise(CASES[name])


AN_EVERYDAY_ONE = {"FloatGaussian", "LNMax", "Exponential", "Columns"}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "name", [k if k in AN_EVERYDAY_ONE else pytest.param(k, marks=pytest.mark.slow) for k in CASES]
)
def test_a_share_of_the_noise_is_noticed(name):
    with pytest.raises(AssertionError, match="noise of another"):
        check_noise(CASES[name], CASES[name].notices)


def releasing_classes() -> Iterator[type]:
    """Yield every concrete class of the package that has ``release``, public or not."""
    for module in pkgutil.walk_packages(skprivacy.__path__, "skprivacy."):
        if module.name.endswith(("__main__", "chacha_triton")):
            continue
        for found in vars(importlib.import_module(module.name)).values():
            own = inspect.isclass(found) and found.__module__ == module.name
            if own and callable(getattr(found, "release", None)) and not is_interface(found):
                yield found


def is_interface(found: type) -> bool:
    return inspect.isabstract(found) or getattr(found, "_is_protocol", False)


@pytest.mark.heavy
def test_every_class_that_releases_has_a_case():
    classes = set(releasing_classes())
    assert len(classes) > 25, "the walk through the package has found too little"
    # Estimators are cases of tests/contracts/cases.py.
    missing = {c for c in classes if not issubclass(c, PrivateEstimatorMixin)}
    missing -= {case.covers for case in CASES.values()}
    assert not missing, "add a NoiseCase to tests/mechanisms/noise_cases.py"


def test_a_class_without_a_case_is_noticed(monkeypatch):
    monkeypatch.delitem(CASES, "LNMax")
    with pytest.raises(AssertionError, match="LNMax"):
        test_every_class_that_releases_has_a_case()
