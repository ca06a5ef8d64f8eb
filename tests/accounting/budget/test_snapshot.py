"""A rehearsed series of charges is refused exactly where the charges would be, and charges none."""

import pytest

from skprivacy.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    PrivacyGuarantee,
    RepeatedEvent,
)
from skprivacy.accounting.budget.snapshot import rehearse_charges
from skprivacy.exceptions import BudgetExceededError

pytestmark = pytest.mark.heavy

STEPS = RepeatedEvent(PoissonSampledEvent(0.1, GaussianEvent(1.0)), 20)


def stated(event, relation="add_remove", unit="record"):
    return PrivacyGuarantee(event, 1e-5, relation, "proved", (), unit)


def refused_at(charge, planned):
    """Return the place of the first that is refused; None for none."""
    for number, release in enumerate(planned):
        try:
            charge(release)
        except BudgetExceededError:
            return number
    return None


@pytest.mark.parametrize("filter", ["adaptive", "renyi", "pld"])
@pytest.mark.parametrize("n", [3, 9])
def test_rehearsal_predicts_the_charges(filter, n, tmp_path):
    planned = [stated(LaplaceEvent(4.0)), *[stated(STEPS)] * n, stated(GaussianEvent(2.0))]
    budget = PrivacyBudget(8.0, 1e-4, tmp_path / "ledger", filter=filter)
    budget.charge(LaplaceEvent(2.0))
    before = budget.verify()
    lengths = range(1, len(planned) + 1)
    told = refused_at(lambda length: rehearse_charges(budget, planned[:length]), lengths)
    assert budget.verify() == before  # nothing was charged
    made = refused_at(lambda r: budget.reserve(r.event, "", r.relation), planned)
    assert told == made
    assert (told is None) == (n == 3)  # both ends are seen


def test_caps_of_enclosing_scopes_and_other_terms_are_heeded(tmp_path):
    budget = PrivacyBudget(3.0, path=tmp_path / "ledger", relation="add_remove")
    part = budget.scope("survey", epsilon=1.0)
    rehearse_charges(part, [stated(LaplaceEvent(2.0))] * 2)
    with pytest.raises(BudgetExceededError, match="Release 3"):
        rehearse_charges(part, [stated(LaplaceEvent(2.0))] * 3)
    with pytest.raises(ValueError, match="Relations are never mixed"):
        rehearse_charges(part, [stated(LaplaceEvent(2.0), "zero_out")])
    with pytest.raises(ValueError, match="unit"):
        rehearse_charges(part, [stated(LaplaceEvent(2.0)), stated(LaplaceEvent(2.0), unit="ward")])
    assert budget.entries().empty
