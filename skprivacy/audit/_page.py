"""HTML page of an audit."""

from __future__ import annotations

from typing import Any

from . import _html
from ._briefing import briefing, kind_in_words, noise_in_words, relation_in_words, unit_in_words
from .about import About
from .disclosure import SIGNS

__all__ = ["render_page"]


def render_page(report: Any, about: About, *, records: bool) -> str:
    """Return the page of an audit; with ``records``, it lists the rows of exposed records."""
    exposed = report.exposed_records()
    return _html.render(
        "audit.html",
        report=report,
        about=about,
        briefing=briefing(report, about),
        unit=unit_in_words(report.unit, about, of_labels=report.of_labels),
        meaning=[relation_in_words(report, about), kind_in_words(report), noise_in_words(report)]
        if report.claims
        else [],
        figure=_html.roc_figure(report),
        signs=SIGNS,
        exposed=exposed,
        rows=exposed.to_dict("records") if records else [],
        groups_figure=_html.groups_figure(report.most_exposed),
    )
