"""Typos from Python: `charlm.noise("keyboard:0.1")` returns a function of texts.

Open it to change what that function takes; the kinds of noise are those of `charlm.text.noise`.
"""

# To Python, a text is also an iterable of texts; here it is always one.
# pyright: reportOverlappingOverload=false

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import overload

from charlm.api.texts import checked_items
from charlm.text.noise import Noise, Noiser
from charlm.text.noise.misspellings import Misspellings


class NoisyText:
    """Puts noise into texts: the same text always gets the same noise, whatever other texts come with it.

    Args:
      spec: kind[:rate[:shortest word]][@language], such as "keyboard:0.1"; `python -m charlm.robustness --help` lists
        the kinds.
      seed: another seed gives other typos.
      misspellings: file of misspellings, for the kind "misspelling".

    Raises:
      ValueError: there is no such kind (the message names the nearest one), the rate is out of range, or the file is
        none of misspellings.
      OSError: the file cannot be read.
    """

    def __init__(self, spec: str, seed: int = 0, misspellings: str = "") -> None:
        if not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"seed={seed!r}: expected a whole number from 0 on")
        kind = Noise.parse(spec)
        if kind.kind == "misspelling" and not misspellings:
            raise ValueError("the noise misspelling needs a file of them: misspellings=FILE")
        words = Misspellings.read(misspellings) if misspellings else None
        self._noiser = Noiser(kind, int(seed), words)

    @overload
    def __call__(self, texts: str) -> str: ...

    @overload
    def __call__(self, texts: Iterable[str]) -> list[str]: ...

    def __call__(self, texts: str | Iterable[str]) -> str | list[str]:
        """Returns a text with noise, or a list of them for several texts."""
        if isinstance(texts, str):
            return self._noiser.text(texts, key=texts).text
        return [self._noiser.text(text, key=text).text for text in checked_items(texts)]

    def __repr__(self) -> str:
        return f"charlm.noise({str(self._noiser.noise)!r}, seed={self._noiser.seed})"


def noise(spec: str, seed: int = 0, misspellings: str = "") -> NoisyText:
    """Returns a function that puts noise into a text or several; see `NoisyText`."""
    if not isinstance(spec, str):
        raise ValueError(f"noise: expected kind[:rate], such as 'keyboard:0.1', got {spec!r}")
    return NoisyText(spec, seed, misspellings)
