"""Pre-trains a model: python -m charlm.main --config=configs/hlm_base.py:tiny --workdir=runs/hlm

Any key of the config can be set on the command line (--config.optim.learning_rate=1e-4); `charlm/config.py` lists and
explains them all. The same command again goes on where the run stopped.
"""

from __future__ import annotations

import logging
import sys

from absl import app, flags
from ml_collections import config_flags

from charlm.config import split_lists, unknown_key, validate

_CONFIG = config_flags.DEFINE_config_file(
    "config", None, "File that defines get_config(), e.g. configs/hlm_base.py:tiny."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; runs/NAME_OF_THE_CONFIG if not given.")

log = logging.getLogger("charlm")


def _parse(argv: list[str]) -> list[str]:
    """Parses flags; a mistake ends in one line instead of a traceback."""
    try:
        rest = app.parse_flags_with_usage(argv)
    except AttributeError as error:  # ml_collections: no such key
        _fail(_unknown_override(argv, error))
    except (IndexError, ValueError, KeyError, TypeError, OSError, ImportError, SyntaxError) as error:
        _fail(f"--config: {_one_line(error)}")
    if len(rest) > 1:
        _fail(f"unexpected argument {rest[1]!r}; flags are written --name=value")
    return rest


def _unknown_override(argv: list[str], error: AttributeError) -> str:
    from charlm.config import flatten, get_config

    known = flatten(get_config())
    for argument in argv:
        name = argument.lstrip("-").partition("=")[0]
        if name.startswith("config.") and name.removeprefix("config.") not in known:
            return unknown_key(name.removeprefix("config."))
    return f"--config: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def _default_workdir(argv: list[str]) -> str:
    name = next(a.partition("=")[2] for a in argv if a.lstrip("-").startswith("config="))
    path, _, variant = name.partition(":")
    stem = path.rsplit("/", 1)[-1].removesuffix(".py")
    return f"runs/{stem}_{variant}" if variant else f"runs/{stem}"


def main(argv: list[str]) -> None:
    """Validates the config and trains."""
    from charlm.logs import start_logging

    start_logging()
    if _CONFIG.value is None:
        _fail("--config is missing; for example --config=configs/hlm_base.py:tiny")
    try:
        config = _CONFIG.value
        split_lists(config)
        validate(config)
        workdir = _WORKDIR.value
        if workdir is None:
            workdir = _default_workdir(sys.argv)
            log.info("no --workdir given: writing to %s", workdir)
        from charlm.train import train

        train(config, workdir)
    except (ValueError, OSError) as error:
        _fail(_one_line(error))


def run() -> None:
    """Entry point of the command line."""
    app.run(main, flags_parser=_parse)


if __name__ == "__main__":
    run()
