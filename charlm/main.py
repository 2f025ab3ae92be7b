"""Pre-trains a model: python -m charlm.main --config=configs/hlm_base.py:tiny --workdir=runs/hlm
Fine-tunes one:     python -m charlm.main --config=configs/tag.py --config.init_from=runs/hlm \\
                        --config.data.train=train.conll --config.data.dev=dev.conll --workdir=runs/tags

Any key of the config can be set on the command line (--config.optim.learning_rate=1e-4); --help lists and explains
them all. The same command again goes on where the run stopped.

On several hosts, start the same command on each with --multihost, and a --workdir that all of them share: one folder,
or an address in an object store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys

import ml_collections
from absl import flags
from ml_collections import config_flags

from charlm import cli
from charlm.config import is_fine_tuning
from charlm.core.interrupts import EXIT_STATUS, left_signals, terminable
from charlm.core.memory import use_one_arena
from charlm.core.metric_writer import print_metrics

_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of the run, also gs://BUCKET/PATH or s3://BUCKET/PATH; runs/NAME_OF_THE_CONFIG if not given.",
)
_PROFILE = flags.DEFINE_string("profile", "", "Folder for a trace of three steps, the sixth to the eighth of the run.")
_SKIP_DAMAGED = flags.DEFINE_bool(
    "skip_damaged",
    False,
    "If the newest checkpoint of the run is damaged, set it aside as STEP.damaged and go on from the one before it.",
)
_PLAIN = flags.DEFINE_bool(
    "plain",
    False,
    "Show no progress bar; without a terminal, or with the environment variable NO_COLOR, there is none.",
)
_JSONL = flags.DEFINE_bool(
    "jsonl",
    None,
    "Also print metrics on standard output as they come, one JSON object a line, as in metrics.jsonl: for programs. "
    "Unless it is given, this is done where standard output is a pipe or a file of its own.",
)
_MULTIHOST = flags.DEFINE_bool(
    "multihost",
    False,
    "Train together with processes on other hosts: on Cloud TPU, Slurm, Open MPI and Kubernetes they find each other, "
    "elsewhere the next three flags say how.",
)
_COORDINATOR = flags.DEFINE_string("coordinator", None, "With --multihost: HOST:PORT of process 0.")
_PROCESSES = flags.DEFINE_integer("processes", None, "With --multihost: number of processes.")
_PROCESS = flags.DEFINE_integer("process", None, "With --multihost: number of this process, from 0.")
_STATUS_IF_STOPPED = flags.DEFINE_integer(
    "status_if_stopped",
    0,
    "Exit status of a run that SIGTERM stopped, after it has saved. With another one than 0, schedulers such as "
    "Kubernetes see that the run is not finished. After Ctrl-C it is 130, and 143 where SIGTERM comes outside of "
    "training, when there is nothing to save.",
    lower_bound=0,
    upper_bound=255,
)

log = logging.getLogger("charlm")


def _default_workdir() -> str:
    path, _, variant = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    stem = path.rsplit("/", 1)[-1].removesuffix(".py")
    return f"runs/{stem}_{variant}" if variant else f"runs/{stem}"


def _output_is_apart() -> bool:
    """Returns whether standard output is neither a terminal nor where the log goes, as in `> run.log 2>&1`."""
    try:
        out, log_of = (os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something without a file
        return False
    return not sys.stdout.isatty() and not os.path.samestat(out, log_of)


def main(config: ml_collections.ConfigDict) -> None:
    """Pre-trains or fine-tunes as the config says."""
    # Several processes leave SIGTERM to JAX, which lets them agree on a step to stop after.
    with contextlib.nullcontext() if _MULTIHOST.value else terminable():
        _run(config)


def _run(config: ml_collections.ConfigDict) -> None:
    workdir = _WORKDIR.value
    if workdir is None:
        workdir = _default_workdir()
        log.info("no --workdir given: writing to %s", workdir)
    use_one_arena()
    from charlm.core import hosts  # imported late, so that --help and wrong options do not import jax
    from charlm.core.followers import mirrored_by_all
    from charlm.core.progress_bar import use_plain_output
    from charlm.finetune.run import fine_tune
    from charlm.training.stages import pretrain

    if _PLAIN.value:
        use_plain_output()
    print_metrics(_output_is_apart() if _JSONL.value is None else _JSONL.value)
    manual = (_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
    if _MULTIHOST.value:
        hosts.start(*manual)
    elif manual != (None, None, None):
        raise ValueError("--coordinator, --processes and --process belong to --multihost")
    with hosts.ending_together(), left_signals() as left:
        program = fine_tune if is_fine_tuning(config) else pretrain
        with mirrored_by_all(workdir) as folder:
            finished = program(config, folder, profile=_PROFILE.value, skip_damaged=_SKIP_DAMAGED.value)
    status = EXIT_STATUS if signal.SIGINT in left else _STATUS_IF_STOPPED.value
    if not finished and status:  # it is False, or an empty summary
        sys.exit(status)


if __name__ == "__main__":
    cli.run(main, advice="the same command goes on from the last checkpoint, or begins again if there is none")
