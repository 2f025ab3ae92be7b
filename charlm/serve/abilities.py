"""What models can be asked over HTTP: for each ability the fields of a request, the call of a model and its answer.

Every request becomes items, mostly one for each text. Items of requests that ask the same ability of one model with the
same options are computed together. Open it to add an ability or a field. It needs no JAX.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from charlm.core.sampling import LEAST_TOP_P, MOST_SEED, MOST_TEMPERATURE, MOST_TOP_K
from charlm.core.types import Json, JsonObject
from charlm.serve.fields import NEEDED, Field
from charlm.serve.limits import Limits, Refused

if TYPE_CHECKING:
    from charlm.api.model import Model

DECIMALS = 6  # of numbers in responses
MOST_ANSWERS = 100  # of `top`
MOST_GAPS = 16  # of a text: each is a sentence of its own to some models, or one for each length of a word
MOST_NEW = 256  # tokens to write

MODEL = Field("model", "the name of the model, as /v1/models lists them; null: the first that can", "text", None)
TEXTS = Field("texts", "a text, or a list of texts", "texts", NEEDED)
PAIRS = Field("pairs", "the second text of each text, for a model that reads pairs", "pairs", None)
TOP = Field("top", "how many to return", "integer", 5, 1, MOST_ANSWERS)

Item = Any  # what one result is computed from: a text, or a tuple, as each ability has it
Result = Any  # what the method of `charlm.load`'s models returns for one item


class Asked(NamedTuple):
    """What a request asks for.

    Attributes:
      items: what the results are computed from, one each.
      options: what must be equal for items to be computed together; arguments of the model's method.
      texts: how many texts there are, which may be more than items.
    """

    items: list[Item]
    options: tuple[tuple[str, Hashable], ...] = ()
    texts: int = 0


class Ability(NamedTuple):
    """An ability of models, served as POST /v1/NAME.

    Attributes:
      name: the method of `charlm.api.model.Model`.
      line: what it does.
      fields: those of a request, beside `model`.
      ask: makes what is asked for of the checked values of the fields; raises Refused.
      run: computes the results of items; raises ValueError for an item that the model refuses.
      show: makes the JSON of results, given the values of the fields.
      example: a request.
      warm: an item of a text, to compile for.
      together: whether a model computes several items at once.
      check: raises Refused if the results so far, with these values of the fields, are more than the limits allow.
    """

    name: str
    line: str
    fields: tuple[Field, ...]
    ask: Callable[[JsonObject], Asked]
    run: Callable[[Model, list[Item], dict[str, Any]], list[Result]]  # options of the method
    show: Callable[[list[Result], JsonObject], Json]
    example: JsonObject
    warm: Callable[[str], Item] = lambda text: text
    together: bool = True
    check: Callable[[list[Result], JsonObject, Limits], None] = lambda *_: None


def number(value: float) -> float | None:
    """Returns a number as a response has it; None, JSON's null, for one that JSON does not have."""
    return round(value, DECIMALS) if math.isfinite(value) else None


def _texts(values: JsonObject) -> Asked:
    return Asked(values["texts"])


def _few_numbers(found: list[Result], values: JsonObject, limits: Limits) -> None:
    """Raises Refused if the vectors have more numbers than a response may have."""
    numbers = sum(one.sentence.size + one.vectors.size * values["vectors"] for one in found)
    if numbers > limits.max_numbers:
        less = "fewer or shorter texts, or no vectors of words"
        most = f"{limits.max_numbers:,} numbers (--max-numbers)"
        raise Refused(413, f"the vectors have more than {most}: ask for {less}")


def _encoded(found: list[Result], values: JsonObject) -> Json:
    """Returns words, offsets and the vectors of texts, and of words if they are asked for."""

    def shown(one: Result) -> JsonObject:
        vectors = {"vectors": _rounded(one.vectors)} if values["vectors"] else {}
        return {"words": one.words, "offsets": one.offsets, **vectors, "sentence": _rounded(one.sentence)}

    return [shown(one) for one in found]


def _rounded(vectors: np.ndarray) -> Json:
    return np.round(vectors.astype(np.float64), DECIMALS).tolist()


def _tagged(found: list[Result], _values: JsonObject) -> Json:
    return [
        [
            {"word": w.word, "start": w.start, "end": w.end, "label": w.label, "probability": number(w.probability)}
            for w in one
        ]
        for one in found
    ]


def _pairs(values: JsonObject) -> Asked:
    texts, pairs = values["texts"], values["pairs"]
    if pairs is not None and len(pairs) != len(texts):
        raise Refused(422, f"{len(texts)} texts, but {len(pairs)} pairs: one for each")
    return Asked(list(zip(texts, pairs or [None] * len(texts), strict=True)))


def _classes(found: list[Result], _values: JsonObject) -> Json:
    return [
        {
            "label": one.label,
            "probability": number(one.probability),
            "probabilities": {label: number(value) for label, value in one.probabilities.items()},
        }
        for one in found
    ]


def _questions(values: JsonObject) -> Asked:
    questions, contexts = values["questions"], values["contexts"]
    if len(contexts) not in (1, len(questions)):
        raise Refused(422, f"{len(questions)} questions, but {len(contexts)} contexts: one for each, or one for all")
    return Asked(list(zip(questions, contexts * (len(questions) if len(contexts) == 1 else 1), strict=True)))


def _answers(found: list[Result], _values: JsonObject) -> Json:
    def shown(one: Result) -> JsonObject:
        return {"text": one.text, "start": one.start, "end": one.end, "probability": number(one.probability)}

    return [{**shown(one), "candidates": [shown(each) for each in one.candidates]} for one in found]


def _ranking(values: JsonObject) -> Asked:
    passages = values["passages"]
    return Asked([(values["query"], tuple(passages))], texts=len(passages))


def _ranked(found: list[Result], _values: JsonObject) -> Json:
    return [{"index": one.index, "score": number(one.score), "passage": one.passage} for one in found[0]]


def _gaps(values: JsonObject) -> Asked:
    words = values["words"]
    return Asked(values["texts"], (("top", values["top"]), ("words", None if words is None else tuple(words))))


def _fill(model: Model, items: list[Item], options: dict[str, Any]) -> list[Result]:  # options of the method
    for text in items:
        if (count := model.gaps(text)) > MOST_GAPS:
            raise ValueError(f"a text with {count} gaps: expected at most {MOST_GAPS}")
    return model.fill_mask(items, **options)


def _filled(found: list[Result], _values: JsonObject) -> Json:
    def shown(gap: Result) -> JsonObject:
        words = [{"word": w.word, "log_prob": number(w.log_prob), "score": number(w.score)} for w in gap.words]
        return {"start": gap.start, "end": gap.end, "words": words}

    return [[shown(gap) for gap in one] for one in found]


def _mending(values: JsonObject) -> Asked:
    words = values["words"]
    counts = None if words is None else tuple(Counter(words).items())  # a list counts each of its words once
    return Asked(values["texts"], (("threshold", values["threshold"]), ("words", counts)))


def _mended(found: list[Result], _values: JsonObject) -> Json:
    def shown(one: Result) -> JsonObject:
        place = {"start": one.start, "end": one.end, "word": one.word}
        return {**place, "correction": one.correction, "probability": number(one.probability)}

    return [{"corrected": one.corrected, "edits": [shown(edit) for edit in one.edits]} for one in found]


def _scores(found: list[Result], _values: JsonObject) -> Json:
    def piece(one: Result) -> JsonObject:
        return {"piece": one.piece, "start": one.start, "end": one.end, "log_prob": number(one.log_prob)}

    return [
        {
            "log_prob": number(one.log_prob),
            "bits_per_char": number(one.bits_per_char),
            "pieces": [piece(each) for each in one.pieces],
        }
        for one in found
    ]


def _prompts(values: JsonObject) -> Asked:
    """Returns prompts with a seed each, which other requests do not change: a repeated prompt gets the next seed."""
    before: Counter[str] = Counter()
    items = []
    for text in values["texts"]:
        items.append((text, values["seed"] + before[text]))
        before[text] += 1
    return Asked(items, tuple((name, values[name]) for name in ("max_new", "temperature", "top_k", "top_p")))


def _written(found: list[Result], _values: JsonObject) -> Json:
    return [{"text": one.text, "log_prob": number(one.log_prob), "finished": one.finished} for one in found]


def _columns(items: list[tuple[Item, Item]]) -> tuple[list[Item], list[Item]]:
    return [first for first, _ in items], [second for _, second in items]


ABILITIES = {
    one.name: one
    for one in (
        Ability(
            "encode",
            "vectors of texts and of their words",
            (
                TEXTS,
                Field("unit", "what the vectors are of", "words|pieces", "words"),
                Field("vectors", "whether to return a vector for each word, beside that of the text", "boolean", False),
            ),
            lambda values: Asked(values["texts"], (("unit", values["unit"]),)),
            lambda model, items, options: model.encode(items, **options),
            _encoded,
            {"texts": ["the first element", "teh frist elment"]},
            check=_few_numbers,
        ),
        Ability(
            "tag",
            "a tag for every word",
            (TEXTS,),
            _texts,
            lambda model, items, _options: model.tag(items),
            _tagged,
            {"texts": "Ada Lovelace lived in London."},
        ),
        Ability(
            "classify",
            "a class for each text, and the probability of each class",
            (TEXTS, PAIRS),
            _pairs,
            lambda model, items, _options: model.classify(*_columns(items)),
            _classes,
            {"texts": ["teh best movie ever"]},
            lambda text: (text, None),
        ),
        Ability(
            "measure",
            "a number for each text",
            (TEXTS, PAIRS),
            _pairs,
            lambda model, items, _options: model.measure(*_columns(items)),
            lambda found, _values: [number(one) for one in found],
            {"texts": "A plane is taking off.", "pairs": "An air plane takes off."},
            lambda text: (text, None),
        ),
        Ability(
            "answer",
            "answers to questions, with their places in a context",
            (
                Field("questions", "a question, or a list of questions", "texts", NEEDED),
                Field("contexts", "the context of each question, or one for all", "texts", NEEDED),
            ),
            _questions,
            lambda model, items, _options: model.answer(*_columns(items)),
            _answers,
            {"questions": "Where did Ada live?", "contexts": "Ada Lovelace lived in London."},
            lambda text: (text[: text.find(" ")] + "?", text),
        ),
        Ability(
            "rank",
            "passages, those first that answer a query best",
            (
                Field("query", "the query", "text", NEEDED),
                Field("passages", "a list of passages", "texts", NEEDED),
            ),
            _ranking,
            lambda model, items, _options: [model.rank(*item) for item in items],
            _ranked,
            {"query": "where is the cat", "passages": ["a dog ran home", "the cat sat on the mat"]},
            lambda text: (text[: text.find(" ")], (text,)),
            together=False,
        ),
        Ability(
            "fill_mask",
            'the likeliest words for each "[MASK]" of a text, or "[MASK:5]" for a word of five characters',
            (TEXTS, TOP, Field("words", "the words to choose from; null: those that the model knows", "words", None)),
            _gaps,
            _fill,
            _filled,
            {"texts": "Return the [MASK] of the list.", "top": 3},
            lambda text: f"{text} [MASK]",
            together=False,
        ),
        Ability(
            "correct",
            "texts with misspelled words mended",
            (
                TEXTS,
                Field("threshold", "the probability from which on a word is corrected", "number", 0.5, 0, 1),
                Field("words", "further known words, perhaps with counts; null: none", "counts", None),
            ),
            _mending,
            lambda model, items, options: model.correct(
                items, options["threshold"], None if options["words"] is None else dict(options["words"])
            ),
            _mended,
            {"texts": "A tpyo in a sentense."},
        ),
        Ability(
            "neighbors",
            "the entries of the vocabulary that are nearest to a string",
            (TEXTS, TOP),
            lambda values: Asked(values["texts"], (("top", values["top"]),)),
            lambda model, items, options: model.neighbors(items, **options),
            lambda found, _values: [
                [{"subword": near.subword, "cosine": number(near.cosine)} for near in one] for one in found
            ],
            {"texts": ["bussiness"]},
            lambda text: text[: text.find(" ")],
            together=False,
        ),
        Ability(
            "score",
            "how likely texts are, and each piece of them",
            (TEXTS,),
            _texts,
            lambda model, items, _options: model.score(items),
            _scores,
            {"texts": "the cat sat on the mat"},
        ),
        Ability(
            "generate",
            "how texts go on",
            (
                TEXTS,
                Field("max_new", "most tokens to write", "integer", 40, 1, MOST_NEW),
                Field("temperature", "0: always the likeliest", "number", 0.0, 0, MOST_TEMPERATURE),
                Field("top_k", "draw among this many of the likeliest; 0: all", "integer", 0, 0, MOST_TOP_K),
                Field("top_p", "draw among the likeliest with this probability", "number", 1.0, LEAST_TOP_P, 1),
                Field("seed", "of the draws", "integer", 0, 0, MOST_SEED),
            ),
            _prompts,
            lambda model, items, options: model.generate(_columns(items)[0], seed=_columns(items)[1], **options),
            _written,
            {"texts": "Once upon a time"},
            lambda text: (text[: text.find(" ")], 0),
        ),
    )
}
