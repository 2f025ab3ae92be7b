"""Tests prepared TFDS data sets: they are read without a download, and every failure says what to do."""

from __future__ import annotations

import json

import pytest
from reading import texts

from charlm.data import tfds_source
from charlm.data.sources import open_source


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    """A data set of ten texts, prepared as array_record in a folder of its own."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import numpy as np

    class TinyText(tfds.core.GeneratorBasedBuilder):
        """Ten short texts."""

        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {"text": tfds.features.Text(), "label": tfds.features.Scalar(np.int32)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(10):
                yield i, {"text": f"text número {i}", "label": i}

    folder = tmp_path_factory.mktemp("tfds")
    TinyText(data_dir=str(folder), file_format="array_record").download_and_prepare()
    return folder


def test_tfds_reads_prepared_texts(tfds_dir, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
    monkeypatch.setattr(tfds_source, "PART_EXAMPLES", 4)
    expected = {f"text número {i}" for i in range(10)}
    found, source = texts("tfds:tiny_text:train")
    assert set(found) == expected
    assert len(found) == 10
    assert len(source.parts) == 3
    assert texts("tfds:tiny_text")[0] == texts("tfds:tiny_text:1.0.0:train")[0] == found
    assert texts("tfds:tiny_text:train[2:5]")[0] == found[2:5]
    assert source.fingerprint() != open_source("tfds:tiny_text:train[2:5]").fingerprint()
    assert "".join(texts("tfds:tiny_text", split="heldout", heldout_fraction=0.4)[0])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tfds:tiny_text:tain", r"has no split 'tain'; splits: train; did you mean train"),
        ("tfds:tiny_text:train[:", r"bad split 'train\[:'"),
        ("tfds:tiny_text:9.9.9:train", r"is not prepared in .*\(\$TFDS_DATA_DIR\); nothing is downloaded"),
        ("tfds:imdb_reviews", r"prepare it with: tfds build imdb_reviews --file_format=array_record --data_dir="),
        ("tfds:", r'expected "tfds:NAME\[/CONFIG\]\[:VERSION\]\[:SPLIT\]"'),
    ],
)
def test_tfds_errors(tfds_dir, monkeypatch, spec, message):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
    with pytest.raises(ValueError, match=message):
        open_source(spec)
    assert not (tfds_dir / "imdb_reviews").exists()


def test_tfds_missing_feature_and_tfrecord(tfds_dir, tmp_path, monkeypatch):
    import shutil

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    shutil.copytree(tfds_dir / "tiny_text", tmp_path / "tiny_text")
    with pytest.raises(ValueError, match=r"has no feature 'body' \(data.text_key\); features: .*text"):
        open_source("tfds:tiny_text", text_key="body")
    info = tmp_path / "tiny_text" / "1.0.0" / "dataset_info.json"
    info.write_text(json.dumps(json.loads(info.read_text()) | {"fileFormat": "tfrecord"}))
    with pytest.raises(ValueError, match=r"as tfrecord, which only TensorFlow can read; prepare it with: tfds build"):
        open_source("tfds:tiny_text")
