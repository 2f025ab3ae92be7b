"""Tests search by vectors: what an index holds, exact search by definition, the models it refuses, and the commands."""

from __future__ import annotations

import gzip
import io
import json
import shutil

import numpy as np
import pytest
from tiny_models import release

import charlm
from charlm.search.__main__ import main
from charlm.search.index import ABOUT, OFFSETS, TEXTS, VECTORS, Index, WrongModel, write_index
from charlm.search.texts import read_texts
from charlm.search.vectors import PART, identity, vectors_of

TEXTS_ = ["the cat sat on a mat", "dog", "we slept near every old tree", "ein\u2028Text \ud800", "dog"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))


def unit(shape, seed=0):
    found = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.fixture
def small(tmp_path):
    """An index of five texts and random vectors."""
    write_index(tmp_path / "index", TEXTS_, unit((5, 8)), "me", "path")
    return tmp_path / "index"


def test_an_index_gives_its_texts_and_vectors_back(small):
    index = Index(small)
    assert [index.text(n) for n in range(len(index))] == TEXTS_
    np.testing.assert_array_equal(index.vectors_ND, unit((5, 8)))
    assert (index.made_by, index.model, index.kind) == ("me", "path", "exact")


def test_exact_search_is_the_order_of_the_cosines(small, monkeypatch):
    vectors, queries = unit((50, 8)), unit((4, 8), 1)
    vectors[30] = vectors[7]  # equal scores: the first text first
    write_index(small.parent / "other", [str(n) for n in range(50)], vectors, "me", "path")
    expected = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")
    for rows in (1 << 16, 12):
        monkeypatch.setattr("charlm.search.index._ROWS", rows)
        for top in (1, 9, 60):
            scores, found = Index(small.parent / "other").search(queries, top)
            np.testing.assert_array_equal(found, expected[:, :top])
            np.testing.assert_allclose(scores, np.take_along_axis(queries @ vectors.T, found, 1), atol=1e-6)
    with pytest.raises(ValueError, match="expected vectors of 8 numbers"):
        Index(small).search(unit((1, 7)), 3)


def test_an_index_of_another_model_is_refused(small):
    index = Index(small)
    index.check("me", "any")
    with pytest.raises(WrongModel, match="was made by another model, path: student cannot query it; --same-space"):
        index.check("you", "student")
    index.check("you", "student", same_space=True)


def test_what_is_there_is_replaced_only_on_request(small, tmp_path):
    with pytest.raises(ValueError, match="--replace replaces an index there"):
        write_index(small, ["x"], unit((1, 8)), "me", "path")
    write_index(small, ["x"], unit((1, 8)), "me", "path", replace=True)
    assert len(Index(small)) == 1
    (tmp_path / "thesis").mkdir()
    with pytest.raises(ValueError, match="is no index"):
        write_index(tmp_path / "thesis", ["x"], unit((1, 8)), "me", "path", replace=True)
    with pytest.raises(ValueError, match="expected as many"):
        write_index(tmp_path / "new", ["x"], unit((2, 8)), "me", "path")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (ABOUT, b"{", "expected a UTF-8 JSON object"),
        (ABOUT, b'{"format": 9}', "format 9, expected 1"),
        (ABOUT, b'{"format": 1, "made_by": 3}', "expected a text 'made_by'"),
        (ABOUT, b'{"format": 1, "made_by": "a", "model": "b", "kind": "c"}', "kind 'c'"),
        (VECTORS, b"nothing", "is a damaged index"),
        (OFFSETS, b"", "is a damaged index"),
    ],
)
def test_damaged_files_are_named(small, name, content, message):
    (small / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        Index(small)
    assert "\n" not in str(raised.value)


def test_files_that_do_not_fit_each_other(small):
    np.save(small / VECTORS, unit((4, 8)))
    with pytest.raises(ValueError, match="do not fit each other"):
        Index(small)


def test_a_damaged_text_is_named(small):
    (small / TEXTS).write_bytes(b"[1]" * 60)
    with pytest.raises(ValueError, match=r"text 0 is damaged"):
        Index(small).text(0)


def test_the_graph_finds_what_the_exact_search_finds(tmp_path):
    pytest.importorskip("faiss")
    vectors, queries = unit((300, 8)), unit((20, 8), 1)
    write_index(tmp_path / "graph", [str(n) for n in range(300)], vectors, "me", "path", kind="hnsw")
    index = Index(tmp_path / "graph")
    found, exact = index.search(queries, 5)[1], index.search(queries, 5, exact=True)[1]
    assert (found == exact).mean() > 0.95
    np.save(index.folder / VECTORS, unit((300, 8), 2))
    (index.folder / "hnsw.faiss").write_bytes(b"x")
    with pytest.raises(ValueError, match="is damaged"):
        Index(index.folder)


def test_a_graph_needs_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'faiss-cpu is not installed: pip install -e "\.\[search\]"'):
        write_index(tmp_path / "graph", ["x"], unit((1, 8)), "me", "path", kind="hnsw")
    assert not (tmp_path / "graph").exists()


def test_vectors_are_kept_by_content_and_model(tmp_path, monkeypatch):
    model = charlm.load(release("bert"))
    texts, by = [f"{text} {n}" for n in range(PART // 2) for text in TEXTS_[:3]], identity(model)
    found = vectors_of(model, texts, by)
    np.testing.assert_allclose(found, model.encode(texts, normalize=True), atol=1e-5)
    parts = sorted((tmp_path / "cache" / "vectors").rglob("*.npy"))
    assert len(parts) == 2
    parts[0].write_bytes(b"damaged")
    asked = []
    encode = type(model).encode
    monkeypatch.setattr(
        type(model), "encode", lambda self, some, **rest: asked.append(len(some)) or encode(self, some, **rest)
    )
    np.testing.assert_allclose(vectors_of(model, texts, by), found, atol=1e-5)
    assert asked == [PART]  # the damaged part alone
    vectors_of(model, texts, by + "x")
    assert len(asked) == 3


def test_the_identity_of_a_model(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(release("bert"), folder)
    before = identity(charlm.load(folder))
    assert identity(charlm.load(release("bert"))) == before
    (folder / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.models.{kind}", "path": path}
                    for kind, path in (("Transformer", ""), ("Pooling", "1_Pooling"))])
    )  # fmt: skip
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    pooled = identity(charlm.load(folder))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true, "changed": 1}')
    assert len({before, pooled, identity(charlm.load(folder))}) == 3


def test_the_commands(tmp_path, capsys, monkeypatch):
    docs, index, model = tmp_path / "docs.txt.gz", tmp_path / "index", str(release("bert"))
    with gzip.open(docs, "wt", encoding="utf-8") as file:
        file.write("the cat sat on a mat\n\nwe slept near every old tree\ndog\n")
    assert main(["index", str(docs), "--model", model, "--output", str(index)]) == 0
    assert "3 texts, 24 numbers each" in capsys.readouterr().out
    assert main(["query", "--model", model, "--index", str(index), "--top", "2", "dog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[1], len(lines)) == ("dog", "  1.000  dog", 3)
    monkeypatch.setattr("sys.stdin", io.StringIO("dog\n \nthe cat sat on a mat\n"))
    assert main(["query", "--model", model, "--index", str(index), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [[text["text"] for text in one["results"]][:1] for one in found] == [["dog"], [], ["the cat sat on a mat"]]
    assert found[1] == {"query": " ", "results": []}
    assert main(["index", str(docs), "--model", model, "--output", str(index)]) == 1
    assert "--replace" in capsys.readouterr().err
    other = str(release("bert", epsilon=0.1))
    assert main(["query", "--model", other, "--index", str(index), "dog"]) == 1
    assert "was made by another model" in capsys.readouterr().err
    assert main(["query", "--model", other, "--index", str(index), "--same-space", "dog"]) == 0


def test_texts_of_json_lines(tmp_path, capsys):
    docs = tmp_path / "docs.jsonl"
    docs.write_text('{"text": "dog"}\n{"title": "x"}\n', encoding="utf-8")
    arguments = ["index", str(docs), "--model", str(release("bert")), "--output", str(tmp_path / "index")]
    assert main(arguments) == 1
    assert "docs.jsonl:2: expected an object with a text `text`" in capsys.readouterr().err
    docs.write_text('{"text": "dog"}\n{"text": " "}\n\n{"text": "cat"}\n', encoding="utf-8")
    assert read_texts("DOCS", str(docs)) == ["dog", "cat"]
