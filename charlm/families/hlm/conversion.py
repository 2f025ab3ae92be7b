"""Converts state dicts of HLM's released PyTorch code (lisun-ai/HLM, model/hlm.py) to charlm checkpoints and back.

`python -m charlm.convert` and `from_pretrained` use it. Open it when a tensor or config of the released code is
refused. Here "theirs" is the released code and its files, "ours" is charlm; `released_config` converts the configs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import flax.linen as nn
import ml_collections
import numpy as np

from charlm.config import from_dict
from charlm.convert.abstract import abstract_params
from charlm.convert.files import Tensor, find_state, open_state
from charlm.convert.heads import CAUSAL_LM, FINE_TUNED, MASKED_LM
from charlm.convert.model import CONFIG_FILES, Converter, Model, Names, Target
from charlm.convert.rules import Entry, Leave, Rule, build_table, dense_rules, import_state, norm_rules, same_rows
from charlm.core.durable import write_json
from charlm.core.reading import read_object
from charlm.core.types import Json, JsonObject
from charlm.data.word_batch import WordBatch, reshape_batch
from charlm.families.corrections import read_weighing, write_weighing
from charlm.families.hlm import FAMILY
from charlm.families.hlm import config as hlm_config
from charlm.families.hlm.config import WRITES, HLMConfig
from charlm.families.hlm.labels import OURS, LabelHead, hlm_with_head
from charlm.families.hlm.model import HLM
from charlm.families.hlm.pieces import stored_pieces
from charlm.families.hlm.positions import POSITION_BUCKETS, rows_in_theirs
from charlm.families.hlm.released_config import from_theirs, to_theirs
from charlm.text.chars import CHAR_VOCAB_FILE, CharVocab
from charlm.text.wordlist import read_words, write_words

log = logging.getLogger("charlm")

HEADS = (MASKED_LM, CAUSAL_LM, *FINE_TUNED)

_STACK = "hlm_model.deep_transformer."
_ENCODERS = {
    "local_layer_first": "hlm/intra_word",
    "global_layer": "hlm/inter_word",
    "local_layer_last": "head/encoder",
}
_POSITIONS = "rel_embeddings.weight"
_LAYER_DENSE = {
    "attention.self.query_proj": "attention/query",
    "attention.self.key_proj": "attention/key",
    "attention.self.value_proj": "attention/value",
    "attention.self.pos_key_proj": "attention/pos_key",
    "attention.self.pos_query_proj": "attention/pos_query",
    "attention.output.dense": "attention/output",
    "intermediate.dense": "ffn_in",
    "output.dense": "ffn_out",
}
_LAYER_NORM = {"attention.output.LayerNorm": "attention_norm", "output.LayerNorm": "ffn_norm"}


def _encoder(theirs: str, ours: str) -> list[Rule]:
    rules = [Rule(f"{theirs}.{_POSITIONS}", f"{ours}/positions/embedding")]
    rules += norm_rules(f"{theirs}.LayerNorm", f"{ours}/positions/norm")  # of the position table, not of the output
    for part, name in _LAYER_DENSE.items():
        rules += dense_rules(f"{theirs}.layer.{{n}}.{part}", f"{ours}/layer_{{n}}/{name}")
    for part, name in _LAYER_NORM.items():
        rules += norm_rules(f"{theirs}.layer.{{n}}.{part}", f"{ours}/layer_{{n}}/{name}")
    # Parts that the released code does not have; charlm's own names serve when a model gets another head.
    rules += dense_rules(f"{theirs}.layer.{{n}}.ffn_value", f"{ours}/layer_{{n}}/ffn_value")
    return rules + norm_rules(f"{theirs}.norm", f"{ours}/norm")


def rules(head: str, label_head: LabelHead = "reference") -> list[Rule]:
    """Returns the rule table of the model with the given head, one of `HEADS`.

    The released code has no label head like the paper's, so that head's tensors keep charlm's names.
    """
    table = [Rule("hlm_model.embedder.weight", "hlm/embed/table/embedding")]
    table += norm_rules("hlm_model.layer_norm", "hlm/embed/norm")
    table.append(Rule("hlm_model.ngrams.weight", "hlm/embed/ngrams/embedding"))
    table.append(Rule("hlm_model.pieces.weight", "hlm/embed/pieces/embedding"))
    if head == CAUSAL_LM or (head != MASKED_LM and label_head in OURS):
        for theirs in ("local_layer_first", "global_layer"):
            table += _encoder(f"{_STACK}{theirs}", _ENCODERS[theirs])
        if head == CAUSAL_LM:
            return table + _writer_rules()
        return table + dense_rules("transform", "transform") + dense_rules("label", "label")
    table += dense_rules("hlm_model.cls_linear_final", "pooler/dense")
    table += dense_rules(f"{_STACK}proj", "head/projection") + norm_rules(f"{_STACK}LayerNorm", "head/projection_norm")
    for theirs, ours in _ENCODERS.items():
        table += _encoder(f"{_STACK}{theirs}", ours)
    if head != MASKED_LM:
        return table + dense_rules("qa_outputs" if head == "question_answering" else "label_layer", "label")
    table += dense_rules("dense_layer", "head/transform") + norm_rules("layer_norm", "head/transform_norm")
    table.append(Rule("lm_layer.weight", "head/output_kernel", transpose=True))
    return [*table, Rule("bias", "head/output_bias")]


def _writer_rules() -> list[Rule]:
    """Returns the rules of what an HLM that writes has beside its encoder; no file has these names."""
    table = dense_rules("writer.context", "writer/context")
    table.append(Rule("ends.weight", "ends/embedding"))
    table.append(Rule("writer.embedder.weight", "writer/embed/table/embedding"))
    table += norm_rules("writer.embedder.norm", "writer/embed/norm")
    table += _encoder("writer.layers", "writer/encoder")
    table += dense_rules("writer.transform", "writer/transform")
    table += norm_rules("writer.transform_norm", "writer/transform_norm")
    table.append(Rule("writer.output.weight", "writer/output_kernel", transpose=True))
    return [*table, Rule("writer.output.bias", "writer/output_bias")]


def left_out(head: str) -> list[Leave]:
    """Returns the tensors of a state dict that are not imported, with the reasons."""
    return [Leave("lm_layer.bias", "the same tensor as bias", same_as="bias")] if head == MASKED_LM else []


class HLMConverter(Converter):
    """Converts HLM models in the format of the released code."""

    name, title = FAMILY.name, FAMILY.title
    encoders = (HLM,)
    config_elsewhere = True

    @property
    def heads(self) -> Sequence[str]:
        """The heads that an HLM may have."""
        return HEADS

    def head_of(self, metadata: Mapping[str, Json]) -> str:
        """Returns the head named in the metadata; without one, that of the run's objective."""
        if "head" in metadata:
            return metadata["head"]
        return CAUSAL_LM if metadata["config"].get("objective") == WRITES else MASKED_LM

    def target(self, metadata: Mapping[str, Json], where: str) -> Target:
        """Returns the model that the metadata describes; see `Converter.target`."""
        config = from_dict(metadata["config"])
        if config.family != self.name:
            raise ValueError(f"{where} is a model of the family {config.family}, not {self.name}")
        label_head = metadata.get("label_head", "reference")
        pieces = stored_pieces(metadata)
        vocab = CharVocab.from_dict(metadata["char_vocab"]) if pieces else None
        shape = hlm_config.model_config(config, vocab, pieces)
        return target(shape, self.head_of(metadata), metadata.get("labels", 0), label_head)

    def recognises(self, theirs: Mapping[str, Json]) -> bool:
        """Says whether a config is the released code's: only that one has a `max_codepoint`."""
        return "max_codepoint" in theirs

    def smallest_input(self, config: HLMConfig) -> WordBatch:
        """Returns a batch of one word."""
        return _one_word(config.char_slots)

    def names(self, source: Path, head: str = "") -> Names:
        """Returns the contents of a file of the released code; see `Converter.names`."""
        state = open_state(source)
        head, _ = head_of(state, str(source), head)
        return Names(state, head, rules(head), left_out(head))

    def read(
        self, source: str, head: str = "", *, model_config: str = "", char_vocab: str = "", heads: int = 0
    ) -> Model:
        """Reads a state dict of the released code.

        Args:
          source: file or folder.
          head: see the function `head_of`.
          model_config: the released code's JSON config; "": one of `CONFIG_FILES` beside the state dict.
          char_vocab: JSON file of the characters; "": char_vocab.json beside the state dict, else the released code's.
          heads: number of attention heads; see `from_theirs`.

        Raises:
          ValueError: when the state dict, the config and the characters do not fit together.
        """
        file = find_state(source)
        theirs, config_file = their_config(file, model_config)
        config = from_theirs(theirs, str(config_file), heads)
        vocab = _vocab(char_vocab, file.parent, config, str(config_file))
        state = open_state(file, mapped=False)
        head, labels = head_of(state, str(file), head)
        metadata = {"config": config.to_dict(), "char_vocab": vocab.to_dict(), "head": head, "labels": labels}
        where = target(hlm_config.model_config(config), head, labels)
        if moved := [name for name, entry in where.table.items() if entry.rows and not _together(state, name, entry)]:
            log.info(
                "%s: %s was trained on with all its rows, so they stay: model.position_buckets=%d",
                file,
                moved[0],
                POSITION_BUCKETS,
            )
            config.model.position_buckets = POSITION_BUCKETS
            metadata["config"] = config.to_dict()
            where = target(hlm_config.model_config(config), head, labels)
        return Model(import_state(where.table, where.aliases, state, str(file)), metadata, file.parent, file)

    def with_head(self, metadata: Mapping[str, Json], head: str) -> JsonObject:
        """Returns the metadata of the same model with another head."""
        return {**metadata, "head": head}

    def with_changes(self, metadata: Mapping[str, Json], changes: Mapping[str, Json]) -> JsonObject:
        """Returns the metadata with the given keys of `config.model` changed."""
        config = metadata["config"]
        return {**metadata, "config": {**config, "model": {**config["model"], **changes}}}

    def write_beside(self, model: Model, folder: Path) -> None:
        """Writes the characters as a run does, so `text.char_vocab` can name them, known words, and fitted weights."""
        CharVocab.from_dict(model.metadata["char_vocab"]).save(folder / CHAR_VOCAB_FILE)
        if words := read_words(model.folder):
            write_words(folder, words)
        if weighing := read_weighing(model.folder):
            write_weighing(folder, weighing)

    def write_theirs(self, model: Model, folder: Path) -> None:
        """Writes the config that the released code reads, the characters and the known words."""
        if self.head_of(model.metadata) == CAUSAL_LM:
            raise ValueError(f"{model.source} cannot be exported: the released code has no HLM that writes")
        if (label_head := model.metadata.get("label_head")) in OURS:
            own = "the paper's" if label_head == "paper" else f"label_head={label_head}"
            raise ValueError(
                f"{model.source} cannot be exported: the released code has no label head like {own}; fine-tune "
                "with model.label_head=reference"
            )
        if pieces := stored_pieces(model.metadata):
            raise ValueError(
                f"{model.source} cannot be exported: the released code does not add the pieces of a subword tokenizer "
                f"to characters, and this model knows {len(pieces):,}"
            )
        theirs = to_theirs(from_dict(model.metadata["config"]), self.head_of(model.metadata), str(model.source))
        write_json(folder / CONFIG_FILES[0], theirs)
        self.write_beside(model, folder)


CONVERTER = HLMConverter()


def target(shape: HLMConfig, head: str, labels: int = 0, label_head: LabelHead = "reference") -> Target:
    """Returns charlm's model for a shape, head and number of labels, with abstract parameters; computes nothing."""
    model = hlm_with_head(shape, head, labels, label_head)
    params = abstract_params(model, _smallest)
    table = build_table(rules(head, label_head), params)
    for encoder, ours in _ENCODERS.items():
        name, distance = f"{_STACK}{encoder}.{_POSITIONS}", shape.inter if ours == "hlm/inter_word" else shape.intra
        rows = rows_in_theirs(shape.position_buckets, distance.max_distance)
        if name in table and rows:
            table[name] = table[name]._replace(shape=(len(rows), shape.hidden), rows=rows)
    return Target(shape, model, params, table, left_out(head))


def _smallest(model: nn.Module) -> tuple[WordBatch]:
    return (_one_word(model.config.char_slots),)


def _one_word(slots: int) -> WordBatch:
    word = np.ones((1, 1, slots), np.uint16)
    return reshape_batch(word, word)


def head_of(state: Mapping[str, Tensor], where: str, wanted: str = "") -> tuple[str, int]:
    """Returns the head that a state dict holds and its number of labels (0: the head predicts characters).

    Args:
      wanted: the head the user names. "": a label layer is taken for one of sequence classification, since token
        classification uses the same tensor names.

    Raises:
      ValueError: when the state dict holds no head, or another one than `wanted`.
    """
    if wanted and wanted not in HEADS:
        raise ValueError(f"head={wanted} is not one of {', '.join(HEADS)}")
    if "qa_outputs.weight" in state:
        choices, weight = ("question_answering",), "qa_outputs.weight"
    elif "label_layer.weight" in state:
        choices, weight = ("sequence_classification", "token_classification"), "label_layer.weight"
    elif any(name in state for name in ("lm_layer.weight", "dense_layer.weight", "bias")):
        choices, weight = (MASKED_LM,), ""
    else:
        raise ValueError(
            f"{where} has no head of HLM: expected lm_layer.weight, label_layer.weight or qa_outputs.weight among its "
            f"{len(state)} tensors"
        )
    if wanted and wanted not in choices:
        raise ValueError(
            f"head={wanted}: {where} holds {weight or 'lm_layer.weight'}, a tensor of {' or '.join(choices)}"
        )
    return wanted or choices[0], (*state[weight].shape, 0)[0] if weight else 0


def _together(state: Mapping[str, Tensor], name: str, entry: Entry) -> bool:
    """Says whether rows of a released tensor that map to one row of charlm's are still equal to each other."""
    return name not in state or state[name].shape != entry.shape or same_rows(np.asarray(state[name]), entry.rows)


def their_config(file: Path, given: str = "") -> tuple[JsonObject, Path]:
    """Returns the released code's model config, the given one or the one beside the state dict, and its file.

    Raises:
      ValueError: when there is no config, or it cannot be read.
    """
    if given:
        return read_object(given), Path(given)
    for name in CONFIG_FILES:
        if (file.parent / name).is_file():
            return read_object(file.parent / name), file.parent / name
    raise ValueError(
        f"the model config of {file} is missing: neither {' nor '.join(CONFIG_FILES)} lies beside it; "
        "--model-config=FILE.json (the released code's is config/config_pretrain.json)"
    )


def _vocab(path: str, beside: Path, config: ml_collections.ConfigDict, where: str) -> CharVocab:
    """Returns the character vocabulary, and sets `text.char_vocab` and `text.unknown` of the config to what it is."""
    if not path and (beside / CHAR_VOCAB_FILE).is_file():  # an export of charlm, perhaps with other characters
        path = str(beside / CHAR_VOCAB_FILE)
        log.info("characters from %s", path)
    try:
        vocab = CharVocab.load(path) if path else CharVocab.released()
    except OSError as error:
        raise ValueError(f"--char-vocab={path} cannot be read: {error.strerror or error}") from error
    if vocab.size > config.model.vocab_size:
        raise ValueError(
            f"the character vocabulary {path or 'of the released code'} needs {vocab.size} rows, but {where} has "
            f"max_codepoint={config.model.vocab_size}; --char-vocab=FILE.json names another"
        )
    config.text.char_vocab = "released" if vocab == CharVocab.released() else ""
    config.text.unknown = "bytes" if vocab.by_bytes else "symbol"
    return vocab
