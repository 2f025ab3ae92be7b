"""The entries that this example package adds to charlm; parts that need JAX are named, not imported."""

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
