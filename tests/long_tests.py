"""Chooses the tests that a run of all files leaves out because they take long; `pytest -n 2 -m long` runs these.

They are listed in long_tests.txt, since how long a test takes is found out by running it. After a run of all tests

    pytest -n 2 -m "not slow" --junitxml=times.xml && python tests/long_tests.py times.xml

writes the list anew. What a test makes sure of is no reason to be on it, but tests of golden values never are.
"""

from __future__ import annotations

import functools
import sys
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
LIST = HERE / "long_tests.txt"
LONG = 2.0  # seconds from which on a test is long
ALWAYS = ("golden",)  # parts of the names of tests that are never left out


@functools.cache
def long_tests() -> frozenset[str]:
    """Returns the names of the long tests, as pytest writes them."""
    return frozenset(LIST.read_text(encoding="utf-8").splitlines())


def chosen(report: Path) -> Iterator[str]:
    """Yields the names of the tests that took long in a run, from its JUnit report."""
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name, place = case.get("name", ""), case.get("classname", "").split(".")
        inside = [part for part in place if part.startswith("Test")]
        file = "/".join(place[: len(place) - len(inside)])
        test = "::".join([f"{file}.py", *inside, name])
        if float(case.get("time", 0)) >= LONG and name.isprintable() and not any(part in test for part in ALWAYS):
            yield test


def main() -> int:
    """Writes the list from the report that the command line names."""
    LIST.write_text("".join(f"{name}\n" for name in sorted(chosen(Path(sys.argv[1])))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
