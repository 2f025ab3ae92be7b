"""Runs `python -m charlm.predict`; open `charlm.predict.command_line` for what the command does and how it is used."""

from __future__ import annotations

import sys

from charlm.predict.command_line import main

if __name__ == "__main__":
    sys.exit(main())
