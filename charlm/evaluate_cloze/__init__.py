"""Measures how well pre-trained models guess words that are left out of sentences whose other words have typos.

`python -m charlm.evaluate_cloze` is the command. Begin with `questions` (the sentences and what is left out), then
`measure` (what the models are asked) and `report`.
"""
