"""An example of a family in a package of its own: an HLM that is trained, changed, read and written in its own ways."""

import dataclasses

from charlm.families.hlm import FAMILY as HLM
from charlm.register import ExportForm, ImportOption, Key, ModelOption, PredictOption

FAMILY = dataclasses.replace(
    HLM,
    name="short_hlm",
    title="Short HLM",
    keys="mine.short_hlm_keys",
    converter="mine.short_hlm_conversion:CONVERTER",
    options={
        "aggregation": ModelOption(
            "mine.short_hlm_conversion:check_aggregation",
            Key("", "Short HLM: how a word is made of its characters; empty: as the model says"),
            predict=PredictOption(
                "aggregation", "Short HLM: how a word is made of its characters", "only a Short HLM makes words in ways"
            ),
        )
    },
    imports={
        **HLM.imports,
        "made_by": ImportOption(
            "how a Short HLM makes a word of its characters", chooses=True, foreign="it is how a Short HLM makes words"
        ),
    },
    exports={"letters": ExportForm("mine.short_hlm_conversion:export_letters", "the 100 % known letters, one a line")},
)
