"""JamSpell in front of a model: a spelling corrector that reads the words around a misspelled one, three at a time.

Open it to change how it is asked. `charlm.wordrec.defences` lists it, since it needs a model of yours.
"""

from __future__ import annotations

import functools
import hashlib
import locale
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from charlm.core import extras
from charlm.text.defences import WORD, Defence, cased
from charlm.text.noise.edits import Edit

LOCALE = "en_US.UTF-8"  # JamSpell ends the process where it is not installed


def check_model(path: str) -> None:
    """Raises ValueError if there is no such model, or if JamSpell cannot run here."""
    what = f"--defence=jamspell:{path}"
    if not Path(path).is_file():
        raise ValueError(f"{what}: there is no such file; expected a language model of JamSpell")
    extras.check(what, "jamspell")
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, LOCALE)
    except locale.Error:
        raise ValueError(
            f"{what}: JamSpell needs the locale {LOCALE}: apt install locales; localedef -i en_US -f UTF-8 {LOCALE}"
        ) from None
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


class JamSpell(Defence):
    """The spelling corrector JamSpell (Ozinov) with a language model that its `TrainLangModel` has made of a text.

    Words stay as many as they are: it neither joins nor cuts them. It reads the model by code of its own in C++,
    without the checks that charlm's files have: take models of your own.

    Args:
      path: the language model.
    """

    def __init__(self, path: str) -> None:
        """Loads the model; raises ValueError if it is none, or if JamSpell cannot run here."""
        check_model(path)
        self._corrector = extras.load("--defence=jamspell", "jamspell").TSpellCorrector()
        if not self._corrector.LoadLangModel(path):
            raise ValueError(f"--defence=jamspell:{path}: this is no language model of JamSpell")
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        self.version = f"jamspell {metadata.version('jamspell')} {digest} 2"  # of how it is asked
        self._fixed = functools.lru_cache(1 << 12)(self._corrector.FixFragment)

    def edits(self, text: str) -> list[Edit]:
        """Returns the corrections of all words of a text."""
        old, new = list(WORD.finditer(text)), WORD.findall(self._fixed(text))
        if len(old) != len(new):  # it has lost or made one, so which is which cannot be said
            return []
        pairs = ((match, _in_its_case(word, match[0])) for match, word in zip(old, new, strict=True))
        return [Edit(*match.span(), word) for match, word in pairs if word != match[0]]

    def corrected(self, words: Sequence[str]) -> list[str]:
        """Returns for each word the one that suits best at its place."""
        lowered = [word.lower() for word in words]
        found = [self._corrector.GetCandidates(lowered, n) if WORD.fullmatch(w) else () for n, w in enumerate(words)]
        return [_in_its_case(ways[0], word) if ways else word for word, ways in zip(words, found, strict=True)]


def _in_its_case(new: str, old: str) -> str:
    """Returns a correction with the case of what was there; that itself if no letter differs, such as McDonald."""
    return old if new.lower() == old.lower() else cased(new.lower(), old)
