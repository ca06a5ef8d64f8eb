"""Every form of a report says the same: no sentence is missing on the page, no value in JSON."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from skprivacy._files import json_safe
from skprivacy._report_facts import Fact, ReportFacts, Section
from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import AttackResult, LossThreshold
from skprivacy.audit import About, audit, audit_predictions
from skprivacy.audit.comparability.matched_pairs import MatchedPairs
from skprivacy.audit.label_audit import LabelAuditReport
from skprivacy.audit.report import audit_report, html_report, plain_words
from skprivacy.audit.report.findings import AttackFinding
from skprivacy.audit.report.plain_words import _iter_subclasses, attacks_in_words
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.synthesis import synthetic_quality

from ..test_runner import CLAIM, PARTS, Claiming

SECRET = 0.1234567890123456
LABELS = PrivacyGuarantee(ApproxDPEvent(1.0, 0.0), relation="label", assumptions=("a < b & c",))


def text_of(page):
    """Return what a reader of a page sees, in one line."""
    body = re.sub(r"<style>.*?</style>|<img[^>]*>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def spoken(line):
    """Return the parts of a line of text without its mark, which tables show apart."""
    return line.strip().removeprefix("! ").removeprefix("- ").removeprefix("? ")


def missing_sentences(facts, text, page):
    """Return the sentences that the page lacks, and the lines of text that are not facts."""
    seen = text_of(page)
    known = {fact.text for fact in facts}
    lost = [fact.sentence for fact in facts if " ".join(fact.sentence.split()) not in seen]
    return lost + [line for line in text.splitlines() if spoken(line) not in known]


def missing_values(facts, stated):
    """Return the keys whose values a dictionary lacks, and its keys that are not facts."""
    expected = {facts.head.key: facts.head.value}
    for section in facts.sections:
        items = {fact.key: fact.value for fact in section.facts if fact.key}
        listed = [fact.value for fact in section.facts if fact.key]
        expected |= {section.key: listed} if section.key else items
    expected = json_safe(expected)
    lost = [key for key in expected if stated.get(key, "absent") != expected[key]]
    return lost + sorted(set(stated) - set(expected))


@pytest.fixture(scope="module")
def reports():
    """Return one report for each verdict, claim, unit and kind of audit."""
    liar = audit(Claiming().fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])
    honest = audit(Claiming(max_depth=1).fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])
    later = PARTS[2].copy()
    later[:, 0] += later[:, 0].std()
    unlike = audit(
        Claiming().fit(*PARTS[:2]), *PARTS[:2], later, PARTS[3], attacks=[LossThreshold()]
    )
    assert unlike.pairs.factor > 1
    rng = np.random.default_rng(0)
    many = AttackResult(rng.normal(6 * SECRET, size=1000), rng.normal(size=1000), "made <up>")
    few = AttackResult(*rng.normal(size=(2, 8)), "of few")
    found = tuple(AttackFinding.from_result(result, CLAIM, 0.05, 0.025) for result in (many, few))
    proba = np.full((100, 2), 0.5) + np.linspace(-SECRET, SECRET, 200).reshape(100, 2)
    proba /= proba.sum(axis=1, keepdims=True)
    guesses = np.arange(100) % 2
    return {
        "violated": liar,
        "consistent": honest,
        "few": replace(honest, findings=found, n_train=8, n_test=8, n_shared=3),
        "doubtful": replace(honest, copied="Among the members, a record has 3 copies."),
        "unlike": unlike,
        "unlike without a claim": replace(unlike, guarantee=None, reason="no claim"),
        "in pairs as claimed": replace(unlike, pairs=replace(unlike.pairs, factor=1.0)),
        "nothing in common": replace(unlike, pairs=MatchedPairs(12, by_label=True)),
        "uncovered": replace(honest, uncovered={"<scaler>": "it was fitted on private data"}),
        "no claim": replace(honest, guarantee=None, reason="no claim for patient", charged=CLAIM),
        "several fits": replace(honest, guarantee=None, charged=LABELS, attacked="patient"),
        "estimate": replace(honest, guarantee=replace(CLAIM, kind="estimate", assumptions=("q",))),
        "unmeasured": replace(honest, not_measured=("LiRA",), ledger_caveats=("No counter.",)),
        "labels": LabelAuditReport(
            **vars(replace(honest, guarantee=LABELS, findings=honest.findings, exposures=()))
        ),
        "passed": audit(
            Claiming().fit(*PARTS[:2]), *PARTS, claim=(1, 1e-6), attacks=[LossThreshold()]
        ),
        "predictions": audit_predictions(proba, guesses, proba[::-1], guesses, claim=0.1),
        "disclosure": liar.disclosure,
    }


def forms(report):
    """Return the facts of a report, its text, its page and its dictionary."""
    if not hasattr(report, "to_html"):
        return report.facts(), repr(report), report._repr_html_(), report.to_dict()
    about = About(record="person")
    page = report.to_html(about=about, records=True)
    facts = report.facts(about=about, records=True)
    return facts, repr(report), page, report.to_dict(records=True)


@pytest.fixture(autouse=True)
def _without_figures(monkeypatch):
    monkeypatch.setattr(html_report, "roc_figure", lambda report: "")
    monkeypatch.setattr(html_report, "groups_figure", lambda exposures: "")


def check_forms(report):
    facts, text, page, stated = forms(report)
    assert missing_sentences(facts, text, page) == []
    assert missing_values(facts, stated) == []
    assert json.loads(json.dumps(stated, allow_nan=False)) == stated


def test_no_sentence_is_missing_on_the_page_and_no_value_in_the_dictionary(reports):
    for report in reports.values():
        check_forms(report)


def test_nothing_that_the_brief_of_a_notebook_leaves_out_is_a_sentence_of_the_text(reports):
    for name, report in reports.items():
        brief = text_of(report._repr_html_())
        for line in repr(report).splitlines():
            shown = spoken(line).partition(": ")[2] if name == "disclosure" else spoken(line)
            assert shown[1:] in brief, name


def test_quality_of_synthetic_records_says_the_same_on_its_page():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(99), "b": rng.random(99), "c": ["x", "y", "z"] * 33})
    schema = Schema(
        {
            "a": BoundedColumn(0, 1),
            "b": BoundedColumn(0, 1),
            "c": CategoricalColumn(["x", "y", "z"]),
        }
    )
    report = synthetic_quality(frame, frame[:60], schema)
    facts = report.facts(guarantee=LABELS)
    assert missing_sentences(facts, str(report), report.to_html(guarantee=LABELS)) == []
    assert "a < b & c" in text_of(report.to_html(guarantee=LABELS))


def test_a_sentence_that_a_page_drops_is_found(reports, monkeypatch):
    def drop(level):
        whole = Section.sentences.fget
        return property(lambda section: [f for f in whole(section) if f.level != level])

    for level in ("warning", "detail", "plain"):
        with monkeypatch.context() as patch:
            patch.setattr(Section, "sentences", drop(level))
            with pytest.raises(AssertionError):
                check_forms(reports["unmeasured"])


def test_a_value_that_a_dictionary_drops_is_found(reports, monkeypatch):
    whole = ReportFacts.to_dict
    for key in ("verdict", "epsilon_lower_bound", "caveats", "groups", "exposed_records"):
        with monkeypatch.context() as patch:
            patch.setattr(
                ReportFacts, "to_dict",
                lambda facts, key=key: {k: v for k, v in whole(facts).items() if k != key},
            )  # fmt: skip
            with pytest.raises(AssertionError):
                check_forms(reports["violated"])


def test_a_page_explains_each_attack_that_it_names():
    """Readers of a page met names of classes that no page defined."""
    ours = [
        kind
        for name in ("MembershipAttack", "GeneratorAttack", "LabelInferenceAttack")
        for kind in _iter_subclasses(vars(plain_words)[name])
        if not kind.__name__.startswith("_")
    ]
    assert len(ours) > 10
    for kind in ours:
        words = attacks_in_words([f"online {kind.__name__}, sum of each patient"])
        assert re.fullmatch(r"[A-Z][^%]{20,}[.]", words[kind.__name__]), kind
    assert attacks_in_words(["made <up>", "of few"]) == {}


def test_the_words_of_an_attack_are_on_its_page(reports):
    page = text_of(reports["consistent"].to_html())
    assert attacks_in_words(["LossThreshold"])["LossThreshold"] in page


def test_a_line_of_text_that_is_no_fact_is_found(reports, monkeypatch):
    whole = ReportFacts.to_text
    monkeypatch.setattr(ReportFacts, "to_text", lambda facts: f"{whole(facts)}\n  surprise")
    with pytest.raises(AssertionError):
        check_forms(reports["violated"])


def test_a_further_check_of_the_samples_makes_the_verdict_doubtful(reports):
    class Checked(type(reports["consistent"])):
        def _sample_checks(self):
            yield from super()._sample_checks()
            yield "A blind guess tells members from non-members."

    report = Checked(**vars(reports["consistent"]))
    assert report.verdict == "doubtful"
    assert report.caveats[0].startswith("A blind guess")
    check_forms(report)


def test_warnings_are_said_once_and_other_repetitions_stay():
    twice = (Fact(sentence="mind"), Fact(sentence="mind"))
    warned = (Fact(sentence="!", level="warning"), Fact(sentence="!", level="warning"))
    facts = ReportFacts(Fact(), (Section("", (*twice, *warned)),))
    assert facts.to_text().splitlines() == ["mind", "mind", "! !"]


def test_exposed_records_are_named_by_no_form_unless_asked(reports, monkeypatch):
    named = pd.DataFrame({"row": [4217], "attack": ["x"], "risk": [0.002], "q_value": [0.01]})
    monkeypatch.setattr(audit_report, "exposed_records", lambda results, alpha: named)
    report = reports["violated"]
    silent = report.to_html(), repr(report), json.dumps(report.to_dict()), report._repr_html_()
    assert not any("4217" in text for text in silent)
    assert "not named here" in silent[0]
    check_forms(report)
    assert "4217" in text_of(report.to_html(records=True))
    assert "This page names records" in report.to_html(records=True)
    assert report.to_dict(records=True)["exposed_records"][0]["row"] == 4217
