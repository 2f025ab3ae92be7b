"""Tests the limits of readers: small files that unpack to much memory, endless JSON, and the factor of all limits."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter

import numpy as np
import pytest
from small_run import ROOT
from tiny_models import release

from charlm import predict
from charlm.convert.golden import read_arrays
from charlm.core.metric_writer import parse_line
from charlm.core.reading import (
    DEPTH,
    FREE,
    LINE,
    RATIO,
    TooLarge,
    check_unpacked,
    loads,
    read_bytes,
    read_object,
    read_text,
    scaled,
)
from charlm.data import files
from charlm.data.conll import read_tagged
from charlm.data.rows import read_rows
from charlm.data.squad import read_squad
from charlm.families.charbert.terms import TermVocab
from charlm.families.xrayemb.chars import XRayChars
from charlm.text.chars import CharVocab
from charlm.text.noise.misspellings import Misspellings
from charlm.text.subwords import SubwordTokenizer
from charlm.text.symbols import SymbolVocab
from charlm.training.workdir import saved_config

MIB = 1 << 20
BOMB = 200 * MIB  # what each bomb of the memory test unpacks to

READ = """
import json, re, sys
import pyarrow.parquet
from pathlib import Path
from collections import Counter
from charlm.data import files
from charlm.data.conll import read_tagged
from charlm.data.rows import read_rows
from charlm.data.squad import read_squad
from charlm.text.noise.misspellings import Misspellings

def documents(path):
    parts = files.file_parts(path, "text")
    readers = {"lines": files.read_lines, "parquet": files.read_parquet}
    return sum(1 for part in parts for _ in readers[part.kind](part, "text", Counter()))

rows = lambda *columns: lambda path: sum(1 for _ in read_rows(path, columns))
readers = {"documents": documents, "rows": rows(0), "named": rows("text"), "conll": read_tagged, "squad": read_squad}
readers["misspellings"] = Misspellings.read
# Not getrusage's: that one begins with the peak of the process that started this one.
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10
for name, path in json.loads(sys.argv[1]):
    before = peak()
    try:
        said = str(readers[name](path))
    except ValueError as error:
        said = str(error)
    print(json.dumps([said, peak() - before]))
"""


def packed(path, *blocks, size=BOMB):
    """Writes blocks again and again, by gzip, until they unpack to `size` bytes."""
    with gzip.open(path, "wb", 1) as file:
        for _ in range(size // sum(map(len, blocks))):
            file.writelines(blocks)
    return path


def bombs(folder):
    """Yields reader, file, and what is said of it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    line = packed(folder / "line.tsv.gz", b"a" * MIB)
    yield "rows", line, "line.tsv.gz:1: a line of more than 1 MiB"
    for reader, name in (("conll", "x.conll.gz"), ("squad", "squad.json.gz"), ("misspellings", "list.gz")):
        os.link(line, folder / name)
        yield reader, folder / name, name
    yield "rows", packed(folder / "short.tsv.gz", b"a\tb\n" * 4096), "short.tsv.gz: its content unpacks from"
    yield "rows", packed(folder / "quote.csv.gz", b'"', b"a\n" * MIB), "quote.csv.gz"
    pages = {"compression": "brotli", "write_statistics": False, "store_schema": False}
    pq.write_table(pa.table({"text": ["a" * BOMB]}), folder / "page.parquet", use_dictionary=False, **pages)
    for reader in ("documents", "named"):
        yield reader, folder / "page.parquet", "page.parquet: row group 0, column 'text': a page unpacks from"
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), pa.array(["a" * (MIB // 2)]))
    pq.write_table(pa.table({"text": same}), folder / "same.parquet", **pages)
    yield "documents", folder / "same.parquet", "400"  # documents are read one after the other
    yield "named", folder / "same.parquet", "same.parquet: its content unpacks from"
    typed = pages | {"store_schema": True}  # so that it is read as a dictionary, too
    pq.write_table(pa.table({"text": same}), folder / "typed.parquet", **typed)
    yield "named", folder / "typed.parquet", "typed.parquet: its content unpacks from"
    lists = pa.ListArray.from_arrays([0, 1 << 22], pa.DictionaryArray.from_arrays(np.zeros(1 << 22, np.int32), ["a"]))
    pq.write_table(pa.table({"text": lists}), folder / "list.parquet", **pages)
    yield "named", folder / "list.parquet", "list.parquet: row group 0, column 'text': its lists unpacks from"
    yield "documents", line, "0"  # a stream: its line is skipped, not held


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_small_files_take_no_large_memory(tmp_path):
    asked = [(reader, str(path), said) for reader, path, said in bombs(tmp_path)]
    assert all(os.path.getsize(path) < 2 * MIB for _, path, _ in asked)
    command = [sys.executable, "-c", READ, json.dumps([entry[:2] for entry in asked])]
    env = os.environ | {"CHARLM_LIMITS": "0.015625"}  # a line of 1 MiB
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for (_, path, expected), (said, _) in zip(asked, found, strict=True):
        assert expected in said, path
        assert said.isdecimal() or "CHARLM_LIMITS=4 makes every limit four times as large" in said
        assert "\n" not in said
    assert sum(grown for _, grown in found) < 80, found  # MiB, all together; each bomb unpacks to 200


@pytest.fixture
def low(monkeypatch):
    """Limits of some kilobytes: 64 of a line, 1,024 of a whole file."""
    monkeypatch.setenv("CHARLM_LIMITS", str(2**-10))


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("chars.json", CharVocab.load),
        ("xray.json", XRayChars.load),
        ("xray.txt", XRayChars.load),
        ("symbols.txt", SymbolVocab.load),
        ("terms.txt", TermVocab.load),
        ("misspellings.txt", Misspellings.read),
        ("vocab.txt", SubwordTokenizer.load),
        ("tokenizer.json", SubwordTokenizer.load),
        ("x.model", lambda path: SubwordTokenizer.load(path, family="albert")),
        ("config.json", read_object),
        ("config.json", lambda path: saved_config(path.parent)),
        ("squad.json", lambda path: read_squad(str(path))),
    ],
)
def test_a_file_that_is_read_whole_has_a_limit(tmp_path, low, name, read):
    path = tmp_path / name
    path.write_text("x\n" * MIB)
    with pytest.raises(TooLarge) as error:
        read(path)
    advice = "for a file that you trust, CHARLM_LIMITS=4 makes every limit four times as large"
    assert str(error.value) == f"{path}: more than 1 MiB in one piece; {advice}"


def test_a_device_without_end_is_read_up_to_the_limit(low):
    with pytest.raises(TooLarge, match=r"/dev/zero: more than 1 MiB in one piece"):
        read_bytes("/dev/zero")


def test_zips_of_arrays_have_a_limit(tmp_path, low):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(MIB))
    with pytest.raises(
        TooLarge, match=r"x\.npz: the zip unpacks from .* KiB to 8 MiB or more, over the limit of 64 KiB"
    ):
        read_arrays(tmp_path / "x.npz")


def test_what_is_large_for_good_reason_is_read(tmp_path, low):
    sentences = [f"word{n % 977} {n * n}\tO\n\n" for n in range(20_000)]
    path = tmp_path / "a.conll.gz"
    path.write_bytes(gzip.compress("".join(sentences).encode()))
    unpacked = sum(map(len, sentences))
    assert unpacked > 4 * scaled(FREE)
    with pytest.raises(TooLarge):  # since the ratio is lowered, too
        read_tagged(str(path))
    (part,) = files.file_parts(str(path), "text")
    assert sum(1 for _ in files.read_lines(part, "text", Counter())) == 20_000  # a stream has no limit
    plain = tmp_path / "a.conll"
    plain.write_text("".join(sentences))
    assert len(read_tagged(str(plain))) == 20_000  # nothing is packed


def test_packed_text_is_read_beyond_what_is_free(tmp_path, monkeypatch):
    rows = "".join(f"{n}\tsome text {n * n % 10_007}\n" for n in range(40_000))
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(rows.encode()))
    monkeypatch.setattr("charlm.core.reading.FREE", MIB // 4)
    assert sum(1 for _ in read_rows(str(path), [0])) == 40_000
    assert check_unpacked("x", "it", 10, 50 * 10) is None
    check_unpacked("x", "it", MIB, RATIO * MIB)
    with pytest.raises(TooLarge, match="x: it unpacks from 1 MiB to 50 MiB or more, over the limit of 50 MiB"):
        check_unpacked("x", "it", MIB, RATIO * MIB + 1)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "four"])
def test_a_factor_that_is_none_is_said(monkeypatch, value):
    monkeypatch.setenv("CHARLM_LIMITS", value)
    with pytest.raises(ValueError, match=f"CHARLM_LIMITS={value}: expected a number above 0"):
        scaled(LINE)


def test_a_factor_raises_the_limits(tmp_path, monkeypatch):
    path = packed(tmp_path / "a.tsv.gz", b"a" * MIB, size=8 * MIB)
    monkeypatch.setenv("CHARLM_LIMITS", "0.0625")
    with pytest.raises(TooLarge, match="a line of more than 4 MiB"):
        next(read_rows(str(path), [0]))
    monkeypatch.setenv("CHARLM_LIMITS", "0.25")
    assert len(next(read_rows(str(path), [0])).cells[0]) == 8 * MIB


def test_lines_of_text_are_those_of_python(tmp_path):
    (tmp_path / "a").write_bytes(b"a\r\nb\rc\n\xe2\x80\xa8d")
    assert read_text(tmp_path / "a") == (tmp_path / "a").read_text(encoding="utf-8")


# ---- JSON without end ----


@pytest.mark.parametrize("depth", [DEPTH + 1, 100_000])
@pytest.mark.parametrize("around", [("[", "]"), ('{"a":', "}")])
def test_json_is_nested_at_most_so_deep(depth, around):
    text = around[0] * depth + "1" + around[1] * depth
    with pytest.raises(ValueError, match=f"^nested more than {DEPTH} deep$"):
        loads(text)
    loads(around[0] * DEPTH + "1" + around[1] * DEPTH)


DEEP = '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("chars.json", CharVocab.load),
        ("xray.json", XRayChars.load),
        ("vocab.json", SubwordTokenizer.load),
        ("tokenizer.json", SubwordTokenizer.load),
        ("config.json", read_object),
        ("config.json", lambda path: saved_config(path.parent)),
        ("squad.json", lambda path: read_squad(str(path))),
        ("items.json", lambda path: list(read_rows(str(path), ["text"]))),
        ("items.jsonl", lambda path: list(read_rows(str(path), ["text"]))),
        ("items.jsonl", lambda path: list(files.read_jsonl(files.file_parts(str(path), "a")[0], "a", Counter()))),
    ],
)
def test_deep_json_is_one_line(tmp_path, name, read):
    path = tmp_path / name
    path.write_text(f"{DEEP}\n{DEEP}\n" if name.endswith("l") else DEEP)
    with pytest.raises(ValueError, match=r"nested more than 100 deep|invalid JSON") as error:
        read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_line_of_metrics_that_is_deep_is_a_damaged_one():
    assert parse_line(DEEP) is None


# ---- Lines that are asked ----


def test_a_line_that_is_too_long_is_not_held_and_the_others_are_answered(monkeypatch, capsys):
    monkeypatch.setenv("CHARLM_LIMITS", str(2**-8))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"birds\n{'a' * MIB}\nrun\n"))
    status = predict.main(["encode", f"--checkpoint={release('bert')}", "--sentence-only"])
    printed = capsys.readouterr()
    out = [json.loads(line) for line in printed.out.splitlines()]
    assert [line["text"] for line in out] == ["birds", "a" * 80, "run"]
    assert [set(line) for line in out] == [{"text", "sentence"}, {"text", "error"}, {"text", "sentence"}]
    assert status == 1
    assert printed.err.startswith("error: line 2: the text: longer than 262,144 characters")


# ---- PyTorch's files ----


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def zip_of(path, torch, **members):
    """Writes a state dict of ten numbers as torch.save does, packed, with other members."""
    torch.save({"a": torch.ones(10)}, path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, members.get(name.split("/", 1)[1].replace(".", "_").replace("/", "_"), data))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("member", "message"),
    [
        ("data_0", r"x\.bin: the zip unpacks from .* to 100 MiB or more"),
        ("data_pkl", "the zip unpacks|a pickle of more"),
    ],
)
def test_packed_tensors_are_not_unpacked(tmp_path, torch, member, message):
    from charlm.convert.files import read_state

    zip_of(tmp_path / "x.bin", torch, **{member: b"]" * (100 * MIB)})
    with pytest.raises(TooLarge, match=message):
        read_state(tmp_path / "x.bin")


@pytest.mark.torch
@pytest.mark.parametrize("as_zip", [True, False])
def test_a_pickle_has_a_limit(tmp_path, torch, as_zip):
    from charlm.convert.files import read_state

    data = b"\x80\x02" + b"]" * (9 * MIB) + b"."
    if as_zip:
        zip_of(tmp_path / "x.bin", torch, data_pkl=data)
    else:
        (tmp_path / "x.bin").write_bytes(data)
    with pytest.raises(TooLarge, match=r"x\.bin: a pickle of more than 8 MiB"):
        read_state(tmp_path / "x.bin")


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["repeated", "sparse"])
def test_tensors_that_are_larger_than_their_file_are_refused(tmp_path, torch, kind):
    from charlm.convert.files import read_state

    tensor = torch.ones(1).expand(10**9)
    if kind == "sparse":
        tensor = torch.sparse_coo_tensor(torch.zeros(2, 1, dtype=torch.long), torch.ones(1), (40_000, 40_000))
    torch.save({"a": tensor}, tmp_path / "x.bin")
    with pytest.raises(TooLarge, match=r"x\.bin: the state dict unpacks from .* KiB to .* GiB or more"):
        read_state(tmp_path / "x.bin")


@pytest.mark.torch
@pytest.mark.parametrize("name", [b"builtins\nbytearray", b"__builtin__\nbytearray", b"_codecs\nencode"])
@pytest.mark.parametrize("as_zip", [True, False])
def test_functions_that_make_memory_are_refused_by_name(tmp_path, torch, name, as_zip):
    from charlm.convert.files import read_state

    data = b"\x80\x02c" + name + b"\nq\x00J\xff\xff\xff\x7f\x85R."
    if as_zip:
        zip_of(tmp_path / "x.bin", torch, data_pkl=data)
    else:
        (tmp_path / "x.bin").write_bytes(data)
    asked = name.decode().replace("\n", ".")
    with pytest.raises(ValueError, match=rf"x\.bin is refused: its pickle asks for {asked}"):
        read_state(tmp_path / "x.bin")
