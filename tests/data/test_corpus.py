"""Encoded corpora: nothing lost, nothing done twice, killed runs go on, and every failure is one clear line."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from charlm.config import get_config
from charlm.data import corpus, sources
from charlm.data.corpus import CorpusStats, EncodedRecord, prepare, prepare_corpus, read_record, write_record
from charlm.text.chars import CharVocab
from charlm.text.words import get_splitter

ROOT = Path(__file__).resolve().parents[2]


def quiet(*progress):
    """Stands in for the progress log."""


def never(*args, **kwargs):
    raise AssertionError("this must not be called")


@pytest.fixture
def config(tmp_path):
    config = get_config()
    config.text.splitter = "rules"
    config.data.cache_dir = str(tmp_path / "cache")
    config.data.encode_processes = 1
    config.data.max_words = 34
    config.data.heldout_fraction = 0.2
    config.data.train = (str(tmp_path / "text" / "*.txt"),)
    return config


@pytest.fixture
def documents(tmp_path):
    """Writes three files of sentences with rare characters, long words and one very long sentence."""
    rng = np.random.default_rng(0)
    words = ["the", "cat", "naïve", "Straße", "x", "supercalifragilisticexpialidocious", "don't", "日本", "3.14"]
    written = []
    (tmp_path / "text").mkdir()
    for name in "abc":
        lines = [" ".join(rng.choice(words, rng.integers(1, 30))) + rng.choice([".", "! Yes.", ""]) for _ in range(80)]
        lines.insert(3, "word " * 150 + "end.")
        (tmp_path / "text" / f"{name}.txt").write_text("\n".join(lines))
        written += [line.strip() for line in lines]
    return written


def records(encoded):
    from array_record.python.array_record_module import ArrayRecordReader

    for path in encoded.paths:
        reader = ArrayRecordReader(path)
        yield from map(read_record, reader.read_all())
        reader.close()


def decoded_words(encoded, vocab):
    """The words of all records, as tuples of ids."""
    for record in records(encoded):
        yield from (tuple(ids) for ids in np.split(record.chars, np.cumsum(record.words)[:-1]))


def expected_words(texts, vocab, config):
    splitter = get_splitter("rules", "en")
    words = [text[start:end] for text in texts for start, end in splitter.spans(text)]
    encoder = corpus.WordEncoder(vocab, config.model.char_slots, config.text.normalize)
    lengths, ids = encoder.encode(words)
    return [tuple(word) for word in np.split(ids, np.cumsum(lengths)[:-1])]


# --- records


def test_record_round_trip():
    lengths = np.array([3, 1, 255], np.uint8)
    data = write_record([2, 1], lengths, np.arange(259, dtype=np.uint16))
    record = read_record(data)
    assert [array.dtype for array in record] == [np.uint16, np.uint8, np.uint16]
    np.testing.assert_array_equal(record.sentences, [2, 1])
    np.testing.assert_array_equal(record.words, lengths)
    np.testing.assert_array_equal(record.chars, np.arange(259))
    huge = read_record(write_record([70_000], np.ones(70_000, np.uint8), np.ones(70_000, np.uint16)))
    assert huge.sentences.dtype == np.uint32 and huge.sentences.tolist() == [70_000]


def test_inconsistent_record_is_refused():
    with pytest.raises(ValueError, match="inconsistent record: sentences of 3 words, 2 words of 2 characters"):
        write_record([3], np.ones(2, np.uint8), np.ones(2, np.uint16))


@pytest.mark.parametrize("data", [b"", b"garbage that is no record", b"\x02" + b"\0" * 7 + b"{}"])
def test_foreign_bytes_are_no_record(data):
    with pytest.raises(ValueError, match="not an encoded record of charlm"):
        read_record(data)


def test_reading_a_record_is_fast():
    data = write_record([20] * 25, np.full(500, 5, np.uint8), np.ones(2500, np.uint16))
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(100):
            read_record(data)
        times.append((time.perf_counter() - start) / 100)
    assert min(times) < 100e-6  # about 10 µs on a free core; the machine may be busy


def test_stats_add_up_and_round_trip():
    a = CorpusStats(1, 2, 3, 4, 5, 6, 7, 8, {"x": 1}, [0, 1])
    b = CorpusStats(10, 20, 30, 40, 50, 60, 70, 5, {"x": 2, "y": 3}, [1, 1, 4])
    total = CorpusStats(11, 22, 33, 44, 55, 66, 77, 8, {"x": 3, "y": 3}, [1, 2, 4])
    assert a + b == total == b + a
    assert a + CorpusStats() == a
    assert CorpusStats.from_json(total.to_json()) == total


def test_stats_describe_shares_and_counts():
    stats = CorpusStats(documents=8, words=200, chars=1000, words_cut=3, chars_unknown=5, skipped={"bad": 2})
    text = stats.describe()
    assert "cut words 1.5 % (3)" in text and "unknown characters 0.5 % (5)" in text
    assert "skipped documents, bad: 20 % (2)" in text


# --- encoding


def test_nothing_is_lost_and_records_keep_their_limits(config, documents):
    vocab = corpus.load_or_build_vocab(config)
    encoded = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    found = list(decoded_words(encoded, vocab))
    assert found == expected_words(documents, vocab, config)
    sizes = [len(record.words) for record in records(encoded)]
    assert max(sizes) == encoded.stats.longest_record == config.data.max_words - 2
    assert all(record.sentences.sum() == len(record.words) for record in records(encoded))
    stats = encoded.stats
    assert (stats.documents, stats.words, stats.records) == (len(documents), len(found), len(sizes))
    assert stats.chars == sum(map(len, found)) and stats.words_cut > 0
    assert sum(stats.slots_histogram) == stats.words
    assert len(stats.slots_histogram) - 1 == config.model.char_slots  # words of 19 characters and more were cut to it


def test_sentences_share_records_and_end_where_they_end(config, tmp_path):
    (tmp_path / "a.txt").write_text("One two. Three four five.\nSix.\n" + "w " * 40 + ".\nLast one.\n")
    vocab = CharVocab.build({"e": 3, "w": 2, ".": 1}, 100)
    encoded = prepare_corpus(str(tmp_path / "a.txt"), config, "all", vocab, quiet)
    assert [record.sentences.tolist() for record in records(encoded)] == [[3, 4, 2], [32], [9, 3]]


def test_blank_lines_end_sentences(config, tmp_path):
    text = "A heading\n\nThe text of it\ngoes on"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    encoded = prepare_corpus(str(tmp_path / "a.jsonl"), config, "all", CharVocab.build({"a": 1}, 20), quiet)
    assert [record.sentences.tolist() for record in records(encoded)] == [[2, 6]]


def test_unknown_characters_and_skipped_lines_are_counted(config, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"aab\nab\nb\n\xff\n")
    encoded = prepare_corpus(str(tmp_path / "a.txt"), config, "all", CharVocab.build({"a": 9}, 9), quiet)
    assert encoded.stats.chars_unknown == 3
    assert encoded.stats.skipped == {"invalid UTF-8": 1}


def test_processes_do_not_change_the_result(config, documents):
    vocab = corpus.load_or_build_vocab(config)
    alone = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    config.data.cache_dir += "-2"
    config.data.encode_processes = 2
    seen = []
    spread = prepare_corpus(config.data.train[0], config, "all", vocab, lambda *progress: seen.append(progress))
    assert spread.stats == alone.stats
    assert list(decoded_words(spread, vocab)) == list(decoded_words(alone, vocab))
    assert [os.path.basename(path) for path in spread.paths] == [os.path.basename(path) for path in alone.paths]
    assert seen[-1][:3] == (3, 3, alone.stats.words)


def test_errors_of_processes_arrive_as_they_are(config, tmp_path):
    config.data.encode_processes = 2
    (tmp_path / "a.jsonl").write_text("{broken")
    (tmp_path / "b.jsonl").write_text('{"text": "fine"}')
    vocab = CharVocab.build({"a": 9}, 9)
    with pytest.raises(ValueError, match=r"a\.jsonl:1: invalid JSON"):
        prepare_corpus(str(tmp_path / "*.jsonl"), config, "all", vocab, quiet)
    assert not glob.glob(f"{config.data.cache_dir}/**/*.tmp", recursive=True)


def test_progress_is_reported_inside_a_part(config, documents, monkeypatch):
    monkeypatch.setattr(corpus, "LOG_SECONDS", -1.0)
    seen = []
    vocab = CharVocab.build({"a": 9}, 9)
    prepare_corpus(config.data.train[0], config, "all", vocab, lambda *progress: seen.append(progress))
    assert len(seen) > 10
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert seen[-1][:2] == (3, 3)


# --- the cache


def test_second_time_does_no_work(config, documents, monkeypatch):
    first = prepare(config, quiet)
    files = {path: os.stat(path).st_mtime_ns for path in glob.glob(f"{config.data.cache_dir}/**", recursive=True)}
    monkeypatch.setattr(corpus, "_encode_part", never)
    monkeypatch.setattr(sources.Source, "documents", never)
    again = prepare(config, never)
    assert (again.train, again.heldout) == (first.train, first.heldout)
    assert again.vocab.digest() == first.vocab.digest()
    assert files == {path: os.stat(path).st_mtime_ns for path in files}


def test_killed_run_goes_on_with_the_missing_shards(config, documents):
    vocab = corpus.load_or_build_vocab(config)
    first = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    words = list(decoded_words(first, vocab))
    kept, lost, half = (Path(path) for path in first.paths)
    lost.unlink()
    half.unlink()
    Path(f"{half}.json").unlink()
    (Path(first.folder) / "corpus.json").unlink()
    stale, busy = Path(f"{lost}.1-2.tmp"), Path(f"{half}.3-4.tmp")
    stale.write_bytes(b"left behind")
    busy.write_bytes(b"another process")
    os.utime(stale, (1, 1))
    before = kept.stat().st_mtime_ns
    again = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    assert kept.stat().st_mtime_ns == before
    assert again == first
    assert list(decoded_words(again, vocab)) == words
    assert not stale.exists() and busy.exists()


def test_kill_ends_all_processes_and_the_next_run_finishes(config, tmp_path):
    (tmp_path / "text").mkdir()
    for i in range(8):
        (tmp_path / "text" / f"{i}.txt").write_text("".join(f"Line {n} of {i}.\n" for n in range(40_000)))
    command = [sys.executable, "-m", "charlm.data.corpus", *cli_arguments(config)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not glob.glob(f"{config.data.cache_dir}/*/part-*.json") and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=30)  # returns when the last process that holds its standard error is gone
    finished = {path: os.stat(path).st_mtime_ns for path in glob.glob(f"{config.data.cache_dir}/*/part-*.json")}
    assert 1 <= len(finished) < 16
    assert run_cli(*cli_arguments(config)).returncode == 0
    assert finished == {path: os.stat(path).st_mtime_ns for path in finished}
    assert len(glob.glob(f"{config.data.cache_dir}/*/part-*.json")) == 16


def test_an_interrupted_shard_leaves_no_file(config, documents, monkeypatch):
    vocab = corpus.load_or_build_vocab(config)
    encode, calls = corpus.WordEncoder.encode, []

    def interrupted(self, words):
        calls.append(len(words))
        if len(calls) == 20:
            raise KeyboardInterrupt
        return encode(self, words)

    monkeypatch.setattr(corpus.WordEncoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    left = glob.glob(f"{config.data.cache_dir}/*/part-*")
    assert not left
    encoded = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    assert list(decoded_words(encoded, vocab)) == expected_words(documents, vocab, config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("text.normalize", "nfc"),
        ("text.splitter", "reference"),
        ("data.max_words", 40),
        ("data.heldout_fraction", 0.3),
        ("model.char_slots", 12),
    ],
)
def test_changed_setting_changes_the_folder(config, documents, key, value):
    vocab = CharVocab.build({"a": 9}, 9)
    first = prepare_corpus(config.data.train[0], config, "train", vocab, quiet)
    config.update_from_flattened_dict({key: value})
    assert prepare_corpus(config.data.train[0], config, "train", vocab, quiet).folder != first.folder


def test_changed_text_split_or_vocabulary_changes_the_folder(config, documents, tmp_path):
    spec = config.data.train[0]
    vocab = CharVocab.build({"a": 9}, 9)
    folders = [prepare_corpus(spec, config, split, vocab, quiet).folder for split in ("train", "heldout", "all")]
    folders.append(prepare_corpus(spec, config, "all", CharVocab.build({"b": 9}, 9), quiet).folder)
    (tmp_path / "text" / "a.txt").write_text("changed")
    folders.append(prepare_corpus(spec, config, "all", vocab, quiet).folder)
    assert len(set(folders)) == 5


def test_two_runs_at_once_do_not_disturb_each_other(config, documents):
    from concurrent.futures import ThreadPoolExecutor

    vocab = corpus.load_or_build_vocab(config)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(prepare_corpus, config.data.train[0], config, "all", vocab, quiet) for _ in range(2)]
    assert runs[0].result() == runs[1].result()
    assert list(decoded_words(runs[0].result(), vocab)) == expected_words(documents, vocab, config)
    assert not glob.glob(f"{config.data.cache_dir}/**/*.tmp", recursive=True)


def test_cache_dir_of_config_environment_and_home(config, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", "/somewhere")
    assert corpus.cache_dir(config) == config.data.cache_dir
    config.data.cache_dir = ""
    assert corpus.cache_dir(config) == "/somewhere"
    monkeypatch.delenv("CHARLM_CACHE")
    assert corpus.cache_dir(config) == os.path.expanduser("~/.cache/charlm")


# --- failures


def test_unwritable_cache_is_one_clear_error(config, documents, tmp_path):
    (tmp_path / "file").write_text("")
    config.data.cache_dir = str(tmp_path / "file" / "cache")
    with pytest.raises(ValueError, match=r"cannot write the corpus cache .*file/cache: .*; set data.cache_dir to a"):
        prepare(config, quiet)


def test_full_disk_is_one_clear_error_and_leaves_no_file(config, documents, monkeypatch):
    from array_record.python import array_record_module

    vocab = corpus.load_or_build_vocab(config)
    real = array_record_module.ArrayRecordWriter
    monkeypatch.setattr(array_record_module, "ArrayRecordWriter", lambda path, options: real("/dev/full", options))
    with pytest.raises(
        ValueError, match=r"cannot write the corpus cache .*: .*No space left on device.*; set data.cache"
    ):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    assert not glob.glob(f"{config.data.cache_dir}/*/part-*")


@pytest.mark.parametrize("content", ["", " \n\n  \n"])
def test_empty_corpus_says_so(config, tmp_path, content):
    (tmp_path / "a.txt").write_text(content)
    with pytest.raises(ValueError, match=r"data.train: corpus '.*a\.txt' holds no document"):
        prepare_corpus(str(tmp_path / "a.txt"), config, "train", CharVocab.build({"a": 9}, 9), quiet)


def test_bad_settings(config, documents):
    vocab = CharVocab.build({"a": 9}, 9)
    config.data.encode_processes = -1
    with pytest.raises(ValueError, match=r"data.encode_processes=-1: expected 0 \(one per CPU core\) or more"):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    config.data.max_words = 2
    with pytest.raises(ValueError, match="data.max_words=2: expected at least 3"):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    config.data.train = ()
    with pytest.raises(ValueError, match="data.train is empty: expected at least one corpus"):
        prepare(config, quiet)


# --- the vocabulary


def test_vocabulary_holds_the_characters_of_words_only(config, tmp_path):
    (tmp_path / "a.txt").write_text("bab\u00a0a\u3000ä a\u0308\n" * 3)
    source = sources.open_source(str(tmp_path / "a.txt"))
    assert corpus._count_chars([source], "none") == {"b": 6, "a": 9, "ä": 3, "\u0308": 3}
    assert corpus._count_chars([source], "nfc") == {"b": 6, "a": 6, "ä": 6}


def test_vocabulary_is_cached_and_follows_the_text(config, documents, tmp_path, monkeypatch):
    first = corpus.load_or_build_vocab(config)
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_count_chars", never)
        assert corpus.load_or_build_vocab(config).digest() == first.digest()
    (tmp_path / "text" / "a.txt").write_text("żółć " * 10)
    assert corpus.load_or_build_vocab(config).digest() != first.digest()


def test_vocabulary_counts_what_is_trained_on(config, tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(chr(0x4E00 + i) for i in range(500)))
    (tmp_path / "h.txt").write_text("x")
    config.data.train = (str(tmp_path / "a.txt"),)
    assert 350 < len(corpus.load_or_build_vocab(config).chars) < 450  # held-out characters stay unknown
    config.data.heldout = (str(tmp_path / "h.txt"),)
    assert len(corpus.load_or_build_vocab(config).chars) == 500


def test_vocabulary_of_a_file(config, documents, tmp_path):
    config.text.char_vocab = str(tmp_path / "vocab.json")
    with pytest.raises(ValueError, match=r"text.char_vocab='.*vocab.json': cannot be read as a character vocabulary"):
        corpus.load_or_build_vocab(config)
    (tmp_path / "vocab.json").write_text("[1, 2")
    with pytest.raises(ValueError, match=r"text.char_vocab='.*vocab.json': cannot be read as a character vocabulary"):
        corpus.load_or_build_vocab(config)
    vocab = CharVocab.build({"a": 2, "b": 1}, 20)
    vocab.save(config.text.char_vocab)
    assert corpus.load_or_build_vocab(config).digest() == vocab.digest()
    config.model.vocab_size = vocab.size - 1
    with pytest.raises(ValueError, match=rf"has {vocab.size} entries, but model.vocab_size is {vocab.size - 1}"):
        corpus.load_or_build_vocab(config)


# --- prepare


def test_prepare_splits_the_training_text(config, documents):
    data = prepare(config, quiet)
    train, heldout = (list(decoded_words(side[0], data.vocab)) for side in (data.train, data.heldout))
    assert sorted(train + heldout) == sorted(expected_words(documents, data.vocab, config))
    assert data.train[0].stats.documents + data.heldout[0].stats.documents == len(documents)
    assert 0 < data.heldout[0].stats.documents < data.train[0].stats.documents


def test_prepare_with_held_out_corpora_trains_on_everything(config, documents, tmp_path):
    (tmp_path / "h.txt").write_text("Held out.\n")
    config.data.heldout = (str(tmp_path / "h.txt"),)
    data = prepare(config, quiet)
    assert data.train[0].stats.documents == len(documents)
    assert [corpus.stats.documents for corpus in data.heldout] == [1]
    config.data.heldout = (str(tmp_path / "none.txt"),)
    with pytest.raises(ValueError, match=r"data.heldout: '.*none.txt' does not exist"):
        prepare(config, quiet)


def test_nothing_held_out_says_what_to_set(config, documents):
    config.data.heldout_fraction = 0.0
    with pytest.raises(
        ValueError, match=r"no held-out text: .*set data.heldout to a corpus, or raise data.heldout_frac"
    ):
        prepare(config, quiet)


def test_encoded_shards_are_used_as_they_are(config, documents, tmp_path):
    config.data.heldout = (str(tmp_path / "text" / "a.txt"),)
    first = prepare(config, quiet)
    config.data.train = (f"{first.train[0].folder}/*.array_record",)
    again = prepare(config, never)
    assert again.vocab.digest() == first.vocab.digest()
    assert (again.train[0].paths, again.train[0].stats) == (first.train[0].paths, first.train[0].stats)
    config.data.train = (first.train[0].paths[1],)  # one shard alone: its records are counted
    part = prepare(config, never).train[0]
    assert part.stats.words == len(list(decoded_words(part, first.vocab)))
    assert part.stats.longest_record == config.data.max_words - 2


def test_encoded_shards_that_do_not_fit_are_refused(config, documents, tmp_path):
    config.data.heldout = (str(tmp_path / "text" / "a.txt"),)
    first = prepare(config, quiet)
    folder = first.train[0].folder
    config.data.train = (f"{folder}/*.array_record",)
    config.data.max_words -= 1
    with pytest.raises(ValueError, match=r"was encoded for longer input: 32, but data.max_words - 2 is 31"):
        prepare(config, quiet)
    config.data.max_words += 1
    config.model.char_slots -= 1
    with pytest.raises(ValueError, match=r"was encoded for longer input: 20, but model.char_slots is 19"):
        prepare(config, quiet)
    config.model.char_slots += 1
    other = CharVocab.build({"q": 1}, 20)
    other.save(str(tmp_path / "other.json"))
    config.text.char_vocab = str(tmp_path / "other.json")
    message = rf"another character vocabulary: digest {first.vocab.digest()}, expected {other.digest()}"
    with pytest.raises(ValueError, match=message):
        prepare(config, quiet)
    config.text.char_vocab = ""
    os.remove(f"{folder}/vocab.json")
    with pytest.raises(ValueError, match=r"has no vocab.json beside it; set text.char_vocab"):
        prepare(config, quiet)


def test_foreign_shards_are_refused(config, documents, tmp_path):
    corpus.load_or_build_vocab(config).save(str(tmp_path / "vocab.json"))
    config.text.char_vocab = str(tmp_path / "vocab.json")
    config.data.train = (str(tmp_path / "*.array_record"),)
    with pytest.raises(ValueError, match=r"data.train: no file matches '.*\*\.array_record'"):
        prepare(config, quiet)
    (tmp_path / "x.array_record").write_text("garbage")
    with pytest.raises(ValueError, match=r"x\.array_record is not an encoded corpus of charlm: it holds no record"):
        prepare(config, quiet)
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(tmp_path / "x.array_record"), "group_size:1")
    writer.write(b"something else")
    writer.close()
    with pytest.raises(ValueError, match=r"x\.array_record is not an encoded corpus of charlm: not an encoded record"):
        prepare(config, quiet)


def test_ragged_record_of_no_words_needs_no_special_case():
    record = read_record(write_record([], np.zeros(0, np.uint8), np.zeros(0, np.uint16)))
    assert isinstance(record, EncodedRecord) and len(record.sentences) == 0


# --- command line


def run_cli(*arguments):
    command = [sys.executable, "-m", "charlm.data.corpus", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def cli_arguments(config):
    return [
        "--config=charlm/config.py",
        "--config.text.splitter=rules",
        f"--config.data.cache_dir={config.data.cache_dir}",
        f"--config.data.train=({config.data.train[0]!r},)",
        "--config.data.encode_processes=2",
    ]


def test_command_line_prints_a_table(config, documents):
    result = run_cli(*cli_arguments(config), "--config.data.heldout_fraction=0.2")
    assert result.returncode == 0, result.stderr
    header, train, heldout = result.stdout.splitlines()
    assert header.split()[:5] == ["corpus", "split", "documents", "words", "chars"]
    assert train.split()[:2] == [config.data.train[0], "train"] and heldout.split()[1] == "heldout"
    assert config.data.cache_dir in train
    assert "words/s" in result.stderr and "cut words" in result.stderr


def test_command_line_errors_are_one_line(config, tmp_path):
    config.data.train = ("none.txt",)
    result = run_cli(*cli_arguments(config))
    assert result.returncode == 1
    assert result.stderr.startswith("error: data.train: 'none.txt' does not exist") and result.stderr.count("\n") == 1
    assert "usage:" in run_cli().stderr
