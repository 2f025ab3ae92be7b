"""A model of charlm as a module of sentence-transformers: texts go in, vectors that charlm made come out.

    model = sentence_transformer("runs/reader")  # a SentenceTransformer, of any model that `charlm.load` takes

`modules.json` of an exported folder (`charlm export --format sentence-transformers`) names `SentenceModule`. Open it to
change what that library is given. It needs PyTorch; nothing else of charlm imports it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from charlm.core import extras
from charlm.export.sentence_folder import TextModel, copy_model, load_text_model
from charlm.families.arguments import checked_texts
from charlm.families.exported import INSIDE, checked_longest, write_settings
from charlm.families.sentences import sentence_vectors

Features = dict[str, Any]  # tensors by name, which have no types here

_NO_GRADIENTS = (
    "a model of charlm has no gradients in PyTorch: train it with charlm; to compute vectors, use encode or "
    "torch.no_grad(); to train other modules on them, freeze it first: model[0].requires_grad_(False)"
)
_PADDING = -1


class Vectors(Features):
    """Features that hold vectors of texts, and say so when asked for anything else."""

    def __missing__(self, name: str) -> Any:  # it returns nothing
        raise ValueError(f"a model of charlm gives sentence_embedding, one vector a text, and no {name}")


class SentenceModule(torch.nn.Module):
    """The one module of a SentenceTransformer whose vectors charlm makes.

    JAX computes them on its own device; they are handed over in the dtype and on the device of this module.

    Args:
      path: what `charlm.from_pretrained` reads, such as an exported folder.

    Attributes:
      save_in_root: as sentence-transformers asks for it: the files lie in the model's folder itself.
      tokenizer: None, since charlm reads texts its own way.
      place: a parameter without elements, float32 [0]: it has the dtype and device, and is what an optimizer finds.

    Raises:
      ValueError: there is no model, it makes no vectors of texts, or its files are damaged.
    """

    save_in_root = True
    tokenizer: ClassVar[None] = None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = os.path.abspath(path) if os.path.exists(path) else os.fspath(path)  # a process may stand elsewhere
        self.place = torch.nn.Parameter(torch.zeros(0))
        self._loaded: TextModel | None = load_text_model(self.path)
        self._longest = self._loaded.settings.longest
        self._width: int | None = None  # of a vector, once it was asked for

    def __getstate__(self) -> dict[str, Any]:  # attributes of any kind
        """Returns the attributes without the model: another process loads it again."""
        return {**super().__getstate__(), "_loaded": None}

    @property
    def text_model(self) -> TextModel:
        """The model; it is loaded again in another process; ValueError if it is gone."""
        if self._loaded is None:
            self._loaded = load_text_model(self.path)
        return self._loaded

    @property
    def max_seq_length(self) -> int | None:
        """The most positions of a text that are read; None: all. ValueError if it is set to anything else."""
        return self._longest

    @max_seq_length.setter
    def max_seq_length(self, value: int | None) -> None:
        self._longest = checked_longest(value, self.path)

    def get_embedding_dimension(self) -> int:
        """Returns the number of elements of a vector."""
        if self._width is None:  # only the model itself knows what its pooling and dense layers make
            model = self.text_model
            self._width = int(sentence_vectors(model.predictor, ["a"], model.settings).shape[1])
        return self._width

    get_sentence_embedding_dimension = get_embedding_dimension  # the name before version 5.4

    def preprocess(self, inputs: Sequence[str], prompt: str | None = None, **options: object) -> Features:
        """Returns the characters of texts, int64 [B, L] under "input_ids", padded by -1.

        Args:
          inputs: texts.
          prompt: stands in front of each.
          options: `task`, which has no meaning here; options of a tokenizer are refused.

        Raises:
          ValueError: an input is no text, there is another option, or the model's files leave prompts out of pooling.
        """
        if given := sorted(name for name, value in options.items() if name != "task" and value is not None):
            raise ValueError(f"{given[0]}: a model of charlm takes no options of a tokenizer")
        self.text_model.settings.check_prompt(prompt or "")
        codes = [[*map(ord, (prompt or "") + text)] for text in checked_texts(inputs, 1)]
        longest = max(map(len, codes), default=0)
        padded = [row + [_PADDING] * (longest - len(row)) for row in codes]
        return {"input_ids": torch.tensor(padded, dtype=torch.int64).reshape(len(codes), longest)}

    def tokenize(self, texts: Sequence[str], **options: object) -> Features:
        """Returns what `preprocess` does; older versions, which put prompts in front themselves, call it."""
        return self.preprocess(texts, None, **options)

    def forward(self, features: Mapping[str, Any]) -> Vectors:  # tensors
        """Returns the features with "sentence_embedding", the vectors of the texts, [B, D].

        Raises:
          RuntimeError: gradients are asked for, as training does.
          ValueError: the model's files ask for what charlm cannot do.
        """
        if torch.is_grad_enabled() and self.place.requires_grad:
            raise RuntimeError(_NO_GRADIENTS)
        rows = features["input_ids"].tolist()
        texts = ["".join(chr(code) for code in row if code != _PADDING) for row in rows]
        model = self.text_model
        settings = dataclasses.replace(model.settings, longest=self._longest)
        size = max(1, len(texts))
        vectors_BD = sentence_vectors(model.predictor, texts, settings, normalize=model.normalize, batch_size=size)
        return Vectors({**features, "sentence_embedding": torch.from_numpy(vectors_BD).to(self.place)})

    def save(self, output_path: str, *_: object, **__: object) -> None:
        """Writes the module's part of an exported folder; the library's options of saving have no meaning here.

        Raises:
          ValueError: the folder that the model was read from is gone.
          OSError: a file cannot be written.
        """
        folder, model = Path(output_path), self.text_model
        write_settings(folder, self._longest, model.normalize)
        target = folder / INSIDE
        if target.exists() and target.samefile(model.pretrained.folder):
            return
        partial = folder / f".{INSIDE}.{os.getpid()}.partial"
        try:
            copy_model(model.pretrained, partial)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    @classmethod  # `options` are whatever the library's version hands to modules
    def load(cls, model_name_or_path: str, subfolder: str = "", backend: str = "torch", **options: Any) -> Self:
        """Returns the module of an exported folder.

        Args:
          model_name_or_path: the folder, or the name of a model on the hub.
          subfolder: where the module lies in it.
          backend: "torch".
          options: how sentence-transformers finds files on the hub; options of a model of transformers are refused.

        Raises:
          ValueError: an option cannot be met, there is no model, or its files are damaged.
        """
        if backend != "torch":
            raise ValueError(f"backend={backend!r}: a model of charlm has torch alone, which hands over what JAX made")
        if given := [name for name, value in options.items() if name.endswith(("_kwargs", "_args")) and value]:
            raise ValueError(f"{given[0]}: a model of charlm takes no options of transformers")
        folder = Path(model_name_or_path) / subfolder
        if folder.is_dir():
            return cls(folder)
        hub = {name: options.get(name) for name in ("token", "cache_folder", "revision", "local_files_only")}
        util = extras.load("SentenceModule.load", "sentence_transformers.util")
        found = util.load_dir_path(model_name_or_path, subfolder=subfolder, **hub)
        if found is None:
            raise ValueError(f"{model_name_or_path}: there is no such folder, and no such model on the hub")
        return cls(found)


def sentence_transformer(path: str | os.PathLike[str], **options: Any) -> Any:  # the library has no types here
    """Returns a `SentenceTransformer` of any model of charlm that makes vectors of texts.

    No option `trust_remote_code` is needed, since this code is imported by whoever calls it.

    Args:
      path: what `charlm.from_pretrained` reads, such as the folder of a reader, or an exported one.
      options: of `SentenceTransformer`, such as `device` or `prompts`; they go before what the model's files say.

    Raises:
      ValueError: sentence-transformers is not installed, there is no model, or it makes no vectors of texts.
    """
    library = extras.load("sentence_transformer", "sentence_transformers")
    module = SentenceModule(path)
    model = module.text_model
    told: Features = {"prompts": dict(model.settings.prompts), "default_prompt_name": model.settings.default_prompt}
    if model.similarity:
        told["similarity_fn_name"] = model.similarity
    return library.SentenceTransformer(modules=[module], **(told | options))
