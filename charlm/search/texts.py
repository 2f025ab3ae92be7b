"""Reads files of documents: a text per line, or JSON lines with the key `text`; gzipped or not.

Open it to read documents of another form.
"""

from __future__ import annotations

from charlm.core.local_paths import check_path
from charlm.data.lines import numbered_lines, parsed_json


def read_texts(name: str, path: str) -> list[str]:
    """Returns the texts of a file; lines without text are left out.

    Args:
      name: what the path is called in messages, such as a flag.

    Raises:
      ValueError: there is no such file, it has no texts, or a line is no object with a text.
    """
    check_path(name, path, needed=True)
    json_lines = path.removesuffix(".gz").endswith((".jsonl", ".json"))
    texts = []
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        if json_lines:
            row = parsed_json(line, f"{path}:{number}")
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise ValueError(f"{path}:{number}: expected an object with a text `text`")
            line = row["text"]
        if line.strip():
            texts.append(line)
    if not texts:
        raise ValueError(f"{path}: no texts")
    return texts
