"""CharBERT's equations in NumPy (float64, loops), with which tests compare the model."""

import math

import numpy as np

erf = np.vectorize(math.erf)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def norm(p, x, epsilon):
    return (x - x.mean()) / np.sqrt(x.var() + epsilon) * p["scale"] + p["bias"]


def dense(p, x):
    return x @ p["kernel"] + p.get("bias", 0.0)


def gru(p, direction, x_NE):
    """Returns the states of one direction, character by character; parameters by PyTorch's equations."""
    wi, bi, wh, bh = (p[f"{direction}_{name}"] for name in ("input_kernel", "input_bias", "state_kernel", "state_bias"))
    K = len(wh)
    h, states = np.zeros(K), []
    for x in x_NE:
        i, s = x @ wi + bi, h @ wh + bh
        r, z = sigmoid(i[:K] + s[:K]), sigmoid(i[K : 2 * K] + s[K : 2 * K])
        n = np.tanh(i[2 * K :] + r * s[2 * K :])
        h = (1 - z) * n + z * h
        states.append(h)
    return np.array(states).reshape(-1, K)


def bigru(p, x_NE):
    return np.concatenate([gru(p, "forward", x_NE), gru(p, "backward", x_NE[::-1])[::-1]], axis=1)


def layer(p, x_LD, seen_L, heads, epsilon):
    """Returns a BERT layer's states; `seen_L`: the positions that are attended to."""
    L, D = x_LD.shape
    K = D // heads
    q, k, v = (dense(p["attention"][name], x_LD).reshape(L, heads, K) for name in ("query", "key", "value"))
    mixed = np.zeros((L, heads, K))
    for at in range(L):
        for head in range(heads):
            weights = softmax(k[seen_L, head] @ q[at, head] / math.sqrt(K))
            mixed[at, head] = weights @ v[seen_L, head]
    x_LD = x_LD + dense(p["attention"]["output"], mixed.reshape(L, D))
    x_LD = np.array([norm(p["attention_norm"], x, epsilon) for x in x_LD])
    x_LD = x_LD + dense(p["ffn_out"], gelu(dense(p["ffn_in"], x_LD)))
    return np.array([norm(p["ffn_norm"], x, epsilon) for x in x_LD])


def convolve(p, z_LE):
    """Returns sums over a window around each position; zeros beyond the ends, of an even window one more after."""
    size = len(p["kernel"])
    before = (size - 1) // 2
    found = []
    for at in range(len(z_LE)):
        places = [(k, at - before + k) for k in range(size) if 0 <= at - before + k < len(z_LE)]
        found.append(sum(z_LE[place] @ p["kernel"][k] for k, place in places) + p["bias"])
    return np.array(found)


def fuse(p, cfg, t, u):
    z = np.concatenate([dense(p["word_linear"], t), dense(p["char_linear"], u)], axis=1)
    m = np.concatenate([convolve(p[f"convolution_{n}"], z) for n in range(len(cfg.windows))], axis=1)
    mt = mu = m
    if cfg.fusion == "paper":
        m = np.tanh(m)
        mt, mu = gelu(dense(p["word_split"], m)), gelu(dense(p["char_split"], m))
    rows = lambda name, x: np.array([norm(p[name], row, cfg.epsilon) for row in x])
    return rows("word_norm", t + mt), rows("char_norm", u + mu)


def encode(p, cfg, ids, types, chars, starts, ends, real):
    """Returns both channels [L, D] of one sequence; the first `real` positions are no padding.

    Without `compat_reference` the arrays end with the last real token and its last character.
    """
    places = np.arange(len(ids))
    if cfg.position_offset:
        places = np.where(np.asarray(ids) != cfg.pad_id, np.cumsum(np.asarray(ids) != cfg.pad_id) + 1, cfg.pad_id)
    embed = p["embed"]
    tables = (embed[name]["embedding"] for name in ("token", "type", "position"))
    x = sum(table[index] for table, index in zip(tables, (ids, types, places), strict=True))
    x = np.array([norm(embed["norm"], row, cfg.epsilon) for row in x])
    states = p["char"]["table"]["embedding"][chars]
    if cfg.char_encoder == "gru":
        states = bigru(p["char"]["gru"], states)
    h = np.concatenate([states[starts], states[ends]], axis=1)
    for n in range(cfg.layers):
        block = p["encoder"][f"layer_{n}"]
        x, h = (layer(block, y, np.arange(real), cfg.heads, cfg.epsilon) for y in (x, h))
        if cfg.fusion != "none":
            x, h = fuse(p["encoder"]["fusion" if cfg.one_fusion else f"fusion_{n}"], cfg, x, h)
    return x, h


def predict(p, cfg, x, h):
    """Returns the logits of subwords and of words, [L, V] and [L, T]."""
    head, table = p["head"], p["charbert"]["embed"]["token"]["embedding"]
    rows = lambda name, y: np.array([norm(head[name], row, cfg.epsilon) for row in y])
    y = x if cfg.nlm else np.concatenate([x, h], axis=1)
    mlm = rows("transform_norm", gelu(dense(head["transform"], y))) @ table.T + head["output_bias"]
    if not cfg.nlm:
        return mlm, None
    name = "transform_norm" if cfg.shared_head_norm else "word_transform_norm"
    words = rows(name, gelu(dense(head["word_transform"], h)))
    return mlm, words @ head["word_output_kernel"] + head["word_output_bias"]
