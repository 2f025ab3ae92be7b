"""Starlette, an optional package that `charlm serve` routes requests with: here only what it uses."""
