"""Names of scopes that look alike are refused, so that they cannot have separate caps."""

import unicodedata

import pytest

from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.accounting.budget.admission import check_scope_name

# What Unicode calls control, format, surrogate, private, unassigned, or a separator but the space.
UNPRINTABLE = [
    character
    for character in map(chr, [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10000),
                               *range(0x1D100, 0x1D200), *range(0xE0000, 0xE0200)])
    if character != " " and unicodedata.category(character)[0] in "CZ"
]  # fmt: skip
HOSTILE = {
    "zero-width space": "adult\u200b",
    "right-to-left override": "\u202etluda",
    "null": "adult\0",
    "new line": "adult\n",
    "no-break space": "ad\u00a0ult",
    "surrogate": "adult\ud800",
    "space before": " adult",
    "space behind": "adult ",
    "Braille blank": "adult\u2800",
    "Hangul filler": "adult\u3164",
    "half-width Hangul filler": "adult\uffa0",
    "combining grapheme joiner": "adult\u034f",
    "variation selector": "adult\ufe0f",
    "variation selector of plane 14": "adult\U000e0100",
    "decomposed": unicodedata.normalize("NFD", "zürich"),
    "angstrom sign": "\u212bngstrom",
    "mark first": "\u0338adult",  # "=" before it would become U+2260
    "only a blank": " ",
    "only invisible": "\u200b",
}


def test_unprintable_characters_are_refused():
    assert len(UNPRINTABLE) > 500
    for character in UNPRINTABLE:
        with pytest.raises(ValueError, match="Remove the character"):
            check_scope_name("name", f"ad{character}ult")


@pytest.mark.parametrize("kind", HOSTILE)
def test_names_that_look_like_another_are_refused(kind):
    name = HOSTILE[kind]
    budget = PrivacyBudget(1.0)
    budget.scope("adult", 0.1)
    before = budget.digest
    for give in (
        lambda: budget.scope(name),
        lambda: budget.scope(name, 0.5),
        lambda: budget.partition(name),
        lambda: PrivacyBudget.open(budget.path, name),
        lambda: PrivacyBudget.open(budget.path, f"adult/={name}"),
    ):
        with pytest.raises(ValueError, match=r"Remove the character|Pass ") as refused:
            give()
        assert str(refused.value).isprintable()
    assert budget.digest == before


@pytest.mark.parametrize(
    "name",
    ["adult", "zürich", "Å", "hospital 7", "患者", "Пациенты", "مرضى", "a.b-c_d", "p=2", "😀"],
)
def test_ordinary_names_are_scopes(name, budget):
    for part in (budget.scope(name, 0.1), budget.partition(name)):
        part.charge(LaplaceEvent(100.0))
    assert PrivacyBudget.open(budget.path, f"/{name}/").cap == (0.1, 0.0)
    budget.verify()


def test_ledger_with_a_misleading_scope_name_is_refused():
    budget = PrivacyBudget(1.0, relation="add_remove", unit="record")
    with budget._ledger.transaction() as log:
        log.append("scope", "/adult\u200b/", "", '{"delta": 0.0, "epsilon": 0.5}')
    with pytest.raises(LedgerError, match="which no cap covers"):
        budget.verify()
