"""Tests checksums: any changed bit of a checkpoint is found before the checkpoint is used."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from damage import array_files, flip, without_checksums

from charlm.config import get_config
from charlm.core import checkpoint as checkpoints
from charlm.core import checksums
from charlm.data.corpus import prepare
from charlm.families.pretrained import from_pretrained
from charlm.training.run import build


@pytest.fixture
def checkpoint(trained, tmp_path) -> Path:
    """A copy of the last checkpoint of a run, without the ones before it."""
    return Path(shutil.copytree(checkpoints.find(trained.workdir), tmp_path / "checkpoint"))


def params_of(checkpoint: Path, trained) -> dict:
    return checkpoints.load_params(checkpoint, trained.run.abstract_state.params)


def test_every_flipped_bit_is_found(trained, checkpoint):
    assert params_of(checkpoint, trained)
    rng, places = random.Random(0), []
    for path in array_files(checkpoint):
        size = path.stat().st_size
        places += [(path, rng.randrange(size), rng.randrange(8)) for _ in range(20)]
        places += [(path, 0, 0), (path, size - 1, 7)]
    others = ["state/_METADATA", "state/manifest.ocdbt", "data/process_0-of-1.json", checksums.FILE]
    places += [(checkpoint / name, (checkpoint / name).stat().st_size // 2, 0) for name in others]
    described = checkpoint / "_CHECKPOINT_METADATA"
    text = described.read_bytes()
    ours = text.index(b"custom_metadata")  # orbax's own times before it are not covered
    places += [(described, text.index(word, ours), 0) for word in (b"seed", b"char_vocab", b"crc32", b"12", b"hidden")]
    assert len(places) > 40
    missed = []
    for path, at, bit in places:
        flip(path, at, bit)
        try:
            params_of(checkpoint, trained)
            missed.append((path.name, at, bit))
        except ValueError as error:
            assert "is damaged or incomplete" in str(error)  # noqa: PT017
        flip(path, at, bit)
    assert not missed
    assert params_of(checkpoint, trained)


def test_it_is_named_with_the_last_good_one_whoever_reads(trained, tmp_path):
    workdir = trained.copy(tmp_path / "run")
    for step in (9, 12):
        flip(array_files(workdir / "checkpoints" / str(step))[-1], 77)
    message = (
        r"12 is damaged or incomplete: state/\S+ is not what was saved; the last good checkpoint before it is step 6$"
    )
    with pytest.raises(ValueError, match=message):
        from_pretrained(workdir)
    with pytest.raises(ValueError, match=message):
        checkpoints.load(checkpoints.find(workdir), trained.run.abstract_state, None)
    assert from_pretrained(workdir / "checkpoints" / "6").params


def test_what_is_lost_is_found(trained, checkpoint):
    (checkpoint / "data" / "process_0-of-1.json").unlink()
    with pytest.raises(ValueError, match=r"data/process_0-of-1\.json is missing"):
        params_of(checkpoint, trained)
    (checkpoint / checksums.FILE).unlink()
    with pytest.raises(ValueError, match=r"checksums\.json is missing"):
        params_of(checkpoint, trained)


def test_an_old_checkpoint_has_none_and_says_so(trained, checkpoint, log_lines):
    want = params_of(checkpoint, trained)
    got = params_of(without_checksums(checkpoint), trained)
    np.testing.assert_array_equal(got["hlm"]["embed"]["norm"]["scale"], want["hlm"]["embed"]["norm"]["scale"])
    assert log_lines.lines == [f"{checkpoint} was saved without checksums: damage to its arrays would not be noticed"]
    assert checkpoints.read_metadata(checkpoint)["config"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"crc32": []}', '{"crc32": 3}', "[" * 200 + "]" * 200])
@pytest.mark.parametrize("name", [checksums.ABOUT, checksums.FILE])
def test_whatever_stands_where_they_should_is_damage(trained, tmp_path, name, text):
    workdir = trained.copy(tmp_path / "run")
    (workdir / "checkpoints" / "9" / name).write_text(text)
    flip(array_files(workdir / "checkpoints" / "12")[-1], 77)
    with pytest.raises(ValueError, match=r"12 is damaged .*; the last good checkpoint before it is step 6$"):
        from_pretrained(workdir)


def test_damage_to_the_list_of_arrays_is_one_line(trained, checkpoint):
    """The arrays' reader, which fills standard error from its threads, is not asked before the checksums."""
    flip(checkpoint / "state" / "manifest.ocdbt", 20)
    command = [sys.executable, "-m", "charlm.predict", "encode", f"--checkpoint={checkpoint}", "a b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {checkpoint} is damaged or incomplete: state/manifest.ocdbt is not what was saved\n"
    )


def test_a_saved_model_has_them_and_files_beside_it_may_change(trained, tmp_path):
    from_pretrained(trained.workdir).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("mine")
    again = from_pretrained(tmp_path / "model")
    assert checksums.KEY not in again.metadata
    again.save_pretrained(tmp_path / "again")
    flip(array_files(tmp_path / "again")[-1], 5)
    with pytest.raises(ValueError, match=r"again is damaged or incomplete: state/.* is not what was saved"):
        from_pretrained(tmp_path / "again")


def test_they_do_not_depend_on_how_it_was_read(trained, checkpoint):
    """A checkpoint of one device is whole for eight."""
    config = trained.new_config()
    config.mesh.fsdp = 8
    run = build(config, prepare(config))
    loaded = checkpoints.load_params(checkpoint, run.abstract_state.params)
    assert len(loaded["hlm"]["embed"]["norm"]["scale"].sharding.device_set) == 8


def test_a_description_is_summed_as_it_is_read_back():
    description = {"config": get_config().to_dict(), "ids": {10: "a", 9: "b"}, "pair": (1, 2.5e-7), "crc32": "old"}
    stored = json.loads(json.dumps(checksums.described(description)))
    assert checksums.undescribed(stored)["pair"] == [1, 2.5e-7]
    stored["ids"]["9"] = "c"
    with pytest.raises(ValueError, match="its config, vocabulary or other description is not what was saved"):
        checksums.undescribed(stored)
