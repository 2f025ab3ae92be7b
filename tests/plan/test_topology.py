"""Names of machines are read as people write them, and a mistake is answered with what there is."""

from __future__ import annotations

import importlib.util

import pytest

from charlm.plan.chips import CHIPS, target_config
from charlm.plan.topology import check_packages, devices_of, parse


@pytest.mark.parametrize(
    ("name", "kind", "shape"),
    [
        ("v5e:4x4", "v5e", (4, 4)),
        ("V6E:16x16", "v6e", (16, 16)),
        ("v5p:2x2x4", "v5p", (2, 2, 4)),
        ("v5e-16", "v5e", (4, 4)),
        ("v5p-128", "v5p", (4, 4, 4)),  # 128 cores are 64 chips
        ("v6e-256", "v6e", (16, 16)),
        ("v5p:8x12x16", "v5p", (8, 12, 16)),
        ("h100:8", "h100", (1, 8)),
        ("h100", "h100", (1, 1)),
        ("h100:64", "h100", (8, 8)),
        ("2xh100:8", "h100", (2, 8)),
        ("4xa100:4", "a100", (4, 4)),
        ("cpu:8", "cpu", (1, 8)),
    ],
)
def test_names_are_read(name, kind, shape):
    found = parse(name)
    assert (found.kind, found.shape) == (kind, shape)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("v4:4x4", "expected a machine of v5e"),
        ("", "expected a machine"),
        ("v5e:4x4x4", "such as 1x1, 2x2"),
        ("v5e:0x4", "such as 1x1"),
        ("v5e-17", "v5e-16"),
        ("v5p-64x", "expected a machine of"),
        ("v6e:16x16x", "expected a machine of"),
        ("v5e:4xx4", "expected a machine of"),
        ("h100:x8", "expected a machine of"),
        ("v5e:64x64", "no slice of v5e .*: 1x1, 2x2"),
        ("v6e:4x2", "no slice of v6e"),
        ("v5p:1x1x1", "no slice of v5p .*: 2x2x1"),
        ("v5p:8x8x4", "no slice of v5p"),
        ("v5p:16x20x24", "no slice of v5p"),
        ("2xv5e:4x4", "several slices"),
        ("h100:12", "must fill nodes of 8"),
        ("2xh100:16", "8 H100 at most"),
        ("h100:2x4", "expected h100:N"),
        ("h100-8", "expected h100:N"),
        ("h100:0", "expected h100:N"),
        ("2xcpu:4", "expected cpu:N"),
    ],
)
def test_mistakes_name_what_there_is(name, says):
    with pytest.raises(ValueError, match=says):
        parse(name)


def test_the_machine_is_described():
    assert parse("v5p-128").described() == "64 x TPU v5p (4x4x4)"
    assert parse("h100:64").described() == "8 x 8 H100"
    assert parse("a100:4").described() == "4 A100"


@pytest.mark.parametrize(("name", "package"), [("v5e:2x2", "libtpu"), ("h100:1", "jax-cuda12-plugin==")])
def test_a_compiler_that_is_missing_is_named(monkeypatch, name, package):
    found = importlib.util.find_spec
    absent = ("libtpu", "jax_plugins")
    hidden = lambda module, *rest: None if module.startswith(absent) else found(module, *rest)
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(ValueError, match=f"pip install .*{package}") as raised:
        check_packages(parse(name))
    assert "\n" not in str(raised.value)


def test_the_processor_has_the_devices_that_jax_has():
    assert len(devices_of(parse("cpu:8"))) == 8
    with pytest.raises(ValueError, match="JAX has 8 CPU devices"):
        devices_of(parse("cpu:9"))


def test_gpus_are_described_in_text_form():
    text = target_config(CHIPS["h200"])
    assert 'device_description_str: "NVIDIA H200 141GB HBM3e"' in text
    assert text.count("{") == text.count("}")
    assert "device_memory_size: 151397597184" in text
