"""Reads and writes the models of the family, which are those of HLM but for what `short_hlm.py` adds."""

from charlm.families.hlm.conversion import HLMConverter
from mine.short_hlm import FAMILY


class ShortConverter(HLMConverter):
    """Models whose configs name this family."""

    name, title = FAMILY.name, FAMILY.title
    own_options = FAMILY.option_checks()

    def read(self, source, head="", *, made_by="", **options):
        """Reads weights of an HLM."""
        model = super().read(source, head, **options)
        config = model.metadata["config"]
        fields = config["model"] | ({"aggregation": made_by} if made_by else {})
        return model._replace(metadata=model.metadata | {"config": config | {"family": self.name, "model": fields}})


CONVERTER = ShortConverter()


def check_aggregation(value):
    """Refuses what is none of the three."""
    if value not in ("word_cls", "mean", "max"):
        raise ValueError(f"aggregation={value!r}: expected word_cls, mean or max")


def export_letters(model, folder, value):
    """Writes the characters."""
    letters = sorted(model.metadata["char_vocab"])
    (folder / "letters.txt").write_text("\n".join(letters) + "\n", encoding="utf-8")
    return f"{len(letters)} letters"
