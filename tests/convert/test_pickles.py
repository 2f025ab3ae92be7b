"""Tests that pickles of unknown origin are examined within limits on memory, whatever their zip declares."""

from __future__ import annotations

import pickle
import struct
import tracemalloc
import zipfile

import pytest

from charlm.convert.pickles import globals_of

SIZE = 200 * 2**20  # of the pickle, all zeros


def lying_zip(path, says):
    """Writes a zip whose pickle unpacks to SIZE, and says that it has so many bytes."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("archive/data.pkl", "w") as file,
    ):
        for _ in range(SIZE // 2**20):
            file.write(bytes(2**20))
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", SIZE), struct.pack("<I", says)))
    with zipfile.ZipFile(path) as archive:
        assert [member.file_size for member in archive.infolist()] == [says]


@pytest.mark.parametrize("name", ["archive/data.pkl", "archive/DATA.PKL", "archive/data.Pkl"])
def test_pickles_are_examined_however_their_names_are_written(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr(name, pickle.dumps(bytearray(b"a"), protocol=2))
    assert "__builtin__.bytearray" in globals_of(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("says", [100, SIZE])
def test_a_zip_that_lies_of_its_size_is_not_unpacked(tmp_path, says):
    path = tmp_path / "pytorch_model.bin"
    lying_zip(path, says)
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, zipfile.BadZipFile)):
            globals_of(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < SIZE / 2
