"""Tests the tables of docs/papers.md: keys exist, defaults are those of the configs, parameters those of the models."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import numpy as np
import pytest

from charlm.config import flatten, load_config_file
from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.core.sharding import path_name
from charlm.core.types import Option, Tree
from charlm.data.word_batch import reshape_batch
from charlm.families.char2subword.module import Char2Subword, Char2SubwordConfig
from charlm.families.charbert.batch import CharBertBatch
from charlm.families.charbert.model import CharBert, CharBertConfig
from charlm.families.hlm.config import model_config
from charlm.families.hlm.labels import HLMForLabels
from charlm.families.hlm.model import HLMForMaskedLM
from charlm.families.subword.bert import Bert, BertConfig
from charlm.families.xrayemb.encoder import XREncoder, XREncoderConfig

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "papers.md"


class Row(NamedTuple):
    """A row of a table: the headings that it stands under, from the first level on, and its cells."""

    headings: tuple[str, ...]
    cells: tuple[str, ...]


class Entry(NamedTuple):
    """A config, with its variant, one of its keys, and the default that a table names."""

    config: str
    key: str
    default: str


def rows(text: str) -> Iterator[Row]:
    """Yields the rows of all tables of a document, but their first two lines."""
    headings: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if level := re.match(r"(#+) (.*)", line):
            headings = [*headings[: len(level[1]) - 1], level[2]]
        elif (
            line.startswith("|")
            and not re.fullmatch(r"[|-]+", line)
            and not re.fullmatch(r"[|-]+", after(lines, number))
        ):
            cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            yield Row(tuple(headings), tuple(cells))


def after(lines: list[str], number: int) -> str:
    """Returns the next line; "" after the last one."""
    return lines[number + 1] if number + 1 < len(lines) else ""


def pre_training(text: str) -> Iterator[Entry]:
    """Yields the rows of the tables of pre-training, whose headings name a config and whose last column is a key."""
    for headings, cells in rows(text):
        config = re.search(r"`(configs/\w+\.py)`", headings[-1])
        key = re.fullmatch(r"`([\w.]+)`", cells[-1])
        if config and key:
            named = re.match(r"`([^`]+)`", cells[-2])
            yield Entry(config[1], key[1], named[1] if named else "")


def fine_tuning(text: str) -> Iterator[Entry]:
    """Yields what the tables of fine-tuning say: their last column names configs and keys, the one before the values.

    There is a value for each key, or for each config; "`key=value`" stands for itself.

    Raises:
      ValueError: the values are neither as many as the keys nor as the configs.
    """
    for _, cells in rows(text):
        quoted = re.findall(r"`([^`]+)`", cells[-1])
        configs = [name for name in quoted if name.startswith("configs/")]
        given = [name.split("=") for name in quoted if "=" in name]
        keys = [name for name in quoted if re.fullmatch(r"[a-z]+\.\w+", name)]
        values = re.findall(r"`([^`]+)`", cells[-2])
        yield from (Entry(config, key, value) for config in configs for key, value in given)
        if not configs or not keys:
            continue
        if len(values) == len(keys):
            yield from (Entry(config, *pair) for config in configs for pair in zip(keys, values, strict=True))
        elif len(values) == len(configs) and len(keys) == 1:
            yield from (Entry(config, keys[0], value) for config, value in zip(configs, values, strict=True))
        else:
            raise ValueError(
                f"{len(values)} values of {len(configs)} configs and {len(keys)} keys: {' | '.join(cells)}"
            )


def unlike(entries: list[Entry]) -> list[tuple[Entry, object]]:
    """Returns the entries whose config has another value, with that value."""
    configs = {name: flatten(load_config_file(str(ROOT / name))) for name in {entry.config for entry in entries}}
    return [
        (entry, configs[entry.config].get(entry.key))
        for entry in entries
        if str(configs[entry.config].get(entry.key)) != entry.default
    ]


def test_defaults_are_those_of_the_configs():
    found = list(pre_training(DOCUMENT.read_text(encoding="utf-8")))
    assert len({row.config for row in found}) == 5
    assert len(found) > 80
    assert unlike(found) == []


def test_recipes_are_those_of_the_configs():
    found = list(fine_tuning(DOCUMENT.read_text(encoding="utf-8")))
    named = {entry.config.removeprefix("configs/") for entry in found}
    assert {"answer.py", "classify.py", "tag.py", "rank.py", "tag.py:wnut16", "tag.py:reference"} <= named
    assert {f"{file}.py:charbert" for file in ("answer", "classify", "tag")} <= named
    assert {"tag.py:xrayemb", "classify.py:xrayemb", "tag.py:lince_lid", "classify.py:lince_sa"} <= named
    for config in ("configs/answer.py", "configs/classify.py", "configs/tag.py"):
        keys = {entry.key for entry in found if entry.config == config}
        assert {"train.epochs", "data.batch_size", "optim.learning_rate", "optim.warmup_share"} <= keys
    assert unlike(found) == []


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("| `3`, `8` | `configs/answer.py`: `train.epochs`, `data.batch_size` |", ["train.epochs", "data.batch_size"]),
        ("| `2`, `4` | `configs/answer.py:charbert`, `configs/tag.py:charbert`: `train.epochs` |", ["train.epochs"]),
        ("| accuracy | `configs/tag.py:lince_lid`, `data.metric=accuracy` |", ["data.metric"]),
        ("| `5` | `configs/tag.py:wnut16`: `train.epoch` |", ["train.epoch"]),
    ],
)
def test_a_wrong_recipe_is_found(cells, expected):
    found = list(fine_tuning(f"### Fine-tuning\n\n| what | where |\n|---|---|\n{cells}\n"))
    assert [entry.key for entry, _ in unlike(found)] == expected


def test_a_recipe_with_a_value_too_few_is_named():
    with pytest.raises(ValueError, match="1 values of 1 configs and 2 keys"):
        list(fine_tuning("# A\n| `2` | `configs/tag.py`: `train.epochs`, `data.batch_size` |"))


ONE = np.zeros((1, 1), np.int32)
WORDS = reshape_batch(np.ones((1, 3, 4), np.uint16), np.ones((1, 3, 4), np.uint16))
BERT_BASE = 108_310_272  # cased, with its pooler


def sizes(model: nn.Module, *inputs: Tree) -> dict[str, int]:
    """Returns the number of parameters of each array of a model, by its path; no array is made."""
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), *inputs)["params"])
    return {path_name(path): leaf.size for path, leaf in jax.tree.leaves_with_path(params)}


def hlm(file: str = "hlm_base", **fields: Option) -> list[int]:
    """Returns the parameters of an HLM with its prediction head."""
    shape = model_config(load_config_file(f"{ROOT}/configs/{file}.py"))
    model = HLMForMaskedLM(dataclasses.replace(shape, scan_layers=True, **fields))  # one trace for equal layers
    return [sum(sizes(model, WORDS).values())]


def classifier() -> list[int]:
    """Returns the parameters of an HLM-Base that classifies, with two labels."""
    shape = model_config(load_config_file(f"{ROOT}/configs/hlm_base.py"))
    shape = dataclasses.replace(shape, head_layers=0, scan_layers=True)
    return [sum(sizes(HLMForLabels(shape, 2, SEQUENCE_CLASSIFICATION), WORDS).values())]


def fusions(**fields: Option) -> list[int]:
    """Returns the parameters beside BERT-base's of a CharBERT with a fusion a layer, and with one for all layers."""
    batch = CharBertBatch(ONE, None, None, ONE, ONE, ONE)
    shares = (True,) if fields.get("fusion") == "reference" else (False, True)  # the released fusion is always shared
    models = [CharBert(CharBertConfig(pooler=True, shared_fusion=shared, **fields)) for shared in shares]
    return [sum(sizes(model, batch).values()) - BERT_BASE for model in models]


def mbert() -> list[int]:
    """Returns the parameters of mBERT's table and of the whole."""
    found = sizes(Bert(BertConfig(vocab_size=119_547, pooler=True)), ONE)
    return [found["embed/token/embedding"], sum(found.values())]


def module() -> list[int]:
    """Returns the parameters of the module of Char2Subword with its defaults."""
    return [sum(sizes(Char2Subword(Char2SubwordConfig()), np.zeros((1, 8), np.int32)).values())]


def encoder(table: bool) -> list[int]:
    """Returns the parameters of XR-Enc for the characters of Wikipedia, with its table of these or without."""
    found = sizes(XREncoder(XREncoderConfig(char_vocab_size=8_740)), np.ones((1, 3), np.int32))
    return [sum(size for name, size in found.items() if table or name != "body/chars/embedding")]


COUNTED: dict[str, Callable[[], list[int]]] = {  # first cell of a row of "Parameters" -> its numbers, from the left
    "HLM-Base, classifier with two labels, no prediction head": classifier,
    "HLM-Base, pre-training, the paper's wiring": hlm,
    "HLM-Base, pre-training, the released wiring": lambda: hlm(wiring="reference"),
    "HLM-Large, pre-training": lambda: hlm("hlm_large"),
    "the paper's, windows 3, 4 and 5": lambda: fusions(windows=(3, 4, 5)),
    "the paper's, window 3": lambda: fusions(windows=(3,)),
    "the paper's, windows 1, 2 and 3": lambda: fusions(windows=(1, 2, 3)),
    "the released code's, window 3": lambda: fusions(fusion="reference", windows=(3,)),
    "table of mBERT": mbert,
    "module": module,
    "encoder without its table of characters": lambda: encoder(False),
    "encoder with 8,740 characters": lambda: encoder(True),
}


def counts(text: str) -> dict[str, list[int]]:
    """Returns the numbers of a million and more in the tables of parameters, by the row's first cell, less brackets."""
    found = {}
    for headings, cells in rows(text):
        if headings[-1].startswith("Parameters"):
            numbers = re.findall(r"\d+(?:,\d{3}){2,}", " ".join(cells[1:]))
            found[re.sub(r" \(.*", "", cells[0])] = [int(number.replace(",", "")) for number in numbers]
    return found


def test_every_row_of_parameters_is_counted():
    assert set(counts(DOCUMENT.read_text(encoding="utf-8"))) == set(COUNTED)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_are_those_of_the_models(name):
    assert counts(DOCUMENT.read_text(encoding="utf-8"))[name] == COUNTED[name]()
