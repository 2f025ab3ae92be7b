"""Encodes the text that a run reads, by hand and resumably: python -m charlm.data.corpus --config=configs/hlm_base.py

Training does it by itself; this command does it without training, for instance on a machine without accelerators. It
prints a table of the corpora and where they are kept:

    python -m charlm.data.corpus --config=configs/hlm_base.py --config.data.train='books/*.txt.gz'
"""

from __future__ import annotations

import ml_collections

from charlm import cli
from charlm.data.corpus import table


def main(config: ml_collections.ConfigDict) -> None:
    """Encodes the corpora of a config."""
    from charlm.families.lookup import corpora_of  # needs JAX, which help texts do without

    print(table(corpora_of(config)))


if __name__ == "__main__":
    cli.run(main)
