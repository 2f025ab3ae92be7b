"""Asks for the figure answers.svg what a sentence and its typos are: python docs/figures/answers.py FOLDER

FOLDER has the vocabulary of a BERT; the tagger is `hlm-small-en-pos`, which comes with charlm. What it answers, and how
the vocabulary cuts the words, is written to answers.json, from which make.py draws. Open it to ask about another
sentence.
"""

import json
import sys
from pathlib import Path

import charlm
from charlm.text.subwords import SubwordTokenizer

MEANT = "She quickly opened the window and looked outside ."
WRITTEN = "She quikcly opend teh windwo adn lokoed outsdie ."
RIGHT = "PRON ADV VERB DET NOUN CCONJ VERB ADV PUNCT"  # parts of speech, as UD tags such words


def answers(folder: str) -> dict[str, list]:
    """Returns the words as they were meant and written, the right tags, HLM's tags of both, and the pieces of both."""
    model, tokenizer = charlm.load("hlm-small-en-pos"), SubwordTokenizer.load(folder)
    found = {"meant": MEANT.split(), "written": WRITTEN.split(), "right": RIGHT.split()}
    found["tags"] = [[tag.label for tag in model.tag(text)] for text in (MEANT, WRITTEN)]
    cut = lambda word: [tokenizer.token(index) for index in tokenizer.encode(word).ids[1:-1]]
    found["pieces"] = [[cut(word) for word in text.split()] for text in (MEANT, WRITTEN)]
    return found


if __name__ == "__main__":
    text = json.dumps(answers(sys.argv[1]), indent=1)
    Path(__file__).with_name("answers.json").write_text(text + "\n", encoding="utf-8")
