"""Tests that commands and config keys refuse addresses (gs://...) in one line and create nothing.

Those that read object stores refuse every address but gs:// and s3://.
"""

from __future__ import annotations

import os
import re

import pytest

from charlm import predict, table_report
from charlm.benchmark import __main__ as benchmark
from charlm.config import STORED, finetuning, flatten, get_config, validate
from charlm.convert import __main__ as convert
from charlm.convert.files import new_folder
from charlm.core.files import cache_dir
from charlm.core.local_paths import check_path
from charlm.families.family import pretrainable
from charlm.finetune.run import fine_tune
from charlm.robustness import __main__ as robustness
from charlm.statistics import __main__ as statistics
from charlm.training.stages import train_stages
from charlm.training.train import train

BUCKET = "gs://bucket/x"
OTHER = "hdfs://host/x"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """Runs in an empty folder, which must stay empty."""
    monkeypatch.chdir(tmp_path)
    yield
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (convert.main, ["import", "--input=x", f"--output={BUCKET}"], f"--output={BUCKET} is an address"),
        (convert.main, ["import", f"--input={BUCKET}", "--output=x"], f"--input={BUCKET} is an address"),
        (convert.main, ["import", "--input=x", "--output="], "--output= is empty: expected a path"),
        (convert.main, ["export", f"--checkpoint={BUCKET}", "--output=x"], f"--checkpoint={BUCKET} is an address"),
        (convert.main, ["export", "--checkpoint=", "--output=x"], "--checkpoint= is empty"),
        (convert.main, ["check", f"--golden-dir={BUCKET}"], f"--golden-dir={BUCKET} is an address"),
        (convert.main, ["inspect", f"--input={BUCKET}"], f"--input={BUCKET} is an address"),
        (
            predict.main,
            ["encode", f"--checkpoint={OTHER}", "a"],
            f"--checkpoint: {OTHER} is not an address that charlm",
        ),
        (predict.main, ["fill-mask", "--checkpoint=x", f"--words={BUCKET}"], f"--words={BUCKET} is an address"),
        (predict.main, ["answer", "--checkpoint=x", f"--context={BUCKET}"], f"--context={BUCKET} is an address"),
        (table_report.main, ["--checkpoint=x", f"--checkpoint={BUCKET}"], f"--checkpoint={BUCKET} is an address"),
        (statistics.main, [f"--model={BUCKET}"], f"--model={BUCKET} is an address"),
        (statistics.main, ["--model=x", "--data", "a.txt", BUCKET], f"--data={BUCKET} is an address"),
        (robustness.main, ["--models=x", "--data=x", f"--out={BUCKET}"], f"--out={BUCKET} is an address"),
        (robustness.main, ["--models=x", "--data=x", "--out=gs:/bucket/x"], "--out=gs:/bucket/x looks like an address"),
        (robustness.main, ["--models=x", "--data=x", "--out="], "--out= is empty"),
        (robustness.main, ["--models", "x", BUCKET, "--data=x", "--out=x"], f"--models={BUCKET} is an address"),
        (benchmark.main, [f"--output={BUCKET}"], f"--output={BUCKET} is an address"),
        (benchmark.main, [f"--from={BUCKET}"], f"--from={BUCKET} is an address"),
    ],
    ids=lambda value: "" if callable(value) else None,
)
def test_commands_refuse_addresses(capsys, main, arguments, message):
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {message}")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_every_text_key_of_every_config_refuses_addresses():
    configs = [get_config(family) for family in ("hlm", *pretrainable())]
    configs += [finetuning.get_config(task) for task in finetuning.TASKS]
    seen = set()
    for config in configs:
        for key, value in flatten(config).items():
            if not isinstance(value, str | tuple) or key in ("family", "task"):
                continue
            changed = config.copy_and_resolve_references()
            given, message = (OTHER, f": {OTHER} is not an") if key in STORED else (BUCKET, f"={BUCKET} is an")
            changed.update_from_flattened_dict({key: (given,) if isinstance(value, tuple) else given})
            with pytest.raises(ValueError, match=rf"^{re.escape(key)}{message} address"):
                validate(changed)
            seen.add(key)
    assert {*STORED, "data.cache_dir", "text.char_vocab"} <= seen


@pytest.mark.parametrize("function", [train, train_stages, fine_tune])
@pytest.mark.parametrize(("workdir", "message"), [(BUCKET, f"--workdir={BUCKET} is an address"), ("", "is empty")])
def test_functions_refuse_addresses(function, workdir, message):
    config = get_config("char2subword" if function is train_stages else "hlm")
    with pytest.raises(ValueError, match=message):
        function(config, workdir)


def test_folders_for_models_and_the_cache_are_no_addresses(monkeypatch):
    with pytest.raises(ValueError, match=f"path={BUCKET} is an address"), new_folder(BUCKET, key=""):
        pass
    monkeypatch.setenv("CHARLM_CACHE", BUCKET)
    with pytest.raises(ValueError, match=f"CHARLM_CACHE={BUCKET} is an address"):
        cache_dir(get_config())


def refusal(path: str) -> str:
    """Returns what is said against a path; "": nothing."""
    try:
        check_path("--workdir", path)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "path", ["runs/hlm", "/shared/gs:/x", "tfds:wikipedia:train", "builtin", "C:\\x", "", "a b.txt"]
)
def test_paths_are_paths(path):
    assert refusal(path) == ""
