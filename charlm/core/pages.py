"""The frame of the pages that charlm writes: one file of HTML that loads nothing and runs only the script it brings.

Names, paths and texts of users are untrusted; `escaped` makes them text of a page. Open it to change what all pages
share: their head, the policy by which browsers forbid them everything else, and which characters are shown.
"""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from html import escape

_BREAKS = frozenset("\t\n\r\v\f\x85\u2028\u2029")
_KEPT_FORMAT = frozenset("\u200c\u200d")  # joiners that scripts and emoji need; other ones may reorder a line
_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{css}</style>
</head>
<body>
{body}
{script}</body>
</html>
"""


def page(title: str, css: str, body: str, *, script: str = "", inline_styles: bool = False) -> str:
    """Returns a whole page.

    Args:
      title: its title, plain text.
      css: its style.
      body: what stands in its body, HTML.
      script: its only script; "": it runs none.
      inline_styles: whether elements of `body` have style attributes.
    """
    style = "'unsafe-inline'" if inline_styles else _digest(css)
    policy = f"default-src 'none'; img-src data:; style-src {style}; "
    if script:
        policy += f"script-src {_digest(script)}; "
    policy += "base-uri 'none'; form-action 'none'"
    brought = f"<script>{script}</script>\n" if script else ""
    return _FRAME.format(policy=policy, title=escaped(title), css=css, body=body, script=brought)


def escaped(text: str, keep_lines: bool = False) -> str:
    """Returns plain text as HTML or SVG, also as the value of an attribute; see `harmless`."""
    return escape(harmless(text, keep_lines))


def harmless(text: str, keep_lines: bool = False) -> str:
    """Returns a text without characters that are invisible or that change the direction of the text after them.

    Control and format characters and lone surrogates (from paths that are not UTF-8) become U+FFFD. Line breaks become
    spaces; with `keep_lines`, newlines stay.
    """
    kept = []
    for char in text:
        category = unicodedata.category(char)
        if char in _BREAKS:
            kept.append("\n" if keep_lines and char == "\n" else " ")
        elif category in ("Cc", "Cs") or (category == "Cf" and char not in _KEPT_FORMAT):
            kept.append("\ufffd")
        else:
            kept.append(char)
    return "".join(kept)


def shortened(text: str, most: int) -> str:
    """Returns a text on one line, with its end left out if it has more than `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _digest(content: str) -> str:
    """Returns the source expression that allows a style or script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
