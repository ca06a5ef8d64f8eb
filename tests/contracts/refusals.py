"""Contract of a fit that is refused, fails or is interrupted: it leaves no trace."""

import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivacy.mechanisms import Mechanism

from .cases import Case
from .neighbors import N, accepts_sparse
from .replay import fingerprint
from .tape import Tape, recording

# What a refused fit would read off its data, if these were not given.
PUBLIC_FACTS = ("classes", "bounds", "target_bounds")
# Rewritten whenever an attribute is deleted, as recent pipelines of scikit-learn do.
SKORCH_LISTS = ("cuda_dependent_attributes_", "prefixes_")


def check_refused_fit(case: Case) -> None:
    """A refused fit leaves an estimator as it was, alone and in a pipeline, and costs nothing."""
    X, y = case.data(N)
    for wrapped in (lambda model: model, lambda model: make_pipeline("passthrough", model)):
        budget = PrivacyBudget(0.01, 1e-9)
        model = case.make(budget=budget)
        with refused(model, wrapped, BudgetExceededError):
            wrapped(model).fit(X, y)
        assert budget.spent() == 0
        model = clone(case.make()).fit(X, y)
        with refused(model.set_params(budget=budget), wrapped, BudgetExceededError):
            wrapped(model).fit(X[::-1] * 2.0, y[::-1])
        assert budget.spent() == 0


def check_large_delta(case: Case) -> None:
    """A delta of 1/n is refused where n is public; a private n changes no refusal."""
    X, y = case.data(N)
    if "delta" not in case.make().get_params():
        return
    model = case.make(delta=1 / N)
    relation = getattr(model, "relation", "label")
    if relation not in (None, "add_remove"):  # PATE's None depends on its partition
        with pytest.raises(ValueError, match=rf"delta={1 / N!r}"):
            model.fit(X, y)
    if relation == "label" or not case.add_remove:
        return
    model, refusals = case.make(delta=1 / N, n_records=N), []
    for data in ((X, y), (np.concatenate([X, X]), np.concatenate([y, y]))):
        refusals.append(None)
        try:
            model.fit(*data)
        except ValueError as error:
            refusals[-1] = str(error)
    assert refusals[0] == refusals[1], "a refusal depends on the private number of records"


def check_facts_off_data(case: Case) -> None:
    """A public fact that is read off the data is assumed; a fitted model's pickle has no seed."""
    X, y = case.data(N)
    for fact in PUBLIC_FACTS:
        model = case.make(noise_seed=1)
        if model.get_params().get(fact) is None:
            continue
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                model.set_params(**{fact: None}).fit(X, y)
            except ValueError:  # refused, as other parameters depend on the fact
                continue
        assert any(issubclass(w.category, PrivacyLeakWarning) for w in warned), fact
        assert any("read off" in a for a in model.privacy_.assumptions), f"{fact} is not assumed"
        assert pickle.loads(pickle.dumps(model)).noise_seed is None, "a pickle holds the seed"


def check_failed_fit(case: Case) -> None:
    """A fit that breaks off at its first or its last release leaves the estimator as it was."""
    X, y = case.data(N)
    tape = Tape()
    with recording(tape):
        earlier = case.make().fit(X, y)
    errors = cycle((KeyboardInterrupt, MemoryError))  # each of them at the first and at the last
    for number in {1} if case.releases_vary else {1, len(tape.inputs)}:
        budget = PrivacyBudget(100.0, 1e-3)
        for model in (case.make(budget=budget), clone(earlier), earlier):
            model.set_params(budget=budget)
            error = next(errors)
            with failing_release(number, error), refused(model, lambda m: m, error):
                model.fit(X[::-1] * 2.0, y[::-1])
        assert budget.entries()["status"].tolist() == ["fail"] * 3, "it stays charged"


def check_sparse_refused(case: Case) -> None:
    """Sparse records are refused before any release, unless the estimator says that it takes them.

    Those that do are replayed on sparse records, see ``neighbours.label_choices``.
    """
    X, y = case.data(N)
    budget, tape = PrivacyBudget(100.0, 1e-3), Tape()
    model = case.make(budget=budget)
    assert not accepts_sparse(model), "add sparse records to the replay of this estimator"
    with recording(tape), pytest.raises((TypeError, ValueError)):
        model.fit(sparse.csr_matrix(X), y)
    assert not tape.inputs, "a refused fit releases"
    assert not len(budget.entries()), "a refused fit is charged"


@contextmanager
def refused(
    model: Any, wrapped: Callable[[Any], Any], error: type[BaseException]
) -> Iterator[None]:
    """Demand an error, and a model that is as it was but for the public facts it is not given."""
    params = model.get_params()
    unknown = {k: None for k in PUBLIC_FACTS if k in params and not params.get("class_weight")}
    fitted = hasattr(model, "privacy_")
    model.set_params(**unknown)
    before = _state(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        with pytest.raises(error):
            yield
    assert _state(model) == before, "a refused fit has changed the estimator"
    if not fitted:
        assert not hasattr(model, "privacy_"), "a refused fit leaves its claim"
        with pytest.raises(NotFittedError):
            check_is_fitted(wrapped(model))


def _state(model: Any) -> bytes:
    """Everything that an estimator holds, but for skorch's lists of names."""
    kept = {k: v for k, v in vars(model).items() if k not in SKORCH_LISTS}
    return fingerprint(SimpleNamespace(**kept))


@contextmanager
def failing_release(number: int, error: type[BaseException]) -> Iterator[None]:
    """Let the ``number``-th release fail."""
    release, left = Mechanism.release, iter(range(number, 0, -1))

    def failing(self: Mechanism, value: Any, random: Any) -> Any:
        if next(left, None) == 1:
            raise error
        return release(self, value, random)

    with mock.patch.object(Mechanism, "release", failing):
        yield
