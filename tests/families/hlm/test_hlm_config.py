"""Tests the conversion of the released code's config: settings that the other side lacks are refused or noted."""

from __future__ import annotations

import numpy as np
import pytest
from small_run import ROOT

from charlm.config import load_config_file
from charlm.convert.heads import MASKED_LM
from charlm.families.hlm.config import HLMConfig, model_config
from charlm.families.hlm.positions import rows_in_theirs
from charlm.families.hlm.released_config import from_theirs, to_theirs
from charlm.nn.attention import relative_bucket

# Of the released code: config/config_pretrain.json.
RELEASED = {
    "masking_type": "rand_char", "aggregation_method": "word_cls", "hidden_size": 768, "attention_heads": 12,
    "transformer_ff_size": 3072, "local_transformer_ff_size": 1536, "dropout": 0.1, "activation": "gelu",
    "max_codepoint": 1024, "max_char_length": 2048, "max_char_per_word": 20, "max_num_word": 1024,
    "for_token_classification": False, "n_local_layer_first": 4, "n_global_layer": 12, "n_local_layer_last": 1,
    "use_token_type": False, "use_projection": True, "word_context": 1, "relative_attention": True,
}  # fmt: skip


def test_the_released_config_is_our_reference_model():
    config = from_theirs(RELEASED, "x.json")
    want = HLMConfig(wiring="reference", max_relative_words=1024, initializer="torch")
    assert model_config(config) == want
    assert (config.data.max_words, config.text.splitter, config.data.masking) == (1024, "reference", "reference")
    assert to_theirs(config, MASKED_LM, "here") == RELEASED


def test_their_code_has_twelve_heads_whatever_its_config_says(log_lines):
    assert from_theirs(RELEASED | {"attention_heads": 8}, "x.json").model.heads == 12
    assert "x.json: attention_heads=8 is not used: their code ignores it" in str(log_lines)
    assert from_theirs(RELEASED | {"attention_heads": 8}, "x.json", heads=8).model.heads == 8
    assert len(log_lines.lines) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "relative_attention=False cannot be imported"),
        ({"relative_attention": None}, r"relative_attention=False \(absent, so their default\) cannot be imported"),
        ({"use_token_type": True}, "use_token_type=True cannot be imported"),
        ({"word_context": 2}, "word_context=2 cannot be imported"),
        ({"word_context": True}, "word_context=True cannot be imported"),
        ({"aggregation_method": "mean_pooling"}, "aggregation_method='mean_pooling' cannot be imported"),
        ({"activation": "relu"}, "activation='relu' cannot be imported"),
        ({"pos_att_type": "c2p"}, "pos_att_type='c2p' cannot be imported"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 cannot be imported"),
        ({"hidden_size": "768"}, "hidden_size='768', expected a whole number from 1"),
        ({"n_global_layer": 0}, "n_global_layer=0, expected a whole number from 1"),
        ({"dropout": 1}, r"dropout=1, expected a number in \[0, 1\)"),
        ({"use_projection": "yes"}, "use_projection='yes', expected true or false"),
        ({"hidden_size": 64}, "hidden_size=64 is not a multiple of 12 heads; was their code patched"),
        ({"hidden_size": None, "activation": None}, "lacks hidden_size, activation"),
    ],
)
def test_a_config_that_ours_cannot_represent_is_refused(changes, message):
    theirs = {key: value for key, value in (RELEASED | changes).items() if value is not None}
    with pytest.raises(ValueError, match=rf"x\.json:? .*{message}" if "lacks" not in message else message):
        from_theirs(theirs, "x.json")


def test_other_orders_and_defaults_of_their_code_are_accepted():
    theirs = {key: value for key, value in RELEASED.items() if key not in ("word_context", "aggregation_method")}
    assert from_theirs(theirs | {"pos_att_type": "c2p|p2c", "n_local_layer_last": 0}, "x.json").model.head_layers == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"word_residual": True}, "model.word_residual=True"),
        ({"aggregation": "mean"}, "model.aggregation='mean'"),
        ({"head_transform": False}, "model.head_transform=False"),
        ({"position_buckets": 64}, "model.position_buckets=64"),
    ],
)
def test_a_model_that_their_code_cannot_express_is_refused(changes, message):
    config = from_theirs(RELEASED, "x.json")
    config.model.update(changes)
    with pytest.raises(ValueError, match="here cannot be exported") as error:
        to_theirs(config, MASKED_LM, "here")
    assert message in str(error.value)


@pytest.mark.parametrize("spec", ["hlm_base.py", "hlm_base.py:tiny", "hlm_small.py", "hlm_large.py"])
def test_all_models_of_the_configs_have_a_form_in_their_code(spec):
    config = load_config_file(f"{ROOT}/configs/{spec}")
    back = from_theirs(to_theirs(config, MASKED_LM, "here"), "x.json")
    same = ("hidden", "heads", "intra_layers", "inter_layers", "position_buckets", "max_relative_words", "wiring")
    assert {name: back.model[name] for name in same} == {name: config.model[name] for name in same}


@pytest.mark.parametrize(
    ("buckets", "words"), [(64, 64), (64, 129), (2, 300), (200, 100), (255, 128), (256, 512), (8, 4)]
)
def test_their_table_is_the_same_function_of_the_distance_and_loses_no_row(buckets, words):
    rows = np.array(rows_in_theirs(buckets, words) or range(512))
    distance = np.arange(-2 * words, 2 * words + 1)
    theirs = relative_bucket(distance, 256, words) + 256
    np.testing.assert_array_equal(rows[theirs], relative_bucket(distance, buckets, words) + buckets)
    assert len(rows) == 512
    assert set(rows) - {-1} == set(range(2 * buckets))


@pytest.mark.parametrize(("buckets", "words"), [(64, 1024), (300, 64), (128, 512)])
def test_buckets_that_theirs_do_not_make_are_none(buckets, words):
    assert rows_in_theirs(buckets, words) is None


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"model.hidden": 24}, r"charlm=\{'model.hidden': 24\}, expected a table of text.splitter"),
        ([1], r"charlm=\[1\], expected a table"),
        ({"model.heads": "two"}, "charlm: model.heads='two'"),
        ({"model.heads": 5}, "charlm: model.hidden=768 is not a multiple of model.heads=5"),
        ({"model.position_buckets": 10**9}, "charlm: model.position_buckets=1000000000, expected a whole number"),
        ({"text.splitter": "space"}, "charlm: text.splitter='space' is not one of"),
    ],
)
def test_what_an_export_of_ours_keeps_is_checked(own, message):
    with pytest.raises(ValueError, match=message):
        from_theirs(RELEASED | {"charlm": own}, "x.json")


def test_what_their_code_does_otherwise_is_noted(log_lines):
    config = from_theirs(RELEASED, "x.json", heads=16)
    config.model.update(attention_dropout=0.0, hidden=1024)
    config.data.max_words = 512
    config.text.splitter = "spacy"
    assert to_theirs(config, MASKED_LM, "here")["attention_heads"] == 16
    for key in ("model.heads=16", "model.attention_dropout=0.0", "data.max_words=512", "text.splitter=spacy"):
        assert key in str(log_lines)
