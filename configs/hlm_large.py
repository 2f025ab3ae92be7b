"""HLM-Large (Sun et al., ACL 2023, appendix A.2).

python -m charlm.main --config=configs/hlm_large.py --config.data.train='corpus/*.txt.gz' --workdir=runs/hlm_large
"""

import ml_collections

from charlm.config import get_config as defaults


def get_config() -> ml_collections.ConfigDict:
    """Returns HLM-Base's config with the sizes and schedule of HLM-Large."""
    config = defaults()
    config.model.hidden = 1024
    config.model.heads = 16
    config.model.inter_layers = 24
    config.model.intra_ffn = 2048
    config.model.inter_ffn = 4096
    config.data.batch_size = 128
    config.train.steps = 370_000
    return config
