"""Compares systems at equal budget: pre-trains, fine-tunes, measures under noise and reports, from one config.

    python -m charlm.league league:tiny --set data.folder=data --workdir runs/league
    python -m charlm.league league:small --set data.folder=data --workdir runs/league --jobs 2
    python -m charlm.league league:small --set data.folder=data --workdir runs/league --dry-run
    python -m charlm.league league:small --set data.folder=data --workdir runs/league --only 'tune/pos/*'

The files that a config names lie in data.folder; docs/howto/league.md says where those of `league` come from. Every job
is a command of charlm in a process of its own, with its log in logs/. The same command goes on after any stop, kill -9
too, and does nothing twice; Ctrl-C lets the jobs save first. Systems, tasks, seeds and noises may be added to a league
that has begun, and those of which nothing is done yet may change; any other change needs another workdir. On a machine
with GPUs each job has one.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import ml_collections

from charlm.config import named_config
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.durable import write_text
from charlm.core.local_paths import check_options
from charlm.core.logs import print_error, start_logging
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.reading import read_object
from charlm.core.types import JsonObject
from charlm.league.changes import changes
from charlm.league.config import KEYS, resolved, set_key
from charlm.league.events import END, START, STOPPED, Events
from charlm.league.jobs import Job
from charlm.league.places import Places
from charlm.league.running import Outcome, Runner, alone, chosen, slots_of
from charlm.league.settings import check_files

_TOLD = 5  # differences from the config of a workdir that are told

log = logging.getLogger("charlm")


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    keys = [f"  {name:<28} {key.meaning} (default {key.default!r})" for name, key in KEYS.items()]
    parser = Parser(
        prog=program("charlm.league"),
        description=paragraphs[0],
        epilog="\n\n".join([*paragraphs[1:], "\n".join(["keys for --set:", *keys])]),
    )
    add = parser.add_argument
    add("config", metavar="CONFIG[:VARIANT]", help="league, or path/to/file.py with a get_config()")
    add("--workdir", required=True, metavar="FOLDER", help="folder of the league")
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="keys of the league, see below")
    add("--jobs", type=int, default=0, metavar="N", help="jobs side by side (default: one for each GPU, else one)")
    add("--devices", default="auto", help='GPUs, one for a job: "auto", "none", or numbers between commas')
    add("--only", nargs="+", default=[], metavar="GLOB", help="run the jobs of these names and what they need")
    add("--dry-run", action="store_true", help="print the jobs, what they need and what is done; run nothing")
    add("--report", action="store_true", help="write the report from what is done; run nothing")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status: 0, 1 after an error or failed jobs, 128 + a signal's number."""
    argv = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args(argv)
    start_logging()
    command = shlex.join(["python", "-m", "charlm.league", *argv])
    smaller = "lower robustness.samples (--set robustness.samples=500)"
    return run_command(lambda: _run(args, command), smaller, interrupted="the same command goes on")


def _run(args: argparse.Namespace, command: str) -> int:
    check_options({"workdir": args.workdir}, needed=("workdir",))
    if args.report and (args.only or args.dry_run):
        raise ValueError(f"--report and {'--only' if args.only else '--dry-run'}: a report is written, and of all jobs")
    config = load(args.config, args.set)
    places = Places(Path(args.workdir))
    if places.root.exists() and not places.root.is_dir():
        raise ValueError(f"--workdir={places.root} is a file, expected a folder")
    stored = json.loads(json.dumps(config.to_dict()))
    _check_same(places, stored)
    from charlm.league.plan import jobs_of  # imported late, so that --help and mistakes need no JAX

    jobs = jobs_of(config, places)
    wanted = chosen(jobs, _named(jobs, args.only, config))
    slots = slots_of(args.jobs, args.devices)
    if not args.report:  # which needs no data
        check_files(config)
    if args.dry_run:
        _show(wanted)
        return 0
    if args.report:
        if not places.config.is_file():
            raise ValueError(f"--workdir={places.root} holds no league")
        return _report(config, places, jobs)
    places.root.mkdir(parents=True, exist_ok=True)
    with alone(places) as lock:
        _check_same(places, stored)  # another league may have begun there in the meantime
        write_text(places.config, json.dumps(stored, indent=1) + "\n")
        events = Events(places.events)
        events.add(START, command=command, jobs=len(slots))
        outcome = Runner(places, slots, lock, events).run(wanted)
        events.add(STOPPED if outcome.stopped else END, done=len(outcome.done), failed=len(outcome.failed))
        if not outcome.stopped:
            _report(config, places, jobs)
    return _ended(outcome, command)


def load(spec: str, settings: Sequence[str]) -> ml_collections.ConfigDict:
    """Returns the checked config of a league.

    Args:
      spec: a name of a config that charlm carries, or a path; with a variant behind a colon.
      settings: "key=value" each.

    Raises:
      ValueError: there is no such config, it is of no league, or a value is wrong.
    """
    config = named_config(spec)
    for setting in settings:
        set_key(config, setting)
    return resolved(config)


def _check_same(places: Places, stored: JsonObject) -> None:
    """Raises ValueError if the workdir holds a league of another config; names what differs."""
    if not places.config.is_file():
        return
    if differing := changes(read_object(places.config), stored, places.begun):
        more = f"; and {len(differing) - _TOLD} more" if len(differing) > _TOLD else ""
        raise ValueError(
            f"--workdir={places.root} holds a league of another config: {'; '.join(differing[:_TOLD])}{more}; "
            "choose another --workdir"
        )


def _named(jobs: Sequence[Job], globs: Sequence[str], config: ml_collections.ConfigDict) -> list[str]:
    names = [job.name for job in jobs]
    measured = {name: entry.behind for name, entry in config.systems.items() if entry.behind}  # no jobs of their own
    for glob in globs:
        if not fnmatch.filter(names, glob):
            if own := [part for part in glob.split("/") if part in measured]:
                raise ValueError(f"--only={glob}: {own[0]} is measured by the jobs of {measured[own[0]]}")
            raise ValueError(
                f"--only={glob} is the name of no job; --dry-run lists them{did_you_mean(glob, names, ALIKE)}"
            )
    return [name for name in names if not globs or any(fnmatch.fnmatch(name, glob) for glob in globs)]


def _show(jobs: Sequence[Job]) -> None:
    done: set[str] = set()
    for job in jobs:
        if set(job.needs) <= done and job.finished():
            done.add(job.name)
        state = "done" if job.name in done else "ready" if set(job.needs) <= done else "waits"
        needs = f"  needs {', '.join(job.needs)}" if job.needs and job.name not in done else ""
        print(f"{state:<6} {job.name}{needs}")
    print(f"{len(done)} of {len(jobs)} jobs are done")


def _report(config: ml_collections.ConfigDict, places: Places, jobs: Sequence[Job]) -> int:
    from charlm.league.gathering import gathered  # imported late, so that --help and mistakes need no JAX
    from charlm.league.writing import write_report

    *_, page = write_report(gathered(config, places, jobs), places.root)
    log.info("report: %s", page)
    return 0


def _ended(outcome: Outcome, command: str) -> int:
    """Says how it ended; returns the exit status."""
    if outcome.stopped:
        name = signal.Signals(outcome.stopped).name
        print_error(f"stopped by {name}; the same command goes on: {command}")
        return 128 + outcome.stopped
    for name, why in outcome.failed.items():
        print_error(f"{name}: {why}")
    if outcome.waiting:
        log.info("not run, because they need what failed: %s", ", ".join(outcome.waiting))
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
