"""Variants of the configs of all fine-tuning tasks: how XRayEmb is used there, and which parameters stay frozen.

Open it to add a setup. The files in `configs/` import them, and the command line names them after a colon
(`configs/classify.py:stochastic`).

The setups of XRayEmb's paper (section 4.2, Table 5):

    None          a model before second pre-training    no variant
    None+2pt      after `language_only`                 no variant: its policy is "none"
    Scaffolding   after second pre-training             scaffolding
    Stochastic    the same                              stochastic
    All no-suff   the same                              no_suffix
"""

from __future__ import annotations

import ml_collections


def scaffolding(config: ml_collections.ConfigDict) -> None:
    """Characters were read in second pre-training only: every word is read as its subwords."""
    config.model.policy = "none"


def stochastic(config: ml_collections.ConfigDict) -> None:
    """A tenth of the words of training is read by characters."""
    config.model.policy = "stochastic:0.1"


def no_suffix(config: ml_collections.ConfigDict) -> None:
    """Words of several subwords are read by characters, except those with easy endings, in training and afterwards."""
    config.model.policy = "no_suffix"


def frozen(config: ml_collections.ConfigDict) -> None:
    """Only the task's head is trained, as the paper does on NYTWIT and in the setup NoFT of its Table 6.

    A pooler counts as a layer of the head: checkpoints of masked language models lack it, and untrained it is useless.
    The pattern names the layers of the head, which are alike in all families, and freezes whatever else a model has.
    The frozen layers extract features, so there is no dropout, as in the released code.
    """
    config.model.dropout = config.model.attention_dropout = 0.0
    config.optim.freeze = ("^(?!(label|transform|lstm|head|pooler)/)[^/]+/(?!pooler/)",)


POLICY_SETUPS = {"scaffolding": scaffolding, "stochastic": stochastic, "no_suffix": no_suffix}
SETUPS = {**POLICY_SETUPS, "frozen": frozen}
