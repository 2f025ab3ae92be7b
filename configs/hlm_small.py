"""HLM-Small: a small English HLM, which a GPU pre-trains in minutes and two CPU cores in a night.

    python -m charlm.main --config=configs/hlm_small.py --config.data.train='corpus/*.txt.gz' --workdir=runs/hlm_small

Wiring and optimizer are those of the paper (Sun et al., ACL 2023); size, window, masked share, rate and schedule are
ours. The models that come with charlm start from it; `docs/howto/small-models.md` has all commands and the text.
"""

import ml_collections

from charlm.config import get_config as defaults


def get_config() -> ml_collections.ConfigDict:
    """Returns HLM-Base's config with the sizes, window, masked share, rate and schedule of HLM-Small."""
    config = defaults()
    config.text.splitter = "rules"
    config.data.max_words = 128
    config.data.batch_size = 32
    config.data.mask_rate = 0.2
    config.model.vocab_size = 512
    config.model.hidden = 192
    config.model.heads = 3
    config.model.intra_layers = 2
    config.model.inter_layers = 4
    config.model.intra_ffn = 384
    config.model.inter_ffn = 768
    config.model.position_buckets = 64
    config.model.max_relative_words = 128
    config.model.dropout = 0.0  # a few passes over the text leave no time to overfit
    config.model.attention_dropout = 0.0
    config.model.initializer = "lecun"
    config.optim.learning_rate = 1.5e-3
    config.optim.warmup_steps = 500
    config.optim.b2 = 0.98
    config.optim.schedule = "wsd"  # so that a longer run may follow
    config.train.steps = 16_000
    config.train.log_every = 50
    config.train.eval_every = 500
    config.train.checkpoint_every = 250
    return config
