"""Builds the section of sentences: what stands in them, what noise made of it, and what each model answers.

`charlm.robustness.answers` has chosen them. Open it to change how they are shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from charlm.core.types import JsonObject
from charlm.robustness.render.numbers import score_name
from charlm.robustness.render.parts import Block, Card, Grid, Inline, Name, RichText, Table, Typo, Wrong
from charlm.robustness.render.view import View, noise_name, unique

_WORDS = 80  # a longer text is cut here
_COUNTED = {"accuracy": "right answers", "mse": "squared error"}  # what is counted, if not a score of this name
_ANSWERS = 8  # more wrong words of a sentence than these are counted, not listed


def sentences(view: View) -> list[Block]:
    """Returns the rule by which the sentences were chosen, and a card for each; nothing if there are none."""
    found = view.results.get("answers") or {}
    cards = [_card(view, number, example) for number, example in enumerate(found.get("examples") or ())]
    return [_rule(view, found), Grid(cards)] if cards else []


def _rule(view: View, found: JsonObject) -> RichText:
    """Returns how the sentences were chosen, and what the choice leaves out."""
    models = [model for model in view.models if model in found["better"]]
    counted = _COUNTED.get(found["by"]) or score_name(found["by"])
    which = f"where the models differ most in {counted}" if len(models) > 1 else f"where noise costs most {counted}"
    if len(models) < len(view.models):
        which += " (of all models the best and the worst under noise)"
    text: list[Inline] = [
        f"Chosen by a rule, and no fair sample: the texts {which}, kind by kind, the costliest kind first; each kind at"
        f" its level nearest {found['level']:g}, draw 0, texts of at most {found['words']} words, none twice."
        f" Of all {found['pairs']} pairs of text and noise that could have been chosen, "
    ]
    if len(models) > 1:
        for model in models:
            text += [
                f"{found['better'][model]} are answered best by ",
                Name(model),
                ", " if model != models[-1] else "",
            ]
    else:
        text.append(f"{found['worse']} are answered worse than without noise, {found['better'][models[0]]} better")
    text += [
        ". Words that noise changed are marked. A cross: a wrong answer; in brackets: the answer to the clean text, if"
        " it was another one."
    ]
    return text


def _card(view: View, number: int, example: JsonObject) -> Card:
    lines: list[tuple[str, RichText]] = []
    several = len(example["texts"]) > 1
    for text in example["texts"]:
        name = f" {text['field']}" if several else ""
        lines += [
            (f"clean{name}", _cut(text["clean"].split())),
            (f"typos{name}", _marked(text["clean"], text["noisy"])),
        ]
    title = f"{noise_name(example['kind'], example['level'])}, {example['place'].rpartition('/')[2]}"
    return Card(title, lines, _answers(view, number, example["asked"]))


def _marked(clean: str, noisy: str) -> RichText:
    """Returns a text in which the words that do not stand in the clean one are marked."""
    before, after = clean.split(), noisy.split()
    found: list[Inline] = []
    for tag, _, _, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        words = after[start : min(end, _WORDS)]
        if words:
            text = " ".join(words)
            found += [text if tag == "equal" else Typo(text), " "]
    return [*found, "…"] if len(after) > _WORDS else found[:-1]


def _cut(words: Sequence[str]) -> str:
    return " ".join(words[:_WORDS]) + (" …" if len(words) > _WORDS else "")


def _answers(view: View, number: int, asked: Sequence[JsonObject]) -> Table:
    """Returns a row for each thing that is asked for: all, or of many words those that some model has wrong."""
    models = unique(answer["model"] for one in asked for answer in one["answers"])
    models = [model for model in view.models if model in models]
    wrong = [one for one in asked if not all(answer["right"] for answer in one["answers"])] or asked
    rows = [[str(one["what"]), str(one["gold"]), *_of_models(one, models)] for one in wrong[:_ANSWERS]]
    caption = "What the models answer to the text with typos."
    if view.by_word:
        caption = f"{len(wrong)} of {len(asked)} words, those with a wrong tag"
        caption += f"; the first {_ANSWERS}." if len(wrong) > _ANSWERS else "."
        if wrong is asked:
            caption = "All tags are right."
    header: list[RichText] = ["word" if view.by_word else "asked", "right", *(Name(model) for model in models)]
    return Table(f"table-answers-{number}", caption, header, rows, texts=len(header))


def _of_models(one: JsonObject, models: Sequence[str]) -> list[RichText]:
    answers = {answer["model"]: answer for answer in one["answers"]}
    return [_answer(answers[model]) if model in answers else "" for model in models]


def _answer(answer: JsonObject) -> RichText:
    shown: Inline = Wrong(str(answer["noisy"])) if answer["right"] is False else str(answer["noisy"])
    return shown if answer["clean"] == answer["noisy"] else [shown, f" ({answer['clean']})"]
