"""Table, text summary and HTML page of a sweep, which opens with its brief."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._extras import name_missing_extra
from .._report_facts import (
    NARROW,
    Cell,
    Column,
    Fact,
    ReportFacts,
    Section,
    embed_figure,
    format_guarantee,
    format_number,
    format_share,
    interval,
    number,
    render,
    spread,
    yes_or_not_shown,
)
from ..accounting.events import NonPrivateEvent
from ..audit.inspection.guarantees import compose_guarantees
from ..audit.report.document import About
from ..audit.report.findings import ledger_caveats
from ..audit.report.plain_words import attacks_in_words, unit_in_words
from ..display.privacy_utility import PrivacyUtilityDisplay
from .sweep_intervals import is_useless
from .sweep_plan import validate_models

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..accounting import PrivacyGuarantee

_MOST_DRAWN = 5
_MOST_ROWS = 30
_HEIGHT, _ENTRY = 6.4, 0.2  # inches of a figure with short legends, and of each further entry
_POINTS = (0.01, 0.03)  # losses for which a page states the smallest epsilon
_NOT_SHARED = (
    "This page. Its scores were computed from the private data without noise. No guarantee covers "
    "them, or an epsilon that was chosen by them."
)


def table(sweep: Any) -> pd.DataFrame:
    """Return a row for each epsilon, each baseline and the constant predictor, in this order."""
    params = sweep.cv_results_["params"]
    found = [
        {
            "model": [candidate.get("estimator", "") for candidate in params],
            "baseline": False,
            "epsilon": [next(iter(candidate.values())) for candidate in params],
        }
        | _columns(sweep, sweep.cv_results_)
    ]
    for results in filter(None, (sweep.baseline_results_, sweep.constant_results_)):
        names = {"model": results["param_baseline"].tolist(), "baseline": True, "epsilon": math.inf}
        found.append(names | _columns(sweep, results))
    found[-1]["useless"] = False  # the constant predictor is what others are compared with
    return pd.concat(map(pd.DataFrame, found), ignore_index=True)


def _columns(sweep: Any, results: dict[str, Any]) -> dict[str, Any]:
    first, *others = sweep.scores_
    shown = {"test_score": f"test_{first}", "train_score": f"train_{first}"}
    shown |= {"attack_auc": "attack_auc"} | {f"test_{name}": f"test_{name}" for name in others}
    columns: dict[str, Any] = {}
    for name, key in shown.items():
        columns |= {name: results[f"mean_{key}"], f"{name}_std": results[f"std_{key}"]}
    for key in ("claimed_epsilon", "attack_auc_bound", "attack_tpr_at_0.01", "fit_time"):
        columns[key] = results.get(f"mean_{key}", math.nan)
    return columns | {"useless": sweep._find_useless(results)}


def cost_in_words(sweep: Any) -> str:
    """Return the joint cost, in words, of releasing all private models of the sweep."""
    private = [g for g in sweep.guarantees_ if math.isfinite(g.epsilon())]
    if not private:
        return "epsilon = infinity"
    left_out = len(private) < len(sweep.guarantees_)
    try:
        whole = compose_guarantees(private)
    except ValueError as error:  # of several relations or units
        return f"epsilon = infinity ({error})"
    alone = " (for the private ones alone: the others have no limit)"
    return format_guarantee(whole) + (alone if left_out else "")


def draw_figure(sweep: Any) -> Figure:
    """Draw the sweep on a separate figure, readable on a screen of 400 pixels."""
    return _narrow(sweep.plot)


def _draw_groups(sweep: Any, axes: Any) -> PrivacyUtilityDisplay:
    """Plot utility and exposure of the subgroups that lose most, with their scores without privacy.

    For at most five groups of the first estimator, which lose most at some epsilon.
    """
    found = sweep.by_group()
    found = found[found["model"] == found["model"].iloc[0]]
    worst = found.groupby("group")["loss"].max().nlargest(_MOST_DRAWN).index
    drawn = found[found["group"].isin(worst)]
    level = drawn.assign(test_score=drawn["test_score"] + drawn["loss"], epsilon=math.inf)
    free = level.groupby("group", as_index=False).first()
    free = free.assign(test_score_std=0.0, attack_auc=math.nan, attack_auc_std=math.nan)
    shown = pd.concat([drawn, free], ignore_index=True)
    return PrivacyUtilityDisplay(
        shown["epsilon"],
        shown["test_score"],
        shown["test_score_std"],
        shown["attack_auc"],
        shown["attack_auc_std"],
        utility_name=sweep.score_name_,
        attack_name=sweep.attack_name_,
        models=[f"{sweep.subgroups_} {group}" for group in shown["group"]],
    ).plot(axes=axes)


def _group_rows(sweep: Any) -> list[dict[str, Any]]:
    """Return rows on subgroups, largest loss first; none without subgroups or for one split."""
    if sweep.subgroups_ is None or sweep.n_splits_ < 2:
        return []
    found = sweep.by_group().sort_values("loss", ascending=False, kind="stable")
    rows: list[dict[str, Any]] = found.to_dict("records")
    return rows


def _narrow(plot: Callable[..., PrivacyUtilityDisplay]) -> Figure:
    with name_missing_extra():
        from matplotlib.figure import Figure

    figure = Figure(figsize=(NARROW[0], _HEIGHT), layout="constrained")
    display = plot(axes=figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)))
    entries = [len(ax.get_legend().get_texts()) for ax in display.axes_]
    figure.set_figheight(_HEIGHT + _ENTRY * sum(max(0, n - 3) for n in entries))
    return figure


def caveats_of_sweep(sweep: Any) -> list[str]:
    """Return what the guarantees of a sweep assume, and what its ledgers do not show."""
    models = validate_models(sweep.estimator).values()
    return [*sweep.charged_.assumptions, *ledger_caveats(models)]


def sweep_facts(sweep: Any, caveats: Sequence[str]) -> ReportFacts:
    """Return the facts of a fitted sweep: its cost, caveats, results and subgroups."""
    rows, groups, further = table(sweep).to_dict("records"), _group_rows(sweep), sweep.scores_[1:]
    readings = [Fact(sentence=text, level="detail") for text in read_results(sweep)]
    utility, cost = sweep.score_name_, cost_in_words(sweep)
    results = Section(
        "Results",
        (*(Fact("row", row, row=row) for row in rows), *readings),
        "results",
        columns=(
            Column("Epsilon", _level_cell, f"requested, {_describe_unit(sweep)}"),
            Column(f"Test {utility}", _score_cell, "mean ± std"),
            Column(f"Train {utility}", number("train_score")),
            Column("Attack AUC", spread("attack_auc"), "chance: 0.5"),
            Column("Ceiling", number("attack_auc_bound"), "set by the claim"),
            Column(
                "Found at 1 % false alarms", lambda row: format_share(row["attack_tpr_at_0.01"])
            ),
            Column("Training", number("fit_time", 1), "seconds"),
        ),
    )
    others = Section(
        "Further scores",
        tuple(Fact(row=row) for row in rows) if further else (),
        columns=(
            Column("Epsilon", _level_cell),
            *(Column(f"Test {name}", spread(f"test_{name}"), "mean ± std") for name in further),
        ),
    )
    limits = Section(
        "Assumptions and limits",
        tuple(Fact("assumption", text, text) for text in caveats),
        "assumptions",
    )
    of_groups = [_groups_section(sweep, groups)] if groups else []
    sections = (results, _losses_section(sweep), others, *of_groups, limits)
    return ReportFacts(Fact("cost", cost, cost), sections)


def loss_rows(sweep: Any) -> list[dict[str, Any]]:
    """Return the rows of the losses by noise and by model; none if nothing is split."""
    if sweep.n_splits_ < 2:
        return []
    rows: list[dict[str, Any]] = sweep.split_loss().to_dict("records")
    return [row for row in rows if not math.isnan(row["noise_loss"])]


def _losses_section(sweep: Any) -> Section:
    rows = loss_rows(sweep)
    other = rows[0]["compared_with"] if rows else None
    compared = f"The whole loss is against {other}. " if other else ""
    return Section(
        "What the noise costs and what the model costs",
        tuple(Fact("row", row, row=row) for row in rows),
        "losses",
        f"{compared}The noise costs the difference to the same model at epsilon = infinity; the "
        "model costs the rest, at every epsilon. If the noise costs less than nothing, the model "
        "without privacy is not at its best.",
        (
            Column("Epsilon", _level_cell),
            Column("Whole loss", interval("loss"), "95 % intervals"),
            Column("By the noise", interval("noise_loss")),
            Column("By the model", interval("model_loss")),
        ),
    )


def _groups_section(sweep: Any, groups: list[dict[str, Any]]) -> Section:
    return Section(
        "Who pays for privacy",
        tuple(
            Fact("row", row, row=row if index < _MOST_ROWS else None)
            for index, row in enumerate(groups)
        ),
        "by_group",
        f"Loss of each group at each level, compared with {groups[0]['compared_with']}; the "
        "largest losses first. “Pays” marks a group that loses more than the other records, "
        "“exposed” one whose members the attack finds. Both are corrected for the number of "
        "groups and levels; “not shown” is no proof of the opposite. Groups of fewer than five "
        "test records are left out.",
        (
            Column("Group", _group_cell),
            Column("Epsilon", lambda row: f"{row['epsilon']:g}"),
            Column(f"Test {sweep.score_name_}", spread("test_score")),
            Column("Loss", interval("loss"), "95 % intervals, all together"),
            Column("Pays", yes_or_not_shown("pays")),
            Column("Attack AUC", spread("attack_auc"), "chance: 0.5"),
            Column("Exposed", yes_or_not_shown("exposed")),
        ),
        f"The first {_MOST_ROWS} of {len(groups)} rows." if len(groups) > _MOST_ROWS else "",
    )


def _group_cell(row: dict[str, Any]) -> Cell:
    model = f"{row['model']}, " if row["model"] else ""
    return f"{model}{row['by']} {row['group']}"


def _score_cell(row: dict[Any, Any]) -> Cell:
    """Return the test score, and whether the model is useless."""
    shown = str(spread("test_score")(row))
    return (shown, "useless") if row["useless"] else shown


def _level_cell(row: dict[Any, Any]) -> Cell:
    """Return the model and its epsilon, or that it has no privacy."""
    name = f"{row['model']} " if row["model"] else ""
    if row.get("baseline"):
        return name, "no privacy"
    if row["epsilon"] == math.inf:
        return f"{name}∞", "no privacy"
    return f"{name}{row['epsilon']:g}"


def sweep_to_dict(sweep: Any, about: About, caveats: Sequence[str]) -> dict[str, Any]:
    """Return all results of a fitted sweep and their subject as JSON values."""
    return {"about": about.to_dict(), **sweep_facts(sweep, caveats).to_dict()}


def page(sweep: Any, about: About, caveats: Sequence[str], figure: Figure) -> str:
    """Return the page of a fitted sweep."""
    first = next((whole for _, whole in _private_ones(sweep)), sweep.guarantees_[0])
    facts = sweep_facts(sweep, caveats)
    figures = {}
    if any(section.key == "by_group" for section in facts.sections):
        figure_of_groups = embed_figure(
            _narrow(partial(_draw_groups, sweep)), "Scores by group over epsilon"
        )
        figures["Who pays for privacy"] = figure_of_groups
    return render(
        "sweep.html",
        about=about,
        facts=facts,
        name=about.data or "the records",
        protected=unit_in_words(first.unit, about, of_labels=first.relation == "label"),
        n_samples=sweep.n_samples_,
        n_splits=sweep.n_splits_,
        attack=sweep.attack_name_,
        attacks=attacks_in_words([sweep.attack_name_]),
        figure=embed_figure(figure, "Test score and attack AUC over epsilon"),
        figures=figures,
        briefing=brief_of_sweep(sweep, table(sweep)),
        unit=_describe_unit(sweep),
        model=" ".join(repr(sweep.estimator).split()),
    )


def _private_ones(sweep: Any) -> list[tuple[str, PrivacyGuarantee]]:
    """Return the name and the joint cost of each candidate that has a guarantee."""
    return [
        (params.get("estimator", ""), whole)
        for params, whole in zip(sweep.cv_results_["params"], sweep.guarantees_, strict=True)
        if math.isfinite(next(iter(params.values())))
        and not isinstance(whole.event, NonPrivateEvent)
    ]


def _describe_unit(sweep: Any) -> str:
    """Return the delta and relation that each model's epsilons are stated for, in words."""
    texts: dict[str, str] = {}
    for name, whole in _private_ones(sweep):
        delta = (whole.at_delta or 0.0) / sweep.n_splits_
        texts.setdefault(name, f"at delta = {delta:g}, {whole.relation.replace('_', '-')}")
    if len(set(texts.values())) < 2:
        return next(iter(texts.values()), "without a guarantee")
    return "; ".join(f"{name} {words}" for name, words in texts.items())


def brief_of_sweep(sweep: Any, table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return questions and answers on each model: at the epsilon next to 1, and without privacy.

    ``table`` has a row for each epsilon and each baseline. An interval is two standard deviations
    over the splits.
    """
    found = []
    for name, rows in table[~table["baseline"]].groupby("model", sort=False):
        private = rows[rows["epsilon"].map(math.isfinite)]
        if private.empty:
            continue
        level = private.loc[private["epsilon"].map(lambda e: abs(math.log(e))).idxmin()]
        free = rows[rows["epsilon"] == math.inf]
        compared = free if len(free) else table[table["baseline"]]
        other = compared.iloc[0] if len(compared) else None
        found += _answers(f" of {name}" if name else "", level, other, sweep)
    return [*found, ("What must not be shared?", _NOT_SHARED)] if found else found


def _answers(model: str, level: Any, other: Any, sweep: Any) -> list[tuple[str, str]]:
    at, score = f"at epsilon {level['epsilon']:g}", sweep.score_name_
    cost = f"The test {score} is {_words_of_interval(level, 'test_score')} {at}"
    leak = f"{_words_of_interval(level, 'attack_auc')} {at}"
    if other is not None:
        cost += f", and {_words_of_interval(other, 'test_score')} without privacy"
        if not math.isnan(other["attack_auc"]):
            leak = f"{_words_of_interval(other, 'attack_auc')} without privacy, and {leak}"
    answers = [(f"What does the privacy{model} cost?", f"{cost}.")]
    if not math.isnan(level["attack_auc"]):
        text = f"{sweep.attack_name_} tells a training record from another with an AUC of {leak}"
        answers.append(("What does it buy?", f"{text}. Guessing has 0.5, certainty 1."))
    if not math.isnan(level["attack_auc_bound"]):
        ceiling = format_number(level["attack_auc_bound"])
        limit = f"Under its assumptions, the guarantee limits the true AUC {at} to {ceiling}."
        answers.append(("What holds for every attack?", limit))
    return answers


def _words_of_interval(row: Any, name: str) -> str:
    mean, width = row[name], 2 * row[f"{name}_std"]
    if math.isnan(width):
        return format_number(mean)
    low, high = format_number(mean - width), format_number(mean + width)
    return f"{format_number(mean)} ({low} to {high})"


def read_results(sweep: Any) -> list[str]:
    """Return what is read off the results: useless models, the smallest epsilons and the knee."""
    lines = _name_useless(sweep)
    for name in validate_models(sweep.estimator):
        found = _read_off(sweep, name)
        lines += [f"{name}: {reading}" if name else reading for reading in found]
    return lines


def _name_useless(sweep: Any) -> list[str]:
    """Return the sentence that names the models that are no better than the constant predictor."""
    rows = table(sweep)
    constant = rows.iloc[-1]
    useless = rows[rows["useless"]]
    if useless.empty:
        return []
    named = ", ".join(
        row["model"] if row["baseline"] else f"{row['model']} epsilon {row['epsilon']:g}".strip()
        for row in useless.to_dict("records")
    )
    floor = f"{constant['model']} ({format_number(constant['test_score'])})"
    return [f"useless by {sweep.score_name_}, not better than the {floor}: {named}"]


def _read_off(sweep: Any, name: str) -> list[str]:
    """Return what is read off the curve of an estimator, or why nothing is."""
    epsilons, scores = sweep._curve(estimator=name)
    private = np.isfinite(epsilons)
    if private.any() and is_useless(scores[private], sweep._constant_scores()).all():
        return ["no epsilon is recommended, as the model is useless at each"]
    found = []
    try:
        if sweep.n_splits_ > 1 and private.any():
            found = [sweep.smallest_epsilon(loss, estimator=name) for loss in _POINTS]
        if private.sum() > 2:
            found.append(sweep.knee(estimator=name))
    except ValueError as error:  # a scorer has failed
        return [str(error)]
    return list(map(repr, found))
