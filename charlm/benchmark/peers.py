"""The paths of Hugging Face's models in PyTorch: BERT-base, CANINE-S, and the encoder of ByT5-base.

Open it to see how the rivals are set up, or to add one. The weights are random, the shapes are the published ones. Each
model reads texts as its own tokenizer cuts them, padded to the longest text of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
import transformers

from charlm.benchmark.bert import MaskedSubwords, masked_subwords, sorted_calls, subwords
from charlm.benchmark.paths import TRAINING, Job, Runner
from charlm.benchmark.pytorch import TorchRunner
from charlm.benchmark.text import sentences
from charlm.core.types import ModelConfig, Option
from charlm.text.subwords import SubwordTokenizer

CANINE_CLS, CANINE_SEP, CANINE_PAD = 0xE000, 0xE001, 0  # private code points
BYT5_OFFSET, BYT5_END, BYT5_PAD = 3, 1, 0
BYT5: dict[str, Option] = {"d_model": 1536, "d_ff": 3968, "d_kv": 64, "num_heads": 12, "num_layers": 18,
                        "feed_forward_proj": "gated-gelu", "vocab_size": 384}  # fmt: skip
SMOKE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
BYT5_SMOKE = {"d_model": 32, "d_ff": 48, "d_kv": 16, "num_heads": 2, "num_layers": 2}


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    if job.case == TRAINING:
        return TorchBertTraining(job)
    kinds = {
        "hf_bert": TorchBertInference, "hf_bert_sorted": TorchBertSorted, "canine": CanineInference,
        "byt5": Byt5Inference,
    }  # fmt: skip
    return kinds[job.path](job)


def code_points(texts: list[str], multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns CANINE's ids, one for each character, and the mask, [B, L]; L is a multiple of the downsampling rate."""
    read = lambda part: np.frombuffer(part.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _padded(_joined(texts, read, [CANINE_CLS], [CANINE_SEP]), CANINE_PAD, multiple)


def utf8_bytes(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns ByT5's ids, one for each byte, and the mask, [B, L]."""
    read = lambda part: np.frombuffer(part.encode("utf-8", "replace"), np.uint8).astype(np.int64) + BYT5_OFFSET
    return _padded(_joined(texts, read, [], [BYT5_END]), BYT5_PAD, 1)


def _joined(
    texts: list[str], read: Callable[[str], np.ndarray], before: list[int], after: list[int]
) -> list[np.ndarray]:
    """Returns the ids of each text or pair, with those before it and those after each sentence."""
    rows = [[part for sentence in sentences(text) for part in (read(sentence), after)] for text in texts]
    return [np.concatenate([before, *row]).astype(np.int64) for row in rows]


def _padded(rows: list[np.ndarray], pad: int, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    length = math.ceil(max(map(len, rows)) / multiple) * multiple
    ids_BL, mask_BL = np.full((len(rows), length), pad, np.int64), np.zeros((len(rows), length), bool)
    for b, row in enumerate(rows):
        ids_BL[b, : len(row)], mask_BL[b, : len(row)] = row, True
    return ids_BL, mask_BL


class _Inference(TorchRunner):
    """Computes contextual states [B, L, D] of all tokens."""

    def build(self, kind: type, config: ModelConfig, **options: Option) -> None:
        """Makes the model, with PyTorch's own attention kernels if the model can use them."""
        best = "sdpa" if kind._supports_sdpa else "eager"
        model = kind._from_config(config, attn_implementation=best, **options)
        self.about["attention"] = model.config._attn_implementation
        self.place(model.eval(), self.dtype)

    def compute(self, host: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
        """See `TorchRunner`."""
        with torch.inference_mode():
            ids, mask = map(self.put, host)
            return self.module(host)(input_ids=ids, attention_mask=mask.long()).last_hidden_state

    def key(self, host: tuple[np.ndarray, np.ndarray]) -> tuple[int, ...]:
        """See `TorchRunner`."""
        return host[0].shape

    def tokens(self, host: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
        """See `Runner`."""
        return float(host[1].sum(axis=1).mean()), host[1].shape[1]


def bert_config(
    job: Job, tokenizer: SubwordTokenizer, shape_of: Mapping[str, Option] | None = None
) -> transformers.BertConfig:
    """Returns the config of BERT-base, with a larger table of positions if texts have more than 512 pieces.

    Args:
      shape_of: fields of a shape other than BERT-base's.
    """
    longest = max(subwords(tokenizer, texts)[0].shape[1] for texts in job.texts)
    shape = transformers.BertConfig(**(SMOKE if job.smoke else shape_of or {}))
    shape.vocab_size = max(shape.vocab_size, tokenizer.size)
    shape.max_position_embeddings = max(shape.max_position_embeddings, longest)
    return shape


class TorchBertInference(_Inference):
    """BERT-base."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._tokenizer = SubwordTokenizer.load(job.tokenizer)
        self.build(transformers.BertModel, bert_config(job, self._tokenizer), add_pooling_layer=False)

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`."""
        ids_BL, mask_BL = subwords(self._tokenizer, texts)
        return ids_BL.astype(np.int64), mask_BL


class TorchBertSorted(TorchBertInference):
    """BERT-base over texts sorted by length, a few a call, each call padded to its longest text: the usual remedy."""

    def compute(self, host: tuple[np.ndarray, np.ndarray]) -> list[torch.Tensor]:
        """See `TorchRunner`; sorting is part of the measured work."""
        with torch.inference_mode():
            return [
                self.model(input_ids=self.put(ids_BL), attention_mask=self.put(mask_BL).long()).last_hidden_state
                for _, ids_BL, mask_BL in sorted_calls(*host)
            ]

    def warm(self, host: tuple[np.ndarray, np.ndarray]) -> None:
        """See `TorchRunner`; torch.compile is not tried, since it would compile a program for each length."""
        self.run(host)
        self.about.setdefault("torch_compile", []).append("not tried")

    def tokens(self, host: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
        """See `Runner`."""
        positions = sum(ids_BL.size for _, ids_BL, _ in sorted_calls(*host))
        return float(host[1].sum(axis=1).mean()), round(positions / len(host[1]))


class CanineInference(_Inference):
    """CANINE-S, the defaults of its configuration."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        config = transformers.CanineConfig(**(SMOKE if job.smoke else {}))
        self._multiple = config.downsampling_rate
        self.build(transformers.CanineModel, config, add_pooling_layer=False)

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`."""
        return code_points(texts, self._multiple)


class Byt5Inference(_Inference):
    """The encoder of ByT5-base."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.build(transformers.T5EncoderModel, transformers.T5Config(**(BYT5 | (BYT5_SMOKE if job.smoke else {}))))

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`."""
        return utf8_bytes(texts)


class TorchBertTraining(TorchRunner):
    """Runs optimizer steps of masked language modelling, with the head at masked positions only and with dropout."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._tokenizer = SubwordTokenizer.load(job.tokenizer)
        config = bert_config(job, self._tokenizer)
        model = transformers.BertForMaskedLM._from_config(config, attn_implementation="sdpa")
        self.about["attention"] = model.config._attn_implementation
        self._shell = _MaskedHead(model)
        self.place(self._shell, torch.float32)
        self.start_training()

    def tokenise(self, texts: list[str], words: int) -> MaskedSubwords:
        """See `Runner`."""
        return masked_subwords(self._tokenizer, texts)

    def compute(self, host: MaskedSubwords) -> torch.Tensor:
        """See `TorchRunner`."""
        batch = [self.put(array) for array in host]
        with self.autocast():
            logits_BMV = self.module(host)(*(x.long() for x in batch[:3]))
        nats = torch.nn.functional.cross_entropy(
            logits_BMV.flatten(0, 1).float(), batch[3].long().flatten(), reduction="none"
        )
        weight = batch[4].flatten()
        return self.step((nats * weight).sum() / weight.sum())

    def key(self, host: MaskedSubwords) -> tuple[int, ...]:
        """See `TorchRunner`."""
        return host.ids_BL.shape

    def tokens(self, host: MaskedSubwords) -> tuple[float, int]:
        """See `Runner`."""
        return float(host.mask_BL.sum(axis=1).mean()), host.mask_BL.shape[1]


class _MaskedHead(torch.nn.Module):
    """BertForMaskedLM with the head at masked positions only, which is less work and no option of its own `forward`."""

    def __init__(self, model: transformers.BertForMaskedLM) -> None:
        super().__init__()
        self.whole = model

    def forward(self, ids_BL: torch.Tensor, mask_BL: torch.Tensor, positions_BM: torch.Tensor) -> torch.Tensor:
        """Returns logits [B, M, V]."""
        states_BLD = self.whole.bert(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
        at_BMD = positions_BM[..., None].expand(-1, -1, states_BLD.shape[-1])
        return self.whole.cls(states_BLD.gather(1, at_BMD))
