"""Tests sharding: one rule for each parameter, and a step that gives the same results on one device and on eight."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from charlm.config import get_config
from charlm.convert.heads import SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.core import hosts
from charlm.core.sharding import (
    RULES,
    batch_sharding,
    collectives,
    local_shards,
    make_mesh,
    path_name,
    place_batch,
    state_sharding,
    table_shards,
)
from charlm.core.spikes import new_history
from charlm.core.state import new_state, stream_key
from charlm.core.step import make_train_step
from charlm.data.word_batch import reshape_batch
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.heads import CharBertForLabels, CharBertForMaskedLM
from charlm.families.charbert.model import CharBertConfig
from charlm.families.hlm.config import model_config
from charlm.families.hlm.labels import HLMForLabels
from charlm.families.hlm.loss import masked_char_sums
from charlm.families.hlm.model import HLMForMaskedLM
from charlm.families.spelled.model import smallest_batch
from charlm.families.subword.bert import BertConfig, BertForMaskedLM
from charlm.families.subword.gpt2 import GPT2Config, GPT2LMHeadModel
from charlm.families.xrayemb.encoder import encoder_config
from charlm.families.xrayemb.model import XRayEmbBertConfig, XRayEmbForMaskedLM
from charlm.training.run import build, optimizer_of


def mesh_of(data=-1, fsdp=1, model=1, devices=None):
    config = get_config()
    config.mesh.update({"data": data, "fsdp": fsdp, "model": model})
    return make_mesh(config, devices)


# ---- Rules ----


def abstract_state(model):
    ids = np.ones((1, 4), np.int32)
    reads_ids = isinstance(model, BertForMaskedLM | GPT2LMHeadModel | Char2Subword)
    batch = ids if reads_ids else reshape_batch(*[np.ones((1, 3, 4), np.uint16)] * 2)
    if isinstance(model, CharBertForMaskedLM | CharBertForLabels):
        batch = CharBertBatch(ids, None, None, ids, ids, ids)
    if isinstance(model, XRayEmbForMaskedLM):
        batch = smallest_batch()
    config = get_config()
    config.train.spike_policy = "skip"
    init = lambda: new_state(model.init(stream_key(0, "init"), batch)["params"], optimizer_of(config))
    state = jax.eval_shape(init)
    return state._replace(history=jax.eval_shape(lambda: new_history(config.train)))


def base_models():
    """Yields models of the papers' widths; all layers of a model have the same arrays, so two stand for all."""
    shape = dataclasses.replace(model_config(get_config()), intra_layers=2, inter_layers=2)
    yield HLMForMaskedLM(shape)
    yield HLMForMaskedLM(dataclasses.replace(shape, wiring="reference"))
    yield HLMForLabels(shape, 2, SEQUENCE_CLASSIFICATION)
    yield BertForMaskedLM(BertConfig(layers=11), next_sentence=True)
    yield GPT2LMHeadModel(GPT2Config(layers=2))
    yield CharBertForMaskedLM(CharBertConfig(layers=2))
    yield Char2Subword(Char2SubwordConfig())
    for kind in ("conv", "lstm"):
        yield XRayEmbForMaskedLM(XRayEmbBertConfig(layers=2, pooler=False, encoder=encoder_config(kind)))
    yield CharBertForLabels(CharBertConfig(layers=2, fusion="reference", windows=(3,)), 2, TOKEN_CLASSIFICATION)


@functools.cache
def placements():
    """The placement of every array of all models' states, by name, with its shape."""
    found = {}
    for i, model in enumerate(base_models()):
        state = abstract_state(model)
        placed = state_sharding(state, mesh_of(2, 2, 2))
        shapes = {path_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
        for path, sharding in jax.tree_util.tree_leaves_with_path(placed):
            found[f"{i}/{path_name(path)}"] = (sharding.spec, shapes[path_name(path)])
    return found


def test_exactly_one_rule_for_each_array_and_none_too_many():
    names = [name for name, (_, shape) in placements().items() if shape]
    assert len(names) > 300
    own_names = {name: name.partition("/")[2] for name in names}  # without the number of the model
    matches = {name: [pattern for pattern, _ in RULES if re.search(pattern, own)] for name, own in own_names.items()}
    assert {name: found for name, found in matches.items() if len(found) != 1} == {}
    assert {found[0] for found in matches.values()} == {pattern for pattern, _ in RULES}


def test_moments_lie_where_their_parameters_lie():
    places = placements()
    moments = {name: spec for name, (spec, _) in places.items() if re.search("/(mu|nu)/", name)}
    assert len(moments) == 2 * sum("/params/" in name for name in places)
    for name, spec in moments.items():
        assert spec == places[re.sub(r"^(\d)/.*?/(mu|nu)/", r"\1/params/", name)][0]


def test_big_matrices_are_spread_over_fsdp_and_biases_only_beside_matrices_spread_by_their_output():
    places = placements()
    for name, (spec, shape) in places.items():
        if len(shape) > 1 and not name.endswith(
            ("embedding", "state_kernel", "start_state", "output_projection/kernel")
        ):
            assert "fsdp" in spec, name
        if len(shape) < 2:
            kernel = places.get(name.replace("/bias", "/kernel"), (P(),))[0] if "/bias" in name else P()
            assert spec == (P("model") if kernel == P("fsdp", "model") else P()), name
    layer = "0/params/hlm/inter_word/layer_1"
    assert places[f"{layer}/attention/query/kernel"][0] == places[f"{layer}/ffn_in/kernel"][0] == P("fsdp", "model")
    assert places[f"{layer}/attention/output/kernel"][0] == places[f"{layer}/ffn_out/kernel"][0] == P("model", "fsdp")


@pytest.mark.parametrize("name", ["dense/weights", "query/kernels"])
def test_an_array_without_a_rule_is_copied_and_named(name, log_lines):
    for _ in range(2):
        placed = state_sharding({name: jnp.zeros((2, 2)), "opt": {"mu": {name: jnp.zeros((2, 2))}}}, mesh_of())
    assert placed[name].spec == P()
    assert log_lines.lines.count(f"sharding: no rule places {name}: every device holds a copy") == 1


def test_a_dimension_that_its_axis_does_not_divide_is_not_sharded():
    state = {"convolution_1": {"kernel": jax.ShapeDtypeStruct((1, 12, 32), np.float32)}}
    found = [state_sharding(state, mesh_of(fsdp=size))["convolution_1"]["kernel"].spec for size in (4, 8)]
    assert found == [P(None, "fsdp", None), P(None, None, None)]


def test_an_array_with_two_rules_is_named(monkeypatch):
    monkeypatch.setattr("charlm.core.sharding.RULES", (*RULES, (r"query/\w+$", P())))
    state_sharding({"value": {"kernel": jnp.zeros((2, 2))}}, mesh_of())
    with pytest.raises(ValueError, match=r"sharding: 2 rules match query/kernel \(2, 2\); one at most may"):
        state_sharding({"query": {"kernel": jnp.zeros((2, 2))}}, mesh_of())


# ---- The mesh ----


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [((-1, 1, 1), (8, 1, 1)), ((-1, 2, 2), (2, 2, 2)), ((4, 2, 1), (4, 2, 1)), ((2, -1, 1), (2, 4, 1))],
)
def test_free_axis_takes_what_is_left(sizes, shape):
    assert tuple(mesh_of(*sizes).shape.values()) == shape


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, 1, 1), r"mesh\.data=3, mesh\.fsdp=1, mesh\.model=1 do not multiply to the 8 devices present"),
        ((-1, 3, 1), r"mesh\.data=-1, mesh\.fsdp=3, mesh\.model=1 do not multiply to the 8 devices"),
        ((-1, 16, 1), "do not multiply to the 8 devices"),
        ((-1, -1, 1), "at most one -1; got .'data': -1, 'fsdp': -1, 'model': 1"),
        ((8, 0, 1), "sizes must be positive"),
        ((-2, 1, 1), "sizes must be positive"),
    ],
)
def test_impossible_mesh(sizes, message):
    with pytest.raises(ValueError, match=message):
        mesh_of(*sizes)


def test_table_shards_divide_among_the_devices_of_the_batch():
    config, mesh = get_config(), mesh_of(2, 2, 2)
    assert table_shards(config, mesh) == 4
    config.data.table_shards = 8
    assert table_shards(config, mesh) == 8
    config.data.table_shards = 6
    with pytest.raises(ValueError, match=r"data\.table_shards=6 must be a multiple of the 4 devices"):
        table_shards(config, mesh)


def test_shards_of_a_process_are_those_on_its_devices(monkeypatch):
    mesh = mesh_of(2, 2, 2)
    assert local_shards(mesh, 8) == tuple(range(8))
    # As if devices 2 and 3 were another process's: they hold the second quarter of the shards.
    places = jax.sharding.NamedSharding.addressable_devices_indices_map
    own = lambda self, shape: {d: part for d, part in places(self, shape).items() if d.id not in (2, 3)}
    monkeypatch.setattr(jax.sharding.NamedSharding, "addressable_devices_indices_map", own)
    assert local_shards(mesh, 8) == (0, 1, 4, 5, 6, 7)


def test_a_batch_is_placed_shard_by_shard(monkeypatch):
    mesh, batch = mesh_of(4, 2, 1), {"x": np.arange(2 * 16 * 3).reshape(2, 16, 3)}
    want = place_batch(batch, mesh, 16)
    monkeypatch.setattr(hosts, "alone", lambda: False)
    got = place_batch(batch, mesh, 16)
    assert got["x"].sharding == want["x"].sharding == batch_sharding(mesh)
    np.testing.assert_array_equal(got["x"], batch["x"])
    for shard in got["x"].addressable_shards:
        np.testing.assert_array_equal(shard.data, batch["x"][shard.index])


# ---- One step, anywhere ----


def batches(trained, count=3):
    iterator = iter(trained.run.train_batches)
    try:
        return list(itertools.islice(iterator, count))
    finally:
        iterator.close()


def steps(run, state, batches):
    """Does steps from a host copy of `state`; returns sums and gradient norm of each."""
    placed = jax.tree.map(lambda x: x.sharding, run.abstract_state)
    state = jax.device_put(state, placed)
    results = []
    for batch in batches:
        state, sums, norm = run.train_step(state, run.place(batch))
        results.append(jax.device_get((*sums, norm)))
    return np.array(results)


@pytest.fixture(scope="module")
def start(trained):
    """The state before the first step."""
    return jax.device_get(trained.run.init())


@pytest.fixture(scope="module")
def on_one(trained, start):
    return steps(trained.run, start, batches(trained))


ONLY_DATA = pytest.param({"data": 8}, marks=pytest.mark.slow)


@pytest.mark.parametrize("mesh", [ONLY_DATA, {"data": 2, "fsdp": 2, "model": 2}], ids=["8", "2x2x2"])
def test_eight_devices_compute_what_one_does(trained, start, on_one, mesh):
    config = trained.new_config()
    config.mesh.update(mesh)
    run = build(config, trained.data)
    assert run.objective.shape == trained.run.objective.shape
    got = steps(run, start, batches(trained))
    np.testing.assert_allclose(got[0], on_one[0], rtol=1e-5)  # loss, hits and gradient, with dropout
    np.testing.assert_allclose(got[:, [0, 1, 3]], on_one[:, [0, 1, 3]], rtol=1e-4)  # the third step sees an update
    assert run.train_step._cache_size() == 1
    if mesh == {"data": 8}:
        assert collectives(compiled(run)).keys() == {"all-reduce"}
    if len(mesh) > 1:  # what is spread is spread from the beginning, and with the same values
        made = run.init()
        kernel = made.params["hlm"]["inter_word"]["layer_0"]["ffn_in"]["kernel"]
        assert {shard.data.shape for shard in kernel.addressable_shards} == {(8, 16)}
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), jax.device_get(made), start)


def compiled(run):
    """Returns the text of the compiled training step."""
    return run.train_step.lower(run.abstract_state, run.place(run.empty)).compile().as_text()


@pytest.mark.parametrize(
    ("mesh", "kinds"),
    [
        pytest.param({"data": 4, "model": 2}, {"all-reduce"}, marks=pytest.mark.slow),
        ({"data": 2, "fsdp": 2, "model": 2}, {"all-reduce", "all-gather", "collective-permute"}),
    ],
    ids=["model", "fsdp and model"],
)
def test_activations_are_never_gathered(trained, mesh, kinds):
    config = trained.new_config()
    config.mesh.update(mesh)
    config.model.wiring = "reference"  # has all the parts of the other
    # Sizes of parameters that no activation has: a batch is 1 sequence of 16 words a shard, tables of 8 and 24 words.
    config.model.hidden, config.model.heads, config.model.intra_ffn, config.model.inter_ffn = 20, 4, 44, 52
    config.model.vocab_size = 68
    run = build(config, trained.data)
    found = collectives(compiled(run))
    assert found.keys() == kinds
    sizes = {tuple(sorted(leaf.shape)) for leaf in jax.tree.leaves(run.abstract_state.params)}
    parts = {
        tuple(sorted(n // s for n, s in zip(size, split, strict=True)))
        for size in sizes
        for split in itertools.product((1, 2), repeat=len(size))
    }
    moved = {tuple(sorted(shape)) for kind in kinds - {"all-reduce"} for shape in found[kind]}
    assert moved <= parts, "something other than parameters was gathered or sent"
    batch = {n for leaf in jax.tree.leaves(run.empty) for n in leaf.shape[2:]}
    assert not batch & {20, 10, 44, 22, 52, 26, 68, 34}, "an activation could pass for a parameter"


def test_collectives_are_read_from_programs():
    program = """
  %a = f32[8,16]{1,0} all-reduce(%x), replica_groups={}
  %b = (f32[4]{0}, f32[]) all-reduce-start(%y, %z), replica_groups={}
  %c = (f32[4]{0}, f32[]) all-reduce-done(%b)
  ROOT %d = bf16[2,3,4]{2,1,0} all-gather(%c), dimensions={0}
  %e = f32[5]{0} add(%all-reduce, %all-gather)
"""
    assert collectives(program) == {"all-reduce": [(8, 16), (4,), ()], "all-gather": [(2, 3, 4)]}


def test_the_steps_of_a_run_compile_once(trained, on_one):
    assert len(on_one) == 3
    assert trained.run.train_step._cache_size() == 1
    assert trained.run.eval_step._cache_size() == 1


def test_every_device_holds_its_own_tables(trained):
    (batch,) = batches(trained, 1)
    placed = build(trained.new_config(), trained.data).place(batch)
    assert placed.mask_SBW.sharding == batch_sharding(mesh_of())
    assert {shard.data.shape[:2] for x in jax.tree.leaves(placed) for shard in x.addressable_shards} == {(1, 1)}


def test_dropout_of_a_step_depends_on_seed_and_step(trained, start, on_one):
    (batch,) = batches(trained, 1)
    again = steps(trained.run, start, [batch])
    np.testing.assert_array_equal(again[0], on_one[0])
    later = steps(trained.run, start._replace(step=np.int32(1)), [batch])
    assert abs(later[0, 0] / again[0, 0] - 1) > 1e-5
    keys = [(0, "init"), (0, "dropout"), (1, "dropout"), (0, "dropout", 1), (1, "init")]
    assert len({tuple(jax.random.key_data(stream_key(*key)).tolist()) for key in keys}) == len(keys)


def test_micro_batches_sum_to_the_whole_batch(trained, start):
    config = trained.new_config()
    config.model.dropout = config.model.attention_dropout = 0.0
    (whole,) = batches(trained, 1)
    cut = jax.tree.map(lambda x: x.reshape(2, 4, *x.shape[2:]), whole)
    assert len({int(n) for n in cut.mask_SBW.sum(axis=(1, 2, 3))}) == 2  # of unequal weight: a mean of means would show

    optimizer = optax.sgd(1.0)  # so that the update is the gradient
    model = HLMForMaskedLM(model_config(config))
    loss_sums = lambda params, batch, key: masked_char_sums(model, params, batch, key)
    step = jax.jit(make_train_step(loss_sums, optimizer, config.seed))
    state = start._replace(opt_state=optimizer.init(start.params))
    one, two = (jax.device_get(step(state, batch)) for batch in (whole, cut))
    np.testing.assert_allclose(two[1], one[1], rtol=1e-5)
    np.testing.assert_allclose(two[2], one[2], rtol=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), two[0].params, one[0].params)
    assert one[2] > 0.1


@pytest.mark.slow
def test_micro_batches_drop_different_units(trained, start):
    (whole,) = batches(trained, 1)
    twice = jax.tree.map(lambda x: np.concatenate([x, x]), whole)
    one, two = (steps(trained.run, start, [batch]) for batch in (whole, twice))
    # The first half draws as the batch alone does; were the second to draw the same, the sums would double exactly.
    assert abs(two[0, 0] / (2 * one[0, 0]) - 1) > 1e-5
    assert abs(two[0, 0] / (2 * one[0, 0]) - 1) < 0.1
