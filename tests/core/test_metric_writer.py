"""Tests the metrics file (one JSON line per step, intact after any stop) and TensorBoard events where installed."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import pytest
from small_run import ROOT

from charlm.core.metric_writer import MetricWriter


def write(folder, steps, resume_step=0):
    writer = MetricWriter(folder, resume_step)
    for step in steps:
        writer.write(step, {"loss": step / 2})
    writer.close()


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_line_a_step(tmp_path):
    write(tmp_path, [0, 2, 4])
    assert lines(tmp_path) == [{"step": 0, "loss": 0.0}, {"step": 2, "loss": 1.0}, {"step": 4, "loss": 2.0}]


def test_a_line_is_on_disk_as_soon_as_it_is_written(tmp_path):
    writer = MetricWriter(tmp_path)
    writer.write(1, {"loss": 1.0})
    assert lines(tmp_path) == [{"step": 1, "loss": 1.0}]
    writer.close()


@pytest.mark.parametrize(("resume_step", "kept"), [(4, [0, 2, 4]), (3, [0, 2]), (0, [0]), (-1, []), (9, [0, 2, 4, 6])])
def test_lines_after_the_resumed_step_are_cut(tmp_path, resume_step, kept):
    write(tmp_path, [0, 2, 4, 6])
    write(tmp_path, [10], resume_step)
    assert [line["step"] for line in lines(tmp_path)] == [*kept, 10]
    assert not list(tmp_path.glob("*.tmp"))


def test_half_a_line_is_dropped(tmp_path, caplog):
    write(tmp_path, [0, 2])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 2, "lo')
    write(tmp_path, [4], resume_step=2)
    assert [line["step"] for line in lines(tmp_path)] == [0, 2, 4]
    assert not caplog.messages  # it was that of a later step


@pytest.mark.parametrize("line", ['{"step": 1, "loss": "low"}', '{"step": "1"}', "[1]", '{"loss": 1}'])
def test_lines_that_are_no_metrics_are_dropped(tmp_path, line):
    write(tmp_path, [0])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    write(tmp_path, [4], resume_step=2)
    assert [line["step"] for line in lines(tmp_path)] == [0, 4]


def test_damaged_lines_among_others_are_told(tmp_path, caplog):
    write(tmp_path, [0, 2, 4, 6])
    path = tmp_path / "metrics.jsonl"
    first, second, third, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:9] + b"\0\0\n" + third + last)
    write(tmp_path, [8], resume_step=6)
    assert [line["step"] for line in lines(tmp_path)] == [0, 4, 6, 8]
    assert caplog.messages == [f"{path}: 1 damaged lines left out; their metrics are lost"]


def test_nothing_to_cut_leaves_the_file_alone(tmp_path):
    write(tmp_path, [0, 2])
    inode = (tmp_path / "metrics.jsonl").stat().st_ino
    write(tmp_path, [4], resume_step=2)
    assert (tmp_path / "metrics.jsonl").stat().st_ino == inode


def test_tensorboard_when_it_is_installed(tmp_path):
    pytest.importorskip("tensorboardX")
    write(tmp_path, [0, 2], resume_step=-1)
    (file,) = (tmp_path / "tensorboard").glob("events.out.tfevents.*")
    version, start, *scalars = events(file)
    assert version.file_version == "brain.Event:2"
    assert (start.session_log.status, start.step) == (start.session_log.START, 0)
    assert [(e.step, e.summary.value[0].tag, e.summary.value[0].simple_value) for e in scalars] == [
        (0, "loss", 0.0), (2, "loss", 1.0),
    ]  # fmt: skip


def events(file):
    """Reads TensorBoard's records: length (8 bytes), checksum (4), event, checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    data, found = file.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return found


def test_a_full_disk_is_one_clear_error(tmp_path):
    writer = MetricWriter(tmp_path)
    writer._file.close()
    writer._file = open("/dev/full", "w")  # noqa: SIM115
    with pytest.raises(ValueError, match="metrics cannot be written: No space left on device"):
        writer.write(1, {"loss": 1.0})
    writer.close()


def test_a_full_disk_is_one_clear_error_of_events_too(tmp_path):
    pytest.importorskip("tensorboardX")
    writer = MetricWriter(tmp_path)
    writer._board._writer._py_recordio_writer._writer = open("/dev/full", "wb")  # noqa: SIM115
    with pytest.raises(ValueError, match="metrics cannot be written: No space left on device"):
        writer.write(1, {"loss": 1.0})
    writer.close()


def test_no_tensorboard_when_it_is_not(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    write(tmp_path, [0, 2])
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert len(lines(tmp_path)) == 2


CODE = """
import sys
from charlm.core.metric_writer import MetricWriter, print_metrics
print_metrics(True)
writer = MetricWriter(sys.argv[1])
for step in range(int(sys.argv[2])):
    writer.write(step, {"loss": step / 2})
writer.close()
"""


def test_lines_are_printed_for_a_program_that_reads_them(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), "3"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert printed == [{"run": tmp_path.name} | line for line in lines(tmp_path)]
    assert len(printed) == 3


def test_a_run_goes_on_when_nobody_reads_its_lines_any_more(tmp_path):
    steps = 3000  # more than a pipe holds
    command = [sys.executable, "-c", CODE, str(tmp_path), str(steps)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"run": tmp_path.name, "step": 0, "loss": 0.0}
        process.stdout.close()
        process.stdout = None
        assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert len(lines(tmp_path)) == steps


def test_a_full_disk_behind_standard_output_ends_no_run(tmp_path):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", CODE, str(tmp_path), "3"]
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "standard output: No space left on device; from now on metrics are in "
                                                 "the file alone\n")  # fmt: skip
    assert len(lines(tmp_path)) == 3
