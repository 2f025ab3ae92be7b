"""An example of a fusion in a package of its own."""

import jax

from charlm.nn.embed import Dense, kernel_init
from charlm.nn.fusions import Fusion


class Gated(Fusion):
    """Gates between two channels."""

    def setup(self):
        cfg = self.config
        self.gate = Dense(cfg.hidden, cfg.dtype, kernel_init(cfg.initializer))

    def __call__(self, tokens_BLD, chars_BLD, mask_BL1):
        share_BLD = jax.nn.sigmoid(self.gate(tokens_BLD))
        return tokens_BLD + share_BLD * chars_BLD, chars_BLD + (1 - share_BLD) * tokens_BLD
