"""Computes `tests/goldens/predictors.json`: what Hugging Face's transformers predicts with the tiny models.

python tests/hf_reference.py        writes the file; needs torch and transformers
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_models import FAMILIES, GOLDENS, release

FILE = GOLDENS / "predictors.json"
SENTENCES = ["The birds had unbelievable tokens.", "", "naïve größte", "running running"]
GAPS = {
    "bert": ["She had [MASK] birds.", "[MASK] birds [MASK] naïve", "birds run[MASK]"],
    "roformer": ["She had [MASK] birds.", "[MASK] birds [MASK] naïve", "birds run[MASK]"],
    "roberta": ["She had <mask> birds.", "<mask> birds <mask> naïve", "(<mask> birds", "birds run<mask>"],
}
PROMPTS = ["The birds had", "She", "naïve words, unbelievably", "2, 3, 42, 7"]
TOP, NEW = 15, 12


def reference(family: str, folder: Path) -> dict[str, Any]:
    """Returns mean-pooled vectors, likeliest tokens of gaps, losses and greedy continuations of a tiny model."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.AutoModelForCausalLM if family == "gpt2" else transformers.AutoModelForMaskedLM
    model = kind.from_pretrained(folder).eval()
    found: dict[str, Any] = {"pooled": {}}
    with torch.inference_mode():
        for text in SENTENCES:
            if ids := tokenizer(text).input_ids:
                states = model.base_model(torch.tensor([ids])).last_hidden_state
                found["pooled"][text] = states[0].mean(dim=0).tolist()
        if family == "gpt2":
            found["loss"] = {}
            for text in PROMPTS:
                ids = torch.tensor([tokenizer(text).input_ids])
                found["loss"][text] = model(ids, labels=ids).loss.item() if ids.shape[1] > 1 else None
            found["greedy"] = _greedy(tokenizer, model)
        else:
            ask = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")
            found["gaps"] = {text: _gaps(ask(text, top_k=TOP)) for text in GAPS[family]}
    return found


def _gaps(answers: list[Any]) -> list[list[tuple[int, float]]]:
    gaps = answers if isinstance(answers[0], list) else [answers]
    return [[(fill["token"], fill["score"]) for fill in gap] for gap in gaps]


def _greedy(tokenizer: Any, model: Any) -> dict[str, list[int]]:
    """Returns what `generate` adds to each prompt, all in one batch padded on the left."""
    tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "left"
    batch = tokenizer(PROMPTS, return_tensors="pt", padding=True)
    options = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": tokenizer.eos_token_id}
    added = model.generate(**batch, **options)[:, batch.input_ids.shape[1] :].tolist()
    eos = tokenizer.eos_token_id
    cut = lambda ids: ids[: ids.index(eos) + 1] if eos in ids else ids
    return {prompt: cut(ids) for prompt, ids in zip(PROMPTS, added, strict=True)}


if __name__ == "__main__":
    content = {family: reference(family, release(family)) for family in FAMILIES}
    FILE.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
