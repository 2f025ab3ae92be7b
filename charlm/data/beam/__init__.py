"""Prepares corpora by Apache Beam, on one machine or on a cluster: the command is `python -m charlm.data.beam`.

The shards are those that `charlm.data.corpus` writes, byte for byte, in the same folders of the cache.
"""
