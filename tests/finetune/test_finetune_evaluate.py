"""Tests predictions: few texts are no whole batch, and have the results that they have among others."""

from __future__ import annotations

import numpy as np
import pytest
from finetune.tiny_tasks import sentences
from robustness.conftest import Models

from charlm.data.examples import TaggedExample, TextExample
from charlm.finetune.predictor import FineTuned

FAMILIES = ("hlm", "bert", "gpt2", "charbert")


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory, trained):
    """Returns the path of a tiny model with a random head for a task."""
    return Models(tmp_path_factory.mktemp("models"), trained.workdir).untrained


def words(count: int, seed: int = 0) -> list[list[str]]:
    return [[word for word, _ in sentence] for sentence in sentences(count, seed)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", ["tagging", "classification"])
def test_few_texts_have_the_logits_that_they_have_among_many(fine_tuned, task, family):
    model = FineTuned.from_checkpoint(fine_tuned(task, family), batch_size=32)
    if task == "tagging":
        examples = [TaggedExample(str(n), "", tuple(sentence)) for n, sentence in enumerate(words(40))]
    else:
        examples = [TextExample(str(n), "", " ".join(sentence), "in town") for n, sentence in enumerate(words(40))]
    logits = lambda some: model.evaluator.logits(model.params, model.evaluator.prepare(some))
    many = logits(examples)
    for count in (1, 3, 9):
        for found, expected in zip(logits(examples[:count]), many, strict=False):
            np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("count", "positions"), [(1, 8), (2, 8), (4, 16), (5, 32), (17, 72), (40, 192)])
def test_a_batch_has_few_positions_where_there_are_few_texts(fine_tuned, count, positions):
    """Each has four: [CLS], two words and [SEP]; the model reads eight at most."""
    model = FineTuned.from_checkpoint(fine_tuned("tagging", "hlm"), batch_size=24)
    evaluator = model.evaluator
    prepared = evaluator.prepare([TaggedExample("0", "", ("the", "cat"))] * count)
    sizes = [evaluator.packer.inputs(prepared.rows, group).mask_SBW.size for group in prepared.groups]
    assert sum(sizes) == positions


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (2, 4), (4, 4), (5, 16), (17, 24), (40, 24)])
def test_a_batch_has_few_rows_where_there_are_few_texts(fine_tuned, count, rows):
    """Of a model whose rows cannot share strips."""
    model = FineTuned.from_checkpoint(fine_tuned("tagging", "charbert"), batch_size=24)
    evaluator = model.evaluator
    prepared = evaluator.prepare([TaggedExample("0", "", ("the", "cat"))] * count)
    found = {evaluator.packer.inputs(prepared.rows, group).mask_BL.shape[2] for group in prepared.groups}
    assert found == {rows}


def test_single_sentences_share_programs(fine_tuned):
    """Whatever words they have: one program for each number and length of rows."""
    model = FineTuned.from_checkpoint(fine_tuned("tagging", "hlm"), batch_size=32)
    shapes, sizes = set(), set()
    for n, sentence in enumerate([*words(60, seed=1), ["extraordinarily", *"abcdefg"], ["a"]]):
        prepared = model.evaluator.prepare([TaggedExample(str(n), "", tuple(sentence))])
        (group,) = prepared.groups
        inputs = model.evaluator.packer.inputs(prepared.rows, group)
        shapes.add((inputs.mask_SBW.shape, *(chars.shape for chars in inputs.chars)))
        sizes.add((group.size, group.length))
    assert len(shapes) == len(sizes)
