"""Writes XR-Enc and XR-Dec as states of the released code, which charlm only reads."""

from __future__ import annotations

import numpy as np

from charlm.convert.rules import export_state
from charlm.core.types import Params
from charlm.families.xrayemb import tensors
from charlm.families.xrayemb.decoder import XRDecoderConfig
from charlm.families.xrayemb.encoder import XREncoderConfig

POOLER = "encoder.pooler.dense"  # a Transformer of the released code has one that nothing reads


def encoder_state(config: XREncoderConfig, params: Params, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns XR-Enc as a state whose names begin with `prefix`; that of a Transformer has a pooler."""
    state = export_state(tensors.encoder_target(config)[1], (), params)
    if config.kind == "transformer":
        H = config.hidden
        state |= {f"{POOLER}.weight": np.zeros((H, H), np.float32), f"{POOLER}.bias": np.zeros(H, np.float32)}
    return {f"{prefix}{name}": value for name, value in state.items()}


def decoder_state(config: XRDecoderConfig, params: Params, prefix: str = "") -> dict[str, np.ndarray]:
    """Returns XR-Dec as a state whose names begin with `prefix`."""
    state = export_state(tensors.decoder_target(config)[1], (), params)
    return {f"{prefix}{name}": value for name, value in state.items()}
