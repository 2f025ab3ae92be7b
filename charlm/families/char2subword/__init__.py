"""Char2Subword (Aguilar et al., 2021): a character transformer in the place of a frozen table of subwords."""
