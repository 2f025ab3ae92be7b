"""CharBERT (Ma et al., COLING 2020): BERT or RoBERTa with a second channel that reads characters.

Begin with `model`; `char_inputs` explains what the character channel reads, `objective` the pre-training.
"""

from charlm.families.family import Family
from charlm.families.options import ImportOption

_HERE = "charlm.families.charbert"

FAMILY = Family(
    name="charbert",
    title="CharBERT",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:CharBertUnits",
    predictor=f"{_HERE}.predictor:CharBertPredictor",
    golden=f"{_HERE}.golden",
    arrays=f"{_HERE}.arrays:CharBertArrays",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:NoisyLanguageModelling"},
    imports={"char_vocab": ImportOption("CharBERT's file, one a line")},
    undecayed=(r"(^|/)char/table/",),  # row 0, padding, gets no gradient and must keep its initial value
)
