"""Asks two taggers for the figure answers.svg what a sentence and its typos are: python docs/figures/answers.py TAGGER

TAGGER is the workdir of a BERT that was fine-tuned on parts of speech (docs/benchmarks.md, "Fine-tuned, clean and under
typos", has the command; the figure's is of three epochs); the other one is `hlm-small-en-pos`, which comes with charlm.
What both answer, the BERT also behind SymSpell, and how its vocabulary cuts the words, is written to answers.json, from
which make.py draws. Open it to ask about another sentence. Needs the extra [eval], for symspellpy.
"""

import json
import sys
from pathlib import Path

import charlm
from charlm.text.defences import SymSpell
from charlm.text.subwords import SubwordTokenizer

MEANT = "She quickly opened the window and looked outside ."
WRITTEN = "She quikcly opend teh windwo adn lokoed outsdie ."
RIGHT = "PRON ADV VERB DET NOUN CCONJ VERB ADV PUNCT"  # parts of speech, as UD tags such words


def tags(tagger: str, *texts: str) -> list[list[str]]:
    """Returns the tags of a tagger, a name or a workdir, for the words of each text."""
    loaded = charlm.load(tagger)
    return [[tag.label for tag in loaded.tag(text)] for text in texts]


def answers(bert: str) -> dict[str, list]:
    """Returns the words as meant, written and corrected, the right tags, both taggers' tags, and BERT's pieces."""
    found = {"meant": MEANT.split(), "written": WRITTEN.split(), "right": RIGHT.split()}
    corrector = SymSpell()
    found["corrected"] = corrector.corrected(found["written"])
    found["hlm"] = tags("hlm-small-en-pos", MEANT, WRITTEN)
    found["bert"] = tags(bert, MEANT, WRITTEN, " ".join(found["corrected"]))
    tokenizer = SubwordTokenizer.load(max(Path(bert, "checkpoints").iterdir(), key=lambda step: int(step.name)))
    cut = lambda word: [tokenizer.token(index) for index in tokenizer.encode(word).ids[1:-1]]
    found["pieces"] = [[cut(word) for word in text.split()] for text in (MEANT, WRITTEN)]
    return found


if __name__ == "__main__":
    text = json.dumps(answers(sys.argv[1]), indent=1)
    Path(__file__).with_name("answers.json").write_text(text + "\n", encoding="utf-8")
