"""Tests that the report shows all measurements, and says what was not measured."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from render_cases import BERT, HLM, HOSTILE, KINDS, LEVELS, empty, full, of_models
from render_reading import SECTIONS, Page, markdown_tables, number, written

from charlm.robustness.render import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    return written(full(), tmp_path_factory.mktemp("report") / "made" / "here")


# ---- The numbers ----


def test_tables_hold_the_numbers_of_the_measurements(report: tuple[Page, str]) -> None:
    tables, results = report[0].tables, full()
    models = [model["name"] for model in results["models"]]
    clean = {row[0]: row[1:] for row in tables["table-clean"][1:]}
    assert tables["table-clean"][0] == ["model", "F1", "accuracy", "precision", "recall"]
    for model, scores in results["clean"].items():
        names = ("f1", "accuracy", "precision", "recall")
        assert [float(cell) for cell in clean[model]] == pytest.approx([100 * scores[name] for name in names], abs=5e-2)

    shown = {row[0]: dict(zip(models, row[1:], strict=True)) for row in tables["table-scores"][1:]}
    losses = {row[0]: dict(zip(models, row[1:], strict=True)) for row in tables["table-unseen"][1:]}
    seen = {row[0]: row[1] for row in tables["table-seen"][1:]}
    assert tables["table-seen"][0] == ["noise", HLM]
    assert len(shown) == 1 + len(KINDS) * len(LEVELS)
    for row in results["noise"]:
        noise, score = f"{row['kind']} {row['level']:g}", row["scores"]["f1"]
        if score["mean"] is None:
            assert shown[noise][row["model"]] == losses[noise][row["model"]] == "–"
            continue
        mean, sd = shown[noise][row["model"]].split(" ± ")
        assert (float(mean), float(sd)) == pytest.approx((100 * score["mean"], 100 * score["sd"]), abs=5.1e-2)
        cell = seen[noise] if row["seen"] else losses[noise][row["model"]]
        low, high = re.search(r"\[(.+), (.+)\]", cell).groups()
        expected = [-100 * row["drop"][key] for key in ("difference", "high", "low")]  # a change, not a loss
        assert [number(cell), number(low), number(high)] == pytest.approx(expected, abs=5.1e-2)
    assert losses["hlm 0.1"][HLM] == "seen"
    assert losses["spaces 0.1"][HOSTILE] == "–"


def test_average_losses_are_those_of_the_conditions(report: tuple[Page, str]) -> None:
    rows = {(row[0], row[1]): row[2:] for row in report[0].tables["table-averages"][1:]}
    noise = full()["noise"]
    usable = [row for row in noise if row["drop"]]
    shared = {(row["kind"], row["level"]) for row in usable} - {("swap", 0.15)}
    shared = {(kind, level) for kind, level in shared if kind not in ("hlm", "spaces")}
    assert len(shared) == 19
    for model in (HLM, BERT, HOSTILE):
        for name, chosen in (
            ("unseen by all", [r for r in usable if (r["kind"], r["level"]) in shared]),
            ("unseen", [r for r in usable if not r["seen"]]),
            ("seen", [r for r in usable if r["seen"]]),
        ):
            mine = [row for row in chosen if row["model"] == model]
            if not mine:
                assert (name, model) not in rows
                continue
            means = [-100 * sum(row["drop"][key] for row in mine) / len(mine) for key in ("difference", "high", "low")]
            count, change, score = rows[name, model]
            assert count == str(len(mine))
            low, high = re.search(r"\[(.+), (.+)\]", change).groups()
            assert [number(cell) for cell in (change, low, high)] == pytest.approx(means, abs=5.1e-2)
            mean = 100 * sum(row["scores"]["f1"]["mean"] for row in mine) / len(mine)
            assert float(score) == pytest.approx(mean, abs=5.1e-2)


def test_pairs_groups_and_the_rest_hold_the_numbers(report: tuple[Page, str]) -> None:
    tables, results = report[0].tables, full()
    pairs = [row for row in results["comparisons"] if (row["a"], row["b"]) == (HLM, BERT)]
    cells = {row[0]: row[1:] for row in tables["table-pair-0"][1:]}
    for row in pairs:
        if row["level"]:
            shown = number(cells[row["kind"]][LEVELS.index(row["level"])])
            assert shown == pytest.approx(100 * row["difference"], abs=5e-2)
    noisy = [row for row in pairs if row["level"]]
    better = [sum(row["low"] > 0 for row in noisy), sum(row["high"] < 0 for row in noisy)]
    summary = tables["table-pairs"][1]
    assert summary[:3] == [HLM, BERT, "F1"]
    assert [int(cell) for cell in summary[4:6]] == better
    assert sum(int(cell) for cell in summary[4:]) == len(noisy)

    groups = {(row[0], row[1]): row[2:] for row in tables["table-groups"][1:]}
    assert groups["clean", "changed"] == ["–"] * 3
    assert groups["drop 0.1", "all"] == ["85.6 (9012)", "81.8 (9012)", "84.0 (9012)"]
    cut = {(row[0], row[1]): row[2:] for row in tables["table-segmentation"][1:]}
    assert cut["keyboard 0.2", BERT] == ["1.71", "40.0 %", "0.5 %", "–"]
    assert len(cut) == len(results["segmentation"])
    moved = {(row[0], row[1]): row[2:] for row in tables["table-sensitivity"][1:]}
    assert moved["case 0.1", BERT] == ["0.019", "–"]
    assert tables["table-adversarial"][2] == [HLM, "2", "100", "88.9", "54.9", "42.0 %", "1.80"]
    kinds = {row[0]: row for row in tables["table-kinds"][1:]}
    assert kinds["spaces"][-5:] == ["5.0 %", "10.0 %", "15.0 %", "20.0 %", "30.0 %"]


def test_markdown_has_the_same_tables(report: tuple[Page, str]) -> None:
    page, text = report
    tables = markdown_tables(text)
    assert len(tables) == len(page.tables)
    for shown, other in zip(tables, page.tables.values(), strict=True):
        assert len(shown) == 1 + len(other)  # the line below the header
        assert {len(row) for row in shown} == {len(other[0])}
        shown = [[cell.strip("`").replace("\\", "") for cell in row] for row in shown]
        numbers = [[cell.strip("*") for cell in row if re.match(r"^\**[−+]?\d", cell)] for row in shown]
        expected = [[cell for cell in row if re.match(r"^[−+]?\d", cell)] for row in other]
        assert [row for row in numbers if row] == [row for row in expected if row]
    for title in ("# Robustness in tagging", "## What this says", "## How to reproduce"):
        assert f"\n{title}" in f"\n{text}"


def test_answers_are_shown_of_a_hundred_and_counts_as_counts(tmp_path: Path) -> None:
    results = empty() | {"task": "question_answering", "metric": "f1", "examples": 12}
    results["clean"] = {
        "m": {"f1": 87.654, "exact": 80.0, "HasAns_f1": 85.5, "total": 12, "best_f1_thresh": -0.0123456}
    }
    table = written(results, tmp_path)[0].tables["table-clean"]
    assert table == [
        ["model", "F1", "HasAns_f1", "best_f1_thresh", "exact match", "total"],
        ["m", "87.7", "85.5", "−0.01235", "80.0", "12"],
    ]


def test_a_lower_error_is_better(tmp_path: Path) -> None:
    """With MSE the smaller score wins, and a loss is a rise."""
    results = of_models(full(), HLM, BERT) | {"metric": "mse", "task": "regression"}
    results["clean"] = {HLM: {"mse": 0.5}, BERT: {"mse": 0.4}}
    gap = {"difference": 0.1, "low": 0.05, "high": 0.15}
    results["comparisons"] = [{"kind": None, "level": 0, "a": HLM, "b": BERT, "metric": "mse", **gap}]
    for row in results["noise"]:
        rise = 0.3 if row["model"] == HLM else 0.1
        row["seen"], row["scores"] = False, {"mse": {"mean": 0.5 + rise, "sd": None, "values": []}}
        row["drop"] = {"difference": -rise, "low": -rise - 0.01, "high": -rise + 0.01}
    page, _ = written(results, tmp_path)
    said = " ".join(page.sections["says"].split())
    assert f"{BERT} has the best MSE, 0.4; {HLM} follows with 0.5. The difference is 0.1 (0.05 to 0.15)." in said
    assert f"{BERT} loses least MSE on average, 0.1 (0.09 to 0.11); {HLM} 0.3" in said
    assert page.tables["table-pairs"][1][3] == "−0.1 [−0.15, −0.05]"
    assert page.tables["table-unseen"][1][1:] == ["+0.3 [0.29, 0.31]", "+0.1 [0.09, 0.11]"]


# ---- What is missing ----


def test_of_nothing_measured_there_is_a_headline_alone(tmp_path: Path) -> None:
    page, text = written(empty(), tmp_path)
    assert not page.sections
    assert not page.tables
    assert "Nothing was measured" in page.text
    assert "Nothing was measured" in text
    assert "##" not in text


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("noise", ["map", "curves"]),
        ("comparisons", ["comparisons"]),
        ("groups", ["groups"]),
        ("segmentation", ["segmentation"]),
        ("sensitivity", ["sensitivity"]),
        ("adversarial", ["adversarial"]),
        ("answers", ["sentences"]),
        ("notes", ["notes"]),
    ],
)
def test_a_section_without_data_does_not_appear(tmp_path: Path, key: str, sections: list[str]) -> None:
    page, text = written(full() | {key: []}, tmp_path)
    assert tuple(page.sections) == tuple(name for name in SECTIONS if name not in sections)
    assert all(len(rows) > 1 for rows in page.tables.values())
    links = [value[1:] for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    assert links == list(page.sections)
    assert len(re.findall("(?m)^## ", text)) == len(links)


def test_reports_of_before_are_written_too(tmp_path: Path) -> None:
    """Their measurements hold no answers."""
    page, _ = written({key: value for key, value in full().items() if key != "answers"}, tmp_path)
    assert tuple(page.sections) == tuple(name for name in SECTIONS if name != "sentences")


def test_all_numbers_may_be_null(tmp_path: Path) -> None:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            kept = ("format", "level")
            return {k: v if k in kept else without(v) for k, v in value.items()}
        if isinstance(value, list):
            return [without(item) for item in value]
        return None if isinstance(value, int | float) and not isinstance(value, bool) else value

    page, _ = written(without(full()), tmp_path)
    assert set(page.sections) == {"sentences", "adversarial", "how", "notes", "reproduce"}
    assert not any(
        "nan" in cell.lower() or "None" in cell for rows in page.tables.values() for row in rows for cell in row
    )


def test_one_model_is_compared_with_nobody(tmp_path: Path) -> None:
    page, _ = written(of_models(full(), HLM), tmp_path)
    said = " ".join(page.sections["says"].split())
    assert f"On clean text {HLM} has F1 89.1." in said
    assert f"that it has not met in training, {HLM} loses 4.9 points (4.1 to 5.7) of F1 on average." in said
    assert "best" not in said
    assert "least" not in said
    assert "comparisons" not in page.sections
    assert f"Noise costs {HLM} 4.9 points of F1 on average." in page.text
    assert {row[0] for row in page.tables["table-averages"][1:]} == {"unseen", "seen"}


def test_a_kind_not_measured_with_a_model_is_named(report: tuple[Page, str]) -> None:
    assert f"{HOSTILE} was not measured under spaces." in report[0].sections["curves"]


# ---- The same bytes ----


def test_the_same_measurements_are_the_same_bytes(tmp_path: Path) -> None:
    """Also when keys come in another order, and when the measurements are read back from the report."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, shuffled(item)) for key, item in value.items()]
            random.Random(len(items)).shuffle(items)
            return dict(items)
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    first = [path.read_bytes() for path in write_report(full(), tmp_path / "a")]
    back = json.loads(first[0])
    assert back == json.loads(json.dumps(full()))
    for n, results in enumerate((shuffled(full()), back)):
        assert [path.read_bytes() for path in write_report(results, tmp_path / str(n))] == first


def test_a_report_replaces_another_whole_or_not_at_all(tmp_path: Path) -> None:
    write_report(full(), tmp_path)
    before = (tmp_path / "report.html").read_bytes()
    with pytest.raises(ValueError, match="missing notes"):
        write_report({key: value for key, value in full().items() if key != "notes"}, tmp_path)
    with pytest.raises(ValueError, match="format 2, expected 1"):
        write_report(full() | {"format": 2}, tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ValueError, match="cannot write the report"):
        write_report(full(), blocked / "folder")


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    results = full()
    results["clean"][HLM]["f1"] = float("nan")
    results["noise"][0]["drop"]["high"] = float("inf")
    page, _ = written(results, tmp_path)
    assert page.tables["table-clean"][1][1] == "–"
    assert json.loads((tmp_path / "report.json").read_text())["clean"][HLM]["f1"] is None
