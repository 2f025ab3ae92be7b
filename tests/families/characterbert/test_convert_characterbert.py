"""Tests CharacterBERT's folders: the authors' files are recognised, imported, and exported with the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from characterbert_equations import CNN, CONFIG
from safetensors.numpy import load_file, save_file
from small_characterbert import characterbert

from charlm.convert.__main__ import main
from charlm.families.characterbert.vocab import WordVocab
from charlm.families.lookup import recognise
from charlm.families.pretrained import from_pretrained

pytestmark = pytest.mark.usefixtures("log_lines")

STATE = load_file(Path(__file__).resolve().parents[2] / "goldens" / "characterbert" / "small.safetensors")
PRETRAINING = {name: value for name, value in STATE.items() if not name.startswith("head.")}
ENCODER = {name: value for name, value in STATE.items() if name.startswith("bert.")}


def release(folder, state=PRETRAINING, config=CONFIG):
    """Writes a folder as the authors have it."""
    folder.mkdir()
    save_file(dict(state), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mlm_vocab.txt").write_text("".join(f"{100 - n} word{n}\n" for n in range(19)))
    return folder


def run(*arguments):
    return main(list(arguments))


def test_import_and_export_give_the_same_bytes(tmp_path):
    theirs, ours, back = release(tmp_path / "theirs"), tmp_path / "ours", tmp_path / "back"
    assert run("import", f"--input={theirs}", f"--output={ours}") == 0
    assert run("export", f"--checkpoint={ours}", f"--output={back}") == 0
    exported = load_file(back / "model.safetensors")
    second = exported.pop("cls.predictions.decoder.bias")  # their code wants it; it is the same tensor
    np.testing.assert_array_equal(second, PRETRAINING["cls.predictions.bias"])
    left = {name for name in PRETRAINING if "pooler" in name}
    assert exported.keys() == PRETRAINING.keys() - left
    for name, value in exported.items():
        np.testing.assert_array_equal(value, PRETRAINING[name])
    config = json.loads((back / "config.json").read_text())
    assert config["architectures"] == ["CharacterBertForMaskedLM"]
    assert CONFIG.items() <= config.items()
    assert WordVocab.load(back / "mlm_vocab.txt").words == tuple(f"word{n}" for n in range(19))
    again = tmp_path / "again"
    assert run("import", f"--input={back}", f"--output={again}") == 0
    one, two = from_pretrained(ours), from_pretrained(again)
    assert one.config == two.config
    jax.tree.map(np.testing.assert_array_equal, one.params, two.params)


def test_a_model_with_rotary_positions_is_kept_but_not_exported(tmp_path):
    found = from_pretrained(characterbert(position="rotary"))
    assert found.params["bert"]["embed"].keys() == {"norm", "type"}
    with pytest.raises(ValueError, match="cannot be exported: the released code has position='absolute' alone, this"):
        found.save_pretrained(tmp_path / "theirs", format="pytorch")


def test_an_encoder_alone_comes_with_its_pooler(tmp_path):
    model = from_pretrained(release(tmp_path / "theirs", ENCODER))
    assert (model.family, model.head, model.config.pooler) == ("characterbert", "pooled_encoder", True)
    bare = {name.removeprefix("bert."): value for name, value in ENCODER.items()}
    newer = {name.replace("bert.", "character_bert.", 1): value for name, value in ENCODER.items()}
    for number, state in enumerate((bare, newer)):
        other = from_pretrained(release(tmp_path / str(number), state))
        jax.tree.map(np.testing.assert_array_equal, other.params, model.params)
    encoder = from_pretrained(release(tmp_path / "masked"), head="encoder")
    assert "pooler" not in encoder.params["bert"]


@pytest.mark.parametrize("said", [{"model_type": "bert"}, {"model_type": None}])
def test_a_folder_whose_config_is_a_berts_is_recognised_by_its_tensors(tmp_path, said):
    config = {key: value for key, value in CONFIG.items() if key != "model_type"} | said
    folder = release(tmp_path / "theirs", ENCODER, config)
    assert recognise(str(folder)).name == "characterbert"
    model = from_pretrained(folder)
    assert (model.family, model.head) == ("characterbert", "pooled_encoder")
    model.save_pretrained(tmp_path / "back", "pytorch")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "character_bert"
    plain = tmp_path / "bert"
    plain.mkdir()
    save_file({"bert.embeddings.word_embeddings.weight": np.zeros((3, 16), np.float32)}, plain / "model.safetensors")
    (plain / "config.json").write_text(json.dumps({"model_type": "bert"}))
    assert recognise(str(plain)).name == "bert"


def test_other_words_are_as_many_as_the_file_has(tmp_path):
    config = {key: value for key, value in CONFIG.items() if key != "mlm_vocab_size"}
    assert from_pretrained(release(tmp_path / "theirs", config=config)).config.vocab_size == 19


@pytest.mark.parametrize(
    ("state", "config", "message"),
    [
        ({}, {"cnn_activation": "tanh"}, "cnn_activation='tanh' cannot be imported, only 'relu'"),
        (
            {},
            {"cnn_filters": [[1, 2], 3]},
            r"cnn_filters or charlm: \[\[1, 2\], 3\], expected a list of \[",
        ),
        ({}, {"max_word_length": 2}, "max_word_length=2, expected a whole number from 3"),
        ({f"{CNN}char_conv_1.weight": None}, {}, f"missing {CNN}char_conv_1.weight"),
        (
            {f"{CNN}char_conv_7.weight": np.zeros(3)},
            {},
            "unexpected bert.embeddings.word_embeddings.char_conv_7.weight",
        ),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, capsys, state, config, message):
    changed = {name: value for name, value in (PRETRAINING | state).items() if value is not None}
    folder = release(tmp_path / "theirs", changed, CONFIG | config)
    assert run("import", f"--input={folder}", f"--output={tmp_path / 'ours'}") == 1
    errors = capsys.readouterr().err
    assert len(errors.strip().splitlines()) == 1
    with pytest.raises(ValueError, match=message):
        from_pretrained(folder)


def test_inspect_says_what_becomes_of_every_tensor(tmp_path, capsys):
    assert run("inspect", f"--input={release(tmp_path / 'theirs')}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"CharacterBERT, masked lm, {len(PRETRAINING)} tensors")
    (one,) = [line for line in lines if "char_conv_3.weight" in line]
    assert one.endswith("cnn/convolution_3/kernel (transposed)")


@pytest.mark.parametrize("words", [["a", "a"], [], ["a b"]])
def test_a_list_of_words_that_is_none_is_refused(words):
    with pytest.raises(ValueError, match="vocabulary of words: expected "):
        WordVocab(words)


def test_words_are_counted_in_the_form_in_which_they_are_read(tmp_path):
    counts = {"Cat": 2, "cat": 1, "dog": 3, "the": 5, "\x07": 9, "a\u00a0b": 9}
    vocab = WordVocab.build(counts, 3, lowercase=True)
    assert vocab.words == ("the", "cat", "dog")
    assert (vocab.id("cat"), vocab.id("Cat")) == (1, None)
    vocab.save(tmp_path / "words.txt")
    assert WordVocab.load(tmp_path / "words.txt").digest() == vocab.digest()
    (tmp_path / "counted.txt").write_text("5 the\n3 cat\n3 dog\n")  # as the released pre-training code writes it
    assert WordVocab.load(tmp_path / "counted.txt").words == vocab.words
