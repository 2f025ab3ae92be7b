"""Tests that the summary of a report follows the numbers and claims no more than they support."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from render_cases import BERT, HLM, full, of_models
from render_reading import written


def says(results: dict[str, Any], folder: Path) -> str:
    """Returns the paragraph "What this says"."""
    return " ".join(written(results, folder)[0].sections["says"].split())


def two(clean: tuple[float, float], width: float, falls: tuple[float, float], spread: float) -> dict[str, Any]:
    """Returns measurements of two models with these scores, losses and widths of intervals."""
    results = of_models(full(), HLM, BERT)
    results["clean"] = {model: {"f1": score} for model, score in zip((HLM, BERT), clean, strict=True)}
    gap = clean[0] - clean[1]
    ends = {"difference": gap, "low": gap - width, "high": gap + width}
    results["comparisons"] = [{"kind": None, "level": 0.0, "a": HLM, "b": BERT, "metric": "f1", **ends}]
    for row in results["noise"]:
        at = (HLM, BERT).index(row["model"])
        row["scores"] = {"f1": {"mean": clean[at] - falls[at], "sd": 0.01, "values": []}}
        row["drop"] = {"difference": falls[at], "low": falls[at] - spread, "high": falls[at] + spread}
    return results


def test_what_it_says_follows_the_numbers(tmp_path: Path) -> None:
    said = says(two((0.9, 0.8), 0.02, (0.3, 0.1), 0.01), tmp_path / "a")
    assert (
        f"{HLM} has the best F1, 90.0; {BERT} follows with 80.0. The difference is 10.0 points (8.0 to 12.0)." in said
    )
    assert (
        f"Over the 25 conditions (5 kinds of noise at their levels) that no model has met in training, {BERT} loses"
        in said
    )
    assert f"loses least F1 on average, 10.0 points (9.0 to 11.0); {HLM} 30.0 points (29.0 to 31.0)." in said
    assert f"The interval of {BERT} overlaps no other model's." in said
    assert "Its mean F1 there, 70.0, is also the best." in said
    assert "within noise" not in said

    said = says(two((0.8, 0.9), 0.02, (0.1, 0.3), 0.01), tmp_path / "b")
    assert (
        f"{BERT} has the best F1, 90.0; {HLM} follows with 80.0. The difference is 10.0 points (8.0 to 12.0)." in said
    )
    assert f"in training, {HLM} loses least F1 on average, 10.0 points" in said


def test_it_hedges_when_intervals_overlap(tmp_path: Path) -> None:
    said = says(two((0.9, 0.88), 0.03, (0.12, 0.1), 0.015), tmp_path)
    assert "The difference, 2.0 points (−1.0 to 5.0), is within noise: its interval includes 0." in said
    assert f"The intervals of {BERT} and {HLM} overlap: the difference is within noise." in said
    assert "overlaps no other" not in said


def test_losing_little_is_not_called_scoring_well(tmp_path: Path) -> None:
    said = says(two((0.9, 0.5), 0.02, (0.2, 0.1), 0.01), tmp_path)
    assert (
        f"Losing little is not scoring well: under the same noise {HLM} has the best mean F1, 70.0; {BERT} has 40.0."
        in said
    )


def test_it_claims_nothing_without_intervals(tmp_path: Path) -> None:
    results = two((0.9, 0.8), 0.02, (0.3, 0.1), 0.01)
    clean = results["comparisons"][0]
    results["comparisons"] = [clean | {"kind": "drop", "level": 0.1}]  # says nothing about clean text
    results["noise"][1]["drop"] |= {"low": None}
    said = says(results, tmp_path)
    results["comparisons"] = [clean | {"high": None}]
    assert "No interval of the difference" in says(results, tmp_path)
    assert "No interval of the difference was measured, so it may be chance." in said
    assert f"There is no interval of {results['noise'][1]['model']}, so the order may be chance." in said


def test_equal_scores_have_no_winner(tmp_path: Path) -> None:
    said = says(two((0.90004, 0.9), 0.02, (0.3, 0.1), 0.01), tmp_path)
    assert f"{HLM} and {BERT} have the same F1, 90.0." in said
    assert "best F1, 90.0" not in said


def test_only_noise_that_all_meet_for_the_first_time_ranks_models(tmp_path: Path) -> None:
    results = two((0.9, 0.8), 0.02, (0.3, 0.1), 0.01)
    for row in results["noise"]:
        row["seen"] = (row["model"] == HLM) == (row["kind"] in ("drop", "swap", "keyboard"))
    page, _ = written(results, tmp_path)
    assert "so they are not ranked" in page.sections["says"]
    assert "loses least" not in page.sections["says"]
    assert {row[0] for row in page.tables["table-averages"][1:]} == {"unseen", "seen"}


def test_level_zero_is_the_clean_text(tmp_path: Path) -> None:
    """Rows of level 0 change nothing: they would draw every average towards 0."""
    results = full()
    page, text = written(results, tmp_path / "a")
    row = copy.deepcopy(results["noise"][0]) | {"level": 0.0, "drop": {"difference": 0.0, "low": 0.0, "high": 0.0}}
    results["noise"] = [row, *results["noise"]]
    other, other_text = written(results, tmp_path / "b")
    assert text == other_text
    assert page.tables == other.tables
