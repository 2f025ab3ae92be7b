"""XRayEmb (Pinter et al., 2021): a BERT, RoBERTa or GPT-2 with an added encoder and generator of words."""

from charlm.families.family import Family

_HERE = "charlm.families.xrayemb"

FAMILY = Family(
    name="xrayemb",
    title="XRayEmb",
    converter=f"{_HERE}.conversion:CONVERTER",
    units=f"{_HERE}.units:XRayEmbUnits",
    predictor=f"{_HERE}.predictor:XRayEmbPredictor",
    golden=f"{_HERE}.golden",
    keys=f"{_HERE}.keys",
    objectives={"": f"{_HERE}.objective:SecondPretraining"},
    check_options={
        "policy": f"{_HERE}.policies:check_policy",
        "eval_policy": f"{_HERE}.policies:check_policy",
    },
    exports={"backbone_only": f"{_HERE}.export:export_backbone"},
)
