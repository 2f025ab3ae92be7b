"""HLM (Sun et al., ACL 2023): encodes characters into words and words into context, without a subword vocabulary.

Begin with `model`, which reads as the paper's figure 1; `objective` is its pre-training, `units` its fine-tuning.
"""

from charlm.core.keys import Key
from charlm.families.family import Family
from charlm.families.options import ImportOption

_HERE = "charlm.families.hlm"

FAMILY = Family(
    name="hlm",
    title="HLM",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:units_of_model",
    predictor=f"{_HERE}.predictor:HLMPredictor",
    golden=f"{_HERE}.golden",
    arrays=f"{_HERE}.arrays:HLMArrays",
    keys=f"{_HERE}.keys",
    objectives={
        "": f"{_HERE}.objective:MaskedCharacters",
        "spelling": f"{_HERE}.spelling:SpelledWords",
        "next_word": f"{_HERE}.writing:NextWords",
    },
    imports={
        "model_config": ImportOption("JSON of the model; default: config_model.json or config.json", chooses=True),
        "char_vocab": ImportOption("JSON of HLM's characters (default: char_vocab.json, or released)"),
        "heads": ImportOption("attention heads; default: those of the released code", default=0),
    },
    label_head=Key(
        "",
        'HLM: "paper" reads [r_i; w_i] (section 3.3; the default), "reference" as the released code, "mean" for texts: '
        "as the paper's, over the mean of all positions",
        ("", "paper", "reference", "mean"),
    ),
)
