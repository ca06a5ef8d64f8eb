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
    "bare",
    "embed",
    "render",
    "share",
]


def render(template: str, **context: Any) -> str:
    """Render one of the templates; all values except embedded images are escaped."""
    return _environment().get_template(template).render(version=__version__, **context)


def bare(guarantee: PrivacyGuarantee | None, absent: str = "none") -> str:
    """Return a guarantee in words without its assumptions, which are listed separately."""
    return absent if guarantee is None else repr(replace(guarantee, assumptions=()))


def embed(figure: Figure, alt: str) -> Markup:
    """Return a figure as an ``img`` element with embedded data.

    Its paper is transparent, so that a page with a dark ground can turn the colours round.
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
    environment.filters |= {"number": _number, "percent": _percent, "share": share}
    environment.filters |= {"bare": bare, "significant": _significant}
    return environment


def _number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many digits; a zero has no sign."""
    if value is None or math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def _significant(value: float) -> str:
    """Return a number of whatever size in four digits."""
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def share(value: float | None) -> str:
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
