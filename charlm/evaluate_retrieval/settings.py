"""The settings of a measurement of retrieval, and the noises and rivals that they lead to.

Open it to add an option, or a spelling corrector that only retrieval can have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from charlm.core.types import JsonObject
from charlm.text.defences import Defence, Entry, SymSpell, parsed, words_in
from charlm.text.noise import KINDS, Noise
from charlm.text.speller.defence import NoisyChannel
from charlm.wordrec.defences import KNOWN

ALL = "all"
RECALLS = (10, 100)  # the values of K of recall@K
SCORES = ("ndcg@10", "mrr@10", "recall@10", "recall@100", "map")
# These are made from the documents, so they are no entries of `KNOWN`.
WITH_WORDS: Mapping[str, Callable[[Iterable[str]], Defence]] = MappingProxyType(
    {
        "symspell-index": lambda texts: SymSpell(words_in(texts)),
        "speller-index": NoisyChannel.of_texts,
    }
)
RIVALS: Mapping[str, Entry] = MappingProxyType(
    {
        **KNOWN,
        "symspell-index": Entry(SymSpell, "SymSpell that also knows every word of the documents", "symspellpy"),
        "speller-index": Entry(NoisyChannel, "the likeliest word of the documents, by frequency and slips"),
    }
)


@dataclasses.dataclass(frozen=True)
class RetrievalSettings:
    """The settings of a measurement.

    Attributes:
      models: what embeds queries: folders, workdirs, names of models.
      out: folder of the report.
      beir: folder in BEIR's layout; "": `squad` has the data.
      split: of its judgements.
      squad: files of SQuAD, whose paragraphs are the documents.
      documents: the model that embeds the documents for all models; "": each embeds its own.
      noise: noises as `charlm.text.noise.Noise.parse` reads them; "all": every kind at its usual rate.
      seeds: number of draws of each noise.
      first_seed: the first of these seeds.
      misspellings: file with the list for the kind "misspelling".
      defence: what stands in front of each model, keys of `RIVALS`, several as "a+b".
      defended: those of `models` that are measured behind `defence`, too; none: all.
      queries: how many queries are drawn; 0: all.
      query_seed: the seed of that draw.
      query_prompt, document_prompt: names of prompts of the models' files; "": the default ones.
      metric: the main score, one of `SCORES`.
      samples: number of resamples of the queries for each interval.
      batch_size: texts that are embedded at a time.
      command: the command that the report names for reproducing it.
    """

    models: tuple[str, ...]
    out: str
    beir: str = ""
    split: str = "test"
    squad: tuple[str, ...] = ()
    documents: str = ""
    noise: tuple[str, ...] = (ALL,)
    seeds: int = 1
    first_seed: int = 0
    misspellings: str = ""
    defence: tuple[str, ...] = ()
    defended: tuple[str, ...] = ()
    queries: int = 0
    query_seed: int = 0
    query_prompt: str = ""
    document_prompt: str = ""
    metric: str = "mrr@10"
    samples: int = 1000
    batch_size: int = 32
    command: str = ""

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        for name in ("models", "squad", "noise", "defence", "defended"):
            value = getattr(self, name)
            if isinstance(value, str) or (name in ("models", "noise") and not len(value)):
                raise ValueError(f"{name}={value!r}: expected a sequence of at least one")
            object.__setattr__(self, name, tuple(dict.fromkeys(value)))
        if bool(self.beir) == bool(self.squad):
            raise ValueError("expected --beir FOLDER or --squad FILE, one of them")
        object.__setattr__(self, "defence", tuple("+".join(parsed(spec, RIVALS)) for spec in self.defence))
        if odd := [name for name in self.defended if name not in self.models]:
            raise ValueError(f"defended={odd[0]!r}: expected one of the models, {', '.join(self.models)}")
        if self.defended and not self.defence:
            raise ValueError("defended needs defence: what stands in front of these models")
        least = {"seeds": 1, "first_seed": 0, "queries": 0, "query_seed": 0, "samples": 1, "batch_size": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name}={value!r}: expected a whole number of at least {lowest}")
        if self.metric not in SCORES:
            raise ValueError(f"metric={self.metric!r}: expected one of {', '.join(SCORES)}")

    def to_dict(self) -> JsonObject:
        """Returns the settings as a JSON-able dict."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in dataclasses.asdict(self).items()}


class Level(NamedTuple):
    """A noise as the report names it, and what draws it; None: clean text."""

    name: str
    noise: Noise | None


def planned(settings: RetrievalSettings) -> tuple[list[Level], list[str]]:
    """Returns clean text and every noise, and notes on kinds that are left out.

    Raises:
      ValueError: a noise does not exist, or needs a list of misspellings that is not given.
    """
    notes, found = [], {"clean": Level("clean", None)}
    for spec in settings.noise:
        if spec != ALL:
            noise = Noise.parse(spec)
            if KINDS[noise.kind].listed and not settings.misspellings:
                raise ValueError(f"noise {spec!r} needs a list of misspellings: --misspellings FILE")
            found[str(noise)] = Level(str(noise), noise)
            continue
        for name, kind in KINDS.usable():
            if kind.listed and not settings.misspellings:
                notes.append(f"{name} is not measured: no list of misspellings was given (--misspellings)")
                continue
            noise = Noise.parse(name)
            found[str(noise)] = Level(str(noise), noise)
    return list(found.values()), notes
