"""An example of a task in a package of its own: lines of a text, some of which are shouted."""

from pathlib import Path

from charlm.data.examples import TextExample
from charlm.tasks.classification import Classification
from charlm.tasks.columns import Columns


class Shouting(Classification):
    """Whether a line is shouted: it ends with signs, which the model does not see."""

    ability = "predict"  # it reads files of its own format; no other command of `charlm.predict` does

    def __init__(self, sign="!", least=1, labels=("loud", "quiet")):
        super().__init__(Columns(), labels)
        self.sign, self.least = sign, least

    @classmethod
    def from_config(cls, config):
        return cls(config.shouting.sign, config.shouting.least)

    @classmethod
    def from_settings(cls, settings):
        return cls(settings["sign"], settings["least"], tuple(settings["labels"]))

    def settings(self):
        return {"name": self.name, "sign": self.sign, "least": self.least, "labels": list(self.labels)}

    def read(self, files, training, labelled=True):
        lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
        found = []
        for n, line in enumerate(lines, start=1):
            loud = line.endswith(self.sign * self.least)
            found.append(TextExample(str(n), f"line {n}", line.rstrip(self.sign), label="loud" if loud else "quiet"))
        return found
