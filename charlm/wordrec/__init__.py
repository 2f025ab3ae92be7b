"""A word recogniser in front of a model: a semi-character RNN that reads misspelled words as the words meant.

Pruthi, Dhingra and Lipton (ACL 2019) put it in front of classifiers, and CharBERT's Table 2 has it in front of a BERT.
Begin with `model`; `objective` is its training, `defence` its use. `python -m charlm.wordrec train wordrec:tiny` trains
one, `--defence wordrec:FOLDER` of `charlm.robustness` and `charlm.evaluate_retrieval` puts it in front of models.
"""
