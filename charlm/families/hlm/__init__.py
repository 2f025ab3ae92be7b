"""HLM (Sun et al., ACL 2023): encodes characters into words and words into context, without a subword vocabulary."""

from charlm.families.family import Family

_HERE = "charlm.families.hlm"

FAMILY = Family(
    name="hlm",
    title="HLM",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:units_of_model",
    predictor=f"{_HERE}.predictor:HLMPredictor",
    golden=f"{_HERE}.golden",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:MaskedCharacters"},
)
