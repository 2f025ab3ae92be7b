"""Tests command lines that read a config: --help lists every key, and every mistake is one line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from again import again
from small_run import main

from charlm.config import flatten, get_config

ROOT = Path(__file__).resolve().parents[1]
TINY = "--config=configs/hlm_base.py:tiny"


def run_main(*arguments):
    command = [sys.executable, "-m", "charlm.main", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_help_explains_every_key_and_is_quick():
    start = time.monotonic()
    result = run_main("--help")
    assert time.monotonic() - start < 20  # well under a second on a free machine: jax is not imported
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert any(line.startswith("--config ") for line in lines)
    assert any(line.startswith("--workdir ") for line in lines)
    assert any(line.split(maxsplit=3) == ["model.hidden", "=", "768", "width D of every state"] for line in lines)
    listed = [line.partition(" = ")[0] for line in lines if " = " in line]
    assert set(flatten(get_config())) <= set(listed)


def test_help_may_be_cut_short():
    command = [sys.executable, "-m", "charlm.main", "--help"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # as head does when it has enough
    assert process.stderr.read() == b""
    assert process.wait(timeout=120) == 0
    process.stderr.close()


def test_help_and_mistakes_do_not_import_jax():
    code = "import sys, charlm.main; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([TINY, "--config.model.hiden=8"], "unknown config key model.hiden; did you mean model.hidden?"),
        ([TINY, "--config.modle.hidden=8"], "unknown config key modle.hidden; did you mean model.hidden?"),
        ([TINY, "--config.model.hiden", "8"], "unknown config key model.hiden; did you mean model.hidden?"),
        (["--config", "configs/tag.py", "--config.data.tag=pos", "--config.bogus=1"], "unknown config key bogus"),
        ([TINY, "--config.model.hidden=wide"], "flag --config.model.hidden=wide: invalid literal for int()"),
        ([TINY, "--config.model.heads=0"], "model.heads=0 must be at least 1"),
        ([TINY, "--confg=x"], "Unknown command line flag 'confg'. Did you mean: config ?"),
        (
            [TINY, "--workdir=hdfs://host/run"],
            "--workdir: hdfs://host/run is not an address that charlm reads or writes",
        ),
        ([TINY, "--workdir="], "--workdir= is empty: expected a path"),
        ([TINY, "--profile=s3://bucket/x"], "--profile=s3://bucket/x is an address"),
        ([TINY, "--config.data.train=a.txt,http://host/b.txt"], "data.train: http://host/b.txt is not an address that"),
        ([TINY, "--config.data.cache_dir=gs://bucket/b"], "data.cache_dir=gs://bucket/b is an address: charlm reads"),
        ([TINY, "stray"], "unexpected argument 'stray'; flags are written --name=value"),
        (["--config=configs/student.py"], "configs/student.py is a config of charlm align (charlm align --help)"),
        (["--config=configs/none.py"], f"--config: no such file: configs/none.py is not in {ROOT} and is none"),
        (["--config=other/hlm_base.py"], "--config: no such file: other/hlm_base.py is not in"),
        (["--config=configs/hlm_base.py:huge"], "--config: configs/hlm_base.py has no variant 'huge'; choose"),
        (["--config=configs/hlm_large.py:huge"], "--config: this file has no variants"),
        ([], "--config is missing; for example --config=configs/hlm_base.py:tiny"),
    ],
)
def test_mistakes_are_one_line(arguments, message):
    own = any(argument.startswith(("--workdir", "--profile")) for argument in arguments)  # flags of `__main__`
    result = run_main(*arguments) if own else main(*arguments)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_workdir_is_named_after_config_and_variant(tmp_path):
    (tmp_path / "runs").write_text("")  # a file where the folder would be: the run ends before anything is trained
    command = [sys.executable, "-m", "charlm.main", "--config", f"{ROOT}/configs/hlm_base.py:tiny"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "error: --workdir=runs/hlm_base_tiny cannot be written" in result.stderr


@pytest.mark.parametrize(
    "form", [again(["--config=configs/hlm_base.py:tiny"]), ["--config", "configs/hlm_base.py:tiny"]]
)
def test_configs_are_found_from_any_folder(tmp_path, form):
    """The folder's own file comes first."""
    command = [sys.executable, "-m", "charlm.main", *form, "--config.data.train=none.txt", "--workdir=run"]
    run = lambda: subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    *_, config, error = run().stderr.splitlines()
    assert config.endswith(f"config {ROOT}/configs/hlm_base.py")
    assert error.startswith("error: data.train: 'none.txt' does not exist")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "hlm_base.py").write_text(
        "def get_config(variant):\n    raise ValueError('mine, ' + variant)"
    )
    assert run().stderr == "error: --config: mine, tiny\n"


def test_an_installed_package_carries_the_configs(tmp_path):
    """What setup.py lays into a wheel, used from another folder."""
    pytest.importorskip("setuptools")
    build = [sys.executable, "setup.py", "-q", "build_py", f"--build-lib={tmp_path / 'lib'}"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    carried = tmp_path / "lib" / "charlm" / "configs"
    assert {file.name for file in carried.glob("*.py")} == {file.name for file in (ROOT / "configs").glob("*.py")}
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-m", "charlm.main", TINY, "--config.data.train=none.txt", "--workdir=run"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "lib")}
    result = subprocess.run(
        command, cwd=tmp_path / "elsewhere", env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    *_, config, error = result.stderr.splitlines()
    assert config.endswith(f"config {carried}/hlm_base.py")
    assert error.startswith("error: data.train: 'none.txt' does not exist")
