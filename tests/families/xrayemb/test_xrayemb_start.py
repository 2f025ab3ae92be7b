"""Tests that the model which second pre-training starts from must fit the config, before any text is read."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import pytest
from small_xrayemb import xrayemb
from tiny_models import release

from charlm.config import get_config
from charlm.convert.files import new_folder
from charlm.convert.model import Model
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb import objective
from charlm.families.xrayemb.conversion import XRayEmbConverter
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import encoder_config
from charlm.families.xrayemb.shape import XRayStart, model_config, read_start, resolve

TOKENIZER = SimpleNamespace(size=90, family="bert")


def said():
    """Returns a config of a small model."""
    config = get_config("xrayemb")
    config.init_from = "runs/xray"
    config.data.max_length = 16
    config.model.update({"hidden": 16, "heads": 2, "layers": 1, "ffn": 32, "max_positions": 32})
    config.model.update({"char_embedding": 8, "char_hidden": 8, "generator_hidden": 6})
    return config


def start_of(config):
    """Returns the start that a run with that config leaves."""
    data = SimpleNamespace(tokenizer=TOKENIZER, chars=SimpleNamespace(size=30))
    shape = model_config(config, data, resolve(config, data, None))
    return data, XRayStart(None, None, "runs/xray/8", None, config_to_dict(shape) | {"backbone": "bert"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 3, "heads": 4}, "model.heads=4, model.layers=3, but init_from=runs/xray is another model; set "
         "--config.model.heads=2 --config.model.layers=1"),
        ({"max_positions": 20}, "model.max_positions=20, but init_from=runs/xray is another model; set "
         "--config.model.max_positions=32"),
        ({"char_hidden": 6, "generator_hidden": 7}, "model.char_hidden=6, model.generator_hidden=7, but init_from=runs/"
         "xray is another model; set --config.model.char_hidden=8 --config.model.generator_hidden=6"),
        ({"char_hidden": 0, "projections": 2}, "model.char_hidden=0, model.projections=2, but init_from=runs/xray is "
         "another model; set --config.model.char_hidden=8 --config.model.projections=1"),
        ({"char_embedding": 9, "generator_layers": 1}, "set --config.model.char_embedding=8 --config.model.generator_"
         "layers=2"),
        ({"encoder": "lstm", "encoder_layers": 3}, "model.encoder=lstm, but init_from=runs/xray is another model; set "
         "--config.model.encoder=conv"),
    ],
)  # fmt: skip
def test_another_shape_is_named_with_the_way_out(changes, message):
    config = said()
    data, start = start_of(config)
    assert resolve(config, data, start)["max_positions"] == 32
    config.model.update(changes)
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        resolve(config, data, start)


def test_dropout_and_initialiser_of_the_encoder_have_keys():
    """Unset, they are the authors'; the backbone's keys are not the encoder's."""
    config = said()
    config.model.update({"dropout": 0.3, "initializer": "bert"})
    encoder = start_of(config)[1].stored["encoder"]
    assert (encoder["dropout"], encoder["initializer"]) == (0.0, "torch")
    config.model.update({"char_dropout": 0.2, "char_initializer": "lecun"})
    encoder = start_of(config)[1].stored["encoder"]
    assert (encoder["dropout"], encoder["initializer"]) == (0.2, "lecun")


@pytest.mark.parametrize("kind", ["conv", "lstm", "transformer"])
def test_what_is_unset_is_the_authors_and_fits(kind):
    config = said()
    config.model.update({"encoder": kind, "char_hidden": 0})
    data, start = start_of(config)
    theirs = encoder_config(kind).hidden
    assert start.stored["encoder"]["hidden"] == theirs
    unset = resolve(config, data, start)
    config.model.char_hidden = theirs
    assert resolve(config, data, start) == unset, "said or unset is the same"


def test_sizes_without_a_key_are_named():
    config = said()
    config.model.update({"encoder": "transformer", "char_hidden": 16})
    data, start = start_of(config)
    other = start.stored | {"encoder": start.stored["encoder"] | {"heads": 4}}
    with pytest.raises(ValueError, match="its encoder has heads=4, and there is no key for that"):
        resolve(config, data, dataclasses.replace(start, stored=other))
    config = said()
    data, start = start_of(config)
    other = start.stored | {"encoder": start.stored["encoder"] | {"char_embedding": 9}}
    with pytest.raises(ValueError, match="char_embedding=9 in its encoder and 8 in its generator"):
        resolve(config, data, dataclasses.replace(start, stored=other))
    with pytest.raises(ValueError, match="init_from: runs/xray/8: type_vocab=1, but XRayEmb on a bert has 2"):
        resolve(config, data, dataclasses.replace(start, stored=start.stored | {"type_vocab": 1}))


def saved(folder, backbone, generator):
    """Returns a checkpoint of a tiny XRayEmb; its parameters are never read."""
    model, converter = xrayemb(backbone), XRayEmbConverter()
    fields = config_to_dict(model.config)
    if generator:
        chars = fields["encoder"]["char_vocab_size"]
        fields["generator"] = config_to_dict(XRDecoderConfig(char_vocab_size=chars, vector=model.config.hidden))
    head = "causal_lm" if backbone == "gpt2" else "masked_lm"
    metadata = {**model.metadata, "head": head, "model": fields}
    with new_folder(folder) as place:
        converter.save(Model(model.params, metadata, model.folder, model.folder), place)
    return folder


def test_an_xrayemb_without_a_generator_is_no_start(tmp_path):
    with pytest.raises(ValueError, match="with the head masked_lm and no generator; second pre-training goes on from"):
        read_start(str(saved(tmp_path / "xray", "bert", generator=False)))


@pytest.mark.parametrize("of", ["backbone", "xrayemb"])
def test_masked_generation_on_a_gpt2_is_noticed_before_text_is_read(tmp_path, monkeypatch, of):
    config = get_config("xrayemb")
    config.init_from = str(release("gpt2") if of == "backbone" else saved(tmp_path / "xray", "gpt2", generator=True))
    config.policy.generate = "masked"
    monkeypatch.setattr(objective, "prepare_xray", lambda *_: "read")
    with pytest.raises(ValueError, match=r"model\.backbone=gpt2: set --config\.policy\.generate=all"):
        objective.SecondPretraining.prepare(config)
    config.loss.generation = 0.0  # nothing is generated
    assert objective.SecondPretraining.prepare(config) == "read"
