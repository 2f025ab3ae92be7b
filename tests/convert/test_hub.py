"""Tests of models by name: those of the hub are downloaded where the name says so, from a hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from small_run import ROOT
from tiny_models import release

from charlm.convert.hub import find_cached

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FIND = "import sys; from charlm.convert.hub import find_cached; print(find_cached(sys.argv[1]))"
LOAD = "import sys, charlm; print(charlm.load(sys.argv[1]).pretrained.folder)"


class Hub(ThreadingHTTPServer):
    """Speaks as much of the hub's protocol as a download needs.

    Args:
      folder: the files of the one model, "owner/tiny".
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.asked: list[str] = []  # the names of files whose content was sent


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        if path.startswith("/api/models/owner/tiny") and not path.endswith("/nowhere"):
            siblings = [{"rfilename": name} for name in self.server.files]
            tree = [{"type": "file", "path": n, "size": len(d), "oid": _tag(d)} for n, d in self.server.files.items()]
            info = {"_id": "1", "id": "owner/tiny", "sha": COMMIT, "private": False, "siblings": siblings}
            self._send(200, json.dumps(tree if "/tree/" in path else info).encode(), {}, body)
            return
        name = path.removeprefix(f"/owner/tiny/resolve/{COMMIT}/")
        if name in self.server.files:
            data = self.server.files[name]
            if body:
                self.server.asked.append(name)
            self._send(200, data, {"ETag": f'"{_tag(data)}"', "X-Repo-Commit": COMMIT}, body)
            return
        code = "RevisionNotFound" if "owner/tiny" in path else "RepoNotFound"
        self._send(404, b"{}", {"X-Error-Code": code}, body)

    def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), "Content-Type": "application/json", **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


def _tag(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@pytest.fixture
def hub(tmp_path):
    folder = Path(shutil.copytree(release("bert"), tmp_path / "release"))
    (folder / "onnx").mkdir()
    (folder / "onnx" / "config.json").write_text("{}")
    (folder / "modeling.py").write_text("raise SystemExit('code of strangers was run')")
    with Hub(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def run(hub: Hub | None, cache: Path, name: str, code: str = FIND) -> subprocess.CompletedProcess[str]:
    """Looks for a model in a new process, whose hub is the given one; None: one that nobody answers for."""
    where = f"http://127.0.0.1:{hub.server_address[1]}" if hub else "http://127.0.0.1:9"
    own = {"HF_ENDPOINT": where, "HF_HUB_CACHE": str(cache), "JAX_PLATFORMS": "cpu", "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", code, name]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | own)


def test_a_model_of_the_hub_is_downloaded_once(hub, tmp_path):
    cache = tmp_path / "cache"
    done = run(hub, cache, "hf:owner/tiny", LOAD)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(cache)
    assert COMMIT in done.stdout
    assert set(hub.asked) >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert not {"onnx/config.json", "modeling.py"} & set(hub.asked)  # another format, and code
    before = len(hub.asked)
    assert before == len(set(hub.asked))
    assert run(hub, cache, "hf:owner/tiny").stdout == done.stdout
    assert len(hub.asked) == before
    for name in ("owner/tiny", "hf:owner/tiny"):  # without the hub, either name stands for what the cache has
        assert run(None, cache, name).stdout == done.stdout


def test_which_files_of_a_model_are_fetched(hub, tmp_path):
    weights = hub.files["model.safetensors"]
    others = ("checkpoint-100/model.safetensors", "original/model.safetensors", "model.fp16.safetensors")
    dense = ("2_Dense/config.json", "2_Dense/pytorch_model.bin")  # as sentence-transformers saves it
    hub.files |= dict.fromkeys(others, weights) | dict(zip(dense, (b"{}", b"weights"), strict=True))
    assert run(hub, tmp_path / "cache", "hf:owner/tiny").returncode == 0
    assert set(hub.asked) >= {"model.safetensors", *dense}
    hub.files["pytorch_model.bin"] = hub.files.pop("model.safetensors")
    assert run(hub, tmp_path / "other", "hf:owner/tiny").returncode == 0
    assert "pytorch_model.bin" in hub.asked
    assert not set(others) & set(hub.asked)


def test_what_the_hub_lacks_is_said_in_one_line(hub, tmp_path):
    for name, said in (
        ("hf:owner/gone", "the hub has no model owner/gone"),
        ("hf:owner/tiny@nowhere", "owner/tiny has no revision 'nowhere'"),
    ):
        last = run(hub, tmp_path / "cache", name).stderr.splitlines()[-1]
        assert last.startswith(f"ValueError: {name}: {said}")
    assert "cannot be reached" in run(None, tmp_path / "empty", "hf:owner/tiny").stderr.splitlines()[-1]
    (tmp_path / "file").write_text("")
    full = run(hub, tmp_path / "file" / "cache", "hf:owner/tiny").stderr.splitlines()[-1]
    assert full.startswith("ValueError: hf:owner/tiny could not be downloaded to ")


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:../x", "hf:a b", "hf:x@-y"])
def test_names_that_no_model_has(name):
    with pytest.raises(ValueError, match=r"expected hf:NAME or hf:OWNER/NAME|not a name that the hub allows"):
        find_cached(name)


def test_names_without_the_prefix_are_never_downloaded(hub, tmp_path):
    done = run(hub, tmp_path / "cache", "owner/tiny")
    assert done.returncode == 1
    assert "hf:owner/tiny downloads it" in done.stderr
    assert hub.asked == []
