"""Serves models over HTTP: JSON in, JSON out, requests that come together are computed together.

    python -m charlm.serve --model runs/hlm
    python -m charlm.serve --model runs/tags --model runs/kinds --port 9000
    python -m charlm.serve --model words=runs/hlm --model tags=runs/tags --host 0.0.0.0 --max-batch 64

    curl -s http://127.0.0.1:8000/v1/encode -H 'Content-Type: application/json' -d '{"texts": "teh frist elment"}'

A model is a workdir of a run, one of its checkpoints, or a model's folder in Hugging Face's format. What a model can do
is at POST /v1/encode, fill_mask, correct, neighbors, score, generate, tag, classify, measure, answer and rank. A
request may name one of several models ("model"), else the first that can answers. GET /docs explains every request;
/openapi.json is the same for programs, /v1/models lists the models, /health is 200 once all programs are compiled, and
/metrics is for Prometheus. Errors are one line, {"error": "..."}.

There is no authentication and no encryption: who reaches the port may use it. It listens to this machine alone unless
--host says otherwise; put a proxy that knows your users in front of it.

SIGTERM and Ctrl-C stop it: new requests get status 503, those that wait are still answered, for --grace seconds at
most, and the exit status is 0. Texts of requests are never logged.
"""

from __future__ import annotations

import argparse
import os
import sys

from charlm.core import extras
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_path
from charlm.core.logs import start_logging
from charlm.serve.limits import Limits
from charlm.serve.models import WARM_WORDS, Served, named

PACKAGES = ("starlette", "uvicorn", "prometheus_client")
MOST_PORT = 65535


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = Parser(prog=program("charlm.serve"), description=__doc__)
    add, usual = made.add_argument, Limits()
    add("--model", action="append", required=True, metavar="[NAME=]MODEL", help="a model; may be repeated")
    add("--host", default="127.0.0.1", help="address to listen to (default: %(default)s, this machine alone)")
    add("--port", type=int, default=8000, help="0: any that is free (default: %(default)s)")
    helps = {
        "max_bytes": "most bytes of a request's body",
        "max_texts": "most texts of a request",
        "max_characters": "most characters of a text",
        "max_numbers": "most numbers in the vectors of a response",
        "max_batch": "most texts that are computed at a time",
        "queue": "most requests that wait for one model; further ones get status 429",
        "timeout": "seconds that a request may take",
        "grace": "seconds in which waiting requests are answered after SIGTERM",
    }
    for name, value in usual._asdict().items():
        flag = f"--{name.replace('_', '-')}"
        add(flag, type=type(value), default=value, help=f"{helps[name]} (default: %(default)s)")
    add(
        "--warm-words",
        type=int,
        nargs="+",
        default=list(WARM_WORDS),
        metavar="WORDS",
        help="words of the texts for which programs are compiled at the start; others are compiled when they come "
        f"(default: {' '.join(map(str, WARM_WORDS))})",
    )
    add("--access-log", action="store_true", help="log one line for each request, without its texts")
    return made


def limits_of(args: argparse.Namespace) -> Limits:
    """Returns the limits that options set; ValueError for one that nothing could meet."""
    limits = Limits(*(getattr(args, name) for name in Limits._fields))
    for name, value in limits._asdict().items():
        if not 0 < value < float("inf") and not (name == "grace" and value == 0):
            raise ValueError(f"--{name.replace('_', '-')}={value}: expected a number above 0")
    if min(args.warm_words) < 1:
        raise ValueError(f"--warm-words={min(args.warm_words)}: expected at least 1")
    if (most := max(args.warm_words)) * 2 > limits.max_characters + 1:  # letters with spaces between
        raise ValueError(
            f"--warm-words={most}: a text has at most {limits.max_characters:,} characters (--max-characters)"
        )
    if not 0 <= args.port <= MOST_PORT:
        raise ValueError(f"--port={args.port}: expected 0 to {MOST_PORT}")
    return limits


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = parser().parse_args(argv)
    return run_command(lambda: _serve(args), f"lower --max-batch (now {args.max_batch})")


def _serve(args: argparse.Namespace) -> int:
    limits, paths = limits_of(args), named(args.model)
    for path in paths.values():
        check_path("--model", path, needed=True, stored=True)
    extras.check("charlm serve", *PACKAGES)  # before a model is loaded, which is slow
    start_logging()
    from charlm.serve import running

    sock = running.bound(args.host, args.port)
    from charlm.api.model import load

    models = []
    for name, path in paths.items():
        models.append(Served(name, load(path, limits.max_batch), limits))
        if not models[-1].abilities:
            raise ValueError(f"--model={path}: its task has no method that can be served")
    if not running.serve(models, limits, sock, args.access_log, args.warm_words):
        sys.stdout.flush()
        os._exit(0)  # a batch is still computed: the interpreter cannot end beside it
    return 0


if __name__ == "__main__":
    sys.exit(main())
