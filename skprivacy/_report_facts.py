"""Facts of a report, each stated once: its key and value for JSON, its sentence for readers.

A report builds :class:`ReportFacts`; text, pages and dictionaries only lay them out. :func:`render`
makes pages that refer to no other file, with escaped values and embedded figures.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from ._extras import name_missing_extra
from ._files import displayable, json_safe
from ._version import __version__

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from .accounting import PrivacyGuarantee

# Only pages show a "detail". The other levels say how a fact is marked.
Level = Literal["plain", "detail", "warning", "good", "open", "bad"]
Cell = str | tuple[str, str]  # text, or text and a note in small letters
NARROW = (5.0, 4.4)  # inches of a figure: text stays readable on a screen of 400 pixels
_MARKS = {"warning": "! ", "good": "- ", "open": "? "}


@dataclass(frozen=True)
class Fact:
    """One fact: ``key`` and ``value`` are for JSON, ``label`` and ``sentence`` for readers.

    A fact without a key only puts a part of another value into words. A fact without a sentence is
    only in JSON. ``below`` marks a fact that qualifies the one before it. ``row`` is shown as a row
    in the table of the section.
    """

    key: str = ""
    value: Any = None
    sentence: str = ""
    level: Level = "plain"
    label: str = ""
    below: bool = False
    row: Any = None

    @property
    def text(self) -> str:
        """Label and sentence."""
        return f"{self.label}: {self.sentence}" if self.label else self.sentence


@dataclass(frozen=True)
class Column:
    """Column of a table: its title, the cell of a row, a note, and whether it holds sentences."""

    title: str
    cell: Callable[[Any], Cell]
    note: str = ""
    words: bool = False


@dataclass(frozen=True)
class Section:
    """Facts under one title; a ``key`` makes their values a list in JSON.

    ``intro`` and ``outro`` explain the facts on a page.
    """

    title: str
    facts: tuple[Fact, ...]
    key: str = ""
    intro: str = ""
    columns: tuple[Column, ...] = ()
    outro: str = ""

    def cells(self, fact: Fact) -> list[Cell]:
        """Return the row of a fact in the table; empty if it has none."""
        return [] if fact.row is None else [column.cell(fact.row) for column in self.columns]

    @property
    def rows(self) -> list[list[Cell]]:
        """Rows of the table."""
        return [self.cells(fact) for fact in self.facts if fact.row is not None]

    @property
    def sentences(self) -> list[Fact]:
        """Facts that a page states outside the table."""
        return [f for f in self.facts if f.sentence and f.sentence not in self.cells(f)]


@dataclass(frozen=True)
class ReportFacts:
    """All facts of a report, in the order in which to read them.

    ``head`` is the verdict. ``summary`` repeats, beside the verdict on a page, what matters most.
    """

    head: Fact
    sections: tuple[Section, ...]
    summary: tuple[Fact, ...] = ()

    def __iter__(self) -> Iterator[Fact]:
        yield self.head
        for section in self.sections:
            yield from section.facts

    def to_dict(self) -> dict[str, Any]:
        """Return the values of all facts by their keys, for JSON."""
        found = {self.head.key: self.head.value} if self.head.key else {}
        for section in self.sections:
            known = [fact for fact in section.facts if fact.key]
            if section.key:
                found[section.key] = [fact.value for fact in known]
            else:
                found |= {fact.key: fact.value for fact in known}
        return json_safe(found)

    def to_text(self, *, titled: bool = False) -> str:
        """Return the sentences of all facts but details, one in a line; each warning once.

        If ``titled``, sections have a title, and each of their facts a dash.
        """
        lines = [self.head.text] if self.head.sentence else []
        indent, warned = "" if titled else "  " * len(lines), set()
        for section in self.sections:
            shown = [f for f in section.facts if f.sentence and f.level != "detail"]
            title = titled and bool(section.title)
            if title and shown:
                lines += ["", f"{section.title}:"]
            for fact in shown:
                if fact.sentence in warned:
                    continue
                if fact.level == "warning":
                    warned.add(fact.sentence)
                mark = "  - " if title else _MARKS.get(fact.level, "")
                lines.append(f"{indent}{'  ' * fact.below}{mark}{fact.text}")
        return "\n".join(lines)


class FactReport:
    """Report that lays out text, page and JSON from one set of facts."""

    def facts(self) -> ReportFacts:
        """Return what the report states, for text, pages and JSON alike.

        Returns
        -------
        ReportFacts
            Sections of facts. Each has a key and a value for JSON, and a sentence for readers.
        """
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return what the report states as JSON-serialisable values.

        Returns
        -------
        dict
            Values for JSON.
        """
        return self.facts().to_dict()

    def __repr__(self) -> str:
        return displayable(self.facts().to_text())


def values(report: Any, *names: str) -> list[Fact]:
    """Return attributes of a report that need no sentence."""
    return [Fact(name, getattr(report, name)) for name in names]


def details(sentences: Iterable[str], level: Level = "plain") -> list[Fact]:
    """Return sentences that qualify the fact before them."""
    return [Fact(sentence=sentence, level=level, below=True) for sentence in sentences]


def format_guarantee(guarantee: PrivacyGuarantee | None, absent: str = "none") -> str:
    """Return a guarantee as text without its assumptions, which reports list separately."""
    return absent if guarantee is None else repr(replace(guarantee, assumptions=()))


def format_number(value: float | None, digits: int = 3) -> str:
    """Return a number with ``digits`` decimals; a zero has no sign."""
    if value is None or math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def format_significant(value: float) -> str:
    """Return a number with four significant digits, or as an integer from 1,000 on."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def format_share(value: float | None) -> str:
    """Return a share in per cent with enough digits for small values: 0.14 %, not 0.1 %."""
    if value is None or math.isnan(value):
        return "–"
    percent = 100 * value
    digits = 1 if percent >= 10 else 2
    return f"{percent:.{digits}f}".rstrip("0").rstrip(".") + " %"


def format_percent(value: float | None, digits: int = 1) -> str:
    """Return a share in per cent with ``digits`` decimals."""
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.{digits}f} %"


def format_interval(value: float, low: float, high: float) -> Cell:
    """Return a table cell with a number and, as its note, the ends of its interval."""
    return format_number(value), f"{format_number(low)} to {format_number(high)}"


def number(name: str, digits: int = 3) -> Callable[[Any], Cell]:
    """Return the cell of a number in a row."""
    return lambda row: format_number(row[name], digits)


def spread(name: str) -> Callable[[Any], Cell]:
    """Return the cell of a mean in a row, with its standard deviation."""

    def cell(row: Any) -> Cell:
        mean = format_number(row[name])
        return mean if math.isnan(row[name]) else f"{mean} ± {format_number(row[f'{name}_std'])}"

    return cell


def interval(name: str) -> Callable[[Any], Cell]:
    """Return the cell of a number in a row, with the ends of its interval."""
    return lambda row: format_interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def yes_or_not_shown(name: str) -> Callable[[Any], Cell]:
    """Return the cell of a finding in a row, whose absence proves nothing."""
    return lambda row: "yes" if row[name] else "not shown"


def render(template: str, **context: Any) -> str:
    """Render one of the templates; all values except embedded images are escaped."""
    return _environment().get_template(template).render(version=__version__, **context)


def render_brief(template: str, **context: Any) -> str | None:
    """Render a template for a notebook; None without jinja2: the notebook then shows text."""
    try:
        return render(template, **context)
    except ImportError:
        return None


def embed_figure(figure: Figure, alt: str) -> Markup:
    """Return a figure as an ``img`` element, transparent, so that dark pages can invert it."""
    with name_missing_extra():
        from markupsafe import Markup
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=200, transparent=True, metadata={"Software": None})
    data = base64.b64encode(stream.getvalue()).decode()
    return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, alt)


@cache
def _environment() -> jinja2.Environment:
    with name_missing_extra():
        import jinja2
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("skprivacy", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["guarantee"] = format_guarantee
    return environment
