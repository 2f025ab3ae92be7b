"""Lists the families, and the configs and trained models that charlm carries.

    python -m charlm.models

Open it to change what the list says.
"""

from __future__ import annotations

import sys
import textwrap

from charlm.config import carried_configs
from charlm.core import trained
from charlm.core.commands import print_lines
from charlm.core.help_text import columns, entry
from charlm.families.family import families


def lines() -> list[str]:
    """Returns the lines of the list."""
    found = ["families:"]
    for one in families():
        trained = "pre-training, " if one.objectives else ""
        found.append(f"  {one.name:<20} {one.title:<14} {trained}fine-tuning, prediction, conversion")
    found += ["", "trained models, charlm.load(NAME) and wherever a command takes a model:", *_trained()]
    configs = carried_configs()
    for kind, title in (
        ((False, ""), "configs of pre-training, charlm train CONFIG[:VARIANT]:"),
        ((True, ""), "configs of fine-tuning, charlm finetune CONFIG[:VARIANT] --model MODEL --train FILE:"),
        ((False, "align"), "configs of aligned students, charlm align CONFIG[:VARIANT] --workdir FOLDER:"),
        ((False, "league"), "configs of comparisons, charlm league CONFIG[:VARIANT] --workdir FOLDER:"),
        ((False, "wordrec"), "configs of word recognisers, charlm wordrec train CONFIG[:VARIANT] --workdir FOLDER:"),
    ):
        found += ["", title]
        for name, file in configs.items():
            if (file.fine_tunes, file.command) != kind:
                continue
            found.append(entry(name, file.line, 23, columns()))
            if file.variants:
                variants = f"variants: {', '.join(file.variants)}"
                found += textwrap.wrap(variants, columns(), initial_indent=" " * 23, subsequent_indent=" " * 33)
    return [
        *found,
        "",
        "A plus sign joins variants: classify:xrayemb+stochastic. The texts on top of the files explain them.",
    ]


def _trained() -> list[str]:
    """Returns for each trained model name, size, task, and what its card has as its title and main scores."""
    found = []
    for name in trained.names():
        card = trained.card_of(name)
        size = f"{trained.size_of(name) / 1e6:.1f} MB"
        line = f"  {name:<20} {size:>7}  {card['task']}: {card['title'].rstrip('.')}; {card['headline']}"
        found += textwrap.wrap(line, columns(), subsequent_indent=" " * 32)
    return found or ["  none"]


def main(argv: list[str] | None = None) -> int:
    """Prints the list; returns the exit status."""
    return print_lines(lines, argv, (__doc__ or "").partition("\n\n")[0])


if __name__ == "__main__":
    sys.exit(main())
