"""Fixtures: tiny models with heads for tasks, and one report of two taggers that many tests read."""

from __future__ import annotations

import copy
import fcntl
from pathlib import Path
from typing import Any

import pytest
from finetune.tiny_tasks import write_conll, write_passages, write_questions, write_table
from small_run import on_devices, quick_compilation
from tiny_models import release

from charlm.config.finetuning import get_config
from charlm.families.pretrained import from_pretrained
from charlm.finetune.data import read
from charlm.finetune.model import first_params, with_task
from charlm.finetune.run import fine_tune
from charlm.robustness.measure import measure
from charlm.tasks.create import task_of

WRITERS = {
    "tagging": ("tags.conll", write_conll),
    "classification": ("classes.tsv", write_table),
    "regression": ("numbers.tsv", lambda path, count, seed: write_table(path, count, seed, numbers=True)),
    "question_answering": ("questions.json", lambda path, count, seed: write_questions(path, count, seed, True)),
    "ranking": ("passages.jsonl", write_passages),
}
SMALL = {"noise": ("drop", "spaces", "keyboard:0.3"), "levels": (0, 0.2, 0.5), "seeds": 2, "samples": 200}


class Models:
    """Data of every task, and models for them, made when they are asked for."""

    def __init__(self, folder: Path, trained_hlm: Path) -> None:
        self.folder, self._hlm = folder, trained_hlm
        self._made: dict[tuple[str, ...], str] = {}

    def data(self, task: str, part: str = "test", count: int = 16) -> str:
        """Returns a file of examples; "train" and "test" are not the same ones."""
        name, writer = WRITERS[task]
        path = self.folder / f"{part}_{name}"
        if not path.exists():
            writer(path, count, seed=int(part == "train"))
        return str(path)

    def config(self, task: str, family: str) -> Any:
        """Returns the config of a fine-tuning run."""
        config = get_config(task)
        config.init_from = str(self._hlm if family == "hlm" else release(family))
        config.data.train = (self.data(task, "train", 160),)
        config.data.batch_size = config.data.eval_batch_size = 8
        config.data.max_length = 8 if task == "tagging" else 0  # one length, so one program
        config.train.epochs = 3
        config.optim.learning_rate = 1e-2
        if task in ("classification", "regression"):
            config.data.pair = "second"
        if task == "ranking":
            columns = {"text": "query", "pair": "passage_text", "label": "is_selected", "group": "query_id"}
            config.data.update(columns)
        return config

    def tuned(self, family: str, *noise: str) -> str:
        """Returns the workdir of a tagger that was fine-tuned, with noise in its training data."""
        folder = self.folder / f"tag_{family}"
        if not (folder / "result.json").exists():
            config = self.config("tagging", family)
            config.data.noise = noise
            with on_devices(1):
                fine_tune(config, str(folder))
        return str(folder)

    def untrained(self, task: str, family: str = "bert", *skipped: str) -> str:
        """Returns a model with a random head for a task: all but the training of a fine-tuned one.

        Args:
          skipped: labels that are read and not scored.
        """
        key = (task, family, *skipped)
        if key not in self._made:
            config = self.config(task, family)
            if skipped:
                config.data.skip_labels = skipped
            source, kind = from_pretrained(config.init_from), task_of(config)
            read(config, kind)
            model, target = with_task(source, kind)
            params = first_params(source, model, target, seed=3)
            metadata = {**model.metadata, "task": kind.settings(), "fine_tuning": copy.deepcopy(config.to_dict())}
            model = model.__class__(**{**model.__dict__, "params": params, "metadata": metadata | {"seed": 3}})
            folder = self.folder / "_".join(key)
            model.save_pretrained(folder)
            self._made[key] = str(folder)
        return self._made[key]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, trained: Any) -> Models:
    """Models of every task."""
    return Models(tmp_path_factory.mktemp("robustness"), trained.workdir)


@pytest.fixture(scope="session")
def taggers(programs: Path, trained: Any) -> list[str]:
    """Two taggers, fine-tuned once for all workers: an HLM that has seen "drop", and a BERT that has seen no noise."""
    shared = programs.parent / "taggers"
    shared.mkdir(exist_ok=True)
    models = Models(shared, trained.workdir)
    with (shared / "lock").open("w") as lock, quick_compilation(programs):
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed; the others find what is there
        return [models.tuned("hlm", "drop:0.1"), models.tuned("bert")]


@pytest.fixture(scope="session")
def report(models: Models, taggers: list[str], programs: Path) -> tuple[Path, dict[str, Any]]:
    """The folder and the results of a report about the taggers; tests must not change them."""
    out = models.folder / "report"
    with quick_compilation(programs):
        results = measure(
            taggers, [models.data("tagging")], str(out), adversarial=1, adversarial_examples=3, batch_size=8, **SMALL
        )
    return out, results
