"""CharBERT (Ma et al., COLING 2020): BERT or RoBERTa with a second channel that reads characters."""

from charlm.families.family import Family

_HERE = "charlm.families.charbert"

FAMILY = Family(
    name="charbert",
    title="CharBERT",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:CharBertUnits",
    predictor=f"{_HERE}.predictor:CharBertPredictor",
    golden=f"{_HERE}.golden",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:NoisyLanguageModelling"},
    undecayed=(r"(^|/)char/table/",),  # row 0, padding, gets no gradient and must keep its initial value
)
