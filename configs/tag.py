"""Fine-tunes a model to predict a tag for every word: entities, parts of speech, languages.

    python -m charlm.main --config=configs/tag.py --workdir=runs/ner \
        --config.init_from=runs/hlm --config.data.train=train.conll --config.data.dev=dev.conll

Files: CoNLL columns, CoNLL-U (`--config.data.tag=upos`, `misc:CSID`), UNER's .iob2, LinCE's; also with .gz.

Variants: "" as HLM was fine-tuned on NCBI-disease, "wnut16" as on W-NUT16 (section 4.3); "reference" as in HLM's
released script; "charbert" (section 4.1) and "xrayemb" as in those papers; "features" trains only an LSTM and the layer
above it, on the states of a frozen model (CharBERT, section 5.3; `--config.model.channels=tokens` reads one channel);
"lince_lid", "lince_pos" and "lince_ner" for LinCE's tasks, on which Char2Subword was compared (section 4);
"novel_words" classifies one word of each passage of a table, by cross-validation (NYTWIT with passages;
novel_words+frozen as in XRayEmb's paper, section 4.2); "tiny" for models of a million parameters; and the setups of
`charlm.families.xrayemb.setups`: "scaffolding", "stochastic", "no_suffix" and "frozen". Join variants with a plus
sign: xrayemb+stochastic.
"""

import ml_collections

from charlm.config import Variant, apply_variants
from charlm.config.finetuning import get_config as defaults
from charlm.families.xrayemb.setups import POLICY_SETUPS, SETUPS, frozen


def get_config(variant: str = "") -> ml_collections.ConfigDict:
    """Returns the config of a variant, or of several joined by "+".

    Raises:
      ValueError: when there is no such variant, or one of them would undo another.
    """
    config = defaults("tagging")
    config.optim.learning_rate = 2e-5
    config.train.epochs = 20
    return apply_variants(config, variant, VARIANTS, "configs/tag.py", one_of=(RECIPES, POLICY_SETUPS))


def wnut16(config: ml_collections.ConfigDict) -> None:
    """Sets the epochs of HLM on W-NUT16 (section 4.3); it gives no rate, so it is that of NCBI-disease."""
    config.train.epochs = 5


def reference(config: ml_collections.ConfigDict) -> None:
    """Sets the values of the script released with HLM."""
    config.data.batch_size = 32
    config.optim.learning_rate = 1e-4
    config.train.epochs = 10
    config.model.label_head = "reference"


def charbert(config: ml_collections.ConfigDict) -> None:
    """Sets the values of CharBERT, section 4.1; epochs and warm-up are those of the released script."""
    config.optim.learning_rate = 3e-5
    config.optim.warmup_share = 0.0
    config.train.epochs = 3


def features(config: ml_collections.ConfigDict) -> None:
    """Trains the head alone on the last states of a frozen model, as CharBERT's section 5.3 compares models (figure 6).

    The paper gives neither rate nor epochs; these are ours. Without dropout, the states of a word are always the same.
    The LSTM is for all families but HLM: `--config.model.label_head=` gives HLM its own head.
    """
    frozen(config)
    config.model.label_head = "lstm768"
    config.model.dropout = 0.0
    config.model.attention_dropout = 0.0
    config.optim.learning_rate = 1e-3
    config.train.patience = 4


def xrayemb(config: ml_collections.ConfigDict) -> None:
    """Sets the values of XRayEmb, section 4.2.

    The LSTM is for all families but HLM: `--config.model.label_head=` gives HLM its own head.
    """
    config.model.label_head = "lstm"
    config.optim.head_learning_rate = 1e-3
    config.train.patience = 4


def novel_words(config: ml_collections.ConfigDict) -> None:
    """Reads new words in their passages, by the columns of NYTWIT as XRayEmb's released code reads it."""
    config.optim.head_learning_rate = 1e-3
    config.data.scheme = "none"
    config.data.target = "Word"
    config.data.text = "sentence"
    config.data.label = "Category"
    config.data.fold_column = "fold"
    config.data.skip_labels = ("filtered",)  # words that do not belong to the task


def lince_lid(config: ml_collections.ConfigDict) -> None:
    """Chooses the epoch by the weighted F1 of languages, Char2Subword's score (Table 4)."""
    lince_pos(config)
    config.data.metric = "weighted_f1"


def lince_pos(config: ml_collections.ConfigDict) -> None:
    """Reads tags that mark no entities; the score is their accuracy (Char2Subword, Table 4)."""
    lince_ner(config)
    config.data.scheme = "none"


def lince_ner(config: ml_collections.ConfigDict) -> None:
    """Sets rates for LinCE's small sets, ours; the score is F1 of entities (Char2Subword, Table 4)."""
    config.optim.learning_rate = 5e-5
    config.train.epochs = 10
    config.train.patience = 3


def tiny(config: ml_collections.ConfigDict) -> None:
    """For a model of a million parameters."""
    config.optim.learning_rate = 1e-3
    config.train.epochs = 8
    config.train.patience = 2


LINCE: dict[str, Variant] = {"lince_lid": lince_lid, "lince_pos": lince_pos, "lince_ner": lince_ner}
RECIPES: dict[str, Variant] = {
    "wnut16": wnut16,
    "reference": reference,
    "charbert": charbert,
    "features": features,
    "xrayemb": xrayemb,
    **LINCE,
}
VARIANTS = {**RECIPES, "novel_words": novel_words, "tiny": tiny, **SETUPS}
