"""Report of the signs that a model discloses records: one check for each sign."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..._report_facts import Column, Fact, FactReport, ReportFacts, Section, render_brief

SIGNS = (
    "These are signs: finding one does not prove a leak, and finding none does not prove privacy. "
    "Attacks measure leaks (skprivacy.audit); only a guarantee of differential privacy bounds them."
)
_AT_LEAST = ("smallest leaf", "k-anonymity", "degrees of freedom")
_SHOWN: dict[bool | None, tuple[Any, str]] = {
    True: ("warning", "yes"),
    False: ("good", "no"),
    None: ("open", "not checked"),
}
_MEANING = {
    "stored records": "training records that the model contains",
    "smallest leaf": "the fewest records in a leaf of a tree",
    "k-anonymity": "the fewest records with the same prediction",
    "class disclosure": "records whose prediction reveals their label",
    "degrees of freedom": "records minus fitted parameters",
    "error gap": "how much more often the model is right on training records",
}


@dataclass(frozen=True, repr=False)
class DisclosureReport(FactReport):
    """Signs that a model discloses records; returned by :func:`check_disclosure`.

    Attributes
    ----------
    model : str
        The model and its parameters.
    checks : tuple
        The checks: ``name``, ``flagged`` (None if the check does not apply to the model),
        ``value``, ``threshold``, ``allowed`` (the threshold in words) and ``says`` (the result in
        words).
    claim : str
        The privacy that the model claims, in words. The checks do not test it.
    n_train : int
        Number of training records.
    """

    model: str
    checks: tuple[DisclosureCheck, ...]
    claim: str
    n_train: int

    @property
    def flagged(self) -> tuple[str, ...]:
        """Names of the checks that found their sign."""
        return tuple(check.name for check in self.checks if check.flagged)

    def __getitem__(self, name: str) -> DisclosureCheck:
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(f"{name!r}; the checks are {[check.name for check in self.checks]}")

    def facts(self) -> ReportFacts:
        applied = sum(check.flagged is not None for check in self.checks)
        flagged = Fact(
            "flagged", list(self.flagged), f"{len(self.flagged)} of {applied} flagged",
            label="Disclosure checks",
        )  # fmt: skip
        columns = (
            Column("Check", lambda check: (check.name, check.meaning), words=True),
            Column("Sign found", lambda check: _SHOWN[check.flagged][1]),
            Column("Allowed", lambda check: check.allowed),
            Column("What was found", lambda check: check.says, words=True),
        )
        checks = tuple(
            Fact("check", asdict(c), c.says, _SHOWN[c.flagged][0], c.name, row=c)
            for c in self.checks
        )
        subject = (
            Fact("claim", self.claim, self.claim, label="claimed"),
            Fact("model", self.model),
            Fact("n_train", self.n_train),
        )
        return ReportFacts(
            flagged,
            (
                Section("", subject),
                Section("", checks, "checks", columns=columns),
                Section("", (Fact("note", SIGNS, SIGNS),)),
            ),
        )

    def _repr_html_(self) -> str | None:
        return render_brief("facts.html", facts=self.facts())


@dataclass(frozen=True)
class DisclosureCheck:
    """Result of one disclosure check."""

    name: str
    flagged: bool | None  # whether the sign was found; None if the check does not apply
    value: float | None  # compared with the threshold
    threshold: float  # the least or the largest value allowed, as ``allowed`` says
    says: str  # the result, or why the check does not apply, in words

    @property
    def meaning(self) -> str:
        """The meaning of the figure, in a few words."""
        return _MEANING[self.name]

    @property
    def allowed(self) -> str:
        """The threshold in words."""
        bound = "at least" if self.name in _AT_LEAST else "at most"
        return f"{bound} {self.threshold:g}"
