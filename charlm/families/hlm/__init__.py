"""HLM (Sun et al., ACL 2023): characters become words, words become context; no subword vocabulary."""
