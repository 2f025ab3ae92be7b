"""CharacterBERT (El Boukkouri et al., COLING 2020): a BERT whose word vectors come from ELMo's character convolutions.

Begin with `model` and `cnn`; the other modules are the parts that `charlm.families.family` asks of every family.
Pre-training differs from the paper. It has masked language modelling of whole words, over a vocabulary of frequent
words, but no next-sentence prediction: a sequence is consecutive words of one text, in one segment. So a model has a
pooler only after fine-tuning, or if it was imported with one. AdamW replaces the released code's LAMB.
"""

from charlm.families.family import Family
from charlm.families.spelled.options import LANGUAGE, SPLITTER
from charlm.families.subword import LABEL_HEAD

_HERE = "charlm.families.characterbert"

FAMILY = Family(
    name="characterbert",
    title="CharacterBERT",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:CharacterBertUnits",
    predictor=f"{_HERE}.predictor:CharacterBertPredictor",
    golden=f"{_HERE}.golden",
    arrays=f"{_HERE}.arrays:CharacterBertArrays",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:MaskedWordLM"},
    options={"splitter": SPLITTER, "language": LANGUAGE},
    label_head=LABEL_HEAD,
)
