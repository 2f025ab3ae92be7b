"""Tests the script that writes the text of textbooks, on a repository whose last commit has another licence."""

from __future__ import annotations

import gzip
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "launch" / "openstax.py"
LONG = "Light that is bent by a lens meets in one point behind it, which is called the focus."
MODULE = f"""<document xmlns="http://cnx.rice.edu/cnxml" xmlns:m="http://www.w3.org/1998/Math/MathML">
<title>Lenses</title><metadata><title>About this book, which no reader wants to see in a corpus</title></metadata>
<content><para>{LONG} {LONG} {LONG} {LONG}</para><!-- a comment -->
<para>Too short.</para>
<para>Its strength is <m:math><m:mi>f</m:mi></m:math>, and this is a paragraph with enough words for one.</para>
<section><title>Eyes</title><para>An eye has a <emphasis>lens</emphasis><newline/>that muscles bend; see
<link/>below.<footnote>Not that of the camera.</footnote> {LONG} {LONG}</para>
<list><item><para>{LONG}</para>
<para>Each of its paragraphs is there once, and titles are lines of their own.</para></item></list>
<para><title>The Sun</title>A star whose light is bent by every lens that it ever meets on its way.</para>
<exercise><para>How far away is the focus of a lens of two dioptres, in your opinion?</para></exercise></section>
</content></document>"""


@pytest.fixture(scope="module")
def openstax() -> ModuleType:
    spec = importlib.util.spec_from_file_location("openstax", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def book(tmp_path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    clone = tmp_path / "osbooks-light"
    (clone / "modules" / "m1").mkdir(parents=True)
    (clone / "collections").mkdir()
    git(clone, "init", "-q")
    free(clone, "by", MODULE)
    free(clone, "by-nc-sa", MODULE.replace("Lenses", "Later lenses"))
    return clone


def free(clone: Path, licence: str, module: str) -> None:
    """Commits a book under a licence."""
    title = {"by": "Attribution 4.0 International"}.get(licence, "Attribution-NonCommercial-ShareAlike 4.0")
    (clone / "LICENSE").write_text(f"{title}\n")
    link = f'<md:license url="http://creativecommons.org/licenses/{licence}/4.0/"/>\n'
    (clone / "collections" / "light.xml").write_text(link)
    (clone / "modules" / "m1" / "index.cnxml").write_text(module)
    git(clone, "add", "-A")
    git(clone, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", licence)


def git(clone: Path, *command: str) -> None:
    subprocess.run(["git", "-C", str(clone), *command], check=True)


def test_the_text_is_that_of_the_last_free_commit(openstax, book, tmp_path, capsys):
    assert openstax.main([str(book), f"--out={tmp_path / 'corpus'}"]) == 0
    with gzip.open(tmp_path / "corpus" / "osbooks-light.txt.gz", "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    assert lines == [
        "Lenses",
        f"{LONG} {LONG} {LONG} {LONG}",
        "Eyes",
        f"An eye has a lens that muscles bend; see below. {LONG} {LONG}",
        LONG,
        "Each of its paragraphs is there once, and titles are lines of their own.",
        "A star whose light is bent by every lens that it ever meets on its way.",
        "The Sun",
        "",
    ]
    assert "osbooks-light: 1 modules, " in capsys.readouterr().out


def test_a_book_that_was_never_free_is_left_out_and_named(openstax, book, tmp_path, capsys):
    git(book, "checkout", "-q", "--orphan", "other")
    free(book, "by-nc", MODULE)
    git(book, "branch", "-q", "-D", "master" if "master" in branches(book) else "main")
    assert openstax.main([str(book), f"--out={tmp_path / 'corpus'}"]) == 1
    assert capsys.readouterr().err == "osbooks-light: no commit under CC BY 4.0, left out\n"
    assert not list((tmp_path / "corpus").iterdir())


def branches(clone: Path) -> list[str]:
    shown = subprocess.run(
        ["git", "-C", str(clone), "branch", "--format=%(refname:short)"], check=True, capture_output=True
    )
    return shown.stdout.decode().split()


def test_a_damaged_module_is_left_out_and_named(openstax, book, capsys):
    free(book, "by", "<document")
    assert list(openstax.modules(book, openstax.free_commit(book))) == []
    assert "osbooks-light: modules/m1/index.cnxml is left out: " in capsys.readouterr().err


def test_a_folder_that_is_no_repository_is_refused(openstax, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        openstax.main([str(tmp_path / "absent"), f"--out={tmp_path}"])
    assert "no git repository: " in capsys.readouterr().err
