"""The task of ranking: scores each passage by how well it answers a query, on its own (Nogueira and Cho, 2019).

It is the shortest task of charlm, so open it as an example before you write a task, or to change the loss of ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from charlm import metrics
from charlm.convert.heads import SEQUENCE_CLASSIFICATION
from charlm.core.types import Array, Json
from charlm.data.examples import Skipped, TextExample
from charlm.data.text_tables import read_passages, write_tsv_predictions
from charlm.tasks.base import Asked, Row, TaskSums
from charlm.tasks.classification import TextTask
from charlm.tasks.columns import Columns, needed_column


class Ranking(TextTask[float]):
    """How likely each passage is to answer its query.

    Args:
      columns: `text` is the query, `pair` the passage, `label` its relevance, `group` the id of the query.
    """

    name = "ranking"
    head = SEQUENCE_CLASSIFICATION
    ability = "rank"
    use = "python -m charlm.predict rank --checkpoint={workdir} --query='A query' 'A passage.'"
    metric = "mrr"

    @property
    def outputs(self) -> int:
        """The number of logits: 1, the relevance of the passage."""
        return 1

    def read(self, files: Sequence[str], training: bool, labelled: bool = True) -> list[TextExample]:
        """Returns an example for each pair of query and passage."""
        skipped, found = Skipped(), []
        names = self.columns
        with names.named_by_keys(group="data.group"):
            for file in files:
                found += read_passages(
                    file,
                    query_id=needed_column(names.group, "data.group"),
                    query=needed_column(names.text, "data.text"),
                    passage=needed_column(names.pair, "data.pair"),
                    relevance=needed_column(names.label, "data.label"),
                    passage_id=names.id or None,
                    header={"yes": True, "no": False}.get(names.header),
                    skipped=skipped,
                )
        skipped.log()
        return found

    def check_labels(self, examples: Sequence[TextExample], key: str) -> None:
        """Checks that at least one passage is relevant."""
        if not any(float(example.label or 0) > 0 for example in examples):
            raise ValueError(f"{key}: none of {len(examples)} passages is relevant: there is nothing to score")

    def learn_labels(self, examples: Sequence[TextExample]) -> None:
        """Checks that some passages are relevant and some are not."""
        relevant = sum(float(example.label or 0) > 0 for example in examples)
        if not 0 < relevant < len(examples):
            raise ValueError(f"data.train: {relevant} of {len(examples)} passages are relevant: nothing to tell apart")

    def target(self, example: TextExample) -> dict[str, Array]:
        """Returns whether the passage is relevant; the weight is 0 if that is unknown."""
        known, relevant = isinstance(example.label, float), float(example.label or 0) > 0
        return {"relevant": np.float32(known and relevant), "weight": np.float32(known)}

    def row_sums(self, logits: jax.Array, targets: dict[str, jax.Array]) -> TaskSums:
        """Returns the binary cross entropy of the relevance."""
        score_N, relevant_N, weight_N = logits[:, 0], targets["relevant"], targets["weight"]
        nats_N = jax.nn.softplus(score_N) - score_N * relevant_N
        right_N = ((score_N > 0) == (relevant_N > 0)).astype(jnp.float32)
        return TaskSums(nats_N * weight_N, weight_N, right_N * weight_N)

    def predict(
        self, examples: Sequence[TextExample], rows: Sequence[Row], logits: Sequence[np.ndarray]
    ) -> list[float]:
        """Returns the score of each passage: its logit, in nats."""
        found = [0.0] * len(examples)
        for row, scores_N in zip(rows, logits, strict=True):
            found[row.example] = float(scores_N[0])
        return found

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> dict[str, float]:
        """Returns mean reciprocal rank and the other scores of `charlm.metrics.ranking_scores`, over queries."""
        return metrics.ranking_scores(*_columns(examples), predictions)

    def statistics(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> tuple[str, np.ndarray]:
        """Returns the scores of each query."""
        return "ranking", metrics.per_example_ranking(*_columns(examples), predictions)

    def attacked(self, example: TextExample) -> dict[str, str | tuple[str, ...]]:
        """Returns the passage only, since other passages share the query."""
        return {"pair": self.texts(example)["pair"]}

    def group(self, example: TextExample) -> str:
        """Returns the query's id."""
        return example.group

    def scored(self, examples: Sequence[TextExample]) -> list[dict[str, str | tuple[str, ...]]]:
        """Returns the distinct queries, since `statistics` has a row for each query."""
        queries: dict[str, str] = {}
        for example in examples:
            queries.setdefault(example.group, example.text)
        return [{"text": query} for query in queries.values()]

    def asked(self, examples: Sequence[TextExample], predictions: Sequence[float]) -> list[Asked]:
        """Returns at which place among its query's passages the first relevant one is; nothing if there is none."""
        order = sorted(range(len(examples)), key=lambda n: -predictions[n])
        places = [place for place, n in enumerate(order, 1) if float(examples[n].label or 0) > 0]
        what = f"place of the first relevant of {len(examples)} passages"
        return [Asked(what, "1", str(places[0]), places[0] == 1)] if places else []

    def decoded(self, value: Json) -> float:
        """Returns the score."""
        return float(value)

    def write(self, folder: Path, name: str, examples: Sequence[TextExample], predictions: Sequence[float]) -> None:
        """Writes a table with id and score."""
        write_tsv_predictions(str(folder / f"{name}.tsv"), examples, predictions)

    @classmethod
    def usual(cls) -> Ranking:
        """Returns the task with the column names of MS MARCO."""
        return cls(Columns("query", "passage_text", "is_selected", "query_id"))


def _columns(examples: Sequence[TextExample]) -> tuple[list[str], list[float]]:
    return [example.group for example in examples], [float(example.label or 0) for example in examples]
