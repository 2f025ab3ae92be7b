"""Computes the golden case `tests/goldens/roformer`: what transformers' RoFormer makes of random weights and tokens.

python tests/roformer_reference.py        writes its three files; needs torch and transformers
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent / "goldens" / "roformer"
NAME = "masked_lm"
SIZES = {
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 16, "type_vocab_size": 2,
}  # fmt: skip
PADDING = 4  # positions of the second text that are padding on the right, and of the third on the left
ARRAYS = {
    "ids": "token ids [B, L], 0 is padding: row 1 on the right, row 2 on the left",
    "mask": "attention mask [B, L]",
    "types": "segments [B, L]",
    "hidden_0": "embeddings after LayerNorm [B, L, D]",
    "hidden_1": "output of layer 0 [B, L, D]",
    "hidden_2": "output of layer 1 [B, L, D]",
    "attention_0": "probabilities of layer 0 [B, H, L, L]",
    "attention_1": "probabilities of layer 1 [B, H, L, L]",
    "logits": "prediction logits [B, L, V]",
    "bare_logits": "prediction logits of the ids alone, padding attended to",
    "embeddings": "[B, L, D], passed in place of ids",
    "embeddings_logits": "prediction logits of these with mask",
}


def compute() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns the config, the tensors and the arrays of the case."""
    import torch
    from transformers import RoFormerConfig, RoFormerForMaskedLM

    torch.manual_seed(0)
    model = RoFormerForMaskedLM(RoFormerConfig(**SIZES)).eval()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "embed_positions" not in name:
                scale, shift = (0.3, 1.0) if name.endswith("LayerNorm.weight") else (0.3, 0.0)
                tensor.copy_(shift + scale * torch.randn(tensor.shape))
    rng = np.random.default_rng(0)
    ids = rng.integers(2, SIZES["vocab_size"], (3, 12)).astype(np.int32)
    mask = np.ones(ids.shape, bool)
    mask[1, -PADDING:] = mask[2, :PADDING] = False
    ids[~mask] = 0
    types = np.zeros_like(ids)
    types[:, 7:] = 1
    embeddings = rng.normal(0, 0.3, (3, 12, SIZES["hidden_size"])).astype(np.float32)
    tensors = lambda **given: {name: torch.from_numpy(array) for name, array in given.items()}
    with torch.inference_mode():
        first = model(
            **tensors(input_ids=ids, attention_mask=mask.astype(np.int64), token_type_ids=types),
            output_hidden_states=True, output_attentions=True,
        )  # fmt: skip
        bare = model(**tensors(input_ids=ids))
        other = model(**tensors(inputs_embeds=embeddings, attention_mask=mask.astype(np.int64)))
    arrays = {"ids": ids, "mask": mask, "types": types, "embeddings": embeddings}
    arrays |= {f"hidden_{n}": states.numpy() for n, states in enumerate(first.hidden_states)}
    arrays |= {f"attention_{n}": probs.numpy() for n, probs in enumerate(first.attentions)}
    arrays |= {
        "logits": first.logits.numpy(),
        "bare_logits": bare.logits.numpy(),
        "embeddings_logits": other.logits.numpy(),
    }
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    for alias in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        del state[alias]
    return model.config.to_dict(), state, {name: arrays[name] for name in ARRAYS}


def main() -> None:
    """Writes the files."""
    import torch
    import transformers
    from safetensors.torch import save_file

    config, state, arrays = compute()
    kept = (
        "add_cross_attention", "attention_probs_dropout_prob", "embedding_size", "hidden_act", "hidden_dropout_prob",
        "is_decoder", "layer_norm_eps", "model_type", "pad_token_id", "rotary_value", "tie_word_embeddings", *SIZES,
    )  # fmt: skip
    source = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    meta = {"source": source, "config": {key: config[key] for key in sorted(kept)}, "arrays": ARRAYS}
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{NAME}.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / f"{NAME}.npz", **arrays)
    save_file(state, FOLDER / f"{NAME}.safetensors")


if __name__ == "__main__":
    main()
