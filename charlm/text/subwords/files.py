"""Finds and reads the files of published subword tokenizers, and writes them.

The kinds of files, in the order in which a folder is searched: `tokenizer.json` (any tokenizer), `vocab.txt` (BERT's
WordPiece), `vocab.json` with `merges.txt` (the byte-level BPE of GPT-2 and RoBERTa), `*.model` (SentencePiece: XLM-R,
ALBERT, XLNet). Beside them `tokenizer_config.json`, `special_tokens_map.json`, `added_tokens.json` and `config.json`
are read if present. Nothing is ever downloaded. Open this module when a folder is not recognised as a tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from charlm.core.durable import write_text
from charlm.core.reading import read_object
from charlm.core.types import Json, JsonObject

if TYPE_CHECKING:
    from tokenizers import Tokenizer

T = TypeVar("T")

ROLES = ("pad", "cls", "sep", "mask", "unk", "bos", "eos")
FILE_KINDS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")


@dataclass(frozen=True)
class TokenizerKind:
    """The properties that all published tokenizers of one family share."""

    kind: str  # kind of file that they are published as, besides tokenizer.json
    tokenizer_class: str
    roles: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)  # our option -> key of tokenizer_config.json
    padding_side: str = "right"
    pad_type_id: int = 0


_BERT_ROLES = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"}
_FAIRSEQ_ROLES = {
    "pad": "<pad>",
    "cls": "<s>",
    "sep": "</s>",
    "mask": "<mask>",
    "unk": "<unk>",
    "bos": "<s>",
    "eos": "</s>",
}
_GPT2_ROLES: dict[str, str] = dict.fromkeys(("unk", "bos", "eos"), "<|endoftext|>")
_ALBERT_ROLES = {**_BERT_ROLES, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"}
_XLNET_ROLES = {**_FAIRSEQ_ROLES, "cls": "<cls>", "sep": "<sep>"}
_CASING = {"lowercase": "do_lower_case", "strip_accents": "strip_accents"}

TOKENIZERS: dict[str, TokenizerKind] = {
    "bert": TokenizerKind(
        "vocab.txt", "BertTokenizer", _BERT_ROLES, {**_CASING, "split_chinese": "tokenize_chinese_chars"}
    ),
    "roberta": TokenizerKind(
        "vocab.json", "RobertaTokenizer", _FAIRSEQ_ROLES, {"add_prefix_space": "add_prefix_space"}
    ),
    "gpt2": TokenizerKind("vocab.json", "GPT2Tokenizer", _GPT2_ROLES, {"add_prefix_space": "add_prefix_space"}),
    "xlm-roberta": TokenizerKind("*.model", "XLMRobertaTokenizer", _FAIRSEQ_ROLES),
    "albert": TokenizerKind("*.model", "AlbertTokenizer", _ALBERT_ROLES, _CASING),
    "xlnet": TokenizerKind("*.model", "XLNetTokenizer", _XLNET_ROLES, _CASING, padding_side="left", pad_type_id=3),
}
# Names of a family in configurations: tokenizer_class without "Tokenizer" and "Fast", or model_type.
_ALIASES = {
    "bert": ("Bert", "DistilBert", "Electra", "MobileBert", "bert", "distilbert", "electra", "mobilebert"),
    "roberta": ("Roberta", "Bart", "Longformer", "roberta", "bart", "longformer"),
    "gpt2": ("GPT2", "gpt2"),
    "xlm-roberta": ("XLMRoberta", "xlm-roberta"),
    "albert": ("Albert", "albert"),
    "xlnet": ("XLNet", "xlnet"),
}
_FAMILY_OF = {alias: family for family, aliases in _ALIASES.items() for alias in aliases}
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend", "AutoTokenizer")


@dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer on disk: its main file, the settings in the files beside it, and the settings of the caller."""

    path: Path
    kind: str
    config: Mapping[str, Json]  # tokenizer_config.json over special_tokens_map.json
    config_path: Path
    added: Mapping[int, Mapping[str, Json]]  # tokens added after the vocabulary was built, by id
    family: str | None
    stated: Mapping[str, bool | None]  # the caller's options; None: not stated

    def option(self, name: str) -> bool | None:
        """Returns an option from the caller or the configuration; raises ValueError if both state it and differ."""
        key = (TOKENIZERS[self.family].options if self.family else {}).get(name) or _CASING.get(name, name)
        found = self.config.get(key)
        if self.family in ("albert", "xlnet") and name == "strip_accents" and "keep_accents" in self.config:
            key, found = "keep_accents", not self.config["keep_accents"]
        if found is not None and not isinstance(found, bool):
            raise ValueError(f"{self.config_path}: {key}: expected true or false, found {found!r}")
        stated = self.stated.get(name)
        if stated is not None and found is not None and stated != found:
            raise ValueError(f"{self.config_path} states {key}={self.config[key]!r}, the caller {name}={stated}")
        return found if stated is None else stated

    def role(self, name: str) -> tuple[bool, str | None]:
        """Returns whether the configuration has an entry for a role, and the token it names (None: no token)."""
        key = f"{name}_token"
        value = self.config.get(key)
        value = value.get("content") if isinstance(value, Mapping) else value
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{self.config_path}: {key}: expected a token, found {self.config[key]!r}")
        return key in self.config, value


def open_source(path: Path, family: str | None, stated: Mapping[str, bool | None]) -> TokenizerFiles:
    """Finds the main file of a tokenizer and reads the configuration files beside it.

    Raises:
      ValueError: the path does not exist, the folder holds no tokenizer, the file is of an unknown kind, a
        configuration is malformed, the family is unknown or contradicts the files, or the files do not have an option.
    """
    main, kind = _main_file(path)
    config_path = main.parent / "tokenizer_config.json"
    config = {**_optional_json(main.parent / "special_tokens_map.json"), **_optional_json(config_path)}
    family = _resolve_family(main, kind, family, config)
    allowed = TOKENIZERS[family].options if family and kind != "tokenizer.json" else {}
    for name in (name for name, value in stated.items() if value is not None and name not in allowed):
        raise ValueError(f"{main}: {name} cannot be chosen here: expected {', '.join(allowed) or 'no options'}")
    added = _added_tokens(main.parent, config_path, config)
    return TokenizerFiles(main, kind, config, config_path, added, family, stated)


def _main_file(path: Path) -> tuple[Path, str]:
    """Returns the file that holds the vocabulary, and its kind."""
    if path.is_dir():
        for kind in FILE_KINDS:
            found = sorted(path.glob(kind))
            if len(found) > 1:
                raise ValueError(f"{path}: expected one {kind}, found {', '.join(file.name for file in found)}")
            if found:
                return found[0], kind
        found = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
        kinds = "tokenizer.json, vocab.txt, vocab.json with merges.txt, or *.model"
        raise ValueError(f"{path}: expected a tokenizer ({kinds}), found {found}")
    if not path.is_file():
        raise ValueError(f"{path}: no such file or folder; tokenizers are read from disk only, never downloaded")
    if path.name.endswith("merges.txt"):
        return path.with_name(path.name.removesuffix("merges.txt") + "vocab.json"), "vocab.json"
    if path.name.endswith("vocab.json"):
        return path, "vocab.json"
    kinds = {".json": "tokenizer.json", ".txt": "vocab.txt", ".model": "*.model"}
    if path.suffix not in kinds:
        raise ValueError(
            f"{path}: expected a tokenizer file ({', '.join(FILE_KINDS)}), found {path.suffix or path.name!r}"
        )
    return path, kinds[path.suffix]


def _resolve_family(path: Path, kind: str, argument: str | None, config: Mapping[str, Json]) -> str | None:
    """Returns the family: from the caller, else from the configuration, else from the kind and content of the files."""
    if argument is not None and argument not in TOKENIZERS:
        raise ValueError(f"family={argument!r}: expected {', '.join(TOKENIZERS)}")
    stated, named = str(config.get("tokenizer_class") or ""), "tokenizer_class"
    stem = re.sub(r"Tokenizer(Fast)?$", "", stated)
    if not stated or stated in _GENERIC_CLASSES:
        stem, named = str(_optional_json(path.parent / "config.json").get("model_type") or ""), "model_type"
    found = _FAMILY_OF.get(stem)
    if argument and found and argument != found:
        raise ValueError(f"{path}: the caller states family={argument!r}, the configuration beside it {found!r}")
    family = argument or found
    if kind == "tokenizer.json":
        return family
    if family is None and stem and named == "tokenizer_class":
        raise ValueError(f"{path}: expected a tokenizer_class of {', '.join(TOKENIZERS)}, found {stated!r}")
    if family is None and kind == "vocab.txt":
        family = "bert"
    elif family is None and kind == "vocab.json":
        family = "roberta" if "<s>" in read_object(path) else "gpt2"
    of_kind = [name for name, entry in TOKENIZERS.items() if entry.kind == kind]
    if family not in of_kind:
        nothing = "no tokenizer_config.json or config.json beside it says which: add one, or state family= in Python"
        hint = f"found {family!r}" if family else nothing
        raise ValueError(f"{path}: {kind} is a file of {', '.join(of_kind)}; {hint}")
    return family


def _added_tokens(folder: Path, config_path: Path, config: Mapping[str, Json]) -> dict[int, JsonObject]:
    """Returns {id: {"content": token, flags}} from added_tokens.json and tokenizer_config.json."""
    added_path = folder / "added_tokens.json"
    added: dict[int, JsonObject] = {}
    for token, index in _optional_json(added_path).items():
        if type(index) is not int:
            raise ValueError(f"{added_path}: expected ids of tokens, found {token!r}: {index!r}")
        added[index] = {"content": token, "normalized": False}
    decoder = config.get("added_tokens_decoder") or {}
    try:
        for index, entry in decoder.items():
            flags = {key: entry[key] for key in ("lstrip", "rstrip", "single_word", "normalized", "special")}
            added[int(index)] = {"content": entry["content"], **flags}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{config_path}: added_tokens_decoder: expected {{id: {{content, lstrip, ...}}}}: {error!r}"
        raise ValueError(message) from None
    return added


def _optional_json(path: Path) -> JsonObject:
    return read_object(path) if path.is_file() else {}


def call_library(path: Path, expected: str, function: Callable[..., T], *args: object) -> T:
    """Calls a library function on the content of a file; any error it raises becomes a ValueError naming the file."""
    try:
        return function(*args)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in Rust code is not an Exception
        raise ValueError(f"{path}: expected {expected}: {' '.join(str(error).split())[:200]}") from None


def require(path: Path, vocab: Iterable[str], tokens: Iterable[str]) -> None:
    """Raises ValueError if the vocabulary lacks some of `tokens`; the message names the file and the missing tokens."""
    if missing := sorted(set(tokens) - set(vocab)):
        raise ValueError(f"{path}: expected the special tokens {', '.join(missing)}, found none of that spelling")


def read_tokenizer_json(source: TokenizerFiles) -> Tokenizer:
    """Reads `tokenizer.json` and removes its settings of padding and truncation, which are up to the caller."""
    from tokenizers import Tokenizer

    read_object(source.path)
    backend = call_library(source.path, "a tokenizer.json", Tokenizer.from_file, str(source.path))
    backend.no_padding()
    backend.no_truncation()
    lowercase = getattr(backend.normalizer, "lowercase", None)
    if lowercase is not None and source.option("lowercase") not in (None, lowercase):
        raise ValueError(f"{source.path} has lowercase={lowercase}, {source.config_path} do_lower_case={not lowercase}")
    return backend


def save_files(folder: Path, tokenizer_json: str, config: Mapping[str, Json]) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json` into `folder`; a reader never sees a half-written file."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"tokenizer.json": tokenizer_json, "tokenizer_config.json": json.dumps(config, indent=2) + "\n"}
    for name, content in contents.items():
        write_text(folder / name, content)
