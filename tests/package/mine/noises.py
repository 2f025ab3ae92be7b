"""An example of a kind of noise in a package of its own."""

import numpy as np

from charlm import register
from charlm.text.noise import Edit


@register.noise("vowels", share_of="vowels", rate=0.2, line="deletes a vowel")
def vowels(characters, how, rng):
    """Deletes vowels."""
    drawn = rng.random(len(characters.codes_U)) < how.rate
    is_vowel = np.isin(characters.codes_U, [ord(letter) for letter in "aeiouAEIOU"])
    hit = drawn & is_vowel & characters.in_words(how.min_length)
    return [Edit(int(characters.starts[n]), int(characters.starts[n + 1]), "") for n in np.flatnonzero(hit)]
