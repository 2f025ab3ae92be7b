"""The options that a family adds to fine-tuning, `charlm.predict` and `charlm.convert`. Open it to add one.

A `Family` (`charlm.families.family`) lists its options by name. Nothing here needs JAX, so that help texts can list the
options: the functions behind them are named by their places, "module:name", and imported when they are first used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from charlm.core.entries import is_line, problem_of
from charlm.core.keys import Key, problem_of_key, problem_of_name
from charlm.core.registry import NAME_RULE

# Names that no family may give to an option: fields of many families' models and keys `model.NAME` of fine-tuning,
# options of `charlm.convert import` and `export`, and options of `charlm.predict`.
_FIELDS = ("attention_dropout", "attention_kernel", "compat_reference", "dropout", "dtype", "embed_dropout",
           "label_head", "remat", "scan_layers")  # fmt: skip
_CONVERT = ("checkpoint", "command", "dtype", "family", "head", "help", "input", "output")
_PREDICT = ("any", "batch_size", "checkpoint", "command", "context", "file", "format", "help", "language", "length",
            "max_new", "no_start", "pair", "query", "seed", "sentence_only", "splitter", "stats", "temperature", "text",
            "threshold", "top", "top_k", "top_p", "total_only", "unit", "words")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PredictOption:
    """An option --NAME of `python -m charlm.predict` for the commands that read texts.

    Attributes:
      name: its name, without dashes.
      help: its line in the help text.
      needs: says, in an error message, which kind of model has the option and for what.
    """

    name: str
    help: str
    needs: str


@dataclasses.dataclass(frozen=True)
class ModelOption:
    """A field that only the configs of some families' models have, and that users may change as they load a model.

    A field means the same in all families that have it, so they describe it by equal objects of this class.

    Attributes:
      check: a function that raises ValueError for a wrong value of the field.
      key: the config key `model.NAME` of fine-tuning that sets the field NAME. Its default leaves the field as the
        model says. None: fine-tuning does not set the field.
      resets: other options whose fields fine-tuning also sets, to the values of their keys, when it sets this one: what
        the model says of them belongs to the value that is replaced.
      predict: the option of `charlm.predict` that sets the field; None: there is none.
    """

    check: str
    key: Key | None = None
    resets: tuple[str, ...] = ()
    predict: PredictOption | None = None

    def problem(self) -> str:
        """Returns what is wrong with the option; "": nothing."""
        if problem := problem_of(self.check):
            return f"check={self.check!r}: {problem}"
        if self.key is not None and (problem := problem_of_key(self.key)):
            return f"key: {problem}"
        if not isinstance(self.resets, tuple):
            return f"resets={self.resets!r}, expected a tuple of names of options"
        flag = self.predict
        if flag is None:
            return ""
        if not isinstance(flag, PredictOption):
            return f"predict={flag!r}, expected a charlm.register.PredictOption"
        if not (isinstance(flag.name, str) and NAME_RULE.fullmatch(flag.name)) or flag.name in _PREDICT:
            return f"predict: its name {flag.name!r} is taken by charlm, or not of small letters, digits and _"
        lacks = [field for field in ("help", "needs") if not is_line(getattr(flag, field))]
        return f"predict: it lacks {lacks[0]}, a text of one line" if lacks else ""

    def agrees(self, other: ModelOption) -> bool:
        """Returns whether another family may have the other option under the same name."""
        return self == other


@dataclasses.dataclass(frozen=True)
class ImportOption:
    """An option of `python -m charlm.convert import` for PyTorch weights, an argument of the family's `Converter.read`.

    Attributes:
      help: its line in the help text; those of families that share an option are joined to one.
      default: its value if it is not given; "" for a text, 0 for a number, False for a switch.
      chooses: whether the option, if no family is named, chooses this one.
      foreign: what the option is, for the error message about a model of a family without it; "": the message says what
        tells it there instead (`Converter.tells`).
    """

    help: str
    default: bool | int | str = ""
    chooses: bool = False
    foreign: str = ""

    def problem(self) -> str:
        """Returns what is wrong with the option; "": nothing."""
        if not isinstance(self.chooses, bool):
            return f"chooses={self.chooses!r}, expected True or False"
        if self.foreign != "" and not is_line(self.foreign):
            return f"foreign={self.foreign!r}, expected a text of one line"
        return _problem(self.help, self.default)

    def agrees(self, other: ImportOption) -> bool:
        """Returns whether another family may have the other option under the same name."""
        return (type(self.default), self.default) == (type(other.default), other.default)


@dataclasses.dataclass(frozen=True)
class ExportForm:
    """A form in which only some families' models are written: an option of `python -m charlm.convert export`.

    Attributes:
      write: a function of a `charlm.convert.model.Model`, the new folder and the option's value that writes the model
        and returns a description of it for users.
      help: its line in the help text, which the names of the families precede.
      default: the option's value if it is not given; False for a switch, "" for a text, 0 for a number.
    """

    write: str
    help: str
    default: bool | int | str = False

    def problem(self) -> str:
        """Returns what is wrong with the form; "": nothing."""
        problem = problem_of(self.write)
        return f"write={self.write!r}: {problem}" if problem else _problem(self.help, self.default)

    def agrees(self, other: ExportForm) -> bool:
        """Returns whether another family may have the other form under the same name."""
        return (type(self.default), self.default) == (type(other.default), other.default)


def _problem(help: str, default: object) -> str:
    if not is_line(help):
        return f"help={help!r}, expected a line for the help text"
    if not (default is False or default == "" or (type(default) is int and default == 0)):
        return f"default={default!r}, expected '' for a text, 0 for a number or False for a switch"
    return ""


class HasOptions(Protocol):
    """The parts of a `Family` that are options."""

    @property
    def name(self) -> str:
        """The family's name in config files and on the command line."""
        ...

    @property
    def title(self) -> str:
        """The family's name in texts for users."""
        ...

    @property
    def options(self) -> Mapping[str, ModelOption]:
        """The fields of its models that users may change as they load one, by name."""
        ...

    @property
    def label_head(self) -> Key | None:
        """The key `model.label_head` of fine-tuning; None: the head for labels has no variants."""
        ...

    @property
    def imports(self) -> Mapping[str, ImportOption]:
        """The options of `charlm.convert import` that only some families have, by name."""
        ...

    @property
    def exports(self) -> Mapping[str, ExportForm]:
        """The forms in which `charlm.convert export` writes its models, by name."""
        ...


def check_options(added: HasOptions, others: Sequence[HasOptions]) -> None:
    """Checks the options that a family adds; an option that other families have, too, must be the same there.

    Raises:
      ValueError: an option has a wrong type, a wrong part or a name that is taken.
    """
    where = f"family {added.name!r}"
    for part, kind, taken in (
        ("options", ModelOption, _FIELDS), ("imports", ImportOption, _CONVERT), ("exports", ExportForm, _CONVERT),
    ):  # fmt: skip
        for name, option in getattr(added, part).items():
            place = f"{where}: {part}[{name!r}]"
            if not (isinstance(name, str) and NAME_RULE.fullmatch(name)):
                raise ValueError(f"{place}: expected a name of small letters, digits and _")
            if not isinstance(option, kind):
                raise ValueError(f"{place}: expected a charlm.register.{kind.__name__}, got {option!r}")
            if name in taken:
                raise ValueError(f"{place}: the name is taken by charlm; choose another one")
            if problem := option.problem():
                raise ValueError(f"{place}: {problem}")
            for other in others:
                if name in getattr(other, part) and not option.agrees(getattr(other, part)[name]):
                    raise ValueError(f"{place}: {other.title} has another option of that name; choose another one")
    _check_model_options(added, others)
    _check_label_head(added)


def _check_model_options(added: HasOptions, others: Sequence[HasOptions]) -> None:
    flags = {
        option.predict.name: (name, one)
        for one in others
        for name, option in one.options.items()
        if option.predict is not None
    }
    for name, option in added.options.items():
        place = f"family {added.name!r}: options[{name!r}]"
        if option.key is not None and (problem := problem_of_name(f"model.{name}")):
            raise ValueError(f"{place}: {problem}")
        for other in option.resets:
            if other not in added.options or added.options[other].key is None:
                raise ValueError(f"{place}: resets={other!r}, expected one of its options that has a key")
        if option.predict is None:
            continue
        field, owner = flags.setdefault(option.predict.name, (name, added))
        if field != name:
            raise ValueError(f"{place}: {owner.title} has another --{option.predict.name} of charlm.predict")


def _check_label_head(added: HasOptions) -> None:
    key, where = added.label_head, f"family {added.name!r}: label_head"
    if key is None:
        return
    if problem := problem_of_key(key):
        raise ValueError(f"{where}: {problem}")
    if key.default != "" or len(key.choices) < 2 or not all(isinstance(choice, str) for choice in key.choices):
        raise ValueError(f"{where}: default={key.default!r}, choices={key.choices!r}, expected '' and names of heads")


def joined(parts: Iterable[str]) -> str:
    """Returns the distinct texts of several families as one: "A", "A, or B", "A, B, or C"."""
    *first, last = dict.fromkeys(parts)
    return f"{', '.join(first)}, or {last}" if first else last
