"""Pages in a real browser: nothing is cut off on paper, on a small screen, or in the dark."""

import html
import re
import shutil
import subprocess

import pytest

from skprivacy.audit import About

from .test_html_report import honest, liar  # noqa: F401 - fixtures

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
OFFLINE = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic",
    "--virtual-time-budget=3000",
]  # fmt: skip
PAPER = {"A4": 210, "Letter": 215.9}  # width in millimetres
MARGIN = 15

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs the browser chromium"),
    pytest.mark.heavy,
]

# Elements that overflow the page, or a box that would need scrolling.
LOOK = """
const inside = document.querySelector('iframe').contentDocument, view = inside.documentElement;
const out = [];
for (const e of inside.querySelectorAll('body *')) {
  const box = e.getBoundingClientRect();
  if (box.width && (box.right > view.clientWidth + 1 || box.left < -1)) out.push(e.outerHTML);
}
const ink = inside.defaultView.getComputedStyle(inside.body);
const image = inside.querySelector('img');
document.body.innerText = JSON.stringify(out.map(text => text.slice(0, 60))) + ' of '
  + inside.querySelectorAll('td').length + ' cells; ink ' + ink.color + ', paper '
  + ink.backgroundColor + ', image ' + inside.defaultView.getComputedStyle(image).filter;
"""


def seen(tmp_path, page, width, *options):
    """Return the browser's measurements of a page on a screen of this width in pixels."""
    framed = tmp_path / "frame.html"
    framed.write_text(
        f'<meta charset="utf-8"><iframe width={width} height=900 style="border:0" '
        f'srcdoc="{html.escape(page)}"></iframe><script>onload = () => {{{LOOK}}}</script>',
        encoding="utf-8",
    )
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    told = subprocess.run(
        [BROWSER, *OFFLINE, profile, *options, "--dump-dom", framed.as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return html.unescape(told.stdout)


def long(report):
    about = About(command="skprivacy audit " + "a" * 300, schema_digest="ab" * 32)
    return report.to_html(about=about)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("paper", PAPER)
def test_nothing_is_cut_off_on_paper(paper, tmp_path, liar):  # noqa: F811
    page = long(liar)
    assert "@media print {" in page
    printed = page.replace("@media print {", "@media screen {")
    told = seen(tmp_path, printed, round((PAPER[paper] - 2 * MARGIN) * 96 / 25.4))
    assert "[] of" in told
    assert f"of {page.count('<td')} cells" in told


@pytest.mark.everyday(1)
@pytest.mark.parametrize("width", [400, 1000])
def test_nothing_is_cut_off_on_a_screen(width, tmp_path, honest):  # noqa: F811
    assert "[] of" in seen(tmp_path, long(honest), width)


@pytest.mark.slow
def test_ink_and_paper_change_places_in_the_dark(tmp_path, honest):  # noqa: F811
    def light(told, what):
        channels = re.search(what + r" rgb\((\d+), (\d+), (\d+)\)", told).groups()
        return sum(map(int, channels)) / (3 * 255)

    day = seen(tmp_path, long(honest), 800, "--blink-settings=preferredColorScheme=1")
    night = seen(tmp_path, long(honest), 800, "--blink-settings=preferredColorScheme=0")
    assert light(day, "ink") < 0.3 < 0.9 < light(day, "paper")
    assert light(night, "paper") < 0.3 < 0.7 < light(night, "ink")
    assert "image none" in day
    assert "image invert(1)" in night


@pytest.mark.slow
def test_it_prints(tmp_path, honest):  # noqa: F811
    page, target = tmp_path / "audit.html", tmp_path / "audit.pdf"
    honest.to_html(page)
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [BROWSER, *OFFLINE, profile, f"--print-to-pdf={target}", page.as_uri()]
    subprocess.run(command, capture_output=True, timeout=300, check=True)
    assert target.read_bytes().startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))
    assert 3 <= pages <= 6
