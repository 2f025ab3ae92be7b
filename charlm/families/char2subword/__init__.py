"""Char2Subword (Aguilar et al., 2021): a character transformer that replaces the frozen embedding table of subwords."""

from charlm.families.family import Family

_HERE = "charlm.families.char2subword"

FAMILY = Family(
    name="char2subword",
    title="Char2Subword",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:Char2SubwordUnits",
    predictor=f"{_HERE}.predictor:Char2SubwordPredictor",
    golden=f"{_HERE}.golden",
    keys=f"{_HERE}.keys",
    objectives={
        "approximation": f"{_HERE}.objective:TableImitation",
        "contextual": f"{_HERE}.contextual:CharacterMaskedLM",
    },
    corpora=f"{_HERE}.shape:corpora_of",
    stage_config=f"{_HERE}.keys:of_stage",
    check_options={
        "mode": f"{_HERE}.words:check_mode",
        "splitter": "charlm.families.spelled.options:check_splitter",
        "language": "charlm.families.spelled.options:check_language",
    },
    exports={"table_free": f"{_HERE}.export:export_table_free", "words": f"{_HERE}.export:export_words"},
)
