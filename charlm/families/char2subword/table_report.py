"""Measures how well a Char2Subword imitates a table of subwords: accuracy and precision, clean and after each typo.

    python -m charlm.table_report --checkpoint=runs/c2s
    python -m charlm.table_report --checkpoint=runs/clean --checkpoint=runs/noise --json > report.jsonl

The measures are those of Aguilar et al. (2021), section 4 and Table 2. Accuracy is the share of entries whose own row
has the largest product with the module's vector. Precision@k is the share of the k rows nearest to the entry's row,
itself included, that are also among the k rows nearest to the vector, by cosine. Average precision is the mean of
precision@1 to @15. All rows are candidates. The typos are the six of Table 1, one in each of some words of the
vocabulary that have at least five letters; the right row is that of the word without the typo.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from charlm.config import from_dict, get_config
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.types import JsonObject
from charlm.families.char2subword.spelling import spell_rows, spell_word
from charlm.families.char2subword.spelling_vocab import Entries
from charlm.text.noise.words import CHAR2SUBWORD, one_edit

if TYPE_CHECKING:
    import jax

    from charlm.families.char2subword.spelling_vocab import Entries

SAMPLED_WORDS = 2000  # in-vocabulary words that get a typo
SHORTEST_WORD = 5  # letters
BATCH = 512


class MeasuredModel(NamedTuple):
    """A Char2Subword to measure.

    Attributes:
      name: the checkpoint as the user named it.
      entries: the entries of its vocabulary, `Entries`.
      table_VD: float32, on the device.
      near_VK: the nearest rows of each row.
      unseen_N: bool, entries that it was not trained on.
      spell: a function from spellings to vectors.
    """

    name: str
    entries: Entries
    table_VD: jax.Array
    near_VK: np.ndarray
    unseen_N: np.ndarray
    spell: Callable[[Sequence[str]], np.ndarray]


def open_subject(path: str) -> MeasuredModel:
    """Loads a checkpoint of a Char2Subword.

    Raises:
      ValueError: there is no such checkpoint, or it has no table.
    """
    import jax

    from charlm.core import checkpoint as checkpoints
    from charlm.families.char2subword.batches import choose_unseen
    from charlm.families.char2subword.imitation import NEIGHBOURS
    from charlm.families.char2subword.model import Char2SubwordBertConfig
    from charlm.families.char2subword.module import Char2Subword
    from charlm.families.char2subword.shape import near_rows, read_start
    from charlm.families.char2subword.tensors import NAME
    from charlm.families.stored import metadata_of
    from charlm.families.subword.layout import config_from_dict

    checkpoint = checkpoints.find(path, key="--checkpoint")
    metadata = metadata_of(checkpoint, (NAME,))
    start = read_start(str(checkpoint), "--checkpoint")
    chars = start.chars
    assert chars is not None  # a checkpoint of the family has them
    shape = config_from_dict(Char2SubwordBertConfig, metadata["model"], str(checkpoint)).characters
    stored = checkpoints.on_one_device(checkpoints.stored_params(checkpoint))
    names = [name for name in checkpoints.parameter_shapes(checkpoint) if name.startswith(f"{NAME}/")]
    params = checkpoints.load_params(checkpoint, stored, names)[NAME]
    module = Char2Subword(shape)
    apply = jax.jit(lambda p, chars_UC: module.apply({"params": p}, chars_UC))
    config = from_dict(metadata["config"]) if "config" in metadata else get_config(NAME)
    entries, table_VD = Entries.of(start.tokenizer()), start.table()

    def spell(spellings: Sequence[str]) -> np.ndarray:
        slots = min(shape.char_slots, 1 << (max(map(len, spellings)) - 1).bit_length())
        rows_UC = spell_rows(spellings, chars, slots)
        padded = np.zeros((-(-len(rows_UC) // BATCH) * BATCH, slots), rows_UC.dtype)
        padded[: len(rows_UC)] = rows_UC
        found = [np.asarray(apply(params, padded[at : at + BATCH])) for at in range(0, len(padded), BATCH)]
        return np.concatenate(found)[: len(spellings)]

    unseen_N = choose_unseen(entries, config.data.unseen if "config" in metadata else 0.0, config.seed)
    near_VK = near_rows(get_config(NAME), table_VD, min(NEIGHBOURS, len(table_VD)))
    return MeasuredModel(path, entries, jax.device_put(table_VD), near_VK, unseen_N, spell)


def measure(subject: MeasuredModel, spellings: Sequence[str], ids_N: np.ndarray) -> JsonObject:
    """Returns accuracy, precision@1 to @k and average precision of spellings against the rows `ids_N` of the table."""
    import jax

    from charlm.families.char2subword.imitation import Precision, precision_of

    program = jax.jit(precision_of)
    parts = []
    for at in range(0, len(spellings), BATCH):
        some, ids_B = spellings[at : at + BATCH], ids_N[at : at + BATCH]
        vectors_BD = subject.spell(some)
        fill = BATCH - len(some)
        vectors_BD, padded_B = np.pad(vectors_BD, ((0, fill), (0, 0))), np.pad(ids_B, (0, fill))
        found = program(vectors_BD, subject.table_VD, padded_B, subject.near_VK[padded_B])
        parts.append([np.asarray(x)[: len(some)] for x in found])
    found = Precision(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    curve = [round(float(x), 6) for x in found.shared_BK.mean(axis=0)]
    return {name: round(value, 6) for name, value in found.summary().items()} | {"precision": curve}


def typos(subject: MeasuredModel, operation: str, words: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Returns spellings of words with one typo, and the words' rows; words that the typo leaves unchanged are left out.

    Args:
      operation: the kind of typo.
      words: how many words to draw from the vocabulary.
    """

    surfaces, unseen_N = subject.entries.surfaces, subject.unseen_N
    long = [
        n for n, s in enumerate(surfaces)
        if s.starts_word and len(s.chars) >= SHORTEST_WORD and s.chars.isalpha() and not unseen_N[n]
    ]  # fmt: skip
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(long)[:words]
    noised = [one_edit(surfaces[n].chars, operation, rng) for n in chosen]
    changed = [i for i, n in enumerate(chosen) if noised[i] != surfaces[n].chars]
    return [spell_word(noised[i]) for i in changed], subject.entries.ids_N[chosen[changed]]


def report(subject: MeasuredModel, words: int = SAMPLED_WORDS, seed: int = 0) -> JsonObject:
    """Returns all measures as JSON values: of entries trained on, of entries never trained on, and of typos.

    Raises:
      ValueError: the vocabulary has no word that a kind of typo changes.
    """
    entries, seen_N = subject.entries, ~subject.unseen_N
    spellings = np.array(entries.spellings, object)
    found: JsonObject = {"checkpoint": subject.name, "rows": len(subject.near_VK)}
    for name, which_N in (("shown", seen_N), ("never_shown", ~seen_N)):
        if which_N.any():
            found[name] = {"entries": int(which_N.sum())}
            found[name] |= measure(subject, spellings[which_N].tolist(), entries.ids_N[which_N])
    found["typos"] = {}
    for operation in CHAR2SUBWORD:
        some, ids_N = typos(subject, operation, words, seed)
        if not some:
            raise ValueError(f"{subject.name}: no word of {SHORTEST_WORD} letters or more that {operation!r} changes")
        found["typos"][operation] = {"words": len(some)} | measure(subject, some, ids_N)
    return found


def table(reports: Sequence[JsonObject]) -> str:
    """Returns the reports as text for the user, one table per checkpoint, in percent."""
    rows = [(name, lambda r, name=name: r.get(name)) for name in ("shown", "never_shown")]
    rows += [(f"typo: {name}", lambda r, name=name: r["typos"][name]) for name in CHAR2SUBWORD]
    lines = []
    for one in reports:
        k = len(one["shown"]["precision"])  # fewer than `NEIGHBOURS` where a table has fewer rows
        columns = ("accuracy", "precision_at_1", f"precision_at_{k}", "average_precision")
        titles = ("accuracy", "prec@1", f"prec@{k}", "average")
        lines.append(one["checkpoint"])
        lines.append(f"{'':20}" + "".join(f"{title:>10}" for title in titles))
        for name, get in rows:
            if (values := get(one)) is not None:
                lines.append(f"{name.replace('_', ' '):20}" + "".join(f"{100 * values[c]:10.1f}" for c in columns))
    return "\n".join(lines) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m charlm.table_report", description=__doc__)
    parser.add_argument("--checkpoint", action="append", required=True, help="a Char2Subword; may be repeated")
    parser.add_argument(
        "--words", type=int, default=SAMPLED_WORDS, help="number of words with a typo (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the words and their typos (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each checkpoint, not a table")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    args = _parser().parse_args(argv)
    return run_command(lambda: _run(args), f"lower --words (now {args.words}), or set JAX_PLATFORMS=cpu")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), needed=("checkpoint",))
    if args.words < 1 or args.seed < 0:
        raise ValueError(f"--words={args.words} and --seed={args.seed} must be at least 1 and 0")
    reports = [report(open_subject(path), args.words, args.seed) for path in args.checkpoint]
    print("\n".join(map(json.dumps, reports)) if args.json else table(reports), end="\n" if args.json else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
