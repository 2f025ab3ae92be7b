"""Tests folders for sentence-transformers without that library: what is written, what is refused, what charlm loads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sentence_cases import PROMPTS, TEXTS, encoder, reader
from tiny_models import release

import charlm
from charlm.export import __main__ as command
from charlm.export import sentence_folder
from charlm.families.exported import INSIDE, MODULES, SETTINGS, TYPE, around
from charlm.families.sentences import read_settings


def export(model, output):
    """Exports a model, and returns the folder."""
    assert command.main([f"--model={model}", "--format=sentence-transformers", f"--output={output}"]) == 0
    return output


def vectors(model, **options):
    return charlm.load(model).encode(TEXTS, normalize=True, **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns the folder of a reader, and that of its export."""
    folder = tmp_path_factory.mktemp("made")
    source = reader(folder)
    for name in ("pytorch_model.bin", "model.onnx", "onnx/model.onnx", ".cache/lock"):  # nothing that charlm reads
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).touch()
    return source, export(source, folder / "exported")


def content(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_folder_says_what_the_library_asks_for(made):
    folder = made[1]
    assert content(folder / MODULES) == [{"idx": 0, "name": "0", "path": "", "type": TYPE}]
    module, _, name = TYPE.rpartition(".")
    source = Path(charlm.__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py").read_text()
    assert f"\nclass {name}(" in source
    told = content(folder / "config_sentence_transformers.json")
    assert told["prompts"] == PROMPTS
    assert told["similarity_fn_name"] == "dot"
    assert content(folder / SETTINGS) == {"max_seq_length": 12, "normalize": True}
    assert "24 numbers each" in (folder / "README.md").read_text()


def test_the_model_is_whole_and_nothing_else_is_taken(made):
    source, folder = made
    inside = {str(path.relative_to(folder / INSIDE)) for path in (folder / INSIDE).rglob("*") if path.is_file()}
    theirs = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert theirs - inside == {"pytorch_model.bin", "model.onnx", "onnx/model.onnx", ".cache/lock"}
    assert inside <= theirs
    assert "speller.json" in inside


def test_charlm_loads_the_model_in_the_folder(made):
    source, folder = made
    for options in ({}, {"prompt_name": "query"}):
        np.testing.assert_array_equal(vectors(folder, **options), vectors(source, **options))
    assert np.abs(vectors(folder) - vectors(source.parent / "encoder")).max() > 0.01  # which reads typos as they are


def test_an_exported_folder_is_exported_again(made, tmp_path):
    again = export(made[1], tmp_path / "again")
    assert content(again / SETTINGS) == content(made[1] / SETTINGS)
    assert not (again / INSIDE / INSIDE).exists()
    np.testing.assert_array_equal(vectors(again), vectors(made[1]))


def test_the_outer_folder_has_the_prompts_and_the_longest_text(made, tmp_path):
    """Where sentence-transformers writes what a user has changed."""
    folder = export(made[1], tmp_path / "changed")
    (folder / SETTINGS).write_text(json.dumps({"max_seq_length": 3, "normalize": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"mine": "the "}}))
    settings = read_settings(folder / INSIDE)
    assert (settings.longest, dict(settings.prompts)) == (3, {"mine": "the "})
    assert settings.pools == ("cls",)
    assert not sentence_folder.load_text_model(folder).normalize
    np.testing.assert_allclose(
        charlm.load(folder).encode(["the tree"], normalize=True),
        charlm.load(folder).encode(["tree old old old"], normalize=True, prompt_name="mine"),
        atol=1e-6,
    )


def test_a_run_is_written_without_what_only_the_run_needs(tmp_path):
    source, beside = tmp_path / "run" / "checkpoints" / "7", encoder(tmp_path / "encoder")
    charlm.from_pretrained(beside).save_pretrained(source)
    assert {MODULES, "1_Pooling", "sentence_bert_config.json"} <= {path.name for path in source.iterdir()}
    (source / "data").mkdir()  # of a run
    folder = export(tmp_path / "run", tmp_path / "exported")
    assert not (folder / INSIDE / "data").exists()
    np.testing.assert_allclose(vectors(folder), vectors(beside), atol=1e-6)


def test_a_checkpoint_that_was_copied_is_a_model_like_any_other(trained, tmp_path):
    shutil.copytree(next((trained.workdir / "checkpoints").glob("[0-9]*")), tmp_path / "mine")
    folder = export(tmp_path / "mine", tmp_path / "exported")
    np.testing.assert_allclose(vectors(folder), vectors(tmp_path / "mine"), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--platforms=cpu"], "--format=sentence-transformers takes no --platforms"),
        (["--size=3"], "--words, --size and --dtype are of --format=words"),
        (["--output="], "--output"),
        (["--model=nowhere"], "nowhere"),
        ([], "exists already and is not empty"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(arguments, says, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    usual = [f"--model={release('bert')}", "--format=sentence-transformers", f"--output={tmp_path / 'out'}"]
    assert command.main([*usual, *arguments]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert says in line
    assert [one.name for one in tmp_path.rglob("*")] == ["out", "mine"]


def test_a_copy_that_makes_other_vectors_is_not_kept(tmp_path, capsys, monkeypatch):
    source = encoder(tmp_path / "encoder")
    monkeypatch.setattr(sentence_folder, "_left_out", lambda folder: {MODULES})  # so the mean is taken, not the first
    assert command.main([f"--model={source}", "--format=sentence-transformers", f"--output={tmp_path / 'out'}"]) == 1
    assert "makes other vectors than it" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["encoder"]


@pytest.mark.parametrize(
    ("name", "changed", "says"),
    [
        (MODULES, [{"type": TYPE, "path": ""}, {"type": "a.Dense", "path": "1"}], "found a.Dense, too"),
        (SETTINGS, {"max_seq_length": 0}, "expected a whole number of at least 1, got 0"),
        (SETTINGS, ["x"], "charlm_module.json"),
        ("config_sentence_transformers.json", {"prompts": 3}, "expected an object of texts"),
    ],
)
def test_damaged_folders_are_refused(made, tmp_path, name, changed, says):
    shutil.copytree(made[1], tmp_path / "bad")
    (tmp_path / "bad" / name).write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(ValueError, match=says):
        vectors(tmp_path / "bad")


def test_a_folder_of_the_library_itself_is_no_export(made):
    source = made[0]
    assert around(source) is None
    assert charlm.from_pretrained(source).folder == source
