"""Converts weights to and from PyTorch: the models of the papers' authors and those of transformers.

python -m charlm.convert import --family=hlm --input=pytorch_model.bin --output=imported
python -m charlm.convert import --family=bert --input=bert-base-multilingual-cased --output=mbert
python -m charlm.convert import --input=charbert-bert-wiki --char-vocab=bert_char_vocab --output=charbert
python -m charlm.convert import --input=xrayemb.pt --backbone=bert-base-cased --char-vocab=chars.txt --output=xray
python -m charlm.convert export --family=hlm --checkpoint=runs/hlm --output=exported
python -m charlm.convert export --checkpoint=runs/c2s --output=small --table-free
python -m charlm.convert export --checkpoint=runs/c2s --output=torch --words=words.txt
python -m charlm.convert export --checkpoint=runs/xray --output=bert --backbone-only
python -m charlm.convert average --checkpoint runs/tags0 runs/tags1 runs/tags2 --output=runs/tags
python -m charlm.convert inspect --family=hlm --input=pytorch_model.bin
python -m charlm.convert check --family=hlm --golden-dir=tests/goldens/hlm
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from charlm.core.called_as import program
from charlm.core.command_parser import Parser
from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.core.trained import DTYPES
from charlm.families.family import FAMILIES, Family, families, family
from charlm.families.options import ExportForm, ImportOption, joined

if TYPE_CHECKING:
    from charlm.convert.model import Converter

Value = bool | int | str  # of an option that a family brings


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=program("charlm.convert"), description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    bring = commands.add_parser("import", help="convert a PyTorch state dict to a charlm checkpoint")
    export = commands.add_parser("export", help="convert a charlm checkpoint to a PyTorch state dict")
    mean = commands.add_parser("average", help="the mean of the weights of models that were fine-tuned alike")
    inspect = commands.add_parser("inspect", help="list the tensors of a state dict, and what they become in charlm")
    check = commands.add_parser("check", help="compare charlm's model with arrays that the authors' code computed")
    for command in (bring, export, inspect, check):
        says = "configs or tensors of the cases say" if command is check else "config or checkpoint says"
        command.add_argument("--family", choices=tuple(FAMILIES), help=f"default: the one the {says}")
    for command in (bring, inspect):
        command.add_argument("--input", required=True, help=".safetensors, .bin or .pt file, *.index.json, or a folder")
        command.add_argument(
            "--head",
            default="",
            help="the head to read; hlm: what has the labels, if tensor names do not tell (default: sequences)",
        )
    for command in (bring, export, mean):
        command.add_argument("--output", required=True, help="folder to create")
    mean.add_argument(
        "--checkpoint",
        required=True,
        nargs="+",
        help="two or more models, such as runs with other seeds; all but the weights is the first one's",
    )
    for name, imports in _imports().items():
        _add(bring, name, imports[0].default, joined(option.help for option in imports))
    export.add_argument(
        "--checkpoint",
        required=True,
        help="workdir of a run, one checkpoint, or the name of a trained model",
    )
    export.add_argument(
        "--dtype", choices=DTYPES, default="float32", help="what the weights are rounded to (default: %(default)s)"
    )
    how = export.add_mutually_exclusive_group()
    for name, forms in _forms().items():
        _add(how, name, forms[0][1].default, joined(f"{one.name}: {form.help}" for one, form in forms))
    check.add_argument("--golden-dir", required=True, help="folder of cases: NAME.json, NAME.safetensors, NAME.npz")
    check.add_argument("--atol", type=float, help="largest absolute error (default: that of the family)")
    return parser


def _imports() -> dict[str, list[ImportOption]]:
    """Returns the options of `import` by name, each as every family that has it describes it."""
    found: dict[str, list[ImportOption]] = {}
    for one in families():
        for name, option in one.imports.items():
            found.setdefault(name, []).append(option)
    return found


def _forms() -> dict[str, list[tuple[Family, ExportForm]]]:
    """Returns the forms of `export` by name, each with the families that have it."""
    found: dict[str, list[tuple[Family, ExportForm]]] = {}
    for one in families():
        for name, form in one.exports.items():
            found.setdefault(name, []).append((one, form))
    return found


def _add(command: argparse._ActionsContainer, name: str, default: Value, text: str) -> None:
    """Adds an option that a family brings; the type of its default says which values it takes."""
    text = text.replace("%", "%%")
    if isinstance(default, bool):
        command.add_argument(_flag(name), action="store_true", help=text)
    else:
        command.add_argument(_flag(name), type=type(default), default=default, help=text)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given(args: argparse.Namespace, defaults: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the options that the command line sets, among those with defaults; {} for commands without them."""
    values = {name: getattr(args, name, default) for name, default in defaults.items()}
    return {name: value for name, value in values.items() if value != defaults[name]}


def _given_imports(args: argparse.Namespace) -> dict[str, Value]:
    return _given(args, {name: options[0].default for name, options in _imports().items()})


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    args = _parser().parse_args(argv)
    start_logging()
    return run_command(lambda: _run(args), "set JAX_PLATFORMS=cpu: converting needs memory, no accelerator")


def _run(args: argparse.Namespace) -> int:
    check_options(vars(args), needed=("input", "output", "checkpoint", "golden_dir"))
    # Imported late, so that --help and wrong options do not import jax.
    if args.command == "check":
        from charlm.convert import golden
        from charlm.families.lookup import recognise_cases

        cases = family(args.family or recognise_cases(args.golden_dir).name).get_golden()
        atol = cases.ATOL if args.atol is None else args.atol
        return golden.check(cases.outputs, args.golden_dir, atol, cases.find_cases)
    if args.command == "average":
        from charlm.families.averaging import average

        print(average(args.checkpoint, args.output))
        return 0
    converter = _converter(args)
    if args.command == "inspect":
        for line in converter.inspect(args.input, args.head):
            print(line)
    else:
        print(_import(args, converter) if args.command == "import" else _export(args, converter))
    return 0


def _converter(args: argparse.Namespace) -> Converter:
    """Returns the converter of the family named on the command line, or else recognised from the input."""
    from charlm.core import checkpoint as checkpoints
    from charlm.families.lookup import converter_of, recognise
    from charlm.families.stored import family_of, metadata_of

    if args.family:
        return converter_of(args.family)
    if args.command == "export":
        metadata = metadata_of(checkpoints.find(args.checkpoint), tuple(FAMILIES))
        return converter_of(family_of(metadata))
    given = _given_imports(args)
    chosen = [one for one in families() if any(one.imports[name].chooses for name in given if name in one.imports)]
    if chosen:  # several: the one that has most of the options
        return converter_of(max(chosen, key=lambda one: len(given.keys() & one.imports)).name)
    return recognise(args.input)


def _import(args: argparse.Namespace, converter: Converter) -> str:
    import jax

    from charlm.convert.files import new_folder

    given = _given_imports(args)
    _check_imports(given, converter)
    with new_folder(args.output) as folder:
        model = converter.read(args.input, args.head, **given)
        converter.save(model, folder)
        tensors = len(converter.target(model.metadata, str(model.source)).table)
    size, head = sum(leaf.size for leaf in jax.tree.leaves(model.params)), converter.head_of(model.metadata)
    about = f"{converter.title}, {head.replace('_', ' ')}, {size:,} parameters of {tensors} tensors"
    return f"{args.output}: {about} from {model.source}"


def _check_imports(given: Mapping[str, Value], converter: Converter) -> None:
    """Raises ValueError for options that the converter's family does not have, and for negative numbers."""
    for name, value in given.items():
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{_flag(name)}={value}: expected a positive number")
    options, own = _imports(), family(converter.name).imports
    foreign = [name for name in given if name not in own]
    for name in foreign:
        if means := next((option.foreign for option in options[name] if option.foreign), ""):
            raise ValueError(f"{_flag(name)}: not for {converter.title}; {means}")
    if foreign:
        owners = [one.title for one in families() if foreign[0] in one.imports]
        tells = converter.tells or f"{' and '.join(owners)} {'has' if len(owners) == 1 else 'have'} it"
        raise ValueError(f"{', '.join(map(_flag, foreign))}: not for {converter.title}; {tells}")


def _export(args: argparse.Namespace, converter: Converter) -> str:
    from charlm.convert.files import new_folder
    from charlm.core import checkpoint as checkpoints
    from charlm.families.stored import metadata_of

    forms = _forms()
    if form := next(iter(_given(args, {name: found[0][1].default for name, found in forms.items()})), ""):
        if form not in family(converter.name).exports:
            raise ValueError(
                f"{_flag(form)}: expected a model of the kind {' or '.join(one.title for one, _ in forms[form])}, got "
                f"a {converter.title}"
            )
        if args.dtype != "float32":
            raise ValueError(f"--dtype={args.dtype}: not with {_flag(form)}, which writes float32")
        return _export_form(args, converter, form)
    with new_folder(args.output) as folder:
        source = checkpoints.find(args.checkpoint)
        metadata = metadata_of(source, [converter.name])
        tensors = converter.export_checkpoint(source, metadata, folder, args.dtype)
    head = converter.head_of(metadata).replace("_", " ")
    return f"{args.output}: {converter.title}, {head}, {tensors} tensors, from {source}"


def _export_form(args: argparse.Namespace, converter: Converter, form: str) -> str:
    """Writes a model in a form that only some families have (`Family.exports`); returns the line to print."""
    from charlm.convert.files import new_folder
    from charlm.core import checkpoint as checkpoints
    from charlm.families.stored import metadata_of

    source = checkpoints.find(args.checkpoint)
    with new_folder(args.output) as folder:
        model = converter.load(source, metadata_of(source, [converter.name]))
        written = family(converter.name).write_form(form, model, folder, getattr(args, form))
    return f"{args.output}: {written}, from {source}"


if __name__ == "__main__":
    sys.exit(main())
