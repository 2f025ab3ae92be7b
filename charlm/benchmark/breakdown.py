"""Breaks down the time of a run: adds up the operations of a profiler trace by part of the model.

The trace has only the compiler's names of operations; the compiled program says which module each comes from. `worker`
calls it for `--profile`; open it when parts of a model are named wrongly.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from pathlib import Path

# Modules of the models; the first one found in the name of an operation counts.
MODEL_PARTS = ("intra_word", "inter_word", "head", "embed", "encoder")
WORK_KINDS = (  # kinds of work in a layer; the first pattern found in the name of an operation counts
    ("position projections", r"/pos_(query|key)/"),
    ("projections", r"/attention/(query|key|value|output)/"),
    ("dropout", r"Dropout|bernoulli|random_bits|threefry"),
    ("scores, softmax, mixing", r"/attention/"),
    ("feed-forward", r"/ffn_(in|out)/|/gelu|/erf"),
    ("LayerNorm", r"_norm/|/norm/"),
)
_INSTRUCTION = re.compile(r"(?:ROOT )?%?([\w.\-]+) = .*?metadata=\{.*?op_name=\"([^\"]*)\"")


def part_of(operation: str) -> str:
    """Returns the part of the model to which an operation belongs, by its full name."""
    # Flax writes a module as "name", or as "name.method" if a method other than __call__ was called.
    level = next((level for level in MODEL_PARTS if re.search(rf"[/(]{level}[./)]", operation)), "")
    if not level:
        return "outside the modules"  # lookups, losses, the optimizer
    # An operation in a method of a module has a name such as "attention/attention._project/query"; count it as the
    # module's.
    operation = re.sub(r"/(\w+)/\1\.\w+/", r"/\1/", operation)
    kind = next((kind for kind, pattern in WORK_KINDS if re.search(pattern, operation)), "other")
    backward = ", backward" if "transpose(" in operation else ""
    return f"{level}: {kind}{backward}"


def breakdown(trace: Path, program: str) -> dict[str, float]:
    """Returns milliseconds by part of the model, largest first; times on several threads are added up.

    Args:
      trace: the folder that `jax.profiler.trace` wrote.
      program: the text of the compiled program that ran.
    """
    found_in = (match for line in program.splitlines() if (match := _INSTRUCTION.search(line)))
    names: dict[str, str] = {match[1]: match[2] for match in found_in}
    found: Counter[str] = Counter()
    for file in trace.rglob("*.trace.json.gz"):
        if file.name == "perfetto_trace.json.gz":
            continue
        for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]:
            operation = event.get("args", {}).get("hlo_op")
            if event.get("ph") == "X" and operation is not None:
                found[part_of(names.get(operation, ""))] += event["dur"] / 1e3
    return {part: round(milliseconds, 2) for part, milliseconds in found.most_common()}


def table(parts: dict[str, float]) -> str:
    """Returns the parts with their shares, one line for each part."""
    total = sum(parts.values()) or 1.0
    lines = [f"{100 * value / total:5.1f} %  {value:10.1f} ms  {part}" for part, value in parts.items()]
    return "\n".join(lines) + "\n"
