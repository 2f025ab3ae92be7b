"""Vectors of whole texts as sentence-transformers makes them, by the pooling and prompts of a model's own files.

    settings = read_settings(folder)
    vectors_ND = sentence_vectors(predictor, texts, settings, normalize=True)

A folder of sentence-transformers lists its modules in `modules.json`: the transformer, how its states are pooled, and
what follows (a dense layer, normalisation). Without that file the mean over all positions is taken, which is that
library's default, too. Open it to add a way of pooling or a kind of module. Sentence-BERT: Reimers and Gurevych, EMNLP
2019.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Protocol

import numpy as np

from charlm.convert.files import read_state
from charlm.convert.sentence_files import MODULES, PROMPTS, TEXTS
from charlm.core.durable import write_json
from charlm.core.nearest import did_you_mean
from charlm.core.reading import read_json, read_object
from charlm.core.types import Json, JsonObject
from charlm.families.arguments import checked_texts
from charlm.families.exported import around, checked_longest, read_longest
from charlm.families.predictor import Predictor

_AT_A_TIME = 16  # batches whose states are in memory at once
_LIBRARY = "sentence_transformers."
_MODELS = f"{_LIBRARY}models."
_SMALLEST = 1e-12  # of a norm that is divided by, as torch.nn.functional.normalize has it


def _weighted(states_LD: np.ndarray) -> np.ndarray:
    weights_L1 = np.arange(1, len(states_LD) + 1, dtype=np.float32)[:, None]
    return (states_LD * weights_L1).sum(axis=0) / weights_L1.sum()


# In the order in which several of them are joined to one vector.
POOLS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "cls": lambda states_LD: states_LD[0],
        "max": lambda states_LD: states_LD.max(axis=0),
        "mean": lambda states_LD: states_LD.mean(axis=0),
        "mean_sqrt_len": lambda states_LD: states_LD.sum(axis=0) / np.sqrt(np.float32(len(states_LD))),
        "weightedmean": _weighted,
        "lasttoken": lambda states_LD: states_LD[-1],
    }
)
_FLAGS = MappingProxyType(
    {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
        "pooling_mode_weightedmean_tokens": "weightedmean",
        "pooling_mode_lasttoken": "lasttoken",
    }
)
_ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {"Identity": lambda x: x, "Tanh": np.tanh, "ReLU": lambda x: np.maximum(x, 0)}
)
_PLACES = MappingProxyType({"Identity": "linear", "Tanh": "activation", "ReLU": "activation"})  # in torch.nn.modules


class Step(Protocol):
    """What is done to the vectors of sentences after pooling."""

    def __call__(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Returns the changed vectors, float32 [N, E]."""
        ...


@dataclasses.dataclass(frozen=True)
class Normalize:
    """Divides each vector by its length."""

    def __call__(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Returns vectors of length 1; a vector of zeros stays."""
        return vectors_ND / np.maximum(np.linalg.norm(vectors_ND, axis=1, keepdims=True), _SMALLEST)


@dataclasses.dataclass(frozen=True, eq=False)  # arrays have no single equality
class Dense:
    """A linear layer with an activation.

    Attributes:
      weight_ED: float32.
      bias_E: float32; zeros for a layer without.
      activation: a key of the table of activations.
    """

    weight_ED: np.ndarray
    bias_E: np.ndarray
    activation: str

    def __call__(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Returns the layer's output; ValueError for vectors of another width."""
        if vectors_ND.shape[1] != self.weight_ED.shape[1]:
            raise ValueError(
                f"the dense layer reads {self.weight_ED.shape[1]} numbers, a vector has {vectors_ND.shape[1]}"
            )
        return _ACTIVATIONS[self.activation](vectors_ND @ self.weight_ED.T + self.bias_E)


@dataclasses.dataclass(frozen=True)
class SentenceSettings:
    """How a model makes one vector of a text.

    Attributes:
      pools: keys of `POOLS`; the vectors of several are joined in the order of that table.
      steps: what follows, in order.
      longest: most positions of a text that are read, special tokens included; None: all, in windows.
      lowercase: whether texts are lowercased before the tokenizer reads them.
      prompts: texts in front of every text, by name.
      default_prompt: the name of the prompt that is used if none is named; None: none.
      includes_prompt: whether the states of a prompt are pooled, too.
      digest: SHA-256 of all this, in hexadecimal; equal settings have equal digests.
    """

    pools: tuple[str, ...] = ("mean",)
    steps: tuple[Step, ...] = ()
    longest: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    includes_prompt: bool = True
    digest: str = ""

    def prompt_of(self, prompt: str | None, name: str | None) -> str:
        """Returns the text in front of every text.

        Args:
          prompt: the text itself; None: that of `name`.
          name: the name of a prompt; None: the default one.

        Raises:
          ValueError: both are given, or no prompt has this name.
        """
        if prompt is not None and name is not None:
            raise ValueError(f"prompt and prompt_name={name!r}: expected one of them")
        name = self.default_prompt if name is None else name
        if prompt is not None or name is None:
            return prompt or ""
        if name not in self.prompts:
            known = f"one of {', '.join(self.prompts)}{did_you_mean(name, self.prompts)}" if self.prompts else "none"
            raise ValueError(f"prompt_name={name!r}: the model has {known}")
        return self.prompts[name]

    def check_prompt(self, prompt: str) -> None:
        """Raises ValueError for a prompt whose states the model's files leave out of pooling."""
        if prompt and not self.includes_prompt:
            raise ValueError(
                "the model's files leave the prompt out of pooling (include_prompt), which charlm cannot do"
            )


def read_settings(folder: Path) -> SentenceSettings:
    """Returns the settings in a model's folder; those of a folder without `modules.json` are the defaults.

    If the model lies in an exported folder (`charlm.families.exported`), prompts and the longest text are that one's.

    Raises:
      ValueError: a file is damaged, or asks for what charlm cannot do; names the file.
    """
    outer = around(folder)
    made = _by_modules(folder) if (folder / MODULES).is_file() else SentenceSettings()
    prompts, default = _prompts((outer or folder) / PROMPTS)
    longest = made.longest if outer is None else read_longest(outer)
    return _sealed(dataclasses.replace(made, prompts=prompts, default_prompt=default, longest=longest))


def write_settings(folder: Path, settings: SentenceSettings, width: int) -> None:
    """Writes settings as sentence-transformers does, into the folder of a model; `read_settings` reads them back.

    Args:
      width: width of the model's states.

    Raises:
      OSError: a file cannot be written.
    """
    from safetensors.numpy import save_file

    modules: list[JsonObject] = []

    def add(kind: str, where: str, content: JsonObject | None = None) -> Path:
        modules.append({"idx": len(modules), "name": str(len(modules)), "path": where, "type": f"{_MODELS}{kind}"})
        if where:
            (folder / where).mkdir(exist_ok=True)
            write_json(folder / where / "config.json", content or {})
        return folder / where

    add("Transformer", "")
    pools: JsonObject = {flag: pool in settings.pools for flag, pool in _FLAGS.items()}
    add(
        "Pooling", "1_Pooling", {"word_embedding_dimension": width, **pools, "include_prompt": settings.includes_prompt}
    )
    for number, step in enumerate(settings.steps, start=2):
        if isinstance(step, Dense):
            after, before = step.weight_ED.shape
            activation = f"torch.nn.modules.{_PLACES[step.activation]}.{step.activation}"
            about: JsonObject = {"in_features": before, "out_features": after, "bias": True}
            inside = add("Dense", f"{number}_Dense", {**about, "activation_function": activation})
            save_file({"linear.weight": step.weight_ED, "linear.bias": step.bias_E}, inside / "model.safetensors")
        else:
            add("Normalize", f"{number}_Normalize")
    write_json(folder / MODULES, list(modules))
    write_json(folder / TEXTS, {"max_seq_length": settings.longest, "do_lower_case": settings.lowercase})
    write_json(folder / PROMPTS, {"prompts": dict(settings.prompts), "default_prompt_name": settings.default_prompt})


def _by_modules(folder: Path) -> SentenceSettings:
    """Returns what the modules of a folder say, without prompts."""
    pools: tuple[str, ...] = ("mean",)
    steps: list[Step] = []
    includes_prompt = True
    for n, (kind, path) in enumerate(_modules(folder / MODULES)):
        inside = folder / path
        if (kind == "Transformer") != (n == 0) or (kind == "Pooling") != (n == 1) or (n == 0 and path):
            raise ValueError(
                f"{folder / MODULES}: expected a Transformer in the folder itself, then a Pooling, then others; "
                f"module {n} is a {kind} in {path!r}"
            )
        if kind == "Pooling":
            pools, includes_prompt = _pooling(inside / "config.json")
        elif kind == "Normalize":
            steps.append(Normalize())
        elif kind == "Dense":
            steps.append(_dense(inside))
        elif kind not in ("Transformer", "Dropout"):
            raise ValueError(
                f"{folder / MODULES}: module {n} is a {kind}; charlm has Transformer, Pooling, Normalize, Dense"
            )
    longest, lowercase = _texts(folder / TEXTS)
    return SentenceSettings(pools, tuple(steps), longest, lowercase, includes_prompt=includes_prompt)


def sentence_vectors(
    predictor: Predictor,
    texts: Iterable[str],
    settings: SentenceSettings,
    *,
    normalize: bool = False,
    prompt: str = "",
    batch_size: int = 32,
) -> np.ndarray:
    """Returns the vector of each text, float32 [N, D]; texts of similar length are read together.

    Args:
      predictor: makes the states.
      texts: any texts; white space at both ends is left out, as sentence-transformers does.
      settings: how states become one vector.
      normalize: whether vectors get length 1 even if the settings do not say so.
      prompt: stands in front of every text.
      batch_size: texts that are read at a time.

    Raises:
      ValueError: `texts` is one string, `batch_size` is not positive, the prompt cannot be left out of the mean as the
        settings ask, or a dense layer does not fit the model.
    """
    settings.check_prompt(prompt)
    read = [(prompt + text).strip() for text in checked_texts(texts, batch_size)]
    if settings.lowercase:
        read = [text.lower() for text in read]
    if not read:  # no rows, but as wide as others
        return sentence_vectors(predictor, [""], settings, batch_size=batch_size)[:0]
    order = sorted(range(len(read)), key=lambda n: -len(read[n]))
    found: list[np.ndarray] = [np.zeros(0, np.float32)] * len(read)
    size = _AT_A_TIME * batch_size
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        states = predictor.positions([read[n] for n in chosen], batch_size, settings.longest)
        for n, states_LD in zip(chosen, states, strict=True):
            found[n] = pooled(states_LD, settings.pools)
    vectors_ND = np.stack(found)
    for step in (*settings.steps, *([Normalize()] if normalize else [])):
        vectors_ND = step(vectors_ND)
    return np.ascontiguousarray(vectors_ND, np.float32)


def pooled(states_LD: np.ndarray, pools: Sequence[str]) -> np.ndarray:
    """Returns the vector of a text from the states of its positions; zeros if it has none.

    Args:
      states_LD: float32.
      pools: keys of `POOLS`.
    """
    if not len(states_LD):
        return np.zeros(len(pools) * states_LD.shape[1], np.float32)
    return np.concatenate([POOLS[name](states_LD) for name in POOLS if name in pools])


def _modules(path: Path) -> list[tuple[str, str]]:
    """Returns kind and folder of each module of `modules.json`, in order."""
    listed = read_json(path)
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"{path}: expected a list of modules")
    found = []
    for n, module in enumerate(listed):
        named = isinstance(module, dict) and isinstance(module.get("type"), str)
        if not named or not isinstance(module.get("path"), str):
            raise ValueError(f"{path}: module {n}: expected an object with the texts type and path")
        kind, inside = module["type"], PurePosixPath(module["path"])
        if not kind.startswith(_LIBRARY):
            raise ValueError(f"{path}: module {n} is a {kind[:80]}, code of its own that charlm does not run")
        if inside.is_absolute() or ".." in inside.parts:
            raise ValueError(f"{path}: module {n}: its path {module['path'][:80]!r} leaves the model's folder")
        found.append((kind.rpartition(".")[2], module["path"]))
    return found


def _pooling(path: Path) -> tuple[tuple[str, ...], bool]:
    """Returns the names of the pools, and whether those of a prompt count, from the settings of a Pooling."""
    content = read_object(path)
    stated = content.get("pooling_mode")  # newer files name the modes, older ones have a flag for each
    names = [stated] if isinstance(stated, str) else stated
    if names is None:
        names = [pool for flag, pool in _FLAGS.items() if _flag(content, flag, path, False)]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name in POOLS for name in names):
        raise ValueError(f"{path}: pooling {str(names)[:80]}: expected one or more of {', '.join(POOLS)}")
    return tuple(name for name in POOLS if name in names), _flag(content, "include_prompt", path, True)


def _flag(content: JsonObject, key: str, path: Path, usual: bool) -> bool:
    value = content.get(key, usual)
    if not isinstance(value, bool):
        raise ValueError(f"{path}: {key}: expected true or false, got {str(value)[:40]}")
    return value


def _dense(folder: Path) -> Dense:
    """Returns the dense layer in a folder."""
    content = read_object(folder / "config.json")
    name = str(content.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise ValueError(f"{folder / 'config.json'}: activation {name}: expected one of {', '.join(_ACTIVATIONS)}")
    state = read_state(folder)
    weight = state.get("linear.weight")
    if weight is None or weight.ndim != 2:
        raise ValueError(f"{folder}: expected the matrix linear.weight, found {', '.join(sorted(state)) or 'nothing'}")
    bias = state.get("linear.bias", np.zeros(len(weight), np.float32))
    if bias.shape != (len(weight),):
        raise ValueError(f"{folder}: linear.bias has the shape {bias.shape}, expected ({len(weight)},)")
    return Dense(weight.astype(np.float32), bias.astype(np.float32), name)


def _texts(path: Path) -> tuple[int | None, bool]:
    """Returns the longest text and whether texts are lowercased; (None, False) without the file."""
    if not path.is_file():
        return None, False
    content = read_object(path)
    longest = checked_longest(content.get("max_seq_length"), str(path))
    return longest, _flag(content, "do_lower_case", path, False)


def _prompts(path: Path) -> tuple[Mapping[str, str], str | None]:
    """Returns the prompts and the name of the default one."""
    if not path.is_file():
        return MappingProxyType({}), None
    content = read_object(path)
    prompts: Json = content.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise ValueError(f"{path}: prompts: expected an object of texts")
    default = content.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ValueError(f"{path}: default_prompt_name {str(default)[:40]!r} is none of {', '.join(prompts) or 'none'}")
    return MappingProxyType(dict(prompts)), default


def _sealed(settings: SentenceSettings) -> SentenceSettings:
    """Returns settings with their digest."""
    found = hashlib.sha256()
    for value in (settings.pools, settings.longest, settings.lowercase, sorted(settings.prompts.items())):
        found.update(f"{value!r};".encode("utf-8", "surrogatepass"))
    found.update(f"{settings.default_prompt!r};{settings.includes_prompt};".encode("utf-8", "surrogatepass"))
    for step in settings.steps:
        found.update(f"{type(step).__name__};".encode())
        if isinstance(step, Dense):
            found.update(f"{step.activation}{step.weight_ED.shape}".encode())
            found.update(np.ascontiguousarray(step.weight_ED).tobytes() + step.bias_E.tobytes())
    return dataclasses.replace(settings, digest=found.hexdigest())
