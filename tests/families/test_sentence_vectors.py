"""Tests vectors of whole texts: each way of pooling by its definition, prompts, lengths, and files of strangers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file
from tiny_models import POSITIONS, release, run_alone

import charlm
from charlm.convert.__main__ import main as convert
from charlm.convert.sentence_files import copy_sentence_files, module_folders
from charlm.families.sentences import (
    _ACTIVATIONS,
    POOLS,
    Dense,
    Normalize,
    SentenceSettings,
    _sealed,
    pooled,
    read_settings,
    sentence_vectors,
    write_settings,
)
from charlm.text.subwords import SubwordTokenizer

TEXTS = ["the cat sat on a mat", "dog", "  we slept near every old tree ", "", "the old tree " * 12]
LIBRARY = "sentence_transformers.models."


def modules(*kinds):
    """The content of modules.json: kinds with the folders that sentence-transformers gives them."""
    return [
        {"idx": n, "name": str(n), "path": f"{n}_{k}" if n else "", "type": LIBRARY + k} for n, k in enumerate(kinds)
    ]


@pytest.fixture
def folder(tmp_path):
    """Returns a function that writes a tiny BERT with files of sentence-transformers, given by their names."""

    def write(files):
        made = tmp_path / "model"
        if not made.is_dir():
            shutil.copytree(release("bert"), made)
        for name, content in files.items():
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_text(json.dumps(content), encoding="utf-8")
        return made

    return write


def states_of(texts, longest=POSITIONS):
    """The states [L, D] of each text, computed alone and without padding, cut as sentence-transformers cuts."""
    tokenizer = SubwordTokenizer.load(release("bert"))
    rows = [list(tokenizer.encode(text.strip()).ids) for text in texts]
    rows = [row if len(row) <= longest else [*row[: longest - 1], row[-1]] for row in rows]
    return [run_alone("bert", row)[0] for row in rows]


DEFINITIONS = {
    "pooling_mode_cls_token": lambda s: s[0],
    "pooling_mode_max_tokens": lambda s: s.max(0),
    "pooling_mode_mean_tokens": lambda s: s.sum(0) / len(s),
    "pooling_mode_mean_sqrt_len_tokens": lambda s: s.sum(0) / len(s) ** 0.5,
    "pooling_mode_weightedmean_tokens": lambda s: np.arange(1, len(s) + 1) @ s / np.arange(1, len(s) + 1).sum(),
    "pooling_mode_lasttoken": lambda s: s[-1],
}


def test_settings_that_are_written_are_read_back(tmp_path):
    rng = np.random.default_rng(0)
    dense = [Dense(rng.normal(size=(3, 4)).astype(np.float32), np.ones(3, np.float32), name) for name in _ACTIVATIONS]
    for number, settings in enumerate(
        [
            SentenceSettings(),
            SentenceSettings(("cls", "max"), (dense[0], Normalize()), 12, True, {"query": "ask: "}, "query", False),
            SentenceSettings(("weightedmean",), (dense[1], dense[2])),
        ]
    ):
        (made := tmp_path / str(number)).mkdir()
        write_settings(made, settings, 4)
        found = read_settings(made)
        assert found.digest == _sealed(settings).digest
        assert found.pools == settings.pools
        vectors_ND = rng.normal(size=(2, 4)).astype(np.float32)
        for one, other in zip(found.steps[:1], settings.steps[:1], strict=True):
            np.testing.assert_array_equal(one(vectors_ND), other(vectors_ND))


def test_how_vectors_are_made_goes_with_a_model_that_is_saved_imported_or_exported(folder, tmp_path, monkeypatch):
    pooling = {name: name == "pooling_mode_cls_token" for name in DEFINITIONS}
    made = folder(
        {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": pooling,
         "sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": False},
         "config_sentence_transformers.json": {"prompts": {"query": "ask: "}, "default_prompt_name": None}}
    )  # fmt: skip
    model = charlm.load(made)
    wanted = model.encode("she had birds " * 9, normalize=True, prompt_name="query")
    model.pretrained.save_pretrained(tmp_path / "saved")
    assert convert(["import", "--input", str(made), "--output", str(tmp_path / "imported")]) == 0
    assert convert(["export", "--checkpoint", str(tmp_path / "imported"), "--output", str(tmp_path / "exported")]) == 0
    for name in ("saved", "imported", "exported"):
        found = charlm.load(tmp_path / name).encode("she had birds " * 9, normalize=True, prompt_name="query")
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    monkeypatch.chdir(made.parent)
    moved = charlm.load(made.name)
    monkeypatch.chdir(tmp_path)  # its files are read after that
    np.testing.assert_array_equal(moved.encode("a", normalize=True), charlm.load(made).encode("a", normalize=True))


def test_modules_outside_the_folder_are_not_copied(tmp_path):
    for name in ("model", "secret", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret" / "key").write_text("mine")
    paths = ["../secret", str(tmp_path / "secret"), "1_Pooling", "", 3]
    (tmp_path / "model" / "modules.json").write_text(json.dumps([{"path": path} for path in paths]))
    (tmp_path / "model" / "1_Pooling").mkdir()
    assert module_folders(tmp_path / "model") == ["1_Pooling"]
    copy_sentence_files(tmp_path / "model", tmp_path / "target")
    assert sorted(path.name for path in (tmp_path / "target").iterdir()) == ["1_Pooling", "modules.json"]


def test_every_way_of_pooling(folder):
    model = None
    for flag, pool in DEFINITIONS.items():
        pooling = {name: name == flag for name in DEFINITIONS}
        made = folder(
            {"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": pooling,
             "sentence_bert_config.json": {"max_seq_length": 20, "do_lower_case": False}}
        )  # fmt: skip
        model = charlm.load(made, batch_size=2) if model is None else model
        model.__dict__.pop("sentence_settings", None)  # the files are others
        found = model.encode(TEXTS, normalize=False)
        assert found.dtype == np.float32
        expected = np.stack([pool(states) for states in states_of(TEXTS, 20)])
        np.testing.assert_allclose(found, expected, atol=2e-5)
        unit = model.encode(TEXTS, normalize=True)
        np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-5)


def test_several_ways_are_joined_in_the_order_of_the_library():
    states = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    joined = pooled(states, ("mean", "cls"))
    np.testing.assert_array_equal(joined, np.concatenate([states[0], states.mean(0)]))
    assert not pooled(states[:0], tuple(POOLS)).any()


def test_a_model_without_files_gives_the_mean_over_all_positions():
    model = charlm.load(release("bert"))
    words = model.encode(TEXTS)
    np.testing.assert_allclose(model.encode(TEXTS, normalize=False), [one.sentence for one in words], atol=1e-5)
    one = model.encode(TEXTS[0], normalize=True)
    assert one.shape == (24,)
    assert float(np.linalg.norm(one)) == pytest.approx(1)
    assert model.encode([], normalize=True).shape == (0, len(one))


def test_normalisation_and_a_dense_layer(folder):
    rng = np.random.default_rng(1)
    weight, bias = rng.normal(size=(7, 24)).astype(np.float32), rng.normal(size=7).astype(np.float32)
    activation = "torch.nn.modules.activation.Tanh"
    made = folder(
        {"modules.json": modules("Transformer", "Pooling", "Dense", "Normalize"),
         "1_Pooling/config.json": {"pooling_mode": "mean"},
         "2_Dense/config.json": {"in_features": 24, "out_features": 7, "activation_function": activation}}
    )  # fmt: skip
    save_file({"linear.weight": weight, "linear.bias": bias}, made / "2_Dense" / "model.safetensors")
    found = charlm.load(made).encode(TEXTS[:3], normalize=False)
    expected = np.tanh(np.stack([states.mean(0) for states in states_of(TEXTS[:3])]) @ weight.T + bias)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-5)
    assert read_settings(made).digest != read_settings(release("bert")).digest
    save_file({"linear.weight": weight[:, :5], "linear.bias": bias}, made / "2_Dense" / "model.safetensors")
    with pytest.raises(ValueError, match="the dense layer reads 5 numbers, a vector has 24"):
        charlm.load(made).encode("dog", normalize=True)


def test_prompts_by_name(folder):
    prompts = {"prompts": {"query": "the old ", "passage": ""}, "default_prompt_name": "query"}
    made = folder({"config_sentence_transformers.json": prompts})
    model = charlm.load(made)
    asked = model.encode("tree", normalize=True)
    np.testing.assert_array_equal(asked, model.encode("tree", normalize=True, prompt_name="query"))
    np.testing.assert_array_equal(asked, model.encode("the old tree", normalize=True, prompt=""))
    assert not np.allclose(asked, model.encode("tree", normalize=True, prompt_name="passage"))
    with pytest.raises(ValueError, match="prompt_name='qeury': the model has one of query, passage; did you mean"):
        model.encode("tree", normalize=True, prompt_name="qeury")
    with pytest.raises(ValueError, match="give normalize=True or False"):
        model.encode("tree", prompt_name="query")
    with pytest.raises(ValueError, match="expected one of them"):
        model.encode("tree", normalize=True, prompt="a", prompt_name="query")
    with pytest.raises(ValueError, match="the model has none"):
        charlm.load(release("bert")).encode("tree", normalize=True, prompt_name="query")


def test_a_prompt_that_is_to_be_left_out_is_refused(folder):
    made = folder(
        {"modules.json": modules("Transformer", "Pooling"),
         "1_Pooling/config.json": {"pooling_mode": "mean", "include_prompt": False}}
    )  # fmt: skip
    model = charlm.load(made)
    assert model.encode("tree", normalize=True).shape == (24,)
    with pytest.raises(ValueError, match="leave the prompt out of pooling"):
        model.encode("tree", normalize=True, prompt="the ")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"modules.json": {}}, "expected a list of modules"),
        ({"modules.json": ["x"]}, "module 0: expected an object"),
        ({"modules.json": [{"type": "os.system", "path": ""}]}, "code of its own that charlm does not run"),
        ({"modules.json": [{"type": LIBRARY + "Transformer", "path": "../x"}]}, "leaves the model's folder"),
        ({"modules.json": [{"type": LIBRARY + "Transformer", "path": "/x"}]}, "leaves the model's folder"),
        ({"modules.json": modules("Pooling")}, "expected a Transformer in the folder itself"),
        ({"modules.json": modules("Transformer", "Normalize")}, "then a Pooling"),
        ({"modules.json": modules("Transformer", "Pooling")}, "expected this file, found none"),
        ({"modules.json": modules("Transformer", "Pooling", "LSTM"), "1_Pooling/config.json": {"pooling_mode": "cls"}},
         "module 2 is a LSTM; charlm has"),
        ({"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {}}, "one or more of cls"),
        ({"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {"pooling_mode": [3]}}, "one or"),
        ({"modules.json": modules("Transformer", "Pooling"),
          "1_Pooling/config.json": {"pooling_mode_cls_token": "yes"}}, "cls_token: expected true or false"),
        ({"modules.json": modules("Transformer", "Pooling"), "1_Pooling/config.json": {"pooling_mode": "mean"},
          "sentence_bert_config.json": {"max_seq_length": -1}}, "max_seq_length: expected a whole number"),
        ({"config_sentence_transformers.json": {"prompts": ["x"]}}, "prompts: expected an object of texts"),
        ({"config_sentence_transformers.json": {"default_prompt_name": "x"}}, "'x' is none of none"),
        ({"modules.json": modules("Transformer", "Pooling", "Dense"), "1_Pooling/config.json": {"pooling_mode": "cls"},
          "2_Dense/config.json": {"activation_function": "torch.nn.GLU"}}, "activation GLU: expected one of"),
        ({"modules.json": modules("Transformer", "Pooling", "Dense"), "1_Pooling/config.json": {"pooling_mode": "cls"},
          "2_Dense/config.json": {}}, "2_Dense holds no state dict"),
    ],
)  # fmt: skip
def test_files_of_strangers_are_checked(folder, files, message):
    made = folder(files)
    with pytest.raises(ValueError, match=message) as raised:
        read_settings(made)
    assert "\n" not in str(raised.value)


def test_a_model_that_reads_characters_pools_its_words(trained):
    model = charlm.load(trained.workdir)
    settings = read_settings(model.pretrained.folder)
    texts = ["Return the first element.", "tuple", ""]
    found = sentence_vectors(model.predictor, texts, settings)
    np.testing.assert_allclose(found, [one.sentence for one in model.encode(texts)], atol=1e-5)
