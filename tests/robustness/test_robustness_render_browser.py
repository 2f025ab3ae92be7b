"""Tests the page in a real browser: it shows everything, loads nothing, and fits narrow and wide screens.

    pytest -m browser                              # skips without a Chromium or Chrome
    CHARLM_BROWSER=required pytest -m browser      # fails without; CHARLM_BROWSER=/path/to/chrome names one

A folder in CHARLM_SCREENSHOTS keeps the pictures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from render_cases import HOSTILE, KINDS, empty, full
from render_chromium import NAMES, Browser, find, running
from render_reading import SECTIONS

from charlm.robustness.render import write_report

pytestmark = pytest.mark.browser

_SIZES = """[...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  const line = svg.querySelector('.line').getBoundingClientRect();
  return [box.width, box.height, line.width, line.height, getComputedStyle(svg.querySelector('.line')).stroke];
})"""
_SECTIONS = """[...document.querySelectorAll('section')].filter(s => s.checkVisibility() && s.offsetHeight > 30)
  .map(s => s.id)"""
_UNFOLD = "document.querySelectorAll('details').forEach(d => { d.open = true })"
_SHADED = """[...document.querySelectorAll('td.s8, td.s6, td.s1, .typo, .wrong')].map(e => [getComputedStyle(e).color,
  getComputedStyle(e.matches('.wrong') ? e.closest('.card') : e).backgroundColor])"""
_WIDER = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') || e.matches('.scroll'))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)"""
_SCROLLING = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
_COLOURS = """[document.body, document.querySelector('thead th'), document.querySelector('caption'),
  document.querySelector('figcaption'), document.querySelector('a')].map(e => getComputedStyle(e).color)
  .concat([getComputedStyle(document.body).backgroundColor])"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find()
    if path is None:
        named = os.environ.get("CHARLM_BROWSER")
        if named:
            pytest.fail(f"CHARLM_BROWSER={named}: no browser (required: one of {', '.join(NAMES)}; else its path)")
        pytest.skip(f"none of {', '.join(NAMES)} is installed (CHARLM_BROWSER=required makes this a failure)")
    with running(path, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(full(), tmp_path_factory.mktemp("report"))[2].as_uri()


def luminance(colour: str) -> float:
    """Returns the relative luminance of "rgb(r, g, b)", each to 255, or of "color(srgb r g b)", each to 1 (WCAG 2)."""
    values = [float(part) for part in re.findall(r"[\d.]+", colour)]
    values = values if colour.startswith("color") else [value / 255 for value in values]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Returns the contrast of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("light", 1280, False), ("dark", 1280, True), ("phone", 400, False)]
)
def test_the_page_is_shown(browser: Browser, page: str, tmp_path: Path, name: str, width: int, dark: bool) -> None:
    browser.open(page, width, dark)
    assert browser.requests() == [page]
    assert browser.complaints() == []
    folded = ("scores", "how", "notes", "reproduce")
    assert tuple(browser.value(_SECTIONS)) == tuple(name for name in SECTIONS if name not in folded)
    browser.value("location.hash = '#how'")  # a link to what is folded unfolds it
    browser.value("new Promise(done => setTimeout(done, 100))")
    assert "how" in browser.value(_SECTIONS)
    browser.value(_UNFOLD)
    assert tuple(browser.value(_SECTIONS)) == SECTIONS
    assert browser.value("document.title").endswith(HOSTILE)
    assert browser.value("document.scripts.length") == 0

    plots = browser.value(_SIZES)
    assert len(plots) == len(KINDS)
    for plot_width, plot_height, line_width, line_height, _ in plots:
        assert plot_width > 250
        assert plot_height > 170
        assert line_width > 200
        assert line_height > 5

    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value(_WIDER) == []
    assert (browser.value(_SCROLLING) > 3) == (width == 400)  # tables, inside themselves

    *texts, background = browser.value(_COLOURS)
    assert (luminance(background) < 0.1) == dark
    assert min(contrast(text, background) for text in texts) >= 4.5
    assert all(contrast(plot[4], background) >= 3 for plot in plots)

    shaded = browser.value(_SHADED)
    assert len(shaded) > 10
    assert min(contrast(text, behind) for text, behind in shaded) >= 4.5

    folder = Path(os.environ.get("CHARLM_SCREENSHOTS") or tmp_path)
    picture = folder / f"report_{name}.png"
    browser.screenshot(picture)
    assert picture.stat().st_size > 50_000


def test_print_shows_every_row(browser: Browser, page: str) -> None:
    """Tables that scroll on a screen are whole on paper, dark mode or not."""
    browser.open(page, 1000, dark=True, media="print")
    assert tuple(browser.value(_SECTIONS)) == SECTIONS  # also what is folded on a screen
    hidden = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    assert browser.value(hidden) == 0
    assert luminance(browser.value("getComputedStyle(document.body).backgroundColor")) == 1
    assert browser.call("Page.printToPDF")["data"].startswith("JVBER")  # %PDF


def test_the_policy_stops_what_would_be_loaded_or_run(browser: Browser, page: str) -> None:
    """Were something not escaped, nothing would come of it; and this test would see a request or a complaint."""
    browser.open(page, 1280)
    browser.value("""new Promise(done => {
        const script = document.createElement('script'); script.textContent = 'document.title = "run"';
        const image = new Image(); image.src = 'http://127.0.0.1:9/x.png';
        document.body.style.setProperty('color', 'red'); document.body.setAttribute('style', 'color: red');
        document.body.append(script, image); setTimeout(done, 200);
    })""")
    assert browser.value("document.title").endswith(HOSTILE)
    assert sum("Content Security Policy" in complaint for complaint in browser.complaints()) >= 3
    responses = [event for event in browser.events if event["method"] == "Network.responseReceived"]
    assert {event["params"]["response"]["url"] for event in responses} == {page}


def test_a_report_of_next_to_nothing_is_a_page_too(browser: Browser, tmp_path: Path) -> None:
    """A name without a place to break it does not widen the page."""
    address = write_report(empty() | {"clean": {"x" * 300: {"accuracy": 0.5}}}, tmp_path)[2].as_uri()
    browser.open(address, 400)
    assert browser.complaints() == []
    assert browser.requests() == [address]
    browser.value(_UNFOLD)
    assert browser.value(_SECTIONS) == ["says", "scores", "how"]
    assert browser.value("document.documentElement.scrollWidth") == 400
