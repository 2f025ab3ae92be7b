"""Tests that states of the released XR-Enc and XR-Dec are imported and exported tensor for tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from programs import drawn
from safetensors.numpy import load_file
from xrayemb_states import decoder_state, encoder_state

from charlm.families.xrayemb import tensors as states
from charlm.families.xrayemb.encoder import XREncoder, XREncoderConfig

GOLDENS = Path(__file__).resolve().parents[2] / "goldens" / "xrayemb"


def golden(name):
    return load_file(GOLDENS / f"{name}.safetensors")


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_encoders_go_back_as_they_came():
    conv = golden("enc_conv_a")
    both = {f"tdtemb.vectorizer.{name}": value for name, value in conv.items()}
    config, params = states.read_encoder(both | {"tdtgen.proj1.bias": np.zeros(3, np.float32)}, "a file")
    assert (config.kind, config.hidden, config.output, config.char_vocab_size) == ("conv", 10, 16, 31)
    same(encoder_state(config, params), conv)
    same(encoder_state(config, params, states.ENCODER), both)
    table = params["body"]["chars"]["embedding"]
    np.testing.assert_array_equal(table, np.concatenate([conv["char_embs.weight"][-1:], conv["char_embs.weight"][:-1]]))
    transformer = golden("enc_transformer")
    config, params = states.read_encoder(transformer, "a file", heads=4, char_slots=12)
    assert (config.kind, config.heads, config.layers, config.ffn, config.char_slots) == ("transformer", 4, 2, 24, 12)
    unread = {name: 0 * value for name, value in transformer.items() if "pooler" in name}
    assert len(unread) == 2
    same(encoder_state(config, params), transformer | unread)


def test_what_an_lstm_begins_with_is_kept():
    lstm, start = golden("enc_lstm"), np.load(GOLDENS / "enc_lstm.npz")["h_0"]
    config, params = states.read_encoder(lstm, "a file", start=start)
    assert (config.kind, config.hidden, config.layers, config.projections, config.output) == ("lstm", 7, 2, 2, 16)
    state = encoder_state(config, params)
    same(state, lstm | {"h_0": start[:, 0]})
    same(encoder_state(*states.read_encoder(state, "a file")), state)
    assert not states.read_encoder(lstm, "a file")[1]["body"]["start_state"].any()


def test_two_projections():
    conv = golden("enc_conv_a")
    conv |= {"proj2.weight": np.eye(16, dtype=np.float32), "proj2.bias": np.arange(16, dtype=np.float32)}
    config, params = states.read_encoder(conv, "a file")
    assert config.projections == 2
    same(encoder_state(config, params), conv)


def test_generators_go_back_as_they_came():
    decoder = golden("dec_a")
    both = {f"tdtgen.{name}": value for name, value in decoder.items()}
    config, params = states.read_decoder(both | {"tdtemb.vectorizer.proj.bias": np.zeros(3)}, "a file")
    assert (config.char_vocab_size, config.char_embedding, config.hidden, config.layers, config.vector) == (
        32, 12, 14, 2, 16,
    )  # fmt: skip
    same(decoder_state(config, params), decoder)
    same(decoder_state(config, params, states.GENERATOR), both)


def test_states_that_do_not_fit():
    with pytest.raises(ValueError, match=r"a file holds no XR-Enc: expected one of bi_conv\.weight"):
        states.read_encoder(golden("dec_a"), "a file")
    with pytest.raises(ValueError, match=r"a file holds no lstm\.weight_hh_l0"):
        states.read_decoder(golden("enc_conv_a"), "a file")
    conv = golden("enc_conv_a")
    conv["more"] = conv.pop("tri_conv.bias")
    with pytest.raises(ValueError, match=r"missing tri_conv\.bias; unexpected more"):
        states.read_encoder(conv, "a file")


def test_tensors_are_named_as_the_file_has_them():
    conv = {f"tdtemb.vectorizer.{name}": value for name, value in golden("enc_conv_a").items()}
    more = conv | {"tdtemb.vectorizer.more": np.zeros(1, np.float32)}
    with pytest.raises(ValueError, match=r"unexpected tdtemb\.vectorizer\.more$"):
        states.read_encoder(more, "a file")
    with pytest.raises(ValueError, match=r"a file holds no tdtemb\.vectorizer\.proj\.weight"):
        states.read_encoder({name: value for name, value in conv.items() if "proj.weight" not in name}, "a file")
    decoder = {f"tdtgen.{name}": value for name, value in golden("dec_a").items()}
    with pytest.raises(ValueError, match=r"unexpected tdtgen\.more$"):
        states.read_decoder(decoder | {"tdtgen.more": np.zeros(1, np.float32)}, "a file")
    with pytest.raises(ValueError, match=r"a file holds no tdtgen\.h_0\.weight"):
        states.read_decoder({name: value for name, value in decoder.items() if "h_0" not in name}, "a file")


def test_heads_of_a_transformer_are_those_that_are_said():
    narrow = XREncoderConfig(kind="transformer", char_vocab_size=9, hidden=6, heads=2, ffn=4, layers=1, output=5)
    state = encoder_state(narrow, drawn(XREncoder(narrow), np.ones((1, 4), np.int32)))
    assert states.read_encoder(state, "a file", heads=3)[0].heads == 3
    with pytest.raises(ValueError, match="hidden=6 is not a multiple of heads=8"):
        states.read_encoder(state, "a file")
