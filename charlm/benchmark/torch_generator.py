"""The paths of XR-Dec in PyTorch's own layers, in three usual forms: packed, padded, or cut to the longest word.

The case `generator` measures them beside charlm's (`generator`). Open it when the loss of a rival differs from
charlm's.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from charlm.benchmark.generator import decoder_config, lengths_of, rows_of_words, vectors_of
from charlm.benchmark.paths import Job, Runner
from charlm.benchmark.pytorch import TorchRunner
from charlm.families.xrayemb.decoder import XRDecoderConfig

Step = tuple[np.ndarray, np.ndarray, np.ndarray]  # vectors [U, D], characters [U, C], lengths [U]; longest word first


def make(job: Job) -> Runner:
    """Returns the runner of a job."""
    return TorchGenerator(job)


class Decoder(torch.nn.Module):
    """XR-Dec with the layers, names and ids of the released module: padding is the last id, and is not a class."""

    def __init__(self, config: XRDecoderConfig) -> None:
        super().__init__()
        V, K = config.char_vocab_size, config.hidden
        self.layers, self.hidden = config.layers, K
        self.char_embs = torch.nn.Embedding(V, config.char_embedding)
        self.h_0 = torch.nn.Linear(config.vector, config.layers * K)
        self.lstm = torch.nn.LSTM(config.char_embedding, K, config.layers, batch_first=True)
        self.proj1, self.proj2 = torch.nn.Linear(K, V - 1), torch.nn.Linear(V - 1, V - 1)
        self.loss = torch.nn.CrossEntropyLoss(ignore_index=V - 1)

    def forward(
        self, vectors_UD: torch.Tensor, ids_UC: torch.Tensor, length_U: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the mean loss over all characters.

        Args:
          vectors_UD: the vectors of the words.
          ids_UC: the characters of the words.
          length_U: the lengths, by which words are packed, longest first; None: the LSTM reads the padding, too.
        """
        h_NUK = self.h_0(vectors_UD).view(-1, self.layers, self.hidden).transpose(0, 1).contiguous()
        start = h_NUK, torch.zeros_like(h_NUK)
        if length_U is None:
            x_UTK, _ = self.lstm(self.char_embs(ids_UC[:, :-1]), start)
        else:
            packed = torch.nn.utils.rnn.pack_padded_sequence(self.char_embs(ids_UC), length_U, batch_first=True)
            x_UCK, _ = torch.nn.utils.rnn.pad_packed_sequence(self.lstm(packed, start)[0], batch_first=True)
            x_UTK = x_UCK[:, :-1]
        logits_UTV = self.proj2(torch.tanh(self.proj1(x_UTK)))
        return self.loss(logits_UTV.flatten(0, 1), ids_UC[:, 1:].flatten())


class TorchGenerator(TorchRunner):
    """Computes the same steps as `charlm.benchmark.generator.Generator`."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.config = decoder_config(job)
        self.place(Decoder(self.config).train(), torch.float32)

    def tokenise(self, texts: list[str], words: int) -> list[Step]:
        """See `Runner`."""
        made = []
        for chars_UC in rows_of_words(self.job, texts):
            length_U = lengths_of(chars_UC)
            order_U = np.argsort(-length_U, kind="stable")
            slots = chars_UC.shape[1] if self.job.path == "torch_padded" else int(length_U.max())
            ids_UC = (chars_UC[order_U, :slots].astype(np.int64) - 1) % self.config.char_vocab_size
            vectors_UD = vectors_of(len(chars_UC), self.config.vector)[order_U]
            made.append((vectors_UD, ids_UC, length_U[order_U]))
        return made

    def warm(self, host: list[Step]) -> None:
        """See `Runner`; torch.compile is not tried, since it does not change an LSTM."""
        self.about["torch_compile"] = "not tried"
        self.run(host)

    def compute(self, host: list[Step]) -> list[torch.Tensor]:
        """See `TorchRunner`; returns the loss of each step, and leaves the gradients of the last step."""
        losses = []
        for vectors_UD, ids_UC, length_U in host:
            self.model.zero_grad(set_to_none=True)
            self.vectors = self.put(vectors_UD).requires_grad_()
            packed = torch.from_numpy(length_U) if self.job.path == "torch_packed" else None
            with self.autocast():
                loss = self.model(self.vectors, self.put(ids_UC), packed)
            loss.backward()
            losses.append(loss.detach())
        return losses

    def key(self, host: list[Step]) -> tuple[int, ...]:
        """See `TorchRunner`."""
        return (len(host),)

    def tokens(self, host: list[Step]) -> tuple[float, int]:
        """See `Runner`; the tokens are the characters of a step's words, the length is the computed slots of a step."""
        found = [int(length_U.sum()) for _, _, length_U in host]
        slots = found if self.job.path == "torch_packed" else [ids_UC.size for _, ids_UC, _ in host]
        return sum(found) / len(found), math.ceil(sum(slots) / len(slots))
