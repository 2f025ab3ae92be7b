"""CharacterBERT's equations in NumPy (float64, loops), from the paper and published facts. Golden cases are made by it.

Names of tensors are the authors'. ELMo's facts: a byte's id is its value; 256 and 257 begin and end a sentence, 258 and
259 a word, 260 pads, 261 masks; all ids + 1, and 50 of them a word. Makes the golden case anew:

    python tests/characterbert_equations.py tests/goldens/characterbert
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

SLOTS = 50
erf = np.vectorize(math.erf)
CNN = "bert.embeddings.word_embeddings."
WIDTHS, COUNTS = (1, 2, 3, 4, 5, 6, 7), (2, 2, 3, 4, 4, 5, 4)
CONFIG = {
    "model_type": "character_bert",
    "character_embeddings_dim": 6,
    "cnn_filters": [list(pair) for pair in zip(WIDTHS, COUNTS, strict=True)],
    "num_highway_layers": 2,
    "max_word_length": SLOTS,
    "mlm_vocab_size": 19,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "hidden_act": "gelu",
    "max_position_embeddings": 12,
    "type_vocab_size": 2,
}
TEXTS = (
    (["[CLS]", "a", "naïve", "[MASK]", "of", "today", "[SEP]", "pneumonoultramicroscopic", "x" * 60, "[SEP]"], 7),
    (["[CLS]", "of", "half", "y" * 37, "z" * 44, "[SEP]"], 6),
)  # words, and how many of them are in the first segment


def char_ids(word):
    """Returns the 50 ids of a word."""
    special = {"[CLS]": 256, "[SEP]": 257, "[MASK]": 261}
    inner = [special[word]] if word in special else list(word.encode())[: SLOTS - 2]
    ids = [258, *inner, 259]
    return [i + 1 for i in ids + [260] * (SLOTS - len(ids))]


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def norm(p, name, x):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-12) * p[f"{name}.weight"] + p[f"{name}.bias"]


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def word_vector(p, ids):
    """Returns the vector of one word of 50 ids."""
    e = p[f"{CNN}_char_embedding_weights"][ids]
    found = []
    for n, width in enumerate(WIDTHS):
        kernel, bias = p[f"{CNN}char_conv_{n}.weight"], p[f"{CNN}char_conv_{n}.bias"]
        best = np.full(len(bias), -np.inf)
        for t in range(SLOTS - width + 1):
            window = bias.copy()
            for k in range(width):
                window = window + kernel[:, :, k] @ e[t + k]
            best = np.maximum(best, window)
        found.append(np.maximum(best, 0))
    x = np.concatenate(found)
    for n in range(2):
        both = linear(p, f"{CNN}_highways._layers.{n}", x)
        change, gate = both[: len(x)], 1 / (1 + np.exp(-both[len(x) :]))
        x = gate * x + (1 - gate) * np.maximum(change, 0)
    return linear(p, f"{CNN}_projection", x)


def encode(p, ids_LC, types_L):
    """Returns word vectors and last states [L, D] of one text without padding."""
    words = np.array([word_vector(p, ids) for ids in ids_LC])
    L, D = words.shape
    x = words + p["bert.embeddings.position_embeddings.weight"][:L]
    x = norm(p, "bert.embeddings.LayerNorm", x + p["bert.embeddings.token_type_embeddings.weight"][types_L])
    heads = CONFIG["num_attention_heads"]
    K = D // heads
    for n in range(CONFIG["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{n}."
        q, k, v = (linear(p, f"{layer}attention.self.{name}", x) for name in ("query", "key", "value"))
        mixed = np.zeros((L, D))
        for head in range(heads):
            part = slice(head * K, (head + 1) * K)
            for at in range(L):
                scores = k[:, part] @ q[at, part] / math.sqrt(K)
                weights = np.exp(scores - scores.max())
                mixed[at, part] = weights @ v[:, part] / weights.sum()
        x = norm(p, f"{layer}attention.output.LayerNorm", x + linear(p, f"{layer}attention.output.dense", mixed))
        hidden = gelu(linear(p, f"{layer}intermediate.dense", x))
        x = norm(p, f"{layer}output.LayerNorm", x + linear(p, f"{layer}output.dense", hidden))
    return words, x


def logits(p, x):
    hidden = norm(p, "cls.predictions.transform.LayerNorm", gelu(linear(p, "cls.predictions.transform.dense", x)))
    return hidden @ p["cls.predictions.decoder.weight"].T + p["cls.predictions.bias"]


def random_state(seed=0):
    """Returns random tensors under the authors' names, float32, large enough that everything matters."""
    D, F, E = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["character_embeddings_dim"]
    V, d = CONFIG["mlm_vocab_size"], sum(COUNTS)
    shapes = {f"{CNN}_char_embedding_weights": (263, E), f"{CNN}_projection": (D, d)}
    shapes |= {f"{CNN}_highways._layers.{n}": (2 * d, d) for n in range(2)}
    for n, (width, count) in enumerate(zip(WIDTHS, COUNTS, strict=True)):
        shapes[f"{CNN}char_conv_{n}"] = (count, E, width)
    for name, rows in (("position", CONFIG["max_position_embeddings"]), ("token_type", 2)):
        shapes[f"bert.embeddings.{name}_embeddings.weight"] = (rows, D)
    norms = ["bert.embeddings.LayerNorm", "cls.predictions.transform.LayerNorm"]
    for n in range(CONFIG["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{n}."
        shapes |= {f"{layer}attention.self.{name}": (D, D) for name in ("query", "key", "value")}
        shapes |= {f"{layer}attention.output.dense": (D, D), f"{layer}intermediate.dense": (F, D)}
        shapes[f"{layer}output.dense"] = (D, F)
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    shapes |= {"bert.pooler.dense": (D, D), "cls.predictions.transform.dense": (D, D)}
    shapes |= {"cls.predictions.decoder.weight": (V, D), "cls.predictions.bias": (V,)}
    shapes |= {"head.seqcls.classifier": (3, D), "head.tokcls.classifier": (5, D), "head.qa.qa_outputs": (2, D)}
    rng, state = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        alone = name.endswith(("weights", ".weight", ".bias"))
        state[name if alone else f"{name}.weight"] = rng.normal(size=shape) * (0.5 if len(shape) > 1 else 0.2)
        if not alone:
            state[f"{name}.bias"] = rng.normal(size=shape[:1]) * 0.2
    for name in norms:
        state[f"{name}.weight"], state[f"{name}.bias"] = 1 + 0.2 * rng.normal(size=D), 0.2 * rng.normal(size=D)
    return {name: value.astype(np.float32) for name, value in state.items()}


def make(folder):
    """Writes the case."""
    state = random_state()
    p = {name: value.astype(np.float64) for name, value in state.items()}
    B, L, D = len(TEXTS), max(len(words) for words, _ in TEXTS), CONFIG["hidden_size"]
    z = {"char_ids": np.zeros((B, L, SLOTS), np.int32), "mask": np.zeros((B, L), bool), "types": np.zeros((B, L), int)}
    widths = {"word_vectors": D, "states": D, "logits": CONFIG["mlm_vocab_size"], "tokcls_logits": 5, "qa_logits": 2}
    z |= {name: np.zeros((B, L, width)) for name, width in widths.items()} | {"seqcls_logits": np.zeros((B, 3))}
    for b, (words, first) in enumerate(TEXTS):
        n = len(words)
        z["char_ids"][b, :n] = [char_ids(word) for word in words]
        z["mask"][b, :n], z["types"][b, first:n] = True, 1
        z["word_vectors"][b, :n], x = encode(p, z["char_ids"][b, :n], z["types"][b, :n])
        z["states"][b, :n], z["logits"][b, :n] = x, logits(p, x)
        pooled = np.tanh(linear(p, "bert.pooler.dense", x[0]))
        z["seqcls_logits"][b] = linear(p, "head.seqcls.classifier", pooled)
        z["tokcls_logits"][b, :n] = linear(p, "head.tokcls.classifier", x)
        z["qa_logits"][b, :n] = linear(p, "head.qa.qa_outputs", x)
    z = {name: value.astype(np.float32) if value.dtype.kind == "f" else value for name, value in z.items()}
    z |= {f"tables/{name}": z[name] for name in ("word_vectors", "states", "logits")}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "small.json").write_text(json.dumps({"config": CONFIG, "texts": [words for words, _ in TEXTS]}, indent=1))
    save_file(state, folder / "small.safetensors")
    np.savez_compressed(folder / "small.npz", **z)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
