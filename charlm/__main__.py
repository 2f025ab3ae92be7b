"""The command `charlm`, also run as python -m charlm: one name for all that charlm does on a command line.

Each of its commands is a module that `python -m` runs, too, and is run here in the same way. `charlm.shorthand` turns
what follows `train`, `finetune` and `plan` into the flags of that module. Open it to add a command.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from typing import NamedTuple

from charlm import __version__
from charlm.core.nearest import did_you_mean


class Command(NamedTuple):
    """A command.

    Attributes:
      module: the module that is run.
      line: what it does.
      example: what may follow `charlm`.
      short: whether a config and settings follow in the short form of `charlm.shorthand`.
    """

    module: str
    line: str
    example: str
    short: bool = False


COMMANDS = {
    "train": Command("charlm.main", "pre-train a model", "train hlm_base:tiny --workdir runs/hlm", short=True),
    "finetune": Command(
        "charlm.main",
        "fine-tune a model on a task",
        "finetune tag:tiny --model runs/hlm --train train.conll --workdir runs/tags",
        short=True,
    ),
    "predict": Command(
        "charlm.predict", "apply a model", 'predict tag --checkpoint runs/tags "I didn\'t see teh cat."'
    ),
    "robustness": Command(
        "charlm.robustness.__main__",
        "measure what typos cost models",
        "robustness --models runs/tags --data test.conll --out runs/report",
    ),
    "league": Command(
        "charlm.league.__main__",
        "compare systems at equal budget",
        "league league:tiny --workdir runs/league",
    ),
    "convert": Command(
        "charlm.convert.__main__",
        "bring weights from PyTorch and back",
        "convert import --input bert-base-cased --output runs/bert",
    ),
    "ship": Command(
        "charlm.ship.__main__",
        "pack a model with a model card",
        "ship --checkpoint runs/tags --output hlm-tags --about about.json",
    ),
    "plan": Command(
        "charlm.plan.__main__",
        "tell what a run needs elsewhere",
        "plan hlm_base --topology v5e:4x4",
        short=True,
    ),
    "bench": Command("charlm.benchmark.__main__", "measure speed beside other models", "bench --case inference"),
    "stats": Command(
        "charlm.statistics.__main__",
        "measure texts, and count parameters",
        "stats --model runs/hlm",
    ),
    "serve": Command("charlm.serve.__main__", "answer requests over HTTP", "serve --model runs/hlm --port 8000"),
    "models": Command("charlm.models", "list the families, configs and trained models", "models"),
    "doctor": Command("charlm.doctor", "tell what is installed, and what for", "doctor"),
}
_HELP = ("-h", "--help", "-help", "--helpfull", "--helpshort")


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns the exit status, unless the command ends the process itself with one.

    Args:
      argv: what follows `charlm`; None: the arguments of the process.
    """
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if not arguments or arguments[0] in (*_HELP, "help"):
            print(_usage(), flush=True)
            return 0
        name, *rest = arguments
        if name in ("-V", "--version"):
            print(f"charlm {__version__}", flush=True)
            return 0
        if name not in COMMANDS:
            return _fail(f"unknown command {name!r}{did_you_mean(name, COMMANDS)}; charlm --help lists them")
        return _run(name, rest)
    except BrokenPipeError:  # the reader of a pipe stopped, as in --help | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _usage() -> str:
    """Returns the help text: each command with what it does, then an example of each."""
    lines = [f"charlm {__version__}: language models that look inside words", "", "commands:"]
    lines += [f"  {name:<11} {command.line}" for name, command in COMMANDS.items()]
    lines += ["", "for example:"]
    lines += [f"  charlm {command.example}" for command in COMMANDS.values()]
    return "\n".join([*lines, "", "charlm COMMAND --help explains a command."])


def _run(name: str, arguments: list[str]) -> int:
    command = COMMANDS[name]
    asks = any(argument in _HELP for argument in arguments)
    if command.short:
        from charlm import shorthand  # imported late: the help of the other commands need not wait for it

        if asks:
            print(shorthand.usage(name, command.module.removesuffix(".__main__")), flush=True)
            return 0
        try:
            arguments = shorthand.flags_of(name, arguments)
        except ValueError as error:
            return _fail(str(error))
    if not asks:
        return _run_module(command.module, arguments)
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            return _run_module(command.module, arguments)
    finally:
        called = f"python -m {command.module.removesuffix('.__main__')}"
        print(text.getvalue().replace(called, f"charlm {name}"), end="", flush=True)


def _run_module(module: str, arguments: list[str]) -> int:
    """Runs a module as `python -m` does; most of them end the process with their exit status."""
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
