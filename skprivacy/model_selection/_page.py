"""A sweep as a table, in words, and as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..audit._briefing import unit_in_words
from ..audit._composition import composed
from ..audit._html import NARROW, bare, embed, render
from ..audit._plain import plain
from ..audit.about import About
from ..display import PrivacyUtilityDisplay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cost_in_words", "figure_of", "of_groups_drawn", "page", "table", "told"]

_MOST_DRAWN = 5
_MOST_ROWS = 30
_POINTS = (0.01, 0.03)  # losses for which a page tells the smallest epsilon


def table(sweep: Any) -> pd.DataFrame:
    """Return a row for each epsilon, and after them one for each baseline."""
    results, compared = sweep.cv_results_, sweep.baseline_results_
    levels = [next(iter(params.values())) for params in results["params"]]
    models = [params.get("estimator", "") for params in results["params"]]
    rows = pd.DataFrame(
        {"model": models, "baseline": False, "epsilon": levels}
        | _columns(results, sweep.scores_[0])
    )
    if not compared:
        return rows
    others = {"model": compared["param_baseline"].tolist(), "baseline": True, "epsilon": math.inf}
    return pd.concat(
        [rows, pd.DataFrame(others | _columns(compared, sweep.scores_[0]))], ignore_index=True
    )


def _columns(results: dict[str, Any], score: str) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    shown = {"test_score": f"test_{score}", "train_score": f"train_{score}"}
    for name, key in (shown | {"attack_auc": "attack_auc"}).items():
        columns |= {name: results[f"mean_{key}"], f"{name}_std": results[f"std_{key}"]}
    for key in ("claimed_epsilon", "attack_auc_bound", "attack_tpr_at_0.01", "fit_time"):
        columns[key] = results.get(f"mean_{key}", math.nan)
    return columns


def cost_in_words(sweep: Any) -> str:
    """Return the joint cost, in words, of releasing all private models of the sweep."""
    private = [g for g in sweep.guarantees_ if math.isfinite(g.epsilon())]
    if not private:
        return "epsilon = infinity"
    left_out = len(private) < len(sweep.guarantees_)
    return bare(composed(private)) + (" (without the non-private ones)" if left_out else "")


def figure_of(sweep: Any) -> Figure:
    """Draw the sweep on a figure of its own, readable on a screen of 400 pixels."""
    figure = _narrow()
    sweep.plot(axes=figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)))
    return figure


def of_groups_drawn(sweep: Any) -> PrivacyUtilityDisplay:
    """Return the picture of the subgroups that lose most, with what they have without privacy."""
    found = sweep.by_group()
    if found.empty:
        raise ValueError("No group has five test records in every split. Use coarser subgroups.")
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
    )


def _group_rows(sweep: Any) -> list[dict[str, Any]]:
    """Return what is told of subgroups, if anything is: what costs most first."""
    if sweep.subgroups_ is None or sweep.n_splits_ < 2:
        return []
    found = sweep.by_group().sort_values("loss", ascending=False, kind="stable")
    rows: list[dict[str, Any]] = found.to_dict("records")
    return rows


def _group_figure(sweep: Any) -> Figure:
    figure = _narrow()
    sweep.plot_by_group(axes=figure.subplots(2, 1, sharex=True, height_ratios=(3, 2)))
    return figure


def _narrow() -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(NARROW[0], 6.4), layout="constrained")


def told(sweep: Any, about: About, caveats: Sequence[str]) -> dict[str, Any]:
    """Return all results of a fitted sweep, and what they are about, as JSON can hold them."""
    groups = _group_rows(sweep)
    return {
        "about": about.to_dict(),
        "cost": cost_in_words(sweep),
        "assumptions": list(caveats),
        "results": [plain(row) for row in table(sweep).to_dict("records")],
    } | ({"by_group": [plain(row) for row in groups]} if groups else {})


def page(sweep: Any, about: About, caveats: Sequence[str], figure: Figure) -> str:
    """Return the page of a fitted sweep."""
    first, groups = sweep.guarantees_[0], _group_rows(sweep)
    return render(
        "sweep.html",
        about=about,
        name=about.data or "the records",
        protected=unit_in_words(first.unit, about, of_labels=first.relation == "label"),
        n_samples=sweep.n_samples_,
        n_splits=sweep.n_splits_,
        attack=sweep.attack_name_,
        utility=sweep.score_name_,
        figure=embed(figure, "Test score and attack AUC over epsilon"),
        rows=table(sweep).to_dict("records"),
        groups=groups,
        groups_figure=embed(_group_figure(sweep), "Scores by group over epsilon") if groups else "",
        most_rows=_MOST_ROWS,
        inf=math.inf,
        caveats=caveats,
        cost=cost_in_words(sweep),
        unit=_unit(sweep),
        readings=_readings(sweep),
        model=" ".join(repr(sweep.estimator).split()),
    )


def _unit(sweep: Any) -> str:
    """Return the delta and relation that the epsilons are stated for, in words."""
    first = sweep.guarantees_[0]
    delta = (first.at_delta or 0.0) / sweep.n_splits_
    return f"at delta = {delta:g}, {first.relation.replace('_', '-')}"


def _readings(sweep: Any) -> list[str]:
    told = []
    for name in dict.fromkeys(
        params.get("estimator", "") for params in sweep.cv_results_["params"]
    ):
        private = np.isfinite(sweep._curve(estimator=name)[0]).sum()
        found = []
        if sweep.n_splits_ > 1 and private:
            found = [sweep.smallest_epsilon(loss, estimator=name) for loss in _POINTS]
        if private > 2:
            found.append(sweep.knee(estimator=name))
        told += [f"{name}: {reading!r}" if name else repr(reading) for reading in found]
    return told
