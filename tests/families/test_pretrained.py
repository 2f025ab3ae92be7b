"""Tests `from_pretrained` and `save_pretrained`: every family and format, with equal weights and outputs."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_cases import case as hlm_case
from golden_cases import write_release as write_hlm
from programs import applied
from safetensors.numpy import load_file
from subword_cases import bring, case, write_release
from tiny_models import release as tiny_release

import charlm
from charlm.convert.heads import MASKED_LM
from charlm.core import checksums
from charlm.core import trained as shelf
from charlm.core.checksums import ABOUT
from charlm.data.word_batch import reshape_batch
from charlm.families.hlm.golden import ours_of, shape_of
from charlm.families.hlm.model import HLM
from charlm.families.subword.bert import BertConfig
from charlm.families.subword.layout import config_from_dict

pytestmark = pytest.mark.usefixtures("log_lines")

FAMILIES = pytest.mark.parametrize("family", ["bert", "roberta", "roformer", "gpt2"])


def assert_same(one: object, other: object) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("head", ["masked_lm", "encoder", "pooled_encoder"])
def test_the_lines_of_the_documentation_run_with_and_without_a_head(tmp_path, monkeypatch, capsys, head):
    page = (Path(__file__).resolve().parents[2] / "docs" / "howto" / "convert.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (code,) = [block for block in blocks if 'from_pretrained("mbert")' in block]
    shutil.copytree(tiny_release("bert", head), tmp_path / "mbert")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "convert.md", "exec"), {})
    shapes = capsys.readouterr().out.splitlines()
    assert len(shapes) == 2 + (head == "masked_lm")
    assert shapes[0] == shapes[-1]


def logits(model: charlm.Pretrained, family: str) -> np.ndarray:
    z = case(family).arrays
    types = {"types_BL": z["types"]} if family in ("bert", "roformer") else {}
    return np.asarray(applied(model.model)(model.params, z["ids"], z["mask"], **types).logits)[z["mask"]]


@pytest.fixture
def hlm_release(tmp_path):
    return write_hlm(tmp_path / "hlm_release")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Returns a function that puts a folder into a cache of huggingface_hub under a name."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def put(folder: Path, name: str) -> None:
        repo = tmp_path / "hub" / ("models--" + name.replace("/", "--"))
        shutil.copytree(folder, repo / "snapshots" / ("a" * 40))
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text("a" * 40)

    return put


# ---- From everywhere ----


@FAMILIES
def test_from_a_folder_of_transformers_and_from_our_checkpoint_of_it(tmp_path, family):
    release = write_release(tmp_path / "release", family)
    found = charlm.from_pretrained(release, dropout=0.0)
    assert (found.family, found.folder, found.config.dropout) == (family, release, 0.0)
    z = case(family).arrays
    np.testing.assert_allclose(logits(found, family), z["logits"][z["mask"]], atol=1e-5)
    found.save_pretrained(tmp_path / "ours")
    again = charlm.from_pretrained(tmp_path / "ours")
    assert_same(found.params, again.params)
    assert dataclasses.asdict(again.config) == dataclasses.asdict(found.config)  # the change was saved, too
    assert (tmp_path / "ours" / "vocab.txt").read_bytes() == (release / "vocab.txt").read_bytes()
    again.save_pretrained(tmp_path / "theirs", format="pytorch")
    before, after = (load_file(folder / "model.safetensors") for folder in (release, tmp_path / "theirs"))
    assert_same({name: before[name] for name in after}, after)
    assert not before.keys() - after.keys() - {name for name in before if "pooler" in name}


def test_what_was_trained_further_is_saved(tmp_path):
    found = charlm.from_pretrained(write_release(tmp_path / "release", "gpt2"))
    changed = dataclasses.replace(found, params=jax.tree.map(lambda p: p + 1, found.params))
    changed.save_pretrained(tmp_path / "ours")
    assert_same(charlm.from_pretrained(tmp_path / "ours").params, changed.params)
    changed.save_pretrained(tmp_path / "theirs", format="pytorch")
    assert_same(charlm.from_pretrained(tmp_path / "theirs").params, changed.params)
    assert jax.tree.leaves(changed.params)  # exporting leaves the model as it was


def test_hlm_from_a_release_a_checkpoint_and_back(tmp_path, hlm_release):
    found = charlm.from_pretrained(hlm_release)
    golden = hlm_case("reference")
    _, params, _ = ours_of(golden, shape_of(golden), MASKED_LM)
    assert_same(found.params, params)
    assert (found.family, found.head, found.run_config().text.splitter) == ("hlm", MASKED_LM, "reference")
    found.save_pretrained(tmp_path / "ours")
    again = charlm.from_pretrained(tmp_path / "ours", family="hlm", dtype="bfloat16", remat=True)
    assert_same(again.params, found.params)
    assert (again.config.dtype, again.config.remat, again.run_config().model.dtype) == (jnp.bfloat16, True, "bfloat16")
    assert again.vocab() == found.vocab()
    again.save_pretrained(tmp_path / "theirs", format="pytorch")
    before, after = (load_file(folder / "model.safetensors") for folder in (hlm_release, tmp_path / "theirs"))
    assert_same(before, {name: value for name, value in after.items() if name != "lm_layer.bias"})
    batch = reshape_batch(np.array([[[1, 5, 6], [1, 7, 0]]], np.uint16))
    context = lambda m: applied(HLM(m.config))(m.params["hlm"], batch).context_NWD
    np.testing.assert_allclose(np.float32(context(again)), np.float32(context(found)), atol=0.1)


@pytest.mark.parametrize("family", ["bert", "hlm"])
def test_a_loop_over_the_layers_is_for_training_and_not_taken_over(tmp_path, family, hlm_release):
    release = hlm_release if family == "hlm" else write_release(tmp_path / "release", family)
    found = charlm.from_pretrained(release, scan_layers=True)
    assert found.config.scan_layers
    found.save_pretrained(tmp_path / "ours")
    again = charlm.from_pretrained(tmp_path / "ours")
    assert not again.config.scan_layers
    assert_same(again.params, found.params)
    found.save_pretrained(tmp_path / "theirs", format="pytorch")
    plain = charlm.from_pretrained(release)
    plain.save_pretrained(tmp_path / "plain", format="pytorch")
    for name in ("model.safetensors", "config_model.json" if family == "hlm" else "config.json"):
        assert (tmp_path / "theirs" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_by_the_name_of_a_model_in_the_cache(tmp_path, hub, capsys, monkeypatch):
    release = write_release(tmp_path / "release", "bert")
    hub(release, "someone/small-bert")
    found = charlm.from_pretrained("someone/small-bert")
    assert_same(found.params, charlm.from_pretrained(release).params)
    assert bring("bert", Path("someone/small-bert"), tmp_path / "ours") == 0
    with pytest.raises(ValueError, match=r"someone/other does not exist, and no model of that name is in the cache"):
        charlm.from_pretrained("someone/other")
    with pytest.raises(ValueError, match=rf"^{tmp_path}/gone does not exist$"):
        charlm.from_pretrained(tmp_path / "gone")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match=r"^runs/other does not exist in the folder runs$"):
        charlm.from_pretrained("runs/other")
    with pytest.raises(ValueError, match=r"^/no/such/folder does not exist$"):
        charlm.from_pretrained("/no/such/folder")


def test_nothing_is_downloaded(hub, monkeypatch):
    """Without "hf:" the library is asked for what it has, and never to fetch anything."""
    asked = []
    import huggingface_hub

    find = huggingface_hub.snapshot_download
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, **how: asked.append(how) or find(name, **how)
    )
    with pytest.raises(ValueError, match="hf:someone/other downloads it"):
        charlm.from_pretrained("someone/other")
    assert asked == [{"local_files_only": True}]


def test_a_name_without_the_library_that_could_find_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"no-such-model does not exist; huggingface_hub, .* is not installed"):
        charlm.from_pretrained("no-such-model")


# ---- Less than all of it ----


def test_the_encoder_alone(tmp_path):
    release = write_release(tmp_path / "release", "bert")
    whole = charlm.from_pretrained(release)
    whole.save_pretrained(tmp_path / "ours")
    for path in (release, tmp_path / "ours"):
        encoder = charlm.from_pretrained(path, head="encoder")
        assert (encoder.head, encoder.config.pooler) == ("encoder", False)
        expected = {name: part for name, part in whole.params["bert"].items() if name != "pooler"}
        assert_same(encoder.params, expected)
    charlm.from_pretrained(tmp_path / "ours", head="encoder").save_pretrained(tmp_path / "encoder")
    with pytest.raises(ValueError, match=r"as masked_lm does not hold .*missing cls\.predictions"):
        charlm.from_pretrained(tmp_path / "encoder", head="masked_lm")
    with pytest.raises(ValueError, match="head=no is not one of pretraining, masked_lm"):
        charlm.from_pretrained(tmp_path / "ours", head="no")


# ---- What does not fit ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 9}, r"layers cannot be changed in a BertConfig: .*, attention_kernel can"),
        ({"droput": 0.0}, "droput cannot be changed in a BertConfig"),
        ({"dropout": 7}, r"dropout=7: expected a number in \[0, 1\)"),
        ({"remat": "no"}, "remat='no': expected true or false"),
        ({"attention_kernel": "flash"}, "attention_kernel='flash': expected auto, einsum, cudnn, pallas"),
        ({"dtype": "int32"}, "dtype='int32': expected float32 or bfloat16 or float16"),
    ],
)
def test_changes_that_do_not_fit_are_refused(tmp_path, changes, message):
    release = write_release(tmp_path / "release", "bert")
    charlm.from_pretrained(release, dtype=jnp.bfloat16, attention_dropout=0).save_pretrained(tmp_path / "ours")
    assert charlm.from_pretrained(tmp_path / "ours").config.dtype == jnp.bfloat16
    for path in (release, tmp_path / "ours"):
        with pytest.raises(ValueError, match=message):
            charlm.from_pretrained(path, **changes)


def test_another_family_is_named(tmp_path):
    release = write_release(tmp_path / "release", "bert")
    charlm.from_pretrained(release).save_pretrained(tmp_path / "ours")
    with pytest.raises(ValueError, match="ours is a model of the family bert, expected gpt2"):
        charlm.from_pretrained(tmp_path / "ours", family="gpt2")
    with pytest.raises(ValueError, match="model_type='bert' is not a model of the family gpt2"):
        charlm.from_pretrained(release, family="gpt2")
    with pytest.raises(ValueError, match="family='brt' is not one of hlm, bert"):
        charlm.from_pretrained(release, family="brt")


def test_an_old_config_that_does_not_say_its_family_needs_to_be_told(tmp_path):
    release = write_release(tmp_path / "release", "bert", model_type=None)
    with pytest.raises(ValueError, match=r"model_type=None is none of the families hlm, .* its family named"):
        charlm.from_pretrained(release)
    assert charlm.from_pretrained(release, family="bert").family == "bert"


def test_what_a_model_does_not_have_is_said(tmp_path, hlm_release):
    bert, hlm = charlm.from_pretrained(write_release(tmp_path / "release", "bert")), charlm.from_pretrained(hlm_release)
    with pytest.raises(ValueError, match="a model of the kind HLM reads characters; see vocab"):
        hlm.tokenizer()
    with pytest.raises(ValueError, match="a model of the family bert has no characters; see tokenizer"):
        bert.vocab()
    with pytest.raises(ValueError, match="was imported, no run made it"):
        bert.run_config()


def test_saving_leaves_what_is_there_alone(tmp_path):
    found = charlm.from_pretrained(write_release(tmp_path / "release", "bert"))
    before = sorted(p.name for p in (tmp_path / "release").iterdir())
    with pytest.raises(ValueError, match="exists already and is not empty"):
        found.save_pretrained(tmp_path / "release")
    with pytest.raises(ValueError, match="format='torch' is not one of charlm, pytorch"):
        found.save_pretrained(tmp_path / "new", format="torch")
    assert sorted(p.name for p in (tmp_path / "release").iterdir()) == before
    assert not (tmp_path / "new").exists()


def test_a_model_that_could_not_be_read_again_is_not_written(tmp_path):
    found = charlm.from_pretrained(write_release(tmp_path / "release", "bert"))
    cut = dataclasses.replace(found, params=jax.tree.map(lambda x: x[..., :3], found.params))
    for format in ("charlm", "pytorch"):
        with pytest.raises(
            ValueError, match=r"the model does not hold the parameters of this config: bert/embed/.* is"
        ):
            cut.save_pretrained(tmp_path / "new", format=format)
    shutil.rmtree(tmp_path / "release")
    with pytest.raises(ValueError, match="release, where the model was read and its tokenizer lay, is gone"):
        found.save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_exported_encoder_without_pooler_says_what_transformers_will_do(tmp_path, log_lines):
    found = charlm.from_pretrained(write_release(tmp_path / "release", "bert"), head="encoder")
    found.save_pretrained(tmp_path / "ours")
    assert "add_pooling_layer" not in str(log_lines)
    found.save_pretrained(tmp_path / "theirs", format="pytorch")
    assert "transformers makes a random one unless it is told add_pooling_layer=False" in str(log_lines)


def test_a_folder_of_neither_kind(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ValueError, match=r"holds no complete checkpoint.*or a folder of PyTorch weights .*model\.safe"):
        charlm.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": True}, "its description is damaged: "),
        ({"config": {"model": {"heads": None}}}, "its description is damaged: TypeError"),
        ({"config": {"model": {"inter_layers": 10**6}}}, "model.inter_layers=1000000: expected at most 1000"),
        ({"config": {"model": {"max_relative_words": 10**9}}}, "model.max_relative_words=1000000000: expected at most"),
    ],
)
def test_what_a_stranger_may_write_into_a_description_is_refused_in_a_line(tmp_path, change, says):
    folder = shutil.copytree(shelf.FOLDER / "hlm-small-en", tmp_path / "model")
    about = json.loads((folder / ABOUT).read_text())
    description = checksums.undescribed(about["custom_metadata"])
    merged(description, change)
    about["custom_metadata"] = checksums.described(description)
    (folder / ABOUT).write_text(json.dumps(about))
    checksums.write(folder)
    with pytest.raises(ValueError, match=re.escape(says)) as raised:
        charlm.from_pretrained(folder)
    assert "\n" not in str(raised.value)


def merged(into, change):
    """Changes what a nested dict has, in place."""
    for name, value in change.items():
        if isinstance(value, dict):
            merged(into[name], value)
        else:
            into[name] = value


def test_a_description_may_ask_for_so_many_layers():
    with pytest.raises(ValueError, match=r"here: layers=1000000: expected a whole number up to 1000"):
        config_from_dict(BertConfig, {"layers": 10**6}, "here")
    with pytest.raises(ValueError, match=r"here: layers='2': expected a whole number"):
        config_from_dict(BertConfig, {"layers": "2"}, "here")
