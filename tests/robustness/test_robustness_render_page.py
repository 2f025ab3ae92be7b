"""Tests that no name of a model or file breaks the report, and that the plots show the numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from render_cases import BERT, HLM, HOSTILE, KINDS, LEVELS, NOTE, empty, full, of_models
from render_reading import Page, markdown_tables, number, written

from charlm.core.pages import harmless
from charlm.robustness.render import write_report
from charlm.robustness.render.svg import nice_ticks


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
    assert table[2] == [shown, "50.0"]
    assert page.tables["table-clean"][1] == [harmless(name), "50.0"]


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
    figures = sorted(figures, key=lambda figure: KINDS.index(re.search(r"under (\w+) noise", figure).group(1)))
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
    levels = [{"model": model, **row, "scores": score} for model in results["clean"]]
    results["noise"] = levels + [row | {"level": 0.5} for row in levels]
    text = write_report(results, tmp_path)[2].read_text(encoding="utf-8")
    legend = re.search(r'(?s)<ul class="legend">.*?</ul>', text).group(0)
    looks = re.findall(r'<g class="(c\d)">.*?class="marker"[^>]*? d="([^"]+)"', legend)
    assert len(set(looks)) == len(looks) == 20


def test_a_kind_of_one_level_is_a_bar_from_zero(tmp_path: Path) -> None:
    """Its width is the score, a tick marks the clean one; kinds of several levels stay curves."""
    results = of_models(full(), HLM, BERT)
    results["noise"] = [row for row in results["noise"] if row["kind"] != "drop" or row["level"] == 0.1]
    text = write_report(results, tmp_path)[2].read_text(encoding="utf-8")
    (bars,) = re.findall(r"(?s)<figure>\n<figcaption>.*?</figure>", text)
    assert "<strong>drop 0.1</strong>" in bars
    starts = [float(x) for x in re.findall(r'<rect class="bar" x="([\d.]+)"', bars)]
    widths = [float(width) for width in re.findall(r'width="([\d.]+)"', bars)]
    ticks = [float(x) for x in re.findall(r'class="was" d="M([\d.]+) 0', bars)]
    values = re.findall(r'class="value">([^<]+)<', bars)
    assert values == ["84.6 (−4.5)", "79.0 (−12.3)"]
    means = {row["model"]: row["scores"]["f1"]["mean"] for row in results["noise"] if row["kind"] == "drop"}
    assert starts == [0, 0]
    assert widths == pytest.approx([100 * means[HLM], 100 * means[BERT]], abs=0.01)
    assert ticks == pytest.approx([89.12, 91.34])
    assert len(re.findall('class="line d0"', text)) == 1 + len(KINDS) - 1


# ---- Heat maps ----


def test_two_models_have_a_map_of_their_difference_first(tmp_path: Path) -> None:
    results = of_models(full(), HLM, BERT)
    path = write_report(results, tmp_path)[2]
    page, text = Page(path.read_text(encoding="utf-8")), path.read_text(encoding="utf-8")
    assert [key for key in page.tables if key.startswith("map")] == ["map-gap", "map-0", "map-1"]
    means = {(row["model"], row["kind"], row["level"]): row["scores"]["f1"]["mean"] for row in results["noise"]}
    gaps = {row[0]: row[1:] for row in page.tables["map-gap"][1:]}
    for kind in KINDS:
        for level, cell in zip(LEVELS, gaps[kind], strict=True):
            if cell != "–":
                gap = 100 * (means[HLM, kind, level] - means[BERT, kind, level])
                assert number(cell) == pytest.approx(gap, abs=0.051)
    costs = [number(row[-1]) for row in page.tables["map-1"][1:]]
    assert costs[0] == min(costs)  # the costliest noise is at the top
    cells = re.findall(r'<td class="n (loss|gain) s(\d)">(\S+?)°?</td>', text)
    assert len(cells) == 2 * len(KINDS) * len(LEVELS) - 1
    assert all((number(shown) < 0) == (hue == "loss") for hue, _, shown in cells)
    steps = [step for _, step in sorted((abs(number(shown)), int(step)) for _, step, shown in cells)]
    assert steps == sorted(steps)  # the darker, the more
    assert max(steps) == 8
    assert "°" in page.tables["map-0"][1 + [row[0] for row in page.tables["map-0"][1:]].index("hlm")][1]


def test_a_gain_is_no_loss_and_nothing_measured_has_no_colour(tmp_path: Path) -> None:
    results = of_models(full(), HLM)
    for row, drop in zip(results["noise"], (-0.02, 0.0, None), strict=False):
        row["drop"] = None if drop is None else {"difference": drop, "low": None, "high": None}
    text = write_report(results, tmp_path)[2].read_text(encoding="utf-8")
    row = re.search(r'<th scope="row">drop</th>(.*?)</tr>', text).group(1)
    assert row.startswith('<td class="n gain s1">+2.0</td><td class="n gain s0">0.0</td><td class="n">–</td>')


def test_many_models_share_one_map(tmp_path: Path) -> None:
    results, names = of_models(full(), HLM), [f"m{n}" for n in range(5)]
    results["noise"] = [row | {"model": name} for row in results["noise"] for name in names]
    results["models"] = [results["models"][0] | {"name": name} for name in names]
    results["clean"] = dict.fromkeys(names, results["clean"][HLM])
    results["answers"] = None
    for part in ("groups", "segmentation", "sensitivity", "adversarial"):
        results[part] = []
    page, _ = written(results, tmp_path)
    assert page.tables["map-models"][0] == ["noise", *names]
    assert len(page.tables["map-models"]) == 1 + len(KINDS)
    assert "m3" not in page.sections["says"]  # the table names all, a sentence does not


# ---- Sentences ----


def test_sentences_show_typos_right_and_wrong_answers(report: tuple[Page, str], tmp_path: Path) -> None:
    page, text = report
    shown = write_report(full(), tmp_path)[2].read_text(encoding="utf-8")
    assert re.findall(r'<mark class="typo">(.*?)</mark>', shown) == ["Mrekel", "&lt;b&gt;bold"]
    assert page.tables["table-answers-0"] == [
        ["word", "right", HLM, BERT, HOSTILE],
        ["Angela", "B-PER", "B-PER", "B-PER", "✗ O (B-PER)"],
        ["Merkel", "I-PER", "I-PER", "✗ O (I-PER)", "✗ O (I-PER)"],
        ["Paris", "B-LOC", "B-LOC", "B-LOC", "✗ O (B-LOC)"],
    ]
    assert "3 of 6 words" in shown
    assert page.tables["table-answers-1"][1][2] == "✗ <i>b</i> (<i>a</i>)"
    assert "812 are answered best by" in " ".join(page.sections["sentences"].split())
    assert "- typos: Angela **Mrekel** visited Paris on Monday" in text
    order = [shown.index(f'id="{key}"') for key in ("says", "map", "curves", "sentences", "groups", "how")]
    assert order == sorted(order)
    assert shown.count("<details") == shown.count("</details>") > 5


def test_long_texts_and_many_wrong_words_are_cut(tmp_path: Path) -> None:
    results = full()
    (example, *_) = results["answers"]["examples"]
    example["texts"][0]["noisy"] = " ".join(f"w{n}" for n in range(200))
    example["asked"] = example["asked"][1:2] * 30
    page, _ = written(results, tmp_path)
    assert len(page.tables["table-answers-0"]) == 1 + 8
    assert "30 of 30 words, those with a wrong tag; the first 8." in page.text
    assert "w79 …" in page.text
    assert "w80" not in page.text
