"""The defences that commands know: those of `charlm.text.defences`, and those that need a text or model of yours.

`--defence` of `charlm.robustness`, `charlm.evaluate_retrieval` and `charlm.evaluate_cloze` reads this table, which
needs no JAX. Open it to change what may follow "wordrec:".
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from charlm.core.nearest import did_you_mean
from charlm.data.lines import numbered_lines
from charlm.text.defences import DEFENCES, Defence, Entry
from charlm.text.jamspell import JamSpell, check_model
from charlm.text.speller.defence import NoisyChannel

TAKES = "FOLDER[,neutral=WORD | ,background=FOLDER]"
_OPTIONS = ("neutral", "background")


class Recognisers(NamedTuple):
    """What stands behind "wordrec:": the folder of a recogniser, and what is done about words that it does not know."""

    folder: str
    neutral: str = ""
    background: str = ""


def read_recognisers(argument: str) -> Recognisers:
    """Returns what an argument such as "runs/wordrec,neutral=a" says.

    Raises:
      ValueError: it is not of this form, or a folder does not exist.
    """
    folder, *options = argument.split(",")
    said: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if name not in _OPTIONS or not equals or not value or value.split() != [value]:
            raise ValueError(
                f"--defence=wordrec:{argument}: expected wordrec:{TAKES}, got {option!r}{did_you_mean(name, _OPTIONS)}"
            )
        said[name] = value
    if len(said) < len(options) or len(said) > 1:
        raise ValueError(f"--defence=wordrec:{argument}: neutral or background, one of them and once")
    for one in (folder, said.get("background", folder)):
        if not Path(one).is_dir():
            raise ValueError(f"--defence=wordrec:{argument}: there is no folder {one!r}; expected wordrec:{TAKES}")
    return Recognisers(folder, **said)


def _recognition(argument: str) -> Defence:
    from charlm.wordrec.defence import WordRecognition  # imported late, so that --help needs no JAX
    from charlm.wordrec.recogniser import TrainedRecogniser

    said, key = read_recognisers(argument), "--defence=wordrec"
    background = TrainedRecogniser.load(said.background, key) if said.background else None
    return WordRecognition(TrainedRecogniser.load(said.folder, key), said.neutral, background)


def _speller(path: str) -> Defence:
    return NoisyChannel.of_texts(line for _, line in numbered_lines(path))


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise ValueError(f"--defence=speller:{path}: there is no such file; expected a text whose words are known")


KNOWN: Mapping[str, Entry] = MappingProxyType(
    {
        **DEFENCES,
        "speller": Entry(
            _speller,
            "the likeliest of the words of a text, by frequency and slips of the keyboard",
            takes="FILE",
            check=_check_file,
        ),
        "jamspell": Entry(
            JamSpell,
            "the spelling corrector JamSpell with a language model of yours (package jamspell)",
            takes="FILE",
            check=check_model,
        ),
        "wordrec": Entry(
            _recognition,
            "a word recogniser of yours (charlm wordrec train)",
            takes=TAKES,
            check=read_recognisers,
        ),
    }
)
