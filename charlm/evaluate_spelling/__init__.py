"""Measures how well systems mend misspelled words in context: spellers of charlm beside SymSpell, Hunspell and Aspell.

`python -m charlm.evaluate_spelling` runs it. Begin with `measure`; `data` makes the sentences, `systems` asks the
systems, `report` writes the tables.
"""
