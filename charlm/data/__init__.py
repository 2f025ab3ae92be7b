"""Data: from raw text to batches. Raw text sources, encoded corpora, masking and packing."""
