"""Special and added tokens of a subword tokenizer: finds the token of each role, and makes the settings to save.

Open it when a tokenizer takes the wrong token for [CLS], [MASK] or another role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from charlm.core.types import JsonObject
from charlm.text.subwords.files import ROLES, TOKENIZERS, TokenizerFiles, call_library

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SPELLINGS = {
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
    "bos": ("<s>", "<|endoftext|>"),
    "eos": ("</s>", "<|endoftext|>"),
}


def role_tokens(source: TokenizerFiles) -> dict[str, str]:
    """Returns the token of each role: from the configuration, else as in the released models of the family."""
    roles = dict(TOKENIZERS[source.family].roles) if source.family else {}
    for role in ROLES:
        named, token = source.role(role)
        if token is not None:
            roles[role] = token
        elif named:
            roles.pop(role, None)
    needed = (
        [role for role in ("cls", "sep", "unk") if role in TOKENIZERS[source.family].roles] if source.family else []
    )
    if source.kind != "tokenizer.json" and (missing := [f"{role}_token" for role in needed if role not in roles]):
        raise ValueError(f"{source.config_path}: expected {', '.join(missing)}, found null")
    return roles


def settings_of(source: TokenizerFiles, backend: Tokenizer) -> JsonObject:
    """Returns the settings of a tokenizer as transformers writes them into `tokenizer_config.json`.

    If nothing states the roles of a `tokenizer.json`, they are inferred from the usual spellings of its added tokens.
    """
    family = TOKENIZERS.get(source.family) if source.family else None
    roles = role_tokens(source)
    if family is None:
        special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        for role, spellings in _SPELLINGS.items():
            if not source.role(role)[0] and (found := [token for token in spellings if token in special]):
                roles[role] = found[0]
    absent = [role for role, token in roles.items() if backend.token_to_id(token) is None]
    for role in absent:
        if source.role(role)[1] is not None:
            raise ValueError(f"{source.path}: expected {roles[role]!r} ({role}_token), found no such token")
        del roles[role]
    settings: JsonObject = {"tokenizer_class": family.tokenizer_class if family else "PreTrainedTokenizerFast"}
    settings |= {f"{role}_token": roles.get(role) for role in ROLES}
    settings["padding_side"] = source.config.get("padding_side") or (family.padding_side if family else "right")
    if settings["padding_side"] not in ("left", "right"):
        raise ValueError(
            f"{source.config_path}: expected padding_side left or right, found {settings['padding_side']!r}"
        )
    settings["pad_token_type_id"] = family.pad_type_id if family else 0
    for name, key in family.options.items() if family else ():
        if (value := source.option(name)) is not None:
            settings[key] = value
    return settings


def added_contents(source: TokenizerFiles) -> list[str]:
    """Returns the tokens that were added after the vocabulary was built."""
    return [str(entry["content"]) for entry in source.added.values()]


def id_of(backend: Tokenizer, token: str) -> int:
    """Returns the id of a token; raises KeyError if the vocabulary does not have it."""
    index = backend.token_to_id(token)
    if index is None:
        raise KeyError(token)
    return index


def add_tokens(
    backend: Tokenizer, source: TokenizerFiles, roles: dict[str, str], control: list[str] | None = None
) -> None:
    """Marks special tokens and adds the tokens that came after the vocabulary; ValueError if their ids do not fit."""
    from tokenizers import AddedToken

    for index, entry in sorted(source.added.items()):
        token = call_library(source.config_path, "added tokens", lambda entry=entry: AddedToken(**entry))
        backend.add_tokens([token])
        found = backend.token_to_id(token.content)
        if found != index:
            raise ValueError(
                f"{source.path}: {token.content!r} was added with id {index}, which follows no vocabulary of "
                f"{backend.get_vocab_size()}: found {found}"
            )
    done = set(added_contents(source))
    # In families where the space belongs to the word (all but BERT), a mask replaces a word and the space before it.
    strips = {roles.get("mask")} if source.family != "bert" else set()
    marked = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    wanted = [*roles.values(), *(control or [])]
    for token in dict.fromkeys(wanted):
        if token not in done:
            token_is = AddedToken(token, lstrip=token in strips, normalized=False, special=True)
            backend.add_special_tokens([token_is])
        elif token not in marked:
            backend.add_special_tokens([token])
