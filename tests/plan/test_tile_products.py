"""Plans count the products inside the kernels of tiles for GPUs: by their names and the sizes of their operands."""

from __future__ import annotations

import inspect
import re

import pytest

from charlm.nn import gpu_calls, gpu_words
from charlm.plan import counting, products
from charlm.plan.hlo import HloModule

B, H, Q, N, K = 2, 3, 128, 192, 16
D, ROWS = H * K, 70
QUERIES, KEYS, WORDS = f"bf16[{B},{Q},{D}]", f"bf16[{B},{N},{D}]", f"bf16[{ROWS},{D}]"
SCORES, TABLE, FIRST = f"bf16[{B},{H},{Q},{N}]", f"bf16[320,{D}]", ("u32[4]", "f32[9]")
BACK = (*FIRST, QUERIES, KEYS, KEYS, QUERIES, "f32[9]", "f32[9]")
# The operands without tables, and the products of a tile without positions and with them.
CALLS = {
    "tiled_attention": ((*FIRST, QUERIES, KEYS, KEYS), 2, 6),
    "tiled_attention_backward_of_queries": (BACK, 3, 9),
    "tiled_attention_backward_of_keys": ((QUERIES, QUERIES, SCORES, SCORES), 2, 4),
    "tiled_attention_backward_of_positions": ((QUERIES, KEYS, SCORES), 4, 4),
    "tiled_attention_of_words": ((*FIRST, WORDS, WORDS, WORDS), 2, 6),
    "tiled_attention_of_words_backward": ((*FIRST, WORDS, WORDS, WORDS, WORDS), 5, 13),
    "tiled_attention_of_words_backward_of_positions": ((WORDS, WORDS, "bf16[2,3,64,64]"), 4, 4),
}


def program(name: str, operands: tuple[str, ...], target: str = "__gpu$xla.gpu.triton") -> HloModule:
    given = [f"%p{n}" for n in range(len(operands))]
    lines = [f"  {one} = {array} parameter({n})" for n, (one, array) in enumerate(zip(given, operands, strict=True))]
    named = f'metadata={{op_name="jit(f)/{name}/pallas_call"}}'
    call = f'custom-call({", ".join(given)}), custom_call_target="{target}", {named}'
    head = f"ENTRY %main ({', '.join(f'p{n}: {array}' for n, array in enumerate(operands))}) -> f32[1] {{"
    return HloModule("\n".join(["HloModule m", "", head, *lines, f"  ROOT %call = f32[1] {call}", "}", ""]))


@pytest.mark.parametrize("name", CALLS)
def test_products_of_a_kernel_are_counted(name):
    operands, plain, with_tables = CALLS[name]
    one = 2 * ROWS * 64 * D if "words" in name else 2 * B * Q * N * D
    for given, times in ((operands, plain), ((*operands, TABLE, TABLE), with_tables)):
        if "of_positions" in name and given is not operands:
            continue  # it reads no tables
        count = counting.count(program(name, given))
        assert count.products == {"bf16": times * one}
        assert not count.calls


def test_all_kernels_of_tiles_are_known_and_others_are_not_counted():
    written = inspect.getsource(gpu_calls) + inspect.getsource(gpu_words)
    assert set(re.findall(r'"(tiled_attention\w*)"', written)) == set(products._TILES) == set(CALLS)
    operands, *_ = CALLS["tiled_attention"]
    for other in (program("softmax", operands), program("tiled_attention", operands, "tpu_custom_call")):
        count = counting.count(other)
        assert (dict(count.products), sum(count.calls.values())) == ({}, 1)
