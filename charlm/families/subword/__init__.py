"""BERT, multilingual BERT, RoBERTa and GPT-2: transformers over subwords, which other families build on.

Begin with `bert` and `gpt2`, the models; `layout` and `conversion` read and write the files of Hugging Face.
"""

from charlm.families.family import Family

_HERE = "charlm.families.subword"


def _family(name: str, title: str) -> Family:
    return Family(
        name=name,
        title=title,
        converter=f"{_HERE}.conversion:{name.upper()}_CONVERTER",
        units=f"{_HERE}.units:SubwordUnits",
        predictor=f"{_HERE}.predictor:SubwordPredictor",
        golden=f"{_HERE}.golden",
    )


BERT, ROBERTA, GPT2 = _family("bert", "BERT"), _family("roberta", "RoBERTa"), _family("gpt2", "GPT-2")
