"""HTML page of an audit, with the figures that other HTML reports share.

Start reading at :func:`render_page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..._extras import name_missing_extra
from ..._files import without_mathtext
from ..._report_facts import NARROW, embed_figure, format_share, render
from ...display import MembershipRocDisplay
from .document import About
from .facts import SHOWN_GROUPS
from .plain_words import briefing, unit_in_words

if TYPE_CHECKING:
    from markupsafe import Markup

_LAST_LABELS = {
    "shows its epsilon": "shows its epsilon",
    "chance": "guessing",
    "guarantee": "ceiling",
}
# Styles of the curves, which differ without colour; "--" and ":" are the guess and the ceiling.
_STYLES = ("-", "-.", (0, (8, 1)), (0, (8, 1, 1, 1, 1, 1)))
_ENTRY = 0.17  # height of a legend entry, in inches


def roc_figure(report: Any) -> Markup:
    """Draw the ROC curves of all attacks, the ceiling, and each test that shows epsilon."""
    with name_missing_extra():
        from matplotlib.figure import Figure  # slow to import, and attacks do not need it

    figure = Figure(figsize=NARROW, layout="constrained")
    ax = figure.subplots()
    claimed = report.guarantee if report.claims and not report.uncovered else None
    for index, finding in enumerate(report.findings):
        last = index == len(report.findings) - 1
        drawn = MembershipRocDisplay.from_result(
            finding.result, ax=ax, bound=claimed if last else None
        )
        drawn.line_.set_linestyle(_STYLES[index % len(_STYLES)])
        if finding.shown_at is not None:
            _mark(ax, finding.shown_at, drawn.line_.get_color())
    found, alarms = (
        ("True labels recognised", "Flipped labels taken for true")
        if report.of_labels
        else ("Found: share of members", "False alarms: share of other records")
    )
    ax.set(xlabel=f"{alarms}, log scale", ylabel=f"{found}, log scale")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: format_share(value))
    _one_label_each(ax)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#d3d7da", linewidth=0.8)
    ax.set_axisbelow(True)
    return embed_figure(figure, "ROC curves of the attacks on logarithmic axes")


def groups_figure(exposures: Sequence[Any]) -> Markup | None:
    """Draw the AUC of each group with its interval; None for fewer than two groups."""
    with name_missing_extra():
        from matplotlib.figure import Figure

    shown = exposures[:SHOWN_GROUPS]
    if len(shown) < 2:
        return None
    figure = Figure(figsize=(NARROW[0], 0.9 + 0.28 * len(shown)), layout="constrained")
    ax = figure.subplots()
    for place, exposure in enumerate(reversed(shown)):
        color = "#b3261e" if exposure.exposed else "#5f6b76"
        ax.plot([exposure.auc_low, exposure.auc_high], [place, place], color=color, linewidth=1.5)
        ax.plot(exposure.auc, place, "o", color=color, markersize=5)
    names = [without_mathtext(_short(f"{e.by} {e.group}")) for e in reversed(shown)]
    ax.set_yticks(range(len(shown)), names, fontsize=9)
    ax.axvline(0.5, color="#5f6b76", linestyle="--", linewidth=1)
    ax.set_xlim(min(0.4, *(exposure.auc_low for exposure in shown)) - 0.02, 1.01)
    figure.supxlabel("AUC of the attack within each group", fontsize=10)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(True, axis="x", color="#d3d7da", linewidth=0.8)
    ax.set_axisbelow(True)
    return embed_figure(figure, "How well attacks find the members of each group")


def render_page(report: Any, about: About, *, records: bool) -> str:
    """Return the page of an audit; with ``records``, it lists the rows of exposed records."""
    return render(
        "audit.html",
        facts=report.facts(about=about, records=records),
        about=about,
        briefing=briefing(report, about),
        figures={
            "Attacks": roc_figure(report),
            "Exposure of groups": groups_figure(report.strongest_on_groups),
        },
        of_labels=report.of_labels,
        members=report._members,
        unit=unit_in_words(report.unit, about, of_labels=report.of_labels),
        model=report.model,
    )


def _mark(ax: Any, place: tuple[float, float], color: Any) -> None:
    """Mark a test in the axes, or on their edge if its rates lie outside."""
    (low_x, high_x), (low_y, high_y) = ax.get_xlim(), ax.get_ylim()
    x, y = min(max(place[0], low_x), high_x), min(max(place[1], low_y), high_y)
    style = {"markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.8}
    ax.plot(x, y, "D", color=color, label="shows its epsilon", clip_on=False, zorder=5, **style)


def _short(name: str, longest: int = 26) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _one_label_each(ax: Any) -> None:
    """Draw the legend below the axes, with each label once and in the table's words."""
    handles, labels = ax.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    for last, shown in _LAST_LABELS.items():
        if last in unique:
            unique[shown] = unique.pop(last)
    ax.get_legend().remove()
    figure = ax.figure
    figure.set_figheight(NARROW[1] + _ENTRY * len(unique))
    figure.legend(
        list(unique.values()), list(unique), loc="outside lower left", fontsize=8, edgecolor="none"
    )
