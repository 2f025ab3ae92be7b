"""CharacterBERT (El Boukkouri et al., COLING 2020): a BERT whose words come from ELMo's convolutions over characters.

Of the paper's pre-training there is masked language modelling of whole words, over a vocabulary of frequent ones. There
is no next-sentence prediction: sequences are consecutive words of one text, in one segment, and a model has a pooler
only after fine-tuning, or where it was imported with one. AdamW stands for the released code's LAMB.
"""

from charlm.families.family import Family

_HERE = "charlm.families.characterbert"
_OPTIONS = "charlm.families.spelled.options"

FAMILY = Family(
    name="characterbert",
    title="CharacterBERT",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:CharacterBertUnits",
    predictor=f"{_HERE}.predictor:CharacterBertPredictor",
    golden=f"{_HERE}.golden",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:MaskedWords"},
    check_options={"splitter": f"{_OPTIONS}:check_splitter", "language": f"{_OPTIONS}:check_language"},
)
