"""The rules of the house: which room may import which, and who may ask which task it is, checked on source text."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from charlm.tasks.table import TASKS

ROOT = Path(__file__).resolve().parents[1]

# Room -> the rooms that it may import. A room is a folder of charlm, or a module of its top level.
ROOMS = {
    "text": "core.durable core.extras core.reading core.registry",
    "nn": "",
    "core": "",
    "data": "core text",
    "metrics": "core.extras core.reading data",
    "config": "core.extras core.keys core.local_paths core.reading text families.family nn.choices tasks.table",
    "convert": "core nn text",
    "families": "config convert core data nn text",
    "tasks": "convert core.extras core.keys core.registry data families metrics text",
    "training": "config core families",
    "finetune": "config convert core data families metrics tasks text training",
    "robustness": "core data families finetune metrics tasks text training.workdir",
    "statistics": "convert core data families text",
    "benchmark": "config convert core data families nn text training",
    # What users type: these may ask for anything but each other.
    "cli": "config core families tasks.table text.noise",
    "main": "cli config core finetune training",
    "predict": "families finetune text",
    "table_report": "families",
    "register": "config core.keys families.family families.fusions tasks.table text.noise",
}
SHARED = ("subword", "spelled")  # folders of families that siblings may import; the first stands alone
LISTS_FAMILIES = "charlm.families.family"
NAMES_FAMILIES = ("families", "benchmark", "table_report")  # rooms that may import a family's folder
# `python -m` runs these: they import late, so that --help needs no JAX, and may ask the families for their parts.
COMMANDS = (
    "charlm",
    "charlm.main",
    "charlm.predict",
    "charlm.data.corpus",
    "charlm.families.char2subword.table_report",
)
# These import by name: the tables and extras what they are given, the benchmark's processes their paths.
IMPORTS_BY_NAME = ("charlm.core.registry", "charlm.core.extras", "charlm.benchmark.worker", "charlm.benchmark.authors")
WITHOUT_JAX = ("text", "config")  # rooms that --help and mistakes on the command line need
# Words that are names of tasks, and who may write them outside of charlm/tasks, where they mean something else.
ALSO_MEANS = {
    "charlm.config.finetuning": ("tagging",),  # the task of a config that names none
    "charlm.convert.heads": ("question_answering",),  # a head
    "charlm.families": ("question_answering",),  # that head
    "charlm.metrics.compare": ("classification", "regression", "ranking"),  # kinds of sums
}


class Import(NamedTuple):
    """One import: from which module, what, and whether it stands inside a function."""

    module: str
    target: str
    late: bool


def sources(root: Path) -> dict[str, str]:
    """The text of every module by its dotted name."""
    found = {}
    for path in sorted((root / "charlm").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return found


@functools.cache
def nodes_of(text: str) -> list[ast.AST]:
    """Every node of a module's tree."""
    return list(ast.walk(ast.parse(text)))


def imports(modules: Mapping[str, str]) -> Iterator[Import]:
    """Every import of charlm, those of type checkers and those inside functions, too."""
    for module, text in modules.items():
        nodes = nodes_of(text)
        late = {
            id(inner)
            for outer in nodes
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(outer)
        }
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "charlm":
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    yield Import(module, full if full in modules else node.module, id(node) in late)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == "charlm":
                        yield Import(module, alias.name, id(node) in late)


def room(module: str) -> str:
    """The folder of charlm that a module is in; "" for charlm itself."""
    return [*module.split("."), ""][1]


def family(module: str) -> str:
    """The folder of the family that a module is in; "" for none."""
    parts = module.split(".")
    folder = parts[2] if len(parts) > 2 and parts[1] == "families" else ""
    return folder if (ROOT / "charlm" / "families" / folder).is_dir() else ""


def is_command(module: str) -> bool:
    """Whether `python -m` runs a module."""
    return module in COMMANDS or module.endswith(".__main__")


def climbs(found: Import) -> bool:
    """Whether an import goes up: to a room that the module's may not import."""
    here, there = room(found.module), room(found.target)
    if is_command(found.module) or here == there or not there:  # charlm itself holds the version
        return False
    allowed = ROOMS[here].split()
    return there not in allowed and not any(found.target == name or found.target.startswith(f"{name}.")
                                            for name in (f"charlm.{room}" for room in allowed))  # fmt: skip


def names_sibling(found: Import) -> bool:
    """Whether a family imports another than those that are shared, or a shared one imports what stands on it."""
    here, there = family(found.module), family(found.target)
    if not there or here == there or room(found.module) != "families":
        return False
    return there not in SHARED or not here or SHARED.index(there) > (SHARED.index(here) if here in SHARED else 9)


def names_family(found: Import) -> bool:
    """Whether a module outside of the families imports one of them."""
    return bool(family(found.target)) and room(found.module) not in NAMES_FAMILIES


def is_hidden(found: Import) -> bool:
    """Whether an import inside a function stands where none may: benchmark's parent process leaves JAX to workers."""
    free = is_command(found.module) or room(found.module) == "benchmark" or found.module == LISTS_FAMILIES
    return found.late and not free


def is_used_from_below(found: Import) -> bool:
    """Whether somebody imports the rooms that nothing stands on."""
    return any(room(found.target) == top != room(found.module) for top in ("robustness", "benchmark"))


def asks_which_task(module: str, text: str) -> list[str]:
    """Where a module outside of charlm/tasks asks which task it is: by its name, or by what examples and predictions
    look like."""
    if room(module) == "tasks":
        return []
    nodes = nodes_of(text)
    allowed = {
        word for name, words in ALSO_MEANS.items() if module == name or module.startswith(f"{name}.") for word in words
    }
    found = [
        f"{module}:{node.lineno}: {node.value!r}"
        for node in nodes
        if isinstance(node, ast.Constant) and node.value in TASKS.own and node.value not in allowed
    ]
    for node in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
            continue
        kinds = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
        asked = node.args[0].id if isinstance(node.args[0], ast.Name) else ""
        by_type = node.func.id == "isinstance" and any(kind.endswith(("Example", "Prediction")) for kind in kinds)
        by_field = node.func.id in ("getattr", "hasattr") and asked in ("example", "prediction")
        if by_type or by_field:
            found.append(f"{module}:{node.lineno}: {node.func.id}")
    return found


def circles(modules: Mapping[str, str]) -> list[list[str]]:
    """Modules that import each other by any way, typing and functions of others than commands included."""
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for found in imports(modules):
        if found.target in modules and not (found.late and is_command(found.module)):
            edges[found.module].add(found.target)
    reach: dict[str, set[str]] = {}
    for start in edges:
        seen, todo = set(), [start]
        while todo:
            for target in edges[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        reach[start] = seen
    groups = {tuple(sorted(other for other in reach[m] if m in reach[other])) for m in edges if m in reach[m]}
    return [list(group) for group in sorted(groups)]


RULES = {rule.__name__: rule for rule in (climbs, names_sibling, names_family, is_hidden, is_used_from_below)}


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    return sources(ROOT)


@pytest.fixture(scope="module")
def found_imports(modules) -> list[Import]:
    return list(imports(modules))


def other_ways(module: str, text: str) -> list[str]:
    """Imports that the rules would not see, and JAX where there is to be none: the places in a module."""
    found = []
    for node in nodes_of(text):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append(f"{module}: an import relative to its folder")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            found += [f"{module}: {ast.unparse(node)}"] * (module not in IMPORTS_BY_NAME)
        elif isinstance(node, ast.Import | ast.ImportFrom) and room(module) in WITHOUT_JAX:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{module}: imports {name}" for name in names if name.split(".")[0] in ("jax", "flax", "optax")]
    return found


def test_there_is_no_other_way_to_import(modules):
    assert [place for module, text in modules.items() for place in other_ways(module, text)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("charlm.core.state", "from ..families import hlm"),
        ("charlm.training.train", 'def late():\n    importlib.import_module("charlm.families.hlm.model")'),
        ("charlm.text.words", "import jax.numpy as jnp"),
        ("charlm.config.pretraining", "from flax import linen"),
    ],
)
def test_another_way_is_found(module, line):
    assert len(other_ways(module, line)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_every_import_keeps_the_rule(found_imports, rule):
    broken = [f"{found.module} imports {found.target}" for found in found_imports if RULES[rule](found)]
    assert not broken


def test_there_are_no_circles(modules):
    assert circles(modules) == []


def test_every_room_has_a_line(modules):
    assert {room(module) for module in modules} - {""} == ROOMS.keys()


def test_only_tasks_ask_which_task_it_is(modules):
    assert [place for module, text in modules.items() for place in asks_which_task(module, text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "if task.name == 'tagging':\n    pass",
        "columns = {'ranking': ('pair',)}.get(task.name, ('text', 'pair'))",
        "isinstance(example, TaggedExample)",
        "isinstance(found, ClassPrediction | float)",
        "hasattr(example, 'question')",
    ],
)
def test_a_question_for_the_task_is_found(line):
    assert len(asks_which_task("charlm.robustness.measure", line)) == 1
    assert asks_which_task("charlm.tasks.tagging", line) == []


BROKEN = [
    ("climbs", "charlm.core.state", "from charlm.data.records import read_record"),
    ("climbs", "charlm.text.words", "from charlm.families.family import Family"),
    ("climbs", "charlm.config", "from charlm.families.pretrained import Pretrained"),
    ("climbs", "charlm.nn.embed", "if TYPE_CHECKING:\n    import charlm.training.train"),
    ("names_sibling", "charlm.families.hlm.units", "from charlm.families.charbert.batch import NoisyBatch"),
    ("names_sibling", "charlm.families.subword.bert", "from charlm.families.spelled.batch import SpelledBatch"),
    ("names_sibling", "charlm.families.pretrained", "from charlm.families.subword.bert import Bert"),
    ("names_family", "charlm.training.train", "from charlm.families.hlm.model import HLM"),
    ("names_family", "charlm.tasks.tagging", "from charlm.families.subword.bert import Bert"),
    ("is_hidden", "charlm.finetune.course", "def run():\n    from charlm.families.pretrained import from_pretrained"),
    ("is_used_from_below", "charlm.finetune.course", "import charlm.robustness.measure"),
    ("is_used_from_below", "charlm.training.run", "from charlm.benchmark.figures import Figure"),
]


@pytest.mark.parametrize(("rule", "module", "line"), BROKEN)
def test_a_broken_rule_is_found(modules, rule, module, line):
    (found,) = imports(dict.fromkeys(modules, "") | {module: line})
    assert RULES[rule](found)


def test_a_circle_is_found():
    parts = {
        "charlm.a": "from charlm.b import x",
        "charlm.b": "if TYPE_CHECKING:\n    from charlm.c import y",
        "charlm.c": "def late():\n    import charlm.a",
        "charlm.d": "import charlm.a",
    }
    assert circles(parts) == [["charlm.a", "charlm.b", "charlm.c"]]
