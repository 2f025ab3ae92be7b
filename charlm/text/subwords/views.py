"""Copies a configured tokenizer with other settings, since changing the original would affect other threads.

`SubwordTokenizer` uses it to truncate and to read words. Open it when a copied tokenizer cuts text differently than the
original.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from charlm.core.types import Json

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def make_view(backend: Tokenizer, max_length: int | None, words: bool) -> Tokenizer:
    """Returns a tokenizer that truncates to `max_length` or takes words: a copy, or `backend` if nothing differs.

    Args:
      backend: a tokenizer without truncation.
      max_length: the maximum number of tokens, including special ones; of a pair, the longer text is cut first. None:
        no limit.
      words: whether the input is words; byte-level tokenizers then see a space before every word. Other tokenizers
        stay the same.
    """
    view = _with_prefix(backend, True) if words else None
    if max_length is None:
        return view or backend
    view = view or _copy(backend)
    # The library subtracts the number of special tokens from the limit; with no room for others it would not truncate.
    view.enable_truncation(max_length, strategy="longest_first")
    return view


def joined_view(backend: Tokenizer) -> Tokenizer:
    """Returns a tokenizer for words that no space comes before: a copy, or `backend` if it adds none itself."""
    return _with_prefix(backend, False) or backend


def _copy(backend: Tokenizer) -> Tokenizer:
    """Returns a copy that shares the vocabulary with `backend`.

    If adding the tokens again gives other added tokens, the copy is made in full, and only its model is shared.
    """
    from tokenizers import Tokenizer

    view = Tokenizer(backend.model)
    for stage in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if getattr(backend, stage) is not None:
            setattr(view, stage, getattr(backend, stage))
    view.add_tokens([token for _, token in sorted(backend.get_added_tokens_decoder().items())])
    if view.get_added_tokens_decoder() == backend.get_added_tokens_decoder():
        return view
    view = Tokenizer.from_str(backend.to_str())
    view.model = backend.model
    return view


def _with_prefix(backend: Tokenizer, wanted: bool) -> Tokenizer | None:
    """Returns a copy that puts a space before every word, or none; None if `backend` does so, or is not byte-level."""
    from tokenizers import Tokenizer

    stages = [stage.__getstate__() for stage in (backend.pre_tokenizer, backend.post_processor) if stage]
    other = f'"add_prefix_space":{json.dumps(not wanted)}'.encode()
    if not any(other in stage for stage in stages):
        return None
    content = json.loads(backend.to_str())
    _set_prefix(content["pre_tokenizer"], wanted)
    _set_prefix(content["post_processor"], wanted)
    return Tokenizer.from_str(json.dumps(content))


def _set_prefix(node: Json, wanted: bool) -> None:
    """Switches `add_prefix_space` on or off in every byte-level stage below `node`."""
    if isinstance(node, list):
        for child in node:
            _set_prefix(child, wanted)
    elif isinstance(node, dict):
        if node.get("add_prefix_space") is (not wanted):
            node["add_prefix_space"] = wanted
        for child in node.values():
            _set_prefix(child, wanted)
