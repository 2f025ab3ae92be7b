"""Runs the attacks of TextAttack beside charlm's own on one classifier and the same examples, and prints a table.

    python -m charlm.robustness.textattack --model runs/sentiment --data dev.tsv --examples 100

TextAttack (Morris et al., 2020) must be installed beside charlm; nothing is downloaded. Its attacks are put together
from its own parts, with the arguments of its recipes `DeepWordBugGao2018`, `TextBuggerLi2018` and `Pruthi2019`, its
stop words given by charlm (NLTK's list, the same). Both sides leave out what needs weights: TextBugger's neighbours
among word vectors and its sentence encoder. Open it to compare a further attack of `charlm.robustness.recipes`.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import random
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from charlm.core import extras
from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.core.nearest import did_you_mean
from charlm.core.types import JsonObject
from charlm.data.examples import TextExample
from charlm.robustness.recipes import RECIPES, STOP_WORDS, AttackedWords
from charlm.text.words import split

if TYPE_CHECKING:
    from charlm.robustness.subjects import Subject

log = logging.getLogger("charlm")

OURS, THEIRS = "charlm", "TextAttack"
_Part = Any  # an object of TextAttack, which has no types
_NEEDED_BY = "charlm.robustness.textattack"
_EVERYWHERE = {"random_one": False, "skip_first_char": True, "skip_last_char": True}
_INSIDE = _EVERYWHERE | {"random_one": True}


class Outcome(NamedTuple):
    """What an attack came to in one example.

    Attributes:
      skipped: whether the model was wrong before.
      succeeded: whether its answer changed.
      queries: how many texts it was asked, the original among them.
      changed: the share of the words that changed.
      text: the last text.
    """

    skipped: bool
    succeeded: bool
    queries: int
    changed: float
    text: str


class Compared(NamedTuple):
    """The outcomes of an attack on one side.

    Attributes:
      attack: its name in `RECIPES`.
      by: whose search it was.
      outcomes: one for each example, in order.
      seconds: processor time of this process.
    """

    attack: str
    by: str
    outcomes: tuple[Outcome, ...]
    seconds: float

    def row(self) -> tuple[str, ...]:
        """Returns the cells of the table."""
        tried = [one for one in self.outcomes if not one.skipped]
        won = [one for one in tried if one.succeeded]
        mean = lambda values: f"{sum(values) / len(values):.1f}" if values else "-"
        return (
            self.attack, self.by, str(len(tried)), f"{100 * len(won) / len(tried):.1f}" if tried else "-",
            mean([one.queries for one in tried]), mean([100 * one.changed for one in won]), f"{self.seconds:.0f}",
        )  # fmt: skip


COLUMNS = ("attack", "by", "attacked", "success, %", "queries a text", "words changed, %", "CPU-s")


class Victim:
    """A classifier as TextAttack calls it: texts in, probabilities of the classes out.

    Args:
      subject: the model, of the task classification.
      example: any example, whose text is replaced.
    """

    def __init__(self, subject: Subject, example: TextExample) -> None:
        self.model = self  # TextAttack names the class of this in its messages
        self._subject, self._example = subject, example

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the probabilities, float64 [N, labels]; rows sum to 1."""
        predictions = self._subject.batches.predict([self._example._replace(text=text) for text in texts])
        shares = np.array([prediction.probabilities for prediction in predictions], np.float64)
        return shares / shares.sum(axis=1, keepdims=True)


def changed(before: str, after: str) -> float:
    """Returns the share of the words of a text that another text does not have in the same order."""
    old, new = (split(text, AttackedWords()).words for text in (before, after))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return 1 - sum(block.size for block in blocks) / len(old) if old else 0.0


def ours(subject: Subject, examples: Sequence[TextExample], recipe: str) -> Compared:
    """Returns what charlm's search finds; see `charlm.robustness.recipe_search.search`."""
    from charlm.robustness.recipe_search import search

    start = time.process_time()
    found = []
    for example, one in zip(examples, search(subject.task, subject.batches, examples, recipe), strict=True):
        text = one.attacked.example.text
        found.append(Outcome(one.skipped, one.succeeded, one.queries, changed(example.text, text), text))
    return Compared(recipe, OURS, tuple(found), time.process_time() - start)


def theirs(subject: Subject, examples: Sequence[TextExample], recipe: str, seed: int = 0) -> Compared:
    """Returns what TextAttack's search finds.

    Args:
      examples: labelled examples of one text each.
      recipe: the name of the attack in `RECIPES`.
      seed: of the random numbers that TextAttack draws, which are global ones of Python and NumPy.

    Raises:
      ValueError: TextAttack is not installed, or has no such attack.
    """
    if recipe not in _ATTACKS:
        raise ValueError(f"{recipe!r} has no counterpart in TextAttack: expected one of {', '.join(_ATTACKS)}")
    attack = _ATTACKS[recipe](Victim(subject, examples[0]))
    results = extras.load(_NEEDED_BY, "textattack.attack_results")
    random.seed(seed)
    np.random.seed(seed)
    start = time.process_time()
    found = []
    for number, example in enumerate(examples, 1):
        result = attack.attack(example.text, subject.task.labels.index(example.label))
        text = result.perturbed_result.attacked_text.text
        skipped = isinstance(result, results.SkippedAttackResult)
        succeeded = isinstance(result, results.SuccessfulAttackResult)
        found.append(Outcome(skipped, succeeded, result.num_queries, changed(example.text, text), text))
        if not number % 10:
            log.info("%s  %s  %d of %d examples", THEIRS, recipe, number, len(examples))
    return Compared(recipe, THEIRS, tuple(found), time.process_time() - start)


def _part(module: str, name: str) -> _Part:
    return getattr(extras.load(_NEEDED_BY, f"textattack.{module}"), name)


def _attack(victim: Victim, edits: Sequence[_Part], constraints: Sequence[_Part], search: _Part) -> _Part:
    """Returns an attack of TextAttack on the classes of a victim, with the constraints that all three recipes have."""
    transformation = _part("transformations", "CompositeTransformation")(list(edits))
    rules = "constraints.pre_transformation"
    shared = [_part(rules, "RepeatModification")(), _part(rules, "StopwordModification")(sorted(STOP_WORDS))]
    goal = _part("goal_functions", "UntargetedClassification")(victim)
    return _part("attack", "Attack")(goal, [*shared, *constraints], transformation, search)


def _edit(name: str, **options: object) -> _Part:
    try:
        return _part("transformations", f"WordSwap{name}")(**options)
    except FileNotFoundError as error:  # the release 0.3.11 lacks a list, which these edits do not read later
        raise ValueError(f"{THEIRS}: {error.filename} is missing: take it from its repository") from error


def _deepwordbug(victim: Victim) -> _Part:
    edits = [
        _edit("NeighboringCharacterSwap"),
        _edit("RandomCharacterSubstitution"),
        _edit("RandomCharacterDeletion"),
        _edit("RandomCharacterInsertion"),
    ]
    budget = _part("constraints.overlap", "LevenshteinEditDistance")(30)
    return _attack(victim, edits, [budget], _part("search_methods", "GreedyWordSwapWIR")())


def _textbugger(victim: Victim) -> _Part:
    edits = [
        _edit("RandomCharacterInsertion", letters_to_insert=" ", **_INSIDE),
        _edit("RandomCharacterDeletion", **_INSIDE),
        _edit("NeighboringCharacterSwap", **_INSIDE),
        _edit("HomoglyphSwap"),
    ]
    return _attack(victim, edits, [], _part("search_methods", "GreedyWordSwapWIR")(wir_method="delete"))


def _pruthi(victim: Victim) -> _Part:
    names = ("NeighboringCharacterSwap", "RandomCharacterDeletion", "RandomCharacterInsertion", "QWERTY")
    edits = [_edit(name, **_EVERYWHERE) for name in names]
    constraints = [
        _part("constraints.pre_transformation", "MinWordLength")(min_length=4),
        _part("constraints.overlap", "MaxWordsPerturbed")(max_num_words=1),
    ]
    return _attack(victim, edits, constraints, _part("search_methods", "GreedySearch")())


_ATTACKS: dict[str, Callable[[Victim], _Part]] = {
    "deepwordbug": _deepwordbug,
    "textbugger": _textbugger,
    "pruthi2019": _pruthi,
}


def table(found: Sequence[Compared]) -> str:
    """Returns a Markdown table with a row for each attack and side."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(one.row() for one in found)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _parser() -> argparse.ArgumentParser:
    paragraphs = (__doc__ or "").split("\n\n")
    parser = Parser(
        prog=program("charlm.robustness.textattack"), description=paragraphs[0], epilog="\n\n".join(paragraphs[1:])
    )
    add, usual = parser.add_argument, "(default: %(default)s)"
    add("--model", required=True, metavar="FOLDER", help="workdir of a model fine-tuned for classification of texts")
    add("--data", nargs="+", required=True, metavar="FILE", help="labelled examples, in the format of training data")
    add("--attack", nargs="+", default=list(_ATTACKS), metavar="NAME", help=f"of {', '.join(_ATTACKS)} (default: all)")
    add("--examples", type=int, default=100, metavar="N", help=f"attack the first N examples {usual}")
    add("--seed", type=int, default=0, help=f"of TextAttack's draws {usual}")
    add("--batch-size", type=int, default=32, help=f"texts predicted at a time {usual}")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command line and returns the exit status: 0, or 1 after an error message of one line."""
    options = vars(_parser().parse_args(argv))
    return run_command(lambda: _run(options), f"lower --batch-size (now {options['batch_size']})")


def _run(options: JsonObject) -> int:
    check_options(options, needed=("model", "data"))
    for name in options["attack"]:
        if name not in RECIPES:
            raise ValueError(f"--attack={name}: expected one of {', '.join(RECIPES)}{did_you_mean(name, RECIPES)}")
    for name in ("examples", "batch_size"):
        if options[name] < 1:
            raise ValueError(f"--{name.replace('_', '-')}={options[name]}: expected a whole number of at least 1")
    extras.check(_NEEDED_BY, "textattack")
    from charlm.robustness.subjects import load  # imported late, so that --help needs no JAX
    from charlm.tasks.classification import Classification

    start_logging()
    (subject,) = load([options["model"]], options["batch_size"])
    if not isinstance(subject.task, Classification):
        raise ValueError(
            f"--model={options['model']} was fine-tuned for {subject.task.name}, expected classes of texts"
        )
    examples = subject.task.read(options["data"], training=False)[: options["examples"]]
    if not examples:
        raise ValueError(f"--data={' '.join(options['data'])}: there is no example")
    for example in examples:
        if example.pair is not None or example.label is None:
            raise ValueError(f"--data: {example.place}: expected one text with a label, got a pair or no label")
        if example.label not in subject.task.labels:
            known = ", ".join(map(repr, subject.task.labels))
            raise ValueError(f"--data: {example.place}: the model has no label {example.label!r}, only {known}")
    found = [
        one
        for recipe in dict.fromkeys(options["attack"])
        for one in (ours(subject, examples, recipe), theirs(subject, examples, recipe, options["seed"]))
    ]
    print(table(found), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
