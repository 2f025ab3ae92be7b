"""Tests import and export of Char2Subword, with and without its table, and as a BERT of whole words."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import pytest
from again import again
from programs import applied
from safetensors.numpy import load_file, save_file
from small_char2subword import spelled, vectors
from subword_cases import failure, run
from tiny_models import release

from charlm.core import checkpoint as checkpoints
from charlm.families.lookup import units_of
from charlm.families.predictor import Predictor
from charlm.families.pretrained import from_pretrained

BACKBONES = pytest.mark.parametrize("backbone", ["bert", "roberta", "roformer"])
HEADS = [("encoder", 0), ("masked_lm", 0), ("sequence_classification", 3), ("token_classification", 4),
         ("question_answering", 2)]  # fmt: skip
MODULE = {
    "char_embs.weight", "layers.0.q.weight", "layers.0.k.weight", "layers.0.v.weight", "layers.0.o.weight",
    "layers.0.ff1.weight", "layers.0.ff1.bias", "layers.0.ff2.weight", "layers.0.ff2.bias", "layers.0.ln1.weight",
    "layers.0.ln1.bias", "layers.0.ln2.weight", "layers.0.ln2.bias", "proj.weight", "proj.bias", "ln_out.weight",
    "ln_out.bias",
}  # fmt: skip


def cases(heads):
    """Every backbone with every head; on RoBERTa the heads that predict no words are those on BERT: slow."""
    slow = lambda *case: pytest.param(*case, marks=[pytest.mark.slow] * (case[:2] not in QUICK))
    return [slow(backbone, *head) for backbone in ("bert", "roberta", "roformer") for head in heads]


QUICK = [("roberta", "masked_lm"), ("roformer", "masked_lm"), ("bert", "encoder"), ("bert", "token_classification")]


def take(checkpoint, output, *more):
    return run("export", f"--checkpoint={checkpoint}", f"--output={output}", *more)


def bring(source, output, *more):
    return run("import", f"--input={source}", f"--output={output}", *more)


def same_files(one, other, *names):
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize(("backbone", "head", "labels"), cases(HEADS))
def test_there_and_back_every_file_has_the_same_bytes(tmp_path, backbone, head, labels):
    source = spelled(backbone, head, "hybrid", labels)
    assert take(source, tmp_path / "theirs") == 0
    assert bring(tmp_path / "theirs", tmp_path / "ours") == 0
    assert take(tmp_path / "ours", tmp_path / "again") == 0
    same_files(tmp_path / "theirs", tmp_path / "again", "model.safetensors", "char_vocab.json", "tokenizer.json")
    one, other = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("theirs", "again"))
    assert one == other
    before, after = (from_pretrained(folder) for folder in (source, tmp_path / "ours"))
    assert (after.config, after.head, after.vocab()) == (before.config, head, before.vocab())
    jax.tree.map(np.testing.assert_array_equal, after.params, before.params)
    one, other = (checkpoints.read_metadata(folder) for folder in (source, tmp_path / "ours"))
    assert {k: v for k, v in one.items() if k != "hf_config"} == {k: v for k, v in other.items() if k != "hf_config"}


@BACKBONES
def test_names_are_those_of_transformers_and_of_the_equations(tmp_path, backbone):
    take(spelled(backbone), tmp_path / "theirs")
    held = load_file(tmp_path / "theirs" / "model.safetensors")
    plain = load_file(release(backbone) / "model.safetensors")
    assert held.keys() - plain.keys() == {f"char2subword.{name}" for name in MODULE}
    assert not plain.keys() - held.keys()
    assert {name: held[name].shape for name in plain} == {name: value.shape for name, value in plain.items()}
    kernel = from_pretrained(spelled(backbone)).params["char2subword"]["layer_0"]["ffn_in"]["kernel"]
    np.testing.assert_array_equal(held["char2subword.layers.0.ff1.weight"], np.asarray(kernel).T)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert (config["model_type"], config["char2subword"]["backbone"]) == ("char2subword", backbone)
    assert config["architectures"] == ["Char2SubwordForMaskedLM"]


def test_a_pooler_is_kept_and_heads_are_cut(tmp_path):
    pooled = spelled("bert", "sequence_classification", "hybrid", 3)
    take(pooled, tmp_path / "theirs")
    found = from_pretrained(tmp_path / "theirs", head="encoder")
    assert found.config.pooler
    np.testing.assert_array_equal(
        found.params["bert"]["pooler"]["dense"]["kernel"],
        from_pretrained(pooled).params["bert"]["pooler"]["dense"]["kernel"],
    )
    found.save_pretrained(tmp_path / "encoder", "pytorch")
    assert from_pretrained(tmp_path / "encoder").head == "encoder"
    alone = from_pretrained(spelled(), head="encoder")
    assert set(alone.params) == {"bert", "char2subword"}
    assert not alone.config.pooler


def test_changes_reach_the_module():
    found = from_pretrained(spelled(), mode="full", dtype="bfloat16", remat=True, scan_layers=True, dropout=0.25)
    assert (found.config.mode, found.config.dropout, found.config.characters.dropout) == ("full", 0.25, 0.25)
    assert found.config.characters.dtype == found.config.dtype == "bfloat16"
    assert found.config.characters.remat
    assert found.config.characters.scan_layers
    assert found.metadata["model"]["characters"]["dtype"] == "bfloat16"
    with pytest.raises(ValueError, match="mode='half': expected full, hybrid or gated"):
        from_pretrained(spelled(), mode="half")
    with pytest.raises(ValueError, match="mode cannot be changed in a BertConfig"):
        from_pretrained(release("bert"), mode="full")


# ---- Without the table ----


@pytest.mark.parametrize(("backbone", "head", "labels"), cases([("masked_lm", 0), ("token_classification", 4)]))
def test_without_the_table_full_mode_is_the_same(tmp_path, backbone, head, labels):
    source = spelled(backbone, head, "hybrid", labels)
    assert take(source, tmp_path / "free", "--table-free") == 0
    free, whole = from_pretrained(tmp_path / "free"), from_pretrained(source, mode="full")
    special = sorted({index for index in whole.tokenizer().special if index is not None})
    assert free.metadata["rows"] == special
    table = np.asarray(whole.params["bert"]["embed"]["token"]["embedding"])
    np.testing.assert_array_equal(free.params["bert"]["embed"]["token"]["embedding"], table[special])
    assert (free.config.vocab_size, free.config.mode, free.head) == (5, "full", head.replace("masked_lm", "encoder"))
    texts = ["Tokenizing naïve words, unbelievably!", "", "größte 今天 x\x00 \x00"]
    read = [Predictor.from_checkpoint(path, mode="full").encode(texts) for path in (tmp_path / "free", source)]
    for one, other in zip(*read, strict=True):
        assert one.words == other.words
        np.testing.assert_allclose(one.vectors_WD, other.vectors_WD, atol=1e-6)
        np.testing.assert_allclose(one.sentence_D, other.sentence_D, atol=1e-6)
    assert take(tmp_path / "free", tmp_path / "theirs") == 0
    again = from_pretrained(tmp_path / "theirs")
    assert (again.metadata["rows"], again.config) == (special, free.config)
    jax.tree.map(np.testing.assert_array_equal, again.params, free.params)
    again.save_pretrained(tmp_path / "ours")
    assert from_pretrained(tmp_path / "ours").metadata["rows"] == special
    pair = units_of(free).join(*units_of(free).encode(["a", "b"]))
    assert pair.content[:, 0].max() < 5


def test_what_needs_the_table_is_refused(tmp_path, capsys):
    take(spelled(), tmp_path / "free", "--table-free")
    with pytest.raises(ValueError, match=r"free: the table of subwords was left out, and the head masked_lm predicts"):
        from_pretrained(tmp_path / "free", head="masked_lm")
    with pytest.raises(ValueError, match=r"mode='full' is all it can, not 'hybrid'"):
        from_pretrained(tmp_path / "free", mode="hybrid")
    capsys.readouterr()
    status = take(tmp_path / "free", tmp_path / "no", "--table-free")
    assert "the table was left out of this checkpoint already" in failure(capsys, status)
    bring(release("bert"), tmp_path / "plain")
    capsys.readouterr()
    for option in ("--table-free", f"--words={__file__}"):
        line = failure(capsys, take(tmp_path / "plain", tmp_path / "no", option))
        assert f"{option.split('=')[0]}: expected a model of the kind Char2Subword, got a BERT" in line
    assert not (tmp_path / "no").exists()


# ---- A table of words ----

WORDS = ["birds", "naïve", "unbelievably", "don't", ".", "e-mail", "今天", "an"]
TEXTS = ["birds . unbelievably naïve don't", "an e-mail ."]


def write_words(tmp_path, source, words=WORDS):
    file = tmp_path / "words.txt"
    file.write_text("\n".join(words) + "\n\n", encoding="utf-8")
    return take(source, tmp_path / "words", f"--words={file}")


@pytest.mark.parametrize("backbone", ["bert", again("roberta"), again("roformer")])
def test_a_table_of_words_gives_the_states_of_full_mode(tmp_path, backbone):
    source = spelled(backbone)
    assert write_words(tmp_path, source) == 0
    model, own = from_pretrained(tmp_path / "words"), from_pretrained(source, mode="full", head="encoder")
    assert (model.family, model.head, model.config.vocab_size) == (backbone, "encoder", 5 + len(WORDS))
    tokenizer, old = model.tokenizer(), own.tokenizer()
    table, held = (np.asarray(p["embed"]["token"]["embedding"]) for p in (model.params, own.params["bert"]))
    forms = ["naive" if word == "naïve" and backbone != "roberta" else word for word in WORDS]
    made = vectors(own, forms)
    for word, form, vector in zip(WORDS, forms, made, strict=True):
        (row,) = tokenizer.encode_words([word]).ids[1:-1]
        assert tokenizer.token(row) == form
        np.testing.assert_allclose(table[row], vector, atol=1e-5)
    for role, index in tokenizer.special._asdict().items():
        assert index is None or (table[index] == held[getattr(old.special, role)]).all()
    units = units_of(own)
    for text in TEXTS:
        item = tokenizer.encode(text)
        states = applied(model.model)(model.params, np.array([item.ids])).states_BLD[0]
        (encoded,) = units.encode_words([text.split()])
        row = units.join(encoded)
        packed = units.pack([row], units.measure([[row]], 1, row.length))
        read = jax.jit(lambda params, batch: units.states(own.config, params, batch))
        want = read(own.params, jax.tree.map(lambda x: x[None], packed))[0]
        np.testing.assert_allclose(states, want, atol=1e-5)
    assert tokenizer.encode("birdsx bird").ids[1:-1] == (tokenizer.special.unk,) * 2


@BACKBONES
@pytest.mark.torch
def test_transformers_gives_the_states_of_full_mode(tmp_path, backbone):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    source = spelled(backbone, "encoder", "full")
    assert write_words(tmp_path, source) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "words")
    model = transformers.AutoModel.from_pretrained(tmp_path / "words", add_pooling_layer=False).eval()
    own = from_pretrained(source)
    units = units_of(own)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        states = model(**batch).last_hidden_state.numpy()
    for b, text in enumerate(TEXTS):
        row = units.join(units.encode_words([text.split()])[0])
        packed = units.pack([row], units.measure([[row]], 1, row.length))
        want = units.states(own.config, own.params, jax.tree.map(lambda x: x[None], packed))[0]
        assert batch["attention_mask"][b].sum() == row.length
        np.testing.assert_allclose(states[b, : row.length], want, atol=1e-5)


def test_a_head_for_labels_stays_with_a_table_of_words(tmp_path):
    source = spelled("bert", "token_classification", "full", 4)
    assert write_words(tmp_path, source) == 0
    model, own = from_pretrained(tmp_path / "words"), from_pretrained(source)
    assert (model.head, model.metadata["labels"]) == ("token_classification", 4)
    logits = applied(model.model)(model.params, np.array([model.tokenizer().encode(TEXTS[1]).ids]))[0]
    units = units_of(own)
    row = units.join(units.encode_words([TEXTS[1].split()])[0])
    packed = units.pack([row], units.widest(1, row.length))
    read = jax.jit(lambda params, batch: units.apply(own.model, params, batch))
    want = read(own.params, jax.tree.map(lambda x: x[None], packed))[0]
    np.testing.assert_allclose(logits, want, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["birds", "a", "birds"], "'birds' is there twice; expected distinct words"),
        (["Birds", "birds"], "'birds' is read as 'birds', and so is 'Birds'"),
        (["", " "], "expected one word a line, got none"),
        (["two words"], "line 1: expected one word, got 'two words'"),
        (["[CLS]"], "'[CLS]' is no word"),
        (["\x00"], "is no word: the tokenizer reads it as nothing"),
    ],
)
def test_lists_that_are_none(tmp_path, capsys, words, message):
    assert message in failure(capsys, write_words(tmp_path, spelled(), words))
    assert not (tmp_path / "words").exists()


def test_a_missing_list(tmp_path, capsys):
    status = take(spelled(), tmp_path / "no", f"--words={tmp_path / 'none.txt'}")
    assert "none.txt cannot be read: No such file" in failure(capsys, status)


# ---- Mistakes ----


def changed(tmp_path, **keys):
    """Returns a folder of theirs with other keys of the module."""
    folder = tmp_path / "theirs"
    if not folder.exists():
        take(spelled(), folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["char2subword"] |= keys
    path.write_text(json.dumps(config))
    return folder


def test_configs_that_do_not_fit(tmp_path, capsys):
    own = json.loads((changed(tmp_path) / "config.json").read_text())["char2subword"]
    cases = [
        ({"backbone": "gpt2"}, "char2subword.backbone='gpt2' is not one of bert, roberta"),
        ({"mode": "half"}, "mode='half' is not one of full, hybrid"),
        ({"pooler": 1}, "char2subword.pooler=1: expected true or false"),
        ({"rows": ["a"]}, "char2subword.rows: expected a list of subword ids"),
        ({"rows": [0, 1]}, "the table of subwords was left out"),
        ({"characters": []}, "char2subword.characters: expected an object, got list"),
        ({"characters": own["characters"] | {"depth": 3}}, "depth is not one of char_vocab_size, hidden"),
        ({"characters": own["characters"] | {"hidden": "8"}}, "hidden='8', expected a positive whole number"),
        ({"characters": own["characters"] | {"heads": 3}}, "hidden=8 is not a multiple of heads=3"),
        ({"characters": own["characters"] | {"output": 12}}, "vectors are 12 wide, the table's rows 24"),
        ({"characters": own["characters"] | {"hidden": 16}}, "char2subword.char_embs.weight is"),
        ({"characters": own["characters"] | {"char_vocab_size": 9}}, "char_vocab.json has ids up to"),
    ]
    for keys, message in cases:
        line = failure(capsys, bring(changed(tmp_path, **own | {"rows": []} | keys), tmp_path / "no"))
        assert message in line, line
    assert not (tmp_path / "no").exists()


def test_folders_that_lack_something(tmp_path, capsys):
    folder = changed(tmp_path)
    state = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in state.items() if "layers.0.q" not in k}, folder / "model.safetensors")
    assert "missing char2subword.layers.0.q.weight" in failure(capsys, bring(folder, tmp_path / "no"))
    save_file({k: v for k, v in state.items() if not k.startswith("char2")}, folder / "model.safetensors")
    line = failure(capsys, bring(folder, tmp_path / "no"))
    assert "holds no char2subword.char_embs.weight" in line
    assert "a BERT becomes one by training" in line
    save_file(state, folder / "model.safetensors")
    (folder / "char_vocab.json").unlink()
    assert "has no char_vocab.json" in failure(capsys, bring(folder, tmp_path / "no"))
    assert "--heads: not for Char2Subword" in failure(capsys, bring(folder, tmp_path / "no", "--heads=2"))
    shutil.copyfile(release("bert") / "config.json", folder / "config.json")
    line = failure(capsys, bring(folder, tmp_path / "no", "--family=char2subword"))
    assert "model_type='bert' is not a model of the family char2subword" in line


def test_inspect_names_every_tensor(tmp_path, capsys):
    take(spelled(), tmp_path / "theirs")
    capsys.readouterr()
    assert run("inspect", f"--input={tmp_path / 'theirs'}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Char2Subword, masked lm" in lines[0]
    assert any(
        "char2subword.layers.0.o.weight" in x and "char2subword/layer_0/attention/output/kernel" in x for x in lines
    )
    assert not any("not known" in line for line in lines)
