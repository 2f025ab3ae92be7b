"""The settings of a measurement of retrieval, and the rivals that only retrieval can have.

Open it to add an option, or a spelling corrector that only retrieval can have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from charlm.core.types import JsonObject
from charlm.text.defences import Defence, Entry, SymSpell, parsed, words_in
from charlm.text.noise.levels import ALL
from charlm.text.speller.defence import NoisyChannel
from charlm.wordrec.defences import KNOWN

SPLIT = "test"
RECALLS = (10, 100)  # the values of K of recall@K
SCORES = ("ndcg@10", "mrr@10", "recall@10", "recall@100", "map")
# Of labelled texts: a query has one right class, and often there are fewer than ten classes.
INTENT_RECALLS = (1,)
INTENT_SCORES = ("accuracy", "mrr@10")
COLUMNS: Mapping[str, str] = MappingProxyType({"text": "sentence", "label": "label"})  # as in fine-tuning
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
      beir: folder in BEIR's layout; "": `squad` or `intents` has the data.
      split: of its judgements; "": test.
      squad: files of SQuAD, whose paragraphs are the documents.
      intents: two files of labelled texts: those whose means are the classes, and those that are the queries.
      text, label: their columns, by name or by number; "": those of `COLUMNS`.
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
      metric: the main score, one of `scores`; "": accuracy for labelled texts, else mrr@10.
      samples: number of resamples of the queries for each interval.
      batch_size: texts that are embedded at a time.
      command: the command that the report names for reproducing it.
    """

    models: tuple[str, ...]
    out: str
    beir: str = ""
    split: str = ""
    squad: tuple[str, ...] = ()
    intents: tuple[str, ...] = ()
    text: str = ""
    label: str = ""
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
    metric: str = ""
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
        self._check_data()
        object.__setattr__(self, "defence", tuple("+".join(parsed(spec, RIVALS)) for spec in self.defence))
        if odd := [name for name in self.defended if name not in self.models]:
            raise ValueError(f"--defended {odd[0]}: expected one of the models, {', '.join(self.models)}")
        if self.defended and not self.defence:
            raise ValueError("--defended needs --defence: what stands in front of these models")
        least = {"seeds": 1, "first_seed": 0, "queries": 0, "query_seed": 0, "samples": 1, "batch_size": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name}={value!r}: expected a whole number of at least {lowest}")
        if not self.metric:
            object.__setattr__(self, "metric", "accuracy" if self.intents else "mrr@10")
        if self.metric not in self.scores:
            raise ValueError(f"metric={self.metric!r}: expected one of {', '.join(self.scores)}")

    def _check_data(self) -> None:
        """Checks that the options are those of one kind of data, and sets the usual values of that kind."""
        if isinstance(self.intents, str) or len(self.intents) not in (0, 2):
            raise ValueError(f"intents={self.intents!r}: expected two files, TRAIN and DEV")
        object.__setattr__(self, "intents", tuple(self.intents))
        kinds = {"--beir FOLDER": self.beir, "--squad FILE": self.squad, "--intents TRAIN DEV": self.intents}
        if len(given := [kind for kind, value in kinds.items() if value]) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"the data: expected one of {', '.join(kinds)}, got {got}")
        for kind, names in {"beir": ("split",), "intents": tuple(COLUMNS)}.items():
            for name in names:
                value = getattr(self, name)
                if value and not getattr(self, kind):
                    raise ValueError(f"--{name} {value}: expected only with --{kind}, got {given[0]}")
                if not value and getattr(self, kind):
                    object.__setattr__(self, name, COLUMNS.get(name, SPLIT))

    @property
    def recalls(self) -> tuple[int, ...]:
        """The values of K of recall@K in the rows of a query."""
        return INTENT_RECALLS if self.intents else RECALLS

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores of the report."""
        return INTENT_SCORES if self.intents else SCORES

    def to_dict(self) -> JsonObject:
        """Returns the settings as a JSON-able dict."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in dataclasses.asdict(self).items()}
