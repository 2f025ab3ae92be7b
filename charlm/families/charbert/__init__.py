"""CharBERT (Ma et al., COLING 2020): BERT, RoBERTa or RoFormer with a second channel that reads characters.

Begin with `model`; `char_inputs` explains what the character channel reads, `objective` the pre-training.
"""

from charlm.core.keys import Key
from charlm.families.family import Family
from charlm.families.options import ImportOption, ModelOption
from charlm.families.subword import LABEL_HEAD

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
    options={
        "channels": ModelOption(
            f"{_HERE}.model:check_channels",
            Key(
                "",
                'CharBERT: channels that the head for labels reads, "both" side by side, "tokens", "characters" or '
                'their "sum" (section 5.3); empty: as the model says, usually both',
                ("", "both", "tokens", "characters", "sum"),
            ),
        ),
    },
    label_head=LABEL_HEAD,
    imports={"char_vocab": ImportOption("CharBERT's file, one a line")},
    undecayed=(r"(^|/)char/table/",),  # row 0, padding, gets no gradient and must keep its initial value
)
