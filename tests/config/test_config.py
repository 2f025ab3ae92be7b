"""Tests configs: every key is explained and checked, files hold the papers' values, and which keys a run may change."""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
from pathlib import Path

import pytest

from charlm.cli import key_tables
from charlm.config import (
    carried_configs,
    check_resumable,
    choices_of,
    finetuning,
    flatten,
    from_dict,
    get_config,
    is_fine_tuning,
    load_config_file,
    nearest_key,
    split_lists,
    to_json,
    unknown_key,
    validate,
)
from charlm.core.keys import Key, amount
from charlm.families.family import pretrainable
from charlm.families.xrayemb.keys import LOSSES as XRAY_LOSSES

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def changed(**values):
    """Returns the default config with changes, written section__key=value."""
    config = get_config()
    for name, value in values.items():
        config.update_from_flattened_dict({name.replace("__", "."): value})
    return config


# ---- Keys ----


def test_every_key_is_explained_once():
    tables = dict(key_tables())
    meanings = [key.meaning for table in tables.values() for key in table.values()]
    assert min(len(meaning.split()) for meaning in meanings) >= 2
    assert tables["fine-tuning"].keys() == flatten(finetuning.get_config()).keys()
    shared = tables["pre-training"].keys()
    for family in pretrainable():
        own = tables[f"pre-training {family}"].keys()
        assert not own & shared
        assert own | shared == flatten(get_config(family)).keys()


def declared_anew(source):
    """Returns the keys that the tables of a module declare from scratch, rather than from a shared declaration."""
    pairs = [
        (key.value, value)
        for table in ast.walk(ast.parse(source))
        if isinstance(table, ast.Dict)
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Call)
    ]
    makers = ("Key", "count", "natural", "amount", "share")
    return {name for name, value in pairs if isinstance(value.func, ast.Name) and value.func.id in makers}


def test_a_key_of_several_tables_is_declared_once():
    room = CONFIGS.parent / "charlm"
    read = lambda path: declared_anew((room / path).read_text(encoding="utf-8"))
    assert not read("config/pretraining.py") & read("config/finetuning.py")
    families = {name: read(f"families/{name}/keys.py") for name in pretrainable()}
    assert min(map(len, families.values())) > 0
    twice = {key for one, other in itertools.combinations(families.values(), 2) for key in one & other}
    assert not twice


def test_a_derived_key_keeps_what_is_not_changed():
    rate = amount(0.1, "of something")
    assert rate.but(0.2) == amount(0.2, "of something")
    assert rate.but(meaning="now: {}; 0: none") == amount(0.1, "now: of something; 0: none")
    assert rate.but(finite=False) == Key(0.1, "of something", least=0)


@pytest.mark.parametrize("key", ["model.dropout", "model.attention_dropout"])
def test_dropout_of_fine_tuning_may_be_as_pre_trained(key):
    config = load_config_file(f"{CONFIGS}/tag.py")
    config.init_from, config.data.train = "model", ("train.conll",)
    validate(config)
    assert flatten(config)[key] == -1
    for wrong in (-0.5, 1.0, -2.0):
        config.update_from_flattened_dict({key: wrong})
        with pytest.raises(
            ValueError, match=rf"^{key}={wrong} must lie in \[0, 1\), or be -1: as the model was pre-tr"
        ):
            validate(config)
    with pytest.raises(ValueError, match=rf"^{key}=-1.0 must lie in \[0, 1\)$"):
        validate(changed(**{key.replace(".", "__"): -1.0}))


@pytest.mark.parametrize("family", pretrainable())
def test_defaults_are_valid(family):
    config = get_config(family)
    validate(config)
    assert config == get_config(family), "it is as it was"


WRONG = [(family, key) for family in pretrainable() for key in choices_of(get_config(family))]


@pytest.mark.parametrize(("family", "key"), WRONG)
def test_wrong_choice_names_key_value_and_choices(family, key):
    config = get_config(family)
    choices = choices_of(config)[key]
    good = choices[-1]
    config.update_from_flattened_dict({key: good + "x"})
    named = ", ".join(choice or "empty" for choice in choices)
    with pytest.raises(ValueError, match=re.escape(f"{key}='{good}x' is not one of {named}")) as e:
        validate(config)
    assert f"did you mean {good}?" in str(e.value)


def test_keys_of_another_family_are_unknown():
    config = get_config("charbert")
    with config.unlocked():
        config.data.max_words = 3
    with pytest.raises(ValueError, match=r"unknown config key data\.max_words"):
        validate(config)
    with pytest.raises(ValueError, match="runs/x holds a run of the family hlm, not charbert"):
        check_resumable(get_config("charbert"), get_config(), where="runs/x")


ZERO = """data.max_words data.batch_size data.accumulation model.hidden model.heads model.vocab_size model.intra_layers
    model.inter_layers model.head_layers model.intra_ffn model.inter_ffn model.position_buckets
    model.max_relative_words train.steps train.log_every train.eval_every train.checkpoint_every
    train.keep_checkpoints"""
NEGATIVE = """data.reader_threads data.prefetch data.encode_processes data.table_shards optim.learning_rate
    optim.warmup_steps optim.eps optim.weight_decay optim.clip_norm train.eval_words train.examples"""
BAD = [(key, 0, "must be at least 1") for key in ZERO.split()]
BAD += [("seed", 2**63, f"seed={2**63}: expected a whole number from 0 to {2**63 - 1}")]
BAD += [(key, -1, "must not be negative") for key in NEGATIVE.split()]
BAD += [(key, value, "must lie in [0, 1)") for key in ("model.dropout", "optim.b2") for value in (-0.1, 1.0)]
BAD += [("model.char_slots", value, "must lie in [3, 256]") for value in (2, 257)]
BAD += [("model.heads", 7, "model.hidden=768 is not a multiple of model.heads=7")]


@pytest.mark.parametrize(("key", "value", "message"), BAD)
def test_impossible_number_names_key_and_value(key, value, message):
    config = changed(**{key.replace(".", "__"): type(flatten(get_config())[key])(value)})
    with pytest.raises(ValueError, match=re.escape(message)) as e:
        validate(config)
    assert re.search(rf"{re.escape(key)}=(-?\d)", str(e.value))


@pytest.mark.parametrize(
    ("train", "weights", "good"),
    [
        (("a", "b"), (1.0, 2.0), True),
        (("a", "b"), (), True),
        (("a", "b"), (1.0,), False),
        (("a", "b"), (1.0, 0.0), False),
        (("a",), (-1.0,), False),
    ],
)
def test_weights_are_positive_one_a_corpus(train, weights, good):
    config = changed(data__train=train, data__weights=weights)
    if good:
        validate(config)
    else:
        with pytest.raises(ValueError, match=r"data\.weights=.* one for each corpus of data\.train="):
            validate(config)


BAD_CHARBERT = [
    ({"data.max_length": 7}, "data.max_length=7 must be at least 8"),
    ({"data.chars_per_piece": 1}, "data.chars_per_piece=1 must be at least 2: a character and a gap"),
    ({"text.terms": 0}, "text.terms=0 must be at least 1"),
    ({"data.noise_rate": 1.0}, "data.noise_rate=1.0 must lie in [0, 1)"),
    ({"data.noise_rate": 0.0}, "data.noise_rate=0 leaves nothing for model.nlm=True to predict; set model.nlm=False"),
    ({"model.char_channel": False, "model.nlm": False}, "but model.char_channel=False has none"),
    ({"model.windows": ()}, "model.windows=() must name positive numbers of tokens"),
    ({"model.windows": (3, 0)}, "model.windows=(3, 0) must name positive numbers of tokens"),
    (
        {"model.fusion": "reference", "model.windows": (3, 4, 5)},
        "model.windows=(3, 4, 5), but model.fusion=reference has one window",
    ),
    ({"model.char_encoder": "embedding"}, "model.char_hidden=256, but model.char_encoder=embedding needs half of"),
    ({"data.noised_budget": -1}, "data.noised_budget=-1 must not be negative"),
    (
        {"model.backbone": "roformer", "model.hidden": 60},
        "model.backbone=roformer turns pairs of columns, but a head has 5: expected an even model.hidden / model.heads",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_CHARBERT)
def test_impossible_charbert_names_key_and_value(changes, message):
    config = get_config("charbert")
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=re.escape(message)):
        validate(config)


BAD_XRAYEMB = [
    ({"policy.infer": "all_mult"}, "policy.infer: policy 'all_mult' is not one of none, all, all_multi"),
    ({"policy.learn": "stochastic"}, "policy.learn: policy 'stochastic': expected a probability, 0 to 1"),
    ({"cycle.every": 0}, "cycle.every=0 must be at least 1"),
    ({"loss.cycle_words": -0.1}, "loss.cycle_words=-0.1 must not be negative"),
    ({f"loss.{name}": 0.0 for name in XRAY_LOSSES}, "are all 0; expected one of them to be more"),
    ({"data.generate_share": 0.0}, "data.generate_share=0.0 must lie in (0, 1]; loss.generation=0 leaves it out"),
    ({"model.char_slots": 33}, "model.char_slots=33 must lie in [4, 32]"),
    (
        {"policy.generate": "masked", "model.backbone": "gpt2"},
        "masked for model.backbone=gpt2: set --config.policy.gene",
    ),
    ({"text.pieces": 200}, "text.pieces=200 must be at least 300: bytes and special ones have 261"),
    (
        {"model.backbone": "roformer", "model.hidden": 60},
        "model.backbone=roformer turns pairs of columns, but a head has",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_XRAYEMB)
def test_impossible_xrayemb_names_key_and_value(changes, message):
    config = get_config("xrayemb")
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=re.escape(message)):
        validate(config)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("hlm", {"data.mask_rate": 0.0}, "data.mask_rate=0: there is no word to predict"),
        ("hlm", {"data.mask_rate": 2.0}, "data.mask_rate=2.0 must lie in [0, 1]"),
        ("hlm", {"data.mask_rate": math.nan}, "data.mask_rate=nan must lie in [0, 1]"),
        ("charbert", {"data.mask_rate": 1.5}, "data.mask_rate=1.5 must lie in [0, 1]"),
        ("hlm", {"data.random_share": 0.3}, "data.mask_share + data.random_share = 1.1 must lie in [0, 1]"),
        ("hlm", {"data.mask_share": 1.1}, "data.mask_share=1.1 must lie in [0, 1]"),
        ("hlm", {"objective": "spelling", "spelling.masked": -0.1}, "spelling.masked=-0.1 must lie in [0, 1]"),
    ],
)
def test_a_share_outside_of_its_range_is_refused_before_any_text_is_read(family, changes, message):
    config = get_config(family)
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        validate(config)


def test_a_share_may_be_all():
    config = get_config("hlm")
    config.update_from_flattened_dict({"data.mask_rate": 1.0, "data.mask_share": 1.0, "data.random_share": 0.0})
    validate(config)


def test_measured_values_of_charbert_are_taken_over():
    saved = get_config("charbert")
    measured = {"data.noised_budget": 328, "model.backbone": "roberta", "model.vocab_size": 9, "model.max_positions": 7}
    saved.update_from_flattened_dict(measured)
    config = get_config("charbert")
    config.text.tokenizer = "elsewhere"  # known by its content
    check_resumable(config, saved, where="runs/x")
    assert {key: flatten(config)[key] for key in measured} == measured
    config.model.backbone = "bert"
    with pytest.raises(ValueError, match=r"model\.backbone is bert, there roberta"):
        check_resumable(config, saved, where="runs/x")


def test_unknown_key_names_the_nearest():
    config = get_config()
    with config.unlocked():
        config.optim.learning_rat = 1.0
    with pytest.raises(ValueError, match=r"optim\.learning_rat; did you mean optim\.learning_rate\?"):
        validate(config)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((short, "optim.learning_rate") for short in ("optim.lr", "train.lr", "lr", "optim.learn_rate", "optim.rate")),
        *((short, "data.batch_size") for short in ("data.bs", "train.batch_size", "batch_size", "train.bs")),
        *((short, "optim.weight_decay") for short in ("optim.wd", "wd", "optim.decay", "train.weight_decay")),
        *((short, "optim.warmup_steps") for short in ("optim.warmup", "train.warmup")),
        ("optim.steps", "train.steps"),
        ("model.position_bucket", "model.position_buckets"),
        ("data.max_word", "data.max_words"),
    ],
)
def test_short_names_are_understood(name, key):
    assert unknown_key(name) == f"unknown config key {name}; did you mean {key}?"


def test_a_name_that_is_like_no_key_has_no_suggestion():
    assert unknown_key("lrr") == "unknown config key lrr"
    assert unknown_key("stpes") == "unknown config key stpes; did you mean train.steps?"


def test_short_names_of_fine_tuning_are_understood():
    known = finetuning.get_config("tagging")
    meant = {"optim.epochs": "train.epochs", "train.lr": "optim.learning_rate", "optim.bs": "data.batch_size"}
    assert {name: nearest_key(name, flatten(known)) for name in meant} == meant


# ---- Lists of corpora ----


def test_corpora_may_be_typed_with_commas():
    config = changed(data__train=("a.txt, b.txt", "c.txt,"), data__heldout=("d,e",))
    split_lists(config)
    assert config.data.train == ("a.txt", "b.txt", "c.txt")
    assert config.data.heldout == ("d", "e")
    with pytest.raises(ValueError, match=r"data\.train names no corpus"):
        split_lists(changed(data__train=(" ,",)))


# ---- Stored configs ----


def test_json_and_back_keeps_every_value_and_type():
    config = changed(
        data__train=("a", "b"), data__weights=(1.5, 2.0), data__bucket_slots=(4, 20), model__remat=True, seed=3
    )
    back = from_dict(json.loads(to_json(config)))
    assert flatten(back) == flatten(config)
    assert {k: type(v) for k, v in flatten(back).items()} == {k: type(v) for k, v in flatten(config).items()}


def test_keys_newer_than_the_stored_config_have_their_defaults():
    values = get_config().to_dict()
    del values["model"]["remat"], values["mesh"]
    assert flatten(from_dict(values)) == flatten(get_config())


@pytest.mark.parametrize("values", [{"model": {"hiden": 1}}, {"modl": {"hidden": 1}}, {"model": 3}])
def test_stored_key_that_no_longer_exists_is_named(values):
    with pytest.raises(ValueError, match=r"unknown config key mod.*did you mean m\w+\.\w+\?"):
        from_dict(values)


# ---- Going on with a run ----


def test_all_differing_keys_are_listed_with_both_values():
    saved = get_config()
    config = changed(model__hidden=384, optim__b1=0.8, data__train=("other",), seed=1)
    with pytest.raises(ValueError, match="runs/x holds a run of another config") as e:
        check_resumable(config, saved, where="runs/x")
    for text in ("model.hidden is 384, there 768", "optim.b1 is 0.8, there 0.9", "seed is 1, there 0"):
        assert text in str(e.value)
    assert "data.train is ('other',), there ('builtin',)" in str(e.value)


def test_fine_tuning_resumes_by_the_same_rule():
    saved, config = finetuning.get_config("ranking"), finetuning.get_config("ranking")
    config.train.log_every, config.mesh.model, config.seeds, config.data.eval_batch_size = 1, 2, 3, 4
    check_resumable(config, saved, where="runs/x")
    config.train.epochs, config.data.group = 9, "q"
    expected = (
        "runs/x holds a run of another config: data.group is q, there ; train.epochs is 9, there 5; choose another"
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        check_resumable(config, saved, where="runs/x")


def test_the_folder_of_another_kind_of_training_is_named():
    tuned = finetuning.get_config("tagging")
    for config, saved in ((get_config(), tuned), (tuned, get_config())):
        expected = rf"^runs/x holds a run of another config: task is {config.task}, there {saved.task}; choose another"
        with pytest.raises(ValueError, match=expected):
            check_resumable(config, saved, where="runs/x")


def test_length_speed_and_place_may_change():
    config = changed(
        train__steps=5, train__eval_every=7, mesh__fsdp=2, data__prefetch=0, data__reader_threads=3,
        data__encode_processes=2, data__cache_dir="elsewhere", resume="a", init_from="b", model__scan_layers=True,
    )  # fmt: skip
    before = flatten(config)
    check_resumable(config, get_config(), where="runs/x")
    assert flatten(config) == before


def test_measured_budgets_are_taken_over():
    measured = {"bucket_slots": (4, 20), "bucket_words": (8, 8), "bucket_masked": (2, 2), "bucket_labels": (3, 3)}
    saved = changed(data__table_shards=8, **{f"data__{key}": value for key, value in measured.items()})
    config = get_config()
    check_resumable(config, saved, where="runs/x")
    assert config.data.table_shards == 8
    assert {key: config.data[key] for key in measured} == measured
    given = changed(data__bucket_words=(16, 8), data__table_shards=4)
    with pytest.raises(
        ValueError, match=r"bucket_words is \(16, 8\), there \(8, 8\); data\.table_shards is 4, there 8"
    ):
        check_resumable(given, saved, where="runs/x")


# ---- Config files ----


def variants() -> list[str]:
    """Returns every config file, alone and with the variants that its docstring lists."""
    specs = []
    for path in sorted(CONFIGS.glob("*.py")):
        listed = re.search(r"^Variants: (.*?)(?:\n\n|\"\"\")", path.read_text(), re.MULTILINE | re.DOTALL)
        names = re.findall(r'"([\w+]+)"', listed[1]) if listed else []
        specs += [str(path), *(f"{path}:{name}" for name in names)]
    return specs


def test_docstrings_list_the_variants():
    assert {Path(spec).name for spec in variants()} >= {"hlm_base.py", "hlm_base.py:tiny", "hlm_base.py:reference"}
    assert "hlm_large.py" in {Path(spec).name for spec in variants()}


# Those of other commands than training are tested with the command.
OF_TRAINING = [spec for spec in variants() if not carried_configs()[Path(spec.partition(":")[0]).stem].command]


@pytest.mark.parametrize("spec", OF_TRAINING, ids=lambda spec: Path(spec).name)
def test_config_file_loads_and_is_valid(spec):
    config = load_config_file(spec)
    if is_fine_tuning(config):
        config.data.train, config.init_from = ("train.txt",), "runs/hlm"  # every run has its own
    validate(config)
    if ":" in spec:
        assert flatten(config) != flatten(load_config_file(spec.partition(":")[0]))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (f"{CONFIGS}/hlm_base.py:huge", "has no variant 'huge'; choose reference, tiny"),
        (f"{CONFIGS}/none.py", "--config: no such file: .*none.py"),
        ("configs", "--config: no such file: configs"),
        (f"{CONFIGS.parent}/charlm/__init__.py", r"defines no get_config\(\)"),
    ],
)
def test_unknown_config_file_or_variant(spec, message):
    with pytest.raises(ValueError, match=message):
        load_config_file(spec)


BASE = {
    "model.hidden": 768, "model.heads": 12, "model.intra_layers": 4, "model.inter_layers": 12, "model.head_layers": 1,
    "model.intra_ffn": 1536, "model.inter_ffn": 3072, "model.char_slots": 20, "model.vocab_size": 1024,
    "model.dropout": 0.1, "model.attention_dropout": 0.1, "model.wiring": "paper", "model.aggregation": "word_cls",
    "data.max_words": 512, "data.batch_size": 16, "data.mask_rate": 0.15, "data.mask_share": 0.8,
    "data.random_share": 0.1, "optim.learning_rate": 5e-5, "optim.warmup_steps": 10_000, "optim.weight_decay": 0.01,
    "optim.schedule": "linear", "train.steps": 3_900_000, "text.splitter": "spacy",
}  # fmt: skip
LARGE = BASE | {
    "model.hidden": 1024, "model.heads": 16, "model.inter_layers": 24, "model.intra_ffn": 2048,
    "model.inter_ffn": 4096, "data.batch_size": 128, "train.steps": 370_000,
}  # fmt: skip

SMALL = {  # those that are in the models that come with charlm
    "model.hidden": 192, "model.heads": 3, "model.intra_layers": 2, "model.inter_layers": 4, "model.intra_ffn": 384,
    "model.inter_ffn": 768, "model.vocab_size": 512, "data.max_words": 128, "optim.schedule": "wsd",
    "text.splitter": "rules",
}  # fmt: skip

CHARBERT = {
    "model.hidden": 768, "model.heads": 12, "model.layers": 12, "model.ffn": 3072, "model.fusion": "paper",
    "model.char_encoder": "gru", "model.dropout": 0.1, "text.chars": 1000, "text.terms": 30_001, "data.mask_rate": 0.10,
    "data.mask_share": 0.8, "data.random_share": 0.1, "data.noise": "paper", "data.noise_rate": 0.15,
    "data.noise_of": "all", "data.batch_size": 32, "optim.learning_rate": 5e-5, "optim.warmup_steps": 10_000,
    "optim.weight_decay": 0.01, "train.steps": 320_000, "model.shared_fusion": True, "model.windows": (3,),
}  # fmt: skip
RELEASED_CHARBERT = CHARBERT | {
    "model.fusion": "reference", "model.windows": (3,), "model.compat_reference": True, "data.noise": "reference",
    "data.noise_rate": 0.10, "data.masking": "reference", "data.batch_size": 8, "data.max_length": 384,
    "data.chars_per_piece": 6, "optim.learning_rate": 3e-5, "optim.weight_decay": 0.0, "optim.warmup_steps": 0,
}  # fmt: skip
CHAR2SUBWORD = {
    "stages": ("approximation", "contextual", "approximation"), "model.hidden": 768, "model.layers": 6,
    "model.attention_scale": "model", "model.residual": "normalised", "loss.distance_of": "norm",
    "data.noise_rate": 0.5, "data.mask_rate": 0.15, "data.mask_share": 0.8, "data.random_share": 0.1,
    "data.max_length": 512, "contextual.batch_size": 2000, "optim.freeze": ("^(bert|head)/",),
}  # fmt: skip

XRAYEMB = {
    "model.hidden": 768, "model.heads": 12, "model.layers": 12, "model.ffn": 3072, "model.encoder": "conv",
    "model.char_slots": 22, "model.char_embedding": 200, "model.char_hidden": 0, "model.generator_hidden": 256,
    "model.generator_layers": 2, "policy.learn": "stochastic:0.15", "policy.infer": "all_multi",
    "policy.generate": "all", "loss.language": 1.0, "loss.embedding": 0.25, "loss.generation": 0.25,
    "loss.cycle_words": 0.1, "loss.cycle_sphere": 0.1, "loss.pooling": "max", "loss.detach": True,
    "loss.reduction": "sum_per_word", "loss.difference": "euclidean",
    "cycle.every": 5000, "cycle.words": 1000, "cycle.vocabulary": 25_000, "cycle.sampling": "uniform",
    "data.mask_rate": 0.15, "data.mask_share": 0.8, "data.random_share": 0.1, "data.generate_share": 1.0,
    "data.max_length": 512, "data.batch_size": 576, "optim.learning_rate": 2e-5, "optim.warmup_steps": 1350,
    "optim.weight_decay": 0.0, "optim.clip_norm": 1.0, "optim.schedule": "linear", "train.steps": 13_500,
}  # fmt: skip
RELEASED_XRAYEMB = XRAYEMB | {
    "policy.learn": "stochastic:0.5", "policy.generate": "masked", "loss.detach": False, "data.batch_size": 8,
    "model.char_embedding": 50, "model.char_hidden": 128, "model.generator_hidden": 128, "cycle.every": 3000,
    "cycle.vocabulary": 100_000, "loss.reduction": "mean", "loss.difference": "mean_square",
}  # fmt: skip
NO_LOOPS = XRAYEMB | {"loss.cycle_words": 0.0, "loss.cycle_sphere": 0.0}
LANGUAGE_ONLY = NO_LOOPS | {"loss.embedding": 0.0, "loss.generation": 0.0, "policy.infer": "none"}
XRAYEMB_TASKS = {"optim.learning_rate": 2e-5, "optim.head_learning_rate": 1e-3, "optim.warmup_share": 0.1}
EMOJI = XRAYEMB_TASKS | {
    "train.epochs": 3,
    "train.patience": 4,
    "data.metric": "accuracy",
    "model.label_head": "perceptron",
}
NYTWIT = XRAYEMB_TASKS | {
    "data.text": "Word", "data.label": "Category", "data.fold_column": "Fold", "data.skip_labels": ("filtered",),
}  # fmt: skip

IN_PASSAGES = {
    "data.target": "Word", "data.text": "sentence", "data.label": "Category", "data.fold_column": "fold",
    "data.skip_labels": ("filtered",), "data.scheme": "none", "model.label_head": "", "model.dropout": 0.0,
    "model.attention_dropout": 0.0, "optim.weight_decay": 0.0,
}  # fmt: skip


def rows_of_table_2() -> list[tuple[str, dict[str, float]]]:
    """Returns the variants of Char2Subword's Table 2 and the losses that each has."""
    short = {"ce": "cross_entropy", "cos": "cosine", "l2": "distance", "nbr": "neighbours"}
    rows = ["ce", "cos", "l2", "nbr", "ce_cos", "ce_l2", "ce_cos_l2", "ce_nbr"]
    found = []
    for row in rows:
        weights = {f"loss.{name}": float(part in row.split("_")) for part, name in short.items()}
        found.append((f"char2subword_base.py:{row}", weights))
    return [*found, ("char2subword_base.py", {f"loss.{name}": 1.0 for name in short.values()})]


@pytest.mark.parametrize(
    ("file", "variants", "message"),
    [
        (
            "char2subword_base",
            "ce+cos",
            "of ce, cos, l2, nbr, ce_cos, ce_l2, ce_cos_l2, ce_nbr, speller choose one, not ce+cos",
        ),
        ("char2subword_base", "tiny+no_noise+minilm", "of minilm, tiny choose one, not tiny+minilm"),
        (
            "classify",
            "charbert+tiny+xrayemb",
            "of reference, charbert, xrayemb, lince_sa choose one, not charbert+xrayemb",
        ),
        ("rank", "stochastic+no_suffix", "of scaffolding, stochastic, no_suffix choose one, not stochastic+no_suffix"),
    ],
)
def test_variants_that_undo_each_other_are_refused(file, variants, message):
    with pytest.raises(ValueError, match=f"^configs/{file}.py: {re.escape(message)}$"):
        load_config_file(f"{CONFIGS}/{file}.py:{variants}")


def test_variants_are_joined_in_their_order():
    joined = load_config_file(f"{CONFIGS}/classify.py:xrayemb+tiny+stochastic")
    assert (joined.data.metric, joined.optim.learning_rate, joined.model.policy) == ("accuracy", 1e-3, "stochastic:0.1")
    assert load_config_file(f"{CONFIGS}/tag.py:tiny+reference").train.epochs == 10
    assert load_config_file(f"{CONFIGS}/tag.py:reference+tiny").train.epochs == 8


@pytest.mark.parametrize(
    ("file", "paper"),
    [
        ("hlm_base.py", BASE),
        ("hlm_large.py", LARGE),
        ("hlm_small.py", SMALL),
        ("charbert_base.py", CHARBERT),
        ("charbert_base.py:reference", RELEASED_CHARBERT),
        ("charbert_base.py:roberta", CHARBERT | {"model.backbone": "roberta", "model.shared_head_norm": True}),
        ("charbert_base.py:no_gru", CHARBERT | {"model.char_encoder": "embedding", "model.char_hidden": 384}),
        ("charbert_base.py:no_interaction", CHARBERT | {"model.fusion": "none"}),
        ("charbert_base.py:no_nlm", CHARBERT | {"model.nlm": False, "data.noise_rate": 0.0}),
        ("charbert_base.py:advbert", CHARBERT | {"model.char_channel": False}),
        ("char2subword_base.py", CHAR2SUBWORD),
        ("char2subword_base.py:mean_square", CHAR2SUBWORD | {"loss.distance_of": "mean_square"}),
        ("char2subword_base.py:speller", {"stage": "approximation", "data.noise_rate": 0.85, "loss.neighbours": 0.0}),
        ("char2subword_base.py:tiny+no_noise", {"model.hidden": 128, "data.noise_rate": 0.0}),
        *rows_of_table_2(),
        ("xrayemb_base.py", XRAYEMB),
        ("xrayemb_base.py:reference", RELEASED_XRAYEMB),
        ("xrayemb_base.py:no_loops", NO_LOOPS),
        ("xrayemb_base.py:language_only", LANGUAGE_ONLY),
        ("classify.py:xrayemb", EMOJI),
        ("classify.py:novel_words", NYTWIT),
        ("tag.py:wnut16", {"train.epochs": 5, "optim.learning_rate": 2e-5, "data.batch_size": 16}),
        ("tag.py:novel_words+frozen", IN_PASSAGES),
        ("rank.py:xrayemb", XRAYEMB_TASKS | {"model.label_head": "perceptron", "train.epochs": 3, "train.patience": 4}),
        ("tag.py:lince_lid", {"data.metric": "weighted_f1", "data.scheme": "none"}),
        ("tag.py:lince_pos", {"data.metric": "", "data.scheme": "none"}),
        ("tag.py:lince_ner", {"data.metric": "", "data.scheme": "auto"}),
        ("classify.py:lince_sa", {"data.text": "sentence", "data.label": "label", "data.metric": "accuracy"}),
        ("classify.py:charbert", {"optim.learning_rate": 3e-5, "train.epochs": 6, "data.batch_size": 16}),
        ("tag.py:features", {"model.label_head": "lstm768", "model.dropout": 0.0, "model.attention_dropout": 0.0}),
        ("tag.py:xrayemb", XRAYEMB_TASKS | {"train.epochs": 20, "train.patience": 4, "model.label_head": "lstm"}),
    ],
)
def test_values_of_the_paper(file, paper):
    config = flatten(load_config_file(f"{CONFIGS}/{file}"))
    assert {key: config[key] for key in paper} == paper


def test_runs_from_before_a_key_existed_keep_what_they_did():
    """CharBERT's fusions were one a layer, and its rate of misspellings was one of the words that can be misspelled."""
    now = get_config("charbert")
    stored = now.to_dict()
    del stored["model"]["shared_fusion"], stored["data"]["noise_of"]
    before = from_dict(stored)
    assert (before.model.shared_fusion, before.data.noise_of) == (False, "eligible")
    assert (now.model.shared_fusion, now.data.noise_of) == (True, "all")
    assert from_dict(now.to_dict()).model.shared_fusion
    with pytest.raises(ValueError, match=r"noise_of is all, there eligible; model\.shared_fusion is True, there False"):
        check_resumable(now, before, "runs/x")
