"""Tests the page and the figure of attention: their numbers, hostile texts, and the command that writes them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from small_hlm import hlm
from small_run import ROOT
from tiny_models import release

import charlm
from charlm.core.pages import harmless, shortened
from charlm.families.views import AttentionMap, AttentionView, Views
from charlm.show import __main__ as command
from charlm.show.shown import Shown

HOSTILE = ["<script>alert(1)</script>", '"><img/src=x>', "&amp;", "</script>", "\u202egnp", "a\x00b", "\ud800", "{x}"]
CHOICES = r'<select name="(\w+)">(.*?)</select>'


def weights(rng, *shape):
    drawn = rng.random(shape).astype(np.float32)
    return drawn / drawn.sum(axis=-1, keepdims=True)


def made(words, left=0, readers=1):
    """Returns views of words with two layers of three heads inside, and two heads between them."""
    rng = np.random.default_rng(len(words))
    inside = []
    for word in words:
        chars = ("[W]", *word)
        read = chars[:readers]
        inside.append(AttentionMap(read, chars, weights(rng, 2, 3, len(read), len(chars)), word))
    whole = AttentionMap(tuple(words), tuple(words), weights(rng, 1, 2, len(words), len(words)))
    views = AttentionView("Inside words", "a < b", tuple(inside)), AttentionView("Between words", "two", (whole,))
    return Shown("HLM from <runs>", Views(views, " ".join(words), "words", len(words), left))


class Page(HTMLParser):
    """What a browser would see: tags with attributes, scripts, and the text outside of them."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.scripts, self.text = [], [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data


def test_the_page_shows_the_means_and_holds_all_weights():
    shown = made(["the", "cat", "the"])
    page = Page(shown.html)
    assert page.open == []
    inside, _, _ = page.scripts
    assert len(json.loads(inside)) == 2, "equal words are there once"
    one = shown.views[0].maps[1]
    held = np.frombuffer(base64.b64decode(json.loads(inside)[1]["weights"]), np.uint8).reshape(2, 3, 1, 4)
    np.testing.assert_allclose((held / 255) ** 2, one.weights_LHQN, atol=0.004)
    cells = re.findall(r'style="--a:([\d.]+)"><bdi>(.*?)</bdi><small>(\d+)</small>', shown.html)
    assert [name for _, name, _ in cells] == ["[W]", *"the", "[W]", *"cat", "[W]", *"the", "the", "cat", "the"]
    for (shade, _, percent), weight in zip(cells[4:8], one.chosen()[0], strict=True):
        assert float(shade) == pytest.approx(np.sqrt(weight), abs=0.006)
        assert int(percent) == round(100 * float(weight))
    whole = shown.views[1].maps[0].chosen()
    numbers = re.findall(r'<td class="w[ \w]*" style="--a:[\d.]+">(\d+)</td>', shown.html)
    assert [int(n) for n in numbers] == [round(100 * float(w)) for w in whole.flat]
    assert {name: options.count("<option") for name, options in re.findall(CHOICES, shown.html)} == {
        "layer": 2,
        "head": 3,
    }
    assert "mean of 2 layers and 3 heads" in page.text


def test_the_page_needs_nothing_and_runs_nothing_else():
    html = made(["the", "cat"]).html
    page = Page(html)
    assert not re.search(r"https?:|//\w", re.sub(r"<script>.*</script>", "", html, flags=re.DOTALL))
    assert not [
        tag for tag, attributes in page.tags if "src" in attributes or any(a.startswith("on") for a in attributes)
    ]
    assert [attributes["href"] for tag, attributes in page.tags if tag == "link"] == ["data:,"]
    (policy,) = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert [a.get("type") for tag, a in page.tags if tag == "script"] == ["application/json"] * 2 + [None]


def test_hostile_texts_are_text():
    shown = made(HOSTILE, left=7, readers=2)
    page = Page(shown.html)
    shown.html.encode("utf-8")
    ours = made(["cat"] * len(HOSTILE), left=7, readers=2)
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in Page(ours.html).tags}
    assert len(page.scripts) == 3
    assert "<script>alert(1)</script>" in page.text
    assert "{x}" in page.text
    assert not set(page.text) & set("\u202e\x00\ud800")
    assert "The first 8 of 15 words were read and are shown; the rest was left out." in page.text
    assert "HLM from <runs>" in page.text
    assert "a < b" in page.text
    assert harmless("a\tb\u200dc\u2028") == "a b\u200dc "
    assert shortened("a b\nc d", 4) == "a b…"


def test_characters_that_read_each_other_have_tables():
    shown = made(["the", "cat"], readers=4)
    page = Page(shown.html)
    assert [a["aria-label"] for tag, a in page.tags if a.get("class") == "scroll"] == [
        "The characters of the", "The characters of cat", "Rows read, columns are read",
    ]  # fmt: skip
    assert shown.html.count("<details>") == 1
    assert made(["the"]).html.count("<details>") == 0


def test_numbers_of_long_texts_are_left_to_the_shades():
    assert 'class="heat"' in made(["cat"] * 16).html
    assert 'class="heat dense"' in made(["cat"] * 17).html


@pytest.mark.parametrize("words", [["the", "$cat$", "sat"], ["cat"] * 30, HOSTILE])
def test_a_figure_has_a_panel_for_each_view(words, tmp_path):
    pytest.importorskip("matplotlib")
    shown = made(words)
    drawn = shown.figure(layer=0)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == [
        "Inside words: layer 1 of 2, mean of 3 heads", "Between words: layer 1 of 1, mean of 2 heads",
    ]  # fmt: skip
    inside, between = (axes.images[0].get_array() for axes in drawn.axes)
    np.testing.assert_allclose(inside[0].compressed()[:4] ** 2, shown.views[0].maps[0].chosen(0)[0][:4], rtol=1e-4)
    np.testing.assert_allclose(between**2, shown.views[1].maps[0].chosen(0), rtol=1e-4)
    assert shown.save(tmp_path / "x.svg").read_text().startswith("<?xml")
    with pytest.raises(ValueError, match="head=5: expected 0 to 2"):
        shown.figure(head=5)


def test_a_view_without_words_to_show_is_a_sentence():
    whole = AttentionMap(("a",), ("a",), np.ones((1, 1, 1, 1), np.float32))
    views = AttentionView("Inside words", "1 of 1 words are not spelled", ()), AttentionView("Between", "b", (whole,))
    shown = Shown("model", Views(views, "a", "words", 1, 0))
    assert Page(shown.html).text.count("1 of 1 words are not spelled") == 1
    pytest.importorskip("matplotlib")
    assert len(shown.figure().axes) == 1


def test_notebooks_show_the_page_in_a_frame():
    frame = Page(made(["the", "cat"])._repr_html_())
    ((tag, attributes),) = frame.tags
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
    assert attributes["srcdoc"] == made(["the", "cat"]).html


def test_a_model_shows_a_text(tmp_path):
    model = charlm.load(release("bert"))
    shown = model.show("the cat sat")
    assert repr(shown).startswith("Shown(BERT from ")
    assert charlm.show is sys.modules["charlm.show"]
    assert charlm.show(model, "the cat sat").html == shown.html == charlm.show(release("bert"), "the cat sat").html
    assert shown.save(tmp_path / "page.html").read_text(encoding="utf-8") == shown.html


def test_the_command_writes_a_page(tmp_path, capsys):
    out = tmp_path / "page.html"
    assert command.main(["--model", str(release("bert")), "the <b>cat</b>", "--out", str(out), "--most", "3"]) == 0
    assert re.match(
        rf"{re.escape(str(out))}: BERT reads \d pieces, the first of \d+\nopen it in", capsys.readouterr().out
    )
    assert "&lt;" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text", "--out", "x.txt"], "x.txt: expected a page (.html), or a figure: ."),
        (["", "--out", "x.html"], "the text has no words"),
        (["text", "--most", "0"], "most=0: expected at least 1"),
        (["text", "--model", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    model = str(release("bert"))
    assert command.main(["--model", model, *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_the_help_of_both_commands_needs_no_jax():
    for module in ("charlm.show", "charlm.plot"):
        code = "import runpy, sys; sys.argv = ['x', '--help']\ntry:\n"
        code += f"    runpy.run_module({module!r}, run_name='__main__')\n"
        code += "except SystemExit:\n    sys.exit(bool({'jax', 'matplotlib'} & sys.modules.keys()))"
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_hlm_is_shown_from_characters_to_words():
    predictor = hlm()
    page = Page(Shown("HLM", predictor.views("teh cat")).html)
    assert re.search(r"Inside words.*\[W\]\d+t\d+e\d+h\d+.*Between words.*\[CLS\]\d* *", page.text, re.DOTALL)
