"""GPT-2's pre-training objective: predict each subword from those before it (Radford et al., 2019).

Open it to see how data, model and loss of GPT-2's pre-training are put together.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from flax import traverse_util

from charlm.convert.files import find_state
from charlm.convert.heads import CAUSAL_LM
from charlm.core import checkpoint as checkpoints
from charlm.core.files import cache_dir
from charlm.core.flops import TRAINING, lengths_of
from charlm.core.trees import flat
from charlm.core.types import JsonObject, Params
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.data.subword_building import BuiltOnce, build_byte_level, count_words, read_named, tokenizer_of
from charlm.families.gpt2.sequences import PieceBatch, PieceSequences, PieceShard
from charlm.families.pretrained import from_pretrained
from charlm.families.stored import metadata_of
from charlm.families.subword.flops import bert_forward
from charlm.families.subword.gpt2 import GPT2Config, GPT2LMHeadModel
from charlm.families.subword.layout import config_to_dict
from charlm.families.text_objective import TextObjective, sequences_of
from charlm.nn.apply import applied
from charlm.nn.label_sums import label_sums
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.word_pieces import WordPieces

log = logging.getLogger("charlm")

NAME = "gpt2"


class PieceData(NamedTuple):
    """The subwords and the corpora that batches are made from."""

    tokenizer: SubwordTokenizer
    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]


class PieceSums(NamedTuple):
    """Sums over the subwords of a batch, float32 scalars; the sums of several batches may be added up."""

    nats: jax.Array  # negative log-likelihood
    pieces: jax.Array  # subwords
    right: jax.Array  # subwords that are the most likely one of the prediction
    chars: jax.Array  # characters of the text


class NextPieces(TextObjective):
    """Predicts each subword of running text; `shape` is (sequences of a shard, positions of a sequence)."""

    families = (NAME,)
    sums = PieceSums
    unit = "subwords"
    has_files = True
    use = "python -m charlm.predict generate --checkpoint={workdir} 'Once upon a'"
    of_shape = ("model.", "data.max_length")
    shape: tuple[int, int]

    def __init__(self, config: ml_collections.ConfigDict, data: PieceData, shards: int) -> None:
        """Creates the model; see `Objective`."""
        super().__init__(config, data, shards)
        self._start = start_of(data.tokenizer)
        self.shape = sequences_of(config, shards), config.data.max_length
        own = config.model.to_dict() | {"dtype": jnp.dtype(config.model.dtype), "vocab_size": data.tokenizer.size}
        self.model = GPT2LMHeadModel(GPT2Config(**own))

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> PieceData:
        """Returns the encoded corpora and the subwords, which a resumed run or `init_from` may provide."""
        tokenizer = read_named("text.tokenizer", config.text.tokenizer, SubwordTokenizer.load)
        if tokenizer is None:
            tokenizer = tokenizer_of(_folder_of(config, run))
        if tokenizer is not None:
            start_of(tokenizer)  # before hours of encoding
        train, heldout = prepare_texts(config, "GPT-2 reads subwords")
        if tokenizer is None:
            build = lambda path: build_byte_level(count_words(train), config.text.pieces, path, NAME)
            cached = BuiltOnce(cache_dir(config), train)
            tokenizer = cached.get(f"subwords-{NAME}", config.text.pieces, build, SubwordTokenizer.load)
        return PieceData(tokenizer, train, heldout)

    @staticmethod
    def check_vocab(checkpoint: Path, data: PieceData) -> None:
        """Compares the subwords by their digests; see `Objective.check_vocab`."""
        if metadata_of(checkpoint, NextPieces.families).get("subwords") != data.tokenizer.digest():
            folder = checkpoints.files_of(checkpoint)
            raise ValueError(f"{checkpoint} has other subwords; set text.tokenizer={folder}")

    @staticmethod
    def change(first: dict[str, float], last: dict[str, float]) -> str:
        """Returns a line with the held-out bits per character before and after training."""
        before, after = (line["heldout_bits_per_char"] for line in (first, last))
        return f"held-out bits a character: {before:.3f} before (step {first['step']}), {after:.3f} after"

    def maker(self, seed: int, hiding: bool) -> PieceSequences:
        """Returns the maker of sequences, which are the same in training and evaluation."""
        tokenizer = self.data.tokenizer
        return PieceSequences(WordPieces(tokenizer), self.config.data.max_length, seed, tokenizer)

    def shard(self) -> PieceShard:
        """Returns an empty shard."""
        return PieceShard(*self.shape, self._start)

    def count(self, batch: PieceBatch) -> int:
        """Returns the subwords of text in a host batch [..., B, L]."""
        return int(batch.mask_BL[..., 1:].sum())

    def training_flops(self, batch: PieceBatch) -> float:
        """Returns the useful floating-point operations of a step."""
        cfg, read = self.model.config, lengths_of(batch.mask_BL)
        predicted = read.total - read.rows
        return TRAINING * (bert_forward(cfg, read) + 2 * predicted * cfg.hidden * cfg.vocab_size)

    def init_params(self, key: jax.Array) -> Params:
        """Returns fresh parameters."""
        return self.model.init(key, jnp.zeros((1, 2), jnp.int32))["params"]

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of a GPT-2 of the same shape and subwords; what it has beside them is left out."""
        known = from_pretrained(source, family=NAME)
        if known.tokenizer().digest() != self.data.tokenizer.digest():
            raise ValueError(f"init_from: {source} has other subwords; set text.tokenizer={known.folder}")
        theirs, taken = flat(known.params), {}
        for name, value in flat(fresh).items():
            found = theirs.get(name)
            if found is None or found.shape != value.shape:
                has = "nothing" if found is None else found.shape
                raise ValueError(f"init_from: {known.folder}: {name} is {has}, expected {value.shape}")
            taken[name] = jax.device_put(np.asarray(found), value.sharding)
        log.info("parameters from %s", source)
        return traverse_util.unflatten_dict(taken, sep="/")

    def loss_sums(self, params: Params, micro_batch: PieceBatch, dropout_key: jax.Array | None) -> PieceSums:
        """Returns the sums of a micro-batch [S, B, L]."""
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        ids_NL, mask_NL = (x.reshape(-1, x.shape[-1]) for x in (micro_batch.ids_BL, micro_batch.mask_BL))
        output = applied(self.model, {"params": params}, rngs)(ids_NL, mask_NL, deterministic=dropout_key is None)
        labels_NL = jnp.where(mask_NL[:, 1:], ids_NL[:, 1:], -1)
        sums = label_sums(output.logits[:, :-1], labels_NL)
        return PieceSums(*sums, micro_batch.chars_B.sum(dtype=jnp.float32))

    def summarize(self, sums: PieceSums) -> dict[str, float]:
        """Returns nats a subword, bits per character of the text, and the share of subwords that are predicted right.

        Raises:
          ValueError: no subword was predicted.
        """
        nats, pieces, right, chars = (float(x) for x in sums)
        if not pieces:
            raise ValueError("no subword was predicted: too little text")
        return {"loss": nats / pieces, "bits_per_char": nats / chars / math.log(2), "accuracy": right / pieces}

    def measured(self) -> JsonObject:
        """Returns the number of shards, for the config that is saved."""
        return {"data.table_shards": self.shards}

    def metadata(self) -> JsonObject:
        """Returns the description of the model, as imported models have it, and the digest of its subwords."""
        model, digest = config_to_dict(self.model.config), self.data.tokenizer.digest()
        return {"family": NAME, "model": model, "head": CAUSAL_LM, "subwords": digest, "hf_config": {}}

    def save_vocab(self, folder: Path) -> None:
        """Writes the files of the tokenizer."""
        self.data.tokenizer.save(folder)

    def start_lines(self) -> list[str]:
        """Returns the number of subwords and the shape of a batch."""
        sequences, length = self.shape
        return [
            f"subwords known  {self.data.tokenizer.size:,}",
            f"batch  {self.shards} shards x {sequences} sequences x {length} subwords",
        ]

    def progress_line(self, scalars: dict[str, float]) -> str:
        """Returns a line with loss and bits per character."""
        return f"loss {scalars['loss']:.4f} ({scalars['bits_per_char']:.3f} bits/char)"

    def heldout_line(self, metrics: dict[str, float]) -> str:
        """Returns a line with loss, bits per character and the share of subwords predicted right."""
        return (
            f"loss {metrics['loss']:.4f}, {metrics['bits_per_char']:.3f} bits a character, "
            f"{100 * metrics['accuracy']:.1f} % of subwords right"
        )

    def show_examples(self, params: Params) -> None:
        """Logs the likeliest subword after some beginnings of held-out texts, and the one that stands there."""
        count = self.config.train.examples
        if not count or (batch := self.first_heldout()) is None:
            return
        ids_BL, mask_BL = np.asarray(batch.ids_BL)[0, 0], np.asarray(batch.mask_BL)[0, 0]
        predict = jax.jit(lambda params, *inputs: self.model.apply({"params": params}, *inputs).logits.argmax(axis=-1))
        best_BL = np.asarray(predict(params, ids_BL, mask_BL))
        decode = self.data.tokenizer.decode
        for row in np.flatnonzero(mask_BL.sum(axis=1) > 4)[:count].tolist():
            at = int(mask_BL[row].sum()) - 1
            shown = decode(ids_BL[row, max(1, at - 16) : at].tolist())
            right, best = decode([int(ids_BL[row, at])]), decode([int(best_BL[row, at - 1])])
            log.info("after %r comes %r; predicted %r", shown, right, best)


def start_of(tokenizer: SubwordTokenizer) -> int:
    """Returns the token before a text; ValueError if there is none."""
    special = tokenizer.special
    start = special.eos if special.bos is None else special.bos
    if tokenizer.family != NAME or start is None:
        raise ValueError(
            f"text.tokenizer: subwords of the family {tokenizer.family}; expected {NAME}, with a token that ends a text"
        )
    return start


def _folder_of(config: ml_collections.ConfigDict, run: Path | None) -> Path | None:
    """Returns the folder with the subwords of the run that is resumed, or of the model that it starts from."""
    if source := run or config.resume:
        return checkpoints.files_of(checkpoints.find(source, key="resume"))
    if not config.init_from:
        return None
    try:
        return checkpoints.files_of(checkpoints.find(config.init_from, key="init_from"))
    except ValueError as no_checkpoint:
        try:
            return find_state(config.init_from).parent
        except ValueError:
            raise no_checkpoint from None
