"""Writes an empty BERT to disk, to plan runs that start from a model that is not on this machine.

`charlm.plan.table` uses it for families whose runs need such a model (`Family.starts_from`). Char2Subword, for one,
imitates the table of another model. The step depends on the sizes of that model, but not on the weights. So all weights
are zeros, in a sparse file that takes no room on most disks. Open it when such a run cannot be planned, or needs a
backbone other than a BERT.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from charlm.core.durable import replacing, write_json
from charlm.data.builtin import documents
from charlm.data.subword_building import build_wordpiece
from charlm.families.shared_keys import BERT_PIECES

MULTILINGUAL = 119_547  # rows of multilingual BERT's table (Devlin et al., 2019)
ARCHITECTURE = "BertForMaskedLM"  # in the words of transformers


def write_bert(folder: Path, kind: str, rows: int = MULTILINGUAL, hidden: int = 768, layers: int = 12) -> Path:
    """Writes a BERT of zeros into a new folder, with a vocabulary of the built-in text; returns the folder.

    Args:
      folder: the new folder.
      kind: the name of the family, which its config states as `model_type`.
      rows: the rows of the subword table; the vocabulary names at most as many subwords as the text has.
      hidden: the width of the model.
      layers: the number of layers.
    """
    words = Counter(word for text in documents()["train"] for word in re.findall(r"\w+|[^\w\s]", text))
    build_wordpiece(words, min(rows, BERT_PIECES), str(folder))
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": kind,
        "vocab_size": rows,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
    }
    write_json(folder / "config.json", config)
    _write_zeros(folder / "model.safetensors", dict(_tensors(rows, hidden, layers)))
    return folder


def _tensors(rows: int, hidden: int, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the names and shapes of a BERT's tensors as transformers writes them."""
    for name, size in (("word", rows), ("position", 512), ("token_type", 2)):
        yield f"bert.embeddings.{name}_embeddings.weight", (size, hidden)
    yield from _pair("bert.embeddings.LayerNorm", hidden)
    dense = {
        "attention.self.query": (hidden, hidden),
        "attention.self.key": (hidden, hidden),
        "attention.self.value": (hidden, hidden),
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (4 * hidden, hidden),
        "output.dense": (hidden, 4 * hidden),
    }
    for layer in range(layers):
        prefix = f"bert.encoder.layer.{layer}"
        for name, shape in dense.items():
            yield from _pair(f"{prefix}.{name}", *shape)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            yield from _pair(f"{prefix}.{name}", hidden)
    yield from _pair("cls.predictions.transform.dense", hidden, hidden)
    yield from _pair("cls.predictions.transform.LayerNorm", hidden)
    yield "cls.predictions.bias", (rows,)


def _pair(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the names and shapes of a weight and its bias."""
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _write_zeros(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """Writes float32 zeros in the safetensors format: a header, then a hole up to the length of the file."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
