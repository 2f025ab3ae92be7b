"""Copies of a configured tokenizer with other settings, because changing one would change it under other threads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def make_view(backend: Tokenizer, max_length: int | None, words: bool) -> Tokenizer:
    """Returns `backend` itself, or a copy that shortens to `max_length` or cuts words that are split already.

    Args:
      backend: a tokenizer without truncation.
      max_length: most tokens, special ones included; longest text first. None: all.
      words: byte-level tokenizers see a space before every word; for others nothing changes.
    """
    view = _prefixed(backend) if words else None
    if max_length is None:
        return view or backend
    view = view or _copy(backend)
    # The library subtracts the special tokens; with no room left for others it would not shorten at all.
    view.enable_truncation(max_length, strategy="longest_first")
    return view


def _copy(backend: Tokenizer) -> Tokenizer:
    """Returns a copy that shares the vocabulary, unless tokens were added in a way that only a full copy keeps."""
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


def _prefixed(backend: Tokenizer) -> Tokenizer | None:
    """Returns a copy that puts a space before every word; None if `backend` does so, or is not byte-level."""
    from tokenizers import Tokenizer

    stages = [stage.__getstate__() for stage in (backend.pre_tokenizer, backend.post_processor) if stage]
    if not any(b'"add_prefix_space":false' in stage for stage in stages):
        return None
    content = json.loads(backend.to_str())
    _set_prefix(content["pre_tokenizer"])
    _set_prefix(content["post_processor"])
    return Tokenizer.from_str(json.dumps(content))


def _set_prefix(node: Any) -> None:
    """Switches `add_prefix_space` on in every byte-level stage below `node`."""
    if isinstance(node, list):
        for child in node:
            _set_prefix(child)
    elif isinstance(node, dict):
        if node.get("add_prefix_space") is False:
            node["add_prefix_space"] = True
        for child in node.values():
            _set_prefix(child)
