"""HTML page of an audit: its content, its readers and its wording."""

import json
import re
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import ApproxDPEvent, GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import AttackResult, LossThreshold, SupervisedAttack
from skprivacy.audit import About, audit
from skprivacy.audit.label_audit import LabelAuditReport
from skprivacy.audit.report import html_report
from skprivacy.audit.report.findings import AttackFinding, origin_in_words, origin_point
from skprivacy.audit.report.plain_words import briefing
from skprivacy.metrics.evidence import Evidence, Rates, gather_evidence

from ..test_runner import CLAIM, PARTS, Claiming

pytestmark = pytest.mark.heavy

EVIL = "<script>alert('x')</script>"
ABOUT = About(
    data="patients.csv",
    author="R. Curator",
    command="skprivacy audit patients.csv",
    date=date(2026, 1, 31),
    record="person",
    schema_digest="ab" * 32,
    ledger_digest="cd" * 32,
    seeds={"splits": 3},
)


class Read(HTMLParser):
    """The questions and answers of a page, by their terms, and its elements."""

    def __init__(self, page):
        super().__init__()
        self.terms, self.tags, self.within = {}, [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "dt":
            self.term, self.within = "", "dt"
        if tag == "dd":
            self.within = "dd"

    def handle_endtag(self, tag):
        if tag in ("dt", "dd"):
            self.within = None

    def handle_data(self, data):
        if self.within == "dt":
            self.term += data
        if self.within == "dd":
            self.terms[self.term] = self.terms.get(self.term, "") + data


@pytest.fixture(scope="module")
def liar():
    return audit(Claiming().fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])


@pytest.fixture(scope="module")
def honest():
    return audit(Claiming(max_depth=1).fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])


def answers(report, about=ABOUT):
    return dict(briefing(report, about))


def test_the_page_says_what_it_is_about(honest):
    told = Read(honest.to_html(about=ABOUT)).terms
    assert told["Data"] == "patients.csv"
    assert told["Date"] == "2026-01-31"
    assert told["Author"] == "R. Curator"
    assert told["Command"] == "skprivacy audit patients.csv"
    assert told["Schema, SHA-256"] == "ab" * 32
    assert told["Ledger, SHA-256"] == "cd" * 32
    assert told["Public seeds"] == "splits 3"
    assert re.search(
        r"skprivacy \S+, python 3\.\S+, numpy \S+, scipy \S+, scikit-learn", told["Versions"]
    )


def test_unknown_facts_are_left_out(honest):
    told = Read(honest.to_html()).terms
    assert told["Date"] == date.today().isoformat()
    assert not {"Data", "Author", "Command", "Schema, SHA-256", "Ledger, SHA-256"} & set(told)


def test_every_fact_is_escaped(honest):
    facts = dict.fromkeys(("data", "author", "command", "record", "schema_digest"), EVIL)
    page = honest.to_html(about=About(**facts, ledger_digest=EVIL, seeds={EVIL: 1}))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > len(facts)


def test_rows_are_people_only_if_they_are_said_to_be(honest):
    assert "one person's" not in re.sub("&#39;", "'", honest.to_html())
    page = re.sub("&#39;", "'", honest.to_html(about=ABOUT))
    assert "limits how much one person's record can change" in page
    assert Read(page).terms["Unit"] == "one person's record"
    grouped = replace(honest, guarantee=replace(CLAIM, unit="patient_id"))
    told = Read(grouped.to_html(about=ABOUT)).terms
    assert told["Unit"] == "the group of all records with one patient_id"


def test_the_first_page_answers_in_plain_words(honest):
    told = answers(honest)
    assert list(told) == [
        "What is protected?",
        "From whom?",
        "How sure is that?",
        "What did the attacks find?",
        "What is there to decide?",
        "What must not be shared?",
    ]
    assert set(told) <= set(Read(honest.to_html(about=ABOUT)).terms)
    for jargon in ("Renyi", "Rényi", "zCDP", "moments", "delta", "-DP"):
        assert jargon not in " ".join(told.values())
    assert "No audit can decide this for you" in told["What is there to decide?"]
    assert "proves nothing by itself" in told["What did the attacks find?"]
    assert told["What must not be shared?"].startswith("This page.")


@pytest.mark.parametrize("multiplier", [0.5, 4.2246789, 40.0])
@pytest.mark.parametrize("relation", ["zero_out", "add_remove", "replace_one"])
def test_the_share_of_right_guesses_bounds_every_attack(honest, multiplier, relation):
    claim = PrivacyGuarantee(GaussianEvent(multiplier), at_delta=1e-6, relation=relation)
    [right] = re.findall(
        r"at most ([\d.]+) of 100", answers(replace(honest, guarantee=claim))["How sure is that?"]
    )
    fpr = np.linspace(0, 1, 1001)
    best = 100 * (claim.tpr_bound(fpr) + 1 - fpr).max() / 2
    assert best <= float(right) < best + 0.2


@pytest.mark.everyday(1)
@pytest.mark.parametrize("relation", ["zero_out", "add_remove", "replace_one"])
def test_words_of_the_claim_are_explained_in_place(honest, relation):
    claim = PrivacyGuarantee(GaussianEvent(9.0), at_delta=1e-6, relation=relation)
    told = Read(replace(honest, guarantee=claim).to_html()).terms["Claimed"]
    assert f"{relation.capitalize().replace('_', '-')}: the model says" in told
    assert "Proved: the limit follows from mathematics" in told
    assert ("counts as public" in told) is (relation != "add_remove")


def test_nothing_is_called_protected_that_is_not(liar, honest):
    tree = DecisionTreeClassifier(random_state=0).fit(*PARTS[:2])
    bare = audit(tree, *PARTS, attacks=[LossThreshold()])
    uncovered = replace(honest, uncovered={"scaler": "it was fitted on private data"})
    for report in (liar, bare, uncovered):
        told = answers(report)
        assert told["What is protected?"].startswith("Nothing")
        assert told["From whom?"].startswith("From nobody")
        assert "no limit to rely on" in told["How sure is that?"]
        assert "small enough" not in told["What is there to decide?"]
    assert "Do not release" in answers(liar)["What is there to decide?"]
    assert "refuted" in Read(liar.to_html()).terms["Claimed"]
    assert "scaler" in answers(uncovered)["What is protected?"]


@pytest.mark.parametrize("kind", ["random_dp", "estimate"])
def test_unproved_claims_are_not_called_proved(honest, kind):
    claim = replace(honest.guarantee, kind=kind)
    told = answers(replace(honest, guarantee=claim))
    assert "The limit is proved, " not in told["How sure is that?"]
    assert "without a full proof" in told["What is there to decide?"]


def test_a_wide_limit_is_called_wide(honest):
    wide = replace(honest, guarantee=PrivacyGuarantee(ApproxDPEvent(30.0, 1e-6), at_delta=1e-6))
    assert "so wide" in answers(wide)["What is there to decide?"]


def test_labels_are_told_of_as_labels(honest):
    claim = PrivacyGuarantee(ApproxDPEvent(1.0, 0.0), relation="label")
    told = answers(LabelAuditReport(**vars(replace(honest, guarantee=claim))), About())
    assert "The value of one label" in told["What is protected?"]
    assert "with which of two values of one label" in told["How sure is that?"]
    assert "at most 73.2 of 100" in told["How sure is that?"]  # e / (1 + e), rounded up


def test_a_doubtful_audit_decides_nothing(honest):
    class Doubtful(type(honest)):
        doubt = "the groups look exchanged"

    doubtful = Doubtful(**vars(honest))
    assert answers(doubtful)["What is there to decide?"].startswith("Nothing yet")
    assert "of 100 pairs" not in answers(doubtful)["What did the attacks find?"]


def test_the_strongest_attacks_are_told_in_numbers(liar):
    strong, weak = np.linspace(0.5, 1.5, 200), np.linspace(0, 1, 200)
    told = answers(replace(liar, findings=(finding(weak, weak), finding(strong, weak))))
    assert "from a non-member in 87.4 of 100 pairs" in told["What did the attacks find?"]
    assert "an attack finds 51 of 100 members" in told["What did the attacks find?"]


def test_curves_differ_without_colour(liar, monkeypatch):
    drawn = []
    monkeypatch.setattr(html_report, "embed_figure", lambda figure, _: drawn.append(figure))
    spread = np.linspace(0, 1, 200)
    html_report.roc_figure(replace(liar, findings=(finding(spread, spread),) * 3))
    styles = [
        str(line._dash_pattern) for line in drawn[0].axes[0].lines if len(line.get_xdata()) > 2
    ]
    assert len(set(styles[:3])) == 3


def finding(inside, outside):
    return AttackFinding.from_result(
        AttackResult(inside, outside, attack="made up"), CLAIM, 0.05, 0.05
    )


def test_where_epsilon_comes_from_is_told(liar):
    """It finds nobody at 1 % false alarms, and refutes the claim by whom it clears."""
    [found] = liar.findings
    assert found.points[0]["tpr"] == 0
    assert found.epsilon_lower_bound > 2
    fpr, tpr = found.shown_at
    assert found.epsilon_lower_bound == pytest.approx(np.log((1 - fpr - 1e-6) / (1 - tpr)))
    assert found.shown_by.startswith(f"it clears at least {100 * (1 - fpr):.3g} % of the other")
    page = liar.to_html()
    assert f"epsilon of at least {found.epsilon_lower_bound:.3g}: it clears" in page
    assert "A diamond in the plot" in page
    assert json.loads(liar.to_json())["attacks"][0]["shown_at"] == [fpr, tpr]


@pytest.mark.parametrize("turned", [1, -1])
def test_the_origin_is_in_the_words_of_what_was_tested(turned):
    """Both ends of the curve, and both for an attack whose scores point the wrong way."""
    few, rest = np.zeros(200), np.ones(800)
    n = np.arange(1000) / 1e6  # no ties
    # a fifth of the members stand out on top
    found = finding(turned * (np.r_[rest, few + 2] + n), turned * (np.r_[rest, few + 1] + n))
    assert found.shown_by.startswith("it finds at least ")
    fpr, tpr = found.shown_at
    share, wrong = (tpr, fpr) if turned == 1 else (1 - tpr, 1 - fpr)  # low scores tell: the others
    assert (
        f"{100 * share:.3g} % of the members at no more than {100 * wrong:.3g} %" in found.shown_by
    )
    assert found.epsilon_lower_bound == pytest.approx(np.log((share - 1e-6) / wrong))
    assert ("scores reversed" in found.shown_by) is (turned == -1)
    # a fifth of the others stand out below
    found = finding(turned * (np.r_[rest, few + 1] + n), turned * (np.r_[rest, few] + n))
    assert found.shown_by.startswith("it clears at least ")
    assert ("scores reversed" in found.shown_by) is (turned == -1)


def test_an_area_is_no_point():
    weak = Rates(0.5, 0.4)
    assert origin_point(Evidence((weak,), 0.95), 0.0) is None
    assert "area under its whole curve is at least 0.95" in origin_in_words(
        Evidence((weak,), 0.95), 0.0
    )
    upside_down = origin_in_words(Evidence((weak,), 0.95, mirrored=True), 0.0)
    assert "at least 0.95, with its scores reversed" in upside_down
    low = np.arange(100.0)
    assert gather_evidence(low, low + 80, delta=0.0, alpha=0.05).mirrored
    assert not gather_evidence(low + 80, low, delta=0.0, alpha=0.05).mirrored
    assert origin_point(Evidence((weak,), 0.0), 0.0) == (0.4, 0.5)
    nothing = Evidence((Rates(0.3, 0.4),), 0.4)
    assert (origin_in_words(nothing, 0.0), origin_point(nothing, 0.0)) == ("", None)


def test_no_assumptions_are_announced_where_there_are_none(honest):
    proved = PrivacyGuarantee(ApproxDPEvent(0.1, 1e-6), at_delta=1e-6)
    sure = "How sure is that?"
    told = answers(replace(honest, guarantee=proved))[sure]
    assert told.startswith("The limit is proved. It means: ")
    assuming = replace(honest, guarantee=replace(proved, assumptions=("n is public",)))
    assert "proved, under the assumptions listed below. It" in answers(assuming)[sure]


def test_a_verdict_that_could_not_have_been_another_is_not_green(honest):
    """With eight records, the verdict is "consistent" for any model."""
    few = [part[:8] for part in PARTS]
    one = PrivacyGuarantee(ApproxDPEvent(1.0, 1e-6), at_delta=1e-6)
    report = audit(Claiming(1, one).fit(*few[:2]), *few, attacks=[LossThreshold()])
    assert report.verdict == "consistent"
    assert not report.could_refute
    assert "no leak could have refuted the claim" in repr(report).splitlines()[1]
    assert repr(report).count("no leak could have refuted") == 1
    page = report.to_html()
    assert '<div class="verdict open"><strong>Audit: consistent, but no audit of so few' in page
    assert (
        "With so few records, no attack could have refuted it"
        in answers(report)["What did the attacks find?"]
    )
    assert honest.could_refute
    assert '<div class="verdict good"><strong>Audit: consistent</strong>' in (honest.to_html())


def test_unmeasurable_rates_are_reported_once_each():
    few = [part[:50] for part in PARTS]
    attacks = [LossThreshold(), SupervisedAttack()]
    report = audit(Claiming(1).fit(*few[:2]), *few, attacks=attacks)
    told = [caveat for caveat in report.caveats if "cannot measure" in caveat]
    assert [caveat.partition(" ")[0] for caveat in told] == ["50", "50"]


def test_the_assumptions_of_a_measurement_stand_beside_it(honest):
    rests_on = "if records are independent given the model"
    lines = repr(honest).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "measured:" in line]
    assert lines[at + 1].strip().startswith(rests_on)
    assert rests_on in Read(honest.to_html()).terms["Measured"]


def test_table_and_plot_speak_the_same_words(liar, monkeypatch):
    from skprivacy.audit.report import html_report as _html

    drawn = []
    monkeypatch.setattr(_html, "embed_figure", lambda figure, alt: drawn.append(figure) or "")
    page = liar.to_html()
    ax = drawn[0].axes[0]
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert ax.get_legend() is None  # it would cover the curves
    assert labels[1:] == ["shows its epsilon", "guessing", "ceiling"]
    for word in ("Ceiling", "Found at", "alse alarms"):
        assert word in page
    assert ax.get_xlabel().startswith("False alarms")
    assert ax.get_ylabel().startswith("Found")
    [mark] = [line for line in ax.lines if line.get_marker() == "D"]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == pytest.approx(liar.findings[0].shown_at)


@pytest.mark.slow
def test_figures_have_a_name_and_no_ground_of_their_own(liar):
    page = liar.to_html()
    images = [attrs for tag, attrs in Read(page).tags if tag == "img"]
    assert images
    assert all(image["alt"] for image in images)
    assert page.count("<figure>") == len(images)


def test_json_beside_the_page(honest, tmp_path):
    text = honest.to_json(tmp_path / "audit.json", about=ABOUT)
    read = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert read == json.loads(text)
    assert read["about"]["date"] == "2026-01-31"
    assert read["about"]["seeds"] == {"splits": 3}
    assert read["verdict"] == "consistent"
    assert "exposed_records" not in read


@pytest.mark.parametrize("name", ["audit.pdf", "audit", "audit.json"])
def test_a_name_that_lies_about_its_file_is_refused(honest, tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.html or \.htm"):
        honest.to_html(tmp_path / name)
    if name != "audit.json":
        with pytest.raises(ValueError, match=r"must end in \.json"):
            honest.to_json(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"author": 3}, {"date": "today"}])
def test_facts_have_types(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        About(**wrong)
    with pytest.raises(ValueError, match="record=''"):
        About(record="")
