"""Defines what a family of models consists of, and holds the table of all families. Open it to add a family.

A family has a folder of its own. Its `__init__.py` holds a `Family`, which names the parts of the family as
"module:name"; each part is imported when it is first used, so that help texts need no JAX. The interfaces of the parts
are the modules beside this one: `objective` (pre-training), `units` (how text is read) and `predictor` (use), and
`charlm.convert.model` (weights to and from PyTorch).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ml_collections

from charlm.core.registry import Table, load

if TYPE_CHECKING:
    from charlm.convert.model import Converter
    from charlm.families.objective import Objective
    from charlm.families.units import Units


# The names that a module of config keys must define; it may define more, see `charlm.config.pretraining`.
KEYS_HAVE = ("KEYS", "validate")


@dataclasses.dataclass(frozen=True)
class Family:
    """The parts of a family, each given by its place, "module:name".

    Attributes:
      name: the name in configs and checkpoints. title: the name shown to users.
      converter: its `Converter`. units: a function of a `Pretrained` and the longest row that returns its `Units`.
      predictor: its `Predictor`. golden: a module with `outputs`, `find_cases` and `ATOL`, see `charlm.convert.golden`.
      keys: the module of its own config keys, see `charlm.config.pretraining`; "": it is not pre-trained here.
      objectives: the objectives of its pre-training, by stage; a family without stages has one, under "".
      corpora: a function of a config that encodes and returns the corpora of pre-training, for families where no single
        objective reads all of them; "": the corpora of the objective.
      stage_config: a function of a config and the name of a stage that returns the config of that stage.
      check_options: for each config field that only models of this family have, a function that raises ValueError for a
        wrong value.
      undecayed: regular expressions for the names of matrices and tables without weight decay in every training, see
        `charlm.core.optimizer.decayed`.
      exports: for each option of `python -m charlm.convert export`, a function that writes the model in that form.
    """

    name: str
    title: str
    converter: str
    units: str
    predictor: str
    golden: str
    keys: str = ""
    objectives: Mapping[str, str] = dataclasses.field(default_factory=dict)
    corpora: str = ""
    stage_config: str = ""
    check_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    undecayed: tuple[str, ...] = ()
    exports: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def get_converter(self) -> Converter:
        """Returns the converter that reads and writes weights of the family."""
        return load(self.converter)

    def get_units(self, pretrained: Any, longest: int) -> Units:
        """Returns the text side of a model of the family; see `charlm.families.registry.units_of`."""
        return load(self.units)(pretrained, longest)

    def get_predictor(self) -> Any:  # a subclass of `Predictor`, whose module imports this one
        """Returns the subclass of `Predictor` for models of the family."""
        return load(self.predictor)

    def get_golden(self) -> ModuleType:
        """Returns the module that computes the family's results for golden cases."""
        return load(self.golden)

    def get_keys(self) -> ModuleType:
        """Returns the module of the family's config keys.

        Raises:
          ValueError: the family is not pre-trained here.
        """
        if not self.keys:
            raise ValueError(f"family={self.name!r} cannot be pre-trained; {', '.join(pretrainable())} can")
        return load(self.keys)

    def get_objective(self, stage: str = "") -> type[Objective]:
        """Returns the family's objective of pre-training, for the given stage if it has stages.

        Raises:
          ValueError: there is no such stage.
        """
        if stage not in self.objectives:
            raise ValueError(f"stage={stage!r} of {self.name} is not one of {', '.join(self.objectives)}")
        return load(self.objectives[stage])

    def of_stage(self, config: ml_collections.ConfigDict, stage: str) -> ml_collections.ConfigDict:
        """Returns the config of one stage; ValueError if there is no such stage."""
        return load(self.stage_config)(config, stage)

    @property
    def has_stages(self) -> bool:
        """Whether pre-training has several stages, one after another."""
        return bool(self.stage_config)

    def option_checks(self) -> Mapping[str, Callable[[Any], None]]:
        """Returns `check_options` as functions; each is imported when it is first called."""
        return {name: functools.partial(self.check_option, name) for name in self.check_options}

    def check_option(self, name: str, value: Any) -> None:
        """Raises ValueError if the value is wrong for a config field that only this family has."""
        load(self.check_options[name])(value)


# charlm's own families, in the order in which messages name them and files are matched with them.
_OWN: dict[str, str | Family] = {
    "hlm": "charlm.families.hlm:FAMILY",
    "bert": "charlm.families.subword:BERT",
    "roberta": "charlm.families.subword:ROBERTA",
    "gpt2": "charlm.families.subword:GPT2",
    "charbert": "charlm.families.charbert:FAMILY",
    "characterbert": "charlm.families.characterbert:FAMILY",
    "char2subword": "charlm.families.char2subword:FAMILY",
    "xrayemb": "charlm.families.xrayemb:FAMILY",
}


def _checked(name: str, thing: Any) -> Family:
    """Returns the added family if it is complete; ValueError naming the missing or wrong part."""
    if not isinstance(thing, Family):
        raise ValueError(f"family {name!r}: expected a charlm.families.family.Family, got {thing!r}")
    if thing.name != name:
        raise ValueError(f"family {name!r}: its name is {thing.name!r}, expected {name!r}")
    needed = {part: getattr(thing, part) for part in ("converter", "units", "predictor", "golden")}
    for part, reference in needed.items():
        if not reference:
            raise ValueError(f"family {name!r}: it lacks its {part}, as module:name")
    if bool(thing.keys) != bool(thing.objectives):
        raise ValueError(f"family {name!r}: keys and objectives belong together: it is pre-trained with both, or not")
    for part, reference in {**needed, "keys": thing.keys, **thing.objectives}.items():
        module = reference.partition(":")[0]
        if reference and not _is_module(module):
            raise ValueError(f"family {name!r}: {part or 'objective'}={reference!r}: there is no module {module}")
    if thing.keys and (missing := [name for name in KEYS_HAVE if not hasattr(load(thing.keys), name)]):
        raise ValueError(f"family {name!r}: its keys, {thing.keys}, lack {', '.join(missing)}")
    return thing


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


FAMILIES: Table[Family] = Table("family", "charlm.families", _OWN, _checked)


def family(name: str) -> Family:
    """Returns the family of that name.

    Raises:
      ValueError: there is none; names the nearest.
    """
    if name not in FAMILIES:
        raise ValueError(f"family={FAMILIES.unknown(name)}")
    return FAMILIES[name]


def families() -> Iterator[Family]:
    """Returns all families in the order of the table, except those of broken packages."""
    return (one for _, one in FAMILIES.usable())


def pretrainable() -> tuple[str, ...]:
    """Returns the names of the families that can be pre-trained."""
    return tuple(one.name for one in families() if one.objectives)


def families_with_option(name: str) -> list[Family]:
    """Returns the families that have the config field `name` as one of their own (`Family.check_options`)."""
    return [one for one in families() if name in one.check_options]
