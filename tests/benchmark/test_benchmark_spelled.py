"""Tests the cases `joined_words`, `full_mode` and `generator` of the benchmark."""

from __future__ import annotations

import json
from collections import Counter

import jax
import numpy as np
import pytest
from benchmark_jobs import corpus, small_job
from small_run import write_text

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import report, worker
from charlm.benchmark.bert import subwords
from charlm.benchmark.generator import Generator, lengths_of, rows_of_words, tables_of
from charlm.benchmark.paths import FULL_MODE, GENERATOR, JOINED, PATHS, Job
from charlm.benchmark.spelled import FullMode, JoinedWords, SubwordTable
from charlm.benchmark.text import TextShape
from charlm.convert.rules import build_table, export_state
from charlm.families.xrayemb.chars import XRAY_SLOTS
from charlm.families.xrayemb.tensors import decoder_rules
from charlm.text.subwords import SubwordTokenizer
from charlm.text.words import RulesSplitter

pytestmark = pytest.mark.usefixtures("log_lines")

STEPS = TextShape(5, 24)
# Of none of these words the trained vocabulary of the small corpus has a whole piece.
RARE = "unquestionably parenthesised words, sesquipedalian ones"


def generator_job(folder, path, **fields) -> Job:
    steps = corpus(folder).frequent(STEPS, 1000, 20)
    return small_job(folder, path, GENERATOR, texts=[steps], words=[STEPS.words], **fields)


DRIVEN = [name for name, info in PATHS.items() if info.module in ("bert", "spelled", "generator")]


@pytest.mark.parametrize("path", DRIVEN)
def test_every_path_is_driven_by_the_worker(tmp_path, path):
    for case in PATHS[path].cases:
        if case in (JOINED, FULL_MODE, GENERATOR):
            job = generator_job(tmp_path, path) if case == GENERATOR else small_job(tmp_path, path, case)
            job.save(tmp_path / "job.json")
            runner, hosts = worker.prepare(Job.load(str(tmp_path / "job.json")))
            times = worker.go(runner, job, hosts, 0)
            assert set(times) == {"seconds", "cpu_seconds"}
            mean, padded = runner.tokens(hosts[0])
            assert 0 < mean <= padded


def test_joined_words_have_one_position(tmp_path):
    found = {}
    for path in ("policy_all_multi", "policy_none"):
        job = small_job(tmp_path, path, JOINED)
        job.texts = [[RARE, "the cat"]]
        runner = JoinedWords(job)
        host = runner.tokenise(job.texts[0], 14)
        runner.warm(host)
        found[path] = (runner, host, runner.run(host))
        assert runner.about["subwords_a_word"] == found["policy_all_multi"][0].about["subwords_a_word"] > 1.5
    (joined, host, theirs), (plain, _, ours) = found.values()
    # "words" and "," are two words to BERT: one position each.
    assert joined.tokens(host)[1] == 2 + 6
    pieces = subwords(SubwordTokenizer.load(plain.job.tokenizer), host)[1].sum(axis=1)
    assert plain.tokens(host) == (pieces.mean(), pieces.max())
    assert joined.tokens(host)[0] < plain.tokens(host)[0]
    assert [encoded.words for encoded in ours] == [encoded.words for encoded in theirs]
    # All words that are read as characters come from the cache; without the policy there are none.
    stats = joined.predictor.cache.stats
    joined.run(host)
    assert joined.predictor.cache.stats._replace(hits=0) == stats._replace(hits=0)
    assert joined.predictor.cache.stats.hits > stats.hits > 0
    assert plain.predictor.cache.stats.words == 0


def test_full_mode_with_a_cache_gives_what_it_gives_without(tmp_path):
    job = small_job(tmp_path, "full_cached", FULL_MODE, TextShape(3, 14), drawn=True)
    runner = FullMode(job)
    ids_BL, mask_BL = runner.tokenise(job.texts[0], job.words[0])
    assert mask_BL.sum() == 3 * 14
    assert (ids_BL[:, 1:-1][mask_BL[:, 2:]] < 0).all()  # every word is spelled
    runner.warm((ids_BL, mask_BL))
    misses = runner.cache.stats.misses
    cached = np.asarray(runner.run((ids_BL, mask_BL)))
    assert runner.cache.stats.misses == misses == len(np.unique(ids_BL[ids_BL < 0]))
    runner.cache = None
    whole = np.asarray(runner.run((ids_BL, mask_BL)))
    np.testing.assert_allclose(cached[mask_BL], whole[mask_BL], atol=1e-5)
    assert np.ptp(whole[mask_BL], axis=0).max() > 0.1


def test_the_table_is_read_at_as_many_positions(tmp_path):
    job = small_job(tmp_path, "subword_table", FULL_MODE, TextShape(3, 14), drawn=True)
    job.texts[0][0] = RARE
    runner, spelled = SubwordTable(job), FullMode(small_job(tmp_path, "full_cached", FULL_MODE))
    ids_BL, mask_BL = runner.tokenise(job.texts[0], job.words[0])
    assert (mask_BL == spelled.tokenise(job.texts[0], job.words[0])[1]).all()
    tokenizer = SubwordTokenizer.load(job.tokenizer)
    first = [tokenizer.encode(word).ids[1] for word in RARE.replace(",", " ,").split()]
    assert ids_BL[0][mask_BL[0]].tolist() == [tokenizer.special.cls, *first, tokenizer.special.sep]
    ids_BL[~mask_BL] = 7  # what stands in the padding makes no difference
    states = np.asarray(runner.run((ids_BL, mask_BL)))
    alone = np.asarray(runner.run((ids_BL[:1, : mask_BL[0].sum()], mask_BL[:1, : mask_BL[0].sum()])))
    np.testing.assert_allclose(states[0, mask_BL[0]], alone[0], atol=1e-5)


def test_words_are_frequent_ones_and_the_same_for_all(tmp_path):
    found = corpus(tmp_path)
    steps = found.frequent(STEPS, 10, 5)
    assert [len(step.split()) for step in steps] == [STEPS.words] * STEPS.batch
    words = {word for step in steps for word in step.split()}
    assert len(words) == 10  # all of them, so often are they drawn
    assert max(map(len, words)) <= 5
    lines = (tmp_path / "text.txt").read_text().splitlines()
    counts = Counter(line[start:end] for line in lines for start, end in RulesSplitter().spans(line))
    fitting = {word: count for word, count in counts.items() if len(word) <= 5}
    assert len(fitting) > 10
    assert max(map(len, counts)) > 5
    assert sum(map(counts.get, words)) == sum(sorted(fitting.values())[-10:])
    assert found.frequent(STEPS, 10, 5) == steps
    drawn = found.frequent(TextShape(200, 30), 100, 20)
    longer = np.array(
        [(np.array([len(word) for word in step.split()])[:, None] > np.arange(20)).sum(0) for step in drawn]
    )
    assert np.abs(longer - longer.mean(axis=0)).max() < 1  # every draw has the lengths of all
    assert len(set(drawn)) > 190
    with pytest.raises(ValueError, match="no word of at most 0 characters"):
        found.frequent(STEPS, 10, 0)


def test_tables_hold_every_word_once():
    rng = np.random.default_rng(0)
    chars_UC = np.zeros((40, 22), np.uint16)
    for row in chars_UC:
        n = rng.integers(3, 23)
        row[:n] = rng.integers(1, 90, n)
    met = []
    for chars_KC, word_K in tables_of(chars_UC, (8, 12, 22), (8, 12, 24)):
        real = word_K >= 0
        assert (chars_KC[~real] == 0).all()
        assert (chars_UC[word_K[real], : chars_KC.shape[1]] == chars_KC[real]).all()
        assert lengths_of(chars_UC)[word_K[real]].max(initial=0) <= chars_KC.shape[1]
        met += word_K[real].tolist()
    assert sorted(met) == list(range(40))
    with pytest.raises(ValueError, match=r"\d+ of 40 words find no room"):
        tables_of(chars_UC, (8, 12, 22), (8, 8, 16))


def test_one_table_and_several_give_the_same_loss_and_gradients(tmp_path):
    found = {}
    for path in ("generator_slots", "generator_buckets"):
        runner = Generator(generator_job(tmp_path, path))
        host = runner.tokenise(runner.job.texts[0], STEPS.words)
        losses = np.array(runner.run(host))
        found[path] = runner, losses
        assert len(losses) == STEPS.batch
        assert np.ptp(losses) > 0
    (one, ours), (several, theirs) = found.values()
    assert (one.slots, one.rows) == ((XRAY_SLOTS,), (24,))
    assert len(several.slots) > 1
    assert several.tokens(host)[0] == one.tokens(one.tokenise(one.job.texts[0], STEPS.words))[0]
    assert several.tokens(host)[1] < 24 * XRAY_SLOTS
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(
        ours, np.log(one.config.char_vocab_size - 1), rtol=0.1
    )  # nats a character, nothing learned
    for a, b in zip(*(jax.tree.leaves(runner.gradients[0]) for runner in (one, several)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
        assert np.abs(a).max() > 1e-5
    assert sum(len(vectors_KD) for vectors_KD in several.gradients[1]) == sum(several.rows)


@pytest.mark.torch
@pytest.mark.parametrize("path", ["torch_packed", "torch_padded", "torch_cut"])
def test_pytorchs_generator_computes_the_same(tmp_path, path):
    """Our weights under the released names: the losses of all steps, and gradients of the last one."""
    torch = pytest.importorskip("torch")
    from charlm.benchmark.torch_generator import TorchGenerator

    ours, theirs = Generator(generator_job(tmp_path, "generator_slots")), TorchGenerator(generator_job(tmp_path, path))
    table = build_table(decoder_rules(), ours.params)
    state = export_state(table, (), ours.params)
    theirs.model.load_state_dict({name: torch.tensor(np.asarray(value)) for name, value in state.items()})
    texts = ours.job.texts[0]
    mine, host = ours.tokenise(texts, STEPS.words), theirs.tokenise(texts, STEPS.words)
    theirs.warm(host)
    assert theirs.about["torch_compile"] == "not tried"
    np.testing.assert_allclose(ours.run(mine), [float(loss) for loss in theirs.run(host)], rtol=1e-5)
    params, (vectors_KD,) = ours.gradients
    gradients = export_state(table, (), params)
    for name, parameter in theirs.model.named_parameters():
        np.testing.assert_allclose(parameter.grad.numpy(), np.asarray(gradients[name]), atol=1e-6, err_msg=name)
    # Both lay words out by length, one of them shortest first.
    length_U = lengths_of(rows_of_words(ours.job, texts)[-1])
    mine, other = np.argsort(length_U, kind="stable"), np.argsort(-length_U, kind="stable")
    got = theirs.vectors.grad.numpy()
    np.testing.assert_allclose(got[np.argsort(other)], np.asarray(vectors_KD)[np.argsort(mine)], atol=1e-6)
    mean, computed = theirs.tokens(host)
    longest = [int(lengths_of(rows).max()) for rows in rows_of_words(ours.job, texts)]
    expected = {"torch_padded": XRAY_SLOTS, "torch_cut": sum(longest) / STEPS.batch, "torch_packed": mean / STEPS.words}
    assert computed == pytest.approx(STEPS.words * expected[path], abs=1)
    assert mean == ours.tokens(ours.tokenise(texts, STEPS.words))[0]


@pytest.mark.slow
def test_figures_of_the_new_cases(capsys, tmp_path):
    """From the command to the figures, each path in a process of its own."""
    text, output = write_text(tmp_path / "text.txt"), tmp_path / "out.jsonl"
    arguments = ["--case=joined_words", "--case=generator", "--smoke", "--repeats=2", "--batch=3", "--words=12",
                 "--paths", "policy_all_multi", "policy_none", "generator_buckets", "generator_slots"]  # fmt: skip
    assert benchmark.main([*arguments, f"--text={text}", f"--output={output}"]) == 0
    found = {figure["path"]: figure for figure in map(json.loads, output.read_text().splitlines())}
    assert list(found) == [
        "policy_all_multi", "policy_none", "policy_all_multi / policy_none",
        "generator_buckets", "generator_slots", "generator_buckets / generator_slots",
    ]  # fmt: skip
    for path, one in found.items():
        assert one["low"] <= one["value"] <= one["high"]
        assert (one["case"], one["batch"]) == (GENERATOR if "generator" in path else JOINED, "3 x 12 words")
        assert (one["rounds"], one["models"], one["text"], one["config"]) == (2, "smoke", str(text), "")
        assert {"date", "processor", "threads", "load", "dtype", "versions", "device", "spread"} <= set(one)
        assert one["texts"] == ("frequent words" if "generator" in path else "consecutive")
        assert "compile" not in one
        assert ("wordpiece" in one) == ("subwords_a_word" in one) == (one["case"] == JOINED)
        if " / " in path:
            assert one["unit"] == "x"
            assert one["tokens_of"] == {name: found[name]["tokens"] for name in path.split(" / ")}
        else:
            assert one["unit"] == "words/s"
            assert one["value"] == pytest.approx(36 / one["seconds"], rel=0.05)
    assert found["generator_slots"]["tables"] == f"12 x {XRAY_SLOTS}"
    printed = capsys.readouterr().out
    assert printed == report.table(report.read(str(output)))
    assert "generator (3 x 12 words) on " in printed
    assert "tiny models: no measurement, frequent words, float32" in printed
    assert f"{found['policy_none']['subwords_a_word']} subwords a word" in printed
    assert "times as fast as (3 x 12 words)  policy_none" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case=generator", "--drawn"], "--drawn is read by inference, training_step, scaling, memory, calls, pages"),
        (["--case=generator", "--bert-vocab=v.txt"], "--bert-vocab is read by inference, training_step, scaling,"),
        (["--case=joined_words", "--config=configs/hlm_large.py"], "--config is read by parameters, input_pipeline"),
        (["--case=full_mode", "--no-compile"], "--no-compile is read by inference, training_step, scaling, acc"),
        (["--case=full_mode", "--profile=traces"], "--profile is read by inference, training_step, scaling: choose"),
        (["--case=generator", "--hlm-code=there"], "--hlm-code is read by inference, training_step, scaling, memory: "),
        (["--case=joined_words", "--lengths", "4"], "--lengths is read by scaling"),
        (["--case=generator", "--paths", "policy_none"], "--paths: policy_none is a path of joined_words only"),
        (
            ["--case=joined_words", "--paths", "bert"],
            "bert is a path of inference and training_step and full_mode and charbert only",
        ),
        (["--case=joined_words", "--batch=1", "--drawn"], "--drawn: 1 x 24 words cannot vary in length"),
    ],
)
def test_what_nothing_would_read_is_refused(capsys, arguments, message):
    assert benchmark.main(arguments) == 1
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith(f"error: {message}") or message in error
