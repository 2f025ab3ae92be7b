"""Puts the sections of a report in order: what came out first, how it was measured last.

Open it to add a section or to change their order. A section whose part was not measured is left out.
"""

from __future__ import annotations

from charlm.robustness.render.details import adversarial, comparisons, groups, segmentation, sensitivity
from charlm.robustness.render.maps import maps
from charlm.robustness.render.methods import how, notes, reproduce
from charlm.robustness.render.parts import Report, Section, listed
from charlm.robustness.render.scores import over_levels, scores
from charlm.robustness.render.sentences import sentences
from charlm.robustness.render.summary import headline, summary
from charlm.robustness.render.view import View

_IN_TITLE = 4  # maximum number of models named in the title


def report_of(view: View) -> Report:
    """Returns the whole report."""
    named = "".join(str(part) for part in listed(view.models))
    models = named if len(view.models) <= _IN_TITLE else f"{len(view.models)} models"
    subtitle = f"Measured: {view.metric_name} on clean text and under noise; examples: {view.results['examples'] or 0}"
    sections = [
        Section("says", "What this says", summary(view)),
        Section("map", "What each noise costs", maps(view)),
        Section("curves", "Scores by level of noise", over_levels(view)),
        Section("sentences", "Sentences, typos and answers", sentences(view)),
        Section("comparisons", "Model against model", comparisons(view)),
        Section("groups", "Groups of words", groups(view)),
        Section("adversarial", "Adversarial edits", adversarial(view)),
        Section("segmentation", "How typos cut words into pieces", segmentation(view)),
        Section("sensitivity", "How far typos move a word", sensitivity(view)),
        Section("scores", "All scores", scores(view), folded=True),
        Section("how", "How it was measured", how(view), folded=True),
        Section("notes", "Notes", notes(view), folded=True),
        Section("reproduce", "How to reproduce", reproduce(view), folded=True),
    ]
    return Report(
        title=f"Robustness in {view.task.replace('_', ' ')}" + (f": {models}" if models else ""),
        subtitle=subtitle,
        headline=headline(view),
        sections=[section for section in sections if section.blocks],
    )
