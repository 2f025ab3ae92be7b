"""Tests import and export of CharBERT's released folders: bytes, copies, heads, characters, messages of one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from again import again
from charbert_release import KIND, KINDS, assert_same_bytes, bring, config_of, take, write_release
from programs import applied
from safetensors.numpy import load_file, save_file
from subword_cases import failure, run

from charlm.convert.files import open_state
from charlm.core import checkpoint as checkpoints
from charlm.families.charbert import conversion as charbert_converter
from charlm.families.charbert.model import CharBertConfig
from charlm.families.charbert.tensors import smallest_batch
from charlm.families.pretrained import Pretrained, from_pretrained
from charlm.families.subword.layout import config_to_dict

SHARED = Path(__file__).resolve().parents[4] / "shared" / "golden" / "charbert"


@KIND
@pytest.mark.parametrize(
    ("head", "labels"),
    [
        ("masked_lm", 0),
        again("sequence_classification", 3),
        ("token_classification", 4),
        again("question_answering", 2),
    ],
)
def test_there_and_back_every_tensor_has_the_same_bytes(tmp_path, kind, head, labels):
    state = write_release(tmp_path / "release", kind, head, labels)
    more = [f"--head={head}"] if head == "token_classification" else []  # no other name of a tensor tells it
    assert bring(tmp_path / "release", tmp_path / "ours", *more) == 0
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    assert_same_bytes(load_file(tmp_path / "back" / "model.safetensors"), state)
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("release", "back"))
    assert {key: after[key] for key in before} == before
    assert after["model_type"] == "charbert"
    assert bring(tmp_path / "back", tmp_path / "again") == 0
    one, other = (checkpoints.read_metadata(tmp_path / name) for name in ("ours", "again"))
    assert (one["model"], one["head"], one.get("labels")) == (other["model"], other["head"], other.get("labels"))
    config = from_pretrained(tmp_path / "again").config
    words = {} if head == "masked_lm" else {"word_vocab_size": CharBertConfig.word_vocab_size}  # no tensor tells it
    assert config == config_of(kind, compat_reference=True, **words)


@KIND
def test_names_are_those_of_the_released_code(tmp_path, kind):
    state = write_release(tmp_path / "release", kind)
    prefix, shapes = KINDS[kind].prefix, {name: value.shape for name, value in state.items()}
    want = {
        f"{prefix}char_embeddings.char_embeddings.weight": (9, 4),
        f"{prefix}char_embeddings.rnn_layer.weight_ih_l0": (6, 4),
        f"{prefix}char_embeddings.rnn_layer.weight_hh_l0_reverse": (6, 2),
        f"{prefix}char_embeddings.rnn_layer.bias_hh_l0": (6,),
        f"{prefix}encoder.word_linear1.weight": (8, 8),
        f"{prefix}encoder.char_norm.bias": (8,),
        f"{prefix}pooler.dense.weight": (8, 8),
    }
    if kind == "bert":
        want |= {f"bert.encoder.fusion_layer_list.{n}.weight": (8, 16, 3) for n in (0, 1)}
        want |= {"cls.predictions.adv_decoder.weight": (7, 8), "cls.predictions.decoder.weight": (20, 8)}
        want |= {"cls.predictions.adv_transform.LayerNorm.bias": (8,)}
    else:
        want |= {"roberta.encoder.fusion_layer.bias": (8,), "lm_head.char_dense.weight": (8, 8)}
        want |= {"lm_head.adv_decoder.bias": (7,), "lm_head.decoder.weight": (20, 8)}
    assert {name: shapes.get(name) for name in want} == want
    assert not any(name.startswith("ours.") for name in state)
    # Released: 250 names of 12 layers on BERT, 226 on RoBERTa; of each layer 16, on BERT two copies more.
    layers = 18 if kind == "bert" else 16
    assert len(state) == {"bert": 250, "roberta": 226}[kind] - 10 * layers


@KIND
def test_names_without_prefix_in_old_spelling_and_without_heads(tmp_path, kind):
    state = write_release(tmp_path / "release", kind)
    prefix = KINDS[kind].prefix
    old = {}
    for name, value in state.items():
        if name.startswith(prefix):
            begin, norm, part = name.removeprefix(prefix).partition("LayerNorm.")
            old[begin + norm + {"weight": "gamma", "bias": "beta"}.get(part, part)] = value
    save_file(old, tmp_path / "release" / "model.safetensors")
    assert bring(tmp_path / "release", tmp_path / "ours") == 0
    assert from_pretrained(tmp_path / "ours").head == "encoder"
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    encoder = {name: value for name, value in state.items() if name.startswith(prefix)}
    assert_same_bytes(load_file(tmp_path / "back" / "model.safetensors"), encoder)


def test_of_copies_that_differ_the_last_counts(tmp_path, log_lines):
    state = write_release(tmp_path / "release", "bert")
    name = "bert.encoder.fusion_layer_list.{}.weight"
    last = state[name.format(1)] + 1
    save_file(state | {name.format(1): last}, tmp_path / "release" / "model.safetensors")
    found = from_pretrained(tmp_path / "release")
    kernel = found.params["charbert"]["encoder"]["fusion"]["convolution_0"]["kernel"]
    np.testing.assert_array_equal(kernel, last.T)
    assert "fusion_layer_list.[0-1].weight differ; the last one is taken" in str(log_lines)


def test_a_table_that_is_not_tied_is_refused(tmp_path, capsys):
    state = write_release(tmp_path / "release", "bert")
    other = {"cls.predictions.decoder.weight": state["cls.predictions.decoder.weight"] + 1}
    save_file(state | other, tmp_path / "release" / "model.safetensors")
    status = bring(tmp_path / "release", tmp_path / "ours")
    assert "cls.predictions.decoder.weight differs from bert.embeddings.word_embeddings.weight" in failure(
        capsys, status
    )


@KIND
def test_what_later_versions_of_transformers_add_is_left_out(tmp_path, kind):
    state, prefix = write_release(tmp_path / "release", kind), KINDS[kind].prefix
    head = "cls.predictions" if kind == "bert" else "lm_head"
    more = {
        f"{prefix}embeddings.position_ids": np.arange(4)[None],
        f"{head}.decoder.bias": state[f"{head}.bias"],
    }
    save_file(state | more, tmp_path / "release" / "model.safetensors")
    assert bring(tmp_path / "release", tmp_path / "ours") == 0
    assert bring(tmp_path / "release", tmp_path / "alone", "--head=encoder") == 0
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    assert_same_bytes(load_file(tmp_path / "back" / "model.safetensors"), state)


# ---- Models that the released code does not have ----


@KIND
def test_a_clean_model_stays_clean_through_their_format(tmp_path, kind):
    key = "charlm_compat_reference"
    write_release(tmp_path / "release", kind)
    from_pretrained(tmp_path / "release", compat_reference=False).save_pretrained(tmp_path / "clean", "pytorch")
    assert json.loads((tmp_path / "clean" / "config.json").read_text())[key] is False
    found = from_pretrained(tmp_path / "clean")
    assert not found.config.compat_reference
    found.save_pretrained(tmp_path / "ours")
    assert not from_pretrained(tmp_path / "ours").config.compat_reference
    from_pretrained(tmp_path / "ours", compat_reference=True).save_pretrained(tmp_path / "theirs", "pytorch")
    assert key not in json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert from_pretrained(tmp_path / "theirs").config.compat_reference
    config = json.loads((tmp_path / "clean" / "config.json").read_text())
    (tmp_path / "clean" / "config.json").write_text(json.dumps(config | {key: "no"}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"config\.json: charlm_compat_reference='no': expected true or false"):
        from_pretrained(tmp_path / "clean")


@pytest.mark.parametrize(
    "changes",
    [
        {"fusion": "paper", "windows": (2, 3)},
        {"fusion": "none"},
        {"nlm": False},
        {"char_encoder": "embedding"},
        {"shared_head_norm": True},
        {"position": "rotary"},
    ],
)
def test_our_own_models_are_saved_but_not_exported(tmp_path, changes):
    config = config_of("bert", **changes)
    metadata = {"family": "charbert", "model": config_to_dict(config), "head": "masked_lm"}
    converter = charbert_converter.CharBertConverter()
    target = converter.target(metadata, "here")
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), target.params)
    model = Pretrained(target.module, params, config, "charbert", "masked_lm", tmp_path, metadata)
    model.save_pretrained(tmp_path / "saved")
    again = from_pretrained(tmp_path / "saved")
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    names = ", ".join(changes) if "windows" not in changes else "fusion"
    with pytest.raises(ValueError, match=rf"cannot be exported: the released code has {names}="):
        again.save_pretrained(tmp_path / "theirs", "pytorch")


def test_the_encoder_alone_and_other_changes(tmp_path):
    write_release(tmp_path / "release", "bert")
    whole, alone = (from_pretrained(tmp_path / "release", head=head) for head in ("", "encoder"))
    batch = smallest_batch()
    states = applied(whole.model)(whole.params, batch).states
    np.testing.assert_array_equal(applied(alone.model)(alone.params, batch).chars_BLD, states.chars_BLD)
    assert not from_pretrained(tmp_path / "release", compat_reference=False).config.compat_reference
    with pytest.raises(ValueError, match="compat_reference='no': expected true or false"):
        from_pretrained(tmp_path / "release", compat_reference="no")


def test_what_is_no_charbert_is_said_in_a_line(tmp_path, capsys):
    state = write_release(tmp_path / "release", "bert")
    bare = {name: value for name, value in state.items() if "char_embeddings.char" not in name}
    save_file(bare, tmp_path / "release" / "model.safetensors")
    status = run("import", "--family=charbert", f"--input={tmp_path / 'release'}", f"--output={tmp_path / 'no'}")
    assert "holds no char_embeddings.char_embeddings.weight: expected the tensors of a charbert" in failure(
        capsys, status
    )
    status = bring(tmp_path / "release", tmp_path / "no")
    assert "a config without model_type needs its family named" in failure(capsys, status)
    save_file(state | {"bert.odd": np.zeros(1)}, tmp_path / "release" / "model.safetensors")
    assert "unexpected bert.odd" in failure(capsys, bring(tmp_path / "release", tmp_path / "no"))
    for options, message in (
        (["--heads=4"], "--heads: not for CharBERT"),
        (["--head=causal_lm"], "is not one of masked_lm"),
    ):
        assert message in failure(capsys, bring(tmp_path / "release", tmp_path / "no", *options))
    assert not (tmp_path / "no").exists()


# ---- A look-alike of a released folder ----


@pytest.mark.torch
@pytest.mark.parametrize("file", ["pytorch_model.bin", "pytorch_model.zip.bin"])
def test_a_look_alike_of_a_released_folder(tmp_path, file):
    pytest.importorskip("torch")
    if not SHARED.is_dir():
        pytest.skip(f"the look-alike is not there: {SHARED}")
    (tmp_path / "release").mkdir()
    shutil.copyfile(SHARED / "ckpt_like_case1" / file, tmp_path / "release" / "pytorch_model.bin")
    shutil.copyfile(SHARED / "ckpt_like_case1" / "config.json", tmp_path / "release" / "config.json")
    assert bring(tmp_path / "release", tmp_path / "ours") == 0
    assert take(tmp_path / "ours", tmp_path / "back") == 0
    stored = open_state(tmp_path / "release" / "pytorch_model.bin")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert_same_bytes(back, {name: np.asarray(value) for name, value in stored.items()})
    assert bring(tmp_path / "back", tmp_path / "again") == 0
    one, other = (from_pretrained(tmp_path / name) for name in ("ours", "again"))
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
