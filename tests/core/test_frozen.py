"""Tests the checks of frozen parameters: all others are trained, and every frozen bit is compared."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from charlm.core.frozen import Frozen, at_start, check_trained, check_unchanged, fingerprint

PARAMS = {
    "body": {"kernel": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3), "scale": jnp.float32(2)},
    "module": {"kernel": jnp.zeros((3, 2))},
}


def changed(part, name, value):
    return PARAMS | {part: PARAMS[part] | {name: value}}


def test_every_bit_counts_of_what_is_frozen_and_of_nothing_else():
    before = fingerprint(PARAMS, ("^body/",))
    assert (before.arrays, before.bytes) == (2, 16)
    assert check_unchanged(changed("module", "kernel", jnp.ones((3, 2))), ("^body/",), before) == (
        "frozen parameters unchanged: 2 arrays, 0.0 MB"
    )
    kernel = PARAMS["body"]["kernel"]
    for other in (kernel.at[0, 0].set(-0.0), kernel.at[1, 2].add(1), kernel.reshape(3, 2), kernel.astype(np.float16)):
        with pytest.raises(ValueError, match=r"^frozen parameters changed \(2 arrays, 0\.0 MB\): what optim\.freeze="):
            check_unchanged(changed("body", "kernel", other), ("^body/",), before)
    swapped = {"dody": PARAMS["body"], "module": PARAMS["module"]}  # the same values by another name
    assert fingerprint(swapped, ("^dody/",)) != before


def test_a_run_that_goes_on_knows_what_it_began_with():
    stored = {"config": {"optim": {"freeze": ["^body/"]}}, "frozen": ["abc", 2, 16]}
    assert at_start(PARAMS, ("^body/",), stored) == Frozen("abc", 2, 16)
    now = fingerprint(PARAMS, ("^body/kernel",))
    assert at_start(PARAMS, ("^body/kernel",), stored) == now  # it resumes another run, which froze something else
    assert at_start(PARAMS, ("^body/kernel",), {}) == now
    assert at_start(PARAMS, (), stored) is None


def test_one_module_alone_is_trained():
    check_trained(PARAMS, ("^body/",), "module/")
    with pytest.raises(
        ValueError, match=r"^optim\.freeze=\('scale',\) leaves body/kernel to be trained: only module/ may"
    ):
        check_trained(PARAMS, ("scale",), "module/")
    with pytest.raises(
        ValueError, match=r"^optim\.freeze=\('body', 'kernel'\) freezes module/kernel, of the module that"
    ):
        check_trained(PARAMS, ("body", "kernel"), "module/")
