"""What a cloze test is asked to do, and the checks that need no model.

Open it to add an option, or to see why one is refused. It needs no JAX.
"""

from __future__ import annotations

import dataclasses

from charlm.core.types import JsonObject
from charlm.text.defences import parsed
from charlm.text.noise.levels import ALL
from charlm.wordrec.defences import KNOWN

SENTENCES = 1000  # of the data, where nothing else is asked for


@dataclasses.dataclass(frozen=True)
class ClozeSettings:
    """The settings of a cloze test.

    Attributes:
      models: what guesses: folders, workdirs, names of models.
      data: corpora, as `charlm.data.sources.open_source` reads them.
      out: folder of the report.
      words: file of the words to choose from, the most frequent first; "": the commonest of all `data`.
      noise: noises as `charlm.text.noise.Noise.parse` reads them; "all": every kind at its usual rate.
      seeds: number of draws of each noise.
      misspellings: file with the list for the kind "misspelling".
      defence: what stands in front of each model, as `charlm.text.defences.parsed` reads it.
      sentences: how many sentences of `data` are asked about, from the first on; 0: all.
      seed: decides which word of a sentence is left out.
      samples: number of resamples of the sentences for each interval.
      command: the command that the report names for reproducing it.
    """

    models: tuple[str, ...]
    data: tuple[str, ...]
    out: str
    words: str = ""
    noise: tuple[str, ...] = (ALL,)
    seeds: int = 1
    misspellings: str = ""
    defence: tuple[str, ...] = ()
    sentences: int = SENTENCES
    seed: int = 0
    samples: int = 1000
    command: str = ""

    def __post_init__(self) -> None:
        """Checks the values; raises a ValueError that names the wrong one."""
        for name in ("models", "data", "noise", "defence"):
            value = getattr(self, name)
            if isinstance(value, str) or (name != "defence" and not len(value)):
                raise ValueError(f"{name}={value!r}: expected a sequence of at least one")
            object.__setattr__(self, name, tuple(dict.fromkeys(value)))
        object.__setattr__(self, "defence", tuple("+".join(parsed(spec, KNOWN)) for spec in self.defence))
        for name, lowest in {"seeds": 1, "sentences": 0, "seed": 0, "samples": 1}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name}={value!r}: expected a whole number of at least {lowest}")

    def to_dict(self) -> JsonObject:
        """Returns the settings as a JSON-able dict."""
        return {name: list(x) if isinstance(x, tuple) else x for name, x in dataclasses.asdict(self).items()}
