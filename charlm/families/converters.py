"""The families that can be converted, and which of them a folder holds."""

from __future__ import annotations

import contextlib

from charlm.convert.files import find_state, open_state, read_json
from charlm.convert.model import Converter
from charlm.families.char2subword.conversion import Char2SubwordConverter
from charlm.families.charbert.conversion import CharBertConverter, has_characters
from charlm.families.hlm.conversion import CONFIG_FILES, HLMConverter
from charlm.families.subword.bert_tensors import BERT, ROBERTA
from charlm.families.subword.conversion import SubwordConverter
from charlm.families.subword.gpt2_tensors import GPT2
from charlm.families.xrayemb.conversion import XRayEmbConverter
from charlm.families.xrayemb.tensors import is_released

SUBWORD_FAMILIES = {family.name: family for family in (BERT, ROBERTA, GPT2)}
CONVERTERS: dict[str, Converter] = {"hlm": HLMConverter()} | {
    name: SubwordConverter(family) for name, family in SUBWORD_FAMILIES.items()
}
CONVERTERS["charbert"] = CharBertConverter()
CONVERTERS["char2subword"] = Char2SubwordConverter()
CONVERTERS["xrayemb"] = XRayEmbConverter()


def recognise(source: str) -> Converter:
    """Returns the family of a folder or file of theirs, by the config beside the weights; without one, it may be HLM.

    CharBERT's config is that of its BERT, so there the tensors tell, and so do the released code's of XRayEmb.

    Raises:
      ValueError: when there are no weights, or the config is of no family that we have.
    """
    file = find_state(source)
    configs = [file.parent / name for name in CONFIG_FILES if (file.parent / name).is_file()]
    if not configs:
        with contextlib.suppress(ValueError):  # what cannot be read is named by the reader
            if is_released(open_state(file)):
                return CONVERTERS["xrayemb"]  # which asks for a backbone
        return CONVERTERS["hlm"]  # whose config may lie elsewhere: its reader says how to name it
    theirs = read_json(configs[0])
    for converter in CONVERTERS.values():
        if converter.recognises(theirs):
            return converter
    if theirs.get("model_type") is None and has_characters(file):  # the authors' configs are an old BERT's
        return CONVERTERS["charbert"]
    raise ValueError(
        f"{configs[0]}: model_type={theirs.get('model_type')!r} is none of the families {', '.join(CONVERTERS)}; "
        "a config without model_type needs its family named"
    )
