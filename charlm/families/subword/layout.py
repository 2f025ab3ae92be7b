"""Describes the file format of a family of Hugging Face models: tensor names, config keys and heads.

Each family has one `Layout`, a table that is read in both directions; `charlm.families.subword.conversion` converts
models with it. "Theirs" is Hugging Face's side, "ours" is charlm's. Open it to see what a layout consists of, before
you write one for another model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from charlm.convert.abstract import abstract_params
from charlm.convert.files import Tensor
from charlm.convert.heads import QUESTION_ANSWERING, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from charlm.convert.rules import Entry, Leave, Rule, build_table
from charlm.core.nearest import ALIKE, did_you_mean
from charlm.core.types import Json, JsonObject, ModelConfig, Option, Params, Tree

ARCHITECTURES = {  # head for labels -> the ending of the names of their classes with that head
    SEQUENCE_CLASSIFICATION: "ForSequenceClassification",
    TOKEN_CLASSIFICATION: "ForTokenClassification",
    QUESTION_ANSWERING: "ForQuestionAnswering",
}
LABELS_MAX = 2**16  # most labels of a head; more are a mistake
MOST_LAYERS = 1000  # most layers of a model, since each is compiled on its own
ABSENT = object()  # marks a config key without default
OLD_NAMES = ((".gamma", ".weight"), (".beta", ".bias"))  # LayerNorm names in files converted from TensorFlow
WRAPPER = "module."  # the prefix that DataParallel adds to every name


class TheirKey(NamedTuple):
    """A key of their config: our field, its default where the key is absent, its least and its largest value.

    A `least` of 0.0 means that the value is a rate in [0, 1).
    """

    ours: str
    default: Json = ABSENT
    least: float = 1
    most: int = 2**24  # more is a mistake, which would otherwise show only when memory is full


@dataclasses.dataclass(frozen=True)
class Head:
    """A head of the family: a kind of model with certain output layers, or with none.

    Attributes:
      architecture: the name of their class that has exactly these tensors, without the name of the family.
      sign: a tensor that only files with this head hold; "" if there is none.
      fields: the fields of our config that the head decides.
      build: makes our module from a config.
      rules: the table of names.
      leave: tensors that a file may hold and that are not imported.
      labels: the tensor that has one row for each label; `build` then also takes their number. "": the head has none.
    """

    architecture: str
    sign: str
    fields: dict[str, Option]
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
      name: the name of the family.
      model_types: each `model_type` their config may have -> the name in their classes; the first is the default.
      prefix: the prefix of the encoder's tensors, which a file of only the encoder omits.
      outside: prefixes of tensors that are not the encoder's.
      config: our config dataclass.
      keys: their key -> ours.
      activation: their key of the activation.
      activations: their name of an activation -> ours.
      fixed: their key -> the only value that our model can represent, and the reason.
      heads: the heads by name, in the order in which a file is searched for their signs.
      derive: (their config, our fields so far) -> our fields, for fields that do not follow from one key.
      constants: our config -> the tensors of a file that are no parameters, see `charlm.convert.model.Target`.
      smallest: model -> the smallest inputs that it may be called with, for `abstract_params`.
    """

    name: str
    model_types: dict[str, str]
    prefix: str
    outside: tuple[str, ...]
    config: type
    keys: dict[str, TheirKey]
    activation: str
    activations: dict[str, str]
    fixed: dict[str, tuple[Json, str]]
    heads: dict[str, Head]
    derive: Callable[[Mapping[str, Json], JsonObject], JsonObject] = lambda theirs, ours: ours
    constants: Callable[[ModelConfig], Mapping[str, np.ndarray]] = lambda config: {}
    smallest: Callable[[nn.Module], tuple[Tree, ...]] = _one_token

    def find_head(self, names: Iterable[str], where: str, wanted: str = "", architectures: Sequence[str] = ()) -> str:
        """Returns the head of a file with these canonical names.

        Args:
          wanted: the requested head; "": the one the file holds.
          architectures: the classes that their config names; they decide where heads share a tensor name.

        Raises:
          ValueError: when the file lacks the requested head, or the family has no head of that name.
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
        """The names of the family in the names of their classes."""
        return tuple(self.model_types.values())

    def canonical(self, state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
        """Returns the state dict under the canonical names that `rules` use: the current names, with the prefix.

        Raises:
          ValueError: when two tensors get the same name.
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

    def from_theirs(self, theirs: Mapping[str, Json], head: str, where: str) -> ModelConfig:
        """Returns our config for one of theirs.

        Raises:
          ValueError: naming a key whose value our model cannot represent, or every missing key.
        """
        self.check_type(theirs, where)
        missing = [key for key, known in self.keys.items() if known.default is ABSENT and theirs.get(key) is None]
        if missing:
            raise ValueError(f"{where} lacks {', '.join(missing)}: is it the config of a {self.name} model?")
        for key, (only, reason) in self.fixed.items():
            if theirs.get(key, only) not in (only, None):
                raise ValueError(f"{where}: {key}={theirs[key]!r} cannot be imported, only {only!r}: {reason}")
        ours: JsonObject = {}
        for key, known in self.keys.items():
            value = known.default if theirs.get(key) is None else theirs[key]
            if value is not None:
                ours[known.ours] = _number(value, known, f"{where}: {key}")
        default = next(field.default for field in dataclasses.fields(self.config) if field.name == "activation")
        activation = theirs.get(self.activation, default)
        if not isinstance(activation, str) or activation not in self.activations:
            hint = did_you_mean(activation, self.activations, ALIKE)
            raise ValueError(
                f"{where}: {self.activation}={activation!r} is not one of {', '.join(self.activations)}{hint}"
            )
        ours["activation"] = self.activations[activation]
        try:
            return self.config(**self.derive(theirs, ours), **self.heads[head].fields)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def check_type(self, theirs: Mapping[str, Json], where: str) -> None:
        """Checks that a config is of this family.

        Raises:
          ValueError: naming the `model_type` of another family.
        """
        said = theirs.get("model_type")
        if said is not None and not (isinstance(said, str) and said in self.model_types):
            raise ValueError(f"{where}: model_type={said!r} is not a model of the family {self.name}; see --family")

    def to_theirs(self, config: ModelConfig, head: str, original: Mapping[str, Json]) -> JsonObject:
        """Returns their config for ours: `original`, updated with every key that ours decides, and the architecture."""
        theirs = {key: value for key, value in original.items() if key not in ("torch_dtype", "transformers_version")}
        theirs["model_type"] = theirs.get("model_type") or next(iter(self.model_types))
        follow = [key for key, known in self.keys.items() if known.default is None and theirs.get(key) is None]
        theirs |= {key: getattr(config, known.ours) for key, known in self.keys.items() if key not in follow}
        if self.activations.get(str(theirs.get(self.activation))) != config.activation:
            theirs[self.activation] = config.activation
        implied = self.from_theirs(theirs, head, "")
        for key in follow:  # write the key only if its value does not follow from the other keys
            ours = self.keys[key].ours
            if getattr(implied, ours) != getattr(config, ours):
                theirs[key] = getattr(config, ours)
        architecture = self.model_types[theirs["model_type"]] + self.heads[head].architecture
        return theirs | {"architectures": [architecture], "dtype": "float32"}

    def target(self, config: ModelConfig, head: str, labels: int = 0) -> tuple[nn.Module, Params, dict[str, Entry]]:
        """Returns our model of a config, its abstract parameters, and the table of names; computes nothing.

        Args:
          labels: the number of labels, if the head has labels.
        """
        model = self.heads[head].build(config, labels) if self.heads[head].labels else self.heads[head].build(config)
        params = abstract_params(model, self.smallest)
        return model, params, build_table(self.rules_of(config, head, params), params)

    def rules_of(self, config: ModelConfig, head: str, params: Params) -> list[Rule]:
        """Returns the rules of a head for a model with the given config and parameters."""
        return self.heads[head].rules


def _number(value: Json, key: TheirKey, what: str) -> Json:
    """Returns the value if it is a whole number from `least` to `most`, or, if `least` is 0.0, a number in [0, 1)."""
    whole, kind = isinstance(key.least, int), int if isinstance(key.least, int) else int | float
    fits = isinstance(value, kind) and (key.least <= value <= key.most if whole else 0 <= value < 1)
    if isinstance(value, bool) or not fits:
        expected = f"a whole number from {key.least} to {key.most}" if whole else "a number in [0, 1)"
        raise ValueError(f"{what}={value!r}, expected {expected}")
    return value if whole else float(value)


def config_to_dict(config: ModelConfig) -> JsonObject:
    """Returns the fields of a config as a JSON-able dict; a config inside it becomes a dict under its field's name."""
    inner = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    inner = {name: config_to_dict(value) for name, value in inner.items() if dataclasses.is_dataclass(value)}
    return dataclasses.asdict(config) | inner | {"dtype": jnp.dtype(config.dtype).name}


def config_from_dict(kind: type, fields: Mapping[str, Json], where: str) -> ModelConfig:
    """Returns the config with the given fields; a field whose default is a config is read as such a config, or is None.

    Raises:
      ValueError: naming fields that the config class does not have.
    """
    # The default factory of each field, which is the class of an inner config.
    known: dict[str, Any] = {field.name: field.default_factory for field in dataclasses.fields(kind)}
    if unknown := sorted(fields.keys() - known.keys()):
        raise ValueError(f"{where}: {kind.__name__} has no {', '.join(unknown)}; was it written by a later version?")
    if (layers := fields.get("layers")) is not None and not (type(layers) is int and 0 <= layers <= MOST_LAYERS):
        raise ValueError(f"{where}: layers={layers!r}: expected a whole number up to {MOST_LAYERS}")
    inner = {
        name: config_from_dict(known[name], value, f"{where}: {name}")
        for name, value in fields.items()
        if value is not None and dataclasses.is_dataclass(known[name])
    }
    return kind(**{**fields, **inner, "dtype": jnp.dtype(fields.get("dtype", "float32"))})
