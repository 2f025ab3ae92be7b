"""What tells one family of Hugging Face models from another: names of tensors, keys of the config, heads.

A family is one `Layout`, a table read in both directions; `charlm.families.subword.conversion` does the work with any
of them.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from charlm.convert.abstract import abstract_params
from charlm.convert.files import Tensor
from charlm.convert.heads import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.convert.rules import Entry, Leave, Rule, build_table

ARCHITECTURES = {  # how the names of their classes with a head for labels end
    SEQUENCE_CLASSIFICATION: "ForSequenceClassification",
    TOKEN_CLASSIFICATION: "ForTokenClassification",
    QUESTION_ANSWERING: "ForQuestionAnswering",
}
LABELS_MAX = 2**16  # labels of a head: more is a mistake
LAYERS = 1000  # the most a model may have: each is compiled on its own
ABSENT = object()  # a key of the config that has no default
OLD_NAMES = ((".gamma", ".weight"), (".beta", ".bias"))  # of LayerNorms, in files made from TensorFlow's
WRAPPER = "module."  # what DataParallel puts before every name


class Key(NamedTuple):
    """A key of their config: our field, its value where theirs is absent, its least (0.0: a rate) and its most."""

    ours: str
    default: Any = ABSENT
    least: float = 1
    most: int = 2**24  # more is a mistake, and would be noticed only when the memory is full


@dataclasses.dataclass(frozen=True)
class Head:
    """A model of the family.

    Attributes:
      architecture: the class of theirs that has exactly these tensors, without the name of the family.
      sign: a tensor that only files with this head hold; "" for none.
      fields: fields of our config that it decides.
      build: our module of a config.
      rules: the table of names.
      leave: tensors that may be in the file and are not imported.
      labels: the tensor whose rows are labels; `build` then takes their number, too. "": the head has none.
    """

    architecture: str
    sign: str
    fields: dict[str, Any]
    build: Callable[..., nn.Module]
    rules: list[Rule]
    leave: list[Leave]
    labels: str = ""


def _one_token(model: nn.Module) -> tuple[np.ndarray]:
    return (np.zeros((1, 1), np.int32),)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A family of Hugging Face models.

    Attributes:
      name: of the family.
      model_types: what their config may say, and the name in their classes; the first is that of one that is silent.
      prefix: of the encoder's tensors, which a file of the encoder alone leaves out.
      outside: prefixes of tensors that are not the encoder's.
      config: our dataclass. keys: their key -> ours. activation: the key of the activation.
      activations: their name -> ours.
      fixed: their key -> the only value our model can represent, and why.
      heads: by name, in the order in which a file is asked for their signs.
      derive: their config and our fields so far -> our fields, where one key does not decide one field.
      smallest: of a model -> the smallest inputs that it may be called with, as `abstract_params` takes it.
    """

    name: str
    model_types: dict[str, str]
    prefix: str
    outside: tuple[str, ...]
    config: type
    keys: dict[str, Key]
    activation: str
    activations: dict[str, str]
    fixed: dict[str, tuple[Any, str]]
    heads: dict[str, Head]
    derive: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]] = lambda theirs, ours: ours
    smallest: Callable[[nn.Module], tuple[Any, ...]] = _one_token

    def find_head(self, names: Iterable[str], where: str, wanted: str = "", architectures: Sequence[str] = ()) -> str:
        """Returns which head a file with these canonical names has.

        Args:
          wanted: the head asked for; "": the one the file holds.
          architectures: their classes that the config names, where one name of a tensor serves several heads.

        Raises:
          ValueError: when it lacks the one that is wanted, or the family has none of that name.
        """
        held = set(names)
        if not wanted:
            known = {kind + head.architecture: name for name, head in self.heads.items() for kind in self.kinds}
            said = [known[name] for name in architectures if name in known]
            if said and self.heads[said[0]].labels in held:
                return said[0]
        if wanted and wanted not in self.heads:
            raise ValueError(f"head={wanted} is not one of {', '.join(self.heads)}")
        if wanted and (sign := self.heads[wanted].sign) and sign not in held:
            raise ValueError(f"head={wanted}: {where} does not hold {sign}")
        return wanted or next(name for name, head in self.heads.items() if not head.sign or head.sign in held)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The name of the family in the names of their classes."""
        return tuple(self.model_types.values())

    def canonical(self, state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Returns the state under the names of `rules`: today's, with the prefix.

        Raises:
          ValueError: when two tensors get one name.
        """
        names: dict[str, str] = {}
        for name in state:
            new = name.removeprefix(WRAPPER)
            for old, today in OLD_NAMES:
                new = new.removesuffix(old) + today if new.endswith(old) else new
            new = new if new.startswith((self.prefix, *self.outside)) else self.prefix + new
            if new in names:
                raise ValueError(f"{where} holds both {names[new]} and {name}, which are the same tensor {new}")
            names[new] = name
        return {new: state[name] for new, name in names.items()}

    def from_theirs(self, theirs: Mapping[str, Any], head: str, where: str) -> Any:
        """Returns our config for one of theirs.

        Raises:
          ValueError: naming the key and the value that our model cannot represent, or every key that is missing.
        """
        self.check_type(theirs, where)
        missing = [key for key, known in self.keys.items() if known.default is ABSENT and theirs.get(key) is None]
        if missing:
            raise ValueError(f"{where} lacks {', '.join(missing)}: is it the config of a {self.name} model?")
        for key, (only, reason) in self.fixed.items():
            if theirs.get(key, only) not in (only, None):
                raise ValueError(f"{where}: {key}={theirs[key]!r} cannot be imported, only {only!r}: {reason}")
        ours: dict[str, Any] = {}
        for key, known in self.keys.items():
            value = known.default if theirs.get(key) is None else theirs[key]
            if value is not None:
                ours[known.ours] = _number(value, known, f"{where}: {key}")
        default = next(field.default for field in dataclasses.fields(self.config) if field.name == "activation")
        activation = theirs.get(self.activation, default)
        if not isinstance(activation, str) or activation not in self.activations:
            near = difflib.get_close_matches(str(activation), self.activations, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(
                f"{where}: {self.activation}={activation!r} is not one of {', '.join(self.activations)}{hint}"
            )
        ours["activation"] = self.activations[activation]
        try:
            return self.config(**self.derive(theirs, ours), **self.heads[head].fields)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def check_type(self, theirs: Mapping[str, Any], where: str) -> None:
        """Checks that the config is one of this family.

        Raises:
          ValueError: naming the family it says it is of.
        """
        said = theirs.get("model_type")
        if said is not None and not (isinstance(said, str) and said in self.model_types):
            raise ValueError(f"{where}: model_type={said!r} is not a model of the family {self.name}; see --family")

    def to_theirs(self, config: Any, head: str, original: Mapping[str, Any]) -> dict[str, Any]:
        """Returns their config for ours: `original` with every key that our config decides, and the architecture."""
        theirs = {key: value for key, value in original.items() if key not in ("torch_dtype", "transformers_version")}
        theirs.setdefault("model_type", next(iter(self.model_types)))
        follow = [key for key, known in self.keys.items() if known.default is None and theirs.get(key) is None]
        theirs |= {key: getattr(config, known.ours) for key, known in self.keys.items() if key not in follow}
        if self.activations.get(str(theirs.get(self.activation))) != config.activation:
            theirs[self.activation] = config.activation
        implied = self.from_theirs(theirs, head, "")
        for key in follow:  # from other keys, unless they say something else
            ours = self.keys[key].ours
            if getattr(implied, ours) != getattr(config, ours):
                theirs[key] = getattr(config, ours)
        architecture = self.model_types[theirs["model_type"]] + self.heads[head].architecture
        return theirs | {"architectures": [architecture], "dtype": "float32"}

    def target(self, config: Any, head: str, labels: int = 0) -> tuple[nn.Module, Any, dict[str, Entry]]:
        """Returns our model of a config, its abstract parameters, and the table of names; computes nothing.

        Args:
          labels: how many the head has, if it has some.
        """
        model = self.heads[head].build(config, labels) if self.heads[head].labels else self.heads[head].build(config)
        params = abstract_params(model, self.smallest)
        return model, params, build_table(self.rules_of(config, head, params), params)

    def rules_of(self, config: Any, head: str, params: Any) -> list[Rule]:
        """Returns the rules of a head, for a model of a config with those parameters."""
        return self.heads[head].rules


def _number(value: Any, key: Key, what: str) -> Any:
    """Returns a whole number from `least` to `most`, or where `least` is 0.0 a number in [0, 1)."""
    whole, kind = isinstance(key.least, int), int if isinstance(key.least, int) else int | float
    fits = isinstance(value, kind) and (key.least <= value <= key.most if whole else 0 <= value < 1)
    if isinstance(value, bool) or not fits:
        expected = f"a whole number from {key.least} to {key.most}" if whole else "a number in [0, 1)"
        raise ValueError(f"{what}={value!r}, expected {expected}")
    return value if whole else float(value)


def config_to_dict(config: Any) -> dict[str, Any]:
    """Returns a config of ours as JSON-able fields, those of a config inside it under its name."""
    inner = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    inner = {name: config_to_dict(value) for name, value in inner.items() if dataclasses.is_dataclass(value)}
    return dataclasses.asdict(config) | inner | {"dtype": jnp.dtype(config.dtype).name}


def config_from_dict(kind: type, fields: Mapping[str, Any], where: str) -> Any:
    """Returns the config with those fields; a field whose default is a config is read as one of that kind, or is None.

    Raises:
      ValueError: naming the fields that it does not have.
    """
    # What makes the default of a field: where a config is inside, its class.
    known: dict[str, Any] = {field.name: field.default_factory for field in dataclasses.fields(kind)}
    if unknown := sorted(fields.keys() - known.keys()):
        raise ValueError(f"{where}: {kind.__name__} has no {', '.join(unknown)}; was it written by a later version?")
    inner = {
        name: config_from_dict(known[name], value, f"{where}: {name}")
        for name, value in fields.items()
        if value is not None and dataclasses.is_dataclass(known[name])
    }
    return kind(**{**fields, **inner, "dtype": jnp.dtype(fields.get("dtype", "float32"))})
