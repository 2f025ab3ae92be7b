"""Tests the rules of the house on source text: imports between rooms, who may ask which task it is, docstrings."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from charlm.families.family import own_families
from charlm.tasks.table import TASKS

ROOT = Path(__file__).resolve().parents[1]

# Room -> the rooms that it may import. A room is a folder of charlm, or a module of its top level.
ROOMS = {
    "text": "core.durable core.entries core.extras core.nearest core.reading core.registry core.types",
    "nn": "core.hashed_keys core.processor",
    "core": "",
    "data": "core text",
    "metrics": "core.extras core.nearest core.reading core.types data",
    "config": (
        "core.extras core.keys core.local_paths core.nearest core.reading core.types text families.family "
        "families.options "
        "nn.choices tasks.table"
    ),
    "convert": "core nn text",
    "families": "config convert core data nn text",
    "tasks": "convert core.entries core.extras core.keys core.registry core.types data families metrics text",
    "training": "config convert.files core families",
    "finetune": "config convert core data families metrics tasks text training",
    "wordrec": "config core data families.text_objective nn text training",
    "align": "config convert.heads core data families text training",
    "robustness": "core data families finetune metrics tasks text training.workdir wordrec.defences",
    "show": "core families",
    "statistics": "convert core data families text",
    "league": (
        "cli config convert.heads core data families finetune.run metrics robustness statistics.parameters tasks text "
        "training"
    ),
    "benchmark": "config convert core data families nn text training",
    "plan": "config core data families finetune training",
    # What users type: these may ask for anything but each other.
    "__main__": "core shorthand",
    "shorthand": "config core.help_text core.nearest",
    "models": "config core families.family",
    "export": "convert core families finetune.model tasks text.speller.files",
    "ship": "convert core families text.noise.levels text.wordlist training.goodput",
    "doctor": "core",
    "search": "api.model convert core data families text.noise.keyboards text.speller",
    "evaluate_retrieval": "api.model core data metrics robustness.render search text wordrec.defences",
    "evaluate_cloze": (
        "api.model core data families.corrections metrics robustness.render search.vectors text wordrec.defences"
    ),
    "evaluate_spelling": "convert.files core data families metrics text wordrec.defences",
    "api": "config convert.heads core families finetune robustness shorthand show tasks.rows tasks.table text.noise",
    "cli": "config core families tasks.table text.noise",
    "main": "cli config core finetune training",
    "predict": "core families finetune text",
    "plot": "core",
    "table_report": "families",
    "serve": "api.model core",
    "register": "config core.keys families.family families.fusions families.options tasks.rows tasks.table text.noise",
}
SHARED = ("subword", "spelled")  # folders of families that siblings may import; the first stands alone
LISTS_FAMILIES = "charlm.families.family"
NAMES_FAMILIES = ("families", "benchmark", "table_report")  # rooms that may import a family's folder, and name it
# `python -m` runs these: they import late, so that --help needs no JAX.
COMMANDS = (
    "charlm",
    "charlm.main",
    "charlm.predict",
    "charlm.models",
    "charlm.doctor",
    "charlm.plot",
    "charlm.league.budget",
    "charlm.league.split",
    "charlm.league.subwords",
    "charlm.families.char2subword.table_report",
    "charlm.plan.table",
    "charlm.robustness.textattack",
)
# Modules that import late as commands do, and why: --help loads them, too, or they must run without JAX.
PARTS_OF_COMMANDS = {
    "charlm.predict.command_line": "it is what `python -m charlm.predict` runs",
    "charlm.benchmark.counts": "a case that the benchmark's command runs itself; --help loads all of these",
    "charlm.benchmark.standalone": "such cases",
    "charlm.benchmark.first_batch": "such a case",
    "charlm.benchmark.text": "the command cuts texts with it; only one case draws words as training does",
    "charlm.wordrec.defences": "help texts list it; what makes a defence of it needs JAX",
    "charlm.benchmark.worker": "`python -m` runs it for each path; those of PyTorch must not load JAX",
}
# What commands may import from above the room that they stand in.
ALSO_IMPORTS = {
    "charlm": "api core.called core.programs core.version families.pretrained finetune robustness show",
    "charlm.convert.__main__": "families.averaging families.family families.options families.lookup families.stored",
    "charlm.data.beam.__main__": "cli families.lookup",
    "charlm.data.corpus.__main__": "cli families.lookup",
    "charlm.plan.__main__": "cli",
}
# What these may import late although it needs no JAX.
IMPORTS_LATE = {
    "charlm": (
        "charlm.api.noise",
        "charlm.api.tables",
        "charlm.finetune",
        "charlm.robustness",
        "charlm.show",
    ),  # whoever does not ask for them need not wait for them
    "charlm.__main__": (
        "charlm.shorthand",
    ),  # it loads the configs, which the help of other commands need not wait for
    "charlm.serve.__main__": ("charlm.serve.running",),  # it loads Starlette, which --help needs not
    "charlm.convert.__main__": ("charlm.convert.files",),  # it loads safetensors, which help texts need not wait for
    # It loads Pallas, which processors need not wait for.
    **dict.fromkeys(
        ("charlm.nn.attention", "charlm.nn.blocks", "charlm.nn.kernels", "charlm.nn.rotary"), ("charlm.nn.tiled",)
    ),
}
# What these load by its place inside a function: it needs JAX, and the tables are read by help texts, which need none.
LOADS_LATE = {
    "charlm.tasks.table": ("charlm.tasks.base:Task",),
    "charlm.families.fusions": ("charlm.nn.fusions:Fusion",),
    "charlm.families.predictor": ("charlm.families.pretrained:from_pretrained",),
    "charlm.families.hlm.predictor": ("charlm.families.hlm.writing_predictor:WritingPredictor",),  # its subclass
}
NEED_JAX = ("jax", "flax", "optax", "orbax", "grain")  # these are JAX, or import it
# These import by name: the command `charlm` the others, the tables and extras what they are given, configs their files,
# the benchmark's processes their paths.
IMPORTS_BY_NAME = (
    "charlm.__main__",  # it runs the commands
    "charlm.core.registry",
    "charlm.core.entries",  # it looks for modules, and imports none
    "charlm.core.extras",
    "charlm.config",
    "charlm.families.char2subword.golden",  # it looks for a package, and imports none
    "charlm.benchmark.worker",
    "charlm.benchmark.authors",
)
# What a module can import by name with, and the parts of it that import nothing of charlm.
IMPORTERS = ("importlib", "runpy", "pkgutil", "builtins", "imp")
HARMLESS = ("importlib.resources", "importlib.metadata", "importlib.machinery")
BY_NAME = ("importlib.import_module", "import_module", "__import__", "exec", "eval")  # calls that do
WITHOUT_JAX = ("text", "config")  # rooms that --help and mistakes on the command line need
# These load the parts of entries whose places the entries hold, or what a flag names.
LOADS_PARTS = (
    "charlm.core.registry",
    "charlm.families.family",  # parts of a `Family`
    "charlm.data.beam.features",  # the function that --filter names
)
OTHER_FAMILIES = ("charlm.text.subwords",)  # where `family` means a kind of tokenizers
# Words that are names of tasks, and who may write them outside of charlm/tasks, where they mean something else.
ALSO_MEANS = {
    "charlm.config.finetuning": ("tagging",),  # the task of a config that names none
    "charlm.convert.heads": ("question_answering",),  # a head
    "charlm.families": ("question_answering",),  # that head
    "charlm.metrics.compare": ("classification", "regression", "ranking"),  # kinds of sums
    "charlm.evaluate_retrieval.measure": ("ranking",),  # that kind of sums
}
# The same for names of families.
NO_FAMILY = {
    "charlm.config.pretraining": ("bert",),  # an initialiser
    "charlm.nn": ("bert",),  # that initialiser
    "charlm.data.subword_building": ("roberta", "gpt2"),  # kinds of tokenizers
    "charlm.families.shared_keys": ("bert", "roberta", "roformer"),  # kinds of a backbone
    "charlm.text.subwords": ("bert", "roberta", "gpt2"),  # kinds of tokenizers
    "charlm.text.noise.kinds": ("hlm", "charbert", "char2subword"),  # kinds of noise, named after papers
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
def tree_of(text: str) -> ast.Module:
    """A module's tree."""
    return ast.parse(text)


@functools.cache
def nodes_of(text: str) -> list[ast.AST]:
    """Every node of a module's tree."""
    return list(ast.walk(tree_of(text)))


def imports(modules: Mapping[str, str]) -> Iterator[Import]:
    """Every import of charlm, those of type checkers and those inside functions, too.

    A module that is reached as an attribute of an imported package counts as imported: `families.hlm` is
    `charlm.families.hlm` after `from charlm import families`.
    """
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
        yield from (Import(module, target, late=False) for target in reached(text, modules))


def dotted(node: ast.expr) -> str:
    """The name of a variable or of an attribute of one, such as "families.hlm"; "" for other expressions."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def reached(text: str, modules: Mapping[str, str]) -> list[str]:
    """The modules of charlm that a text reaches as attributes of packages that it imports by another name."""
    packages = {}
    for node in nodes_of(text):
        if isinstance(node, ast.Import):
            packages |= {one.asname: one.name for one in node.names if one.asname and one.name in modules}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            full = {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
            packages |= {name: module for name, module in full.items() if module in modules}
    inner = {id(node.value) for node in nodes_of(text) if isinstance(node, ast.Attribute)}
    found = []
    for node in nodes_of(text):
        first, _, rest = dotted(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
        if first in packages and id(node) not in inner:  # of `families.hlm.model` not also `families.hlm`
            parts, least = rest.split("."), packages[first]
            places = [".".join([least, *parts[:end]]) for end in range(len(parts), 0, -1)]
            found += [place for place in places if place in modules][:1]
    return found


def strings(text: str) -> Iterator[ast.Constant]:
    """Every string of a module but its docstrings; of an f-string, the pieces."""
    said = set()
    for node in nodes_of(text):
        if isinstance(node, ast.Expr):
            said.add(id(node.value))
    for node in nodes_of(text):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node


def places(modules: Mapping[str, str]) -> Iterator[Import]:
    """Every "module" and "module:name" of charlm in a string, which `registry.load` and others would import.

    The one table of families is left out: it names them all.
    """
    for module, text in modules.items():
        if module == LISTS_FAMILIES:
            continue
        for node in strings(text):
            target = node.value.partition(":")[0]
            if target in modules and target != "charlm" and not is_command(target):  # commands are run, not imported
                yield Import(module, target, late=False)


def room(module: str) -> str:
    """The folder of charlm that a module is in; "" for charlm itself."""
    return [*module.split("."), ""][1]


def family(module: str) -> str:
    """The folder of the family that a module is in; "" for none."""
    parts = module.split(".")
    folder = parts[2] if len(parts) > 2 and parts[:2] == ["charlm", "families"] else ""
    return folder if (ROOT / "charlm" / "families" / folder).is_dir() else ""


def is_in(module: str, name: str) -> bool:
    """Whether a module is the named one, or is in the folder of that name."""
    return module == name or module.startswith(f"{name}.")


def is_command(module: str) -> bool:
    """Whether `python -m` runs a module."""
    return module in COMMANDS or module.endswith(".__main__")


def climbs(found: Import) -> bool:
    """Whether an import goes up: to a room that the module's may not import."""
    here, there = room(found.module), room(found.target)
    if here == there or not there:  # charlm itself holds the version
        return False
    allowed = [*ROOMS.get(here, "").split(), *ALSO_IMPORTS.get(found.module, "").split()]
    return not any(is_in(found.target, f"charlm.{name}") for name in allowed)


def names_sibling(found: Import) -> bool:
    """Whether a family imports another than those that are shared, or a shared one imports what stands on it."""
    here, there = family(found.module), family(found.target)
    if not there or here == there or room(found.module) != "families":
        return False
    return there not in SHARED or not here or SHARED.index(there) > (SHARED.index(here) if here in SHARED else 9)


def names_family(found: Import) -> bool:
    """Whether a module outside of the families imports one of them."""
    return bool(family(found.target)) and room(found.module) not in NAMES_FAMILIES


def asks_which_family(module: str, text: str) -> list[str]:
    """Where a module outside of the families' folders writes a family's name, or a place in a family's folder.

    So it may neither compare with a name nor list some: families are asked for what differs (`Family`). The folders
    that families share may name only the families that they hold.
    """
    here = family(module)
    if module == LISTS_FAMILIES or (here and here not in SHARED) or room(module) in NAMES_FAMILIES[1:]:
        return []
    others = [one for one in own_families() if not here or family(one.converter.partition(":")[0]) != here]
    names = {one.name for one in others} - meanings(NO_FAMILY, module) | {one.title for one in others}
    return [
        f"{module}:{node.lineno}: {node.value!r}"
        for node in strings(text)
        if node.value in names
        or node.value == "charlm.families."
        or family(node.value.partition(":")[0]) not in ("", here)
    ]


def asks_by_attribute(module: str, text: str) -> list[str]:
    """Where a module outside of the families' folders does anything with the family of a thing that is not allowed.

    It may hand it on (`TAKE_FAMILY`), look it up in the table, say it, keep it under the same name, ask whether there
    is one, and whether two things are of the same family.
    """
    if module == LISTS_FAMILIES or family(module) or room(module) in NAMES_FAMILIES[1:]:
        return []
    if any(is_in(module, name) for name in OTHER_FAMILIES):
        return []
    nodes = nodes_of(text)
    above = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
    asks = [above[id(node)] for node in nodes if is_family(node) and not is_handed_on(node, above[id(node)])]
    return [f"{module}: {ast.unparse(node).splitlines()[0]}" for node in dict.fromkeys(asks)]


# Functions that take a family's name: they look it up in the table, or write it.
TAKE_FAMILY = {
    "family", "converter_of", "family_named", "keys_of", "_of", "pretraining.keys_of", "pretraining.measured",
    "pretraining.resumable", "pretraining.unstated", "count", "log.info", "str",
}  # fmt: skip


def is_handed_on(node: ast.AST, above: ast.AST) -> bool:
    """Whether an expression that is a family's name only passes it on, judged by the node that it is a part of."""
    if isinstance(above, ast.Call):
        return node in above.args and dotted(above.func) in TAKE_FAMILY
    if isinstance(above, ast.Compare):
        return all(is_family(side) for side in (above.left, *above.comparators))
    if isinstance(above, ast.Subscript):
        return above.slice is node and dotted(above.value) == "FAMILIES"
    if isinstance(above, ast.Dict):
        return node in above.values
    if isinstance(above, ast.If | ast.BoolOp):  # whether there is one
        return True
    return isinstance(above, ast.FormattedValue | ast.Tuple | ast.Return)


def is_family(node: ast.AST) -> bool:
    """Whether an expression is the attribute `family` of something, or what lies under that name."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "family"
    return isinstance(node, ast.Attribute) and node.attr == "family"


def asks_for_class_names(module: str, text: str) -> list[str]:
    """Where a module compares the name of a class, as `type(x).__name__ == "HLM"` does, or calls a method of it.

    `isinstance` asks the same where the class may be named.
    """
    found = []
    for node in nodes_of(text):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        sides += [node.subject] if isinstance(node, ast.Match) else []
        sides += [node.func.value] if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else []
        found += [f"{module}: {ast.unparse(node).splitlines()[0]}" for side in sides if is_class_name(side)]
    return found


def is_class_name(node: ast.expr) -> bool:
    """Whether an expression is the name of a thing's class."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("__name__", "__qualname__", "__module__")
        and (dotted(node.value).endswith(".__class__") or ast.unparse(node.value).startswith("type("))
    )


def loads_unseen(module: str, text: str) -> list[str]:
    """Where a module loads by `charlm.core.registry` what no other rule sees: not a string that stands there."""
    if module in LOADS_PARTS:
        return []
    loaders = {"registry.load"}
    for node in nodes_of(text):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for one in node.names:
                full = f"{node.module}.{one.name}" if isinstance(node, ast.ImportFrom) else one.name
                loaders |= {one.asname or one.name} if full == "charlm.core.registry.load" else set()
                loaders |= {f"{one.asname or one.name}.load"} if full == "charlm.core.registry" else set()
    found = []
    for node in nodes_of(text):
        if isinstance(node, ast.Call) and dotted(node.func) in loaders:
            first = node.args[0] if node.args else None
            if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
                found.append(f"{module}:{node.lineno}: {ast.unparse(node)}")
    return found


def loads_late(module: str, text: str) -> list[str]:
    """Where a function loads a module of charlm by its place, which is a late import by another name."""
    functions = [
        node for node in nodes_of(text) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    calls = {id(node): node for one in functions for node in ast.walk(one) if isinstance(node, ast.Call)}
    return [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for node in calls.values()
        if dotted(node.func).rpartition(".")[2] == "load" and node.args
        if isinstance(node.args[0], ast.Constant) and re.match(r"charlm[\w.]*:", str(node.args[0].value))
        if node.args[0].value not in LOADS_LATE.get(module, ())
    ]


def meanings(table: Mapping[str, tuple[str, ...]], module: str) -> set[str]:
    """The words that mean something else in a module, or in the room that it is in."""
    return {word for name, words in table.items() if is_in(module, name) for word in words}


def is_hidden(found: Import, with_jax: frozenset[str]) -> bool:
    """Whether an import inside a function stands where none may, or where it need not.

    Commands and their parts import late what needs JAX, so that --help and mistakes need none. A module that needs JAX
    itself has no reason to.

    Args:
      with_jax: the modules that cannot be imported without JAX.
    """
    may = is_command(found.module) or found.module in PARTS_OF_COMMANDS
    needs = found.target in with_jax and found.module not in with_jax
    return found.late and not (may and needs) and found.target not in IMPORTS_LATE.get(found.module, ())


def need_jax(modules: Mapping[str, str]) -> frozenset[str]:
    """The modules that JAX is imported with: by them, or by what they import, at once."""
    edges: dict[str, set[str]] = {module: set() for module in modules}
    found = set()
    for module, text in modules.items():
        for node in at_once(text):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if any(name.split(".")[0] in NEED_JAX for name in names):
                found.add(module)
            if isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
            edges[module] |= {name for name in names if name in modules}
            edges[module] |= {".".join(name.split(".")[:n]) for name in names for n in range(2, name.count(".") + 1)}
    while more := {module for module in edges if edges[module] & found} - found:
        found |= more
    return frozenset(found)


@functools.cache
def at_once(text: str) -> list[ast.Import | ast.ImportFrom]:
    """The imports that a module makes as it is imported: not those in functions, nor those of type checkers."""
    found, todo = [], list(tree_of(text).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")):
            todo += (
                []
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                else [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr)]
            )
    return found


def is_used_from_below(found: Import) -> bool:
    """Whether somebody imports the rooms that nothing stands on but what users call."""
    above = (
        ("api", "league", "evaluate_retrieval", "evaluate_cloze", "")
        if found.target.startswith("charlm.robustness")
        else ()
    )
    tops = ("robustness", "benchmark")
    return any(room(found.target) == top != room(found.module) for top in tops) and room(found.module) not in above


def asks_which_task(module: str, text: str) -> list[str]:
    """Where a module outside of charlm/tasks asks which task it is: by its name, or by what examples and predictions
    look like."""
    if room(module) == "tasks":
        return []
    nodes = nodes_of(text)
    allowed = meanings(ALSO_MEANS, module)
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
    """Modules that import each other by any way, typing and functions included."""
    edges: dict[str, set[str]] = {module: set() for module in modules}
    for found in imports(modules):
        if found.target in modules:
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


RULES = {rule.__name__: rule for rule in (climbs, names_sibling, names_family, is_used_from_below)}


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
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            found += [f"{module}: {ast.unparse(node)}"] * (module not in IMPORTS_BY_NAME)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "charlm":
            found += [f"{module}: {ast.unparse(node)}"] * (node.attr != "__version__" and module != "charlm")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            found += [f"{module}: imports {name}" for name in names if is_other_way(module, name)]
            found += [f"{module}: renames charlm" for one in node.names if one.name == "charlm" and one.asname]
    return found


def is_other_way(module: str, name: str) -> bool:
    """Whether a module may not import what is called so, although it stands in no room of charlm."""
    top, _, rest = name.partition(".")
    if top == "charlm":  # charlm itself holds its version, and what users import
        return bool(rest) and rest.split(".")[0] not in {*ROOMS, "__version__"}
    if top in IMPORTERS:
        return module not in IMPORTS_BY_NAME and not any(is_in(name, harmless) for harmless in HARMLESS)
    return top in NEED_JAX and room(module) in WITHOUT_JAX


FOR_TOOLS = re.compile(r"# *(fmt|noqa|ruff|pyright|type)\b[^#]*")  # comments that say nothing to people


def open_types(module: str, text: str) -> list[str]:
    """Where a module uses `Any` without a comment on the line or the line above that says why."""
    lines = text.splitlines()
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    imported = {
        number
        for node in nodes_of(text)
        if isinstance(node, ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    told = {
        token.start[0] for token in tokens if token.type == tokenize.COMMENT and not FOR_TOOLS.fullmatch(token.string)
    }
    used = {token.start[0] for token in tokens if token.type == tokenize.NAME and token.string == "Any"}
    renamed = {
        node.lineno for node in nodes_of(text) if isinstance(node, ast.alias) and node.name == "Any" and node.asname
    }
    missing = [number for number in sorted(used - imported | renamed) if not told & {number - 1, number}]
    return [f"{module}:{number}: {lines[number - 1].strip()}" for number in missing]


def test_a_comment_says_why_a_type_is_open(modules):
    assert [place for module, text in modules.items() for place in open_types(module, text)] == []


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        ("def load(name: str) -> Any: ...", 1),
        ("# read from JSON\n\ntable: dict[str, Any] = {}", 1),
        ('note = "# no comment"; table: dict[str, Any] = {}', 1),
        ("table: dict[str, Any] = {}  # fmt: skip", 1),
        ("from typing import Any as Anything", 1),
        ("table: dict[str, Any] = {}  # read from JSON", 0),
        ("table: dict[str, Any] = {}  # noqa: E501  # read from JSON", 0),
        ("# read from JSON\ntable: dict[str, Any] = {}", 0),
        ("from typing import (\n    Any,\n)\n", 0),
        ('"""Any text."""', 0),
    ],
)
def test_an_open_type_without_a_comment_is_found(lines, missing):
    assert len(open_types("charlm.core.state", lines)) == missing


def test_there_is_no_other_way_to_import(modules):
    assert [place for module, text in modules.items() for place in other_ways(module, text)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("charlm.core.state", "from ..families import hlm"),
        ("charlm.training.train", 'def late():\n    importlib.import_module("charlm.families.hlm.model")'),
        ("charlm.text.words", "import jax.numpy as jnp"),
        ("charlm.config.pretraining", "from flax import linen"),
        ("charlm.text.chars", "from orbax import checkpoint"),
        ("charlm.training.train", "from importlib import import_module"),
        ("charlm.training.train", "import importlib as loader"),
        ("charlm.training.train", "import runpy"),
        ("charlm.training.train", "exec('import charlm.' + 'families.hlm.model')"),
        ("charlm.core.state", "from charlm import from_pretrained"),
        ("charlm.core.state", "import charlm\nmodel = charlm.from_pretrained('run')"),
        ("charlm.core.state", "import charlm as whole"),
    ],
)
def test_another_way_is_found(module, line):
    assert len(other_ways(module, line)) == 1


@pytest.mark.parametrize("rule", RULES)
def test_every_import_keeps_the_rule(modules, found_imports, rule):
    broken = [f"{found.module} imports {found.target}" for found in found_imports if RULES[rule](found)]
    assert not broken
    assert [f"{found.module} names {found.target}" for found in places(modules) if RULES[rule](found)] == []


def test_only_what_needs_jax_is_imported_late(modules, found_imports):
    with_jax = need_jax(modules)
    assert {"charlm.core.state", "charlm.convert.model"} <= with_jax
    assert not {"charlm.cli", "charlm.main", "charlm.convert.__main__", "charlm.families.family"} & with_jax
    assert [module for module in with_jax if room(module) in WITHOUT_JAX] == []
    assert [found for found in found_imports if is_hidden(found, with_jax)] == []


def test_only_families_ask_which_family_it_is(modules):
    assert [place for module, text in modules.items() for place in asks_which_family(module, text)] == []


@pytest.mark.parametrize(
    "line",
    [
        "if config.family == 'hlm':\n    pass",
        "if one.title == 'CharBERT':\n    pass",
        "if one.name in ('bert', *OTHERS):\n    pass",
        "match family:\n    case 'xrayemb':\n        pass",
        "WIDTHS = {'charbert': 3}",
        "def read(family='hlm'):\n    pass",
        "registry.load('charlm.families.hlm.conversion:CONVERTER')",
        "registry.load(f'charlm.families.{name}.conversion:CONVERTER')",
        "MODULE = 'charlm.families.char2subword.export'",
    ],
)
def test_a_question_for_the_family_is_found(line):
    for module in ("charlm.finetune.run", "charlm.families.lookup", "charlm.core.checkpoint"):
        assert len(asks_which_family(module, line)) == 1
    for module in ("charlm.families.charbert.shape", "charlm.families.family", "charlm.benchmark.cases"):
        assert asks_which_family(module, line) == []


def test_a_shared_folder_names_only_the_families_that_it_holds():
    line = "for name in ('xrayemb', 'gpt2', 'CharBERT', 'RoBERTa'):\n    pass"
    found = asks_which_family("charlm.families.subword.start", line)
    assert [place.partition(" ")[2] for place in found] == ["'xrayemb'", "'CharBERT'"]
    assert len(asks_which_family("charlm.families.spelled.units", line)) == 4


ATTRIBUTES = {
    asks_by_attribute: (
        "if config.family.startswith('char'):\n    pass",
        "wide = config.family in WIDE",
        "if 'bert' + '' == model.family:\n    pass",
        "match config.family:\n    case _:\n        pass",
        "which = config.family\nif which.startswith('char'):\n    pass",
        "if config['family'].startswith('char'):\n    pass",
        "if config.family[0] == 'h':\n    pass",
        "wide = len(config.family)",
        "wide = re.match('char', config.family)",
        "width = dict(a=1)[config.family]",
        "width = WIDTHS[metadata['family']]",
    ),
    asks_for_class_names: (
        "if type(model).__name__ == 'HLM':\n    pass",
        "if model.__class__.__name__ in CLASSES:\n    pass",
        "if type(model).__qualname__.startswith('HLM'):\n    pass",
        "if type(model).__module__.endswith('hlm.model'):\n    pass",
    ),
    loads_late: (
        "def run():\n    registry.load('charlm.training.train:train')()",
        "later = lambda: load('charlm.training.train:train')",
    ),
    loads_unseen: (
        "from charlm.core.registry import load\nload(f'charlm.families.{name}:FAMILY')",
        "from charlm.core import registry\nregistry.load(place)",
        "from charlm.core.registry import load as get\nget(':'.join(parts))",
        "import charlm.core.registry as tables\ntables.load(PLACES[0])",
    ),
}


@pytest.mark.parametrize("rule", ATTRIBUTES)
def test_no_module_asks_by_another_way(modules, rule):
    assert [place for module, text in modules.items() for place in rule(module, text)] == []


@pytest.mark.parametrize(("rule", "line"), [(rule, line) for rule, lines in ATTRIBUTES.items() for line in lines])
def test_a_question_by_another_way_is_found(rule, line):
    assert len(rule("charlm.finetune.run", line)) == 1


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("charlm.config", "if config.family != saved.family:\n    pass"),
        ("charlm.text.subwords.files", "if self.family in ('albert', 'xlnet'):\n    pass"),
        ("charlm.finetune.model", "head = family(source.family).label_heads"),
        ("charlm.families.pretrained", "one = FAMILIES[self.family]"),
        ("charlm.robustness.subjects", "told = {'family': self.family}"),
        ("charlm.convert.files", "raise ValueError(f'expected an object, got {type(state).__name__}')"),
        ("charlm.families.fusions", "from charlm.core.registry import load\nload('charlm.nn.fusions:Fusion')"),
        ("charlm.data.vocab", "load(path)"),
    ],
)
def test_what_only_looks_like_a_question_is_none(module, line):
    assert [place for rule in ATTRIBUTES for place in rule(module, line)] == []


def test_words_that_mean_something_else_are_no_questions_for_the_family():
    line = "normal = initializer == 'bert'"
    assert asks_which_family("charlm.nn.embed", line) == []
    assert len(asks_which_family("charlm.tasks.tagging", line)) == 1


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


def test_every_exception_is_used(modules, found_imports):
    said = {(module, node.value) for module, text in modules.items() for node in strings(text)}
    for name, words in (*NO_FAMILY.items(), *ALSO_MEANS.items()):
        for word in words:
            assert any(is_in(module, name) and value == word for module, value in said), (name, word)
    made = {(found.module, found.target) for found in found_imports}
    for module, targets in ALSO_IMPORTS.items():
        for target in targets.split():
            assert any(by == module and is_in(there, f"charlm.{target}") for by, there in made), (module, target)
    late = {(found.module, found.target) for found in found_imports if found.late}
    assert PARTS_OF_COMMANDS.keys() <= {module for module, _ in late}
    assert {(module, target) for module, targets in IMPORTS_LATE.items() for target in targets} <= late


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
    ("climbs", "charlm.data.corpus", "def run():\n    from charlm.families.lookup import corpora_of"),
    ("climbs", "charlm.data.corpus.__main__", "from charlm.families.pretrained import from_pretrained"),
    ("climbs", "charlm.convert.__main__", "from charlm.finetune.run import fine_tune"),
    ("is_used_from_below", "charlm.finetune.course", "import charlm.robustness.measure"),
    ("is_used_from_below", "charlm.training.run", "from charlm.benchmark.figures import Figure"),
]


@pytest.mark.parametrize(("rule", "module", "line"), BROKEN)
def test_a_broken_rule_is_found(modules, rule, module, line):
    (found,) = imports(dict.fromkeys(modules, "") | {module: line})
    assert RULES[rule](found)


@pytest.mark.parametrize(
    ("rule", "module", "line"),
    [
        ("names_family", "charlm.training.train", "load('charlm.families.hlm.model:HLM')"),
        ("names_sibling", "charlm.families.hlm.units", "PART = 'charlm.families.charbert.batch'"),
        ("names_sibling", "charlm.families.lookup", "load('charlm.families.subword.bert:Bert')"),
        ("climbs", "charlm.core.state", "registry.load('charlm.data.records:read_record')"),
        ("climbs", "charlm.data.corpus", "load('charlm.finetune.run')"),
        ("is_used_from_below", "charlm.finetune.course", "load('charlm.robustness.measure:measure')"),
    ],
)
def test_a_place_that_breaks_a_rule_is_found(modules, rule, module, line):
    (found,) = places(dict.fromkeys(modules, "") | {module: line})
    assert RULES[rule](found)


@pytest.mark.parametrize(
    ("rule", "module", "line"),
    [
        ("names_family", "charlm.training.train", "import charlm.families as f\nmodel = f.hlm.model.HLM(config)"),
        ("names_family", "charlm.training.train", "from charlm import families\nfamilies.hlm"),
        ("names_family", "charlm.finetune.run", "from charlm import families as all\nall.charbert.batch.x()[0].y"),
        ("names_sibling", "charlm.families.hlm.units", "from charlm import families\nx: families.charbert.batch.Noisy"),
    ],
)
def test_a_module_reached_by_attributes_is_found(modules, rule, module, line):
    found = list(imports(dict.fromkeys(modules, "") | {module: line}))
    assert len([one for one in found if RULES[rule](one)]) == 1


LATE = "def run():\n    "


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("charlm.finetune.course", f"{LATE}from charlm.families.pretrained import from_pretrained"),
        ("charlm.families.family", f"{LATE}from charlm.families.pretrained import from_pretrained"),
        ("charlm.main", f"{LATE}from charlm.core.logs import start_logging"),  # needs no JAX
        ("charlm.benchmark.counts", f"{LATE}from charlm.data.corpus import prepare"),  # nor does this
        ("charlm.benchmark.cases", f"{LATE}from charlm.core.state import TrainState"),  # no part of a command
        ("charlm.benchmark.hlm", f"import jax\n{LATE}from charlm.core.state import TrainState"),  # needs it anyway
        ("charlm.data.corpus.__main__", f"{LATE}from charlm.core.logs import start_logging"),
        ("charlm.data.corpus", f"{LATE}from charlm.core.state import TrainState"),  # no command
    ],
)
def test_a_hidden_import_is_found(modules, module, text):
    changed = modules | {module: text}
    (found,) = imports(dict.fromkeys(modules, "") | {module: text})
    assert is_hidden(found, need_jax(changed))


def test_a_late_import_that_is_needed_is_none(modules):
    changed = dict.fromkeys(modules, "") | {
        "charlm.main": f"{LATE}from charlm.core.state import TrainState",
        "charlm.core.state": "from charlm.core.trees import flat",
        "charlm.core.trees": "from flax import traverse_util",
    }
    with_jax = need_jax(changed)
    assert with_jax == {"charlm.core.state", "charlm.core.trees"}
    assert [found for found in imports(changed) if found.late and is_hidden(found, with_jax)] == []


def test_a_circle_is_found():
    parts = {
        "charlm.a": "from charlm.b import x",
        "charlm.b": "if TYPE_CHECKING:\n    from charlm.c import y",
        "charlm.c": "def late():\n    import charlm.a",
        "charlm.d": "import charlm.a",
    }
    assert circles(parts) == [["charlm.a", "charlm.b", "charlm.c"]]


ENTRY_POINTS = ("charlm.noises", "charlm.tasks", "charlm.fusions", "charlm.families")  # groups, which are no modules


def names_in(text: str) -> set[str]:
    """Every name that a module defines, imports or uses."""
    found = set()
    for node in nodes_of(text):
        for field in ("name", "id", "attr", "arg", "asname"):
            found.add(getattr(node, field, None))
    return {name for name in found if isinstance(name, str)}


def missing_quotes(modules: Mapping[str, str], text: str) -> list[str]:
    """Returns the modules and names of charlm that a text quotes (`charlm.nn.embed.dense`) and that do not exist."""
    found = []
    for quoted in re.findall(r"`(charlm(?:\.\w+)+)`", text):
        parts = quoted.split(".")
        module = next(m for m in (".".join(parts[:n]) for n in range(len(parts), 0, -1)) if m in modules)
        if not names_in(modules[module]).issuperset(parts[module.count(".") + 1 :]) and quoted not in ENTRY_POINTS:
            found.append(quoted)
    return found


def test_modules_and_names_that_texts_quote_exist(modules):
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    texts = modules | {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}
    assert [f"{where}: {name}" for where, text in texts.items() for name in missing_quotes(modules, text)] == []


def test_a_quoted_name_that_does_not_exist_is_found(modules):
    text = "`charlm.core.state.TrainState`, `charlm.cache.WordCache` and `charlm.core.state.Gone`"
    assert missing_quotes(modules, text) == ["charlm.cache.WordCache", "charlm.core.state.Gone"]


# How a docstring says when its module is for the reader: "Open it to ...", "use it in ...", or how a command is run.
WHEN = re.compile(r"(?i)\bopen (it|this)\b|(^|[.;:] )(use|read|run|import) (it|this|these)\b|python -m charlm")


def says_when(text: str) -> bool:
    """Whether a module's docstring says when to open, use or run the module."""
    return bool(WHEN.search(" ".join((ast.get_docstring(tree_of(text)) or "").split())))


def test_every_module_says_what_it_is_for(modules):
    said = {module: ast.get_docstring(tree_of(text)) or "" for module, text in modules.items()}
    assert [module for module, text in said.items() if len(text.split()) < 12] == []


def test_every_module_says_when_to_open_it(modules):
    packages = {module.rpartition(".")[0] for module in modules}  # these say with which of their modules to begin
    assert [module for module, text in modules.items() if module not in packages and not says_when(text)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Draws masks. The loop calls it; open it to\nchange the rate.", True),
        ("Names of heads. Use these constants in all code.", True),
        ("Encodes text:\n\n    python -m charlm.data.corpus --config=configs/hlm_base.py", True),
        ("Draws masks. The loop and the predictor use it.", False),
        ("Opens items of a corpus, which nobody should open.", False),
    ],
)
def test_a_docstring_that_does_not_say_when_is_found(text, expected):
    assert says_when(f'"""{text}"""') is expected
