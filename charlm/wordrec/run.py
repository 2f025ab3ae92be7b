"""Trains a word recogniser; the same call goes on where a run stopped.

`python -m charlm.wordrec train` calls it. Open it to change what is special about such a run; the loop is
`charlm.training.loop`.
"""

from __future__ import annotations

import os

import ml_collections

from charlm.training.apart import Job, train_apart
from charlm.wordrec.config import RECOGNISER
from charlm.wordrec.objective import WordRecognition


def train(config: ml_collections.ConfigDict, workdir: str | os.PathLike[str], skip_damaged: bool = False) -> bool:
    """Trains as `config` says, or resumes the run found in `workdir`; see `charlm.training.apart.train_apart`."""
    smaller = f"lower data.batch_size (now {config.data.batch_size}) or text.words (now {config.text.words})"
    return train_apart(config, workdir, Job(RECOGNISER, WordRecognition, smaller), skip_damaged)
