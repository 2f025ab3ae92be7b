"""Checks the options before anything is measured, so that mistakes do not surface after a long measurement.

Open it to add a check for a new option or case.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

from charlm.benchmark import accelerator, attention_case, cases, plot, standalone
from charlm.benchmark.accelerator import ACCELERATOR
from charlm.benchmark.noises import list_of
from charlm.benchmark.paths import ATTENTION, GENERATOR, INFERENCE, PATHS, REMAT, TRAINING, check_asked, choose, missing
from charlm.benchmark.text import load_wordpiece
from charlm.data.sources import open_configured

MORE = (*cases.HLM_SETTINGS, *cases.SPELLED, GENERATOR)  # cases other than `cases.WITH_HLM`
LATER = (ATTENTION, ACCELERATOR)
READ_BY: dict[str, tuple[str, ...]] = {  # which cases read an option; for other cases the option is rejected
    **dict.fromkeys(("paths", "dtype"), (*cases.CASES, ATTENTION)),
    "smoke": (*cases.CASES, *LATER),
    "attention_kernel": cases.WITH_CONFIG,
    "bert_vocab": (*cases.WITH_HLM, *cases.SPELLED, ACCELERATOR),
    "drawn": (*cases.WITH_CONFIG, *cases.SPELLED),
    "pairs": (INFERENCE,),
    **dict.fromkeys(("batch", "words"), (INFERENCE, TRAINING, cases.MEMORY, *MORE, ATTENTION)),
    "compile": (*cases.TIMED, ACCELERATOR),
    "profile": cases.TIMED,
    "hlm_code": cases.WITH_HLM,
    "config": ("parameters", "input_pipeline", "collectives", "counts", "first_batch", *cases.WITH_CONFIG, *LATER),
    "text": ("input_pipeline", "collectives", *cases.CASES, "counts", "noises", "first_batch", ACCELERATOR),
    "repeats": ("startup", "input_pipeline", *cases.TIMED, *MORE, "noises", "first_batch", *LATER),
    "misspellings": ("noises",),
    "lengths": (cases.SCALING,),
    "remat": (TRAINING, cases.MEMORY),
}
READERS = {  # which paths read an option
    "bert_vocab": cases.uses_pieces,
    "hlm_code": lambda name: name == "authors_hlm",
    "compile": lambda name: PATHS[name].compiles,
    "profile": cases.uses_jax,
    "attention_kernel": lambda name: PATHS[name].module in ("hlm", "hlm_settings", "bert"),
    "remat": lambda name: name.endswith(REMAT),
}


def check(args: argparse.Namespace, usual: argparse.Namespace, chosen: Sequence[str]) -> None:
    """Checks the options for all chosen cases.

    Args:
      args: the options that were given.
      usual: the defaults of the options.
      chosen: the chosen cases.

    Raises:
      ValueError: no chosen case or path reads an option, a path or case cannot run, or a file cannot be read or
        written.
    """
    runners = {cases.RUNNERS_OF.get(case, case) for case in chosen if case in (*cases.CASES, ATTENTION)}
    check_asked(args.paths, runners, args.hlm_code)
    given = [option for option in READ_BY if getattr(args, option) != getattr(usual, option)]
    for option in given:
        if not set(READ_BY[option]) & set(chosen):
            readers = ", ".join(READ_BY[option])
            raise ValueError(f"{_flag(option)} is read by {readers}: choose one of these with --case")
    for option in given:
        if option in READERS:
            _check_reader(args, option, chosen)
    _check_minutes(args.minutes)
    settings = cases.settings_of(args)
    for shape in (shape for case in chosen if case in cases.CASES for shape in cases.shapes_of(case, settings)):
        if settings.drawn:
            shape.drawn_lengths()
        if settings.pairs:
            shape.check_pairs()
    if "parity" in chosen:
        standalone.check_parity()
    if ATTENTION in chosen:
        attention_case.kernels_here(settings).chosen(settings.paths)
    if args.bert_vocab:
        load_wordpiece(args.bert_vocab)
    if set(READ_BY["text"]) & set(chosen):
        config = args.config if set(READ_BY["config"]) & set(chosen) else ""
        open_configured(args.text, cases.load_config(config, args.text), "all", "--text")
    list_of(args.misspellings)
    if ACCELERATOR in chosen:
        accelerator.check(settings)
    if args.plot:
        plot.check(args.plot, [INFERENCE, *chosen] if ACCELERATOR in chosen else chosen)
    if args.profile:
        try:
            Path(args.profile).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--profile={args.profile}: {error}") from None


def _check_minutes(minutes: int | None) -> None:
    """Raises ValueError if the system has no timer for `--minutes`."""
    if minutes and not hasattr(signal, "setitimer"):
        raise ValueError("--minutes needs a timer that this system does not have: end the command by Ctrl-C")


def _check_reader(args: argparse.Namespace, option: str, chosen: Sequence[str]) -> None:
    """Raises ValueError if none of the paths that will run reads an option."""
    runners = {cases.RUNNERS_OF.get(case, case) for case in set(READ_BY[option]) & set(chosen)}
    if ACCELERATOR in runners:
        runners |= {INFERENCE, TRAINING}
    readers = [name for name, info in PATHS.items() if READERS[option](name) and runners & set(info.cases)]
    running = {name for case in runners for name in choose(case, args.paths, args.remat, args.hlm_code)[0]}
    if running & set(readers):
        return
    reasons = list(dict.fromkeys(filter(None, (missing(name, args.hlm_code) for name in readers))))
    why = reasons[0] if reasons and not args.paths else "choose one of these with --paths"
    raise ValueError(f"{_flag(option)} is read by {', '.join(readers)}, and none of these is measured: {why}")


def _flag(option: str) -> str:
    return "--no-compile" if option == "compile" else f"--{option.replace('_', '-')}"
