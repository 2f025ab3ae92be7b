"""Tests encoding: nothing is lost or done twice, killed runs continue, and any number of processes gives the same."""

from __future__ import annotations

import glob
import json
import os
from pathlib import Path

import pytest
from reading import decoded_words, expected_words, quiet, records

from charlm.data import encode
from charlm.data.corpus import prepare_corpus
from charlm.data.vocab import load_or_build_vocab
from charlm.text.chars import CharVocab, WordEncoder


def test_nothing_is_lost_and_records_keep_their_limits(config, documents):
    vocab = load_or_build_vocab(config)
    encoded = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    found = list(decoded_words(encoded))
    assert found == expected_words(documents, vocab, config)
    sizes = [len(record.words) for record in records(encoded)]
    assert max(sizes) == encoded.stats.longest_record == config.data.max_words - 2
    assert all(record.sentences.sum() == len(record.words) for record in records(encoded))
    stats = encoded.stats
    assert (stats.documents, stats.words, stats.records) == (len(documents), len(found), len(sizes))
    assert stats.chars == sum(map(len, found))
    assert stats.words_cut > 0
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
    vocab = load_or_build_vocab(config)
    alone = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    config.data.cache_dir += "-2"
    config.data.encode_processes = 2
    seen = []
    spread = prepare_corpus(config.data.train[0], config, "all", vocab, lambda *progress: seen.append(progress))
    assert spread.stats == alone.stats
    assert list(decoded_words(spread)) == list(decoded_words(alone))
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
    monkeypatch.setattr(encode, "LOG_SECONDS", -1.0)
    seen = []
    vocab = CharVocab.build({"a": 9}, 9)
    prepare_corpus(config.data.train[0], config, "all", vocab, lambda *progress: seen.append(progress))
    assert len(seen) > 10
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)
    assert seen[-1][:2] == (3, 3)


def test_killed_run_goes_on_with_the_missing_shards(config, documents):
    vocab = load_or_build_vocab(config)
    first = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    words = list(decoded_words(first))
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
    assert list(decoded_words(again)) == words
    assert not stale.exists()
    assert busy.exists()


def test_an_interrupted_shard_leaves_no_file(config, documents, monkeypatch):
    vocab = load_or_build_vocab(config)
    original, calls = WordEncoder.encode, []

    def interrupted(self, words):
        calls.append(len(words))
        if len(calls) == 20:
            raise KeyboardInterrupt
        return original(self, words)

    monkeypatch.setattr(WordEncoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    left = glob.glob(f"{config.data.cache_dir}/*/part-*")
    assert not left
    encoded = prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    assert list(decoded_words(encoded)) == expected_words(documents, vocab, config)


def test_two_runs_at_once_do_not_disturb_each_other(config, documents):
    from concurrent.futures import ThreadPoolExecutor

    vocab = load_or_build_vocab(config)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(prepare_corpus, config.data.train[0], config, "all", vocab, quiet) for _ in range(2)]
    assert runs[0].result() == runs[1].result()
    assert list(decoded_words(runs[0].result())) == expected_words(documents, vocab, config)
    assert not glob.glob(f"{config.data.cache_dir}/**/*.tmp", recursive=True)


def test_full_disk_is_one_clear_error_and_leaves_no_file(config, documents, monkeypatch):
    from array_record.python import array_record_module

    vocab = load_or_build_vocab(config)
    real = array_record_module.ArrayRecordWriter
    monkeypatch.setattr(array_record_module, "ArrayRecordWriter", lambda path, options: real("/dev/full", options))
    with pytest.raises(
        ValueError, match=r"cannot write the corpus cache .*: .*No space left on device.*; set data.cache"
    ):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    assert not glob.glob(f"{config.data.cache_dir}/*/part-*")
