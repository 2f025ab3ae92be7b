"""A whole league of tiny models: killed and gone on with, it reports what an unbroken one does. Minutes."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = "the cat sat on a mat and dog ran to every small house in town while we slept near old trees"


def write_data(folder: Path) -> None:
    """Writes text, tagged sentences and labelled texts where configs/league.py:tiny looks for them."""
    rng = random.Random(0)
    sentences = [" ".join(rng.choices(TEXT.split(), k=9)) for _ in range(400)]
    for name in ("text", "pos", "cls"):
        (folder / name).mkdir(parents=True)
    (folder / "text" / "a.txt").write_text("\n".join(f"{one}." for one in sentences) + "\n")
    row = lambda place, word: "\t".join([str(place + 1), word, "_", "NOUN" if len(word) > 3 else "DET", *["_"] * 6])
    blocks = ["\n".join(row(place, word) for place, word in enumerate(one.split())) for one in sentences[:60]]
    (folder / "pos" / "en_ewt-ud-dev.conllu.gz").write_bytes(gzip.compress(("\n\n".join(blocks) + "\n\n").encode()))
    lines = [f"{one}\t{len(one) % 2}\tid{n}\n" for n, one in enumerate(sentences[:60])]
    (folder / "cls" / "goemotions_dev.tsv.gz").write_bytes(gzip.compress("".join(lines).encode()))


def command(folder: Path, workdir: str, *more: str) -> list[str]:
    """The command line of a league there."""
    settings = [f"data.folder={folder / 'data'}", "corpora.train={folder}/text/a.txt", "budget.words=8000"]
    settings += ["robustness.samples=100", "corpora.heldout_fraction=0.1"]
    line = [sys.executable, "-m", "charlm.league", "league:tiny", "--workdir", str(folder / workdir)]
    return [*line, "--devices", "none", "--set", *settings, *more]


def figures(folder: Path, workdir: str) -> dict:
    """What a report says about systems, without the times."""
    results = json.loads((folder / workdir / "report.json").read_text())
    return {name: results[name] for name in ("scores", "differences", "claims", "tasks", "missing")}


def events(folder: Path) -> list[str]:
    """The events of a league so far."""
    path = folder / "events.jsonl"
    return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_league_that_was_killed_reports_what_an_unbroken_one_does(tmp_path):
    write_data(tmp_path / "data")
    env = {**os.environ, "CHARLM_CACHE": str(tmp_path / "cache")}
    env.pop("XLA_FLAGS", None)  # eight devices are of no use here
    subprocess.run(command(tmp_path, "whole", "tuning.seeds=0"), env=env, check=True, cwd=ROOT)
    for stop, after in ((signal.SIGKILL, 3), (signal.SIGTERM, 6), (signal.SIGKILL, 12)):
        league = subprocess.Popen(command(tmp_path, "broken", "tuning.seeds=0"), env=env, cwd=ROOT)
        while events(tmp_path / "broken").count("done") < after:
            assert league.poll() is None
            time.sleep(0.2)
        time.sleep(2)  # into the next job
        league.send_signal(stop)
        assert league.wait(300) == (128 + stop if stop == signal.SIGTERM else -stop)
    subprocess.run(command(tmp_path, "broken", "tuning.seeds=0"), env=env, check=True, cwd=ROOT)
    said = events(tmp_path / "broken")
    assert said.count("killed") == 2
    # A job that ends while the league is being killed is found done at the next start, without a line of its own.
    missed = events(tmp_path / "whole").count("done") - said.count("done")
    assert 0 <= missed <= 2
    whole, broken = figures(tmp_path, "whole"), figures(tmp_path, "broken")
    assert whole["missing"] == []
    assert {one["system"] for one in whole["scores"]} == {"bert", "bert+nfkc", "charbert", "hlm", "roberta"}
    assert broken == whole
