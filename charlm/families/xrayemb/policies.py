"""Which words XRayEmb reads as characters: its policies (Pinter et al., 2021, section 2 and released code).

A policy selects whole words of a sequence of subwords. What a word is follows from how its pieces are spelled, not
from the text: to BERT punctuation is a word of its own, to RoBERTa and GPT-2 a word is what stands between spaces.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

import numpy as np

CONTINUES, BYTE_SPACE = "##", "Ġ"  # how WordPiece marks what continues, and byte-level vocabularies a space

# Endings that a word of two pieces may keep (section 2).
SUFFIXES = (
    "s", "ed", "es", "ing", "ly", "al", "ally", "'m", "'re", "'ve", "y", "ive", "er", "'t", "'ll", "an", "ers"
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class WordRuns:
    """The words of a sequence of P pieces, W of them, each a run of pieces. Special pieces are in none.

    Attributes:
      tokens: the pieces as the vocabulary spells them, `##ing` or `Ġthe`.
      chars: what they stand for, without the mark of a beginning or a continuation.
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
    """What a policy draws from: a generator of NumPy's, or numbers that were drawn before."""

    def random(self) -> float:
        """Returns a number in [0, 1)."""
        ...


# Says of each word whether it is selected, bool [W]. One that draws has the attribute `random = True`.
Policy = Callable[[WordRuns, Draws], np.ndarray]


def runs(real_P: np.ndarray, begins_P: np.ndarray, inked_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where the words of P pieces start and end, int [W] each.

    The first piece of a sequence, and one after a special piece, begins a word however it is spelled. (In the released
    code one that continues after a special piece joins the last word of the sequence.)

    Args:
      real_P: bool, pieces that may be in words: all but special ones. begins_P: bool, those that begin one by their
        spelling. inked_P: bool, those that are not white space; a run without any is no word.
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
    """Returns the words of tokens as their vocabulary spells them, where there is no tokenizer.

    Args:
      special: of each whether it is a special token. byte_level: `Ġ` begins words, as to RoBERTa and GPT-2; False: `##`
        goes on with one, as to BERT.
    """
    mark = BYTE_SPACE if byte_level else CONTINUES
    chars = [token.removeprefix(mark) for token in tokens]
    begins_P = np.array([token.startswith(mark) == byte_level for token in tokens], bool)
    inked_P = np.array([bool(char.strip()) for char in chars], bool)
    return WordRuns(tokens, chars, *runs(~np.array(special, bool), begins_P, inked_P))


def no_words(words: WordRuns, rng: Draws) -> np.ndarray:
    """Selects nothing: the base model as it is."""
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
    """Selects the words of several pieces, but for those of two whose second is one of `SUFFIXES` ("All no-suff").

    Attributes:
      compat_suffix: the second piece is compared with its `##`, as the released code does, so that to BERT this is
        `all_multi`. The paper's table 2 has it without.
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

    Draws come in the released code's order: one for each piece, but for those that continue a selected word.

    Attributes:
      p: the probability.

    Raises:
      ValueError: it is none.
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
    """Returns the policy of a name, "stochastic:0.1" for one that draws; a callable is returned as it is.

    Raises:
      ValueError: there is none of that name, or "stochastic" has no probability.
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
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    raise ValueError(f"policy {spec!r} is not one of {', '.join(known)}; nearest: {nearest!r}")


def check_policy(spec: str | Policy) -> None:
    """Raises ValueError unless a model can have this policy; "" leaves it to the model."""
    if spec:
        get_policy(spec)


def is_random(policy: Policy) -> bool:
    """Says whether a policy draws."""
    return bool(getattr(policy, "random", False))


def select(policy: Policy, words: WordRuns, rng: Draws | None) -> np.ndarray:
    """Returns which words a policy selects, bool [W].

    Args:
      rng: of the sequence; None: one for policies that do not draw.

    Raises:
      ValueError: the policy draws and there is no generator, or it does not say it of every word.
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
    """Returns the generator of a text: the same for the same seed and text, whatever was read before."""
    content = "\0".join(texts).encode("utf-8", "surrogatepass")
    words = np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), "<u4")
    return np.random.default_rng([*seed, *words.tolist()])
