"""Records in every container: a private fit takes them, or refuses them by name at no cost."""

import numpy as np
import pytest

from skprivacy.accounting import PrivacyBudget

from ..contracts.cases import CASES, LABELS
from ..contracts.refusals import _state as state_of
from . import containers
from .oracle import Refused, attempt

pytestmark = pytest.mark.heavy

N = 24
# One of each way in; the others are met by chance in test_entries.
NAMES = [
    "OutputPerturbationClassifier",
    "MarginalSynthesizer-independent",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in [
            "AdaSSPRegressor", "ALMFineTuner", "DPFederatedClassifier", "DPSGDRegressor",
            "PATEClassifier", "PrivateStandardScaler", "RandomizedResponseClassifier",
            "SyntheticDataClassifier",
        ]
    ),
]  # fmt: skip
KINDS = [
    *(("X", how) for how in (*containers.TABLES, *containers.COLUMNS)),
    *(("y", how) for how in containers.LABELS),
]


def kept(which, how, X, y):
    if which == "y":
        return X, containers.LABELS[how](y)
    if how in containers.TABLES:
        return containers.TABLES[how](X), y
    return containers.with_column(X, containers.COLUMNS[how](len(X))), y


@pytest.mark.parametrize("name", NAMES)
def test_records_kept_otherwise(name):
    case, wrong = {**CASES, **LABELS}[name], []
    for which, how in KINDS:
        X, y = case.data(N)
        X, y = kept(which, how, X, y)
        budget = PrivacyBudget(100.0, 1e-2)
        model = case.make(budget=budget)
        names = {*model.get_params(), "X", "y", "budget", "parties"}
        try:
            fitted = attempt(
                lambda model=model, X=X, y=y: model.fit(X, y),
                names,
                unchanged=lambda model=model, budget=budget: (
                    len(budget.entries()), state_of(model)
                ),
            )  # fmt: skip
            if not isinstance(fitted, Refused):
                assert len(budget.entries())
                assert np.isfinite(model.epsilon_) or hasattr(model, "synthesizer_")
        except BaseException as error:
            wrong.append(f"{which} kept as {how}: {error!r:.200}")
    assert not wrong, "\n".join(wrong)
