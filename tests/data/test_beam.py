"""Tests corpora prepared by Apache Beam: equal to the local ones, cleaned as asked, resumed, errors in one line."""

from __future__ import annotations

import glob
import gzip
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from reading import never, quiet, texts
from test_spreading import check_equal, kept_files

pytest.importorskip("apache_beam")

from charlm.config import load_config_file
from charlm.data import encode
from charlm.data.beam import cleaning, workers
from charlm.data.beam.__main__ import split_arguments
from charlm.data.beam.cleaning import clean
from charlm.data.beam.features import Measure, Rules
from charlm.data.beam.output import own_lines_only
from charlm.data.beam.workers import BeamWorkers, Guarded, beam_flags
from charlm.data.corpus import prepare
from charlm.data.parts import is_heldout
from charlm.data.records import read_counts
from charlm.data.spreading import working_on
from charlm.families.lookup import corpora_of

ROOT = Path(__file__).resolve().parents[2]
WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "ne", "su", "ta") for b in ("ba", "do", "ri", "fe", "gu", "zo", "ly")]


@pytest.fixture
def beam(config):
    """Workers of a DirectRunner in this process."""
    return BeamWorkers(config.data.cache_dir, beam_flags("DirectRunner", [], 1))


def document(seed, length=60):
    return " ".join(np.random.default_rng(seed).choice(WORDS, length)) + "."


def write(path, documents):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{text}\n" for text in documents))
    return str(path)


def write_wet(path, pages):
    from io import BytesIO

    from warcio.warcwriter import WARCWriter

    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=str(path).endswith(".gz"))
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "a test"}))
        for i, page in enumerate(pages):
            body = BytesIO(page)
            record = writer.create_warc_record(
                f"http://page/{i}", "conversion", payload=body, warc_content_type="text/plain"
            )
            writer.write_record(record)


def write_every_kind(folder):
    """Writes a file of each kind that can be read, with bad lines where there can be some."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    write(folder / "plain.txt", [document(i, 30) for i in range(40)])
    (folder / "packed.txt.gz").write_bytes(gzip.compress(f"{document(50)}\n".encode() * 3 + b"bad \xff\n"))
    lines = [json.dumps({"text": f"{document(60 + i, 20)}\n\nNew one."}) for i in range(20)]
    (folder / "lines.jsonl").write_text("\n".join([*lines[:5], "{broken", '{"other": 1}', *lines[5:]]))
    parquet.write_table(pyarrow.table({"text": [document(80 + i, 9) for i in range(9)]}), folder / "columns.parquet")
    write_wet(folder / "pages.warc.wet.gz", [document(90).encode(), b"\xff", f"{document(91)}\nline two".encode()])
    return tuple(str(folder / name) for name in sorted(os.listdir(folder)))


def test_shards_of_every_kind_of_file_equal_the_local_ones(config, tmp_path, beam, monkeypatch):
    (tmp_path / "text").mkdir()
    config.data.train = write_every_kind(tmp_path / "text")
    with working_on(beam):
        there = prepare(config, quiet)
    monkeypatch.setattr(encode, "_encode_part", never)
    assert prepare(config, never).train == there.train  # a run of training finds them
    monkeypatch.undo()
    beams, config.data.cache_dir = config.data.cache_dir, str(tmp_path / "local")
    here = prepare(config, quiet)
    check_equal(beams, config.data.cache_dir)
    assert [c.stats for c in there.train] == [c.stats for c in here.train]
    assert [sum(c.stats.skipped.values()) for c in there.train] == [0, 2, 1, 1, 0]
    assert all(corpus.stats.words for corpus in there.train)


def test_a_family_that_reads_text_finds_its_shards(config, documents, tmp_path, beam):
    run = load_config_file(f"{ROOT}/configs/charbert_base.py:tiny")
    run.data.train, run.text.splitter, run.data.encode_processes = config.data.train, "rules", 1
    run.data.cache_dir = config.data.cache_dir
    with working_on(beam):
        corpora_of(run)
    run.data.cache_dir = str(tmp_path / "local")
    corpora_of(run)
    check_equal(config.data.cache_dir, run.data.cache_dir)


def test_the_first_mistake_is_told_and_the_other_parts_are_kept(config, tmp_path, beam):
    write(tmp_path / "text" / "a.jsonl", ['{"text": "fine words here"}'])
    write(tmp_path / "text" / "b.jsonl", ["{broken"])
    write(tmp_path / "text" / "c.jsonl", ["{broken"])
    config.data.train, config.data.heldout = (str(tmp_path / "text" / "*.jsonl"),), ("builtin",)
    config.text.char_vocab = "released"
    message = r"b\.jsonl:1: invalid JSON .* \(and 1 more such errors; what could be done is kept\)$"
    with working_on(beam), pytest.raises(ValueError, match=message):
        prepare(config, quiet)
    assert [Path(path).name for path in glob.glob(f"{beam.folder}/*/part-*.json")] == ["part-00000.array_record.json"]
    assert not glob.glob(f"{beam.folder}/failures-*")
    assert not glob.glob(f"{beam.folder}/**/*.tmp", recursive=True)


def test_exact_duplicates_are_left_out_and_held_out_text_comes_first(config, tmp_path, beam):
    a, b, c, d = map(document, range(4))
    config.data.train = (write(tmp_path / "t" / "1.txt", [a, b, a]), write(tmp_path / "t" / "2.txt", [c, b, d, "a"]))
    config.data.heldout = (write(tmp_path / "t" / "h.txt", [d, d]),)
    total = clean(config, Rules(exact=True), beam)
    assert [texts(spec)[0] for spec in config.data.train] == [[a, b], [c, "a"]]
    assert [texts(spec)[0] for spec in config.data.heldout] == [[d]]
    assert (total.documents, total.skipped) == (5, {"exact duplicate": 4})


def test_near_duplicates_are_left_out(config, tmp_path, beam):
    first, other, third = document(0, 300), document(1, 300), document(2, 300)
    near = first.replace(" ", "  ", 9).upper() + " one"
    short = ["Yes, well.", "yes well", "No, well."]
    config.data.train = (write(tmp_path / "t" / "1.txt", [first, other, near, first, *short]),)
    half = " ".join([*third.split()[:150], *document(3, 150).split()])
    config.data.train += (write(tmp_path / "t" / "2.txt", [third, half, "!!!", "???"]),)
    total = clean(config, Rules(exact=True, near=0.8), beam)
    kept = [text for spec in config.data.train for text in texts(spec)[0]]
    assert kept == [first, other, short[0], short[2], third, half, "!!!", "???"]
    assert total.skipped == {"exact duplicate": 1, "near duplicate": 2}


def test_near_duplicates_are_as_likely_found_as_the_bands_say():
    rules = Rules(near=0.8)
    count, rows = rules.bands()
    measure, found, similarity = Measure(rules), 0, 0.9
    for seed in range(40):
        words = document(seed, 400).split()
        changed = [*words[:190], *document(1000 + seed, 18).split(), *words[208:]]
        one, two = (set(measure._shingles(" ".join(text))) for text in (words, changed))
        assert len(one & two) / len(one | two) == pytest.approx(similarity, abs=0.02)
        keys = (measure.keys(" ".join(text))[2:] for text in (words, changed))
        found += any(a == b for a, b in zip(*keys, strict=True))
    assert found / 40 == pytest.approx(1 - (1 - similarity**rows) ** count, abs=0.15)


def test_the_filter_is_a_function_of_the_user(config, tmp_path, beam, monkeypatch):
    (tmp_path / "my_filter.py").write_text("def keep(text):\n    return 'ß' not in text\n")
    monkeypatch.syspath_prepend(tmp_path)
    config.data.train = (write(tmp_path / "t" / "1.txt", ["Straße", "street", "Straße", "street"]),)
    total = clean(config, Rules(filter="my_filter:keep", exact=True), beam)
    assert texts(config.data.train[0])[0] == ["street"]
    assert total.skipped == {"refused by the filter": 2, "exact duplicate": 1}


@pytest.mark.parametrize(
    ("place", "body", "message"),
    [
        ("my_bad", "", r"--filter=my_bad: expected a place, module:function"),
        ("no_such_module:keep", "", r"--filter=no_such_module:keep: there is no module no_such_module"),
        ("my_bad:keep", "kept = 1", r"--filter=my_bad:keep: the module my_bad has no keep"),
        ("my_bad:keep", "1 / 0\nkeep = 1", r"cannot be imported: ZeroDivisionError"),
        ("my_bad:keep", "keep = 1", r"expected a function of one text, got 1"),
        ("my_bad:keep", "def keep(text): 1 / 0", r"failed on document 0 of .*1\.txt: ZeroDivisionError: division"),
        ("my_bad:keep", "def keep(text): pass", r"expected True or False for document 0 of .*1\.txt, got None"),
    ],
)
def test_mistakes_in_the_filter_are_one_line(config, tmp_path, beam, monkeypatch, place, body, message):
    (tmp_path / "my_bad.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_bad", raising=False)
    config.data.train = (write(tmp_path / "t" / "1.txt", ["text"]),)
    with pytest.raises(ValueError, match=message) as raised:
        clean(config, Rules(filter=place), beam)
    assert "\n" not in str(raised.value)


def test_a_changed_filter_cleans_anew(config, tmp_path, beam, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path, seen = write(tmp_path / "t" / "1.txt", ["one", "two"]), []
    for word in ("one", "two"):
        (tmp_path / "my_changed.py").write_text(f"def keep(text):\n    return text == {word!r}\n")
        monkeypatch.delitem(sys.modules, "my_changed", raising=False)
        config.data.train = (path,)
        clean(config, Rules(filter="my_changed:keep"), beam)
        seen.append(texts(config.data.train[0])[0])
    assert seen == [["one"], ["two"]]


def test_cleaned_text_is_split_as_the_text_itself(config, documents, beam):
    clean(config, Rules(exact=True), beam)
    with working_on(beam):
        data = prepare(config, quiet)
    unique = set(documents)
    heldout = sum(is_heldout(text.encode(), config.data.heldout_fraction) for text in unique)
    assert (data.train[0].stats.documents, data.heldout[0].stats.documents) == (len(unique) - heldout, heldout)
    assert 0 < heldout < len(unique) < len(documents)


def test_cleaning_goes_on_where_it_was(config, documents, beam, monkeypatch):
    given = config.data.train
    first = clean(config, Rules(exact=True, near=0.7), beam)
    cleaned = config.data.train
    files = sorted(glob.glob(cleaned[0]))
    content = [Path(path).read_bytes() for path in files]
    folder = Path(files[0]).parents[1]
    Path(files[1]).unlink()
    Path(files[2]).write_bytes(content[2][:-9])
    monkeypatch.setattr(cleaning, "write_piece_features", never)
    monkeypatch.setattr(cleaning, "_find_duplicates", never)
    config.data.train, kept = given, os.stat(files[0]).st_mtime_ns
    assert clean(config, Rules(exact=True, near=0.7), beam) == first
    assert [Path(path).read_bytes() for path in files] == content
    assert os.stat(files[0]).st_mtime_ns == kept
    monkeypatch.undo()
    for path in [*folder.glob("duplicates/*1.npy"), *folder.glob("features/*"), *map(Path, files)]:
        path.unlink()
    config.data.train = given
    assert clean(config, Rules(exact=True, near=0.7), beam) == first
    assert [Path(path).read_bytes() for path in files] == content


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("builtin", r"data\.train: 'builtin' has its own held-out text and no duplicates; only files are cleaned"),
        ("x.array_record", r"data\.train: 'x\.array_record' is encoded already, and cannot be cleaned"),
        ("none.txt", r"data\.train: 'none\.txt' does not exist"),
    ],
)
def test_what_cannot_be_cleaned_is_refused(config, beam, train, message):
    config.data.train = (train,)
    with pytest.raises(ValueError, match=message):
        clean(config, Rules(exact=True), beam)


@pytest.mark.parametrize("near", [-0.1, 1.0, float("nan")])
def test_a_similarity_lies_between_0_and_1(near):
    with pytest.raises(ValueError, match=r"--near=.*: expected a similarity between 0 and 1, or 0 for none"):
        Rules(near=near).check()


def fail(item):
    raise OSError("the disk went away")


def test_trouble_with_the_file_system_is_raised_for_beam_to_try_again(tmp_path, beam):
    guarded = Guarded(fail, str(tmp_path))
    with pytest.raises(OSError, match="went away"):
        guarded((7, None))
    (left,) = tmp_path.iterdir()
    assert json.loads(left.read_text()) == {"message": "the disk went away"}
    Guarded(print, str(tmp_path))((7, "now it works"))
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"^the disk went away$"):
        beam.run("work", fail, [1])
    with pytest.raises(RuntimeError, match=r"a worker does not see .*gone: all workers must share"):
        Guarded(print, str(tmp_path / "gone" / "x"))((1, 2))


def note(item):
    Path(item).touch()


def test_many_pieces_of_work_are_spread_over_pipelines(tmp_path, beam, monkeypatch):
    monkeypatch.setattr(workers, "MOST_PIECES", 2)
    paths = [str(tmp_path / f"{i}.done") for i in range(5)]
    ran, original = [], BeamWorkers.run_pipeline
    monkeypatch.setattr(BeamWorkers, "run_pipeline", lambda *args: (ran.append(args[1]), original(*args)))
    beam.run("work", note, paths)
    assert [str(path) for path in sorted(tmp_path.glob("*.done"))] == paths
    assert ran == ["work"] * 3
    beam.run("work", note, [])
    assert ran == ["work"] * 3


def crash(item):
    raise RuntimeError("no machine left")


def test_a_failed_pipeline_is_one_line(beam):
    with pytest.raises(ValueError, match=r"^Beam's pipeline 'work' failed: .*no machine left.*$") as raised:
        beam.run("work", crash, [1])
    assert "\n" not in str(raised.value)
    told = RuntimeError("Traceback (most recent call last):\n  work(item)\n  ~~~~^^^\nMemoryError: none left\n ^^^\n\n")
    assert workers._reason(told) == "MemoryError: none left"
    assert workers._reason(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no_such_flag=1"], r"flags for Beam: it does not know '--no_such_flag'"),
        (["stray"], r"flags for Beam: it does not know 'stray'; flags are written --name=value"),
        (["--direct_num_workers=many"], r"flags for Beam: argument --direct_num_workers: invalid int value: 'many'"),
    ],
)
def test_flags_that_beam_does_not_take_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        beam_flags("DirectRunner", flags, 1)


def test_flags_of_the_direct_runner_follow_the_config():
    assert "--direct_num_workers=3" in beam_flags("DirectRunner", [], 3)
    assert "--direct_num_workers=3" not in beam_flags("DirectRunner", ["--direct_num_workers=1"], 3)
    assert beam_flags("FlinkRunner", ["--flink_master=x"], 3) == ("--runner=FlinkRunner", "--flink_master=x")
    assert split_arguments(["x", "--a", "--", "--b", "--", "c"]) == (["x", "--a"], ["--b", "--", "c"])
    assert split_arguments(["x", "--a"]) == (["x", "--a"], [])


def test_only_lines_of_charlm_reach_the_screen(tmp_path, capfd, monkeypatch):
    log = logging.getLogger("charlm")
    monkeypatch.setattr(log, "handlers", [logging.StreamHandler(sys.stderr)])
    log.setLevel(logging.INFO)

    def broken():
        raise RuntimeError("a thread of Beam")

    with own_lines_only("DirectRunner", str(tmp_path)):
        subprocess.run([sys.executable, "-c", "import sys; print('a worker', file=sys.stderr)"], check=True)
        logging.getLogger("apache_beam.runners").critical("a log line of Beam")
        thread = threading.Thread(target=broken)
        thread.start()
        thread.join()
        log.info("one of charlm")
    os.write(2, b"afterwards\n")
    log.info("and one more")
    assert capfd.readouterr().err == "one of charlm\nafterwards\nand one more\n"
    beams = (tmp_path / "beam.log").read_text()
    assert "a worker" in beams
    assert "RuntimeError: a thread of Beam" in beams
    with own_lines_only("FlinkRunner", str(tmp_path)):
        os.write(2, b"where the job is\n")
    assert capfd.readouterr().err == "where the job is\n"


def test_a_missing_beam_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match=r'charlm\.data\.beam: apache-beam .*pip install -e "\.\[beam\]"'):
        workers.load_beam()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("a.wet", lambda data: data[:-40]),
        ("a.wet", lambda data: bytes(50) + data[50:]),
        ("a.wet.gz", lambda data: data[:-40]),
        ("a.wet.gz", lambda data: data[:300] + bytes(50) + data[350:]),
    ],
)
def test_a_damaged_wet_file_is_refused(tmp_path, name, damage):
    write_wet(tmp_path / name, [document(i).encode() for i in range(3)])
    assert len(texts(tmp_path / name)[0]) == 3
    (tmp_path / name).write_bytes(damage((tmp_path / name).read_bytes()))
    with pytest.raises(ValueError, match=rf"{name}: truncated (or damaged )?WET file"):
        texts(tmp_path / name)


def test_a_killed_command_goes_on_and_ends_as_the_local_one(config, tmp_path):
    for i in range(6):
        write(tmp_path / "text" / f"{i}.txt", [document(1000 * i + n, 40) for n in range(250)])
    arguments = [
        "--config=charlm/config/__init__.py",
        "--config.text.splitter=rules",
        "--config.data.encode_processes=1",
    ]
    arguments += [f"--config.data.train={tmp_path}/text/*.txt", f"--config.data.cache_dir={config.data.cache_dir}"]
    command = [sys.executable, "-m", "charlm.data.beam", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    found, deadline = [], time.monotonic() + 60
    while not found and time.monotonic() < deadline:
        time.sleep(0.002)
        found = glob.glob(f"{config.data.cache_dir}/*/part-*.json")
    process.kill()
    process.communicate(timeout=30)
    finished = {path: os.stat(path).st_mtime_ns for path in glob.glob(f"{config.data.cache_dir}/*/part-*.json")}
    assert 1 <= len(finished) < 12
    assert all(read_counts(path.removesuffix(".json")) for path in finished)
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert all(re.match(r"\d\d:\d\d:\d\d (corpus|encoding|character)", line) for line in result.stderr.splitlines())
    assert finished == {path: os.stat(path).st_mtime_ns for path in finished}
    config.data.train, local = (f"{tmp_path}/text/*.txt",), str(tmp_path / "local")
    beams, config.data.cache_dir = config.data.cache_dir, local
    config.data.heldout_fraction, config.data.max_words = (
        0.02,
        load_config_file(f"{ROOT}/charlm/config/__init__.py").data.max_words,
    )
    prepare(config, quiet)
    shards = lambda folder: [
        path for path in kept_files(folder) if path.name.startswith("part-") and path.suffix != ".tmp"
    ]
    assert shards(beams) == shards(local)
    assert all((Path(beams) / path).read_bytes() == (Path(local) / path).read_bytes() for path in shards(local))
