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
from collections.abc import Iterator
from typing import NamedTuple

from charlm import __version__
from charlm.core.called_as import called_as
from charlm.core.help_text import columns, wrapped
from charlm.core.interrupts import end_at_once
from charlm.core.nearest import did_you_mean


class Command(NamedTuple):
    """A command.

    Attributes:
      module: the module that is run.
      line: what it does.
      example: what may follow `charlm`.
      short: whether a config and settings follow in the short form of `charlm.shorthand`.
      then: what to do next, which a terminal is told at the end; "": the command says that itself.
    """

    module: str
    line: str
    example: str
    short: bool = False
    then: str = ""


COMMANDS = {
    "train": Command("charlm.main", "pre-train a model", "train hlm_base:tiny --workdir runs/hlm", short=True),
    "finetune": Command(
        "charlm.main",
        "fine-tune a model on a task",
        "finetune tag:tiny --model runs/hlm --train train.conll --workdir runs/tags",
        short=True,
    ),
    "predict": Command(
        "charlm.predict",
        "apply a model",
        'predict tag --checkpoint runs/tags "I didn\'t see teh cat."',
        then="charlm predict --help lists what models can do; < FILE reads texts, a line each",
    ),
    "show": Command(
        "charlm.show.__main__",
        "show where a model looks, as a page",
        'show --model runs/hlm "I didn\'t see teh cat." --out attention.html',
        then="open the page in a browser; charlm robustness measures what typos cost a fine-tuned model",
    ),
    "robustness": Command(
        "charlm.robustness.__main__",
        "measure what typos cost models",
        "robustness --models runs/tags --data test.conll --out runs/report",
        then="open report.html in a browser; --defence symspell measures a speller in front of the models",
    ),
    "wordrec": Command(
        "charlm.wordrec.__main__",
        "train a word recogniser, a defence against typos",
        "wordrec train wordrec:tiny --workdir runs/wordrec",
        then="charlm robustness --defence wordrec:FOLDER puts the recogniser in front of models",
    ),
    "align": Command(
        "charlm.align.__main__",
        "make a student read typos in an encoder's space",
        "align student:tiny --set init_from=runs/hlm teacher=all-MiniLM-L6-v2 --workdir runs/student",
        then="charlm retrieve --models TEACHER FOLDER measures what typos cost both",
    ),
    "search": Command(
        "charlm.search.__main__",
        "search texts by an encoder's vectors",
        "search index docs.txt --model all-MiniLM-L6-v2 --output runs/index",
        then="charlm retrieve measures what typos cost search; charlm search query asks an index",
    ),
    "cloze": Command(
        "charlm.evaluate_cloze.__main__",
        "measure how well pre-trained models guess words among typos",
        "cloze --models runs/hlm runs/bert --data heldout.txt --out runs/cloze",
        then="open report.html in a browser; --defence symspell measures a speller in front",
    ),
    "retrieve": Command(
        "charlm.evaluate_retrieval.__main__",
        "measure what typos cost search by vectors",
        "retrieve --models all-MiniLM-L6-v2 --beir scifact --out runs/retrieval",
        then="open report.html in a browser; --defence symspell-index measures a speller that knows the documents",
    ),
    "spelling": Command(
        "charlm.evaluate_spelling.__main__",
        "measure how well spellers mend misspelled words",
        "spelling --models runs/speller --typos dev.conllu --rivals symspell --out runs/spelling",
        then="read report.md; charlm predict correct mends texts",
    ),
    "plot": Command(
        "charlm.plot",
        "draw the training curves of runs",
        "plot runs/hlm runs/other --out curves.svg",
        then="open the figure; --metric chooses what is drawn",
    ),
    "league": Command(
        "charlm.league.__main__",
        "compare systems at equal budget",
        "league league:tiny --workdir runs/league",
        then="open report.html in a browser; the same command goes on with what the config gains",
    ),
    "convert": Command(
        "charlm.convert.__main__",
        "bring weights from PyTorch and back",
        "convert import --input bert-base-cased --output runs/bert",
        then="charlm predict --help lists what a model can do; charlm finetune teaches it a task",
    ),
    "export": Command(
        "charlm.export.__main__",
        "write a model for programs without charlm",
        "export --model runs/tags --output exported",
        then="the folder's README.md, where it has one, shows how to use it; charlm serve answers over HTTP instead",
    ),
    "ship": Command(
        "charlm.ship.__main__",
        "pack a model with a model card",
        "ship --checkpoint runs/tags --output hlm-tags --about about.json",
        then="charlm predict --help lists what the packed model can do",
    ),
    "plan": Command(
        "charlm.plan.__main__",
        "tell what a run needs elsewhere",
        "plan hlm_base --topology v5e:4x4",
        short=True,
        then="charlm train and charlm finetune start a run",
    ),
    "bench": Command(
        "charlm.benchmark.__main__",
        "measure speed beside other models",
        "bench --case inference",
        then="charlm bench --from FILE --plot FILE.png draws what --output has written",
    ),
    "stats": Command(
        "charlm.statistics.__main__",
        "measure texts, and count parameters",
        "stats --model runs/hlm",
        then="charlm plan CONFIG tells what a run needs",
    ),
    "serve": Command("charlm.serve.__main__", "answer requests over HTTP", "serve --model runs/hlm --port 8000"),
    "models": Command(
        "charlm.models",
        "list the families, configs and trained models",
        "models",
        then="charlm train CONFIG or charlm finetune CONFIG; names of trained models stand wherever a folder may",
    ),
    "doctor": Command(
        "charlm.doctor",
        "tell what is installed, and what for",
        "doctor",
        then="charlm models lists what there is to train and to use",
    ),
}
_HELP = ("-h", "--help", "-help", "--helpfull", "--helpshort")


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns the exit status, unless the command ends the process itself with one.

    Args:
      argv: what follows `charlm`; None: the arguments of the process.
    """
    if argv is None:
        end_at_once()  # until the command's module is imported and takes care of Ctrl-C itself
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if arguments[:1] == ["help"] and arguments[1:2] and arguments[1] in COMMANDS:
            return _run(arguments[1], ["--help"])
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
        with called_as(f"charlm {name}"), _telling(command.then):
            return _run_module(command.module, arguments)
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text), called_as(f"charlm {name}"):
            return _run_module(command.module, arguments)
    finally:
        called = f"python -m {command.module.removesuffix('.__main__')}"
        print(text.getvalue().replace(called, f"charlm {name}"), end="", flush=True)


@contextlib.contextmanager
def _telling(then: str) -> Iterator[None]:
    """Tells a terminal what to do next, if the command succeeds; what is piped stays as it is."""
    try:
        yield
    except SystemExit as ended:
        if ended.code:
            raise
        _tell(then)
        raise
    _tell(then)


def _tell(then: str) -> None:
    if then and sys.stdout.isatty() and sys.stderr.isatty():
        print(wrapped(f"next: {then}", columns()), file=sys.stderr, flush=True)


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
