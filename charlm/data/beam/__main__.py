"""Encodes corpora by Apache Beam: python -m charlm.data.beam --config=configs/hlm_base.py

Writes what `python -m charlm.data.corpus` writes with the same config: the same bytes in the same folders of
data.cache_dir, where training finds them. The text and data.cache_dir must lie on a file system that all workers share.
Killed and started again, it goes on with what is missing. Needs pip install -e ".[beam]".

With --filter, --exact or --near it first cleans the text, and writes it as JSON lines into data.cache_dir; it prints
how training finds these. Of duplicates the first stays, and held-out corpora come first.

Flags of Beam itself follow after --, such as:

    python -m charlm.data.beam --config=configs/hlm_base.py --config.data.train='/corpus/*.jsonl.gz' \\
        --config.data.cache_dir=/shared/cache --runner=FlinkRunner -- --flink_master=cluster:8081 --parallelism=256
"""

from __future__ import annotations

import shlex
import sys

import ml_collections
from absl import flags

from charlm import cli
from charlm.core.files import cache_dir
from charlm.data import spreading
from charlm.data.beam.cleaning import clean, describe
from charlm.data.beam.features import Rules
from charlm.data.beam.output import own_lines_only
from charlm.data.beam.workers import DIRECT, BeamWorkers, beam_flags
from charlm.data.corpus import table

_RUNNER = flags.DEFINE_string(
    "runner", DIRECT, "Where Beam does the work: DirectRunner (this machine), DataflowRunner, FlinkRunner, SparkRunner."
)
_FILTER = flags.DEFINE_string(
    "filter", "", "Function of yours, module:function, that takes a text and returns whether to keep it."
)
_EXACT = flags.DEFINE_bool("exact", False, "Leave out all but the first of documents with the same text.")
_NEAR = flags.DEFINE_float(
    "near",
    0.0,
    "Leave out near duplicates: documents that share this part of their sequences of five words, such as 0.8.",
)


def main(config: ml_collections.ConfigDict, given: list[str]) -> None:
    """Prepares the corpora of a config; `given` are the flags for Beam."""
    from charlm.families.lookup import corpora_of  # needs JAX, which help texts do without

    runner = _RUNNER.value
    rules = Rules(_FILTER.value, _EXACT.value, _NEAR.value)
    rules.check()
    workers = BeamWorkers(cache_dir(config), beam_flags(runner, given, config.data.encode_processes))
    with own_lines_only(runner, workers.folder), spreading.working_on(workers):
        cleaned = clean(config, rules, workers) if rules != Rules() else None
        print(table(corpora_of(config)))
    if cleaned is not None:
        print(f"{describe(cleaned)}; train on the cleaned text by:")
        keys = [key for key in ("train", "heldout") if config.data[key]]
        print(" ".join(f"--config.data.{key}={shlex.quote(','.join(config.data[key]))}" for key in keys))


def split_arguments(argv: list[str]) -> tuple[list[str], list[str]]:
    """Returns the arguments before and after the first --."""
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at + 1 :]


if __name__ == "__main__":
    sys.argv, rest = split_arguments(sys.argv)
    cli.run(lambda config: main(config, rest), "the same command goes on with what is missing")
