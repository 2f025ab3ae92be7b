"""XRayEmb (Pinter et al., 2021): a BERT, RoBERTa, RoFormer or GPT-2 with an added encoder and generator of words.

Begin with `encoder` and `decoder`, its two parts, and with `policies`, which select the words that they read;
`objective` is the second pre-training.
"""

from charlm.core.keys import Key
from charlm.families.family import Family
from charlm.families.options import ExportForm, ImportOption, ModelOption, PredictOption
from charlm.families.subword import LABEL_HEAD, LABELLED

_HERE = "charlm.families.xrayemb"

FAMILY = Family(
    name="xrayemb",
    title="XRayEmb",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:XRayEmbUnits",
    predictor=f"{_HERE}.predictor:XRayEmbPredictor",
    golden=f"{_HERE}.golden",
    arrays=f"{_HERE}.arrays:XRayEmbArrays",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:SecondPretraining"},
    options={
        "labelled": LABELLED,
        "policy": ModelOption(
            f"{_HERE}.policies:check_policy",
            Key("", 'XRayEmb: words read as characters, e.g. "none", "stochastic:0.1"; empty: as the model says'),
            resets=("eval_policy",),  # one that is stored with the model belongs to the policy that is replaced
        ),
        "eval_policy": ModelOption(
            f"{_HERE}.policies:check_policy",
            Key("", 'XRayEmb: the same for all but training; empty: `policy`, or "none" where that one draws'),
            predict=PredictOption(
                "policy",
                'XRayEmb: words read as characters, such as "none", "all_multi" or "no_suffix"; none given: what the '
                "model says",
                "an XRayEmb reads words as characters",
            ),
        ),
    },
    label_head=LABEL_HEAD,
    imports={
        "model_config": ImportOption("JSON of the model; default: config_model.json or config.json"),
        "char_vocab": ImportOption("XRayEmb's chars.txt (default: the one beside the tensors)"),
        "heads": ImportOption("attention heads; default: those of the released code", default=0),
        "backbone": ImportOption(
            "xrayemb: the BERT, RoBERTa, RoFormer or GPT-2 that the released code's tensors go on",
            chooses=True,
            foreign="it is what the tensors of XRayEmb go on",
        ),
    },
    exports={
        "backbone_only": ExportForm(
            f"{_HERE}.export:export_backbone",
            "its BERT, RoBERTa, RoFormer or GPT-2 alone, which reads no characters, for transformers and import",
        )
    },
)
