"""Tests `check` of HLM: all arrays of the released code agree, mistakes are detected, nothing is skipped silently."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_cases import HLM, case, shared_folder
from safetensors.numpy import save_file

from charlm.convert import golden
from charlm.convert.__main__ import main
from charlm.convert.golden import Case, NotCompared, Ours
from charlm.families.hlm import conversion as hlm
from charlm.families.hlm import golden as hlm_golden
from charlm.families.hlm.golden import ATOL
from charlm.nn import transformer
from charlm.nn.transformer import EncoderLayer

STRICT = 1e-5  # the cases here are small: noise stays below 4e-6, and the epsilon of the layers alone shows


# Both levels, head and loss, in one program.
FEW = ("input_ids", "orig_input_ids", "predict_indices", "r", "w", "mlm_logits")


def write_case(folder: Path, source: Case, arrays: tuple[str, ...], **changes: np.ndarray) -> Path:
    """Writes some arrays of a case as a case of its own, with changed tensors; returns the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "few.json").write_text(json.dumps(source.meta))
    save_file(source.state | changes, folder / "few.safetensors")
    np.savez(folder / "few.npz", **{name: source.arrays[name] for name in arrays})
    return folder


def check(folder: Path, *more: str) -> int:
    return main(["check", "--family=hlm", f"--golden-dir={folder}", *more])


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


# ---- Parity ----


def assert_everything_compared(printed: list[str], cases: int) -> None:
    assert not [line for line in printed if "FAIL" in line and " 0 FAIL" not in line]
    assert not [line for line in printed if "no comparison is written" in line]
    left = printed[printed.index("not compared:") + 1 : -1]
    others = [line for line in left if not line.endswith(("  input", "  the case has no such array"))]
    assert len(others) == 2 * cases, "qa_loss and qa_nlast1_loss"
    assert all("their softmax runs over padding" in line for line in others)
    absent = {line.split()[1] for line in left if line.endswith("  the case has no such array")}
    assert absent <= {f"{encoder}_l0_probs" for encoder in ("intra", "inter", "last")}, "too big for the repository"


@pytest.mark.parametrize("name", ["reference", pytest.param("paper", marks=pytest.mark.slow)])
def test_every_array_of_the_cases_here_is_that_of_the_released_code(tmp_path, capsys, name):
    """The tests below and those of the model compare states and logits of both cases."""
    for file in HLM.glob(f"{name}*"):
        shutil.copy(file, tmp_path)
    assert check(tmp_path, f"--atol={STRICT}") == 0
    printed = lines(capsys)
    assert_everything_compared(printed, cases=1)
    compared = [line for line in printed if line.startswith(name) and " pass" in line]
    assert sum("gradient of" in line for line in compared) == len(
        [name for name in case(name).state if not name.startswith("heads.")]
    )
    assert len(compared) > 160


@pytest.mark.slow
def test_every_array_of_the_larger_cases_is_that_of_the_released_code(capsys):
    assert check(shared_folder()) == 0
    assert_everything_compared(lines(capsys), cases=2)


# ---- What it sees ----


@contextlib.contextmanager
def without_mask(encoder: str):
    """Lets the layers of an encoder read padding."""

    def intercept(following, args, kwargs, context):
        if isinstance(context.module, EncoderLayer) and encoder in context.module.path:
            x_BLD, mask_BL, *rest = args
            args = (x_BLD, jnp.ones_like(mask_BL), *rest)
        return following(*args, **kwargs)

    with nn.intercept_methods(intercept):
        yield


def other_epsilon(monkeypatch):
    model_config = hlm_golden.model_config
    monkeypatch.setattr(hlm_golden, "model_config", lambda c: dataclasses.replace(model_config(c), epsilon=1e-5))


def other_epsilon_of_layers(monkeypatch):
    norm = transformer.norm_layer
    monkeypatch.setattr(transformer, "norm_layer", lambda kind, _, *more, **named: norm(kind, 1e-5, *more, **named))


def other_epsilon_of_the_head(monkeypatch):
    monkeypatch.setattr("charlm.families.hlm.heads.HEAD_EPSILON", 1e-7)


def tanh_gelu(monkeypatch):
    gelu = jax.nn.gelu
    monkeypatch.setattr(jax.nn, "gelu", lambda x, approximate: gelu(x, approximate=True))


def kernel_as_it_lies(part: str, monkeypatch):
    rules = hlm.rules
    stay = lambda rule: dataclasses.replace(rule, transpose=rule.transpose and not rule.ours.endswith(part))
    monkeypatch.setattr(hlm, "rules", lambda head: [stay(rule) for rule in rules(head)])


QUERY = "inter_word/layer_{n}/attention/query/kernel"
MISTAKES = {
    "epsilon 1e-5": (other_epsilon, ATOL),
    "epsilon of the layers 1e-5": (other_epsilon_of_layers, STRICT),
    "epsilon of the head 1e-7": (other_epsilon_of_the_head, ATOL),
    "tanh GELU": (tanh_gelu, ATOL),
    "query kernels not transposed": (functools.partial(kernel_as_it_lies, QUERY), ATOL),
}


def status_of(folder: Path, atol: float = ATOL) -> int:
    return golden.check(hlm_golden.outputs, folder, atol)


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The folder of a case that our code passes."""
    folder = write_case(tmp_path_factory.mktemp("right") / "few", case("paper"), FEW)
    assert status_of(folder, STRICT) == 0
    return folder


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_our_code_is_seen(right, monkeypatch, mistake):
    make, atol = MISTAKES[mistake]
    make(monkeypatch)
    assert status_of(right, atol) == 1


@pytest.mark.parametrize(("encoder", "array"), [("intra_word", "r"), ("inter_word", "w"), ("encoder", "mlm_logits")])
def test_a_missing_mask_of_characters_or_words_is_seen(tmp_path, capsys, encoder, array):
    folder = write_case(tmp_path / "few", case("reference"), FEW)
    with without_mask(encoder):
        assert status_of(folder) == 1
    assert [line for line in lines(capsys) if line.split()[1] == array and "FAIL" in line]


def test_one_swapped_sign_is_seen(tmp_path):
    name = "hlm_model.deep_transformer.global_layer.layer.1.attention.self.pos_query_proj.bias"
    swapped = case("reference").state[name].copy()
    swapped[5] *= -1
    assert status_of(write_case(tmp_path / "few", case("reference"), FEW, **{name: swapped})) == 1


@pytest.mark.parametrize(
    ("array", "change"),
    [
        ("w", lambda x: np.where(np.arange(x.size).reshape(x.shape) == 0, np.nan, x)),
        ("mlm_logits", lambda x: x[:-1]),
        ("pad_mask_sentence", lambda x: ~x),
        ("intra_rel_pos_idx", lambda x: x.T),
    ],
)
def test_a_golden_array_that_is_not_finite_or_not_equal_is_seen(tmp_path, capsys, array, change):
    changed = dataclasses.replace(case("reference"), arrays=case("reference").arrays | {})
    changed.arrays[array] = change(changed.arrays[array])
    assert status_of(write_case(tmp_path / "few", changed, (*FEW[:3], array))) == 1
    assert [line for line in lines(capsys) if line.split()[1] == array and "FAIL" in line]


def test_gradients_are_compared_at_their_own_scale_and_noise_by_the_largest():
    names = ["x.pos_key_proj.bias", "small.weight", "large.weight", "unused.weight"]
    golden_values = {name: np.full(2, value) for name, value in zip(names, (1e-9, 1e-3, 1.0, 0.0), strict=True)}
    arrays = {golden.GRADIENT + name: value for name, value in golden_values.items()}
    verdicts = {}
    for off in (0, 2e-7):
        ours = {name: value + off for name, value in golden_values.items()}
        for name, wanted in hlm_golden._gradients(Case("x", {}, {}, arrays), ours):
            result = golden.compare(wanted, arrays[name], ATOL)
            verdicts.setdefault(name.removeprefix(golden.GRADIENT), []).append(result.passed)
    assert verdicts == {
        "x.pos_key_proj.bias": [True, True],  # noise, whatever its own size
        "small.weight": [True, False],
        "large.weight": [True, True],
        "unused.weight": [True, False],  # nothing leads there
    }


# ---- The runner ----


def write_plain(folder: Path, name: str = "plain", **arrays: np.ndarray) -> Path:
    (folder / f"{name}.json").write_text("{}")
    save_file({"a": np.zeros(1, np.float32)}, folder / f"{name}.safetensors")
    np.savez(folder / f"{name}.npz", **arrays)
    return folder


def plain_check(folder: Path, found: dict, atol: float = 1e-3) -> int:
    return golden.check(lambda case: found, folder, atol)


def test_nothing_compared_is_a_failure(tmp_path, capsys):
    (tmp_path / "tokens.json").write_text("{}")  # without its two companions: no case
    np.savez(tmp_path / "tables.npz", x=np.zeros(1))
    assert check(tmp_path) == 1
    assert lines(capsys)[-1].startswith("nothing was compared")
    assert plain_check(write_plain(tmp_path, x=np.zeros(1)), {"x": NotCompared("input")}) == 1


def test_a_missing_folder_and_a_damaged_case_are_one_line(tmp_path, capsys):
    assert check(tmp_path / "no") == 1
    write_plain(tmp_path, x=np.zeros(1))
    (tmp_path / "plain.npz").write_bytes(b"damaged")
    assert check(tmp_path) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "is not a folder" in errors[0]
    assert "plain.npz cannot be read" in errors[1]


def test_what_only_one_side_has_is_listed_and_numbers_without_comparison_fail(tmp_path, capsys):
    folder = write_plain(tmp_path, x=np.ones(2), y=np.ones(2), n=np.ones(2, int))
    found = {"x": Ours(np.ones(2)), "y": NotCompared("for a reason"), "absent": Ours(np.zeros(2))}
    assert plain_check(folder, found) == 0
    printed = lines(capsys)
    assert "not compared:" in printed
    assert [line.split(maxsplit=2)[1:] for line in printed if line.startswith("plain") and "pass" not in line] == [
        ["y", "for a reason"],
        ["n", "no comparison is written for it"],
        ["absent", "the case has no such array"],
    ]
    assert printed[-1] == "1 arrays compared: 1 pass, 0 FAIL; 3 not compared"
    assert plain_check(folder, {"x": Ours(np.ones(2))}) == 1  # y
    assert "the case lacks what it is computed from" in capsys.readouterr().out


def test_a_case_that_does_not_ask_for_the_weights_is_a_failure(tmp_path, capsys):
    folder = write_plain(tmp_path, n=np.ones(2, int))
    assert plain_check(folder, {"n": Ours(np.ones(2, int))}) == 1
    assert "it holds no array that depends on the weights" in capsys.readouterr().out


def test_a_case_that_cannot_be_computed_fails_and_the_others_are_compared(tmp_path, capsys):
    folder = write_plain(tmp_path, x=np.ones(2))
    for suffix in (".json", ".npz", ".safetensors"):
        shutil.copy(folder / f"plain{suffix}", folder / f"bad{suffix}")
    (folder / "half.json").write_text("{}")
    np.savez(folder / "half.npz", x=np.zeros(1))

    def outputs(case):
        if case.name == "bad":
            raise IndexError("index 9 is out of bounds")
        return {"x": Ours(np.ones(2))}

    assert golden.check(outputs, folder, 1e-3) == 1
    printed = lines(capsys)
    assert "bad        FAIL  it cannot be computed: index 9 is out of bounds" in printed
    assert "half: no case, for half.safetensors is missing" in printed
    assert printed[-1] == "2 arrays compared: 1 pass, 1 FAIL; 0 not compared"


@pytest.mark.parametrize("atol", [0.0, -1.0, np.inf, np.nan])
def test_a_tolerance_that_says_nothing_is_refused(tmp_path, atol):
    with pytest.raises(ValueError, match="expected a positive number"):
        plain_check(write_plain(tmp_path, x=np.ones(2)), {"x": Ours(np.ones(2))}, atol)


def test_only_valid_positions_count_and_whole_numbers_must_be_equal(tmp_path):
    folder = write_plain(tmp_path, x=np.array([1.0, 9.0]), n=np.array([1, 2]))
    valid = np.array([True, False])
    assert plain_check(folder, {"x": Ours(np.array([1.0005, 0.0]), valid), "n": Ours(np.array([1, 2]))}) == 0
    x = Ours(np.array([1.0, 9.0]))
    assert plain_check(folder, {"x": Ours(np.array([1.002, 0.0]), valid)}) == 1
    assert plain_check(folder, {"x": Ours(np.array([1.002, 0.0]), valid)}, atol=0.01) == 0
    assert plain_check(folder, {"x": x, "n": Ours(np.array([1.0001, 2]))}) == 1
    assert plain_check(folder, {"x": Ours(np.array([1.0, 9.0]), ~valid & ~valid[::-1])}) == 1, "no valid position"
