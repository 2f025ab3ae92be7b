"""XRayEmb's policies, which select the words to read as characters (Pinter et al., 2021, section 2; released code).

Open it to add a policy. A policy selects whole words of a sequence of subwords. The spelling of the pieces determines
the words, not the text: for BERT punctuation is a word of its own, for RoBERTa and GPT-2 words are separated by white
space only.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import numpy as np

from charlm.core.nearest import did_you_mean

CONTINUES, BYTE_SPACE = "##", "Ġ"  # WordPiece's mark of a continued word; byte-level vocabularies' mark of a space

# Endings that a word of two pieces may keep (section 2).
SUFFIXES = (
    "s", "ed", "es", "ing", "ly", "al", "ally", "'m", "'re", "'ve", "y", "ive", "er", "'t", "'ll", "an", "ers"
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class WordRuns:
    """The W words of a sequence of P pieces; each word is a run of pieces. Special pieces belong to no word.

    Attributes:
      tokens: the pieces as the vocabulary spells them, `##ing` or `Ġthe`.
      chars: the text of the pieces, without the mark of a beginning or a continuation.
      starts_W, ends_W: int, the pieces [start, end) of each word, in order.
    """

    tokens: Sequence[str]
    chars: Sequence[str]
    starts_W: np.ndarray
    ends_W: np.ndarray

    def __len__(self) -> int:
        return len(self.starts_W)

    @property
    def counts_W(self) -> np.ndarray:
        """The number of pieces of each word."""
        return self.ends_W - self.starts_W


class Draws(Protocol):
    """The source of a policy's draws: a NumPy generator, or numbers that were drawn before."""

    def random(self) -> float:
        """Returns a number in [0, 1)."""
        ...


# Returns which words are selected, bool [W]. A policy that draws has the attribute `random = True`.
Policy = Callable[[WordRuns, Draws], np.ndarray]


def runs(real_P: np.ndarray, begins_P: np.ndarray, inked_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the words of P pieces start and end, int [W] each.

    The first piece of a sequence, and a piece after a special piece, always begins a word, whatever its spelling. (In
    the released code, a continuing piece after a special piece joins the last word of the sequence.)

    Args:
      real_P: bool, pieces that may be in words: all but special ones.
      begins_P: bool, pieces that begin a word by their spelling.
      inked_P: bool, pieces that are not white space; a run of white space only is no word.
    """
    P = len(real_P)
    before_P = np.concatenate([[False], real_P[:-1]])[:P]
    starts_P = real_P & (begins_P | ~before_P)
    starts_W = np.flatnonzero(starts_P)
    edges = np.append(np.flatnonzero(starts_P | ~real_P), P)
    ends_W = edges[np.searchsorted(edges, starts_W, "right")]
    inked = np.concatenate([[0], np.cumsum(inked_P)])
    kept = inked[ends_W] > inked[starts_W]
    return starts_W[kept], ends_W[kept]


def runs_of_tokens(tokens: Sequence[str], special: Sequence[bool], byte_level: bool = False) -> WordRuns:
    """Returns the words of tokens without a tokenizer, from the tokens' spelling in the vocabulary.

    Args:
      special: whether each token is a special token.
      byte_level: True: `Ġ` begins a word, as for RoBERTa and GPT-2; False: `##` continues a word, as for BERT.
    """
    mark = BYTE_SPACE if byte_level else CONTINUES
    chars = [token.removeprefix(mark) for token in tokens]
    begins_P = np.array([token.startswith(mark) == byte_level for token in tokens], bool)
    inked_P = np.array([bool(char.strip()) for char in chars], bool)
    return WordRuns(tokens, chars, *runs(~np.array(special, bool), begins_P, inked_P))


def no_words(words: WordRuns, rng: Draws) -> np.ndarray:
    """Selects no words: the base model as it is."""
    return np.zeros(len(words), bool)


def all_words(words: WordRuns, rng: Draws) -> np.ndarray:
    """Selects every word."""
    return np.ones(len(words), bool)


def all_multi(words: WordRuns, rng: Draws) -> np.ndarray:
    """Selects the words of several pieces."""
    return words.counts_W > 1


def all_single(words: WordRuns, rng: Draws) -> np.ndarray:
    """Selects the words of one piece."""
    return words.counts_W == 1


@dataclasses.dataclass(frozen=True)
class NoSuffix:
    """Selects words of several pieces, except words of two pieces with the second in `SUFFIXES` ("All no-suff").

    Attributes:
      compat_suffix: compares the second piece with its `##`, as the released code does, so that for BERT this is the
        same as `all_multi`. The paper's table 2 compares it without `##`.
    """

    compat_suffix: bool = False

    def __call__(self, words: WordRuns, rng: Draws) -> np.ndarray:
        """Returns bool [W]."""
        counts_W = words.counts_W
        chosen_W = counts_W > 1
        spelled = words.tokens if self.compat_suffix else words.chars
        for w in np.flatnonzero(counts_W == 2).tolist():
            chosen_W[w] = spelled[words.starts_W[w] + 1] not in SUFFIXES
        return chosen_W


@dataclasses.dataclass(frozen=True)
class Stochastic:
    """Selects each word with a probability, independently.

    Draws have the order of the released code: one per piece, except for pieces that continue a selected word.

    Attributes:
      p: the probability.

    Raises:
      ValueError: `p` is no probability.
    """

    random: ClassVar[bool] = True
    p: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"policy stochastic:{self.p}: expected a probability, 0 to 1")

    def __call__(self, words: WordRuns, rng: Draws) -> np.ndarray:
        """Returns bool [W]."""
        draw, p, chosen = rng.random, self.p, []
        for count in words.counts_W.tolist():
            selected = draw() < p
            chosen.append(selected)
            for _ in range(0 if selected else count - 1):
                draw()
        return np.array(chosen, bool)


POLICIES: dict[str, Policy] = {
    "none": no_words,
    "all": all_words,
    "all_multi": all_multi,
    "all_single": all_single,
    "no_suffix": NoSuffix(),
    "no_suffix_compat": NoSuffix(compat_suffix=True),
}


def get_policy(spec: str | Policy) -> Policy:
    """Returns the policy of a name, such as "stochastic:0.1" for one that draws; returns a callable unchanged.

    Raises:
      ValueError: there is no policy of that name, or "stochastic" has no probability.
    """
    if callable(spec):
        return spec
    if spec in POLICIES:
        return POLICIES[spec]
    name, _, share = str(spec).partition(":")
    if name == "stochastic":
        try:
            return Stochastic(float(share))
        except ValueError:
            raise ValueError(f"policy {spec!r}: expected a probability, 0 to 1, such as stochastic:0.1") from None
    known = [*POLICIES, "stochastic:P"]
    raise ValueError(f"policy {spec!r} is not one of {', '.join(known)}{did_you_mean(name, known)}")


def check_policy(spec: str | Policy) -> None:
    """Raises ValueError unless `spec` names a policy; "" means that the model's own is used."""
    if spec:
        get_policy(spec)


def is_random(policy: Policy) -> bool:
    """Returns whether a policy draws words at random."""
    return bool(getattr(policy, "random", False))


def select(policy: Policy, words: WordRuns, rng: Draws | None) -> np.ndarray:
    """Returns which words a policy selects, bool [W].

    Args:
      rng: generator of the sequence; None: only for policies that do not draw.

    Raises:
      ValueError: the policy draws and there is no generator, or its result is not bool [W].
    """
    if rng is None:
        if is_random(policy):
            raise ValueError(f"{policy} draws words: expected a random generator for each sequence, got none")
        rng = np.random.default_rng(0)
    chosen_W = np.asarray(policy(words, rng))
    if chosen_W.shape != (len(words),) or (chosen_W.dtype != bool and len(words)):
        got = f"{chosen_W.dtype} {list(chosen_W.shape)}"
        raise ValueError(f"{policy} returned {got}; expected bool [{len(words)}], one for each word")
    return chosen_W.astype(bool)


def text_rng(seed: Sequence[int], *texts: str) -> np.random.Generator:
    """Returns the random generator of a text, which depends only on the seed and the text."""
    content = "\0".join(texts).encode("utf-8", "surrogatepass")
    words = np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), "<u4")
    return np.random.default_rng([*seed, *words.tolist()])
