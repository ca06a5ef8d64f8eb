"""Plain-language summary of an audit, for decision makers without a background in privacy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ...attacks import LabelInferenceAttack, MembershipAttack
from ...attacks.generators.generator_attack import GeneratorAttack
from ..inspection.guarantees import PASSED
from .document import About

_NOT_SHARED = (
    "This page. Its figures were computed from the private data without noise, and no guarantee "
    "covers them. Keep it among those who may see the data."
)
WIDE = 10.0  # an epsilon above which the limit promises hardly anything

_KINDS = {
    "proved": "Proved: the limit follows from mathematics about how the model was trained. It "
    "holds against every attack, provided that the assumptions are true and the software works as "
    "documented.",
    "random_dp": "Random DP: the limit is proved for all but a small share of possible data sets.",
    "estimate": "Estimate: nobody has shown that the limit holds.",
}


def unit_in_words(unit: str, about: About, *, of_labels: bool = False) -> str:
    """Return the protected unit in words; "person" only if the report says that rows are people."""
    if unit != "record":
        return f"the group of all records with one {unit}"
    noun = "label" if of_labels else "record"
    return f"one {noun}" if about.record == "record" else f"one {about.record}'s {noun}"


def _unit(report: Any, about: About) -> str:
    return unit_in_words(report.unit, about, of_labels=report.of_labels)


def _unit_plural(report: Any) -> str:
    return "records" if report.unit == "record" else f"values of {report.unit}"


def relation_in_words(report: Any, about: About) -> str:
    """Return the meaning of the claim's neighbouring relation."""
    unit, relation = _unit(report, about), report.guarantee.relation
    public = f"The number of {_unit_plural(report)} counts as public."
    if relation == "label":
        return (
            f"Label: the model says almost the same for every value of {unit}. The features, and "
            "which records are in the data, count as public."
        )
    changed = {
        "add_remove": f"Add-remove: the model says almost the same with or without {unit}.",
        "zero_out": f"Zero-out: the model says almost the same if {unit} contributes nothing. "
        + public,
        "replace_one": f"Replace-one: the model says almost the same if {unit} had any other "
        f"content. {public}",
    }
    return changed[relation]


def kind_in_words(report: Any) -> str:
    """Return how reliable the claim is."""
    if report.verdict == "violated":
        owner = (
            "This claim was passed to the audit" if _is_passed(report) else "The model claims it"
        )
        return (
            f"{owner}. An attack refuted it: the model was not trained as claimed, an assumption "
            "is false, or the software has an error."
        )
    if _is_passed(report):
        return "Passed to the audit: the audit has not seen how anybody obtained the limit."
    return _KINDS[report.guarantee.kind]


def _is_passed(report: Any) -> bool:
    """Return whether the claim was passed to the audit, and is not the model's own."""
    return report.guarantee is not None and PASSED in report.guarantee.assumptions


def attacks_in_words(names: Iterable[str]) -> dict[str, str]:
    """Return what each attack of this library does, by the name that results give it."""
    kinds = (MembershipAttack, GeneratorAttack, LabelInferenceAttack)
    known = {kind.__name__: kind.__doc__ for top in kinds for kind in _iter_subclasses(top)}
    found = [word for name in names for word in re.findall(r"\w+", name) if known.get(word)]
    return {word: (known[word] or "").strip().partition("\n")[0] for word in found}


def _iter_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and all classes below it, of this library."""
    if kind.__module__.startswith("skprivacy."):
        yield kind
        for below in kind.__subclasses__():
            yield from _iter_subclasses(below)


def briefing(report: Any, about: About) -> list[tuple[str, str]]:
    """Return questions of a data officer with their answers; shares are rounded up."""
    return [
        ("What is protected?", _describe_protection(report, about)),
        ("From whom?", _from_whom(report)),
        ("How sure is that?", _describe_limit(report, about)),
        ("What did the attacks find?", f"{_report_leaks(report)}{_report_best(report)}"),
        ("What is there to decide?", _suggest_decision(report)),
        ("What must not be shared?", _NOT_SHARED),
    ]


def _describe_protection(report: Any, about: About) -> str:
    if not report.claims:
        return "Nothing. The model makes no valid claim of privacy."
    if report.verdict == "violated":
        return f"Nothing. The claim is to protect {_unit(report, about)}, but this was refuted."
    if report.uncovered:
        return (
            "Nothing for sure. These parts of the model read the records outside of any guarantee: "
            f"{', '.join(report.uncovered)}."
        )
    unit = _unit(report, about)
    meanings = {
        "add_remove": f"Whether {unit} was in the training data, and its content",
        "zero_out": f"Whether {unit} was used for training, and its content",
        "replace_one": f"The content of {unit} in the training data",
        "label": f"The value of {unit} in the training data, and nothing else of the record",
    }[report.guarantee.relation]
    public = f" The number of {_unit_plural(report)} is not hidden."
    counted = public if report.guarantee.relation in ("zero_out", "replace_one") else ""
    return (
        f"{meanings}: within the limit below, the model hardly depends on it.{counted} General "
        "patterns in the data are learned, and are not hidden from anybody."
    )


def _is_unlimited(report: Any) -> bool:
    """Return whether no valid guarantee limits the leakage of the model."""
    return not report.claims or bool(report.uncovered) or report.verdict == "violated"


def _from_whom(report: Any) -> str:
    if _is_unlimited(report):
        return "From nobody. Anyone who can query the model may learn about its training records."
    return (
        "From everybody who receives the trained model, whatever else they know or compute. Not "
        "from those who hold the data or trained the model, and not from readers of this page."
    )


def _describe_limit(report: Any, about: About) -> str:
    if _is_unlimited(report):
        return "There is no limit to rely on."
    sure = {
        "proved": "The limit is proved"
        f"{', under the assumptions listed below' if report.guarantee.assumptions else ''}. ",
        "random_dp": "The limit is proved for most data sets, not for all. ",
        "estimate": "The limit is an estimate: there is no proof of it. ",
    }[report.guarantee.kind]
    if report.guarantee.event.data_dependent:
        return sure + "Its size is itself private and is withheld."
    unit = _unit(report, about)
    guessed = {
        "replace_one": f"with which of two possible contents of {unit}",
        "label": f"with which of two values of {unit}",
    }.get(report.guarantee.relation, f"with or without {unit}")
    right = min(100.0, math.ceil(500 * (1 + report.guarantee.advantage_bound())) / 10)
    return (
        f"{sure}It means: an attacker must guess how the model was trained, {guessed}, and both "
        f"are equally likely. With the model, the guess is right in at most {right:g} of 100 "
        "cases; without it, in 50."
    )


def _report_leaks(report: Any) -> str:
    number = len(report.findings)
    attacks = "One attack was" if number == 1 else f"Attacks ({number} of them) were"
    if report.verdict == "violated":
        return (
            f"{attacks} tried, and the claim was refuted. The probability that an audit wrongly "
            f"calls a true claim violated is at most {100 * report.alpha:g} %."
        )
    if report.doubt:
        return f"{attacks} tried, but the samples of records are not what an audit assumes."
    if not report.claims:
        return f"{attacks} tried. Other attacks may find more, so weak results prove nothing."
    if not report.could_refute:
        return (
            f"{attacks} tried, and none refuted the claim. With so few records, no attack could "
            "have refuted it."
        )
    return (
        f"{attacks} tried, and none refuted the claim. This proves nothing by itself: another "
        "attack may find more."
    )


def _report_best(report: Any) -> str:
    """Return the largest AUC and rate, rounded up; nothing if the samples are in doubt."""
    if report.doubt:
        return ""
    pair, sought, wrong = (
        ("a true label from a flipped one", "true labels", "flipped labels")
        if report.of_labels
        else ("a member from a non-member", "members", "non-members")
    )
    auc = min(100.0, math.ceil(1000 * max(f.result.auc for f in report.findings)) / 10)
    text = f" The strongest tells {pair} in {auc:g} of 100 pairs; a guess does in 50."
    points = [point for found in report.findings for point in found.points]
    rates = [p["tpr"] for p in points if p["fpr"] == 0.01 and not math.isnan(p["tpr"])]
    if rates:
        share = min(100.0, math.ceil(1000 * max(rates)) / 10)
        text += (
            f" Where 1 of 100 {wrong} may be accused, an attack finds {share:g} of 100 {sought}; a "
            "guess finds 1."
        )
    return text


def _suggest_decision(report: Any) -> str:
    if report.verdict == "violated":
        return (
            "Do not release the model. Have the cause found, and review what the same software "
            "released before."
        )
    if report.doubt:
        return "Nothing yet. Have the samples of records checked and the audit repeated."
    if not report.claims:
        return (
            "Whether everybody who may use the model may also see the data. If not, do not release "
            "it; have it trained with a guarantee instead."
        )
    if report.uncovered:
        return (
            "Do not rely on the claim. Have the parts named above replaced by parts that a "
            "guarantee covers."
        )
    if report.guarantee.kind != "proved":
        return "Whether a claim without a full proof is enough here. Ask for one that has it."
    if report.claimed_epsilon > WIDE:
        return (
            "Whether the model may be released although the limit is so wide that it promises "
            "hardly anything. Treat it as if it were unprotected, or ask for a smaller epsilon."
        )
    return (
        "Whether this limit is small enough for these data. Whether the assumptions are true. "
        "Whether the limit is still small enough when all other releases from the same data are "
        "added. No audit can decide this for you."
    )
