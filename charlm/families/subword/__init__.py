"""BERT, multilingual BERT, RoBERTa, RoFormer and GPT-2: transformers over subwords, which other families build on.

Begin with `bert` and `gpt2`, the models; `layout` and `conversion` read and write the files of Hugging Face;
`respelled` is a BERT behind a speller.
"""

from charlm.core.keys import Key
from charlm.families.family import Family
from charlm.families.options import ModelOption

_HERE = "charlm.families.subword"
# XRayEmb on GPT-2 has it, too.
LABELLED = ModelOption(
    f"{_HERE}.gpt2:check_labelled",
    Key("", 'GPT-2, tagging: which piece of a word has its label: "first" or "last"; empty: as the model says',
        ("", "first", "last")),
)  # fmt: skip

# The heads of XRayEmb's paper (section 4.2), which it puts on these models, too, and that of the taggers by which
# CharBERT (section 5.3) is compared with BERT. All families but HLM have them.
LABEL_HEAD = Key(
    "",
    'all others: "linear" as released (the default), "perceptron" of two layers for texts, "lstm" for words (XRayEmb, '
    'section 4.2), "lstm768" for words: two layers of 768 units, in both directions (feature-based taggers, CharBERT '
    '5.3), or "mean" for texts: a linear layer over the mean of all positions',
    ("", "linear", "perceptron", "lstm", "lstm768", "mean"),
)


def _family(name: str, title: str, predictor: str = "predictor:SubwordPredictor", **options: ModelOption) -> Family:
    return Family(
        name=name,
        title=title,
        converter=f"{_HERE}.conversion:{name.upper()}_CONVERTER",
        units=f"{_HERE}.units:SubwordUnits",
        predictor=f"{_HERE}.{predictor}",
        golden=f"{_HERE}.golden",
        arrays=f"{_HERE}.arrays:SubwordArrays",
        options=options,
        label_head=LABEL_HEAD,
    )


BERT, ROBERTA = _family("bert", "BERT", "respelled:BertPredictor"), _family("roberta", "RoBERTa")
ROFORMER = _family("roformer", "RoFormer")
GPT2 = _family("gpt2", "GPT-2", labelled=LABELLED)
