"""Defines what a family of models consists of, and holds the table of all families. Open it to add a family.

A family has a folder of its own. Its `__init__.py` holds a `Family`, which names the parts of the family as
"module:name"; each part is imported when it is first used, so that help texts need no JAX. The interfaces of the parts
are the modules beside this one: `objective` (pre-training), `units` (how text is read), `predictor` (use), `arrays`
(programs without charlm) and `options` (what users may set of single families), and `charlm.convert.model` (weights to
and from PyTorch).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import ml_collections

from charlm.core.entries import check_fields, is_line, problem_of, problem_of_methods, problem_of_module
from charlm.core.keys import Key, problem_of_key, problem_of_name
from charlm.core.registry import Registry, load
from charlm.families.options import ExportForm, ImportOption, ModelOption, check_options

if TYPE_CHECKING:
    from charlm.convert.model import Converter
    from charlm.families.objective import Objective
    from charlm.families.units import Units


# The names that a module of config keys must define; it may define more, see `charlm.config.pretraining`.
KEYS_HAVE = ("KEYS", "validate")
STAGE_KEYS = ("stages", "stage")  # the config keys of families whose pre-training has stages, and of no others
GOLDEN_HAS = ("outputs", "find_cases", "ATOL")  # the names that a module of golden cases must define


@dataclasses.dataclass(frozen=True)
class Family:
    """The parts of a family, each given by its place, "module:name".

    Attributes:
      name: the name in configs and checkpoints.
      title: the name shown to users.
      converter: its `Converter`.
      units: a function of a `Pretrained` and the longest row that returns its `Units`.
      predictor: its `Predictor`.
      golden: a module with `outputs`, `find_cases` and `ATOL`, see `charlm.convert.golden`.
      keys: the module of its own config keys, see `charlm.config.pretraining`; "": it is not pre-trained here.
      objectives: the objectives of its pre-training, by stage; a family without stages has one under "", and may have
        others under the further choices of its config key `objective`.
      corpora: a function of a config that encodes and returns the corpora of pre-training, for families where no single
        objective reads all of them; "": the corpora of the objective.
      stage_config: a function of a config and the name of a stage that returns the config of that stage, for families
        whose pre-training has stages; the keys `stages` and `stage` are then among `keys`.
      starts_from: the name of the family whose model every run of pre-training needs in `init_from`; "": a run can
        start from fresh parameters.
      options: the config fields that only models of this family have, by name; see `ModelOption`.
      label_head: the config key `model.label_head` of fine-tuning, for families with several variants of the head for
        labels: its choices are "" and the variants, first the one that "" stands for. None: there is only one.
      undecayed: regular expressions for the names of matrices and tables without weight decay in every training, see
        `charlm.core.optimizer.decayed`.
      imports: the family's options of `python -m charlm.convert import`, by name; see `ImportOption`.
      exports: the forms in which `python -m charlm.convert export` can write its models, by name; see `ExportForm`.
      arrays: its subclass of `Arrays`, by which `charlm.export` makes programs of its models; "": it makes none.
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
    starts_from: str = ""
    options: Mapping[str, ModelOption] = dataclasses.field(default_factory=dict)
    label_head: Key | None = None
    undecayed: tuple[str, ...] = ()
    imports: Mapping[str, ImportOption] = dataclasses.field(default_factory=dict)
    exports: Mapping[str, ExportForm] = dataclasses.field(default_factory=dict)
    arrays: str = ""

    def get_converter(self) -> Converter:
        """Returns the converter that reads and writes weights of the family."""
        converter = self._instance("converter", self.converter, "charlm.convert.model:Converter")
        if missing := self.options.keys() - converter.own_options.keys():
            raise ValueError(
                f"family {self.name!r}: converter={self.converter!r}: its own_options lack {', '.join(sorted(missing))}"
            )
        if converter.name == self.name and converter.title != self.title:
            raise ValueError(
                f"family {self.name!r}: converter={self.converter!r}: its title is {converter.title!r}, expected that "
                f"of the family, {self.title!r}"
            )
        return converter

    def get_units(self, pretrained: object, longest: int) -> Units:
        """Returns the text side of a model of the family; see `charlm.families.lookup.units_of`."""
        return self._function("units", self.units)(pretrained, longest)

    def get_arrays(self) -> Any:  # a subclass of `Arrays`, whose module imports others that import this one
        """Returns the subclass of `Arrays` for models of the family; ValueError if it has none."""
        if not self.arrays:
            raise ValueError(f"a model of the kind {self.title} cannot be exported: its family names no arrays")
        return self._class("arrays", self.arrays, "charlm.families.arrays:Arrays")

    def get_predictor(self) -> Any:  # a subclass of `Predictor`, whose module imports this one
        """Returns the subclass of `Predictor` for models of the family."""
        return self._class("predictor", self.predictor, "charlm.families.predictor:Predictor")

    def get_golden(self) -> ModuleType:
        """Returns the module that computes the family's results for golden cases."""
        return self._load(self.golden)

    def get_keys(self) -> ModuleType:
        """Returns the module of the family's config keys.

        Raises:
          ValueError: the family is not pre-trained here.
        """
        if not self.keys:
            raise ValueError(f"family={self.name!r} cannot be pre-trained; {', '.join(pretrainable())} can")
        return self._load(self.keys)

    def get_objective(self, stage: str = "") -> type[Objective]:
        """Returns the family's objective of pre-training, for the given stage if it has stages, or of the given name.

        Raises:
          ValueError: there is no such stage.
        """
        if stage not in self.objectives:
            raise ValueError(f"stage={stage!r} of {self.name} is not one of {', '.join(self.objectives)}")
        return self._class("objectives", self.objectives[stage], "charlm.families.objective:Objective")

    def get_corpora(self, config: ml_collections.ConfigDict) -> Any:  # a list[EncodedCorpus], whose module imports this
        """Returns the encoded corpora of a run; only for a family with `corpora`."""
        return self._function("corpora", self.corpora)(config)

    def of_stage(self, config: ml_collections.ConfigDict, stage: str) -> ml_collections.ConfigDict:
        """Returns the config of one stage; ValueError if there is no such stage."""
        return self._function("stage_config", self.stage_config)(config, stage)

    @property
    def has_stages(self) -> bool:
        """Whether pre-training has several stages, one after another."""
        return bool(self.stage_config)

    @property
    def label_heads(self) -> tuple[str, ...]:
        """The variants of the head for labels, the default first; () if there is only one."""
        return () if self.label_head is None else tuple(name for name in self.label_head.choices if name)

    def option_checks(self) -> Mapping[str, Callable[[object], None]]:
        """Returns the check of each option; each is imported when it is first called."""
        return {name: functools.partial(self.check_option, name) for name in self.options}

    def check_option(self, name: str, value: object) -> None:
        """Raises ValueError if the value is wrong for a config field that only models of some families have."""
        self._function(f"options[{name!r}].check", self.options[name].check)(value)

    def write_form(self, name: str, *arguments: object) -> str:
        """Writes a model in the form `name` of `exports`; returns a description of it for users."""
        return self._function(f"exports[{name!r}].write", self.exports[name].write)(*arguments)

    def _load(self, reference: str) -> Any:  # the caller knows what stands there
        """Returns what stands at a place; ValueError in one line if a part of an added family cannot be imported."""
        return load(reference) if self.name in FAMILIES.own else FAMILIES.load(self.name, reference)

    def _function(self, part: str, reference: str) -> Callable[..., Any]:  # the parts differ in what they take
        if not callable(found := self._load(reference)):
            raise self._wrong(part, reference, "a function", found)
        return found

    def _instance(self, part: str, reference: str, kind: str) -> Any:  # an instance of `kind`, which is checked
        if not isinstance(found := self._load(reference), load(kind)):
            raise self._wrong(part, reference, f"an instance of {kind.replace(':', '.')}", found)
        self._check_methods(part, reference, type(found), kind)
        return found

    def _class(self, part: str, reference: str, kind: str) -> Any:  # a subclass of `kind`, which is checked
        found = self._load(reference)
        if not (isinstance(found, type) and issubclass(found, load(kind))):
            raise self._wrong(part, reference, f"a subclass of {kind.replace(':', '.')}", found)
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise ValueError(f"family {self.name!r}: {part}={reference!r} lacks {', '.join(missing)}")
        self._check_methods(part, reference, found, kind)
        return found

    def _check_methods(self, part: str, reference: str, made: type, kind: str) -> None:
        if self.name not in FAMILIES.own and (problem := problem_of_methods(made, load(kind))):
            raise ValueError(f"family {self.name!r}: {part}={reference!r}: {problem}")

    def _wrong(self, part: str, reference: str, expected: str, found: object) -> ValueError:
        return ValueError(f"family {self.name!r}: {part}={reference!r}: expected {expected}, got {found!r}")


# The family of configs and checkpoints that name none: they were written when there was no other.
UNNAMED = "hlm"

# charlm's own families, in the order in which messages name them and files are matched with them.
_OWN: dict[str, str | Family] = {
    "hlm": "charlm.families.hlm:FAMILY",
    "bert": "charlm.families.subword:BERT",
    "roberta": "charlm.families.subword:ROBERTA",
    "roformer": "charlm.families.subword:ROFORMER",
    "gpt2": "charlm.families.gpt2:FAMILY",
    "charbert": "charlm.families.charbert:FAMILY",
    "characterbert": "charlm.families.characterbert:FAMILY",
    "char2subword": "charlm.families.char2subword:FAMILY",
    "xrayemb": "charlm.families.xrayemb:FAMILY",
}


def _checked(name: str, thing: object) -> Family:
    """Returns the added family if all of its parts are there; ValueError naming the missing or wrong part.

    Parts that are named by their places are looked for, but not imported: `Family` checks what they are on first use.
    """
    if not isinstance(thing, Family):
        raise ValueError(f"family {name!r}: expected a charlm.families.family.Family, got {thing!r}")
    if thing.name != name:
        raise ValueError(f"family {name!r}: its name is {thing.name!r}, expected {name!r}")
    texts = dict.fromkeys(
        (
            *("title", "converter", "units", "predictor", "golden", "keys", "corpora", "stage_config", "starts_from"),
            "arrays",
        ),
        str,
    )
    dicts = dict.fromkeys(("objectives", "options", "imports", "exports"), Mapping)
    check_fields(f"family {name!r}", thing, texts | dicts | {"undecayed": tuple, "label_head": (Key, type(None))})
    if not thing.title:
        raise ValueError(f"family {name!r}: it lacks its title, the name shown to users")
    if not is_line(thing.title):
        raise ValueError(f"family {name!r}: title={thing.title!r}, expected one line of text")
    for part in ("converter", "units", "predictor", "golden"):
        if not getattr(thing, part):
            raise ValueError(f"family {name!r}: it lacks its {part}, as module:name")
    if bool(thing.keys) != bool(thing.objectives):
        raise ValueError(f"family {name!r}: keys and objectives belong together: it is pre-trained with both, or not")
    if thing.starts_from and thing.starts_from not in FAMILIES:
        raise ValueError(f"family {name!r}: starts_from={FAMILIES.unknown(thing.starts_from)}")
    _check_places(thing)
    _check_stages(thing)
    for pattern in thing.undecayed:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ValueError(f"family {name!r}: undecayed: {pattern!r} is no regular expression: {error}") from None
    check_options(thing, [one for one in FAMILIES.at_hand().values() if one.name != name])
    if thing.keys:
        _check_keys(thing)
    return thing


def _check_places(added: Family) -> None:
    """Raises ValueError for the first part that is not where the family says."""
    for part, said, problem in _places(added):
        if problem:
            raise ValueError(f"family {added.name!r}: {part}={said!r}: {problem}")


def _places(added: Family) -> Iterator[tuple[str, object, str]]:
    """Yields of each part that is named by its place the part, what the family says, and what is wrong with it."""
    for part in ("converter", "units", "predictor", "corpora", "stage_config", "arrays"):
        if said := getattr(added, part):
            yield part, said, problem_of(said)
    for part in ("golden", "keys"):
        if said := getattr(added, part):
            yield part, said, problem_of_module(said)
    for name in GOLDEN_HAS:
        yield "golden", added.golden, problem_of(f"{added.golden}:{name}")
    for stage, place in added.objectives.items():
        if not isinstance(stage, str):
            raise ValueError(f"family {added.name!r}: objectives[{stage!r}], expected the name of a stage, or ''")
        yield f"objectives[{stage!r}]", place, problem_of(place)


def _check_stages(added: Family) -> None:
    named = sorted(stage for stage in added.objectives if stage)
    if added.has_stages and "" in added.objectives:
        raise ValueError(f"family {added.name!r}: with stage_config each of its objectives has a stage, expected no ''")
    if named and not added.has_stages and "" not in added.objectives:
        raise ValueError(
            f"family {added.name!r}: objectives of the stages {', '.join(named)}, but no stage_config; expected one "
            "objective, under ''"
        )


def _check_keys(added: Family) -> None:
    """Checks the module of config keys, which needs no JAX and so is imported."""
    where, keys = f"family {added.name!r}: its keys, {added.keys}", added.get_keys()
    if missing := [name for name in KEYS_HAVE if not hasattr(keys, name)]:
        raise ValueError(f"family {added.name!r}: its keys, {added.keys}, lack {', '.join(missing)}")
    if not callable(keys.validate):
        raise ValueError(f"{where}: validate={keys.validate!r}, expected a function of a config")
    kinds = {"KEYS": Mapping, "VALUES": Mapping, "CHOICES": Mapping, "SET_BY": Mapping}
    kinds |= {"MEASURED": tuple, "RESUMABLE": tuple}
    check_fields(where, keys, {name: kind for name, kind in kinds.items() if hasattr(keys, name)})
    if lacking := [name for name in STAGE_KEYS if added.has_stages and name not in keys.KEYS]:
        raise ValueError(f"{where}: KEYS lack {', '.join(lacking)}, expected with stage_config")
    if known := [name for name in STAGE_KEYS if not added.has_stages and name in keys.KEYS]:
        raise ValueError(f"{where}: KEYS have {', '.join(known)}, expected only with stage_config")
    choices = () if "objective" not in keys.KEYS else keys.KEYS["objective"].choices
    if unnamed := [name for name in added.objectives if name and not added.has_stages and name not in choices]:
        raise ValueError(f"{where}: no key objective chooses {', '.join(unnamed)}, which objectives have")
    for key, told in keys.KEYS.items():
        if problem := problem_of_name(str(key)) or problem_of_key(told):
            raise ValueError(f"{where}: {key!r}: {problem}")


FAMILIES: Registry[Family] = Registry("family", "charlm.families", _OWN, _checked)


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
    """Returns the families that have the config field `name` as one of their own (`Family.options`)."""
    return [one for one in families() if name in one.options]


def own_families() -> list[Family]:
    """Returns the families of charlm itself."""
    return [FAMILIES[name] for name in FAMILIES.own]


def model_options(among: Iterable[Family]) -> dict[str, ModelOption]:
    """Returns the options of models by name; an option of several families stands where the last of them has it."""
    found: dict[str, ModelOption] = {}
    for one in among:
        for name, option in one.options.items():
            found.pop(name, None)
            found[name] = option
    return found
