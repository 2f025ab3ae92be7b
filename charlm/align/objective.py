"""The objective of alignment for any student and any teacher: both are read by their families' `Units`.

The parameters of a run are the student's, the teacher's under `TEACHER` (frozen), and under `DENSE` those of a linear
layer behind the student if the two have states of different widths. Open it to change what is trained, or how a student
starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from charlm.align.fit import TEXTS, fitted_kernel
from charlm.convert.heads import FINE_TUNED
from charlm.core import hosts
from charlm.core.flops import TRAINING
from charlm.core.types import JsonObject, Params, Tree
from charlm.data.corpus import EncodedCorpus, prepare_texts
from charlm.families.aligned_batches import AlignedBatch, Reading
from charlm.families.alignment import AlignmentObjective
from charlm.families.alignment_loss import AlignmentWeights
from charlm.families.family import FAMILIES
from charlm.families.lookup import converter_of, units_of
from charlm.families.pretrained import Pretrained, encoder_alone, from_pretrained
from charlm.families.sentences import Dense, SentenceSettings, read_settings
from charlm.families.source import load_source
from charlm.families.text_objective import sequences_of
from charlm.families.units import Units
from charlm.text.speller.files import FILE as SPELLER
from charlm.text.words import get_splitter

log = logging.getLogger("charlm")

TEACHER, DENSE = "teacher", "dense"
POOLS = ("mean", "cls")  # ways of pooling that can be aligned


class StudentData(NamedTuple):
    """What a run is made from.

    Attributes:
      train, heldout: the corpora.
      student, teacher: the models as they were read.
      settings: how the teacher's files say that a text becomes a vector.
    """

    train: tuple[EncodedCorpus, ...]
    heldout: tuple[EncodedCorpus, ...]
    student: Pretrained
    teacher: Pretrained
    settings: SentenceSettings


class Side(NamedTuple):
    """A model as one side of the alignment.

    Attributes:
      model: the model, without a head for labels.
      units: how it reads text.
      scope: the name under which `Units.states` expects the parameters; "": as they are.
    """

    model: Pretrained
    units: Units
    scope: str

    @classmethod
    def of(cls, found: Pretrained, longest: int, key: str) -> Side:
        """Returns a model that reads texts of at most `longest` positions.

        Args:
          key: the config key that names the model, with its value, for messages.

        Raises:
          ValueError: the model has fewer positions, its tokenizer is missing, it has no encoder to use alone, or a
            speller reads its texts.
        """
        if (found.folder / SPELLER).is_file():
            raise ValueError(
                f"{key} reads texts through a speller, which alignment leaves out: name the encoder behind it"
            )
        try:
            model = encoder_alone(found) if found.head in FINE_TUNED else found
            units = units_of(model, longest)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
        return cls(model, units, converter_of(model.family).scope_alone(model.model).removesuffix("/"))

    def states(self, params: Params, inputs: Tree) -> jax.Array:
        """Returns the last states [N, L, D] of packed rows."""
        return self.units.states(self.model.config, {self.scope: params} if self.scope else params, inputs)

    def width(self) -> int:
        """Returns the width D of its states; nothing is computed."""
        units = self.units.fresh()
        row = units.join(units.encode(["a"])[0])
        packed = units.pack([row], units.widest(1, row.length))
        assert packed is not None, "the widest shape fits any row"
        batch = jax.tree.map(lambda x: x[None], packed)
        return jax.eval_shape(lambda params: self.states(params, batch), self.model.params).shape[-1]


class StudentAlignment(AlignmentObjective):
    """Aligns a student of any family with a teacher of any family.

    Attributes:
      student, teacher: the two sides.
    """

    use = 'python -c \'import charlm; print(charlm.load("{workdir}").encode("A tpyo.", normalize=True))\''
    families = tuple(FAMILIES.own)
    idle = (r"(^|/)pooler/", r"^head/")
    of_shape = ()
    data: StudentData

    def __init__(self, config: ml_collections.ConfigDict, data: StudentData, shards: int) -> None:
        """Measures how many distinct words a batch needs to hold; see `Objective`."""
        super().__init__(config, data, shards)
        length = config.data.max_length
        self.student, self.teacher = _sides(config, data.student, data.teacher)
        if taken := {TEACHER, DENSE} & self.student.model.params.keys():
            raise ValueError(f"init_from={config.init_from}: its parameters have the name {taken.pop()}")
        self.lowercase = data.settings.lowercase
        self._weights = self.weights_of(config)
        splitter = get_splitter(config.text.splitter, config.text.language)
        self._reading = Reading(self.student.units, self.teacher.units, splitter, length, config.seed)
        self._widths = self.student.width(), self.teacher.width()
        self.shape = self.measured_shape(shards, sequences_of(config, shards))

    @staticmethod
    def prepare(config: ml_collections.ConfigDict, run: Path | None = None) -> StudentData:
        """Returns the corpora and both models; a resumed run reads the models, too, for how they read text."""
        student, teacher = load_source(config), _teacher(config)
        settings = read_settings(teacher.folder)
        if any(isinstance(step, Dense) for step in settings.steps):
            raise ValueError(
                f"teacher={config.teacher}: its files put a dense layer behind the pooling, whose vectors are not "
                "aligned; expected one without"
            )
        _sides(config, student, teacher)  # what does not fit is told before the corpora are encoded
        train, heldout = prepare_texts(config, "alignment misspells text")
        return StudentData(train, heldout, student, teacher, settings)

    @staticmethod
    def check_vocab(checkpoint: Path, data: StudentData) -> None:
        """Does nothing: `charlm.align.run` compares the models that a run starts from."""

    def weights_of(self, config: ml_collections.ConfigDict) -> AlignmentWeights:
        """Returns how a config weighs the parts of the loss, pooled as the teacher's files say if it does not say how.

        Raises:
          ValueError: the files say neither "mean" nor "cls".
        """
        weights = super().weights_of(config)
        if config.alignment.pooling:
            return weights
        pools = self.data.settings.pools
        if len(pools) != 1 or pools[0] not in POOLS:
            raise ValueError(
                f"teacher={config.teacher}: its files say that texts are pooled by {' and '.join(pools)}; expected one "
                f"of {', '.join(POOLS)}: choose it by alignment.pooling"
            )
        return dataclasses.replace(weights, pooling=pools[0])

    @property
    def width(self) -> int:
        """The width of the student's states."""
        return self._widths[0]

    @property
    def projects(self) -> bool:
        """Whether there is a linear layer behind the student."""
        return self._widths[0] != self._widths[1] or self.config.alignment.projection == "always"

    def init_params(self, key: jax.Array) -> Params:
        """Returns zeros, which `load_params` replaces."""
        zeros = lambda params: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params)
        params = {**zeros(self.student.model.params), TEACHER: zeros(self.teacher.model.params)}
        if self.projects:
            params[DENSE] = {"kernel": jnp.zeros(self._widths), "bias": jnp.zeros(self._widths[1])}
        return params

    def load_params(self, source: str, abstract_params: Params, fresh: Params) -> Params:
        """Returns the parameters of both models, and of the linear layer those that fit some training text best."""
        held = {**self.student.model.params, TEACHER: self.teacher.model.params}
        placed = {
            name: jax.tree.map(lambda x, like: jax.device_put(np.asarray(x), like.sharding), params, fresh[name])
            for name, params in held.items()
        }
        params = {**fresh, **placed}
        if self.projects:
            log.info("fitting the linear layer to %s texts", f"{TEXTS:,}")
            # By each process for itself, on what it has read: the placed parameters may be spread over all of them.
            with contextlib.closing(self._first_batches()) as batches:
                kernel = fitted_kernel(self._own_states, held, batches, self._weights.pooling)
            params[DENSE] = {**fresh[DENSE], "kernel": jax.device_put(kernel, fresh[DENSE]["kernel"].sharding)}
        return params

    def _first_batches(self) -> Generator[AlignedBatch, None, None]:
        """Yields micro-batches of training, of the first shard."""
        batches = iter(self.train_batches((0,)))
        try:
            for batch in batches:
                for number in range(self.config.data.accumulation):
                    yield jax.tree.map(lambda x, number=number: x[number], batch)
        finally:
            getattr(batches, "close", lambda: None)()  # ends the thread that prepares batches, if there is one

    def states(
        self, params: Params, batch: AlignedBatch, dropout_key: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the last states of both, as wide as the teacher's; there is no dropout."""
        student_NLD, teacher_NLE = self._own_states(params, batch)
        if self.projects:
            dense = params[DENSE]
            student_NLD = student_NLD.astype(jnp.float32) @ dense["kernel"] + dense["bias"][None, None]
        return student_NLD, teacher_NLE

    def _own_states(self, params: Params, batch: AlignedBatch) -> tuple[jax.Array, jax.Array]:
        """Returns the last states of both, each as wide as its model has them."""
        own = {name: value for name, value in params.items() if name not in (TEACHER, DENSE)}
        wanted = self.teacher.states(jax.lax.stop_gradient(params[TEACHER]), batch.teacher)
        return self.student.states(own, batch.inputs), jax.lax.stop_gradient(wanted)

    def training_flops(self, batch: AlignedBatch) -> float:
        """Returns the useful operations of a step; the linear layer's are left out."""
        student = self.student.units.forward_flops(self.student.model.config, batch.inputs)
        return TRAINING * student + self.teacher.units.forward_flops(self.teacher.model.config, batch.teacher)

    def student_of(self, params: Params) -> tuple[Pretrained, Params, SentenceSettings]:
        """Returns the student, its parameters in a run, and how it makes vectors in the teacher's space.

        All processes must call it.

        Args:
          params: all parameters of a run.
        """
        own = {name: value for name, value in params.items() if name not in (TEACHER, DENSE)}
        theirs, steps = self.data.settings, self.data.settings.steps
        if self.projects:
            dense = jax.device_get(params[DENSE] if hosts.alone() else hosts.on_host(params[DENSE]))
            weight_ED = np.ascontiguousarray(np.asarray(dense["kernel"], np.float32).T)
            steps = (Dense(weight_ED, np.asarray(dense["bias"], np.float32), "Identity"), *steps)
        # Where the teacher cuts a text, the student does, too, at as many positions of its own or all that it has.
        most = None if theirs.longest is None else min(theirs.longest, units_of(self.student.model).longest)
        settings = SentenceSettings(
            (self._weights.pooling,), steps, most, theirs.lowercase, theirs.prompts, theirs.default_prompt,
            theirs.includes_prompt,
        )  # fmt: skip
        return self.student.model, own, settings

    def measured(self) -> JsonObject:
        """Returns the number of shards, for the config that is saved."""
        return {"data.table_shards": self.shape.shards}

    def metadata(self) -> JsonObject:
        """Returns nothing: the states of a run are no model; the best one is kept as a checkpoint of its own."""
        return {}

    def save_vocab(self, folder: Path) -> None:
        """Writes nothing: the files of the student's vocabulary lie beside each kept model."""

    def start_lines(self) -> list[str]:
        """Returns what is aligned with what, and the shape of a batch."""
        s, (student, teacher) = self.shape, self._widths
        behind = f"; a linear layer turns {student} numbers into {teacher}" if self.projects else ""
        return [
            f"aligns  {self.student.model.title} {self.config.init_from} with {self.teacher.model.title} "
            f"{self.config.teacher}{behind}",
            f"{self.noise_line()}; texts are pooled by {self._weights.pooling}",
            f"batch  {s.shards} shards x {s.sequences} texts x {s.length} positions",
        ]


def _sides(config: ml_collections.ConfigDict, student: Pretrained, teacher: Pretrained) -> tuple[Side, Side]:
    longest = config.data.max_length
    return (
        Side.of(student, longest, f"init_from={config.init_from}"),
        Side.of(teacher, longest, f"teacher={config.teacher}"),
    )


def _teacher(config: ml_collections.ConfigDict) -> Pretrained:
    try:
        dtype = jnp.dtype(config.model.dtype)
        return from_pretrained(config.teacher, dtype=dtype, attention_kernel=config.model.attention_kernel)
    except ValueError as error:
        raise ValueError(f"teacher={config.teacher}: {error}") from None
