"""Tests the command that gives an encoder a speller, and search with its result."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.core import checksums
from charlm.core.durable import write_json
from charlm.export import program as export
from charlm.families.pretrained import from_pretrained
from charlm.search.__main__ import main
from charlm.search.vectors import identity
from charlm.text.speller.files import FILE, read_speller
from charlm.text.speller.settings import MORE_WITH_WORDS, SpellerSettings


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))


def test_a_reader_asks_the_index_of_its_encoder(tmp_path, capsys):
    encoder, docs = str(release("bert")), tmp_path / "docs.jsonl"
    lines = ["they read old stories", "the zqorviqa walking", "she tells words"]
    docs.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")
    reader = str(tmp_path / "reader")
    assert main(["speller", f"--model={encoder}", f"--texts={docs}", "--kept=1", f"--output={reader}"]) == 0
    assert "which knows 10 words of 3 texts, too" in capsys.readouterr().out
    stored = read_speller(tmp_path / "reader")
    assert stored.words["zqorviqa"] == 1
    assert stored.settings.unknown == SpellerSettings().unknown + MORE_WITH_WORDS
    assert main(["index", str(docs), f"--model={encoder}", f"--output={tmp_path}/index"]) == 0
    ask = ["query", f"--model={reader}", f"--index={tmp_path}/index", "--json", "teh zqorviq walkign"]
    assert main(ask) == 1
    assert "was made by another model" in capsys.readouterr().err
    assert main([*ask, "--same-space"]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]
    assert found["text"] == lines[1]
    assert found["cosine"] == pytest.approx(1, abs=1e-5)
    models = [charlm.load(one) for one in (encoder, reader)]
    assert identity(models[0]) != identity(models[1])


MAKE = ["speller", "--kept=1", "--language=de"]


def test_without_texts_the_words_are_those_of_the_table(tmp_path):
    assert main([*MAKE, f"--model={release('bert')}", f"--output={tmp_path}/reader"]) == 0
    stored = read_speller(tmp_path / "reader")
    assert stored.words == {}
    assert (stored.settings.kept, stored.settings.language) == (1, "de")
    vectors = charlm.load(tmp_path / "reader").encode(["htey raed", "they read"], normalize=True)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("roberta", [], "a model of the kind RoBERTa reads no text through a speller"),
        ("gpt2", [], "a model of the kind GPT-2 reads no text through a speller"),
        ("hlm-small-en", [], "a model of the kind HLM reads no text through a speller"),
        ("hlm-small-en-pos", [], "it predicts labels"),
        ("bert", ["--kept=0"], "--kept=0: expected at least 1"),
        ("bert", ["--unknown=-1"], "--unknown=-1: expected a positive number"),
        ("bert", ["--language=xx"], "no keyboard for language 'xx'"),
        ("bert", ["--texts", "none.txt"], "none.txt"),
    ],
)
def test_bad_input_is_told_in_a_line_and_nothing_is_written(tmp_path, capsys, model, options, message):
    path = model if model.startswith("hlm") else release(model)
    assert main(["speller", f"--model={path}", f"--output={tmp_path}/reader", *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "reader").exists()


def test_texts_without_words_and_a_second_speller_are_refused(tmp_path, capsys):
    (tmp_path / "none.txt").write_text("12 34 !!\n", encoding="utf-8")
    make = ["speller", f"--model={release('bert')}", f"--output={tmp_path}/reader"]
    assert main([*make, f"--texts={tmp_path}/none.txt"]) == 1
    assert "no words in 1 texts" in capsys.readouterr().err
    assert main(make) == 0
    (tmp_path / "some.txt").write_text("Zyzzogeton flies\n", encoding="utf-8")
    again = ["speller", f"--model={tmp_path}/reader", f"--texts={tmp_path}/some.txt", f"--output={tmp_path}/other"]
    assert main(again) == 0  # the first one knew no texts, so nothing of it is lost
    assert {*read_speller(tmp_path / "other").words} == {"zyzzogeton", "flies"}
    assert main(["speller", f"--model={tmp_path}/other", f"--output={tmp_path}/third"]) == 1
    assert "it has a speller already, which knows words of texts" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()
    with pytest.raises(ValueError, match="reads through a speller, which no program holds"):
        export.load(tmp_path / "reader")


def test_a_folder_that_exists_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("x", encoding="utf-8")
    assert main(["speller", f"--model={release('bert')}", f"--output={tmp_path}"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert not (tmp_path / FILE).exists()


def test_a_reader_of_a_packed_model_with_other_words_loads(tmp_path):
    encoder, packed, reader = tmp_path / "encoder", tmp_path / "packed", tmp_path / "reader"
    from_pretrained(release("bert")).save_pretrained(encoder)
    assert main(["speller", f"--model={encoder}", f"--output={packed}"]) == 0
    checksums.write(packed)  # as charlm ship leaves it
    write_json(packed / "card.json", {"title": "of the packed model"})
    (packed / "README.md").write_text("of the packed model", encoding="utf-8")
    (tmp_path / "some.txt").write_text("Zyzzogeton flies\n", encoding="utf-8")
    assert main(["speller", f"--model={packed}", f"--texts={tmp_path}/some.txt", f"--output={reader}"]) == 0
    checksums.check(reader)
    assert charlm.load(reader).encode("Zyzogeton flise").words
    assert not {"card.json", "README.md"} & {path.name for path in reader.iterdir()}
