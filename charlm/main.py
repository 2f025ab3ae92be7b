"""Pre-trains a model: python -m charlm.main --config=configs/hlm_base.py:tiny --workdir=runs/hlm

Any key of the config can be set on the command line (--config.optim.learning_rate=1e-4); --help lists and explains
them all. The same command again goes on where the run stopped.
"""

from __future__ import annotations

import logging

import ml_collections
from absl import flags
from ml_collections import config_flags

from charlm import cli

_WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; runs/NAME_OF_THE_CONFIG if not given.")

log = logging.getLogger("charlm")


def _default_workdir() -> str:
    path, _, variant = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    stem = path.rsplit("/", 1)[-1].removesuffix(".py")
    return f"runs/{stem}_{variant}" if variant else f"runs/{stem}"


def main(config: ml_collections.ConfigDict) -> None:
    """Trains as the config says."""
    workdir = _WORKDIR.value
    if workdir is None:
        workdir = _default_workdir()
        log.info("no --workdir given: writing to %s", workdir)
    from charlm.train import train  # imported late: --help and mistakes need no jax

    train(config, workdir)


if __name__ == "__main__":
    cli.run(main)
