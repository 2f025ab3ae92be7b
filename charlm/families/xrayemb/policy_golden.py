"""Golden sentences of XRayEmb's policies: the words that the released code selects, and the sequences that result.

`golden` calls it; open it when charlm's policies select other words than the released code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from charlm.convert.golden import Case, Ours
from charlm.core.reading import read_object
from charlm.core.types import Json, JsonObject
from charlm.families.xrayemb.policies import BYTE_SPACE, CONTINUES, get_policy, runs_of_tokens, select

NAME, FILE = "policies", "policy_golden.json"
STYLES = {"bert": False, "gpt2_style": True}  # style of the tokens, and whether it is byte-level
SPECIAL_PIECES = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]", "[VECTORIZED]", "<|endoftext|>", "<PAD>")
OURS = {  # their names of policies, and ours
    "none": "none",
    "all": "all",
    "all_multi": "all_multi",
    "all_single": "all_single",
    "no_easy_suffs_author": "no_suffix_compat",
    "suffixes_paper": "no_suffix",
    "stoch_0.2": "stochastic:0.2",
    "stoch_0.5": "stochastic:0.5",
}


class _Draws:
    """Replays the numbers that the released code drew, in place of a generator."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers, self.left = numbers, len(numbers)

    def random(self) -> float:
        """Returns the next number; when none is left, 2, which selects nothing, and `left` becomes negative."""
        self.left -= 1
        return self._numbers[len(self._numbers) - self.left - 1] if self.left >= 0 else 2.0


def policy_case(folder: str | Path) -> Case | None:
    """Returns the sentences in a folder's file as one case; None when there is no file.

    Each style and policy has three arrays over all sentences: the group of every token (-1 for tokens that stay), the
    characters of the selected words as numbers, and how many draws are left after each sentence.

    Raises:
      ValueError: the file cannot be read, or names an unknown policy.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    meta = read_object(path)
    if unknown := sorted({name for _, sentence in _sentences(meta) for name in sentence["policies"]} - set(OURS)):
        raise ValueError(f"{path}: policy {unknown[0]!r} is not one of {', '.join(OURS)}")

    def theirs(policy: str, style: str, sentence: Mapping[str, Json]) -> tuple[list[int], list[str], int]:
        want = sentence["policies"][policy]
        return want["filter"], [group["word"] for group in want["selected"]], 0

    return Case(NAME, meta, {}, _arrays(meta, theirs))


def outputs(case: Case) -> dict[str, Ours]:
    """Returns the results of our policies on the sentences; see `charlm.convert.golden`."""
    return {name: Ours(value) for name, value in _arrays(case.meta, _ours).items()}


def _ours(policy: str, style: str, sentence: Mapping[str, Json]) -> tuple[list[int], list[str], int]:
    """Returns the groups of a sentence's tokens, the selected words, and how many draws are left."""
    tokens = sentence["tokens"]
    words = runs_of_tokens(tokens, [token in SPECIAL_PIECES for token in tokens], STYLES[style])
    draws = _Draws(sentence["policies"][policy].get("uniform_draws", ()))
    chosen_W = select(get_policy(OURS[policy]), words, draws)
    groups, texts = [-1] * len(tokens), []
    for start, end in zip(words.starts_W[chosen_W], words.ends_W[chosen_W], strict=True):
        groups[start:end] = [len(texts)] * (end - start)
        texts.append("".join(tokens[start:end]).replace(BYTE_SPACE if STYLES[style] else CONTINUES, ""))
    return groups, texts, draws.left


def _arrays(meta: Mapping[str, Json], of: Callable[..., tuple[list[int], list[str], int]]) -> dict[str, np.ndarray]:
    """Returns the arrays of each style and policy over all sentences."""
    found = {}
    for style in STYLES:
        sentences = [sentence for name, sentence in _sentences(meta) if name == style]
        for policy in OURS if sentences else ():
            read = [of(policy, style, sentence) for sentence in sentences]
            found[f"{style}/{policy}/groups"] = np.array([group for groups, _, _ in read for group in groups])
            found[f"{style}/{policy}/words"] = _codes([" ".join(texts) for _, texts, _ in read])
            found[f"{style}/{policy}/draws_left"] = np.array([left for _, _, left in read])
    return found


def _sentences(meta: Mapping[str, Json]) -> Iterator[tuple[str, JsonObject]]:
    return ((style, sentence) for style in STYLES for sentence in meta.get(style, ()))


def _codes(texts: Sequence[str]) -> np.ndarray:
    """Returns the characters of texts as numbers, with a line break before each text."""
    return np.array([ord(char) for text in texts for char in f"\n{text}"], np.int64)
