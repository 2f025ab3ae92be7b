"""The cases that measure several paths in turn, each in a process of its own: from settings and text to figures.

Open it to add a case or to change its settings; `standalone` and `counts` have the cases without workers.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import ml_collections

from charlm.benchmark import text as texts_of
from charlm.benchmark.figures import Figure, about_machine, ratios, speeds
from charlm.benchmark.paths import (
    CALLS,
    CHARBERT,
    FULL_MODE,
    GENERATOR,
    INFERENCE,
    JOINED,
    PAGES,
    PATHS,
    TRAINING,
    Job,
    choose,
)
from charlm.benchmark.rounds import WorkerAnswers, measure
from charlm.benchmark.text import CONSECUTIVE, DRAWN, FREQUENT, PAIRS, Corpus, TextShape
from charlm.config import get_config, load_config_file
from charlm.core.types import Option

log = logging.getLogger("charlm")

SHAPES = {
    INFERENCE: TextShape(32, 46),  # MRPC at batch 32, as HLM's paper (section 4.5)
    TRAINING: TextShape(4, 128),
    JOINED: TextShape(64, 24),  # sentences
    FULL_MODE: TextShape(32, 46),
    CHARBERT: TextShape(32, 46),
    CALLS: TextShape(128, 160),  # paragraphs
    PAGES: TextShape(4, 128),
    GENERATOR: TextShape(16, 64),  # steps, and the words of each
}
LENGTHS = (64, 128, 256, 512, 1024, 2048)
SCALING, MEMORY = "scaling", "memory"
WITH_HLM = (INFERENCE, TRAINING, SCALING, MEMORY)
HLM_SETTINGS = (CALLS, PAGES)  # cases that compare settings of HLM, without other models
WITH_CONFIG = (*WITH_HLM, *HLM_SETTINGS)  # cases that a config of HLM sets
SPELLED = (JOINED, FULL_MODE, CHARBERT)  # cases of models that add characters to a BERT
CASES = (*WITH_HLM, *HLM_SETTINGS, *SPELLED, GENERATOR)
TIMED = (INFERENCE, TRAINING, SCALING)  # timed cases of HLM; only here PyTorch may be compiled and JAX traced
RUNNERS_OF = {SCALING: INFERENCE, MEMORY: TRAINING}  # cases that use the runners of another case
BUDGET_SHARDS = 24  # number of batches of text on which training budgets are measured
PUBLISHED, SMOKE = "published shapes, random weights", "smoke"
VOCABULARY = 25_000  # number of words of XRayEmb's cycles (Pinter et al., 2021, section 4)
LONGEST = 20  # maximum characters of a word; XRayEmb cuts longer words
MEMORY_RUNS = 2


@dataclasses.dataclass(frozen=True)
class BenchmarkSettings:
    """The settings of a measurement; the fields are the options of the command line."""

    config: str
    text: str
    repeats: int
    paths: tuple[str, ...] = ()
    batch: int | None = None
    words: int | None = None
    lengths: tuple[int, ...] = LENGTHS
    drawn: bool = False
    pairs: bool = False
    remat: bool = False
    dtype: str = "float32"
    bert_vocab: str = ""
    hlm_code: str = ""
    compile: bool = True
    smoke: bool = False
    profile: str = ""
    attention_kernel: str = ""


def settings_of(args: argparse.Namespace) -> BenchmarkSettings:
    """Returns the settings among the options of the command line."""
    names = {field.name for field in dataclasses.fields(BenchmarkSettings)}
    chosen: dict[str, Option] = {name: value for name, value in vars(args).items() if name in names}
    chosen |= {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
    chosen["drawn"] = args.drawn or args.pairs
    return BenchmarkSettings(**chosen)


class Outcome(NamedTuple):
    """The outcome of a case: its figures, why paths died (by path), and the interruption that stopped it, if any."""

    figures: list[Figure]
    died: dict[str, str]
    stopped: KeyboardInterrupt | None = None


def load_config(spec: str, text: str = "builtin") -> ml_collections.ConfigDict:
    """Returns the config of "path/to/file.py[:variant]", or by default the usual one, with one corpus.

    The splitter is "rules". A corpus other than the built-in one is also the held-out text.

    Raises:
      ValueError: the config does not exist.
    """
    config = load_config_file(spec) if spec else get_config()
    config.text.splitter = "rules"
    config.data.train = (text,)
    if text != "builtin":
        config.data.heldout = (text,)  # all of it may be used for measurements, since no model is trained
    return config


def shapes_of(case: str, settings: BenchmarkSettings) -> list[TextShape]:
    """Returns the shapes of the batches of a case.

    All batches of scaling have equally many words: as many as the longest text, or twice as many for drawn texts, since
    a batch of one text cannot vary in length.

    Raises:
      ValueError: a length does not divide the longest length.
    """
    if case == SCALING:
        longest = max(settings.lengths)
        if any(longest % length for length in settings.lengths):
            raise ValueError(f"--lengths: each must divide the longest, {longest}, for equal words a batch")
        return [TextShape((1 + settings.drawn) * longest // length, length) for length in settings.lengths]
    usual = SHAPES[RUNNERS_OF.get(case, case)]
    return [TextShape(settings.batch or usual.batch, settings.words or usual.words)]


def run(case: str, settings: BenchmarkSettings) -> Outcome:
    """Runs a case and returns its outcome; after an interruption, it has the figures of the finished rounds.

    The paths must have been checked before (`charlm.benchmark.checks`).

    Raises:
      ValueError: the text or the vocabulary is not available.
    """
    runners = RUNNERS_OF.get(case, case)
    names, left_out = choose(runners, settings.paths, settings.remat, settings.hlm_code)
    if settings.dtype != "float32" and not settings.paths:
        left_out |= {name: "it computes in float32 or int8 alone" for name in names if uses_onnx(name)}
        names = [name for name in names if name not in left_out]
    for name, reason in left_out.items():
        log.info("%s: %s is skipped: %s", case, name, reason)
    reads_config = case in WITH_CONFIG
    corpus = Corpus(load_config(settings.config if reads_config else "", settings.text))
    shapes = shapes_of(case, settings)
    texts = [_texts(case, settings, corpus, shape) for shape in shapes]
    about = _about(case, settings, texts)
    with tempfile.TemporaryDirectory() as folder:
        jobs = _jobs(case, names, settings, corpus, shapes, texts, Path(folder))
        worker = [sys.executable, "-m", "charlm.benchmark.worker"]
        commands = {name: [*PATHS[name].under, *worker, str(job)] for name, job in jobs.items()}
        if case == MEMORY:
            measured = _one_after_another(commands)
        else:
            traced = [name for name in names if uses_jax(name)] if settings.profile and case in TIMED else []
            traces = {name: Path(settings.profile) / case / name for name in traced}
            measured = measure(commands, len(shapes), settings.repeats, traces)
    if case == MEMORY:
        figures = _peaks(measured, shapes[0], about[0])
    else:
        figures = speeds(case, measured, shapes, about) + ratios(case, measured, shapes, about)
    return Outcome(figures, measured.died, measured.stopped)


def _texts(case: str, settings: BenchmarkSettings, corpus: Corpus, shape: TextShape) -> list[str]:
    """Returns the texts of a batch; for the generator, the words of its steps."""
    if case == GENERATOR:
        return corpus.frequent(shape, VOCABULARY, LONGEST)
    if settings.pairs:
        return corpus.pairs(shape)
    return corpus.drawn(shape)[0] if settings.drawn else corpus.texts(shape)


def _about(case: str, settings: BenchmarkSettings, texts: list[list[str]]) -> list[Figure]:
    """Returns, for each batch, the fields of all its figures: every choice that distinguishes two measurements."""
    chosen = {
        "text": settings.text,
        "texts": PAIRS if settings.pairs else DRAWN if settings.drawn else CONSECUTIVE,
        "models": SMOKE if settings.smoke else PUBLISHED,
        "config": settings.config,
        "dtype": settings.dtype,
        "attention_kernel": settings.attention_kernel,
        "wordpiece": settings.bert_vocab or texts_of.TRAINED,
        "compile": settings.compile,
    }
    machine = about_machine()  # before the workers start, so that the load is that of other programs
    if case not in WITH_HLM:
        del chosen["compile"]
    if case not in WITH_CONFIG:
        del chosen["attention_kernel"]
    if case in HLM_SETTINGS:
        del chosen["wordpiece"]
    elif case not in WITH_HLM:
        chosen["config"] = ""
    if case == GENERATOR:
        del chosen["wordpiece"]
        return [chosen | {"texts": FREQUENT} | machine for _ in texts]
    return [{"distinct_words": round(texts_of.distinct_share(group), 3)} | chosen | machine for group in texts]


def uses_jax(name: str) -> bool:
    """Says whether a path runs in JAX."""
    return not PATHS[name].packages


def uses_onnx(name: str) -> bool:
    """Says whether a path runs in onnxruntime."""
    return "onnxruntime" in PATHS[name].packages


def uses_pieces(name: str) -> bool:
    """Says whether a path uses the WordPiece tokenizer: for its pieces, or to normalise words."""
    return name in ("hf_bert", "hf_bert_sorted") or PATHS[name].module in ("bert", "onnx_peers", "spelled", "charbert")


def _jobs(
    case: str,
    names: Iterable[str],
    settings: BenchmarkSettings,
    corpus: Corpus,
    shapes: list[TextShape],
    texts: list[list[str]],
    folder: Path,
) -> dict[str, Path]:
    """Writes the job file of each worker and returns the files by path; all workers have the same texts."""
    runners = RUNNERS_OF.get(case, case)
    if any(map(uses_pieces, names)):
        tokenizer = texts_of.load_wordpiece(settings.bert_vocab) if settings.bert_vocab else corpus.wordpiece()
        tokenizer.save(folder / "wordpiece")
    chars = corpus.chars().to_dict() if case in (*WITH_CONFIG, FULL_MODE) else {}
    budget_texts: list[list[str]] = []
    if runners in (TRAINING, PAGES) and settings.drawn:
        budget_texts = corpus.drawn(shapes[0], BUDGET_SHARDS)
    elif runners in (TRAINING, PAGES):
        budget_texts = [[corpus.stretch(BUDGET_SHARDS * shapes[0].batch * shapes[0].words)]]
    paths = {}
    for name in names:
        job = Job(
            path=name,
            case=runners,
            texts=texts,
            words=[max(shape.drawn_lengths()) if settings.drawn else shape.words for shape in shapes],
            drawn=settings.drawn,
            chars=chars,
            tokenizer=str(folder / "wordpiece"),
            budget_texts=budget_texts,
            config=settings.config,
            dtype=settings.dtype,
            smoke=settings.smoke,
            compile=settings.compile and case != MEMORY,
            hlm_code=settings.hlm_code,
            attention_kernel=settings.attention_kernel if case in WITH_CONFIG else "",
        )
        paths[name] = folder / f"{name}.json"
        job.save(paths[name])
    return paths


def _one_after_another(commands: dict[str, list[str]]) -> WorkerAnswers:
    """Measures the paths one after another, so that no two have to fit into memory together."""
    whole = WorkerAnswers()
    for name, command in commands.items():
        alone = measure({name: command}, 1, MEMORY_RUNS)
        for field in ("ready", "tokens", "work", "rounds", "peaks", "died"):
            getattr(whole, field).update(getattr(alone, field))
        if alone.stopped:
            whole.stopped = alone.stopped
            break
    return whole


def _peaks(measured: WorkerAnswers, shape: TextShape, about: Figure) -> list[Figure]:
    """Returns the peak memory of training steps for each path: of the process, and of the accelerator if any."""
    figures = []
    for path, peaks in measured.peaks.items():
        setup = measured.ready[path] | about | {"batch": str(shape), "of": TRAINING}
        values = {"MiB peak resident": peaks["peak_mib"]}
        if peaks["device_peak_bytes"] is not None:
            values["MiB peak on the device"] = round(peaks["device_peak_bytes"] / 2**20)
        figures += [{"case": MEMORY, "path": path, "value": v, "unit": unit} | setup for unit, v in values.items()]
    return figures
