"""Tests import and export of BERT, RoBERTa and GPT-2: bytes, names, heads, and messages of one line."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from programs import applied
from safetensors.numpy import load_file, save_file
from subword_cases import bring, case, failure, rewrite, run, take, write_release

from charlm.convert import files, model
from charlm.core import checkpoint as checkpoints
from charlm.core.reading import read_object
from charlm.families.pretrained import from_pretrained
from charlm.families.stored import metadata_of
from charlm.families.subword import conversion as hf
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.conversion import TABLES
from charlm.families.subword.layout import config_from_dict, config_to_dict

FAMILIES = pytest.mark.parametrize("family", ["bert", "roberta", "roformer", "gpt2"])
PREFIX = {"bert": "bert.", "roberta": "roberta.", "roformer": "roformer.", "gpt2": "transformer."}
POOLER = "roberta.pooler.dense."


def exported(family: str, release: Path, tmp_path: Path, *more: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a release that came in and went out again."""
    assert bring(family, release, tmp_path / "ours", *more) == 0
    assert take(family, tmp_path / "ours", tmp_path / "back") == 0
    return load_file(tmp_path / "back" / "model.safetensors")


def expected(family: str) -> dict[str, np.ndarray]:
    """Returns what of a family's first case comes back: RoBERTa's model with a head has no pooler."""
    return {name: value for name, value in case(family).state.items() if not name.startswith(POOLER)}


def assert_same_bytes(state: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert state.keys() == other.keys()
    for name, value in other.items():
        assert (state[name].dtype, state[name].shape) == (value.dtype, value.shape), name
        assert state[name].tobytes() == value.tobytes(), name


# ---- Round trips ----


@FAMILIES
def test_there_and_back_every_tensor_has_the_same_bytes(tmp_path, family):
    release = write_release(tmp_path / "release", family, initializer_range=0.5)
    assert_same_bytes(exported(family, release, tmp_path), expected(family))
    for file in ("vocab.txt", "sentencepiece.bpe.model"):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "back" / file).read_bytes()
        assert (tmp_path / "ours" / file).read_bytes() == (release / file).read_bytes()
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (release, tmp_path / "back"))
    assert {key: after[key] for key in before} == before  # what our model does not read too
    assert bring(family, tmp_path / "back", tmp_path / "again") == 0
    one, other = (checkpoints.read_metadata(tmp_path / name) for name in ("ours", "again"))
    assert one["hf_config"] == before
    assert (one["model"], one["head"]) == (other["model"], other["head"])


@pytest.mark.parametrize("size", [1, 20_000])
def test_a_checkpoint_that_is_exported_in_parts_is_whole(tmp_path, monkeypatch, size):
    monkeypatch.setattr(model, "PART", size)
    reads = []
    read = checkpoints.load_params
    monkeypatch.setattr(checkpoints, "load_params", lambda *arguments: reads.append(arguments) or read(*arguments))
    release = write_release(tmp_path / "release", "gpt2")
    assert_same_bytes(exported("gpt2", release, tmp_path), expected("gpt2"))
    names = [name for _, _, part in reads for name in part]
    assert 3 < len(reads) <= (len(expected("gpt2")) if size == 1 else 10)
    assert len(names) == len(set(names))


def test_a_size_that_follows_from_another_stays_unsaid():
    family = TABLES["gpt2"]
    theirs = {key: value for key, value in case("gpt2").meta["config"].items() if key != "n_inner"} | {"n_inner": None}
    config = family.from_theirs(theirs, "causal_lm", "x")
    assert config.ffn == 4 * config.hidden
    assert family.to_theirs(config, "causal_lm", theirs)["n_inner"] is None
    assert family.to_theirs(config, "causal_lm", theirs | {"n_inner": 5})["n_inner"] == config.ffn
    other = dataclasses.replace(config, ffn=config.hidden)
    assert family.to_theirs(other, "causal_lm", theirs)["n_inner"] == other.hidden
    assert family.to_theirs(other, "causal_lm", {})["n_inner"] == other.hidden


def test_the_model_that_is_exported_is_named():
    names = {
        (family.name, head): family.to_theirs(family.config(), head, {})["architectures"]
        for family in TABLES.values()
        for head in family.heads
    }
    assert names["bert", "pretraining"] == ["BertForPreTraining"]
    assert names["roberta", "encoder"] == ["RobertaModel"]
    assert names["roformer", "sequence_classification"] == ["RoFormerForSequenceClassification"]
    assert names["gpt2", "causal_lm"] == ["GPT2LMHeadModel"]
    xlmr = TABLES["roberta"].to_theirs(BertConfig(), "masked_lm", {"model_type": "xlm-roberta"})
    assert xlmr["architectures"] == ["XLMRobertaForMaskedLM"]
    silent = TABLES["roberta"].to_theirs(BertConfig(), "masked_lm", {"model_type": None})
    assert (silent["model_type"], silent["architectures"]) == ("roberta", ["RobertaForMaskedLM"])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_halves_become_float32(tmp_path, family, dtype):
    release = write_release(tmp_path / "release", family)
    halves = {name: value.astype(dtype) for name, value in case(family).state.items()}
    back = exported(family, rewrite(release, halves), tmp_path)
    assert_same_bytes(back, {name: value.astype(np.float32) for name, value in halves.items()})


def test_from_shards(tmp_path):
    release = write_release(tmp_path / "release", "bert")
    (release / "model.safetensors").unlink()
    names = sorted(case("bert").state)
    weight_map = {name: f"model-0000{i % 2 + 1}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(weight_map.values()):
        save_file({n: case("bert").state[n] for n in names if weight_map[n] == file}, release / file)
    (release / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_same_bytes(exported("bert", release, tmp_path), expected("bert"))


@pytest.mark.torch
@pytest.mark.parametrize("zipped", [True, False])
def test_from_what_pytorch_saved(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    release = write_release(tmp_path / "release", "gpt2")
    (release / "model.safetensors").unlink()
    state = {name: torch.from_numpy(value) for name, value in case("gpt2").state.items()}
    torch.save(state, release / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    assert_same_bytes(exported("gpt2", release, tmp_path), expected("gpt2"))


@pytest.mark.torch
@FAMILIES
def test_transformers_loads_what_is_exported_and_computes_the_same(tmp_path, family):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    exported(family, write_release(tmp_path / "release", family), tmp_path)
    (name,) = json.loads((tmp_path / "back" / "config.json").read_text())["architectures"]
    model, info = getattr(transformers, name).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(info.values()), info
    z = case(family).arrays
    more = {"token_type_ids": torch.tensor(z["types"])} if family in ("bert", "roformer") else {}
    with torch.inference_mode():
        output = model(torch.tensor(z["ids"]), attention_mask=torch.tensor(z["mask"]), **more)
    logits = output.prediction_logits if family == "bert" else output.logits
    np.testing.assert_allclose(logits.numpy()[z["mask"]], z["logits"][z["mask"]], atol=1e-5)
    model.save_pretrained(tmp_path / "saved")
    exported(family, tmp_path / "saved", tmp_path / "second")
    one, two = (folder / "back" / "model.safetensors" for folder in (tmp_path, tmp_path / "second"))
    assert one.read_bytes() == two.read_bytes()


# ---- Names ----


def renamed(family: str, old: str) -> dict[str, np.ndarray]:
    state = expected(family)
    if old == "wrapped":
        return {f"module.{name}": value for name, value in state.items()}
    if old == "bare":
        return {name.removeprefix(PREFIX[family]): value for name, value in state.items()}
    assert old == "gamma and beta"
    old_of = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    turn = lambda name: re.sub(r"LayerNorm\.\w+$", lambda found: old_of[found[0]], name)
    return {turn(name): value for name, value in state.items()}


@pytest.mark.parametrize(
    ("family", "old"),
    [
        ("bert", "gamma and beta"), ("bert", "wrapped"), ("bert", "bare"), ("roberta", "bare"), ("gpt2", "bare"),
        ("roformer", "bare"),
        ("gpt2", "wrapped"),
    ],
)  # fmt: skip
def test_other_names_of_the_same_tensors(tmp_path, family, old):
    release = rewrite(write_release(tmp_path / "release", family), renamed(family, old))
    assert_same_bytes(exported(family, release, tmp_path), expected(family))


def test_two_names_of_one_tensor_are_refused(tmp_path, capsys):
    release = write_release(tmp_path / "release", "bert")
    name = "bert.embeddings.LayerNorm"
    state = case("bert").state
    rewrite(release, state | {f"{name}.gamma": state[f"{name}.weight"]})
    line = failure(capsys, bring("bert", release, tmp_path / "ours"))
    assert f"holds both {name}.weight and {name}.gamma" in line or f"{name}.gamma and {name}.weight" in line


ALIASES = {
    "bert": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "roberta": ("lm_head.decoder.bias", "lm_head.bias"),
    "roformer": ("cls.predictions.decoder.weight", "roformer.embeddings.word_embeddings.weight"),
    "gpt2": ("lm_head.weight", "transformer.wte.weight"),
}


@FAMILIES
def test_an_alias_is_read_once_and_must_be_equal(tmp_path, family, capsys):
    alias, name = ALIASES[family]
    release = write_release(tmp_path / "release", family)
    state = case(family).state
    rewrite(release, state | {alias: state[name]})
    assert_same_bytes(exported(family, release, tmp_path), expected(family))
    rewrite(release, state | {alias: state[name] + 1})
    capsys.readouterr()
    assert f"{alias} differs from {name}" in failure(capsys, bring(family, release, tmp_path / "no"))


# ---- Heads ----


def held(folder: Path, family: str) -> str:
    return checkpoints.read_metadata(folder)["head"]


def test_a_file_is_taken_for_what_it_holds(tmp_path):
    state, release = case("bert").state, write_release(tmp_path / "release", "bert")
    cuts = {
        "pretraining": "nothing",
        "masked_lm": r"cls\.seq|bert\.pooler",
        "pooled_encoder": "cls",
        "encoder": r"cls|bert\.pooler",
    }
    for head, cut in cuts.items():
        rewrite(release, {name: value for name, value in state.items() if not re.match(cut, name)})
        assert bring("bert", release, tmp_path / head) == 0
        assert held(tmp_path / head, "bert") == head


def test_less_than_a_file_holds_is_imported_on_request_and_the_rest_named(tmp_path, log_lines, capsys):
    release = write_release(tmp_path / "release", "bert")
    back = exported("bert", release, tmp_path, "--head=masked_lm")
    assert back.keys() == {n for n in case("bert").state if not re.match(r"cls\.seq|bert\.pooler", n)}
    assert "of a head; --head=pretraining imports it: cls.seq_relationship.bias, cls.seq_rel" in str(log_lines)
    assert "--head=pooled_encoder imports it: bert.pooler.dense.bias" in str(log_lines)
    rewrite(release, back)
    capsys.readouterr()
    line = failure(capsys, bring("bert", release, tmp_path / "no", "--head=pooled_encoder"))
    assert "head=pooled_encoder" in line
    assert "does not hold bert.pooler.dense.weight" in line
    line = failure(capsys, bring("bert", release, tmp_path / "no", "--head=no"))
    assert "head=no is not one of pretraining" in line


def test_known_tensors_that_are_no_parameters_are_left_out(tmp_path, log_lines):
    release = write_release(tmp_path / "release", "bert")
    positions = {"bert.embeddings.position_ids": np.arange(16)[None]}
    rewrite(release, case("bert").state | positions | {"classifier.weight": np.zeros((2, 24), np.float32)})
    assert_same_bytes(exported("bert", release, tmp_path), expected("bert"))
    assert "position_ids" not in str(log_lines)  # nothing is lost with it
    assert "of a head for labels: classifier.weight" in str(log_lines)
    release = write_release(tmp_path / "gpt2", "gpt2")
    masks = {f"h.{n}.attn.{name}": np.ones((1, 1, 3, 3), bool) for n in range(2) for name in ("bias", "masked_bias")}
    bare = {name.removeprefix("transformer."): value for name, value in case("gpt2").state.items()}
    (tmp_path / "two").mkdir()
    assert_same_bytes(exported("gpt2", rewrite(release, bare | masks), tmp_path / "two"), expected("gpt2"))
    assert "attn.bias" not in str(log_lines)


# ---- What an imported checkpoint is good for ----


@FAMILIES
def test_an_imported_checkpoint_stands_alone(tmp_path, family):
    assert bring(family, write_release(tmp_path / "release", family), tmp_path / "ours") == 0
    os.rename(tmp_path / "ours", tmp_path / "moved")
    found = from_pretrained(str(tmp_path / "moved"), dropout=0.0)
    assert (found.family, found.folder.name, found.config.dropout) == (family, "moved", 0.0)
    z = case(family).arrays
    types = {"types_BL": z["types"]} if family in ("bert", "roformer") else {}
    logits = applied(found.model)(found.params, z["ids"], z["mask"], **types).logits
    np.testing.assert_allclose(np.asarray(logits)[z["mask"]], z["logits"][z["mask"]], atol=1e-5)
    with pytest.raises(ValueError, match="droput cannot be changed in a "):
        from_pretrained(str(tmp_path / "moved"), droput=0.0)


def test_other_families_say_what_it_is(tmp_path, capsys):
    assert bring("bert", write_release(tmp_path / "release", "bert"), tmp_path / "ours") == 0
    with pytest.raises(ValueError, match="ours is a model of the family bert, expected hlm"):
        metadata_of(tmp_path / "ours", ["hlm"])
    capsys.readouterr()
    line = failure(capsys, take("gpt2", tmp_path / "ours", tmp_path / "no"))
    assert "ours is a model of the family bert, expected gpt2" in line
    assert not (tmp_path / "no").exists()


def test_a_config_is_written_and_read_and_unknown_fields_are_named():
    fields = config_to_dict(BertConfig(dtype=ml_dtypes.bfloat16, layers=3))
    assert json.loads(json.dumps(fields)) == fields
    assert config_to_dict(config_from_dict(BertConfig, fields, "x")) == fields
    with pytest.raises(ValueError, match="x: BertConfig has no rotary; was it written by a later version"):
        config_from_dict(BertConfig, fields | {"rotary": 1}, "x")


# ---- Looking, and memory ----


def test_inspect_says_what_becomes_of_every_tensor(tmp_path, capsys):
    release = write_release(tmp_path / "release", "gpt2")
    rewrite(release, case("gpt2").state | {"transformer.h.0.attn.bias": np.ones(3), "transformer.x": np.ones(3)})
    assert run("inspect", "--family=gpt2", f"--input={release}") == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("GPT-2, causal lm, 30 tensors")
    said = {line.split()[0]: line for line in lines}
    qkv = said["transformer.h.1.attn.c_attn.weight"]
    assert "(24, 72)" in qkv
    assert "float32" in qkv
    assert qkv.endswith("gpt2/decoder/layer_1/attention/[query key value]/kernel")
    assert said["transformer.h.0.attn.bias"].endswith("not imported: a constant: the causal mask")
    assert said["transformer.x"].endswith("not known: an import would refuse it")


def test_a_file_is_read_tensor_by_tensor(tmp_path):
    release = write_release(tmp_path / "release", "bert", vocab_size=4000, hidden_size=240, intermediate_size=400)
    family = TABLES["bert"]
    config = family.from_theirs(read_object(release / "config.json"), "pretraining", "x")
    _, _, table = family.target(config, "pretraining")
    rng = np.random.default_rng(0)
    rewrite(release, {name: rng.normal(size=entry.shape).astype(np.float16) for name, entry in table.items()})
    size = 4 * sum(int(np.prod(entry.shape)) for entry in table.values())
    largest = 4 * max(int(np.prod(entry.shape)) for entry in table.values())
    tracemalloc.start()
    state = hf.open_family(family, files.find_state(release))
    assert tracemalloc.get_traced_memory()[1] < size / 10
    params = hf.import_state(table, (), state, "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size <= peak < size + 1.6 * largest  # the halves of one tensor beside all that is float32 already
    assert params["bert"]["embed"]["token"]["embedding"].shape == (4000, 240)
