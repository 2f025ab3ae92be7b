"""Tests exported models: they compute what charlm does, for any batch, in a process that does not have charlm."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import traverse_util
from jax import export
from robustness.conftest import Models
from small_char2subword import spelled
from small_characterbert import characterbert
from small_xrayemb import xrayemb
from tiny_models import release

from charlm.export import __main__ as command
from charlm.export.program import Program
from charlm.families.family import families, family
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.finetune.model import first_params, held_params, with_task
from charlm.finetune.predictor import FineTuned
from charlm.tasks.classification import Classification
from charlm.tasks.columns import Columns
from charlm.tasks.tagging import Tagging

CLASSES = Classification(Columns(), ("a", "b"))
flatbuffers = pytest.importorskip("flatbuffers", reason="jax.export writes with flatbuffers: pip install flatbuffers")

SENTENCES = [["we", "slept", "near", "old", "trees"], ["a", "supercalifragilistic", "cat", ","], ["dog"]]
BESIDE = Path(flatbuffers.__file__).parents[1]  # where the package lies, which may be another folder than JAX's
TEXTS = [" ".join(words) for words in SENTENCES]


@pytest.fixture(scope="module")
def exported(tmp_path_factory, request):
    """Returns the folder of an exported model, which is made when it is first asked for."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "models").mkdir()
    hlm = lambda: request.getfixturevalue("trained").workdir  # trained when it is first asked for
    models = functools.cache(lambda of: Models(folder / "models", hlm() if of == "hlm" else Path()))
    made: dict[str, Path] = {}

    def saved(name, pretrained):
        if "model" not in pretrained.metadata and pretrained.family != "hlm":  # whose config says it all
            metadata = {**pretrained.metadata, "model": config_to_dict(pretrained.config)}
            pretrained = dataclasses.replace(pretrained, metadata=metadata)
        pretrained.save_pretrained(folder / name)
        return folder / name

    sources: dict[str, Callable[[], Any]] = {
        "hlm": hlm,
        "hlm tagging": lambda: models("hlm").untrained("tagging", "hlm"),
        "hlm read whole": lambda: saved("whole", reference_head(hlm(), Tagging(labels=("O", "X")))),
        "hlm read first": lambda: saved("first", reference_head(hlm(), CLASSES)),
        "hlm mean": lambda: saved("hlm_mean", headed(hlm(), CLASSES, "mean")),
        "bert mean": lambda: saved("bert_mean", headed("bert", CLASSES, "mean")),
        "bert": lambda: release("bert"),
        "bert tagging": lambda: models("").untrained("tagging"),
        "bert lstm": lambda: saved("bert_lstm", headed("bert", Tagging(labels=("O", "X")), "lstm")),
        "gpt2 perceptron": lambda: saved("gpt2_perceptron", headed("gpt2", CLASSES, "perceptron")),
        "bert classification": lambda: models("").untrained("classification"),
        "bert question answering": lambda: models("").untrained("question_answering"),
        "roberta": lambda: release("roberta"),
        "roformer": lambda: release("roformer"),
        "gpt2": lambda: release("gpt2"),
        "gpt2 classification": lambda: models("").untrained("classification", "gpt2"),
        "charbert": lambda: release("charbert"),
        "characterbert": characterbert,
        "char2subword": spelled,
        "char2subword full": lambda: spelled(mode="full"),
        "xrayemb": lambda: saved("xrayemb", xrayemb()),
        "xrayemb gpt2": lambda: saved("xrayemb_gpt2", xrayemb("gpt2", "encoder")),
    }

    def make(name):
        if name not in made:
            source = found.sources[name]()
            platforms = "cpu,cuda,tpu" if name == "bert" else "cpu"  # each takes seconds
            options = [f"--output={folder / 'out' / name}", f"--platforms={platforms}"]
            assert command.main([f"--model={source}", *options]) == 0
            made[name] = folder / "out" / name
        return made[name]

    found = Exported(make, {name: functools.cache(source) for name, source in sources.items()})
    return found


class Exported(NamedTuple):
    """Makes the folder of an exported model by its name, and by names the models that were exported."""

    made: Callable[[str], Path]
    sources: dict[str, Callable[[], Any]]

    def __call__(self, name: str) -> Path:
        return self.made(name)


def reference_head(source, task):
    """Returns an HLM whose head reads characters, too, with random parameters of the head."""
    return headed(source, task, "reference")


def headed(source, task, label_head):
    """Returns a model for a task with that head, of random parameters, from a folder or the name of a family."""
    found = from_pretrained(release(source) if source in ("bert", "gpt2") else source)
    model, target = with_task(found, task, label_head)
    return dataclasses.replace(model, params=first_params(found, model, target, seed=1))


def outputs_of(folder, arrays):
    """Returns what an exported program computes."""
    program = export.deserialize(bytearray((folder / "model.stablehlo").read_bytes()))
    found: Any = program.call(dict(np.load(folder / "weights.npz")), arrays)
    return found


USUAL = ("hlm tagging", "bert", "gpt2", "bert lstm")
OTHERS = (
    "hlm", "hlm mean", "bert mean", "hlm read whole", "charbert", "char2subword",
    "hlm read first", "bert tagging", "bert classification", "bert question answering", "roberta",
    "roformer",
    "gpt2 classification", "gpt2 perceptron", "characterbert", "char2subword full", "xrayemb", "xrayemb gpt2",
)  # fmt: skip


@pytest.mark.parametrize("name", [*USUAL, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_exported_models_compute_what_charlm_does(exported, name):
    folder = exported(name)
    pretrained = from_pretrained(exported.sources[name]())
    units = units_of(pretrained)
    arrays = family(pretrained.family).get_arrays()(pretrained, units)
    rows = [units.join(one) for one in units.encode_words(SENTENCES)]
    length = max(row.length for row in rows)
    found = outputs_of(folder, arrays.of(rows))  # of other sizes than the example
    about = json.loads((folder / "program.json").read_text())
    assert set(found) == {one["name"] for one in about["outputs"]}
    packed = jax.tree.map(lambda x: x[None], units.pack(rows, units.measure([rows], len(rows), length)))
    if "vectors" in found:
        held = traverse_util.unflatten_dict(held_params(pretrained), sep="/")
        (result,), expected = found.values(), units.states(pretrained.config, held, packed)
    else:
        result, expected = found["logits"], units.apply(pretrained.model, pretrained.params, packed)
        if "probabilities" in found:
            np.testing.assert_allclose(found["probabilities"].sum(axis=-1), 1, atol=1e-5)
            assert about["labels"]
    assert result.shape[0] == len(rows)
    for row, one, wanted in zip(rows, result, expected, strict=True):
        alone = wanted[: row.length] if wanted.ndim == 2 else wanted
        np.testing.assert_allclose(one[: row.length] if one.ndim == 2 else one, alone, atol=1e-5, rtol=1e-5)


def test_the_page_is_all_that_is_needed(exported):
    """Its programs run where charlm cannot be imported, and its arrays are charlm's."""
    for name in ("characterbert", "bert classification"):
        folder = exported(name)
        page = (folder / "README.md").read_text()
        run, recipe = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        assert len([line for line in run.splitlines() if line.strip()]) <= 12
        texts = TEXTS if name.startswith("bert") else SENTENCES
        code = "import sys\nsys.modules['charlm'] = None  # whoever imports it fails\n"
        code += f"{run}\n{recipe}\narrays = arrays_of({texts!r})\n"
        code += "np.savez('found.npz', **arrays, **run({name: arrays[name] for name in names}))\n"
        code += "assert not any(name.startswith('charlm.') or name == 'flax' for name in sys.modules)\n"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(BESIDE)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert max(json.loads(done.stdout.replace("'", '"')).values()) < 1e-4
        arrays = arrays_of(exported.sources[name]())
        wanted, real_BL = outputs_of(folder, arrays), arrays.get("ids", arrays.get("index")) >= 0
        with np.load(folder / "found.npz") as found:
            for output, value in wanted.items():
                of_texts = value.ndim == 2
                one, other = (found[output], value) if of_texts else (found[output][real_BL], value[real_BL])
                np.testing.assert_allclose(one, other, atol=1e-5)


def arrays_of(source):
    """Returns the arrays of the sentences, as charlm makes them."""
    pretrained = from_pretrained(source)
    units = units_of(pretrained)
    arrays = family(pretrained.family).get_arrays()(pretrained, units)
    return arrays.of([units.join(one) for one in units.encode_words(SENTENCES)])


def test_a_fine_tuned_model_gives_the_probabilities_that_charlm_gives(exported):
    folder, source = exported("bert classification"), exported.sources["bert classification"]()
    predicted = FineTuned.from_checkpoint(source).classify(TEXTS)
    pretrained = from_pretrained(source)
    units = units_of(pretrained)
    arrays = family("bert").get_arrays()(pretrained, units)
    found = outputs_of(folder, arrays.of([units.join(one) for one in units.encode(TEXTS)]))["probabilities"]
    np.testing.assert_allclose(found, [one.probabilities for one in predicted], atol=1e-5)


def test_every_family_has_arrays():
    assert all(one.arrays for one in families())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--platforms=cpu,abacus"], "--platforms=cpu,abacus: 'abacus' is none of cpu,cuda,tpu"),
        ([], "exists already and is not empty"),
        (["--model=nowhere", "--output=new"], "nowhere"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(arguments, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert command.main([f"--model={release('bert')}", f"--output={tmp_path / 'out'}", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert [one.name for one in tmp_path.rglob("*")] == ["out", "mine"]


def test_a_failure_leaves_nothing(tmp_path, capsys, monkeypatch):
    """What was written is compared with charlm before the folder gets its name."""
    monkeypatch.setattr(
        Program,
        "run",
        lambda self, weights, inputs: {"vectors": inputs["ids"][..., None] * np.ones((1, 1, 24), np.float32)},
    )
    assert command.main([f"--model={release('bert')}", f"--output={tmp_path / 'out'}"]) == 1
    assert "gives other numbers than charlm" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
