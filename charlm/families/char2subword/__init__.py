"""Char2Subword (Aguilar et al., 2021): a character transformer that replaces the frozen embedding table of subwords.

Begin with `module`, the character transformer; `objective` and `contextual` are the paper's two kinds of training
stages, `alignment` is ours; `words` and `beside` say how a trained model reads text.
"""

from charlm.core.keys import Key
from charlm.families.family import Family
from charlm.families.options import ExportForm, ModelOption
from charlm.families.spelled.options import LANGUAGE, SPLITTER
from charlm.families.subword import LABEL_HEAD

_HERE = "charlm.families.char2subword"

FAMILY = Family(
    name="char2subword",
    title="Char2Subword",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:units_of_mode",
    predictor=f"{_HERE}.predictor:Char2SubwordPredictor",
    golden=f"{_HERE}.golden",
    arrays=f"{_HERE}.arrays:Char2SubwordArrays",
    keys=f"{_HERE}.keys",
    objectives={
        "approximation": f"{_HERE}.objective:TableImitation",
        "contextual": f"{_HERE}.contextual:CharacterMaskedLM",
        "alignment": f"{_HERE}.alignment:Alignment",
    },
    corpora=f"{_HERE}.shape:corpora_of",
    stage_config=f"{_HERE}.keys:of_stage",
    starts_from="bert",
    options={
        "mode": ModelOption(
            f"{_HERE}.words:check_mode",
            Key("", 'Char2Subword: what words become, "full", "hybrid" or "gated"; empty: as the model says',
                ("", "full", "hybrid", "gated")),
        ),
        "splitter": SPLITTER,
        "language": LANGUAGE,
    },
    label_head=LABEL_HEAD,
    exports={
        "table_free": ExportForm(
            f"{_HERE}.export:export_table_free",
            "a checkpoint of ours without the table of subwords, for full mode",
        ),
        "words": ExportForm(
            f"{_HERE}.export:export_words",
            "file of words, one a line: what transformers reads as a BERT with a row a word",
            default="",
        ),
    },
)  # fmt: skip
