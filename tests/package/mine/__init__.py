"""The entries that this example package adds to charlm; parts that need JAX are named, not imported."""

from charlm.register import FusionEntry, Key, RowFormat, TaskEntry, Written


def lines_of(rows, part, names):
    """Writes rows of a line and its label: a loud line ends with signs."""
    ends = {"loud": "?", "quiet": ""}
    return Written("\n".join(row["line"] + ends[row["label"]] for row in rows) + "\n", {})


SHOUTING = TaskEntry(
    "whether a line is shouted",
    "mine.shouting:Shouting",
    keys={
        "shouting.sign": Key("!", "what a shouted line ends with"),
        "shouting.least": Key(1, "signs of a shouted line", least=1),
    },
    rows=RowFormat(("line", "label"), "txt", lines_of),
)

GATED = FusionEntry("each channel takes a share of the other", "mine.fusions:Gated")
