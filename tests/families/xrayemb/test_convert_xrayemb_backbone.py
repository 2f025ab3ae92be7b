"""Tests the export of an XRayEmb's backbone alone: it computes the same as the XRayEmb with the policy "none"."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from programs import applied
from small_xrayemb import xrayemb
from tiny_models import _weight, release

from charlm.convert.__main__ import main
from charlm.convert.files import new_folder
from charlm.convert.model import Model
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.families.subword.layout import config_to_dict
from charlm.families.subword.predictor import SubwordPredictor
from charlm.families.xrayemb.conversion import XRayEmbConverter
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.predictor import XRayEmbPredictor

TEXTS = ["Tokenizing naïve words, unbelievably!", "birds"]
CASES = [
    ("bert", "masked_lm"),
    ("roberta", "masked_lm"),
    ("roformer", "masked_lm"),
    ("gpt2", "causal_lm"),
    ("bert", "encoder"),
    ("gpt2", "encoder"),
    ("bert", "token_classification"),
    ("bert", "sequence_classification"),
    ("roberta", "sequence_classification"),
    ("roformer", "sequence_classification"),
    ("gpt2", "question_answering"),
]
EVERY = pytest.mark.parametrize(("backbone", "head"), CASES)


def saved(folder, backbone, head, **policies):
    """Returns a checkpoint of a tiny XRayEmb, its parameters made of their names."""
    source, converter = xrayemb(backbone), XRayEmbConverter()
    fields = config_to_dict(source.config) | policies
    generator = XRDecoderConfig(char_vocab_size=fields["encoder"]["char_vocab_size"], char_embedding=6, hidden=5,
                                vector=source.config.hidden)  # fmt: skip
    metadata = {**source.metadata, "model": fields | {"generator": config_to_dict(generator)}}
    metadata = converter.with_head(metadata, head) | ({"labels": 2} if "_lm" not in head and head != "encoder" else {})
    target = converter.target(metadata, "a test")
    name = lambda path: "/".join(key.key for key in path)
    params = jax.tree_util.tree_map_with_path(lambda path, leaf: _weight(name(path), leaf), target.params)
    with new_folder(folder) as place:
        converter.save(Model(params, metadata, source.folder, source.folder), place)
    return folder


def export(source, output):
    return main(["export", f"--checkpoint={source}", "--backbone-only", f"--output={output}"])


def refused(capsys, source, output):
    assert export(source, output) == 1
    assert not output.exists()
    (line,) = capsys.readouterr().err.splitlines()
    return line


def own_outputs(own, text):
    """Returns ids, last states and logits (None: there is no head) of an XRayEmb that reads no characters."""
    units = units_of(own)
    row = units.join(units.encode([text])[0])
    packed = jax.tree.map(lambda x: x[None], units.pack([row], units.widest(1, row.length)))
    states = jax.jit(units.states, static_argnums=0)(own.config, own.params, packed)[0]
    output = applied(own.model)(own.params, packed)
    logits = None if own.head == "encoder" else getattr(output, "logits", output)
    return (
        packed.ids_SBL.reshape(-1),
        states,
        None if logits is None else np.asarray(logits).reshape(-1, logits.shape[-1]),
    )


FEW = [("bert", "masked_lm"), ("gpt2", "causal_lm")]


@pytest.mark.parametrize(
    ("backbone", "head"), [pytest.param(*case, marks=[pytest.mark.slow] * (case not in FEW)) for case in CASES]
)
def test_it_computes_what_the_xrayemb_does_without_characters(tmp_path, backbone, head):
    source = saved(tmp_path / "xray", backbone, head, policy="stochastic:0.1")
    assert export(source, tmp_path / "alone") == 0
    assert main(["import", f"--input={tmp_path / 'alone'}", f"--output={tmp_path / 'ours'}"]) == 0
    own = from_pretrained(source, eval_policy="none")
    wanted = [own_outputs(own, text) for text in TEXTS]
    for folder in ("alone", "ours"):
        model = from_pretrained(tmp_path / folder)
        assert (model.family, model.head) == (
            backbone,
            "causal_lm" if (backbone, head) == ("gpt2", "encoder") else head,
        )
        assert model.tokenizer().digest() == own.tokenizer().digest()
        for ids, states, logits in wanted:
            assert (ids >= 0).all()
            output = applied(model.model)(model.params, ids[None])
            if head == "encoder":
                output = getattr(output, "transformer", output)
                np.testing.assert_allclose(output.states_BLD[0], states, atol=1e-5)
            else:
                found = np.asarray(getattr(output, "logits", output))
                np.testing.assert_allclose(found.reshape(-1, found.shape[-1]), logits, atol=1e-5)


def test_a_gpt2_scores_and_generates_by_itself(tmp_path):
    source = saved(tmp_path / "xray", "gpt2", "causal_lm")
    behind = XRayEmbPredictor.from_checkpoint(source)
    for ask in (behind.score, behind.generate):
        with pytest.raises(ValueError, match=r"; the GPT-2 that .* export --backbone-only writes"):
            ask(TEXTS)
    assert export(source, tmp_path / "alone") == 0
    alone = SubwordPredictor.from_checkpoint(tmp_path / "alone")
    assert alone.score(TEXTS)[0].log_prob < 0
    assert len(alone.generate(TEXTS, 3)) == 2


def test_heads_that_expect_characters_and_other_families_are_refused(tmp_path, capsys):
    for n, policies in enumerate(({"policy": "all_multi"}, {"policy": "none", "eval_policy": "stochastic:0.5"})):
        source = saved(tmp_path / f"xray{n}", "bert", "token_classification", **policies)
        line = refused(capsys, source, tmp_path / "no")
        assert f"reads words by characters (policy={list(policies.values())[-1]})" in line
    read = saved(tmp_path / "read", "bert", "token_classification", policy="all_multi", eval_policy="none")
    assert export(read, tmp_path / "yes") == 0
    capsys.readouterr()
    from_pretrained(release("bert")).save_pretrained(tmp_path / "bert")
    line = refused(capsys, tmp_path / "bert", tmp_path / "no")
    assert line == "error: --backbone-only: expected a model of the kind XRayEmb, got a BERT"


@EVERY
@pytest.mark.torch
def test_transformers_computes_the_same(tmp_path, backbone, head):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    source = saved(tmp_path / "xray", backbone, head, policy="none")
    assert export(source, tmp_path / "alone") == 0
    (name,) = json.loads((tmp_path / "alone" / "config.json").read_text())["architectures"]
    more = {"add_pooling_layer": False} if name == "BertModel" else {}
    kind = getattr(transformers, name)
    model, info = kind.from_pretrained(tmp_path / "alone", output_loading_info=True, **more)
    assert not any(info.values()), info
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "alone")
    own = from_pretrained(source, eval_policy="none")
    for text in TEXTS:
        ids, states, logits = own_outputs(own, text)
        framed = backbone != "gpt2"  # whose texts we close with the end-of-text token, and transformers do not
        assert tokenizer(text).input_ids == [i for i in ids.tolist() if framed or i != tokenizer.eos_token_id]
        with torch.inference_mode():
            output = model.eval()(torch.tensor(ids[None]), output_hidden_states=True)
        if head == "encoder":
            np.testing.assert_allclose(output.hidden_states[-1][0].numpy(), states, atol=1e-5)
        elif head == "question_answering":
            found = torch.stack([output.start_logits[0], output.end_logits[0]], axis=-1)
            np.testing.assert_allclose(found.numpy(), logits, atol=1e-5)
        else:
            found = output.logits.numpy()
            np.testing.assert_allclose(found.reshape(-1, found.shape[-1]), logits, atol=1e-5)
