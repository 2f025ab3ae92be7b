"""Subword tokenizers of the published models: turn text into ids with offsets of every token, and ids into text.

One class serves BERT's WordPiece, the byte-level BPE of GPT-2 and RoBERTa, and the SentencePiece models of XLM-R,
ALBERT and XLNet. The `tokenizers` library does the work; ids, offsets and words equal those of Hugging Face
transformers. Every family that reads subwords loads its tokenizer here; open the other modules of this package to
support another kind of file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from charlm.core.types import JsonObject
from charlm.text.subwords.encoded import (
    SpecialIds,
    SubwordBatch,
    Subwords,
    checked_texts,
    checked_words,
    inputs,
    padded,
    subwords_of,
)
from charlm.text.subwords.files import ROLES, TOKENIZERS, open_source, save_files
from charlm.text.subwords.models import build
from charlm.text.subwords.pieces import Surface, style_of, surfaces
from charlm.text.subwords.roles import settings_of
from charlm.text.subwords.sentencepieces import restore_scores
from charlm.text.subwords.views import joined_view, make_view

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["SpecialIds", "SubwordBatch", "SubwordTokenizer", "Subwords", "Surface"]

_MAX_VIEWS = 16  # number of cached views (`make_view`); they share the vocabulary


class SubwordTokenizer:
    """A subword vocabulary and its way of cutting text. Immutable; safe to share between threads and to pickle."""

    def __init__(self, backend: Tokenizer, settings: JsonObject) -> None:
        """Wraps a configured tokenizer of the `tokenizers` library; `load` is the usual way to get one.

        Args:
          backend: a tokenizer without padding and truncation; the caller must not change it afterwards.
          settings: the content of `tokenizer_config.json`: the special tokens as `cls_token` ..., `padding_side`, ...
        """
        self._backend = backend
        self._settings = dict(settings)
        self._tokens = {index: token for token, index in backend.get_vocab(with_added_tokens=True).items()}
        self._size = max(self._tokens) + 1
        classes = {entry.tokenizer_class: name for name, entry in TOKENIZERS.items()}
        self.family: str | None = classes.get(settings.get("tokenizer_class", ""))
        self.padding_side: str = settings.get("padding_side", "right")
        self.pad_type_id: int = settings.get("pad_token_type_id", 0)
        roles = {role: settings.get(f"{role}_token") for role in ROLES}
        self.special = SpecialIds(*(None if token is None else backend.token_to_id(token) for token in roles.values()))
        self._views: dict[tuple[int | None, bool], Tokenizer] = {}
        self._joined: Tokenizer | None = None  # for words without a space before them, once they are asked for

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        family: str | None = None,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        split_chinese: bool | None = None,
        add_prefix_space: bool | None = None,
    ) -> SubwordTokenizer:
        """Reads a tokenizer from a folder or one of its files; nothing is downloaded.

        From a folder, the first of `tokenizer.json`, `vocab.txt`, `vocab.json` with `merges.txt`, `*.model` is read.
        Settings in the `tokenizer_config.json` beside it apply; an argument that contradicts them is an error. A
        `tokenizer.json` holds all settings itself, so `family` is the only argument allowed with it.

        Args:
          path: folder or file.
          family: "bert", "roberta", "gpt2", "xlm-roberta", "albert" or "xlnet". By default the family is taken from
            `tokenizer_config.json` (`tokenizer_class`) or `config.json` (`model_type`), else from the kind of file: a
            `vocab.txt` is BERT's, a `vocab.json` is RoBERTa's if it has `<s>`, else GPT-2's. A `*.model` without such
            a configuration needs this argument.
          lowercase: for BERT there is no default, since a `vocab.txt` does not tell: either `do_lower_case` in the
            configuration or this argument is required. Defaults as in the released models: ALBERT true, XLNet false.
          strip_accents: by default, BERT strips accents if it lower-cases; ALBERT and XLNet always do.
          split_chinese: BERT: whether every Chinese character is a word; default true.
          add_prefix_space: GPT-2 and RoBERTa: whether the first word of a text is cut as if a space came before it;
            default false, as in the released models.

        Raises:
          ValueError: there is no tokenizer, a file is malformed or does not fit, or a required argument is missing; the
            message names the file, what was expected and what was found.
        """
        stated = {"lowercase": lowercase, "strip_accents": strip_accents, "split_chinese": split_chinese,
                  "add_prefix_space": add_prefix_space}  # fmt: skip
        source = open_source(Path(path), family, stated)
        backend = build(source)
        return cls(backend, settings_of(source, backend))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`, from which `load` makes an equal tokenizer.

        Creates the folder if needed; other files in it stay. The transformers library can read the two files too.
        """
        save_files(Path(folder), self._backend.to_str(), self._settings)

    def digest(self) -> str:
        """Returns a SHA-256 of everything that determines ids; equal tokenizers have equal digests."""
        content = [json.loads(self._backend.to_str()), self._settings]  # the library writes maps in a random order
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode("ascii")).hexdigest()

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (self._backend.to_str(), self._settings)

    def __repr__(self) -> str:
        return f"SubwordTokenizer(family={self.family!r}, size={self._size})"

    @property
    def size(self) -> int:
        """The number of rows an embedding table needs: the largest id + 1."""
        return self._size

    def id(self, token: str) -> int:
        """Returns the id of a token as it is spelled in the vocabulary (`##ing`, `Ġthe`); KeyError if there is none."""
        index = self._backend.token_to_id(token)
        if index is None:
            raise KeyError(f"token {token!r}: not in this vocabulary of {len(self._tokens):,}")
        return index

    def token(self, index: int) -> str:
        """Returns the token of an id; ValueError if the vocabulary has no such id."""
        try:
            return self._tokens[int(index)]
        except KeyError:
            message = f"subword id {index}: expected an id of this vocabulary, 0 to {self._size - 1}"
            raise ValueError(message) from None

    @property
    def marks_continuations(self) -> bool:
        """Whether pieces inside words are marked (`##ing`), as in WordPiece.

        Other vocabularies mark the pieces that follow a space, so that any piece may begin the first word of a text.
        """
        return style_of(self._backend) == "wordpiece"

    def ids(self) -> list[int]:
        """Returns the ids that have a token, in order; there may be gaps."""
        return sorted(self._tokens)

    def special_count(self, pair: bool = False) -> int:
        """Returns how many special tokens are added to a text, or to a pair."""
        return self._backend.num_special_tokens_to_add(pair)

    def normalized(self, text: str) -> str:
        """Returns the normalised text that is cut into pieces: for an uncased BERT, lower-cased and without accents."""
        text = checked_texts([text])[0]
        return text if self._backend.normalizer is None else self._backend.normalizer.normalize_str(text)

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Subwords:
        """Encodes a text, or two texts as one sequence, with the family's special tokens.

        Lone surrogates are read as U+FFFD. A special token that is spelled out in a text ("[MASK]") becomes that token.

        Args:
          text: any text, also an empty one.
          pair: a second text.
          max_length: the maximum number of tokens, including special ones. A longer text loses its end; of a pair, the
            longer text is shortened first, then both alike (as the fast tokenizers of transformers do).

        Raises:
          ValueError: an argument is not a text, or `max_length` leaves no room for the special tokens.
        """
        pairs = None if pair is None else [pair]
        return self.encode_batch([text], pairs, max_length)[0]

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int | None = None
    ) -> list[Subwords]:
        """Encodes many texts or pairs as `encode` does, on all cores; raises ValueError in the same cases."""
        firsts, seconds = checked_texts(texts), None if pairs is None else checked_texts(pairs)
        view = self._view(max_length, False, pairs is not None)
        return [subwords_of(encoding) for encoding in _encoded(view, inputs(firsts, seconds))]

    def encode_joined(self, words: Sequence[str]) -> list[Subwords]:
        """Encodes each word as one that no space comes before, whatever `add_prefix_space` is, on all cores."""
        if self._joined is None:
            self._joined = joined_view(self._backend)
        return [subwords_of(encoding) for encoding in _encoded(self._joined, inputs(checked_texts(words), None))]

    def encode_words(
        self, words: Sequence[str], pair: Sequence[str] | None = None, max_length: int | None = None
    ) -> Subwords:
        """Encodes a text that is already split into words; `Subwords.words` gives the word of every token.

        No word is lost: a word without any piece (a control character for BERT, an empty string) becomes the unknown
        token, whose offsets cover the whole word. Only `max_length` cuts words off. Byte-level families see a space
        before every word, including the first, whatever `add_prefix_space` is.

        Raises:
          ValueError: an argument is not a sequence of texts, `max_length` leaves no room for the special tokens, or a
            word has no piece and the vocabulary has no unknown token.
        """
        pairs = None if pair is None else [pair]
        return self.encode_words_batch([words], pairs, max_length)[0]

    def encode_words_batch(
        self,
        words: Sequence[Sequence[str]],
        pairs: Sequence[Sequence[str]] | None = None,
        max_length: int | None = None,
    ) -> list[Subwords]:
        """Encodes many sequences of words, or pairs of them, as `encode_words` does; raises ValueError likewise."""
        firsts, seconds = checked_words(words), None if pairs is None else checked_words(pairs)
        view = self._view(max_length, True, pairs is not None)
        encodings = _encoded(view, inputs(firsts, seconds), is_pretokenized=True)
        result = [subwords_of(encoding) for encoding in encodings]
        for row, item in enumerate(result):
            sides = [firsts[row]] if seconds is None else [firsts[row], seconds[row]]
            if len({*zip(item.sequences, item.words, strict=True)} - {(None, None)}) < sum(map(len, sides)):
                result[row] = self._encode_unknown(sides, view)
        return result

    def _encode_unknown(self, sides: list[list[str]], view: Tokenizer) -> Subwords:
        """Encodes the words of one or two texts with the unknown token in place of words that have no piece."""
        replaced: dict[tuple[int | None, int | None], tuple[int, int]] = {}  # special tokens (None, None) never occur
        known = [list(words) for words in sides]
        for side, words in enumerate(sides):
            encoding = self._view(None, True, False).encode(words, is_pretokenized=True, add_special_tokens=False)
            for index in set(range(len(words))).difference(encoding.word_ids):
                if self.special.unk is None:
                    raise ValueError(f"word {words[index]!r} has no piece, and the vocabulary has no unknown token")
                known[side][index] = self._tokens[self.special.unk]
                replaced[side, index] = (0, len(words[index]))
        item = subwords_of(view.encode(*known, is_pretokenized=True))
        places = zip(item.sequences, item.words, item.offsets, strict=True)
        return item._replace(offsets=tuple(replaced.get((side, word), span) for side, word, span in places))

    def _view(self, max_length: int | None, words: bool, pair: bool) -> Tokenizer:
        """Returns a copy of the tokenizer that truncates to `max_length`.

        Truncation is a setting of the library's tokenizer, which all threads share; so each setting has its own copy.
        """
        if max_length is not None and (type(max_length) is not int or max_length < self.special_count(pair)):
            expected = f"a whole number of at least {self.special_count(pair)} (the special tokens)"
            raise ValueError(f"max_length={max_length!r}: expected {expected}")
        view = self._views.get((max_length, words))
        if view is None:
            view = make_view(self._backend, max_length, words)
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            self._views[max_length, words] = view
        return view

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Returns the text of ids, restored as far as possible; raises ValueError for an id that does not exist.

        WordPiece and SentencePiece lose runs of spaces; BERT also loses whether a space came before punctuation. Bytes
        that form no complete character become U+FFFD.
        """
        ids = [int(index) for index in ids]
        for index in ids:
            self.token(index)
        return self._backend.decode(ids, skip_special_tokens=skip_special)

    @functools.cached_property
    def _surfaces(self) -> list[Surface | None]:
        added = self._backend.get_added_tokens_decoder().values()
        special = {self._tokens[index] for index in self.special if index is not None}
        special |= {token.content for token in added if token.special}
        return surfaces(self._backend, special, self._size)

    def surface(self, index: int) -> Surface | None:
        """Returns the characters of an id; None for special tokens and placeholders (`[unused1]`, `madeupword0000`).

        Raises:
          ValueError: the vocabulary does not have this id, or it marks words in an unknown way.
        """
        self.token(index)
        return self._surfaces[int(index)]

    def pad(self, batch: Sequence[Subwords], length: int | None = None, pad_id: int | None = None) -> SubwordBatch:
        """Pads encoded texts to `length`, by default to the longest text, on the family's side (XLNet: left).

        Raises:
          ValueError: a text is longer than `length`, or the vocabulary has no padding token (GPT-2) and `pad_id` is
            not given.
        """
        pad_id = self.special.pad if pad_id is None else pad_id
        return padded(batch, length, pad_id, self.pad_type_id, self.padding_side == "left")


def _encoded(view: Tokenizer, texts: list[Any], **options: bool) -> list[Any]:  # types of the library, in Rust
    """Encodes a batch; a panic of the library, such as of a pattern without end, is a ValueError."""
    try:
        return view.encode_batch(texts, **options)
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust code is not an Exception
        raise ValueError(f"the tokenizer failed: {' '.join(str(error).split())[:200]}") from None


def _restored(tokenizer_json: str, settings: JsonObject) -> SubwordTokenizer:
    """Restores a pickled tokenizer."""
    from tokenizers import Tokenizer

    return SubwordTokenizer(restore_scores(Tokenizer.from_str(tokenizer_json)), settings)
