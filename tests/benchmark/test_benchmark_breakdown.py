"""Tests where the benchmark says the time went: operations of a trace are added up by part of the model."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import jax
import numpy as np
import pytest

from charlm.benchmark.breakdown import breakdown, part_of, table
from charlm.nn.transformer import Encoder, EncoderConfig

MODEL = "jit(train_step)/jvp(HLMForMaskedLM)"


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        (f"{MODEL}/hlm/intra_word.lower/layer_0/attention/query/dot_general", "intra_word: projections"),
        (f"{MODEL}/hlm/inter_word/layer_3/attention/pos_key/dot_general", "inter_word: position projections"),
        (f"{MODEL}/hlm/inter_word/layer_3/attention/hbqk->hbql/dot_general", "inter_word: scores, softmax, mixing"),
        (f"{MODEL}/hlm/inter_word/layer_3/attention/Dropout_0/mul", "inter_word: dropout"),
        (f"{MODEL}/hlm/inter_word/layer_3/erf", "inter_word: feed-forward"),
        (f"{MODEL}/hlm/inter_word/layer_3/ffn_norm/add", "inter_word: LayerNorm"),
        ("jit(f)/transpose(jvp(HLM))/hlm/inter_word/layer_3/ffn_in/dot_general", "inter_word: feed-forward, backward"),
        (f"{MODEL}/head/encoder.last/layer_0/ffn_in/dot_general", "head: feed-forward"),
        ("jit(<lambda>)/Bert/encoder/layer_11/attention/value/dot_general", "encoder: projections"),
        ("jit(train_step)/adam/mul", "outside the modules"),
        ("", "outside the modules"),
    ],
)  # fmt: skip
def test_every_operation_has_a_part(operation, part):
    assert part_of(operation) == part


def test_products_of_a_compiled_encoder_are_where_they_belong():
    encoder = Encoder(EncoderConfig(1, 32, 2, 48, max_distance=16, position_buckets=8), name="inter_word")
    x, mask = np.ones((2, 7, 32), np.float32), np.ones((2, 7), bool)
    variables = encoder.init(jax.random.key(0), x, mask)
    loss = lambda variables: encoder.apply(variables, x, mask).sum()
    program = jax.jit(jax.grad(loss)).lower(variables).compile().as_text()
    products = {name for name in re.findall(r'op_name="([^"]*)"', program) if "dot_general" in name}
    found = Counter(part_of(name).removesuffix(", backward") for name in products)
    # Forward and backward: query, key, value, output; two of positions; three scores and the mixing; two layers.
    for kind in ("projections", "position projections", "scores, softmax, mixing", "feed-forward"):
        assert found[f"inter_word: {kind}"] >= 2, (kind, products)
    assert sum(found.values()) == sum(count for part, count in found.items() if part.startswith("inter_word: "))
    by_name = {part_of(name) for name in products if "/query/" in name}
    assert by_name <= {"inter_word: projections", "inter_word: projections, backward"}


def test_times_of_a_trace_are_added_by_part(tmp_path):
    program = (
        '  %dot.1 = f32[2]{0} dot(%a, %b), metadata={op_type="x" op_name="jit(f)/hlm/inter_word/layer_0/ffn_in/dot"}\n'
        '  ROOT fusion.2 = f32[2]{0} fusion(%a), kind=kLoop, metadata={op_name="jit(f)/hlm/embed/take"}\n'
    )
    events = [
        {"ph": "X", "dur": 1500, "args": {"hlo_op": "dot.1"}}, {"ph": "X", "dur": 500, "args": {"hlo_op": "dot.1"}},
        {"ph": "X", "dur": 1000, "args": {"hlo_op": "fusion.2"}}, {"ph": "X", "dur": 9000, "args": {}},
        {"ph": "M", "args": {"hlo_op": "dot.1"}},
    ]  # fmt: skip
    folder = tmp_path / "plugins" / "profile"
    folder.mkdir(parents=True)
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    (folder / "perfetto_trace.json.gz").write_bytes(b"the same again")
    parts = breakdown(tmp_path, program)
    assert list(parts.items()) == [("inter_word: feed-forward", 2.0), ("embed: other", 1.0)]
    assert table(parts).splitlines() == [
        " 66.7 %         2.0 ms  inter_word: feed-forward",
        " 33.3 %         1.0 ms  embed: other",
    ]
