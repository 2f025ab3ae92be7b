"""Measures the words and operations of a training step, and writes the steps that a budget of either is worth.

    python -m charlm.league.budget --config=configs/hlm_base.py:tiny --words=100000 --out=hlm.json

A league runs it for each system before the system is trained, with the flags of the training command. Words are counted
as one splitter (`--splitter`) cuts the text, whatever the system itself reads, so that equal budgets are equal text:
the words that a run reads for a step, times the words of its corpora by that splitter, divided by those by its own.
"""

from __future__ import annotations

from pathlib import Path

import ml_collections
from absl import flags

from charlm import cli
from charlm.core.durable import write_json

_WORDS = flags.DEFINE_integer("words", 1, "Words that the run is to see.", lower_bound=1)
_FLOPS = flags.DEFINE_float("flops", 0.0, "Useful operations that the run may cost, instead; 0: words.", lower_bound=0)
_OUT = flags.DEFINE_string("out", None, "File to write, JSON.", required=True)
_SPLITTER = flags.DEFINE_string("splitter", "rules", "How words are counted, see text.splitter.")
_BATCHES = flags.DEFINE_integer("batches", 20, "Number of batches that are measured.", lower_bound=2)
_STAGE = flags.DEFINE_string("stage", "", "The stage that reads text, of a family with stages.")
_WARMUP = flags.DEFINE_float("warmup_share", 0.1, "Share of the steps in which the learning rate rises.")
_EVALUATIONS = flags.DEFINE_integer("evaluations", 5, "Number of evaluations.", lower_bound=1)
_CHECKPOINTS = flags.DEFINE_integer("checkpoints", 20, "Number of checkpoints.", lower_bound=1)
_REPORTS = flags.DEFINE_integer("reports", 50, "Number of lines of metrics.", lower_bound=1)


def main(config: ml_collections.ConfigDict) -> None:
    """Measures the batches of a config, and writes the budget."""
    from charlm.league.measuring import measured, settings_of, steps_of  # imported late, so that --help needs no JAX

    found = measured(config, _STAGE.value, _SPLITTER.value, _BATCHES.value)
    steps = steps_of(found, _WORDS.value, _FLOPS.value)
    shares = {"eval": _EVALUATIONS.value, "checkpoint": _CHECKPOINTS.value, "log": _REPORTS.value}
    settings = settings_of(config, _STAGE.value, steps, _WARMUP.value, shares)
    Path(_OUT.value).parent.mkdir(parents=True, exist_ok=True)
    write_json(_OUT.value, found | {"asked_words": _WORDS.value, "asked_flops": _FLOPS.value} | settings)


if __name__ == "__main__":
    cli.run(main)
