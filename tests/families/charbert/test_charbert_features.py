"""Tests taggers on the states of a frozen CharBERT: which channels they read, that they learn, and that it stays."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from again import again
from charbert_release import bring, write_release
from finetune.broken_runs import check_resumed
from finetune.tiny_tasks import write_conll
from flax import traverse_util
from lstm_equations import tagged
from programs import applied, drawn
from small_run import on_devices
from tiny_models import release

import charlm
from charlm.config import load_config_file
from charlm.convert.abstract import abstract_params
from charlm.convert.heads import LSTM_768, READ_BY
from charlm.families import labels
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.char_inputs import lay_out
from charlm.families.charbert.heads import CharBertForLabels
from charlm.families.charbert.model import CHANNELS, CharBert, CharBertConfig
from charlm.families.charbert.tensors import smallest_batch
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.label_heads import label_head_of
from charlm.finetune.model import first_params, with_task
from charlm.finetune.run import fine_tune
from charlm.tasks.classification import Classification
from charlm.tasks.columns import Columns
from charlm.tasks.tagging import Tagging

SHAPE = {
    "vocab_size": 20, "char_vocab_size": 12, "char_hidden": 8, "word_vocab_size": 5, "hidden": 16, "heads": 2,
    "layers": 1, "ffn": 32, "max_positions": 16, "windows": (3,),
}  # fmt: skip


LENGTHS = (5, 3)  # subwords of two texts


def tagger_of(channels, label_head="linear", **changes):
    config = CharBertConfig(**SHAPE, channels=channels, **changes)
    return CharBertForLabels(config, labels=3, kind="token_classification", label_head=label_head)


def batch_of(positions, junk=0):
    """Returns the two texts in rows of so many positions, with `junk` at padding."""
    rng, slots, rows = np.random.default_rng(3), 24, []
    for real in LENGTHS:
        ids = np.full(positions, junk)
        ids[:real] = rng.integers(3, SHAPE["vocab_size"], real)
        lengths = rng.integers(1, 4, real)
        row = lay_out(lengths, rng.integers(1, SHAPE["char_vocab_size"], lengths.sum()), positions, slots)
        rows.append((ids, np.arange(positions) < real, row.chars_N, row.starts_L, row.ends_L))
    ids, mask, *characters = (np.stack(column) for column in zip(*rows, strict=True))
    return CharBertBatch(ids.astype(np.int32), None, mask, *(x.astype(np.int32) for x in characters))


def expected(output, channels):
    tokens, chars = np.asarray(output.tokens_BLD), np.asarray(output.chars_BLD)
    return {
        "both": np.concatenate([tokens, chars], axis=-1), "sum": tokens + chars, "tokens": tokens, "characters": chars,
    }[channels]  # fmt: skip


@pytest.mark.parametrize("channels", CHANNELS)
def test_the_head_reads_the_channels_that_are_named(channels):
    model, batch = tagger_of(channels), smallest_batch()
    params = drawn(model, batch)
    encoder = CharBert(CharBertConfig(**SHAPE))
    read_BLE = expected(applied(encoder)(params["charbert"], batch), channels)
    logits = read_BLE @ params["label"]["kernel"] + params["label"]["bias"]
    np.testing.assert_allclose(applied(model)(params, batch), logits, atol=1e-5)
    assert read_BLE.shape[-1] == model.config.read_width


@pytest.mark.parametrize("channels", CHANNELS)
def test_the_tagger_of_figure_6_reads_the_states_of_each_text_from_both_ends(channels):
    model, batch = tagger_of(channels, LSTM_768), batch_of(5)
    params = drawn(model, batch, scale=0.1)
    output = applied(CharBert(CharBertConfig(**SHAPE)))(params["charbert"], batch)
    read_BLE = expected(output, channels).astype(np.float64)
    assert params["lstm"]["layer_0"]["forward"]["input_kernel"].shape == (model.config.read_width, 4 * 768)
    assert params["label"]["kernel"].shape == (2 * 768, 3)
    found = applied(model)(params, batch)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(found[row, :length], tagged(read_BLE[row, :length], params), atol=2e-4)
    assert np.ptp(found, axis=(0, 1)).min() > 1e-2  # words differ


def test_padding_changes_no_tag():
    model = tagger_of("both", LSTM_768)
    params = drawn(model, batch_of(5), scale=0.1)
    found, wide = applied(model)(params, batch_of(5)), applied(model)(params, batch_of(9, junk=7))
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(wide[row, :length], found[row, :length], atol=2e-5)


def test_the_lstm_sees_no_padding_where_the_released_encoder_does():
    model, batch = tagger_of("both", LSTM_768, compat_reference=True), batch_of(9, junk=7)
    params = drawn(model, batch, scale=0.1)
    states_BLE = np.asarray(applied(CharBert(model.config))(params["charbert"], batch).both_BLE, np.float64)
    found = applied(model)(params, batch)[1, :3]
    np.testing.assert_allclose(found, tagged(states_BLE[1, :3], params), atol=2e-4)


TASKS = {
    "token_classification": Tagging(labels=("O", "B-X", "I-X"), entities=True),
    "sequence_classification": Classification(Columns(), ("bad", "fair", "good")),
}


@pytest.mark.parametrize(
    ("kind", "label_head"),
    [
        ("bert", LSTM_768),
        ("roberta", LSTM_768),
        ("bert", "mean"),
        again("bert", "lstm"),
        again("bert", "perceptron"),
    ],
)
def test_a_checkpoint_holds_the_head_and_the_released_code_does_not_get_it(kind, label_head, tmp_path):
    write_release(tmp_path / "release", kind)
    assert bring(tmp_path / "release", tmp_path / "language_model") == 0
    source, task = from_pretrained(tmp_path / "language_model"), TASKS[READ_BY[label_head]]
    model, target = with_task(source, task, label_head)
    model = dataclasses.replace(model, params=first_params(source, model, target, 0))
    own = {"mean": set(), "perceptron": {"transform"}}.get(label_head, {"lstm"})
    assert set(model.params) == {"charbert", "label", *own}
    model.save_pretrained(tmp_path / "ours")
    back = from_pretrained(tmp_path / "ours")
    assert (back.head, label_head_of(back.metadata), back.model) == (model.head, label_head, model.model)
    jax.tree.map(np.testing.assert_array_equal, back.params, model.params)
    with pytest.raises(ValueError, match=f"ours cannot be exported to PyTorch: .* label_head={label_head}; fine-tune"):
        back.save_pretrained(tmp_path / "theirs", format="pytorch")
    assert not (tmp_path / "theirs").exists()
    linear, _ = with_task(back, task)
    assert label_head_of(linear.metadata) == "linear"


@pytest.fixture
def _narrow(monkeypatch):
    """Gives the LSTM fewer units, since 768 take long to train on processors."""
    abstract_params.__globals__["_traced"].cache_clear()  # equal modules may have other sizes
    monkeypatch.setitem(labels.LSTMS, LSTM_768, labels.LSTMSize(units=24, dropout=0.0))
    yield
    abstract_params.__globals__["_traced"].cache_clear()


def test_other_channels_are_refused():
    with pytest.raises(ValueError, match="channels='token' is not one of both, tokens, characters, sum"):
        CharBertConfig(**SHAPE, channels="token")


def features_of(folder, family, **changes):
    config = load_config_file("configs/tag.py:features")
    config.init_from = str(release(family))
    config.data.train = (str(write_conll(folder / "train.conll", 160, 1)),)
    config.data.batch_size = config.data.eval_batch_size = 8
    config.data.max_length = 8
    config.train.epochs = 5
    config.optim.learning_rate = 1e-2
    for name, value in changes.items():
        config.model[name] = value
    return config


@pytest.mark.usefixtures("_narrow")
@pytest.mark.parametrize(("family", "channels"), [("charbert", "characters"), ("bert", "")])
def test_a_tagger_learns_on_a_frozen_model(family, channels, tmp_path):
    config = features_of(tmp_path, family, **({"channels": channels} if channels else {}))
    before = traverse_util.flatten_dict(from_pretrained(config.init_from).params, sep="/")
    with on_devices(1):
        summary = fine_tune(config, str(tmp_path / "run"))
    model = from_pretrained(tmp_path / "run")
    after = traverse_util.flatten_dict(model.params, sep="/")
    trained = {name for name in after if name.startswith(("label/", "lstm/"))}
    same = {name for name in after.keys() & before.keys() if np.array_equal(after[name], before[name])}
    assert same == after.keys() - trained
    assert len(same) > 10
    assert summary["scores"]["dev"]["f1"]["mean"] > 0.35  # 0 for one that only knows how frequent tags are
    width = after["lstm/layer_0/forward/input_kernel"].shape[0]
    if channels:  # one channel of the two is read, and the stored model knows which
        assert (model.config.channels, width) == (channels, model.config.hidden)
    dev = tmp_path / "run" / "predictions_dev.conll"
    written = [line.split() for line in dev.read_text(encoding="utf-8").split("\n\n")[0].splitlines()]
    found = charlm.load(tmp_path / "run")(" ".join(row[0] for row in written))
    assert [(tag.word, tag.label) for tag in found] == [(row[0], row[-1]) for row in written]


@pytest.mark.slow
@pytest.mark.usefixtures("_narrow")
def test_a_tagger_goes_on_bit_for_bit(tmp_path):
    config = features_of(tmp_path, "charbert", channels="both")
    config.train.epochs, config.train.checkpoint_every = 1, 5
    check_resumed(config, tmp_path, batches=12)


def test_channels_are_of_charbert_alone(tmp_path):
    config = features_of(tmp_path, "bert", channels="tokens")
    with pytest.raises(ValueError, match=r"model\.channels=tokens needs a model of the kind CharBERT"):
        fine_tune(config, str(tmp_path / "run"))
