"""From raw text to batches: text sources, encoded corpora, labelled examples, masking and packing."""
