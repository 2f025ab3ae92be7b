"""Trains a tokenizer from corpora: python -m charlm.league.subwords --config=configs/charbert_base.py \\
    --config.data.train='wiki/*.txt' --kind=bytes:roberta --pieces=8000 --out=subwords/wiki

Kinds: "wordpiece" is a cased WordPiece, "bytes:KIND" a byte-level BPE of the named kind of tokenizers. Configs of
pre-training name the folder in text.tokenizer. The library `tokenizers` trains it.
"""

from __future__ import annotations

import ml_collections
from absl import flags

from charlm import cli
from charlm.core.durable import replacing
from charlm.data.corpus import check_readable, encode_corpus, split_corpora
from charlm.data.forms import TextForm
from charlm.data.subword_building import BYTE_SPECIALS, build_byte_level, build_wordpiece, count_words

_KIND = flags.DEFINE_string("kind", "wordpiece", 'Kind of subwords: "wordpiece" or "bytes:KIND".')
_PIECES = flags.DEFINE_integer("pieces", 8000, "Number of subwords.", lower_bound=300)
_OUT = flags.DEFINE_string("out", None, "Folder to write.", required=True)
RECORD_WORDS = 512


def main(config: ml_collections.ConfigDict) -> None:
    """Encodes the corpora of a config as text, and trains a tokenizer from their words."""
    kind, _, of = _KIND.value.partition(":")
    if kind not in ("wordpiece", "bytes") or (kind == "bytes" and of not in BYTE_SPECIALS):
        names = ", ".join(f"bytes:{name}" for name in BYTE_SPECIALS)
        raise ValueError(f"--kind={_KIND.value}: expected wordpiece or one of {names}")
    check_readable(config, "a tokenizer is trained from text")
    get_one = lambda spec, split, key: encode_corpus(spec, config, split, TextForm(), RECORD_WORDS, key=key)
    train, _ = split_corpora(config, get_one)
    counts = count_words(train)
    with replacing(_OUT.value) as folder:
        if kind == "bytes":
            build_byte_level(counts, _PIECES.value, folder, of)
        else:
            build_wordpiece(counts, _PIECES.value, folder)


if __name__ == "__main__":
    cli.run(main)
