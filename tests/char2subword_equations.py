"""Char2Subword's equations in NumPy (float64, loops), from the paper: no code was released with it.

Names of tensors are those of the golden cases, which `char2subword_goldens` makes by them.
"""

import math

import numpy as np

EPSILON = 1e-5
erf = np.vectorize(math.erf)


def norm(x, weight, bias):
    """LayerNorm over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + EPSILON) * weight + bias


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def positions(count, width):
    """Sinusoidal positions (Vaswani et al., 2017)."""
    found = np.zeros((count, width))
    for t in range(count):
        for i in range(0, width, 2):
            angle = t / 10000 ** (i / width)
            found[t, i], found[t, i + 1] = math.sin(angle), math.cos(angle)
    return found


def layer(p, name, x, heads, scale):
    """x' = LN(x) + Attention(LN(x));  x'' = LN(x') + FFN(LN(x')) (appendix A); also the probabilities [H, C, C]."""
    normed = norm(x, p[f"{name}.ln1.weight"], p[f"{name}.ln1.bias"])
    q, k, v = (normed @ p[f"{name}.{part}.weight"].T for part in "qkv")
    width = x.shape[1] // heads
    probs, mixed = [], []
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        probs.append(softmax(q[:, part] @ k[:, part].T / scale))
        mixed.append(probs[-1] @ v[:, part])
    x = normed + np.concatenate(mixed, axis=1) @ p[f"{name}.o.weight"].T
    normed = norm(x, p[f"{name}.ln2.weight"], p[f"{name}.ln2.bias"])
    hidden = normed @ p[f"{name}.ff1.weight"].T + p[f"{name}.ff1.bias"]
    hidden = hidden * (1 + erf(hidden / math.sqrt(2))) / 2
    return normed + hidden @ p[f"{name}.ff2.weight"].T + p[f"{name}.ff2.bias"], np.stack(probs)


def module(p, chars, layers, heads, scale="model"):
    """Returns the vector of one word, without padding, and the probabilities of attention [layers, H, C, C]."""
    x = p["char_embs.weight"][chars]
    width = x.shape[1]
    x, found = x + positions(len(chars), width), []
    for n in range(layers):
        x, probs = layer(p, f"layers.{n}", x, heads, math.sqrt(width if scale == "model" else width / heads))
        found.append(probs)
    most = (x @ p["proj.weight"].T + p["proj.bias"]).max(axis=0)
    return norm(most, p["ln_out.weight"], p["ln_out.bias"]), np.stack(found)


def cosines(a, b):
    return (a @ b.T) / np.linalg.norm(a, axis=-1)[..., None] / np.linalg.norm(b, axis=-1)


def losses(table, ids, vectors, k, most=15):
    """Returns the terms of section 3.1 for every vector, and accuracy and precision as in section 4."""
    z = {name: [] for name in ("cos", "l2", "mse", "nbr_self_included", "nbr_self_excluded", "ce", "acc", "prec_at_k")}
    for y, found in zip(ids, vectors, strict=True):
        own = table[y]
        near = np.argsort(-cosines(own, table), kind="stable")
        z["cos"].append(1 - cosines(own, found[None])[0])
        z["l2"].append(np.linalg.norm(own - found))
        z["mse"].append(((own - found) ** 2).mean())
        for name, rows in (("included", near[:k]), ("excluded", near[1 : k + 1])):
            off = cosines(own, table[rows]) - cosines(found, table[rows])
            z[f"nbr_self_{name}"].append((off * off).mean())
        logits = table @ found
        z["ce"].append(math.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[y])
        z["acc"].append(float(logits.argmax() == y))
        guess = np.argsort(-cosines(found, table), kind="stable")
        z["prec_at_k"].append([len({*near[:n]} & {*guess[:n]}) / n for n in range(1, most + 1)])
    z = {name: np.array(values) for name, values in z.items()}
    z["total_mean"] = sum(z[name].mean() for name in ("cos", "l2", "nbr_self_included", "ce"))
    return z | {"avg_prec": z["prec_at_k"].mean()}
