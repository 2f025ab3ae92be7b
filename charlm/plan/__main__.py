"""Plans a run without its machine: python -m charlm.plan --config=configs/hlm_base.py --topology=v5e:4x4

Compiles the run's own training step for chips that need not be there, and prints what it takes: memory, operations,
communication, the time that each of them allows, days and cost. Where it does not fit, it searches settings that do.
Machines: v5e:4x4, v5p:2x2x4, v6e:16x16, or by type v5e-16; h100:8, 2xh100:8, h200:8, a100:8; cpu:8. Times are bounds of
the program that was compiled: its products, its traffic to main memory and its communication take that long or longer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import ml_collections
from absl import flags
from ml_collections import config_flags

from charlm import cli
from charlm.config import is_fine_tuning
from charlm.core.durable import write_json
from charlm.core.interrupts import terminable
from charlm.families.family import family
from charlm.plan.backbone import write_bert
from charlm.plan.topology import EXAMPLES, Topology, devices_of, parse, use_as_cpu

_TOPOLOGY = flags.DEFINE_string("topology", "", f"The machine to plan for: {EXAMPLES}.")
_JSON = flags.DEFINE_string("json", "", 'File that gets the plan as JSON; "-": standard output, and nothing else.')
_PRICE = flags.DEFINE_float(
    "price", 0.0, "Price of an hour of one chip, in any currency; 0: no cost is told.", lower_bound=0.0
)
_SEARCH = flags.DEFINE_bool("search", False, "Search for faster settings even if the config itself fits.")
_TRIES = flags.DEFINE_integer("tries", 4, "Settings that a search compiles at most.", lower_bound=1)
_AS_IS = flags.DEFINE_bool(
    "as_is",
    False,
    "Plan the layers one by one, as the config has them (many minutes), not with model.scan_layers=True.",
)

log = logging.getLogger("charlm")


def main(config: ml_collections.ConfigDict) -> None:
    """Plans the run of a config."""
    if not _TOPOLOGY.value:
        raise ValueError(f"--topology is missing: one of {EXAMPLES}")
    if _JSON.value not in ("", "-") and not Path(_JSON.value).absolute().parent.is_dir():
        raise ValueError(f"--json={_JSON.value}: there is no folder {Path(_JSON.value).absolute().parent}")
    if Path(_JSON.value or "-").is_dir():
        raise ValueError(f"--json={_JSON.value} is a folder, expected a file")
    if not math.isfinite(_PRICE.value):
        raise ValueError(f"--price={_PRICE.value}: expected a finite number")
    topology = parse(_TOPOLOGY.value)
    use_as_cpu(topology)
    with terminable(), contextlib.ExitStack() as stack:
        if not is_fine_tuning(config) and not config.init_from and (origin := family(config.family).starts_from):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="charlm_plan_"))
            log.warning("init_from is empty: planned for an empty %s of multilingual BERT's size", origin)
            config.init_from = str(write_bert(Path(folder, origin), origin))
        _plan(config, topology)


def _plan(config: ml_collections.ConfigDict, topology: Topology) -> None:
    """Plans all stages of a run, and prints or writes what was found."""
    from charlm.plan.planning import Planning  # imported late, so that --help and wrong options do not import jax
    from charlm.plan.program import planner_of, stages_of
    from charlm.plan.report import as_json, lines

    devices = devices_of(topology)
    spec = config_flags.get_config_filename(flags.FLAGS["config"])
    command = shlex.join(["python", "-m", "charlm.main", f"--config={spec}", *config_arguments(sys.argv[1:])])
    found = {}
    for stage, own in stages_of(config):
        planning = Planning(own, planner_of(own), devices, topology, _AS_IS.value)
        plan = planning.plan(_SEARCH.value, _TRIES.value)
        found[stage] = as_json(plan, _PRICE.value)
        if _JSON.value != "-":
            print(f"{spec}{f', {stage}' if stage else ''} {lines(plan, _PRICE.value, command)[0]}")
            print("\n".join(lines(plan, _PRICE.value, command)[1:]), flush=True)
    values = found[""] if list(found) == [""] else found
    if _JSON.value == "-":
        print(json.dumps(values, indent=2))
    elif _JSON.value:
        write_json(_JSON.value, values)


def config_arguments(argv: Sequence[str]) -> list[str]:
    """Returns the arguments that set config keys, each as one --config.KEY=VALUE, however they were typed."""
    found = []
    for i, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        if name.startswith(("--config.", "-config.")):
            value = value if equals else "".join(argv[i + 1 : i + 2])
            found.append(f"--{name.lstrip('-')}={value}")
    return found


if __name__ == "__main__":
    cli.run(main)
