"""Tests the classes of new words in their passages, as NYTWIT's: a table is read, cross-validated and predicted.

A frozen model with a linear head is logistic regression on its vectors, as scikit-learn computes it.
"""

from __future__ import annotations

import hashlib

import jax
import numpy as np
import pytest
from finetune.test_fine_tuning import small
from finetune.tiny_tasks import ANIMALS, OTHERS, PLACES
from small_run import on_devices
from tiny_models import release

from charlm.config import flatten, load_config_file
from charlm.config.finetuning import get_config
from charlm.data.examples import TaggedExample
from charlm.families.xrayemb.setups import frozen
from charlm.finetune import strips
from charlm.finetune.batching import Packer
from charlm.finetune.data import Examples
from charlm.finetune.predictor import FineTuned
from charlm.finetune.run import _digests, fine_tune
from charlm.finetune.strips import Group
from charlm.tasks.create import from_settings, task_of


@pytest.fixture(autouse=True)
def _one_shape(monkeypatch):
    monkeypatch.setattr(strips, "QUANTILES", (1.0,))


def write_words(path, count, times=1, seed=0):
    """Writes a table like NYTWIT's with passages; three quarters of the classes tell animals from places."""
    rng, rows = np.random.default_rng(seed), []
    for n in range(count):
        animal = bool(rng.integers(2))
        word = str(rng.choice(ANIMALS if animal else PLACES))
        around = [str(rng.choice(OTHERS)) for _ in range(5)]
        at = int(rng.integers(5))
        kind = "affix libfix" if animal == (rng.random() < 0.75) else "blend"
        passage = " ".join([*around[:at], word.capitalize() if at == 0 else word, *around[at:]])
        rows.append(f"Tue Nov 07\t{word}\t{kind}\thttps://example.org\t{n % 2}\t{passage}")
    header = "Time\tWord\tCategory\tURL\tfold\tsentence"
    path.write_text("\n".join([header, *rows * times]) + "\n", encoding="utf-8")
    return path


def settings(**changes):
    """Returns the keys that `configs/tag.py:novel_words` sets."""
    found = flatten(load_config_file("configs/tag.py:novel_words"))
    names = ("scheme", "target", "text", "label", "fold_column", "skip_labels")
    return {f"data__{name}": found[f"data.{name}"] for name in names} | changes


def test_every_word_is_predicted_by_the_model_that_has_not_learned_it(tmp_path):
    file = write_words(tmp_path / "words.tsv", 12)
    lines = file.read_text().splitlines()
    more = ["x\tcow\tfiltered\tu\t0\ta cow", "x\tcow\tblend\tu\t0\t", "x\tcow\tblend\tu\t0\tno such word"]
    file.write_text("\n".join([*lines, *more]) + "\n")
    config = small("tagging", release("bert"), file, None, train__epochs=1, **settings())
    with on_devices(1):
        summary = fine_tune(config, str(tmp_path / "run"))
    assert list(summary["runs"]) == ["seed_0_fold_0", "seed_0_fold_1"]
    seen = []
    for name in summary["runs"]:
        written = (tmp_path / "run" / name / "predictions_test.conll").read_text()
        separator = "\t" if "\t" in written else " "  # tabs if a class has a space
        for block in filter(str.strip, written.split("\n\n")):
            rows = [line.split(separator) for line in block.splitlines()]
            (new,) = [row for row in rows if row[3] != "_"]
            seen.append((new[0].lower(), new[3]))
            assert {row[4] for row in rows} <= {"affix libfix", "blend"}
    wanted = [line.split("\t")[1:3] for line in lines[1:]]
    assert sorted(seen) == sorted((word, kind) for word, kind in wanted)
    share = np.mean([run["test"]["accuracy"] for run in summary["runs"].values()])  # folds of six words
    assert summary["all_folds"]["accuracy"]["mean"] == pytest.approx(share)
    model = FineTuned.from_checkpoint(tmp_path / "run" / "seed_0_fold_0")
    assert model.task.settings() == from_settings(model.task.settings()).settings()
    found = dict(model.predict_files([str(file)]))
    assert len(found) == 13  # also one whose class is left out in training, since no class is read; two have no word


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__tag": "1"}, r"^data.tag='1', but the files are tables of passages \(data.target='Word'\)$"),
        ({"data__target": ""}, "^data.label='Category', but the files are columns of words: data.target is empty$"),
    ],
)
def test_columns_of_tables_and_of_words_are_not_mixed(changes, message):
    with pytest.raises(ValueError, match=message):
        small("tagging", release("bert"), "words.tsv", None, **settings(**changes))


def test_folds_count_in_what_runs_remember_of_their_examples(tmp_path):
    config = get_config("tagging")
    for key, value in settings().items():
        config.data[key.removeprefix("data__")] = value
    first, *_ = task_of(config).read([str(write_words(tmp_path / "words.tsv", 2))], training=True)
    assert (first.group, first.tags.count("_"), len(first.words)) == ("0", 5, 6)
    digest = lambda example: _digests(Examples([example], [], []))["train"]
    assert digest(first) != digest(first._replace(group="1"))
    before = (
        "TaggedExample(id='1', place='', words=('cat',), tags=('O',), spaces=None)"  # without folds, as in runs then
    )
    assert digest(TaggedExample("1", "f", ("cat",), ("O",))) == hashlib.sha256(before.encode()).hexdigest()


def vectors(model, examples):
    """Returns the frozen vectors of the tagged words [N, D] and their numbers of labels [N]."""
    units, evaluator = model.evaluator.units, model.evaluator
    rows = evaluator.task.rows(examples, units, training=False)
    packer = Packer(units, len(rows))
    length = max(row.joined.length for row in rows)
    whole = packer.inputs(rows, Group(length, [[n] for n in range(len(rows))], len(rows)))
    inputs = jax.tree.map(lambda x: x[0], whole)
    states = jax.jit(lambda params: units.states(model.pretrained.config, params, inputs))(model.params)
    at = [int(np.flatnonzero(row.targets["weight"])[0]) for row in rows]
    labels = [int(row.targets["label"][place]) for row, place in zip(rows, at, strict=True)]
    return np.asarray(states)[np.arange(len(rows)), at], np.array(labels)


LEARNED = 1600  # with fewer, the least loss has weights that take thousands of steps


def test_a_frozen_model_with_a_linear_head_is_logistic_regression(tmp_path):
    """Trained until it stands still, it has the least loss that logistic regression has, and predicts what that does.

    Both see each passage equally often, so the least loss is the same; one epoch, since the best epoch would be kept.
    """
    linear_model = pytest.importorskip("sklearn.linear_model")
    train, dev = write_words(tmp_path / "train.tsv", LEARNED, times=5), write_words(tmp_path / "dev.tsv", 200, seed=1)
    config = small(
        "tagging", release("bert"), train, dev, train__epochs=1, data__batch_size=40, optim__head_learning_rate=0.1,
        **settings(data__fold_column=""),
    )  # fmt: skip
    frozen(config)
    with on_devices(1):
        (result,) = fine_tune(config, str(tmp_path / "run"))["runs"].values()
    model = FineTuned.from_checkpoint(tmp_path / "run")
    train_X, train_N = vectors(model, model.task.read([str(train)], training=True)[:LEARNED])
    dev_X, dev_N = vectors(model, model.task.read([str(dev)], training=False))
    exact = linear_model.LogisticRegression(C=np.inf, max_iter=5000).fit(train_X, train_N)
    label = {name: np.asarray(value) for name, value in model.pretrained.params["label"].items()}
    logits = train_X @ label["kernel"] + label["bias"]
    ours = (np.logaddexp.reduce(logits, axis=1) - logits[np.arange(LEARNED), train_N]).mean()
    least = -np.log(exact.predict_proba(train_X)[np.arange(LEARNED), train_N]).mean()
    assert 0.5 < least < 0.67  # neither separable nor hopeless: knowing nothing gives 0.69
    assert least - 1e-4 < ours < least * 1.02
    predicted = (dev_X @ label["kernel"] + label["bias"]).argmax(axis=1)
    assert (predicted == exact.predict(dev_X)).mean() > 0.8
    assert result["dev"]["accuracy"] == pytest.approx((predicted == dev_N).mean())
    assert abs(result["dev"]["accuracy"] - exact.score(dev_X, dev_N)) <= 0.05
