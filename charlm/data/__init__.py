"""From raw text to batches: text sources, encoded corpora, labelled examples, masking and packing.

Look here to change what happens to text before a model reads it. Text comes in through `sources`; `corpus` encodes it
into `records`; `pipeline` and `streams` turn the records into batches. Readers of labelled data for fine-tuning are
`rows`, `text_tables`, `conll` and `squad`.
"""
