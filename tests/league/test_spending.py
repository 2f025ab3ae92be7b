"""Tests of what the logs of pre-training say about cost, and of the curves that the report draws of it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from charlm.core.checksums import ABOUT
from charlm.league.charts import Chart, Point, drawn, short_number
from charlm.league.config import add_system, add_task, get_config, resolved
from charlm.league.gathering import gathered
from charlm.league.places import Places
from charlm.league.plan import jobs_of
from charlm.league.report import sections_of
from charlm.league.spending import budgets_of, evaluations, spent
from charlm.league.view import Charts, Section, Table


def league():
    """An HLM on two shares, one of other settings, and a BERT that trains on."""
    config = get_config()
    add_system(config, "whole", title="HLM", config="hlm_base:tiny")
    add_system(config, "part", title="HLM, half", config="hlm_base:tiny", share=0.5)
    add_system(config, "other", config="hlm_base:tiny", share=0.25, set=("model.norm=rms",))
    add_system(config, "again", config="hlm_base:tiny", start="whole", share=0.25)
    return resolved(config)


def write_run(places: Places, name: str, lines: list[dict], **budget: object) -> None:
    """Writes the budget and the metrics of a run."""
    places.budget(name).parent.mkdir(exist_ok=True)
    sizes = {"parameters": {"total": 3}, "corpus_words": 9, "unit": "words", "words_per_unit": 2.0, "folder": "",
             "masked": "characters"}  # fmt: skip
    places.budget(name).write_text(json.dumps({"settings": {}, **sizes, **budget}))
    folder = places.model(name)
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_checkpoint(folder: Path, step: int) -> None:
    """Writes what is taken for a whole checkpoint."""
    (folder / "checkpoints" / str(step) / "state").mkdir(parents=True)
    (folder / "checkpoints" / str(step) / ABOUT).write_text("{}")


def trained(step: int, words: float, teraflops: float) -> dict:
    """A line of metrics: this many words and operations a second, in steps of half a second."""
    return {"step": step, "words_per_second": words, "tflops_per_second": teraflops, "ms_per_step": 500.0}


LINES = [
    {"step": 0, "heldout_loss": 5.0, "heldout_bits_per_char": 4.0},
    trained(10, 100.0, 1e-3),
    {"step": 15, "heldout_loss": 4.0, "heldout_bits_per_char": 3.0},
    trained(20, 200.0, 2e-3),
    {"step": 20, "heldout_loss": 3.0, "heldout_bits_per_char": 2.0},
]


def test_an_evaluation_costs_what_was_read_before_it(tmp_path):
    places = Places(tmp_path)
    write_run(places, "whole", LINES)
    found = evaluations(league(), places, "whole")
    # 10 steps of half a second at 100 words a second, each of which is two of the league's words; then the double
    assert [one["words"] for one in found] == pytest.approx([0.0, 2 * (500 + 500), 2 * (500 + 1000)])
    assert [one["flops"] for one in found] == pytest.approx([0.0, 1e10, 1.5e10])
    assert [one["bits_per_char"] for one in found] == [4.0, 3.0, 2.0]


def test_bits_of_subwords_are_those_of_their_characters(tmp_path):
    places = Places(tmp_path)
    lines = [trained(10, 100.0, 1.0), {"step": 10, "heldout_loss": 9.0, "heldout_mlm_loss": 8 * math.log(2)}]
    write_run(places, "whole", lines, chars_per_unit=4.0, masked="subwords")
    assert [one["bits_per_char"] for one in evaluations(league(), places, "whole")] == pytest.approx([2.0])
    write_run(places, "part", LINES, masked="")  # of text that is written, say: other bits
    write_run(places, "other", [trained(10, 100.0, 1.0), {"step": 10, "heldout_loss": 9.0}], masked="subwords")
    assert [one["bits_per_char"] for one in evaluations(league(), places, "part")] == [None] * 3
    assert [one["bits_per_char"] for one in evaluations(league(), places, "other")] == [None]


def test_steps_behind_the_last_report_cost_as_much_as_those_before(tmp_path):
    places = Places(tmp_path)
    lines = [trained(8, 100.0, 1e-3), {"step": 10, "heldout_loss": 1.0, "heldout_bits_per_char": 1.0}]
    write_run(places, "whole", lines)
    (one,) = evaluations(league(), places, "whole")
    assert one["words"] == pytest.approx(2 * 10 * 0.5 * 100)
    write_checkpoint(places.model("whole"), 10)
    assert spent(places, "whole")["words"] == pytest.approx(one["words"])


def test_stages_before_the_one_that_reads_cost_operations_alone(tmp_path):
    places = Places(tmp_path)
    write_run(places, "whole", LINES, folder="2_contextual")
    for stage in ("1_approximation", "2_contextual"):
        write_checkpoint(places.model("whole") / stage, 20)
        (places.model("whole") / stage / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in LINES))
    found = evaluations(league(), places, "whole")
    assert [one["flops"] for one in found] == pytest.approx([1.5e10, 2.5e10, 3e10])
    assert found[-1]["words"] == pytest.approx(3000)
    assert spent(places, "whole")["flops"] == pytest.approx(3e10)


def test_a_system_costs_what_it_starts_from(tmp_path):
    places = Places(tmp_path)
    write_run(places, "again", LINES)
    assert evaluations(league(), places, "again") == []  # its start has not cost anything yet
    write_run(places, "whole", LINES)
    write_checkpoint(places.model("whole"), 20)
    found = evaluations(league(), places, "again")
    assert [one["words"] for one in found] == pytest.approx([3000, 5000, 6000])


def test_a_model_that_is_tuned_otherwise_costs_what_is_there(tmp_path):
    config, places = get_config(), Places(tmp_path)
    add_system(config, "whole", title="HLM", config="hlm_base:tiny")
    add_system(config, "noisy", title="HLM, noisy", same="whole", tune=("data.noise=swap:0.1",))
    add_task(config, "pos", config="tag:tiny", train=("pos.conllu",))
    config = resolved(config)
    write_run(places, "whole", LINES, parameters={"total": 3, "body": 1, "tables": 2, "head": 0})
    write_checkpoint(places.model("whole"), 20)
    (table,) = section(gathered(config, places, jobs_of(config, places)), "Size and cost").blocks
    assert isinstance(table, Table)
    cells = {row[0].removesuffix(" (not finished)"): row[1:9] for row in table.rows}
    assert cells["HLM"] == ["nothing", "1", "2", "0", "3,000", "3,000", "1.50e+10", "1.50e+10"]
    assert cells["HLM, noisy"] == ["HLM", "1", "2", "0", "0", "3,000", "0.00e+00", "1.50e+10"]
    assert [one for one in budgets_of(config) if "noisy" in one] == []


def test_systems_that_differ_in_their_share_alone_are_one_curve():
    assert budgets_of(league()) == [["part", "whole"]]


def test_nothing_is_drawn_before_anything_is_measured(tmp_path):
    config, places = league(), Places(tmp_path)
    results = gathered(config, places, jobs_of(config, places))
    assert {one["system"]: one["evaluations"] for one in results["course"]} == {name: [] for name in config.systems}
    assert [one.title for one in sections_of(results)] == ["Standing", "Size and cost", "How it was made"]


def section(results: dict, title: str) -> Section:
    """A section of the report."""
    return next(one for one in sections_of(results) if one.title == title)


def test_the_report_draws_both(tmp_path):
    config, places = league(), Places(tmp_path)
    for name in ("whole", "part"):
        write_run(places, name, LINES)
    results = gathered(config, places, jobs_of(config, places))
    charts, table = section(results, "Held-out text in the course of pre-training").blocks
    assert isinstance(charts, Charts)
    assert isinstance(table, Table)
    assert [(chart.cost, [name for name, _ in chart.curves]) for chart in charts.charts] == [
        (cost, ["HLM (not finished)", "HLM, half (not finished)"]) for cost in ("words", "FLOPs")
    ]  # fmt: skip
    assert charts.charts[0].curves[0][1] == [Point(pytest.approx(2000), 3.0), Point(pytest.approx(3000), 2.0)]
    assert table.rows[1] == ["HLM (not finished)", "15", "2,000", "1.00e+10", "3.000"]
    results["tasks"] = [{"name": "pos", "title": "pos", "metric": "f1", "examples": 2}]
    for system, words in (("whole", 2e6), ("part", 1e6)):
        next(one for one in results["systems"] if one["name"] == system).update(words_all=words, flops_all=None)
        score = {"task": "pos", "system": system, "noise": "", "value": words / 4e6, "low": 0.1, "high": 0.6, "rank": 1}
        results["scores"].append(score)
    charts, table = section(results, "Scores by budget").blocks
    assert isinstance(charts, Charts)
    assert isinstance(table, Table)
    (chart,) = charts.charts
    assert chart.curves == [("HLM", [Point(1e6, 25.0, 10.0, 60.0), Point(2e6, 50.0, 10.0, 60.0)])]
    assert table.rows[0] == ["HLM, half", "1,000,000", "–", "25.0 [10.0, 60.0]", "–"]


def test_costs_have_short_names():
    costs = (1, 999, 999.9, 1e3, 2.5e6, 999_999, 1e13, 3e22)
    assert [short_number(cost) for cost in costs] == ["1", "999", "1k", "1k", "2.5M", "1M", "10T", "30Z"]


@pytest.mark.parametrize("costs", [(2.1e6, 2.9e6), (1e6, 1e6), (1.5e6, 2.5e6)])
def test_an_axis_has_two_labels_however_short_it_is(costs):
    page = drawn([Chart("bits", "words", "bits", [("a", [Point(cost, 1.0) for cost in costs])])])
    assert len(re.findall(r'class="tick" x="[\d.]+" y="212"', page)) >= 2


def test_a_chart_puts_higher_values_higher_and_what_costs_more_to_the_right():
    curves = [("a & b", [Point(1e6, 1.0, 0.5, 1.5), Point(1e7, 3.0)]), ("c", [Point(3e6, 2.0)])]
    page = drawn([Chart("bits", "words", "bits", curves)])
    (line,) = re.findall(r'class="line d\d" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', page)
    left, low, right, high = map(float, line)
    assert left < right
    assert low > high  # from the top down
    assert "a &amp; b: bits 1 at 1M words" in page
    assert [label for label in ("1M", "2M", "10M") if f">{label}</text>" in page] == ["1M", "2M", "10M"]
    interval = re.search(r'd="M[\d.]+ ([\d.]+)V([\d.]+)"', page)
    assert interval is not None
    assert float(interval[1]) > low > float(interval[2])
