"""Tests state dicts on disk: every format is read, damaged files are refused in one line, and no code is run."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pickle
import re
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from charlm.convert.files import find_state, new_folder, read_state, write_safetensors

STATE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float16)}


def assert_equal(got, want) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name].dtype == value.dtype
        np.testing.assert_array_equal(got[name], value)


def test_safetensors_keep_their_dtypes_even_bfloat16(tmp_path):
    state = STATE | {"c": np.ones(3, ml_dtypes.bfloat16)}
    save_file(state, tmp_path / "x.safetensors")
    assert_equal(read_state(tmp_path / "x.safetensors"), state)


def test_a_folder_is_read_by_its_usual_names(tmp_path):
    save_file(STATE, tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    assert find_state(tmp_path).name == "model.safetensors"
    assert_equal(read_state(tmp_path), STATE)


def write_shards(folder: Path, **changes: str) -> None:
    save_file({"a": STATE["a"]}, folder / "model-1.safetensors")
    save_file({"b": STATE["b"]}, folder / "model-2.safetensors")
    names = {"a": "model-1.safetensors", "b": "model-2.safetensors"} | changes
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def test_shards_are_read_through_their_index(tmp_path):
    write_shards(tmp_path)
    assert_equal(read_state(tmp_path), STATE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"c": "model-3.safetensors"}, "the shard model-3.safetensors is missing"),
        ({"c": "model-1.safetensors"}, "in none of its shards: c"),
        ({"c": "../elsewhere.safetensors"}, "is not a file beside it"),
        (
            {"c": "x" * 5000},
            r"index\.json: the shard x{40}\.\.\. \(5,000 characters\) cannot be read: File name too",
        ),
    ],
)
def test_an_index_that_its_shards_do_not_keep_is_refused(tmp_path, changes, message):
    write_shards(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        read_state(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    write_shards(tmp_path)
    save_file(STATE, tmp_path / "model-2.safetensors")
    with pytest.raises(ValueError, match=r"a in model-2\.safetensors and in an earlier shard"):
        read_state(tmp_path)


@pytest.mark.parametrize("content", ["[1]", "{}", '{"weight_map": {"a": 1}}', "not JSON"])
def test_an_index_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "x.index.json").write_text(content)
    with pytest.raises(ValueError, match=r"x\.index\.json") as error:
        read_state(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", [lambda b: b[:-3], lambda b: b[:20], lambda b: b"", lambda b: b"some text " * 9])
def test_a_truncated_or_foreign_safetensors_file_is_refused(tmp_path, damage):
    save_file(STATE, tmp_path / "x.safetensors")
    path = tmp_path / "x.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"x\.safetensors is no safetensors file, or a truncated one") as error:
        read_state(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("make", "message"), [(False, "does not exist"), (True, "holds no state dict")])
def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path, make, message):
    if make:
        (tmp_path / "x").mkdir()
    with pytest.raises(ValueError, match=message):
        read_state(tmp_path / "x")


def test_written_safetensors_are_whole_and_readable_to_others(tmp_path):
    mode = os.stat(tmp_path.joinpath("y").touch() or tmp_path / "y").st_mode
    turned = {"a": STATE["a"].T}  # not contiguous: written as it lies in memory, it would be another matrix
    write_safetensors(tmp_path / "x.safetensors", turned)
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["a"], turned["a"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.safetensors", "y"]
    assert (tmp_path / "x.safetensors").stat().st_mode == mode


def test_a_new_folder_appears_whole_or_not_at_all(tmp_path):
    with new_folder(tmp_path / "made") as folder:
        (folder / "file").write_text("x")
        assert not (tmp_path / "made").exists()
    assert (tmp_path / "made" / "file").read_text() == "x"
    with (
        pytest.raises(ValueError, match="failed cannot be written: No such file"),
        new_folder(tmp_path / "failed") as folder,
    ):
        (folder / "file").write_bytes((folder / "missing").read_bytes())
    assert [p.name for p in tmp_path.iterdir()] == ["made"]


def test_folders_made_on_the_way_go_with_a_failure_and_stay_with_a_success(tmp_path):
    with pytest.raises(ValueError, match="wrong"), new_folder(tmp_path / "a" / "b" / "c"):
        raise ValueError("wrong")
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "a" / "b" / "c") as folder:
        (folder / "x").write_text("x")
    assert (tmp_path / "a" / "b" / "c" / "x").read_text() == "x"


def test_what_cannot_be_read_is_not_said_of_the_output(tmp_path):
    with pytest.raises(ValueError, match=r"^/elsewhere/x cannot be read: No such file"), new_folder(tmp_path / "out"):
        open("/elsewhere/x")  # noqa: SIM115
    beside = tmp_path / "beside"  # in the same folder as the output
    with (
        pytest.raises(ValueError, match=rf"^{beside} cannot be read: No such file or directory$"),
        new_folder(tmp_path / "out"),
    ):
        beside.read_bytes()
    with (
        pytest.raises(ValueError, match=rf"^{beside} cannot be read: File name too long$"),
        new_folder(tmp_path / "out"),
    ):
        raise OSError(errno.ENAMETOOLONG, "File name too long", str(beside))
    with pytest.raises(ValueError, match=r"^--output=.* cannot be written: File name too long"):
        new_folder(tmp_path / ("x" * 300)).__enter__()
    with pytest.raises(ValueError, match=r"cannot be read: File name too long"):
        find_state("x" * 300)


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    def full(*arguments):
        raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    monkeypatch.setattr("charlm.convert.files.save_file", full)
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be written: .*No space left on device"):
        write_safetensors(tmp_path / "model.safetensors", {"x": np.zeros(1)})
    assert list(tmp_path.iterdir()) == []


def test_json_that_never_ends_is_refused(tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="expected a UTF-8 JSON object: nested more than"):
        read_state(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model.safetensors.index.json"}}')
    with pytest.raises(ValueError, match="is not a file beside it"):
        read_state(tmp_path)


def test_a_folder_that_holds_something_is_never_replaced(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="exists already and is not empty"), new_folder(tmp_path / "full"):
        raise AssertionError("is not entered")
    with pytest.raises(ValueError, match="exists already"), new_folder(tmp_path / "full" / "precious"):
        raise AssertionError("is not entered")
    with new_folder(tmp_path / "empty") as folder:
        (folder / "file").write_text("x")
    assert (tmp_path / "full" / "precious").read_text() == "x"
    assert (tmp_path / "empty" / "file").is_file()


# ---- PyTorch's own files ----


def test_without_pytorch_its_files_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r'read with PyTorch: torch is not installed: pip install -e "\.\[torch\]"'):
        read_state(tmp_path / "x.bin")


def test_reading_safetensors_imports_no_pytorch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    save_file(STATE, tmp_path / "x.safetensors")
    assert_equal(read_state(tmp_path / "x.safetensors"), STATE)


class _Touch:
    """Unpickled, it would run a shell command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.torch
@pytest.mark.parametrize("as_zip", [True, False])
def test_pytorch_files_are_read(tmp_path, torch, as_zip):
    state = {"a": torch.arange(6.0).reshape(3, 2).T, "b": torch.ones(4, dtype=torch.bfloat16)}
    state["alias"] = state["a"]
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=as_zip)
    got = read_state(tmp_path)
    want = np.arange(6, dtype=np.float32).reshape(3, 2).T
    assert_equal(got, {"a": want, "b": np.ones(4, ml_dtypes.bfloat16), "alias": want})


@pytest.mark.torch
@pytest.mark.parametrize("form", ["zip", "legacy", "plain", "plain, protocol 2"])
def test_a_pickle_that_asks_for_code_is_refused_by_name(tmp_path, torch, form):
    path, proof = tmp_path / "x.bin", tmp_path / "ran"
    content = {"a": torch.ones(2), "b": _Touch(proof)}
    if form in ("zip", "legacy"):
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    else:
        path.write_bytes(pickle.dumps({"b": _Touch(proof)}, protocol=2 if "2" in form else 4))
    with pytest.raises(
        ValueError, match=rf"{path} is refused: its pickle asks for {os.system.__module__}\.system"
    ) as error:
        read_state(path)
    assert "\n" not in str(error.value)
    assert not proof.exists()


@pytest.mark.torch
def test_a_whole_module_is_refused_by_name(tmp_path, torch):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"asks for torch\.nn\.modules\.linear\.Linear, which is not a tensor"):
        read_state(tmp_path / "x.pt")


@pytest.mark.torch
@pytest.mark.parametrize("as_zip", [True, False])
@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:-9], lambda b: b"", lambda b: b"text " * 9]
)
def test_a_truncated_or_foreign_pytorch_file_is_refused(tmp_path, torch, as_zip, damage):
    path = tmp_path / "x.bin"
    torch.save({"a": torch.ones(100)}, path, _use_new_zipfile_serialization=as_zip)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"x\.bin is no PyTorch state dict, or a truncated one: \w") as error:
        read_state(path)
    assert "\n" not in str(error.value)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("content", "message"),
    [([1, 2], "holds a list, expected a state dict"), ({"epoch": 3}, "'epoch' is a int, expected a state dict")],
)
def test_what_is_no_state_dict_is_refused(tmp_path, torch, content, message):
    torch.save(content, tmp_path / "x.bin")
    with pytest.raises(ValueError, match=message):
        read_state(tmp_path / "x.bin")


IMPORTS_TORCH = re.compile(r'import torch|extras\.load\([^)]*"torch"')


def test_pytorch_is_imported_only_where_it_is_needed():
    folder = Path(importlib.util.find_spec("charlm").origin).parent
    found = [p.relative_to(folder).as_posix() for p in folder.rglob("*.py") if IMPORTS_TORCH.search(p.read_text())]
    assert sorted(found) == [
        "benchmark/authors.py",
        "benchmark/onnx_peers.py",
        "benchmark/peers.py",
        "benchmark/pytorch.py",
        "benchmark/standalone.py",
        "benchmark/torch_generator.py",
        "convert/files.py",
        "export/sentence_module.py",
    ]


@pytest.mark.torch
def test_tensors_that_numpy_has_not_are_refused(tmp_path, torch):
    torch.save({"x": torch.zeros(2, dtype=torch.float8_e5m2)}, tmp_path / "x.bin")
    with pytest.raises(ValueError, match=r"x\.bin holds tensors that NumPy cannot"):
        read_state(tmp_path / "x.bin")
