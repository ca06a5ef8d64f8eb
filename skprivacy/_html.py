"""Self-contained HTML pages with escaped values and embedded figures."""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import TYPE_CHECKING, Any

from ._extras import name_missing_extra
from ._report_facts import format_guarantee
from ._version import __version__

if TYPE_CHECKING:
    import jinja2
    from markupsafe import Markup
    from matplotlib.figure import Figure


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
    """Return a figure as an ``img`` element with embedded data.

    Its background is transparent, so that a page with a dark theme can invert the colours.
    """
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


NARROW = (5.0, 4.4)  # inches: text stays readable on a screen of 400 pixels
