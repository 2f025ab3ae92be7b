"""The scores of the fine-tuning tasks, and comparisons of systems by these scores; imports no JAX.

Tasks import the scores from here. Open it to see which scores exist. To add a metric, write a function of sums in a
module of its own.
"""

from charlm.metrics.answers import SPLITTING, normalized, per_example_answers, squad_scores
from charlm.metrics.classification import (
    classification_scores,
    confusion,
    per_example_classes,
    per_example_numbers,
    regression_scores,
    with_others,
)
from charlm.metrics.compare import (
    Difference,
    MeanAndSd,
    mean_and_sd,
    paired_bootstrap,
    score_from_statistics,
    score_of,
)
from charlm.metrics.ranking import RECALL_AT, per_example_ranking, per_query_retrieval, ranking_scores
from charlm.metrics.tagging import entity_scores, entity_spans, per_example_entities, per_example_tags, tag_scores

__all__ = [
    "RECALL_AT",
    "SPLITTING",
    "Difference",
    "MeanAndSd",
    "classification_scores",
    "confusion",
    "entity_scores",
    "entity_spans",
    "mean_and_sd",
    "normalized",
    "paired_bootstrap",
    "per_example_answers",
    "per_example_classes",
    "per_example_entities",
    "per_example_numbers",
    "per_example_ranking",
    "per_example_tags",
    "per_query_retrieval",
    "ranking_scores",
    "regression_scores",
    "score_from_statistics",
    "score_of",
    "squad_scores",
    "tag_scores",
    "with_others",
]
