"""Finds models by name: `bert-base-cased` in the local cache of `huggingface_hub`, `hf:bert-base-cased` on the hub.

Only a name that begins with "hf:" is ever downloaded. Open it when a downloaded model is not found under its name, or
to change which files of a model are fetched.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from types import ModuleType

PREFIX = "hf:"  # of names that may be downloaded

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")  # "bert-base-cased", "google-bert/bert-base-cased"
# What charlm reads of a model: configs, tokenizers, vocabularies and safetensors. Code is never fetched, and other
# formats of the same weights (ONNX, TensorFlow, Core ML), which most repositories carry, would only take time.
_READ = ["*.json", "*.txt", "*.model", "*.safetensors"]
_OTHERS = [
    *("onnx/*", "openvino/*", "coreml/*", "tflite/*", "rust_model*", "tf_model*", "flax_model*"),
    *("checkpoint-*/*", "original/*", "*.fp16.safetensors"),  # of the training, and in other forms
]
# Only where there are no safetensors; they are read without running code. Dense layers have files of their own.
_PICKLED, _DENSE = ["pytorch_model*.bin"], ["*_Dense/pytorch_model.bin"]


def find_cached(name: str) -> Path:
    """Returns the folder of a model in the cache; one whose name begins with "hf:" is downloaded if it is not there.

    Args:
      name: such as "google-bert/bert-base-cased", "hf:google-bert/bert-base-cased" or, for one revision (a branch, tag
        or commit) of it, "hf:google-bert/bert-base-cased@main".

    Raises:
      ValueError: the cache does not have it, or the hub; `name` is not a valid name of a model; or the hub cannot be
        reached.
    """
    if name.startswith(PREFIX):
        return _downloaded(name)
    if not _NAME.fullmatch(name) or name.strip(".") == "":
        raise ValueError(f"{name} does not exist")
    hub = _hub(f"{name} does not exist; huggingface_hub, whose cache may hold a model of that name,")
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    except hub.errors.HFValidationError:
        raise ValueError(f"{name} does not exist") from None
    except (hub.errors.LocalEntryNotFoundError, OSError):
        # Recent releases refuse a snapshot that lacks any file of the repository, though only some are ever needed.
        found = hub.try_to_load_from_cache(name, "config.json")
        if isinstance(found, str):
            return Path(found).parent
        if "/" in name and os.path.isdir(os.path.dirname(name)):  # meant is what that folder lacks
            raise ValueError(f"{name} does not exist in the folder {os.path.dirname(name)}") from None
        raise ValueError(
            f"{name} does not exist, and no model of that name is in the cache of huggingface_hub "
            f"({hub.constants.HF_HUB_CACHE}); {PREFIX}{name} downloads it"
        ) from None


@functools.cache  # a model's folder is looked up several times while it is read; the hub is asked once
def _downloaded(name: str) -> Path:
    """Returns the folder of a model of the hub, whose files are fetched unless the cache has them already."""
    model, _, revision = name.removeprefix(PREFIX).partition("@")
    if not _NAME.fullmatch(model) or model.strip(".") == "" or revision.startswith("-"):
        raise ValueError(f"{name}: expected {PREFIX}NAME or {PREFIX}OWNER/NAME, and perhaps @REVISION")
    hub = _hub(f"{name}: huggingface_hub, which downloads models,")
    fetch = functools.partial(hub.snapshot_download, model, revision=revision or None, ignore_patterns=_OTHERS)
    try:
        folder = Path(fetch(allow_patterns=_READ))
        lacking = [] if any(folder.glob("*.safetensors")) else list(_PICKLED)
        lacking += [] if all(any(one.glob("*.safetensors")) for one in folder.glob("*_Dense")) else _DENSE
        return Path(fetch(allow_patterns=[*_READ, *lacking])) if lacking else folder
    except hub.errors.HFValidationError:
        raise ValueError(f"{name}: {model} is not a name that the hub allows") from None
    except hub.errors.GatedRepoError:
        raise ValueError(
            f"{name}: its authors ask who downloads it: accept their terms on its page, then run hf auth login"
        ) from None
    except hub.errors.RevisionNotFoundError:
        raise ValueError(f"{name}: {model} has no revision {revision!r}") from None
    except hub.errors.RepositoryNotFoundError:
        raise ValueError(f"{name}: the hub has no model {model}, or shows it only to people who log in") from None
    except (hub.errors.LocalEntryNotFoundError, hub.errors.HfHubHTTPError) as error:
        reason, where = " ".join(str(error.__cause__ or error).split()), hub.constants.ENDPOINT
        raise ValueError(f"{name}: {where} cannot be reached, and the cache lacks it ({reason})") from None
    except Exception as error:  # a connection that broke, of whatever library the hub's is written with; a full disk
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{name} could not be downloaded to {hub.constants.HF_HUB_CACHE}: {reason}") from None


def _hub(need: str) -> ModuleType:
    """Returns huggingface_hub with its errors and constants; ValueError, which begins with `need`, if there is none."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError:
        raise ValueError(f"{need} is not installed") from None
    return huggingface_hub
