"""Tests that files which cannot be imported are refused in one line, and that nothing is written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from subword_cases import bring, case, failure, rewrite, write_release

from charlm.convert.__main__ import main


def nothing_was_written(folder: Path) -> bool:
    return [p.name for p in folder.iterdir()] == ["release"]


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' cannot be"),
        ("bert", {"is_decoder": True}, "is_decoder=True cannot be imported, only False: our model reads both ways"),
        ("bert", {"add_cross_attention": True}, "add_cross_attention=True cannot be imported"),
        ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings=False cannot be imported"),
        ("bert", {"hidden_act": "gelu_ne"}, "hidden_act='gelu_ne' is not one of gelu, .*; did you mean gelu_new"),
        ("bert", {"hidden_act": None}, "hidden_act=None is not one of gelu"),
        ("roberta", {"hidden_act": "relu"}, "hidden_act='relu' cannot be imported: RoBERTa's head always has gelu"),
        ("roberta", {"pad_token_id": "x"}, "pad_token_id='x', expected a whole number"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True cannot be"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights=False cannot be imported"),
        ("gpt2", {"n_layer": 2.5}, "n_layer=2.5, expected a whole number from 1 to 1000"),
        ("bert", {"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000, expected a whole number from 1 to 1000"),
        ("bert", {"hidden_act": ["gelu"]}, r"hidden_act=\['gelu'\] is not one of gelu"),
        ("bert", {"model_type": ["bert"]}, r"model_type=\['bert'\] is not a model of the family bert"),
        ("bert", {"hidden_size": None, "vocab_size": None}, "config.json lacks vocab_size, hidden_size"),
        ("bert", {"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob=1.5, expected a number in \[0, 1\)"),
        ("bert", {"num_attention_heads": 5}, "hidden=24 is not a multiple of heads=5"),
        ("bert", {"vocab_size": 62}, r"word_embeddings.weight is \(61, 24\), expected \(62, 24\)"),
        ("gpt2", {"n_layer": 3}, r"missing transformer\.h\.2\.attn\.c_attn\.bias"),
        ("roberta", {"num_hidden_layers": 1}, r"unexpected roberta\.encoder\.layer\.1\.attention"),
        (
            "roformer",
            {"rotary_value": True},
            "rotary_value=True cannot be imported, only False: our layers turn queries",
        ),
        ("roformer", {"embedding_size": 12}, "embedding_size=12 cannot be imported, only 24, the hidden_size"),
        (
            "roformer",
            {"num_attention_heads": 8},
            "expected an even width of heads .* got self.hidden=24 / self.heads=8",
        ),
        (
            "roformer",
            {"max_position_embeddings": 8},
            r"the constant roformer\.encoder\.embed_positions\.weight is \(16, 6\), expected \(8, 6\)",
        ),
        ("bert", {"model_type": "gpt2"}, "model_type='gpt2' is not a model of the family bert; see --family"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path, capsys, family, config, message):
    release = write_release(tmp_path / "release", family, **config)
    line = failure(capsys, bring(family, release, tmp_path / "ours"))
    assert re.search(message, line)
    assert nothing_was_written(tmp_path)


def test_other_angles_than_ours_are_refused_but_rounded_ones_are_not(tmp_path, capsys):
    release, state = write_release(tmp_path / "release", "roformer"), dict(case("roformer").state)
    name = "roformer.encoder.embed_positions.weight"
    rewrite(release, state | {name: state[name].astype(np.float16)})
    assert bring("roformer", release, tmp_path / "rounded") == 0
    rewrite(release, state | {name: np.roll(state[name], 1, axis=0)})
    capsys.readouterr()
    line = failure(capsys, bring("roformer", release, tmp_path / "ours"))
    assert re.search(rf"the constant {name} is not what our model computes: up to 1\.\d+ apart", line)
    assert not (tmp_path / "ours").exists()
    rewrite(release, {key: value for key, value in state.items() if key != name})
    assert bring("roformer", release, tmp_path / "without") == 0


def test_another_family_is_told_by_its_tensors_where_the_config_is_silent(tmp_path, capsys):
    release = write_release(tmp_path / "release", "bert", model_type=None)
    rewrite(release, case("gpt2").state)
    line = failure(capsys, bring("bert", release, tmp_path / "ours"))
    assert "holds no tensor of a bert model: expected names such as bert.embeddings.word_embeddings.weight, got" in line
    assert nothing_was_written(tmp_path)


def test_every_tensor_that_does_not_fit_is_named_at_once(tmp_path, capsys):
    release = write_release(tmp_path / "release", "gpt2")
    state = dict(case("gpt2").state)
    del state["transformer.h.1.mlp.c_fc.bias"]
    state["transformer.h.0.attn.c_attn.weight"] = state["transformer.h.0.attn.c_attn.weight"].T
    state["transformer.ln_f.bias"] = np.zeros(24, np.int8)
    rewrite(release, state | {"transformer.extra": np.zeros(2, np.float32)})
    line = failure(capsys, bring("gpt2", release, tmp_path / "ours"))
    assert "missing transformer.h.1.mlp.c_fc.bias; unexpected transformer.extra" in line
    assert "transformer.h.0.attn.c_attn.weight is (72, 24), expected (24, 72)" in line
    assert "transformer.ln_f.bias holds int8, expected floats" in line
    assert nothing_was_written(tmp_path)


def broken(release: Path, how: str) -> str:
    """Breaks a release; returns what the error says."""
    file = release / "model.safetensors"
    if how == "no config":
        (release / "config.json").unlink()
        return "has no config.json beside it"
    if how == "config that is no JSON":
        (release / "config.json").write_text("{")
        return "config.json: expected a UTF-8 JSON object"
    if how == "no weights":
        file.unlink()
        return "holds no state dict: expected model.safetensors"
    if how == "truncated":
        file.write_bytes(file.read_bytes()[:-100])
        return "is no safetensors file, or a truncated one"
    if how == "text":
        file.write_text("not a model")
        return "is no safetensors file, or a truncated one"
    assert how == "float8"
    header = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    return "x holds F8_E4M3, expected one of F64, F32"


@pytest.mark.parametrize("how", ["no config", "config that is no JSON", "no weights", "truncated", "text", "float8"])
def test_a_folder_that_is_broken_is_refused(tmp_path, capsys, how):
    release = write_release(tmp_path / "release", "bert")
    message = broken(release, how)
    assert re.search(message, failure(capsys, bring("bert", release, tmp_path / "ours")))
    assert nothing_was_written(tmp_path)


@pytest.mark.torch
def test_a_pickle_that_asks_for_code_is_refused(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    release = write_release(tmp_path / "release", "bert")
    (release / "model.safetensors").unlink()

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    torch.save({"bert.x": Evil()}, release / "pytorch_model.bin")
    line = failure(capsys, bring("bert", release, tmp_path / "ours"))
    assert re.search("is refused: its pickle asks for .*mkdir", line)
    assert nothing_was_written(tmp_path)


@pytest.mark.parametrize("flag", ["--heads=4", "--char-vocab=x.json", "--model-config=x.json"])
def test_flags_of_another_family_are_refused(tmp_path, capsys, flag):
    line = failure(capsys, bring("bert", tmp_path, tmp_path / "ours", flag))
    assert f"{flag.split('=')[0]}: not for BERT; config.json tells it here" in line


def test_a_backbone_is_of_xrayemb(tmp_path, capsys):
    line = failure(capsys, bring("bert", tmp_path, tmp_path / "ours", "--backbone=x"))
    assert "--backbone: not for BERT" in line


def test_a_tokenizer_that_is_damaged_or_of_another_model_is_said(tmp_path, log_lines):
    release = write_release(tmp_path / "release", "bert")
    (release / "vocab.txt").unlink()
    (release / "sentencepiece.bpe.model").unlink()
    assert bring("bert", release, tmp_path / "without") == 0
    assert "tokenizer" not in str(log_lines)
    (release / "tokenizer.json").write_text('{"x": 1')
    assert bring("bert", release, tmp_path / "damaged") == 0
    assert "the weights are read, but not the tokenizer beside them: " in str(log_lines)
    (release / "tokenizer.json").unlink()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(100))]
    (release / "vocab.txt").write_text("\n".join(words) + "\n")
    (release / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert bring("bert", release, tmp_path / "large") == 0
    assert "the tokenizer has ids up to 104, the model rows for 61: not its own?" in str(log_lines)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_the_family_need_not_be_named(tmp_path, family):
    release = write_release(tmp_path / "release", family)
    assert main(["import", f"--input={release}", f"--output={tmp_path / 'ours'}"]) == 0
    assert main(["export", f"--checkpoint={tmp_path / 'ours'}", f"--output={tmp_path / 'back'}"]) == 0
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == family
    assert main(["inspect", f"--input={release}"]) == 0
