"""Tests import of the released encoder and generator on a backbone by the command line, and their export."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import applied, drawn
from safetensors.numpy import load_file, save_file
from tiny_models import release
from xrayemb_states import decoder_state, encoder_state

from charlm.convert.__main__ import main
from charlm.families.lookup import converter_of
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.families.xrayemb import tensors as states
from charlm.families.xrayemb.chars import XRayChars, word_rows
from charlm.families.xrayemb.conversion import chars_of
from charlm.families.xrayemb.decoder import XRDecoder, XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoder, XREncoderConfig
from charlm.families.xrayemb.model import XRayEmbBertConfig

CHARS = XRayChars("abcdefghijklmnopqrstuvwxyz'")


def write_state(folder, width, generator=True):
    """Writes a state as the released code saves it, and its characters; returns its file and what made it."""
    folder.mkdir()
    encoder = XREncoderConfig(char_vocab_size=CHARS.size, char_embedding=6, hidden=5, output=width)
    module = XREncoder(encoder)
    params = drawn(module, np.ones((1, 4), np.int32))
    state = encoder_state(encoder, params, states.ENCODER)
    if generator:
        decoder = XRDecoderConfig(char_vocab_size=CHARS.size, char_embedding=6, hidden=5, vector=width)
        rows = np.ones((1, width), np.float32), np.ones((1, 4), np.int32)
        state |= decoder_state(decoder, drawn(XRDecoder(decoder), *rows), states.GENERATOR)
    save_file(state, folder / "xrayemb.safetensors")
    (folder / "chars.txt").write_text("".join(CHARS.chars), encoding="utf-8")
    return folder / "xrayemb.safetensors", lambda rows: applied(module)(params, rows)


def run(*arguments):
    return main([str(argument) for argument in arguments])


def error(capsys, *arguments):
    assert run(*arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(("backbone", "head"), [("bert", "masked_lm"), ("gpt2", "causal_lm")])
def test_they_are_put_on_a_backbone_and_come_back(tmp_path, backbone, head):
    behind = from_pretrained(release(backbone))
    file, vectors = write_state(tmp_path / "theirs", behind.config.hidden)
    assert run("import", f"--input={file}", f"--backbone={release(backbone)}", f"--output={tmp_path / 'ours'}") == 0
    model = from_pretrained(tmp_path / "ours")
    assert (model.family, model.head, chars_of(model)) == ("xrayemb", head, CHARS)
    rows = word_rows(["cat", "unknown-words"], CHARS)
    found = applied(model.model, method="vectors")(model.params, rows)
    np.testing.assert_array_equal(found, vectors(rows))
    name = "gpt2" if backbone == "gpt2" else "bert"
    behind_params = behind.params.get(name, behind.params)
    for path, value in jax.tree_util.tree_leaves_with_path(model.params[name]):
        theirs = behind_params
        for key in path:
            theirs = theirs[key.key]
        np.testing.assert_array_equal(value, theirs)
    assert run("export", f"--checkpoint={tmp_path / 'ours'}", f"--output={tmp_path / 'back'}") == 0
    back, first = load_file(tmp_path / "back" / "model.safetensors"), load_file(file)
    for tensor, value in first.items():
        np.testing.assert_array_equal(back[tensor], value, err_msg=tensor)
    assert run("import", f"--input={tmp_path / 'back'}", f"--output={tmp_path / 'again'}") == 0
    again = from_pretrained(tmp_path / "again")
    assert jax.tree.structure(again.params) == jax.tree.structure(model.params)
    for one, other in zip(jax.tree.leaves(again.params), jax.tree.leaves(model.params), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_encoder_alone_on_an_encoder_alone(tmp_path):
    assert run("import", f"--input={release('bert')}", "--head=encoder", f"--output={tmp_path / 'bert'}") == 0
    behind = from_pretrained(tmp_path / "bert")
    file, _ = write_state(tmp_path / "theirs", behind.config.hidden, generator=False)
    assert run("import", f"--input={file}", f"--backbone={tmp_path / 'bert'}", f"--output={tmp_path / 'ours'}") == 0
    model = from_pretrained(tmp_path / "ours")
    assert (model.head, model.config.generator, sorted(model.params)) == ("encoder", None, ["bert", "xr_enc"])


def with_others(file):
    """Writes a state of a whole model: that of a file, and some of its backbone's tensors; returns its file."""
    names = [f"tdtemb.bert.encoder.layer.{n}.output.dense.bias" for n in range(3)] + ["tdtemb.head.weight"]
    save_file(load_file(file) | {name: np.zeros(2, np.float32) for name in names}, file.parent / "whole.safetensors")
    return file.parent / "whole.safetensors"


def test_tensors_that_are_not_imported_are_named(tmp_path, log_lines):
    bert = release("bert")
    file, _ = write_state(tmp_path / "theirs", from_pretrained(bert).config.hidden)
    said = "not imported, the backbone is that of --backbone: "
    assert run("import", f"--input={file}", f"--backbone={bert}", f"--output={tmp_path / 'first'}") == 0
    assert said not in str(log_lines)
    whole = with_others(file)
    assert run("import", f"--input={whole}", f"--backbone={bert}", f"--output={tmp_path / 'second'}") == 0
    (line,) = [line for line in log_lines.lines if said in line]
    assert line == said + "tdtemb.bert.encoder.layer.[0-2].output.dense.bias, tdtemb.head.weight"


def test_a_state_of_theirs_can_be_inspected(tmp_path, capsys):
    file, _ = write_state(tmp_path / "theirs", 24)
    whole = with_others(file)
    for options in (["--family=xrayemb"], []):  # its names tell what it is
        assert run("inspect", f"--input={whole}", *options) == 0
        first, *lines = capsys.readouterr().out.splitlines()
        assert first == f"{whole}: XRayEmb, encoder and generator, {len(lines)} tensors"
        found = {line.split()[0]: line.split("float32")[1].strip() for line in lines}
        assert found["tdtemb.vectorizer.bi_conv.weight"] == "xr_enc/body/convolution_2/kernel (transposed)"
        assert found["tdtgen.lstm.bias_hh_l1"] == "xr_dec/lstm_1/state_bias"
        assert found["tdtemb.head.weight"] == "not imported: the backbone is that of --backbone"
        assert sum(what.startswith(("xr_enc/", "xr_dec/")) for what in found.values()) == len(load_file(file))
    alone, _ = write_state(tmp_path / "alone", 24, generator=False)
    bare = {name.removeprefix(states.ENCODER): value for name, value in load_file(alone).items()}
    save_file(bare, alone)
    assert run("inspect", f"--input={alone}", "--family=xrayemb") == 0
    said = capsys.readouterr().out
    assert "XRayEmb, encoder, 9 tensors\n" in said
    assert "\nchar_embs.weight" in said
    assert "not known" not in said
    assert "--head=encoder: " in error(capsys, "inspect", f"--input={file}", "--head=encoder")


def test_options_that_nothing_reads_are_refused(tmp_path, capsys):
    bert = release("bert")
    file, _ = write_state(tmp_path / "theirs", from_pretrained(bert).config.hidden)
    given = ("import", f"--input={file}", f"--backbone={bert}", f"--output={tmp_path / 'ours'}")
    assert "--model-config: not with --backbone; " in error(capsys, *given, "--model-config=x.json")
    assert "--heads=7: " in (line := error(capsys, *given, "--heads=7"))
    assert line.endswith("holds an encoder of the kind conv, which has none")
    assert not (tmp_path / "ours").exists()
    read = converter_of("xrayemb").read
    for name, option in (("heads", "--heads"), ("char_vocab", "--char-vocab"), ("model_config", "--model-config")):
        with pytest.raises(ValueError, match=rf"^{option}: config.json and xray_chars.json tell this here; "):
            read(str(file), **{name: 3 if name == "heads" else "x.json"})


def test_what_does_not_fit_is_one_line(tmp_path, capsys):
    bert = release("bert")
    width = from_pretrained(bert).config.hidden
    file, _ = write_state(tmp_path / "theirs", width)
    capsys.readouterr()
    to = f"--output={tmp_path / 'ours'}"
    line = error(capsys, "import", f"--input={file}", f"--backbone={tmp_path / 'none'}", to)
    assert "none" in line
    (tmp_path / "few.txt").write_text("abc", encoding="utf-8")
    given = f"--char-vocab={tmp_path / 'few.txt'}"
    line = error(capsys, "import", f"--input={file}", f"--backbone={bert}", given, to)
    assert "rows for 27 characters, but there are 3" in line
    (file.parent / "chars.txt").unlink()
    line = error(capsys, "import", f"--input={file}", f"--backbone={bert}", to)
    assert "chars.txt, and no --char-vocab was named: No such file" in line
    narrow, _ = write_state(tmp_path / "narrow", width + 1)
    line = error(capsys, "import", f"--input={narrow}", f"--backbone={bert}", to)
    assert f"the encoder's vectors are {width + 1} wide, the table's rows {width}" in line
    for options in (["--family=xrayemb"], []):
        line = error(capsys, "import", f"--input={file}", to, *options)
        assert "holds XR-Enc and XR-Dec of XRayEmb, and no config lies beside it; " in line
        assert "name a --backbone of" in line
    assert not (tmp_path / "ours").exists()


def test_heads_of_a_transformer_that_reads_characters(tmp_path):
    """No tensor tells them."""
    width = from_pretrained(release("bert")).config.hidden
    encoder = XREncoderConfig(
        "transformer", char_vocab_size=CHARS.size, hidden=16, char_embedding=16, output=width, layers=1, heads=2, ffn=8
    )
    params = drawn(XREncoder(encoder), np.ones((1, 4), np.int32), scale=1.0)
    (tmp_path / "theirs").mkdir()
    save_file(encoder_state(encoder, params, states.ENCODER), tmp_path / "theirs" / "xrayemb.safetensors")
    (tmp_path / "theirs" / "chars.txt").write_text("".join(CHARS.chars), encoding="utf-8")
    rows = word_rows(["cat", "unknown-words"], CHARS)
    want = applied(XREncoder(encoder))(params, rows)
    file, backbone = tmp_path / "theirs" / "xrayemb.safetensors", release("bert")
    to = f"--output={tmp_path / 'ours'}"
    assert run("import", f"--input={file}", f"--backbone={backbone}", "--heads=2", to) == 0
    model = from_pretrained(tmp_path / "ours")
    assert model.config.encoder.heads == 2
    found = applied(model.model, method="vectors")(model.params, rows)
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_a_backbone_with_labels_is_refused(tmp_path, capsys, monkeypatch):
    behind = dataclasses.replace(from_pretrained(release("bert")), head="sequence_classification")
    file, _ = write_state(tmp_path / "theirs", behind.config.hidden)
    monkeypatch.setattr("charlm.families.xrayemb.importing.from_pretrained", lambda path: behind)
    capsys.readouterr()
    line = error(capsys, "import", f"--input={file}", "--backbone=labels", f"--output={tmp_path / 'ours'}")
    assert (
        "--backbone=labels is a bert with the head sequence_classification; expected bert, roberta, roformer, gpt2"
        in line
    )


@pytest.fixture(scope="module")
def metadata():
    """What is said of a model with encoder and generator."""
    sizes = {"char_vocab_size": CHARS.size, "hidden": 8}
    parts = {"encoder": XREncoderConfig(**sizes, output=16), "generator": XRDecoderConfig(**sizes, vector=16)}
    config = XRayEmbBertConfig(vocab_size=9, hidden=16, layers=1, heads=2, ffn=8, pooler=False, **parts)
    return {"family": "xrayemb", "backbone": "bert", "head": "masked_lm", "model": config_to_dict(config)}


@pytest.mark.parametrize("head", ["sequence_classification", "token_classification", "question_answering"])
def test_labels_leave_no_generator(metadata, head):
    changed = converter_of("xrayemb").with_head(metadata, head)
    target = converter_of("xrayemb").target({**changed, "labels": 2}, "here")
    assert target.config.generator is None
    assert sorted(target.params) == ["bert", "label", "xr_enc"]
    assert converter_of("xrayemb").with_head(metadata, "encoder")["model"]["generator"] is not None


def test_a_dtype_is_that_of_all_parts(metadata):
    converter = converter_of("xrayemb")
    changes = {"dtype": "bfloat16", "scan_layers": True}
    config = converter.target(converter.change(metadata, changes, "here"), "here").config
    assert config.dtype == config.encoder.dtype == config.generator.dtype == jnp.bfloat16
    assert config.scan_layers
    assert config.encoder.scan_layers
