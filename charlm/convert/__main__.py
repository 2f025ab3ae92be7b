"""Weights to and from PyTorch: the authors' code of HLM and CharBERT; BERT, RoBERTa and GPT-2 of transformers.

python -m charlm.convert import --family=hlm --input=pytorch_model.bin --output=imported
python -m charlm.convert import --family=bert --input=bert-base-multilingual-cased --output=mbert
python -m charlm.convert import --input=charbert-bert-wiki --char-vocab=bert_char_vocab --output=charbert
python -m charlm.convert import --input=xrayemb.pt --backbone=bert-base-cased --char-vocab=chars.txt --output=xray
python -m charlm.convert export --family=hlm --checkpoint=runs/hlm --output=exported
python -m charlm.convert export --checkpoint=runs/c2s --output=small --table-free
python -m charlm.convert export --checkpoint=runs/c2s --output=torch --words=words.txt
python -m charlm.convert export --checkpoint=runs/xray --output=bert --backbone-only
python -m charlm.convert inspect --family=hlm --input=pytorch_model.bin
python -m charlm.convert check --family=hlm --golden-dir=tests/goldens/hlm
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from charlm.core.commands import run_command
from charlm.core.local_paths import check_options
from charlm.core.logs import start_logging
from charlm.families.family import FAMILIES, families, family, load

if TYPE_CHECKING:
    from charlm.convert.model import Converter

FORMS = ("table_free", "words", "backbone_only")  # options of `export` that write the model in another form


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m charlm.convert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    bring = commands.add_parser("import", help="a state dict of theirs becomes a checkpoint of ours")
    export = commands.add_parser("export", help="a checkpoint of ours becomes a state dict of theirs")
    inspect = commands.add_parser("inspect", help="the tensors of a state dict, and what they are in ours")
    check = commands.add_parser("check", help="our model compared with arrays that the authors' code computed")
    for command in (bring, export, inspect, check):
        command.add_argument("--family", choices=tuple(FAMILIES), help="default: the one the config or checkpoint says")
    for command in (bring, inspect):
        command.add_argument("--input", required=True, help=".safetensors, .bin or .pt file, *.index.json, or a folder")
        command.add_argument(
            "--head",
            default="",
            help="the head to read; for hlm what the labels are of, where names do not tell (default: of sequences)",
        )
    for command in (bring, export):
        command.add_argument("--output", required=True, help="folder to make")
    bring.add_argument(
        "--model-config", default="", help="JSON of the model; default: config_model.json or config.json"
    )
    bring.add_argument(
        "--char-vocab",
        default="",
        help="JSON of HLM's characters (default: char_vocab.json, or released), CharBERT's file, one a line, or "
        "XRayEmb's chars.txt (default: the one beside the tensors)",
    )
    bring.add_argument("--heads", type=int, default=0, help="attention heads; default: those of the released code")
    bring.add_argument(
        "--backbone", default="", help="xrayemb: the BERT, RoBERTa or GPT-2 that the released code's tensors go on"
    )
    export.add_argument("--checkpoint", required=True, help="workdir of a run, or one checkpoint")
    how = export.add_mutually_exclusive_group()
    how.add_argument(
        "--table-free",
        action="store_true",
        help="char2subword: a checkpoint of ours without the table of subwords, for full mode",
    )
    how.add_argument(
        "--words",
        default="",
        help="char2subword: file of words, one a line: what transformers reads as a BERT with a row a word",
    )
    how.add_argument(
        "--backbone-only",
        action="store_true",
        help="xrayemb: its BERT, RoBERTa or GPT-2 alone, which reads no characters, for transformers and import",
    )
    check.add_argument("--golden-dir", required=True, help="folder of cases: NAME.json, NAME.safetensors, NAME.npz")
    check.add_argument("--atol", type=float, help="largest absolute error (default: what suits the family)")
    return parser


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

        cases = family(args.family or "hlm").get_golden()
        atol = cases.ATOL if args.atol is None else args.atol
        return golden.check(cases.outputs, args.golden_dir, atol, cases.find_cases)
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
    from charlm.families.registry import converter_of, recognise

    if args.family or getattr(args, "backbone", ""):
        return converter_of(args.family or "xrayemb")
    if args.command == "export":
        metadata = checkpoints.read_metadata(checkpoints.find(args.checkpoint), tuple(FAMILIES))
        return converter_of(checkpoints.family_of(metadata))
    return converter_of("hlm") if getattr(args, "model_config", "") else recognise(args.input)


def _import(args: argparse.Namespace, converter: Converter) -> str:
    import jax

    from charlm.convert.files import new_folder

    if args.heads < 0:
        raise ValueError(f"--heads={args.heads}: expected a positive number")
    if args.backbone and converter.name != "xrayemb":
        raise ValueError(f"--backbone: not for {converter.title}; it is what the tensors of XRayEmb go on")
    given = {"model_config": args.model_config, "char_vocab": args.char_vocab, "heads": args.heads,
             "backbone": args.backbone}  # fmt: skip
    with new_folder(args.output) as folder:
        model = converter.read(args.input, args.head, **{name: value for name, value in given.items() if value})
        converter.save(model, folder)
        tensors = len(converter.target(model.metadata, str(model.source)).table)
    size, head = sum(leaf.size for leaf in jax.tree.leaves(model.params)), converter.head_of(model.metadata)
    about = f"{converter.title}, {head.replace('_', ' ')}, {size:,} parameters of {tensors} tensors"
    return f"{args.output}: {about} from {model.source}"


def _export(args: argparse.Namespace, converter: Converter) -> str:
    from charlm.convert.files import new_folder
    from charlm.core import checkpoint as checkpoints

    if form := next((name for name in FORMS if getattr(args, name)), ""):
        return _export_form(args, converter, form)
    with new_folder(args.output) as folder:
        source = checkpoints.find(args.checkpoint)
        metadata = checkpoints.read_metadata(source, [converter.name])
        tensors = converter.export_checkpoint(source, metadata, folder)
    head = converter.head_of(metadata).replace("_", " ")
    return f"{args.output}: {converter.title}, {head}, {tensors} tensors, from {source}"


def _export_form(args: argparse.Namespace, converter: Converter, form: str) -> str:
    """Writes a model in a form that only its family has (`FORMS`); returns the line to print."""
    from charlm.convert.files import new_folder
    from charlm.core import checkpoint as checkpoints

    own = family(converter.name)
    if form not in own.exports:
        able = next(one.title for one in families() if form in one.exports)
        raise ValueError(f"--{form.replace('_', '-')}: expected a model of the kind {able}, got a {converter.title}")
    write, value = load(own.exports[form]), getattr(args, form)
    source = checkpoints.find(args.checkpoint)
    with new_folder(args.output) as folder:
        model = converter.load(source, checkpoints.read_metadata(source, [converter.name]))
        written = write(model, folder, value)
    return f"{args.output}: {written}, from {source}"


if __name__ == "__main__":
    sys.exit(main())
