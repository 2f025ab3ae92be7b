"""Tests taggers on the states of a frozen CharBERT: which channels they read, that they learn, and that it stays."""

from __future__ import annotations

import numpy as np
import pytest
from finetune.tiny_tasks import write_conll
from flax import traverse_util
from programs import applied, drawn
from small_run import on_devices
from tiny_models import release

from charlm.config import load_config_file
from charlm.families.charbert.heads import CharBertForLabels
from charlm.families.charbert.model import CHANNELS, CharBert, CharBertConfig
from charlm.families.charbert.tensors import smallest_batch
from charlm.families.pretrained import from_pretrained
from charlm.finetune.run import fine_tune

SHAPE = {
    "vocab_size": 20, "char_vocab_size": 12, "char_hidden": 8, "word_vocab_size": 5, "hidden": 16, "heads": 2,
    "layers": 1, "ffn": 32, "max_positions": 16, "windows": (3,),
}  # fmt: skip


def tagger_of(channels):
    return CharBertForLabels(CharBertConfig(**SHAPE, channels=channels), labels=3, kind="token_classification")


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
    config.optim.learning_rate = 3e-2
    for name, value in changes.items():
        config.model[name] = value
    return config


@pytest.mark.parametrize(("family", "channels"), [("charbert", "characters"), ("bert", "")])
def test_a_tagger_learns_on_a_frozen_model(family, channels, tmp_path):
    config = features_of(tmp_path, family, **({"channels": channels} if channels else {}))
    before = traverse_util.flatten_dict(from_pretrained(config.init_from).params, sep="/")
    with on_devices(1):
        summary = fine_tune(config, str(tmp_path / "run"))
    model = from_pretrained(tmp_path / "run")
    after = traverse_util.flatten_dict(model.params, sep="/")
    trained = {name for name in after if name.startswith("label/")}
    same = {name for name in after.keys() & before.keys() if np.array_equal(after[name], before[name])}
    assert same == after.keys() - trained
    assert len(same) > 10
    assert summary["scores"]["dev"]["f1"]["mean"] > 0.35  # 0 for one that only knows how frequent tags are
    if channels:  # one channel of the two is read, and the stored model knows which
        assert (model.config.channels, after["label/kernel"].shape[0]) == (channels, model.config.hidden)


def test_channels_are_of_charbert_alone(tmp_path):
    config = features_of(tmp_path, "bert", channels="tokens")
    with pytest.raises(ValueError, match=r"model\.channels=tokens needs a model of the kind CharBERT"):
        fine_tune(config, str(tmp_path / "run"))
