"""Tests the command `charlm`: each of its commands, what it says of mistakes, and that it starts fast."""

from __future__ import annotations

import ast
import os
import re
import resource
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from charlm import doctor, models
from charlm.__main__ import COMMANDS, main
from charlm.config import CARRIED, carried_configs, load_config_file
from charlm.core.help_text import columns

ROOT = Path(__file__).resolve().parents[1]


def charlm(*arguments, cwd=ROOT):
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "charlm", *arguments],
        cwd=cwd, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_help_names_every_command_and_is_quick():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = charlm("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1  # of CPU: the machine may be busy
    assert (done.returncode, done.stderr) == (0, "")
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{command.line}$", done.stdout, re.MULTILINE)
    assert charlm().stdout == done.stdout
    assert charlm("--version").stdout.startswith("charlm 0.")


def test_help_needs_neither_jax_nor_the_configs():
    code = "import sys, charlm.__main__ as m; m.main(['--help']); "
    code += "sys.exit(bool({'jax', 'absl', 'ml_collections', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("name", "says"), [("predict", "fill-mask"), ("train", "--set KEY=VALUE"), ("stats", "--data")]
)
def test_the_help_of_a_command_calls_it_by_its_name(name, says):
    done = charlm(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"charlm {name}" in done.stdout
    assert says in done.stdout
    assert f"python -m {COMMANDS[name].module.removesuffix('.__main__')} -" not in done.stdout.replace(
        "--help lists", ""
    )


@pytest.mark.parametrize("name", ["finetune", "models", "convert"])
def test_help_followed_by_a_command_is_the_help_of_the_command(name):
    asked, usual = charlm("help", name), charlm(name, "--help")
    assert (asked.returncode, asked.stdout) == (0, usual.stdout)
    assert charlm("help", "nothing").stdout == charlm("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["train"], "no config: charlm train hlm_base:tiny ...; charlm models lists them"),
        (["train", "hlm_base:tiny", "--set", "hiden=8"], "unknown config key hiden; did you mean model.hidden?"),
        (["finetune", "tag"], "data.train names no file"),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path):
    done = charlm(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"error: {message}")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["bench", "convert", "predict", "robustness", "serve", "ship", "stats"])
def test_a_wrong_option_is_told_by_the_name_that_was_typed(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    module = COMMANDS[name].module
    for run, called in (
        (lambda: main([name, "--nope"]), f"charlm {name}"),
        (lambda: runpy.run_module(module, run_name="__main__"), f"python -m {module.removesuffix('.__main__')}"),
    ):
        sys.argv[1:] = ["--nope"]
        with pytest.raises(SystemExit) as ended:
            run()
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"usage: {called} ")
        assert f"{called}: error: " in said
        assert ("python -m" in said) == called.startswith("python -m")


@pytest.mark.parametrize(("terminal", "code"), [(True, 0), (False, 0), (True, 1)])
def test_a_terminal_is_told_what_to_do_next(terminal, code, monkeypatch, capsys):
    def run(module, **_):
        sys.exit(code)

    monkeypatch.setattr(runpy, "run_module", run)
    monkeypatch.setattr(sys, "argv", ["charlm"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with pytest.raises(SystemExit):
        main(["models"])
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.split() == (f"next: {COMMANDS['models'].then}".split() if terminal and not code else [])
    assert max(map(len, said.err.splitlines()), default=0) <= columns()


def test_every_command_has_something_to_do_next():
    """Training and fine-tuning name the commands themselves, with their workdir; a server ends when it is told to."""
    assert {name for name, command in COMMANDS.items() if not command.then} == {"train", "finetune", "serve"}


@pytest.mark.parametrize("module", [models, doctor])
def test_commands_without_arguments_take_none(module, capsys):
    assert module.main(["hlm"]) == 1
    assert capsys.readouterr().err == "error: unexpected argument 'hlm': the command takes none\n"


def test_a_command_ends_with_the_status_of_its_module(tmp_path):
    module = [sys.executable, "-m", "charlm.predict", "tag", "text"]
    usual = subprocess.run(module, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    done = charlm("predict", "tag", "text", cwd=tmp_path)
    as_typed = lambda text: " ".join(text.replace("python -m charlm.predict", "charlm predict").split())
    assert (done.returncode, as_typed(done.stderr)) == (usual.returncode, as_typed(usual.stderr))
    assert done.stderr.startswith("usage: charlm predict tag")
    assert done.returncode == 2


def test_models_lists_every_config_and_variant(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = "\n".join(models.lines())
    for name, file in carried_configs().items():
        words = r"\s+".join(map(re.escape, file.line.split()))  # long lines are wrapped
        assert re.search(rf"^  {name} +{words}$", text, re.MULTILINE)
        for variant in file.variants:
            load_config_file(str(CARRIED / f"{name}.py:{variant}"))
            assert re.search(rf"\b{variant}\b", text)
    assert max(map(len, text.splitlines())) <= 120


def test_doctor_knows_every_extra_and_its_packages():
    (tree,) = [n.value for n in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if getattr(getattr(n, "targets", [None])[0], "id", "") == "EXTRAS"]  # fmt: skip  # noqa: E501
    named = {key.value for key in tree.keys if isinstance(key, ast.Constant)}
    extras = {"eval", "text", "defence", "torch", "tensorboard", "trained", "beam", "docs", "serve"}
    extras |= {"export", "notebooks", "search"}
    assert extras == doctor.EXTRAS.keys()
    assert named - {"test"} == doctor.EXTRAS.keys()


def test_doctor_says_what_is_missing_and_what_for(monkeypatch):
    there = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda package: "" if package == "spacy" else there(package))
    monkeypatch.setattr(doctor, "devices", lambda: "none: the driver is too old")
    text = "\n".join(doctor.lines())
    assert "missing: spacy; it is for splitters: text.splitter=spacy (HLM's paper)" in text
    assert 'pip install -e ".[text]"' in text
    assert re.search(r"^jax +0\.\d+", text, re.MULTILINE)
    assert "none: the driver is too old" in text
    assert doctor.main([]) == 0


def test_doctor_survives_a_broken_jax(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    assert doctor.devices().startswith("none: ")
