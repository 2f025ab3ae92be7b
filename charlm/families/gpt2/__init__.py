"""Pre-training of GPT-2 from nothing, the plain rival of an HLM that writes; the model is `families.subword.gpt2`.

Begin with `objective`.
"""

import dataclasses

from charlm.families.subword import GPT2

_HERE = "charlm.families.gpt2"

FAMILY = dataclasses.replace(GPT2, keys=f"{_HERE}.keys", objectives={"": f"{_HERE}.objective:NextPieces"})
