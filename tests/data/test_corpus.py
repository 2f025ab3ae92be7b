"""Tests the corpora of a run: encoded once, found in the cache, refused if they do not fit, failures in one line."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from reading import decoded_words, expected_words, never, quiet
from small_run import corpus_command
from tiny_models import release

from charlm.config import load_config_file
from charlm.core import stores
from charlm.core.files import cache_dir
from charlm.data import encode
from charlm.data.corpus import prepare, prepare_corpus, prepare_texts
from charlm.data.pipeline import record_dataset
from charlm.data.sources import Source
from charlm.data.subword_building import BuiltOnce, words_of_records
from charlm.data.vocab import load_or_build_vocab
from charlm.families.char2subword.keys import of_stage
from charlm.families.lookup import corpora_of
from charlm.text.chars import CharVocab

ROOT = Path(__file__).resolve().parents[2]


def test_second_time_does_no_work(config, documents, monkeypatch):
    first = prepare(config, quiet)
    files = {path: os.stat(path).st_mtime_ns for path in glob.glob(f"{config.data.cache_dir}/**", recursive=True)}
    monkeypatch.setattr(encode, "_encode_part", never)
    monkeypatch.setattr(Source, "documents", never)
    again = prepare(config, never)
    assert (again.train, again.heldout) == (first.train, first.heldout)
    assert again.vocab.digest() == first.vocab.digest()
    assert files == {path: os.stat(path).st_mtime_ns for path in files}


def test_kill_ends_all_processes_and_the_next_run_finishes(config, tmp_path):
    (tmp_path / "text").mkdir()
    for i in range(8):
        (tmp_path / "text" / f"{i}.txt").write_text("".join(f"Line {n} of {i}.\n" for n in range(10_000)))
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


def test_cache_dir_of_config_environment_and_home(config, monkeypatch):
    monkeypatch.setenv("CHARLM_CACHE", "/somewhere")
    assert cache_dir(config) == config.data.cache_dir
    config.data.cache_dir = ""
    assert cache_dir(config) == "/somewhere"
    monkeypatch.delenv("CHARLM_CACHE")
    assert cache_dir(config) == os.path.expanduser("~/.cache/charlm")


def test_unwritable_cache_is_one_clear_error(config, documents, tmp_path):
    (tmp_path / "file").write_text("")
    config.data.cache_dir = str(tmp_path / "file" / "cache")
    with pytest.raises(ValueError, match=r"cannot write the corpus cache .*file/cache: .*; set data.cache_dir to a"):
        prepare(config, quiet)


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
    with pytest.raises(ValueError, match=r"data\.max_words=2: expected at least 3"):
        prepare_corpus(config.data.train[0], config, "all", vocab, quiet)
    config.data.train = ()
    with pytest.raises(ValueError, match=r"data\.train is empty: expected at least one corpus"):
        prepare(config, quiet)


def test_prepare_splits_the_training_text(config, documents):
    data = prepare(config, quiet)
    train, heldout = (list(decoded_words(side[0])) for side in (data.train, data.heldout))
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


def test_damaged_memos_do_not_swap_held_out_text_for_training_text(config, documents, tmp_path):
    (tmp_path / "h.txt").write_text("Held out.\n")
    config.data.train, config.data.heldout = (str(tmp_path / "text" / "a.txt"),), (str(tmp_path / "h.txt"),)
    first = prepare(config, quiet)
    for memo in (tmp_path / "cache" / "fingerprints").iterdir():
        memo.write_text("")
    again = prepare(config, quiet)
    assert again.heldout[0].paths == first.heldout[0].paths
    assert again.heldout[0].stats == first.heldout[0].stats
    assert again.heldout[0].stats.words == 3


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
    assert part.stats.words == len(list(decoded_words(part)))
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


def test_shards_of_another_command_are_refused_wherever_a_glob_finds_them(config, documents, tmp_path, monkeypatch):
    config.data.heldout = (str(tmp_path / "text" / "a.txt"),)
    shutil.copytree(prepare(config, quiet).train[0].folder, tmp_path / "shards" / "a")
    CharVocab.build(dict.fromkeys("qrstuvw", 1), 20).save(str(tmp_path / "other.json"))
    config.text.char_vocab = str(tmp_path / "other.json")
    shutil.copytree(prepare(config, quiet).train[0].folder, tmp_path / "shards" / "b")
    config.text.char_vocab = str(tmp_path / "shards" / "a" / "vocab.json")
    config.data.train = (f"{tmp_path}/shards/*/part-*.array_record",)
    with pytest.raises(ValueError, match=r"another character vocabulary: .* set text.char_vocab to '.*/shards/b/vocab"):
        prepare(config, never)

    def brought(spec, key):  # as from a store, which brings what is asked for alone
        source = spec.replace("gs://bucket", f"{tmp_path}/shards")
        copies = [Path(path.replace("/shards/", "/copies/")) for path in sorted(glob.glob(source))]
        for copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(copy).replace("/copies/", "/shards/"), copy)
        return [str(copy) for copy in copies]

    monkeypatch.setattr(stores, "matching", brought)
    config.data.train = ("gs://bucket/b/part-*.array_record",)
    with pytest.raises(
        ValueError, match=r"'gs://bucket/b/part-\*.array_record' was encoded with another character voc"
    ):
        prepare(config, never)


def test_of_two_processes_that_build_the_same_folder_both_read_it(tmp_path):
    meet = threading.Barrier(2, timeout=30)

    def build(place):
        os.makedirs(place)
        Path(place, "file").write_text("built")
        meet.wait()

    def get():
        once = BuiltOnce(str(tmp_path), [SimpleNamespace(folder="corpus")])
        found.append(once.get("pieces", 1, build, lambda place: Path(place, "file").read_text()))

    found = []
    threads = [threading.Thread(target=get) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["built"] * 2


def test_words_with_marks_of_spaces_are_no_characters_alone(config, documents, tmp_path):
    config.data.heldout = (str(tmp_path / "text" / "a.txt"),)
    written = prepare(config, quiet, needs_spaces="it writes")
    config.data.train = (f"{written.train[0].folder}/part-*.array_record",)
    with pytest.raises(ValueError, match=r"was encoded in the form 'spaced', which models that write read; expected"):
        prepare(config, never)


DAMAGES = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "cut": lambda data: data[: len(data) // 2],
    "cut by ten bytes": lambda data: data[:-10],
    "zeroed head": lambda data: bytes(200) + data[200:],
    "zeroed middle": lambda data: data[:3000] + bytes(1000) + data[4000:],
    "no ArrayRecord": lambda data: b"garbage",
}


def damage(path, how, digest=True, unseen=False):
    """Damages a shard; its counts keep no digest, or its time is as before, where that is asked."""
    status = os.stat(path)
    Path(path).write_bytes(DAMAGES[how](Path(path).read_bytes()))
    if unseen:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    if not digest:
        counts = json.loads(Path(f"{path}.json").read_text())
        counts.pop("sha256", None)
        Path(f"{path}.json").write_text(json.dumps(counts))


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_shard_of_the_cache_is_encoded_again(config, documents, log_lines, how):
    first = prepare(config, quiet)
    kept, damaged = first.train[0].paths[:2]
    content, before = Path(damaged).read_bytes(), os.stat(kept).st_mtime_ns
    damage(damaged, how)
    again = prepare(config, quiet)
    assert f"{damaged} is damaged or gone: it is encoded again" in log_lines.lines
    assert Path(damaged).read_bytes() == content
    assert os.stat(kept).st_mtime_ns == before
    assert (again.train, again.heldout) == (first.train, first.heldout)
    log_lines.lines.clear()
    prepare(config, never)
    assert "is damaged or gone" not in str(log_lines)


@pytest.mark.parametrize("content", ["", "{", "\0" * 100])
def test_a_damaged_character_vocabulary_of_the_cache_is_built_again(config, documents, content):
    first = prepare(config, quiet)
    (path,) = Path(config.data.cache_dir).glob("vocab-*.json")
    path.write_text(content)
    assert prepare(config, never).vocab == first.vocab


@pytest.mark.parametrize("how", ["empty", "one byte", "cut", "cut by ten bytes", "no ArrayRecord"])
def test_a_shard_that_is_cut_short_is_noticed_without_a_digest(config, documents, how):
    first = prepare(config, quiet)
    content = Path(first.train[0].paths[1]).read_bytes()
    damage(first.train[0].paths[1], how, digest=False)
    again = prepare(config, quiet)
    assert Path(first.train[0].paths[1]).read_bytes() == content
    assert (again.train, again.heldout) == (first.train, first.heldout)


@pytest.mark.parametrize("how", ["empty", "cut"])
def test_a_shard_that_is_cut_while_its_time_stays_is_one_line(config, documents, how):
    train = prepare(config, quiet).train
    damage(train[0].paths[1], how)
    with pytest.raises(ValueError, match=rf"^{train[0].paths[1]} is damaged: .*; remove it: the same command encodes"):
        record_dataset(train)


@pytest.mark.parametrize("threads", [0, 2])
def test_damage_that_nobody_could_notice_before_is_one_line_when_it_is_read(config, documents, threads):
    prepared = prepare(config, quiet)
    path = prepared.train[0].paths[1]
    damage(path, "zeroed middle", digest=threads > 0, unseen=threads > 0)
    train = prepare(config, never).train
    options = {"shuffle": True, "seed": 3, "reader_threads": threads}
    with pytest.raises(ValueError, match="is damaged") as caught:
        list(record_dataset(train, **options))
    said = str(caught.value)
    assert said.startswith(f"{path} is damaged: Corrupted ")
    assert said.endswith("; remove it: the same command encodes it again")
    assert "\n" not in said
    os.remove(path)
    again = prepare(config, quiet).train
    assert again == train
    assert sum(len(record.words) for record in record_dataset(again, **options)) == train[0].stats.words


def test_damage_of_text_that_vocabularies_are_built_from_is_one_line(config, documents):
    config.data.max_length = 20
    train, _ = prepare_texts(config, "it reads text", quiet)
    damage(train[0].paths[1], "zeroed middle")
    with pytest.raises(
        ValueError, match=rf"^{train[0].paths[1]} is damaged: Corrupted .*; remove it: the same command"
    ):
        list(words_of_records(train))


def test_damaged_shards_of_the_user_are_named(config, documents, tmp_path):
    config.data.heldout = (str(tmp_path / "text" / "a.txt"),)
    folder = Path(shutil.copytree(prepare(config, quiet).train[0].folder, tmp_path / "mine"))
    config.data.train = (str(folder / "*.array_record"),)
    path = sorted(folder.glob("*.array_record"))[1]
    content = path.read_bytes()
    for how in DAMAGES:
        damage(path, how)
        message = rf"^data.train: {path} is damaged: it is not what was encoded; put a good copy in its place, or"
        with pytest.raises(ValueError, match=message):
            prepare(config, never)
        path.write_bytes(content)
    Path(f"{path}.json").unlink()
    damage(path, "cut")
    with pytest.raises(ValueError, match=rf"^data.train: {path} is not an encoded corpus of charlm: it holds no "):
        prepare(config, never)
    path.write_bytes(content)
    damage(path, "zeroed middle", digest=True)
    with pytest.raises(ValueError, match=rf"^{path} is damaged: Corrupted [^\n]*; put a good copy in its place"):
        list(record_dataset(prepare(config, never).train))


def test_foreign_shards_are_refused(config, documents, tmp_path):
    load_or_build_vocab(config).save(str(tmp_path / "vocab.json"))
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


def test_every_corpus_has_a_line_in_the_log_fresh_or_cached(config, documents, tmp_path, log_lines):
    (tmp_path / "text" / "a.txt").write_bytes(b"One two.\n\xff\n" + b"word \n" * 40)
    lines = []
    for _ in range(2):
        log_lines.lines.clear()
        data = prepare(config, quiet)
        lines.append([message for message in log_lines.lines if message.startswith("corpus ")])
    assert lines[0] == lines[1]
    assert [line.split(":")[0] for line in lines[0]] == [
        f"corpus {config.data.train[0]} (train)",
        f"corpus {config.data.train[0]} (heldout)",
    ]
    stats = data.train[0].stats
    assert f"{stats.documents:,} documents, {stats.words:,} words" in lines[0][0]
    assert f"({stats.words_cut:,}); unknown characters" in lines[0][0]
    assert "skipped documents, invalid UTF-8: " in lines[0][0]


def run_cli(*arguments):
    command = [sys.executable, "-m", "charlm.data.corpus", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def cli_arguments(config):
    return [
        "--config=charlm/config/__init__.py",
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
    assert train.split()[:2] == [config.data.train[0], "train"]
    assert heldout.split()[1] == "heldout"
    assert config.data.cache_dir in train
    assert "words/s" in result.stderr
    assert "cut words" in result.stderr


def test_command_line_errors_are_one_line(config, tmp_path):
    config.data.train = ("none.txt",)
    result = run_cli(*cli_arguments(config))
    assert result.returncode == 1
    assert result.stderr.startswith("error: data.train: 'none.txt' does not exist")
    assert result.stderr.count("\n") == 1
    for argument, message in (
        ("--config.data.trian=x", "error: unknown config key data.trian; did you mean data.train?\n"),
        ("--config.text.splitter=rule", "error: text.splitter='rule' is not one of spacy, rules, icu, reference, "),
        ("stray", "error: unexpected argument 'stray'"),
    ):
        result = corpus_command(*cli_arguments(config), argument)
        assert result.returncode == 1
        assert result.stderr.startswith(message)
        assert result.stderr.count("\n") == 1
    assert corpus_command().stderr.startswith("error: --config is missing")


def test_command_line_encodes_what_the_contextual_stage_of_char2subword_finds(config, documents):
    own = [f"--config.data.cache_dir={config.data.cache_dir}", f"--config.data.train={config.data.train[0]}"]
    own += ["--config.text.splitter=rules", "--config.data.encode_processes=1"]
    result = corpus_command("--config=configs/char2subword_base.py:tiny", *own)
    assert result.returncode == 0, result.stderr
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["split", "train", "heldout"]
    run = load_config_file(f"{ROOT}/configs/char2subword_base.py:tiny")
    run.data.train, run.data.cache_dir, run.text.splitter = config.data.train, config.data.cache_dir, "rules"
    train, heldout = prepare_texts(of_stage(run, "contextual"), "it reads text", never)
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:]] == [train[0].folder, heldout[0].folder]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("char2subword_base.py:approximation", "stage approximation of Char2Subword reads no text"),
        ("tag.py", "task=tagging: fine-tuning reads its examples as they are; there is nothing to encode"),
    ],
)
def test_command_line_says_when_there_is_nothing_to_encode(name, message):
    result = corpus_command(f"--config=configs/{name}", "--config.init_from=x", "--config.data.train=x.txt")
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_it_builds_no_vocabulary_that_the_run_takes_over(config, documents):
    run = load_config_file(f"{ROOT}/configs/charbert_base.py:tiny")
    run.data.train, run.data.cache_dir, run.data.encode_processes = config.data.train, config.data.cache_dir, 1
    run.text.splitter, run.init_from = "rules", str(release("bert"))
    assert [corpus.split for corpus in corpora_of(run)] == ["train", "heldout"]
    assert not glob.glob(f"{config.data.cache_dir}/subwords-*")
    assert glob.glob(f"{config.data.cache_dir}/terms-*")


def test_command_line_splits_lists_of_corpora(config, documents, tmp_path):
    arguments = [argument for argument in cli_arguments(config) if "data.train" not in argument]
    result = corpus_command(*arguments, f"--config.data.train={tmp_path}/text/a.txt,{tmp_path}/text/b.txt")
    assert result.returncode == 0, result.stderr
    corpora = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert corpora[:2] == [f"{tmp_path}/text/a.txt", f"{tmp_path}/text/b.txt"]
