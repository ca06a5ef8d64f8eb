"""Sections of an audit report: what was claimed, measured and found, each fact stated once.

To add a check of the samples, add a value to ``AuditReport._sample_checks``, on which the verdict
depends, and a section here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from typing import Any

from ..._report_facts import (
    Cell,
    Column,
    Fact,
    ReportFacts,
    Section,
    details,
    format_guarantee,
    format_interval,
    format_percent,
    format_share,
    interval,
    values,
    yes_or_not_shown,
)
from ..inspection.claims import NO_CLAIM
from ..inspection.disclosure_report import SIGNS
from .document import About
from .findings import AttackFinding, GroupExposure
from .plain_words import attacks_in_words, kind_in_words, relation_in_words, unit_in_words

SHOWN_GROUPS = 20  # the page shows the most exposed ones; data frames and JSON have all
_SHOWN_RECORDS = 100


def audit_facts(report: Any, about: About, *, records: bool) -> ReportFacts:
    """Return the facts of an audit; with ``records``, also the rows of exposed records."""
    level, qualified = _assess_verdict(report)
    verdict = (not report.claims and report.reason) or report.verdict
    claimed, charged = _describe_claim(report, about), _describe_charges(report)
    measured = Fact(
        "epsilon_lower_bound", report.epsilon_lower_bound,
        f"epsilon of at least {report.epsilon_lower_bound:.3g} at delta {report.claimed_delta:g} "
        f"over all attacks (confidence {format_percent(1 - report.alpha, 0)}); a lower bound "
        "proves no privacy",
        label="measured",
    )  # fmt: skip
    paired = _describe_matched_pairs(report)
    assumed = details(f"if {text}" for text in report.assumptions)
    refuted = details(f"refuted by {text}" for text in report.refutations if report.claims)
    return ReportFacts(
        Fact("verdict", report.verdict, f"Audit: {verdict}{qualified}", level),
        (
            _list_warnings(report),
            Section(
                "Claimed and measured",
                (*claimed, *charged, measured, *assumed, *refuted, paired, *_count_sizes(report)),
            ),
            _attacks(report),
            *_list_exposure_sections(report, records),
            _disclosure(report.disclosure),
            Section(
                "Caveats",
                tuple(Fact("caveat", text, text, "warning") for text in report.caveats),
                key="caveats",
            ),
        ),
        (
            Fact(sentence=_conclusion(report)),
            *(f for f in (*claimed, *charged) if f.sentence and f.level != "detail"),
            measured,
            *assumed,
            *(replace(fact, below=False) for fact in refuted),
            *([paired] if paired.sentence else []),
        ),
    )


def own_claim_fact(own: Any) -> Fact:
    """Return the model's own claim, where another one was passed and tested."""
    if own is None or own.reason == NO_CLAIM:
        return Fact("own_claim")
    claim = None if own.guarantee is None else own.guarantee.to_dict()
    stated = own.reason if own.guarantee is None else format_guarantee(own.guarantee)
    sentence = f"{stated}; not tested, because another claim was passed"
    return Fact("own_claim", claim, sentence, label="claimed by the model itself")


def _assess_verdict(report: Any) -> tuple[Any, str]:
    """Return the level of the verdict, and what qualifies it."""
    if report.verdict == "violated":
        return "bad", ""
    if report.verdict != "consistent":
        return "open", ""
    if report.uncovered:
        return "open", ", but no guarantee covers the whole model"
    if not report.could_refute:
        return "open", ", but no audit of so few records could refute the claim"
    return "good", ""


def _conclusion(report: Any) -> str:
    if report.verdict == "violated":
        return "An attack refuted the claim. Do not release the model."
    if report.verdict == "doubtful":
        return (
            "The claim is neither refuted nor consistent: the samples of records are not what the "
            "audit assumes."
        )
    if report.verdict == "consistent":
        return "No attack refuted the claim. This does not prove it: another attack may find more."
    holds = " that holds" if report.reason not in ("", "no claim") else ""
    meaning = (
        "The attacks therefore say nothing about it."
        if report.doubt
        else "A small measured epsilon does not mean that the model is private."
    )
    return f"The model makes no privacy claim{holds}. {meaning}"


def _list_warnings(report: Any) -> Section:
    """Return what must be read before the figures."""
    first = [report.doubt] if report.doubt else [] if report.could_refute else report._too_few()
    return Section(
        "",
        (
            Fact("doubt", report.doubt),
            Fact("reason", report.reason),
            *(Fact(sentence=text, level="warning") for text in first),
        ),
    )


def _describe_claim(report: Any, about: About) -> list[Fact]:
    guarantee = report.guarantee
    sentence = format_guarantee(guarantee)
    claim = None if guarantee is None else guarantee.to_dict()
    facts = [Fact("claim", claim, sentence, label="claimed")]
    if not report.claims:
        return [*facts, own_claim_fact(report.own_claim)]
    unit = unit_in_words(report.unit, about, of_labels=report.of_labels)
    return [
        *facts,
        *details([guarantee.noise_in_words]),
        *details([relation_in_words(report, about), kind_in_words(report)], "detail"),
        *details(f"if {text}" for text in guarantee.assumptions),
        Fact(sentence=unit, level="detail", label="unit"),
        own_claim_fact(report.own_claim),
    ]


def _describe_charges(report: Any) -> list[Fact]:
    charged = report.charged
    key = "charged", None if charged is None else charged.to_dict()
    if not report.cost_of_search:
        return [Fact(*key)]
    facts = [
        Fact(*key, f"{format_guarantee(charged, 'unknown')}, all fits together", label="charged")
    ]
    if charged is not None:
        facts += details([charged.noise_in_words, *(f"if {text}" for text in charged.assumptions)])
    return facts


def _describe_matched_pairs(report: Any) -> Fact:
    """Return the evidence on matched pairs, which changes no verdict."""
    pairs = report.pairs
    if pairs is None:
        return Fact("matched_pairs")
    sentence = pairs.describe(report.alpha, claims=report.claims)
    return Fact("matched_pairs", asdict(pairs), sentence, label="on matched pairs")


def _count_sizes(report: Any) -> list[Fact]:
    """Return the numbers of records and models, the accuracy, and the values without words."""
    found = f"{report.n_train:,} used in training, {report.n_test:,} not"
    accuracy = ""
    if not math.isnan(report.test_accuracy):
        useless = report.test_accuracy <= report.majority_share
        accuracy = (
            f"{format_percent(report.test_accuracy)} on new records, "
            f"{format_percent(report.train_accuracy)} on training records (most frequent class: "
            f"{format_percent(report.majority_share)}{'; the model is useless' if useless else ''})"
        )
    return [
        Fact("n_train", report.n_train, found, "detail", label=report._members),
        Fact("test_accuracy", report.test_accuracy, accuracy, label="accuracy"),
        _baseline(report.baseline),
        Fact("n_shadows", report.n_shadows, str(report.n_shadows), "detail", "shadow models"),
        Fact("not_measured", list(report.not_measured)),
        *values(
            report, "n_test", "train_accuracy", "majority_share", "model", "uncovered",
            "claimed_epsilon", "claimed_delta", "epsilon_within_reach", "alpha", "attacked",
            "n_shared",
        ),
    ]  # fmt: skip


def _baseline(baseline: Any) -> Fact:
    if baseline is None:
        return Fact("blind_baseline")
    return Fact(
        "blind_baseline", baseline.to_dict(), baseline.finding, "detail", "samples compared"
    )


def _attacks(report: Any) -> Section:
    columns = [
        Column("Attack", lambda finding: finding.result.attack),
        Column(
            "AUC", lambda found: format_interval(found.result.auc, *found.result.auc_interval),
            "chance: 0.5",
        ),
    ]  # fmt: skip
    for index, point in enumerate(report.findings[0].points):
        columns += [
            Column(f"Found at {format_share(point['fpr'])} false alarms", partial(_tpr, index)),
            Column("Ceiling", partial(_ceiling, index)),
        ]
    epsilon = Column("Epsilon", lambda finding: f"{finding.epsilon_lower_bound:.3g}", "at least")
    guesses = (
        "A fair coin decided which of two labels a record was trained with, and each attack "
        "guesses the coin. Membership is not tested: a guarantee of labels says nothing about it."
        if report.of_labels
        else f"Each attack guesses which {report._members} the model was trained on."
    )
    ceiling = (
        " The ceiling is the highest rate that the claim allows for any attack"
        f"{', if it held for the whole model' if report.uncovered else ''}: an attack above it, "
        "beyond chance, shows that the claim is false."
    )
    alarm = (
        "a flipped label that the attack takes for a true one"
        if report.of_labels
        else f"a {report._member} that was not used, but that the attack takes for a member"
    )
    outro = (
        "The table shows each attack's curve at two rates of false alarms. Epsilon comes from the "
        "point where the curve shows most, which may be elsewhere: an attack that finds nothing at "
        "1 % false alarms may still refute a claim."
    )
    return Section(
        "Attacks",
        (*(_attack(finding) for finding in report.findings), *_explain_attacks(report.findings)),
        "attacks",
        f"{guesses} Intervals have confidence {format_percent(1 - report.alpha, 0)}."
        f"{ceiling if report.claims else ''} A false alarm is {alarm}.",
        (*columns, epsilon),
        outro if any(finding.shown_by for finding in report.findings) else "",
    )


def _attack(finding: AttackFinding) -> Fact:
    low, high = finding.result.auc_interval
    origin = f": {finding.shown_by}" if finding.shown_by else ""
    return Fact(
        "attack", finding.to_dict(),
        f"AUC {finding.result.auc:.3f} [{low:.3f}, {high:.3f}], epsilon of at least "
        f"{finding.epsilon_lower_bound:.3g}{origin}",
        label=finding.result.attack, row=finding,
    )  # fmt: skip


def _explain_attacks(findings: Sequence[AttackFinding]) -> Iterator[Fact]:
    """Yield what each attack does: pages name attacks by their classes."""
    words = attacks_in_words(finding.result.attack for finding in findings)
    yield from (Fact(sentence=text, level="detail", label=name) for name, text in words.items())


def _ceiling(index: int, finding: AttackFinding) -> Cell:
    return format_share(finding.points[index]["bound"])


def _tpr(index: int, finding: AttackFinding) -> Cell:
    point = finding.points[index]
    if point["refused"]:
        return "–", "too few records"
    ends = f"{format_share(point['low'])} to {format_share(point['high'])}"
    return format_share(point["tpr"]), ends


def _list_exposure_sections(report: Any, records: bool) -> list[Section]:
    """Return the sections on exposed groups and on exposed records."""
    groups, members = report.strongest_on_groups, report._members
    rows = {id(exposure) for exposure in groups[:SHOWN_GROUPS]}
    counted = f"The first {SHOWN_GROUPS} of {len(groups)} groups."
    named = "" if report.most_exposed else " No group is exposed beyond chance."
    return [
        Section(
            "Exposure of groups",
            tuple(
                _group(exposure, is_first=exposure is groups[0], is_row=id(exposure) in rows)
                for exposure in report.exposures
            ),
            "groups",
            "Attacks may find the members of some groups more easily than those of others. For "
            "each group the table shows the attack that exposes it most. All intervals hold with "
            f"confidence {format_percent(1 - report.alpha, 0)}, over all groups and attacks "
            "(Bonferroni). With the same confidence, every “yes” is right (Holm). The order alone "
            f"shows nothing.{named} Groups of fewer than five are left out.",
            (
                Column("Group", lambda row: f"{row['by']} {row['group']}"),
                Column("Exposed beyond chance", yes_or_not_shown("exposed")),
                Column("AUC", interval("auc"), "chance: 0.5"),
                Column("Attack", itemgetter("attack")),
                Column(f"{members[0].upper()}{members[1:]}", _sizes, "in training, not"),
            ),
            counted if len(groups) > SHOWN_GROUPS else "",
        ),
        *_records(report, records),
    ]


def _group(exposure: GroupExposure, *, is_first: bool, is_row: bool) -> Fact:
    row = asdict(exposure)
    ends = f"[{exposure.auc_low:.3f}, {exposure.auc_high:.3f}]"
    sentence = f"{exposure.by} {exposure.group}, AUC {exposure.auc:.3f} {ends} ({exposure.attack})"
    return Fact(
        "group", row, sentence if is_first and exposure.exposed else "",
        label="most exposed, corrected for all groups and attacks",
        row=row if is_row else None,
    )  # fmt: skip


def _sizes(row: dict[str, Any]) -> Cell:
    return f"{row['n_in']:,}, {row['n_out']:,}"


def _records(report: Any, named: bool) -> list[Section]:
    """Return the number of exposed records and, if they are ``named``, their rows."""
    exposed = report.exposed_records()
    members = report._members
    sentence = (
        f"{len(exposed):,} of {report.n_train:,} training {members} stand out from those that were "
        "not used: an attacker can be almost certain that they were used. An expected share of at "
        f"most {format_share(report.alpha)} of these stand out by chance."
        f"{'' if named else ' They are not named here, because that would disclose them.'}"
        if len(exposed)
        else f"No {'training ' if report.attacked == 'record' else ''}{report._member} stands out "
        "more than chance explains. This does not show that none is exposed."
    )
    number = Fact("n_exposed", len(exposed), "" if report.of_labels else sentence, "detail")
    found = [Section(f"Single {members}", (number,))]
    if not named:
        return found
    rows = exposed.to_dict("records")
    shown_rows = f"The {_SHOWN_RECORDS} most exposed of {len(rows)} records."
    return [
        *found,
        Section(
            "This page names records",
            tuple(
                Fact("record", row, row=row if index < _SHOWN_RECORDS else None)
                for index, row in enumerate(rows)
            ),
            "exposed_records",
            "Rows of the training data, counted from 0. Readers of this page learn who is in the "
            "data: do not pass it on.",
            (
                Column("Row", lambda row: str(row["row"])),
                Column("Attack", itemgetter("attack")),
                Column(
                    "Risk", lambda row: format_share(row["risk"]), "non-members that score as high"
                ),
            ),
            shown_rows if len(rows) > _SHOWN_RECORDS else "",
        ),
    ]


def _disclosure(disclosure: Any) -> Section:
    if disclosure is None:
        return Section("Signs of disclosure", (Fact("disclosure"),))
    found = disclosure.facts()
    checks = found.sections[1]
    flagged = found.head.sentence if disclosure.flagged else ""
    return Section(
        "Signs of disclosure",
        (
            Fact(
                "disclosure", found.to_dict(), flagged,
                label="signs of disclosure, which do not prove a leak",
            ),
            *(
                replace(
                    check, key="", below=True, level="plain" if check.value["flagged"] else "detail"
                )
                for check in checks.facts
            ),
            Fact(sentence=SIGNS, level="detail"),
        ),
        intro="Signs that the structure of the model reveals records, found without an attack.",
        columns=checks.columns,
    )  # fmt: skip
