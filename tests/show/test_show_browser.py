"""Opens the page of attention in Chromium: its script shows single layers and heads, and nothing is loaded."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from robustness import render_chromium as chromium

from charlm.families.views import AttentionMap, AttentionView, Views
from charlm.show.shown import Shown

WORDS = ("teh", "<b>", "&amp;", "a" * 30)
BROWSER = chromium.find()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None and os.environ.get("CHARLM_BROWSER") != "required", reason="there is no Chromium"
    ),
]


def weights(*shape):
    drawn = np.random.default_rng(0).random(shape).astype(np.float32)
    return drawn / drawn.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def shown():
    inside = tuple(AttentionMap(tuple(word), tuple(word), weights(2, 3, len(word), len(word)), word) for word in WORDS)
    whole = AttentionMap(WORDS, WORDS, weights(2, 2, 4, 4))
    views = AttentionView("Inside words", "one", inside), AttentionView("Between words", "two", (whole,))
    return Shown("model", Views(views, " ".join(WORDS), "words", 4, 0))


@pytest.fixture(scope="module")
def browser(tmp_path_factory, shown):
    folder = tmp_path_factory.mktemp("page")
    path = shown.save(folder / "page.html")
    (folder / "profile").mkdir()
    with chromium.running(BROWSER or "chromium", folder / "profile") as found:
        found.path = path.as_uri()
        yield found


def numbers(browser, section, selector):
    """Returns the percentages that the page shows."""
    where = f"document.querySelectorAll('section')[{section}].querySelectorAll({json.dumps(selector)})"
    return browser.value(f"[...{where}].map(cell => +cell.textContent)")


def choose(browser, section, name, value):
    form = f"document.querySelectorAll('form')[{section}]"
    browser.value(f"{form}.elements.{name}.value = {value}; {form}.dispatchEvent(new Event('change'))")


def test_layers_heads_and_words_can_be_chosen(browser, shown):
    browser.open(browser.path, 1200)
    inside, between = shown.views
    word, whole = inside.maps[0], between.maps[0]
    near = lambda got, want: np.testing.assert_allclose(got, 100 * want, atol=1.01)  # bytes, then whole numbers
    near(numbers(browser, 0, ".strip[data-map='0'] small"), word.chosen().mean(axis=0))
    choose(browser, 0, "layer", 1)
    near(numbers(browser, 0, ".strip[data-map='0'] small"), word.chosen(1).mean(axis=0))
    choose(browser, 0, "head", 2)
    near(numbers(browser, 0, ".strip[data-map='0'] small"), word.chosen(1, 2).mean(axis=0))
    near(numbers(browser, 0, "table[data-map='0'] td.w"), word.chosen(1, 2).flatten())
    near(numbers(browser, 1, "td.w"), whole.chosen().flatten())
    browser.value("document.querySelectorAll('.text .cell')[2].click()")
    near(numbers(browser, 1, ".text small"), whole.chosen()[2])
    choose(browser, 1, "layer", 0)
    near(numbers(browser, 1, ".text small"), whole.chosen(0)[2])
    browser.value("document.querySelectorAll('.text .cell')[2].click()")
    near(numbers(browser, 1, ".text small"), whole.chosen(0).mean(axis=0))
    assert browser.complaints() == []
    assert browser.requests() == [browser.path]


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_the_screen(browser, width, dark):
    browser.open(browser.path, width, dark)
    browser.value("document.querySelector('details').open = true")
    assert browser.value("document.documentElement.scrollWidth") <= width
