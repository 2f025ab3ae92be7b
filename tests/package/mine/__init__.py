"""What this package adds to charlm; what needs JAX is named, not imported, so that --help stays quick."""

from charlm.register import FusionEntry, Key, TaskEntry

SHOUTING = TaskEntry(
    "whether a line is shouted",
    "mine.shouting:Shouting",
    keys={
        "shouting.sign": Key("!", "what a shouted line ends with"),
        "shouting.least": Key(1, "signs of a shouted line", least=1),
    },
)

GATED = FusionEntry("each channel takes a share of the other", "mine.fusions:Gated")
