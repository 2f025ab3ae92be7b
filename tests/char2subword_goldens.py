"""Makes the golden cases of Char2Subword, from nothing but a seed and the paper: no code was released with it.

    python tests/char2subword_goldens.py tests/goldens/char2subword

Weights and inputs are drawn, results computed by `char2subword_equations` in float64; spellings, outcomes of noise and
readings of sentences follow from the rules of the paper (Aguilar et al., 2021, sections 3.1 and 3.3, Table 1), with the
entries that the sentences need of the vocabulary of bert-base-uncased. Nothing of charlm is imported.
"""

import json
import re
import sys
import unicodedata
from pathlib import Path

import char2subword_equations as equations
import numpy as np
from safetensors.numpy import save_file

SEED = 2
SHAPE = {"D": 16, "heads": 4, "layers": 2, "d": 12}
CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ#-."
TOKENS = ["business", "##ness", "a", "##s", "BUSINESS", "bssinesssses", "##ing", "ing", "#", "naïve"]
UNKNOWN, FIRST = 1, 3  # ids: 0 pads, 1 is unknown, 2 masks, characters follow
ROWS, CHOSEN, NEAREST = 60, 8, 5  # of the losses: rows of the table, spellings, neighbours
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
PUNCTUATION = "-.'_"
SHORT = ["the", "this", "##ness", "word"]  # no more than four characters: they get no typo
SENTENCES = [
    "My hovercraft is full of eels.", "business bssinesssses BUSINESS", "#4thofjuly @user lolcats!!!",
    "São Paulo nanotechnologi", "😂 ok", "unaffable", "ing ness ##ing", "co-operate",
]  # fmt: skip
IDS = {
    "[CLS]": 101, "[SEP]": 102, "!": 999, "#": 1001, "-": 1011, ".": 1012, "@": 1030, "is": 2003, "of": 1997,
    "my": 2026, "full": 2440, "business": 2449, "co": 2522, "user": 5310, "operate": 5452, "sao": 7509, "ok": 7929,
    "paulo": 9094, "ing": 13749, "ness": 23384, "eels": 29317,
}  # fmt: skip
PIECES = [
    "hove", "##rc", "##raf", "##t", "bs", "##sin", "##ess", "##sse", "##s", "4th", "##of", "##ju", "##ly", "lo", "##lc",
    "##ats", "nano", "##tech", "##no", "##log", "##i", "una", "##ffa", "##ble",
]  # fmt: skip


def spelled(token):
    """Returns the characters of an entry: full words get the mark that pieces lose (footnotes 3 and 13)."""
    return token[2:] if token.startswith("##") and token != "##" else f"##{token}"


def shapes():
    """Returns the shapes of the module's tensors by name."""
    D, d = SHAPE["D"], SHAPE["d"]
    found = {"char_embs.weight": (FIRST + len(CHARS), D)}
    for n in range(SHAPE["layers"]):
        found |= {f"layers.{n}.{part}.weight": (D, D) for part in "qkvo"}
        found |= {f"layers.{n}.ff1.weight": (4 * D, D), f"layers.{n}.ff1.bias": (4 * D,)}
        found |= {f"layers.{n}.ff2.weight": (D, 4 * D), f"layers.{n}.ff2.bias": (D,)}
        found |= {f"layers.{n}.{norm}.{part}": (D,) for norm in ("ln1", "ln2") for part in ("weight", "bias")}
    return found | {"proj.weight": (d, D), "proj.bias": (d,), "ln_out.weight": (d,), "ln_out.bias": (d,)}


def weights(rng):
    """Draws the tensors of a module; those of LayerNorms around 1."""
    around = lambda name: 1.0 if re.search(r"ln.*weight", name) else 0.0
    return {
        name: (around(name) + 0.2 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes().items()
    }


def char_ids():
    """Returns the characters of the tokens, int64 [N, C], padded with 0."""
    ids = {char: n for n, char in enumerate(CHARS, FIRST)}
    rows = [[ids.get(char, UNKNOWN) for char in spelled(token)] for token in TOKENS]
    return np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows], np.int64)


def keyboard():
    """Returns the neighbours of each key: above, left, right, below; each row stands half a key to the right."""
    found = {}
    for r, row in enumerate(KEYS):
        for c, key in enumerate(row):
            places = [(r - 1, c), (r - 1, c + 1), (r, c - 1), (r, c + 1), (r + 1, c - 1), (r + 1, c)]
            found[key] = "".join(KEYS[i][j] for i, j in places if 0 <= i < len(KEYS) and 0 <= j < len(KEYS[i]))
    return found


def outcomes(word):
    """Returns all that each operation of Table 1 may make of a word."""
    near, places = keyboard(), range(len(word))
    cut = lambda i, inside, until: word[:i] + inside + word[until:]
    made = {
        "mistype": {cut(i, key, i + 1) for i in places for key in near.get(word[i].lower(), "")},
        "repeat": {cut(i, word[i], i) for i in places},
        "swap": {cut(i, word[i + 1] + word[i], i + 2) for i in places[:-1]},
        "drop": {cut(i, "", i + 1) for i in places},
        "toggle": {cut(i, word[i].swapcase(), i + 1) for i in places},
        "punct": {cut(i, mark, i) for i in places[1:] for mark in PUNCTUATION},
    }
    return {name: sorted(words) for name, words in made.items()}


def pieces(word):
    """Returns the longest entries of which a word is made, from the left, or [UNK]."""
    found, start, entries = [], 0, {*IDS, *PIECES}
    while start < len(word):
        ends = [end for end in range(len(word), start, -1) if "##" * bool(start) + word[start:end] in entries]
        if not ends:
            return ["[UNK]"]
        found.append("##" * bool(start) + word[start : ends[0]])
        start = ends[0]
    return found


def read(sentence):
    """Returns how both modes read a sentence, uncased and without accents."""
    plain = "".join(
        char for char in unicodedata.normalize("NFD", sentence.lower()) if unicodedata.category(char) != "Mn"
    )
    words = re.findall(r"\w+|[^\w\s]", plain)
    place = lambda w: (
        {"word": w, "src": "table", "id": IDS[w]} if w in IDS else {"word": w, "src": "chars", "chars": f"##{w}"}
    )
    return {
        "sentence": sentence,
        "words": words,
        "wordpieces": ["[CLS]", *(piece for word in words for piece in pieces(word)), "[SEP]"],
        "hybrid": [place(word) for word in ("[CLS]", *words, "[SEP]")],
        "full": [f"##{word}" for word in words],
    }


def make(folder):
    """Writes the four files of the cases."""
    rng = np.random.default_rng(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    state, chars = weights(rng), char_ids()
    exact = {name: value.astype(np.float64) for name, value in state.items()}
    vectors = lambda scale: np.stack(
        [equations.module(exact, row[row != 0], SHAPE["layers"], SHAPE["heads"], scale)[0] for row in chars]
    )
    results = {f"out_scale_d_{scale}": vectors(scale).astype(np.float32) for scale in ("model", "head")}
    table = rng.standard_normal((ROWS, SHAPE["d"])).astype(np.float32)
    ids = rng.permutation(ROWS)[:CHOSEN]
    found = (table[ids] + 0.7 * rng.standard_normal((CHOSEN, SHAPE["d"]))).astype(np.float32)
    terms = equations.losses(table.astype(np.float64), ids, found.astype(np.float64), NEAREST)
    about = {
        name: terms[name].mean() for name in ("cos", "l2", "mse", "nbr_self_included", "nbr_self_excluded", "ce", "acc")
    }
    about |= {
        "p1": terms["prec_at_k"][:, 0].mean(),
        "p15": terms["prec_at_k"][:, -1].mean(),
        "avgprec": terms["avg_prec"],
    }
    meta = {
        "module_a": SHAPE | {"chars": CHARS, "specials": "0 pad, 1 unk, 2 mask", "tokens": TOKENS}
        | {"spelled": [spelled(token) for token in TOKENS], "shapes": shapes()},
        "losses": {"V": ROWS, "d": SHAPE["d"], "B": CHOSEN, "k": NEAREST}
        | {"means": {name: round(float(mean), 6) for name, mean in about.items()}},
        "noise": {"keyboard": keyboard(), "punct": PUNCTUATION}
        | {"rule": "len(characters without ##) > 4, else unchanged; one operation per presentation; ## prefix of full "
           "words untouched", "outcomes": {word: outcomes(word) for word in ("hello", "Business")}, "unchanged": SHORT},
        "modes": [read(sentence) for sentence in SENTENCES],
    }  # fmt: skip
    save_file(state, folder / "module_a.safetensors")
    np.savez_compressed(folder / "module_a.npz", char_ids=chars, **results)
    inputs = {"E": table, "y": ids, "pred": found, "k": np.array(NEAREST)}
    np.savez_compressed(folder / "losses.npz", **inputs, **{name: np.float32(value) for name, value in terms.items()})
    (folder / "module_meta.json").write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
