"""Tests charlm's models in sentence-transformers itself, and their module with PyTorch alone."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from sentence_cases import TEXTS, encoder, reader

import charlm
from charlm.export.sentence_folder import write_sentence_folder
from charlm.families.exported import INSIDE, SETTINGS

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
from charlm.export.sentence_module import SentenceModule, sentence_transformer  # noqa: E402  it needs PyTorch


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    write_sentence_folder(str(reader(made)), str(made / "exported"))
    return made / "exported"


@pytest.fixture(scope="module")
def own(folder):
    return charlm.load(folder.parent / "reader")


@pytest.fixture
def module(folder):
    return SentenceModule.load(str(folder))


def forward(module, texts, **options):
    with torch.no_grad():
        return module(module.preprocess(texts, **options))["sentence_embedding"]


def test_a_module_gives_the_vectors_of_charlm(module, own):
    np.testing.assert_allclose(forward(module, TEXTS), own.encode(TEXTS, normalize=True), atol=1e-5)
    wanted = own.encode(TEXTS, normalize=True, prompt="old ")
    np.testing.assert_allclose(forward(module, TEXTS, prompt="old "), wanted, atol=1e-5)
    assert module.get_embedding_dimension() == own.encode("a", normalize=True).size
    assert forward(module.to(torch.float16), TEXTS).dtype == torch.float16


def test_lengths_are_those_of_the_files_if_they_say_so(tmp_path):
    write_sentence_folder(str(encoder(tmp_path / "encoder")), str(tmp_path / "exported"))
    (tmp_path / "exported" / SETTINGS).write_text(json.dumps({"max_seq_length": 12, "normalize": False}))
    found, wanted = SentenceModule(tmp_path / "exported"), charlm.load(tmp_path / "encoder")
    np.testing.assert_allclose(forward(found, TEXTS), wanted.encode(TEXTS, normalize=False), atol=1e-5)
    assert abs(np.linalg.norm(forward(found, ["dog"])) - 1) > 0.1


def test_the_longest_text_is_changed_and_kept(module, own, tmp_path):
    assert module.max_seq_length == 12
    module.max_seq_length = 3
    np.testing.assert_allclose(forward(module, ["the old tree"]), forward(module, ["the dog"]), atol=1e-6)
    module.save(str(tmp_path))
    assert SentenceModule(tmp_path / INSIDE).max_seq_length == 12  # the model itself, without the folder around it
    (tmp_path / "modules.json").write_text(
        json.dumps([{"type": f"{SentenceModule.__module__}.SentenceModule", "path": ""}])
    )
    assert SentenceModule(tmp_path).max_seq_length == 3
    for wrong in (0, "long", True, 2.5):
        with pytest.raises(ValueError, match="max_seq_length: expected a whole number"):
            module.max_seq_length = wrong


def test_there_are_no_gradients_and_training_says_so(module):
    for mode in (module.train(), module.eval()):
        with pytest.raises(RuntimeError, match="no gradients in PyTorch"):
            mode(mode.preprocess(["dog"]))
    assert [*module.parameters()]  # an optimizer takes them, so that training comes to this message
    head = torch.nn.Linear(module.get_embedding_dimension(), 1)
    module.requires_grad_(False)
    head(module(module.preprocess(["dog"]))["sentence_embedding"]).sum().backward()
    assert head.weight.grad.abs().sum() > 0


def test_what_it_cannot_do_is_said(module, folder):
    with torch.no_grad(), pytest.raises(ValueError, match="one vector a text, and no token_embeddings"):
        module(module.preprocess(["dog"]))["token_embeddings"]
    with pytest.raises(ValueError, match="number 0 is a tuple"):
        module.preprocess([("a", "b")])
    with pytest.raises(ValueError, match="max_length: a model of charlm takes no options of a tokenizer"):
        module.preprocess(["a"], max_length=3)
    with pytest.raises(ValueError, match="model_kwargs: a model of charlm takes no options of transformers"):
        SentenceModule.load(str(folder), model_kwargs={"torch_dtype": "float16"})
    with pytest.raises(ValueError, match="backend='onnx'"):
        SentenceModule.load(str(folder), backend="onnx")


def test_a_copy_and_a_module_saved_onto_itself_work(module, folder):
    before = forward(module, TEXTS)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    module.save(str(folder))
    assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == files
    np.testing.assert_array_equal(forward(copy.deepcopy(module), TEXTS), before)


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def model(library, folder):
    return library.SentenceTransformer(str(folder), trust_remote_code=True)


def test_the_library_loads_the_folder(model, own):
    np.testing.assert_allclose(model.encode(TEXTS, batch_size=4), own.encode(TEXTS, normalize=True), atol=1e-5)
    wanted = own.encode(TEXTS, normalize=True, prompt_name="query")
    np.testing.assert_allclose(model.encode_query(TEXTS), wanted, atol=1e-5)
    np.testing.assert_allclose(model.encode_document("dog"), own.encode("dog", normalize=True), atol=1e-5)
    assert model.encode(TEXTS, convert_to_tensor=True).dtype == torch.float32
    assert (model.similarity_fn_name, model.max_seq_length, model.get_embedding_dimension()) == ("dot", 12, 24)


def test_the_library_needs_no_flag_where_charlm_makes_the_model(library, own):
    found = sentence_transformer(own.path)
    np.testing.assert_allclose(found.encode(TEXTS), own.encode(TEXTS, normalize=True), atol=1e-5)
    assert found.prompts["query"] == "old "
    assert sentence_transformer(own.path, prompts={"query": "a "}).prompts["query"] == "a "


def test_a_saved_model_is_loaded_again_by_both(library, model, tmp_path):
    changed = copy.deepcopy(model)
    changed.prompts["query"], changed.max_seq_length = "the ", 5
    changed.save_pretrained(str(tmp_path / "saved"))
    wanted = changed.encode_query(TEXTS)
    again = library.SentenceTransformer(str(tmp_path / "saved"), trust_remote_code=True)
    np.testing.assert_allclose(again.encode_query(TEXTS), wanted, atol=1e-5)
    found = charlm.load(tmp_path / "saved").encode(TEXTS, normalize=True, prompt_name="query")
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_training_in_the_library_fails_clearly(library, model):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    features = [model.preprocess(["dog"]), model.preprocess(["cat"])]
    with pytest.raises(RuntimeError, match="train it with charlm"):
        losses.CosineSimilarityLoss(model.train())(features, torch.tensor([1.0]))
