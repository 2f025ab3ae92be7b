"""Writes the page beside an exported model, which says how it is used without charlm.

The tests run its programs. Open it to change what users are told.
"""

from __future__ import annotations

from charlm.core.types import JsonObject
from charlm.export.program import Program
from charlm.families.arrays import PADDED

STABLEHLO = """\
import jax
import numpy as np
from jax import export

program = export.deserialize(bytearray(open(f"{folder}/model.stablehlo", "rb").read()))
weights = jax.device_put(dict(np.load(f"{folder}/weights.npz")))
run = jax.jit(lambda arrays: program.call(weights, arrays))

example = np.load(f"{folder}/example.npz")  # arrays of two texts, and what charlm computes for them
outputs = run({name: example[name] for name in names})
print({name: float(np.nanmax(np.abs(found - example[name]))) for name, found in outputs.items()})"""

_READING = """\
import json

reading = json.load(open(f"{folder}/program.json"))["reading"]


"""
_HEAD = """\
# {title}

{what}, written by charlm {version}. It is used without charlm: `pip install jax flatbuffers`.

| file | what it is |
|---|---|
{files}

```python
folder, names = ".", {names}

{code}
```

The last line shows how far the outputs are from charlm's: about 1e-6 on processors; a TPU multiplies in bfloat16 unless
`jax_default_matmul_precision` is "highest". Compile once for each shape: round the sizes of arrays up, padding costs
time only.

## Arrays

All are int32. Sizes with names may be any number ({bounds}) and are the same in all arrays.

| input | shape | what it holds |
|---|---|---|
{inputs}

| output | shape | what it holds |
|---|---|---|
{outputs}
"""
_MEANINGS = {
    "vectors": "the vector of each position, as charlm's `encode` returns them before it leaves out special ones",
    "logits": "float32",
    "probabilities": "the softmax of the logits over the labels",
}


def page(program: Program, what: str, files: dict[str, str], code: str) -> str:
    """Returns the page as Markdown.

    Args:
      what: what was written, such as "A program for JAX".
      files: what each file is.
      code: a Python program that runs the model on the example; `folder` and `names` are defined before it.
    """
    shape = lambda axes: "[" + ", ".join(map(str, axes)) + "]"
    text = _HEAD.format(
        title=program.title,
        what=what,
        version=program.about["charlm"],
        files="\n".join(f"| `{name}` | {told} |" for name, told in files.items()),
        names=[one.name for one in program.arrays.inputs],
        code=code,
        bounds=", ".join(program.arrays.bounds),
        inputs="\n".join(f"| `{one.name}` | {shape(one.axes)} | {one.meaning} |" for one in program.arrays.inputs),
        outputs="\n".join(
            f"| `{one['name']}` | {shape(one['axes'])} | {_meaning(one, program)} |" for one in program.about["outputs"]
        ),
    )
    return text + _texts(program)


def _meaning(output: JsonObject, program: Program) -> str:
    name, labels = output["name"], program.about["labels"]
    if name == "logits" and labels and len(labels) <= 30:
        of_positions = "; of every position, special tokens such as [CLS] among them: a word has those of its first one"
        return f"of {', '.join(labels)}{of_positions if 'length' in output['axes'] else ''}"
    return _MEANINGS[name]


def _texts(program: Program) -> str:
    """Returns the part about making arrays from text."""
    arrays = program.arrays
    if not arrays.recipe:
        return f"\n## From texts to arrays\n\n`reading` in `program.json`; {arrays.texts}.\n"
    code = f"{_READING}{PADDED}\n\n{arrays.recipe}"
    return f"\n## From texts to arrays\n\n`arrays_of` takes {arrays.texts}.\n\n```python\n{code}\n```\n"
