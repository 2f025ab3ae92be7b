"""Measures how well a Char2Subword imitates a table of subwords: python -m charlm.table_report --checkpoint=runs/c2s

The command itself is in `charlm.families.char2subword.table_report`; this module only gives it a short name.
"""

from __future__ import annotations

import sys

from charlm.families.char2subword.table_report import main

if __name__ == "__main__":
    sys.exit(main())
