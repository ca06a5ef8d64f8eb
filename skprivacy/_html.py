"""Self-contained HTML pages with escaped values and embedded figures."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from ._version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .accounting import PrivacyGuarantee

__all__ = [
    "NARROW",
    "embed_figure",
    "format_guarantee",
    "format_share",
    "render",
]


def render(template: str, **context: Any) -> str:
    """Render one of the templates; all values except embedded images are escaped."""
    return _environment().get_template(template).render(version=__version__, **context)


def format_guarantee(guarantee: PrivacyGuarantee | None, absent: str = "none") -> str:
    """Return a guarantee as text without its assumptions, which pages list separately."""
    return absent if guarantee is None else repr(replace(guarantee, assumptions=()))


def embed_figure(figure: Figure, alt: str) -> Markup:
    """Return a figure as an ``img`` element with embedded data.

    Its background is transparent, so that a page with a dark theme can invert the colours.
    """
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=200, transparent=True, metadata={"Software": None})
    data = base64.b64encode(stream.getvalue()).decode()
    return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, alt)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("skprivacy", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "percent": _percent, "share": format_share}
    environment.filters |= {"bare": format_guarantee, "significant": _significant}
    return environment


def _number(value: float | None, digits: int = 3) -> str:
    """Format a number with ``digits`` decimals; a zero has no sign."""
    if value is None or math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def _significant(value: float) -> str:
    """Format a number with four significant digits, or as an integer from 1,000 on."""
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


def _percent(value: float | None, digits: int = 1) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{100 * value:.{digits}f} %"


NARROW = (5.0, 4.4)  # inches: text stays readable on a screen of 400 pixels
