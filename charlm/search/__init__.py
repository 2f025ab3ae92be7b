"""Search by vectors: an index of texts on disk, exact or approximate, and queries that an encoder embeds.

`python -m charlm.search` is the command. Begin with `index` (what an index is, and how it is searched); `vectors` keeps
the vectors of documents between runs and says by which model they were made.
"""
