"""Tests LinCE's tasks from its files to predictions, by the commands and recipes of users, with a Char2Subword."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from finetune.tiny_tasks import ANIMALS, OTHERS
from small_char2subword import spelled
from small_run import ROOT, main, on_devices

from charlm.data.conll import read_tagged
from charlm.finetune import strips
from charlm.predict.__main__ import main as predict

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "codeswitch"
SMALL = ("--config.data.batch_size=8", "--config.data.eval_batch_size=8", "--config.train.log_every=50")

pytestmark = pytest.mark.usefixtures("log_lines")


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


def drawn(count, seed):
    """Returns sentences of words with the language of each: hashtags and marks are of none."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        words = [(str(rng.choice(ANIMALS)), "lang1") for _ in range(rng.integers(1, 4))]
        words += [(str(rng.choice(OTHERS)), "lang2") for _ in range(rng.integers(0, 3))]
        words += [(f"#{rng.choice(ANIMALS)}", "other")] * bool(rng.integers(2))
        words += [("!", "other")]
        found.append([words[n] for n in rng.permutation(len(words))])
    return found


def write(path, sentences, labelled=True, classes=None):
    """Writes sentences as LinCE does: a numbered line, with a class if there are classes, and a line a word."""
    lines = []
    for n, words in enumerate(sentences, 1):
        lines.append(f"# sent_enum = {n}" + (f"\t{classes[n - 1]}" if classes and labelled else ""))
        lines += [f"{word}\t{tag}" if labelled or classes else word for word, tag in words]
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def scores(gold, found):
    """Returns the weighted F1 by its definition, and the counts by predicted and right label."""
    labels, total = sorted({*gold, *found}), 0.0
    counts = np.array([[sum(f == row and g == column for g, f in zip(gold, found, strict=True)) for column in labels]
                       for row in labels])  # fmt: skip
    for n, both in enumerate(np.diag(counts)):
        sizes = counts[n].sum() + counts[:, n].sum()
        total += counts[:, n].sum() * (2 * both / sizes if sizes else 0.0)
    return total / len(gold), labels, counts


def train(config, folder, *more):
    """Fine-tunes by the command and returns the summary of the run."""
    with on_devices(1):
        done = main(f"--config={ROOT}/configs/{config}", f"--config.init_from={spelled()}", "--workdir=run",
                    "--config.data.train=train.conll", "--config.data.dev=dev.conll", "--config.data.test=test.conll",
                    "--config.data.test_labels=False", *SMALL, *more, cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))


def test_languages_are_learned_scored_and_predicted(tmp_path, capsys):
    write(tmp_path / "train.conll", drawn(48, 0))
    dev, test = drawn(12, 1), drawn(6, 2)
    write(tmp_path / "dev.conll", dev)
    write(tmp_path / "test.conll", test, labelled=False)
    summary = train("tag.py:lince_lid", tmp_path, "--config.optim.learning_rate=0.02", "--config.train.epochs=4",
                    "--config.model.dropout=0.0")  # fmt: skip
    (run,) = summary["runs"].values()
    predictions = read_tagged(str(tmp_path / "run" / "predictions_dev.conll"))
    gold = [tag for words in dev for _, tag in words]
    found = [tag for example in predictions for tag in example.tags]
    assert [example.words for example in predictions] == [tuple(word for word, _ in words) for words in dev]
    weighted, labels, counts = scores(gold, found)
    assert run["dev"]["weighted_f1"] == pytest.approx(weighted, abs=1e-6)
    assert weighted > scores(gold, ["lang1"] * len(gold))[0]  # it has learned something
    table = (tmp_path / "run" / "predictions_dev.confusion.tsv").read_text(encoding="utf-8").splitlines()
    assert table[0].split("\t") == ["predicted", "lang1", "lang2", "other"]
    whole = {line.split("\t")[0]: [*map(int, line.split("\t")[1:])] for line in table[1:]}
    assert labels == ["lang1", "lang2", "other"]
    assert [whole[label] for label in labels] == counts.tolist()
    # The file without labels: a tag for every word, hashtags among them, and no scores.
    assert "test" not in run
    assert not (tmp_path / "run" / "predictions_test.confusion.tsv").exists()
    guessed = read_tagged(str(tmp_path / "run" / "predictions_test.conll"))
    assert any(word.startswith("#") for example in guessed for word in example.words)
    capsys.readouterr()
    assert predict(["predict", f"--checkpoint={tmp_path / 'run'}", str(tmp_path / "test.conll")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [str(n) for n in range(1, 7)]
    assert [tuple(line["prediction"]) for line in lines] == [example.tags for example in guessed]
    assert {tag for line in lines for tag in line["prediction"]} <= set(labels)


def test_sentiment_is_read_scored_and_predicted(tmp_path):
    classes = {}
    for name, count, seed in (("train", 40, 0), ("dev", 12, 1), ("test", 6, 2)):
        sentences = drawn(count, seed)
        classes[name] = ["positive" if any(tag == "lang2" for _, tag in words) else "neutral" for words in sentences]
        write(tmp_path / f"{name}.conll", sentences, name != "test", classes[name])
    summary = train("classify.py:lince_sa", tmp_path, "--config.train.epochs=1")
    (run,) = summary["runs"].values()
    rows = [line.split("\t") for line in (tmp_path / "run" / "predictions_dev.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["id", *map(str, range(1, 13))]  # the numbers of the sentences
    right = np.mean([row[1] == gold for row, gold in zip(rows[1:], classes["dev"], strict=True)])
    assert run["dev"]["accuracy"] == pytest.approx(right, abs=1e-6)
    table = (tmp_path / "run" / "predictions_dev.confusion.tsv").read_text().splitlines()
    assert table[0] == "predicted\tneutral\tpositive"
    assert sum(int(cell) for line in table[1:] for cell in line.split("\t")[1:]) == 12
    assert len((tmp_path / "run" / "predictions_test.tsv").read_text().splitlines()) == 1 + 6


def test_real_code_switched_words_come_back_from_its_format(tmp_path):
    path = SHARED / "qtd_sagt-ud-dev.conllu.gz"
    if not path.exists():
        pytest.skip("no shared data")
    before = read_tagged(str(path), tag="misc:CSID")
    assert any(word.startswith("#") for example in before for word in example.words) or len(before) > 100
    sentences = [[*zip(example.words, example.tags, strict=True)] for example in before]
    plain = write(tmp_path / "sagt.conll", sentences)
    packed = tmp_path / "sagt.conll.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for written in (plain, packed):
        after = read_tagged(str(written))
        assert [(example.words, example.tags) for example in after] == [(x.words, x.tags) for x in before]
    blind = read_tagged(str(write(tmp_path / "test.conll", sentences, labelled=False)), tag=None)
    assert [(example.words, example.tags) for example in blind] == [(x.words, None) for x in before]
