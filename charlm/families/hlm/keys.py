"""The configuration keys that only HLM has; the keys of all families are in `charlm.config.pretraining`.

Open it to add a key or to see which values are allowed.
"""

from __future__ import annotations

import ml_collections

from charlm.core.keys import Key, amount, count, natural, share, whole_share
from charlm.families.shared_keys import BUCKET_SLOTS, CHAR_SLOTS, CHAR_VOCAB, MASK_RATE, POSITION, TOKENIZER, VOCAB_SIZE
from charlm.text.noise.mixture import Mixture

MEASURED = ("data.bucket_slots", "data.bucket_words", "data.bucket_masked", "data.bucket_labels")

RESUMABLE = ("text.tokenizer",)  # may change on resuming: a run compares its pieces by content

OBJECTIVES = ("", "spelling", "next_word")

KEYS: dict[str, Key] = {
    "objective": Key("",
        'what is learned: "": masked words; "spelling": the words meant where misspelled ones are read; "next_word": '
        "to write, letter by letter, the word after those read",
        OBJECTIVES),
    "spelling.noise": Key(("charbert:1:3", "charbert_nlm:1:2", "phonetic:1:3", "keyboard:0.15", "repeat:0.15"),
        "kinds of noise that misspell a word, each as likely; of objective=spelling, as all of this section"),
    "spelling.lists": Key((), "files of real misspellings (Wikipedia's, codespell's, or word and misspellings a line)"),
    "spelling.listed": whole_share(0.6, "share of the misspelled words with listed misspellings that get one"),
    "spelling.heldout_words": share(0.2, "share of the words of the lists kept from training, for evaluation"),
    "spelling.misspelled": whole_share(0.3,
        "most of a text's words that are misspelled; each text draws a share below it"),
    "spelling.clean": share(0.3, "share of texts without any misspelling"),
    "spelling.masked": whole_share(0.0,
        "share of the words of data.mask_rate that are masked, so that the context alone says what they are"),
    "text.normalize": Key("none",
        'Unicode form of the characters the model reads: "none" or "nfc"; offsets stay the text\'s', ("none", "nfc")),
    "text.unknown": Key("symbol",
        'a character that the vocabulary lacks: "symbol", one for all of them, as in the released code, or "bytes", '
        "those of its UTF-8, a slot each, so that none is unknown",
        ("symbol", "bytes")),
    "text.char_vocab": CHAR_VOCAB.but(
        meaning='JSON file of the vocabulary; "released": the released code\'s; empty: of init_from or the corpora'),
    "text.tokenizer": TOKENIZER.but(
        meaning="folder or file of subwords; the longest that ends at a character is added to it (Bolmo); empty: those "
        "of init_from, if any"),
    "data.max_words": count(512, "words of a sequence, [CLS] and [SEP] included (section 3.5)"),
    "data.unique_words": Key(True,
        "True: each distinct word of a table is encoded once; False: the paper's plain reshape"),
    "data.bucket_slots": BUCKET_SLOTS.but(meaning="{} on the corpus"),
    "data.bucket_words": Key((), "distinct words per bucket that are read through slot 0; empty: measured"),
    "data.bucket_masked": Key((), "distinct words per bucket at masked positions; empty: measured"),
    "data.bucket_labels": Key((), "masked positions per bucket; empty: measured"),
    "data.mask_rate": MASK_RATE.but(meaning='{}; "reference": floor(rate * words), random ids 8..127'),
    "model.wiring": Key("paper",
        'how word vectors and character states meet before the head: "paper" or "reference"', ("paper", "reference")),
    "model.vocab_size": VOCAB_SIZE.but(1024, "rows of the character table, the 8 reserved ids included", least=1),
    "model.intra_layers": count(4, "layers of the intra-word encoder"),
    "model.inter_layers": count(12, "layers of the inter-word encoder"),
    "model.head_layers": count(1, "intra-word layers of the prediction head"),
    "model.intra_ffn": count(1536, "feed-forward width inside words"),
    "model.inter_ffn": count(3072, "feed-forward width between words"),
    "model.char_slots": CHAR_SLOTS.but(meaning="character slots of a word, [WORD_CLS] included; longer words are cut"),
    "model.position_buckets": count(256, "relative-position buckets of each direction (He et al., 2021)"),
    "model.max_relative_words": count(512, "word distance at which the logarithmic buckets end"),
    "model.aggregation": Key("word_cls",
        'word vector: "word_cls" (section 3.1), "mean" or "max" (ablation, Table 6)', ("word_cls", "mean", "max")),
    "model.word_residual": Key(False, "add r_i to w_i (appendix A.3)"),
    "model.head_transform": Key(True,
        "fully connected layer (Linear, GELU, LayerNorm) before the softmax (section 3.3)"),
    "model.position": POSITION.but("disentangled",
        'positions between words: "disentangled" (section 3.5), or "rotary" (Su et al., 2021), for fused kernels',
        choices=("disentangled", "rotary")),
    "model.rotary_base": amount(10_000.0, '"rotary": the slowest angle turns once in about 2 pi times so many words'),
    "model.norm_position": Key("post",
        '"post": a norm after each residual sum (the paper); "pre": before each sublayer, and one at the end',
        ("post", "pre")),
    "model.norm": Key("layer",
        '"layer": LayerNorm; "rms": RMSNorm, without mean and bias (Zhang and Sennrich, 2019)', ("layer", "rms")),
    "model.feed_forward": Key("gelu",
        '"gelu", or "geglu" (Shazeer, 2020), of two thirds of the width, so of as many parameters', ("gelu", "geglu")),
    "model.bias": Key(True,
        "biases of linear layers and LayerNorms; the output layer keeps its own, and so do heads for labels"),
    "model.ngrams": natural(0,
        "rows of a table of hashed character n-grams, added to the characters they end at; 0: none"),
    "model.ngram_sizes": Key((3, 4, 5), "slots of these n-grams, [WORD_CLS] included"),
    "model.local_words": natural(0,
        "words on each side that a local layer between words sees; 0: every layer sees all words"),
    "model.global_every": count(3, "with local_words: one of so many layers sees all words, the first of them"),
}  # fmt: skip


def _validate_writing(config: ml_collections.ConfigDict) -> None:
    model = config.model
    if model.position != "rotary":
        raise ValueError(f'objective=next_word: model.position={model.position!r}, expected "rotary"')
    if model.wiring != "paper":
        raise ValueError(f'objective=next_word: model.wiring={model.wiring!r}, expected "paper"')
    if model.head_layers < 1:
        raise ValueError("objective=next_word: model.head_layers=0, expected 1 or more: these layers write the words")


def validate(config: ml_collections.ConfigDict) -> None:
    """Checks the values of HLM's keys; raises ValueError naming the key, its value and what is expected."""
    model = config.model
    if model.position_buckets < 2:
        raise ValueError(f"model.position_buckets={model.position_buckets} must be at least 2")
    if config.data.masking == "reference" and model.vocab_size < 128:
        raise ValueError(
            f"data.masking=reference draws random characters from ids 8 to 127, but model.vocab_size is "
            f"{model.vocab_size}; expected at least 128"
        )
    if config.objective == "spelling":
        Mixture(tuple(config.spelling.noise)).parsed()
    if not 3 <= model.char_slots <= 256:
        raise ValueError(f"model.char_slots={model.char_slots} must lie in [3, 256]")
    if config.objective == "next_word":
        _validate_writing(config)
    if config.objective == "next_word" and config.text.unknown == "bytes" and model.char_slots < 6:
        raise ValueError(
            f"text.unknown=bytes, objective=next_word: model.char_slots={model.char_slots}, expected 6 or more, for a "
            "character of four bytes and a word's end"
        )
    if model.rotary_base <= 1:
        raise ValueError(f"model.rotary_base={model.rotary_base} must be more than 1")
    if config.objective == "" and not config.data.mask_rate:
        raise ValueError("data.mask_rate=0: there is no word to predict")
    if config.objective == "spelling" and not (config.spelling.misspelled or config.data.mask_rate):
        raise ValueError("spelling.misspelled=0 and data.mask_rate=0: there is no word to predict")
    if model.local_words and model.global_every == 1:
        raise ValueError(f"model.local_words={model.local_words}, but with model.global_every=1 no layer is local")
    sizes = tuple(model.ngram_sizes)
    right = all(isinstance(size, int) and 2 <= size <= model.char_slots for size in sizes)
    if model.ngrams and (not sizes or not right or len(set(sizes)) < len(sizes)):
        raise ValueError(
            f"model.ngram_sizes={sizes}: expected different whole numbers from 2 to model.char_slots={model.char_slots}"
        )
