"""Builds the documentation: sphinx-build -W docs FOLDER

Pages are Markdown, read by MyST. The pages of reference/ whose content the code knows (config keys, commands, kinds of
noise) are written here before each build, from the tables that `--help` prints; open it when such a table is added.
Equations between dollar signs become MathML, which browsers draw by themselves: pages load no script for it.
"""

import subprocess
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from charlm import __version__
from charlm.__main__ import COMMANDS
from charlm.cli import key_tables, name_tables

HERE = Path(__file__).resolve().parent

project = "charlm"
author = "the authors of charlm"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "charlm"
html_math_renderer = "mathml"
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
default_role = "code"  # docstrings are Markdown-like: `name` is code
napoleon_use_ivar = True  # attributes of a docstring beside documented members are no duplicates
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures have them
nitpicky = False


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def keys_page() -> str:
    """Returns the page of all config keys, one table for each training, family and task."""
    lines = ["# Config keys", "", "Each is set by `--config.KEY=VALUE`, or `--set KEY=VALUE` of the command `charlm`."]
    for what, keys in key_tables():
        lines += ["", f"## {what.capitalize()}", "", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | `{key.default!r}` | {_cell(key.meaning)} |" for name, key in keys.items()]
    for what, names in name_tables():
        lines += ["", f"## {what.capitalize()}", "", "| name | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {_cell(meaning)} |" for name, meaning in names]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Returns the page of all commands with their help texts; those of training are on the page of config keys."""
    lines = ["# Commands", "", "What `charlm COMMAND --help` prints. Every command is also a module for `python -m`."]
    for name, command in COMMANDS.items():
        lines += ["", f"## charlm {name}", "", f"{command.line.capitalize()}: `charlm {command.example}`", ""]
        if command.short:
            lines.append("Its keys are on the page of [config keys](keys.md).")
            continue
        done = subprocess.run(
            [sys.executable, "-m", "charlm", name, "--help"],
            capture_output=True,
            text=True,
            check=True,
            cwd=HERE.parent,
        )
        lines += ["```text", done.stdout.strip(), "```"]
    return "\n".join(lines) + "\n"


def _inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    equation = convert(node.astext(), display="block")
    translator.body.append(f'<div class="math" style="overflow-y: hidden; padding: 0.2em 0">{equation}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Writes the pages that the code knows, and says how equations are drawn."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_display_math, None))
    for name, text in (("keys", keys_page()), ("commands", commands_page())):
        path = HERE / "reference" / f"{name}.md"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
