"""Tests CharacterBERT's pre-training: it learns, resumes to the bit, starts from others, same on eight devices."""

from __future__ import annotations

import dataclasses
import json
import signal
from typing import NamedTuple

import jax
import numpy as np
import pytest
from small_characterbert import LENGTH, small_characterbert_config
from small_run import metrics_without_timings, on_devices, python, write_text

import charlm.training.train
from charlm.config import to_json, validate
from charlm.core import checkpoint as checkpoints
from charlm.core.flops import TotalLengths
from charlm.core.sharding import collectives, path_name
from charlm.data.streams import SequenceStream
from charlm.data.text_records import TextRecord
from charlm.families.characterbert.characters import CLS_WORD, MASK_WORD, SEP_WORD, spell_rows
from charlm.families.characterbert.flops import characterbert_training, cnn_forward
from charlm.families.characterbert.sequences import WholeWords, WordMaker, hiding_of
from charlm.families.characterbert.vocab import WORD_VOCAB_FILE, WordVocab
from charlm.families.lookup import prepare
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.flops import bert_forward
from charlm.training.progress import read_metrics
from charlm.training.run import build
from charlm.training.train import train


class Finished(NamedTuple):
    """A finished run of eight steps on one device."""

    folder: object
    run: object
    log: list

    def config(self, **changes):
        """Returns a copy of its config, with changes written section__key=value."""
        config = small_characterbert_config(self.folder / "text.txt", self.folder / "cache")
        config.update_from_flattened_dict({name.replace("__", "."): value for name, value in changes.items()})
        return config

    @property
    def workdir(self):
        return self.folder / "run"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("characterbert")
    write_text(folder / "text.txt")
    made, lines = [], []
    keep = lambda *arguments: made.append(build(*arguments)) or made[0]
    with on_devices(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(charlm.training.train, "build", keep)
        patch.setattr("charlm.families.spelled.masked_lm.log.info", lambda *args: lines.append(args[0] % args[1:]))
        config = small_characterbert_config(folder / "text.txt", folder / "cache")
        config.train.examples = 2
        train(config, str(folder / "run"))
    return Finished(folder, made[0], lines)


def saved_state(finished, workdir):
    batches = iter(finished.run.train_batches)
    try:
        state = checkpoints.load(checkpoints.find(workdir), finished.run.abstract_state, batches)
        return jax.device_get(state), next(batches)
    finally:
        batches.close()


# ---- Sequences ----


def maker_of(words, rate=0.3, shares=(0.8, 0.1)):
    vocab = WordVocab(words)
    return WordMaker(WholeWords(True), LENGTH, 0, vocab, hiding_of(vocab, rate, *shares), 12)


def record(count, seed=0):
    rng = np.random.default_rng(seed)
    words = [str(word) for word in rng.choice(["The", "cat", "naïve", "dog", "xyz", "ran"], count)]
    return TextRecord.of([count], words, [True] * count), words


def test_every_word_once_in_order_and_only_known_ones_are_hidden():
    maker, (one, words) = maker_of(["the", "cat", "dog"]), record(400)
    sequences = list(iter(SequenceStream(iter([one]), maker).next, None))
    normal = [word.lower().replace("ï", "i") for word in words]
    assert [word for s in sequences for word in s.pieces] == normal
    ends = spell_rows([CLS_WORD, SEP_WORD, MASK_WORD], 12)
    hidden = known = masked = kept = 0
    for s in sequences:
        np.testing.assert_array_equal(s.rows_TC[[0, -1]], ends[:2])
        assert s.labels_T[0] == s.labels_T[-1] == -1
        plain = spell_rows(s.pieces, 12)
        for word, label, row, own in zip(s.pieces, s.labels_T[1:-1], s.rows_TC[1:-1], plain, strict=True):
            assert label == -1 or maker.vocab.words[label] == word
            known += maker.vocab.id(word) is not None
            if label == -1:
                np.testing.assert_array_equal(row, own)
                continue
            hidden += 1
            masked += (row == ends[2]).all()
            kept += (row == own).all()
    assert abs(hidden - 0.3 * 400) <= len(sequences)  # of all words, though only some may be chosen
    assert 0.6 < masked / hidden < 0.95
    assert 0 < kept < hidden < known
    one, two = maker.halves(sequences[0])
    assert one.pieces + two.pieces == sequences[0].pieces


def test_all_is_hidden_where_few_words_are_known():
    maker, (one, _) = maker_of(["dog"], rate=0.9, shares=(1.0, 0.0)), record(20)
    (sequence,) = iter(SequenceStream(iter([one]), maker).next, None)
    assert [label >= 0 for label in sequence.labels_T[1:-1]] == [word == "dog" for word in sequence.pieces]


# ---- An unbroken run ----


def test_the_loss_falls_and_every_parameter_moves(finished):
    lines = [line for line in read_metrics(finished.workdir) if "heldout_loss" in line]
    assert [line["step"] for line in lines] == [0, 4, 8]
    losses = [line["heldout_loss"] for line in lines]
    assert losses == sorted(losses, reverse=True)
    before = jax.device_get(finished.run.init().params)
    after = saved_state(finished, finished.workdir)[0].params
    moved = jax.tree.map(lambda x, y: float(np.abs(x - y).max()), after, before)
    still = {path_name(path) for path, change in jax.tree_util.tree_leaves_with_path(moved) if change < 1e-3}
    assert all(name.endswith("key/bias") for name in still)  # a bias of all keys alike changes no probability
    names = {path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(after)}
    assert not any("token" in name for name in names)  # there is no table of subwords
    hidden = [line for line in finished.log if line.startswith("hidden")]
    assert len(hidden) == 2
    assert all("[[MASK], right: " in line for line in hidden)


def test_a_checkpoint_can_be_used_by_itself_and_elsewhere(finished, tmp_path):
    vocab = finished.run.objective.data.vocab
    assert vocab.size == 20
    for folder in (checkpoints.files_of(checkpoints.find(finished.workdir)), finished.workdir):
        assert WordVocab.load(folder / WORD_VOCAB_FILE).digest() == vocab.digest()
    with on_devices(1):
        found = from_pretrained(finished.workdir)
        found.save_pretrained(tmp_path / "theirs", format="pytorch")
        again = from_pretrained(tmp_path / "theirs")
    assert (found.family, found.head) == ("characterbert", "masked_lm")
    assert dataclasses.replace(again.config, initializer="lecun") == found.config  # which theirs do not say
    assert found.config == finished.run.objective.model.config
    trained = saved_state(finished, finished.workdir)[0].params
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(found.params), trained)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again.params), trained)


def test_operations_by_hand(finished):
    config = finished.run.objective.model.config
    assert cnn_forward(config, TotalLengths(10, 60, 0)) == 2 * (60 * 4 * (1 * 8 + 3 * 8) + 10 * (2 * 16 * 16 + 16 * 16))
    batches = iter(finished.run.train_batches)
    batch = next(batches)
    batches.close()
    words = batch.inputs.mask_SBL.sum(axis=-1).astype(float)
    encoder = bert_forward(config, TotalLengths(np.count_nonzero(words), words.sum(), (words**2).sum()))
    spelled = [chars[chars.any(axis=-1)] for chars in batch.inputs.chars]
    distinct = TotalLengths(sum(map(len, spelled)), sum(np.count_nonzero(chars) for chars in spelled), 0)
    labels = np.count_nonzero(batch.labels_SM >= 0)
    want = 3 * (cnn_forward(config, distinct) + encoder + 2 * labels * 16 * (16 + 20))
    assert characterbert_training(config, batch) == want


# ---- Stopped and started again, other devices ----


@pytest.mark.slow
def test_killed_at_once_and_started_again(finished, tmp_path, monkeypatch):
    """The end is the same to the bit."""
    code = f"""
import json, os
from pathlib import Path
from charlm.config import from_dict
from charlm.training.loop import Loop
from charlm.training.train import train
from small_run import on_devices
step = Loop._step
Loop._step = lambda self, now: os.kill(os.getpid(), 9) if now == 6 else step(self, now)
with on_devices(1):
    train(from_dict(json.loads(Path({str(tmp_path / "config.json")!r}).read_text())), {str(tmp_path / "run")!r})
"""
    (tmp_path / "config.json").write_text(to_json(finished.config()))
    done = python("-c", code)
    assert done.returncode == -signal.SIGKILL, done.stderr
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["data"]["bucket_rows"] == list(finished.run.objective.shape.rows)
    monkeypatch.setattr(charlm.training.train, "build", lambda config, data: finished.run)
    assert train(finished.config(), str(tmp_path / "run"))
    whole = saved_state(finished, finished.workdir)
    jax.tree.map(np.testing.assert_array_equal, saved_state(finished, tmp_path / "run"), whole)
    assert metrics_without_timings(tmp_path / "run") == metrics_without_timings(finished.workdir)


def test_eight_devices_compute_what_one_does(finished):
    iterator = iter(finished.run.train_batches)
    batches = [next(iterator) for _ in range(2)]
    iterator.close()
    start = saved_state(finished, finished.workdir)[0]
    config, results = finished.config(), []
    config.mesh.update({"data": 2, "fsdp": 2, "model": 2})
    for run in (finished.run, build(config, prepare(config))):
        state = jax.device_put(start, jax.tree.map(lambda x: x.sharding, run.abstract_state))
        for batch in batches:
            state, sums, norm = run.train_step(state, run.place(batch))
            results.append(jax.device_get((*sums, norm)))
    np.testing.assert_allclose(results[2], results[0], rtol=2e-5)
    np.testing.assert_allclose(results[3], results[1], rtol=1e-3)  # the second step sees an update


def test_data_parallel_steps_send_gradients_alone(finished):
    config = finished.config()
    config.mesh.update({"data": 8})
    run = build(config, prepare(config))
    step = run.train_step.lower(run.abstract_state, run.place(run.empty)).compile()
    assert collectives(step.as_text()).keys() == {"all-reduce"}


# ---- Where it starts, and what is refused ----


def test_another_one_is_taken_over_but_for_other_words(finished, tmp_path):
    fresh = finished.run.init().params
    theirs = saved_state(finished, finished.workdir)[0].params
    same = finished.run.objective.load_params(str(finished.workdir), None, fresh)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(same), theirs)
    (tmp_path / "words.txt").write_text(
        "".join(f"{word}\n" for word in sorted(finished.run.objective.data.vocab.words))
    )
    config = finished.config(text__mlm_vocab=str(tmp_path / "words.txt"))
    data = prepare(config)
    with pytest.raises(ValueError, match=r"predicts other words; set text\.mlm_vocab=.*/mlm_vocab\.txt"):
        finished.run.objective.check_vocab(checkpoints.find(finished.workdir), data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finished.run.objective, "data", data)
        other = finished.run.objective.load_params(str(finished.workdir), None, fresh)
    np.testing.assert_array_equal(other["head"]["output_kernel"], fresh["head"]["output_kernel"])
    np.testing.assert_array_equal(other["head"]["transform"]["kernel"], theirs["head"]["transform"]["kernel"])
    np.testing.assert_array_equal(other["cnn"]["chars"]["embedding"], theirs["cnn"]["chars"]["embedding"])


def test_one_with_other_positions_is_not_taken_over(finished):
    config = finished.config(model__position="rotary")
    with on_devices(1):
        run = build(config, finished.run.objective.data)
    fresh = run.init().params
    assert fresh["bert"]["embed"].keys() == {"norm", "type"}
    with pytest.raises(ValueError, match=r"model\.position=rotary, but init_from=.* has absolute positions"):
        run.objective.load_params(str(finished.workdir), None, fresh)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__max_length": 33}, r"data\.max_length=33 must lie in \[8, 32\], model\.max_positions"),
        (
            {"model__filters": (8,)},
            r"model\.windows=\(1, 3\) and model\.filters=\(8,\) must name equally",
        ),
        (
            {"model__position": "rotary", "model__hidden": 18},
            r"turns pairs of columns, but a head has 9: expected an even",
        ),
        ({"model__position": "relative"}, r"model\.position='relative' is not one of absolute, rotary"),
        ({"model__char_slots": 2}, r"model\.char_slots=2 must lie in \[3, 1024\]"),
    ],
)
def test_keys_that_do_not_fit_are_named(finished, changes, message):
    with pytest.raises(ValueError, match=message):
        validate(finished.config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__batch_size": 9}, r"data\.batch_size=9 must be a multiple of data\.accumulation=1 x data\.table_shar"),
        (
            {"data__bucket_slots": (3, 5)},
            r"data\.bucket_slots=\(3, 5\) must ascend and end at 12, the",
        ),
        ({"text__mlm_vocab": "/none.txt"}, r"text\.mlm_vocab='/none\.txt': No such file or directory"),
    ],
)
def test_what_does_not_fit_is_named(finished, changes, message):
    config = finished.config(**changes)
    with on_devices(1), pytest.raises(ValueError, match=message):
        build(config, prepare(config))
