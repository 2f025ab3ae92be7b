"""Tests that no name of a model or file breaks the report, and that the plots show the numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from render_cases import HOSTILE, KINDS, LEVELS, NOTE, empty, full
from render_reading import Page, markdown_tables, written

from charlm.robustness.plots import nice_ticks
from charlm.robustness.render import write_report
from charlm.robustness.render_parts import harmless


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    return written(full(), tmp_path_factory.mktemp("report") / "made" / "here")


def test_names_notes_and_paths_are_text_and_nothing_else(report: tuple[Page, str]) -> None:
    page, text = report
    assert not {"script", "img", "b", "iframe", "object", "form", "base"} & set(page.tags)
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "style"]
    links = [value for _, name, value in page.attributes if name in ("href", "src", "xlink:href", "action")]
    assert all(value.startswith("#") or value == "data:," for value in links)
    assert page.tables["table-models"][3] == [HOSTILE, "bert", "none", "–", 'runs/<b>"&|']
    assert harmless(NOTE) in page.sections["notes"]
    assert "\u202e" not in page.sections["notes"] + text
    prose = re.sub(r"(?s)```.*?```|`[^`\n]+`", "", text.replace("\\`", ""))
    assert "<" not in prose
    assert "](" not in prose.replace("\\](", "")
    assert HOSTILE not in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", r"a\|b"),
        ("\\|", r"\\\|"),
        ("*a* _b_ ~c~ $d$", r"\*a\* \_b\_ \~c\~ \$d\$"),
        ("&lt; <b>", "&amp;lt; &lt;b&gt;"),
        ("line\nbreak\r\n| x |", r"line break  \| x \|"),
        ("[a](http://b.c) www.b.c @d", r"\[a\](http&#58;//b.c) www&#46;b.c &#64;d"),
        ("https://b.c", "https&#58;//b.c"),
    ],
)
def test_markdown_names_are_escaped(tmp_path: Path, name: str, shown: str) -> None:
    page, text = written(empty() | {"clean": {name: {"accuracy": 0.5}}}, tmp_path)
    (table,) = markdown_tables(text)
    assert table[2] == [shown, "0.500"]
    assert page.tables["table-clean"][1] == [harmless(name), "0.500"]


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("# heading", r"\# heading"),
        ("- item", r"\- item"),
        ("1. item", "&#49;. item"),
        ("+ plus", r"\+ plus"),
        ("---", r"\---"),
        ("> quote", "&gt; quote"),
    ],
)
def test_a_note_opens_no_block_of_markdown(tmp_path: Path, note: str, shown: str) -> None:
    assert f"\n- {shown}\n" in written(empty() | {"notes": [note]}, tmp_path)[1]


def test_a_command_cannot_leave_its_block(tmp_path: Path) -> None:
    command = "run `a`\n```\n# out <script>"
    page, text = written(empty() | {"settings": {"command": command}}, tmp_path)
    assert f"\n````bash\n{command}\n````\n" in text
    assert command in page.sections["reproduce"]
    assert "table-settings" not in page.tables  # it is no setting
    listed = written(empty() | {"settings": {"command": ["run", "a b", "$c"]}}, tmp_path / "list")[1]
    assert "\nrun 'a b' '$c'\n" in listed


def test_the_page_is_sealed(report: tuple[Page, str], tmp_path: Path) -> None:
    """Its policy allows the one style sheet, by its hash, and nothing else."""
    import base64
    import hashlib

    text = write_report(full(), tmp_path)[2].read_text(encoding="utf-8")
    css = re.search(r"(?s)<style>(.*?)</style>", text).group(1)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.split("; ") == [
        *(
            "default-src 'none'",
            "img-src data:",
            f"style-src 'sha256-{digest}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    ]
    assert not re.findall(r"(?i)url\(|@import|https?:", css)
    assert ("html", "lang", "en") in report[0].attributes


# ---- Plots ----


def test_there_is_a_plot_a_kind_with_a_title_and_markers(tmp_path: Path) -> None:
    text = write_report(full(), tmp_path)[2].read_text(encoding="utf-8")
    figures = re.findall(r"(?s)<figure>.*?</figure>", text)
    assert len(figures) == len(KINDS)
    for kind, figure in zip(KINDS, figures, strict=True):
        assert 'role="img"' in figure
        assert f">F1 under {kind} noise</title>" in figure
        expected = 3 * (1 + len(LEVELS)) - (kind == "swap") - (kind == "spaces") * (1 + len(LEVELS))
        assert len(re.findall('class="marker', figure)) == expected
        assert len(re.findall("hollow", figure)) == (len(LEVELS) if kind == "hlm" else 0)
        assert len(re.findall('class="band', figure)) == (2 if kind == "spaces" else 3)
    broken = re.search(r'<g class="c1">\n<path class="line d1" d="([^"]+)"', figures[1]).group(1)
    assert broken.count("M") == 2  # nothing was measured at one level, and the line does not pretend
    assert "was not measured." in figures[KINDS.index("spaces")]


def test_higher_scores_stand_higher_and_all_plots_share_the_scale(tmp_path: Path) -> None:
    text = write_report(full(), tmp_path)[2].read_text(encoding="utf-8")
    scores: dict[float, float] = {}
    for y, shown in re.findall(r'translate\([\d.]+ ([\d.]+)\)"[^>]*><title>[^<]*: ([\d.]+)', text):
        assert scores.setdefault(float(shown), float(y)) == pytest.approx(float(y), abs=0.5)
    ordered = [y for _, y in sorted(scores.items())]
    assert len(ordered) > 40
    assert ordered == sorted(ordered, reverse=True)


@pytest.mark.parametrize(
    ("low", "high"), [(0.5, 0.92), (0.9, 0.9), (0.0, 0.0), (-0.2, 0.3), (12.5, 91.0), (0.9001, 0.9003)]
)
def test_ticks_are_round_and_hold_all_values(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert 2 <= len(ticks) <= 9
    assert ticks[0] <= low + 1e-9
    assert ticks[-1] >= high - 1e-9
    step = ticks[1] - ticks[0]
    assert min(abs(step / 10**n - f) for n in range(-8, 8) for f in (1, 2, 2.5, 5)) < 1e-6


def test_many_models_have_pairs_of_colour_and_shape_of_their_own(tmp_path: Path) -> None:
    results = empty() | {"clean": {f"model {n:02}": {"accuracy": 0.5} for n in range(20)}}
    row = {"kind": "drop", "spec": "drop:1", "level": 1.0, "seen": False, "seeds": [0], "drop": None, "changed": None}
    score = {"accuracy": {"mean": 0.4, "sd": None, "values": [0.4]}}
    results["noise"] = [{"model": model, **row, "scores": score} for model in results["clean"]]
    text = write_report(results, tmp_path)[2].read_text(encoding="utf-8")
    legend = re.search(r'(?s)<ul class="legend">.*?</ul>', text).group(0)
    looks = re.findall(r'<g class="(c\d)">.*?class="marker"[^>]*? d="([^"]+)"', legend)
    assert len(set(looks)) == len(looks) == 20
