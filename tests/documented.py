"""Reads the code of pages: their blocks in order, which of them run, and the commands of charlm in them.

A block of bash or Python runs unless a comment stands on the line before it: <!-- not run: needs a pod -->. Output and
what is only shown is in blocks of text.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from _pytest.mark.expression import Expression

from charlm import shorthand
from charlm.__main__ import COMMANDS
from charlm.config import flatten, load_config_file

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^(?:<!-- not run: (.+?) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRAMS = ("launch/local.sh", "launch/slurm.sh", "launch/tpu_pod.sh", "launch/kubernetes.sh")
SHORT = {name for name, command in COMMANDS.items() if command.short}


class Block(NamedTuple):
    """A block of code; `why` says why it is not run, "" if it is."""

    why: str
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    """Returns the bash and Python of a page, in order."""
    found = [Block(*match.groups("")) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]
    return [block for block in found if block.language in ("bash", "python")]


def commands(code: str) -> list[list[str]]:
    """Returns the words of each command of charlm in a block of bash, from `charlm`, `charlm.MODULE` or a script on."""
    found = []
    for line in re.sub(r"\\\n", " ", code).splitlines():
        words = shlex.split(line, comments=True)
        for at, word in enumerate(words):
            if word == "-m" and words[at + 1].startswith("charlm"):
                found.append(words[at + 1 :])
            elif (word == "charlm" and words[at - 1] != "-m") or word in PROGRAMS:
                found.append(words[at:])
    return [_alone(command) for command in found]


def _alone(words: list[str]) -> list[str]:
    """Returns a command without what follows it in its line."""
    end = next((at for at, word in enumerate(words) if word in ("&&", "||", "|", ";", ">", "<", "&", "done")), None)
    return [word.removesuffix(";") for word in words[:end]]


def mistakes(command: list[str]) -> list[str]:
    """Returns what is wrong with a command: a config, variant, key, module, command or option that does not exist."""
    name, *rest = command
    if name == "charlm":
        if rest[:1] and rest[0].startswith("-"):
            return []
        if not rest or rest[0] not in COMMANDS:
            return [f"no command charlm {' '.join(rest[:1])}"]
        module = COMMANDS[rest[0]].module
        arguments = rest[1:]
        if rest[0] in SHORT:
            try:
                arguments = shorthand.flags_of(rest[0], arguments)
            except ValueError as error:
                return [str(error)]
        return [*wrong_options(module, arguments), *wrong_config(arguments)]
    if name in PROGRAMS:
        script = (ROOT / name).read_text(encoding="utf-8")
        flags = [word.partition("=")[0] for word in rest if word.startswith("--") and not word.startswith("--config.")]
        return [f"{name} has no {flag}" for flag in flags if flag not in script] + wrong_config(rest)
    return [*wrong_options(name, rest), *wrong_config(rest)]


def wrong_options(module: str, arguments: list[str]) -> list[str]:
    """Returns the options that nothing in a module's room, nor what all commands share, names."""
    path = ROOT / module.removesuffix(".__main__").replace(".", "/")
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    if not files or not files[0].is_file():
        return [f"no module {module}"]
    shared = [*(ROOT / "charlm" / "families").rglob("*.py"), ROOT / "charlm" / "shorthand.py"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in [*files, *shared])
    options = [word.partition("=")[0] for word in arguments if re.match(r"--[a-z]", word)]
    names = [option.removeprefix("--") for option in options if not option.startswith("--config")]
    # As argparse, absl and the tables of options write them.
    return [
        f"{module} has no --{name}"
        for name in names
        if not re.search(rf"""["'](--)?({re.escape(name)}|{name.replace("-", "_")})["':]""", text)
        and f" {name.replace('-', '_')}:" not in text  # a field of settings, which becomes an option
    ]


def wrong_config(arguments: list[str]) -> list[str]:
    """Returns what is wrong with a config and its keys."""
    specs = [word.partition("=")[2] for word in arguments if word.startswith("--config=")]
    if not specs:
        return []
    try:
        config = load_config_file(specs[0])
    except ValueError as error:
        return [str(error)]
    keys = flatten(config)
    given = [re.match(r"--config\.([\w.]+)=", word) for word in arguments]
    return [f"{specs[0]} has no key {key[1]}" for key in given if key and key[1] not in keys]


def unselected(command: str) -> str:
    """Returns why `pytest PATH ... -k EXPRESSION` selects no test, by the names of functions; "" if it selects some."""
    words = shlex.split(command)[1:]
    chosen = Expression.compile(words[words.index("-k") + 1]) if "-k" in words else None
    paths = [ROOT / word for word, before in zip(words, ["", *words], strict=False) if word.startswith("tests")
             and before not in ("-k", "-m")]  # fmt: skip
    if gone := [str(path.relative_to(ROOT)) for path in paths if not path.exists()]:
        return f"no {', '.join(gone)}"
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]
    names = [name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)]
    selects = lambda name: chosen is None or chosen.evaluate(lambda part, **_: part.lower() in name.lower())
    return "" if not files or any(map(selects, names)) else "it selects no test"
