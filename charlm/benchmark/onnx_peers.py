"""The paths of BERT in onnxruntime, which many who have no accelerator use: BERT-base and MiniLM, also in int8.

Open it to see how the models are exported and quantised, or to add one. PyTorch exports transformers' BERT with random
weights for any batch and length; onnxruntime fuses what it can. int8 is its dynamic quantisation: weights beforehand,
activations a call. All paths but `onnx_bert` read texts sorted by length, a few a call, as `hf_bert_sorted` does.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic

from charlm.benchmark.bert import sorted_calls, subwords
from charlm.benchmark.paths import PRODUCT, Job, Runner, product_speed, threads
from charlm.benchmark.peers import bert_config
from charlm.core.types import Option
from charlm.text.subwords import SubwordTokenizer

# The shape of all-MiniLM-L6-v2.
MINILM: dict[str, Option] = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
ON_CPU = ["CPUExecutionProvider"]
OPSET, IR = 18, 10  # versions of ONNX in the file of a bare product: old enough for any onnxruntime of today


class _Kind(NamedTuple):
    """What a path reads with: a shape other than BERT-base's, texts by length, weights in int8."""

    shape: dict[str, Option] | None = None
    by_length: bool = True
    int8: bool = False


_KINDS = {
    "onnx_bert": _Kind(by_length=False),
    "onnx_bert_sorted": _Kind(),
    "onnx_bert_int8": _Kind(int8=True),
    "onnx_minilm": _Kind(MINILM),
    "onnx_minilm_int8": _Kind(MINILM, int8=True),
}


def make(job: Job) -> Runner:
    """Returns the runner of a job; raises ValueError for a precision that onnxruntime does not compute in here."""
    if job.dtype != "float32":
        raise ValueError(f"{job.path} computes in float32 (or int8, by its name), not in {job.dtype}")
    return OnnxBert(job)


def bare_product(_: str) -> float:
    """Returns the speed of a bare float32 product in GFLOP/s; see `charlm.benchmark.hlm.bare_product`."""
    rows, width, columns = PRODUCT
    array = lambda name, shape: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    y = onnx.numpy_helper.from_array(np.full((width, columns), 0.5, np.float32), "y")
    node = onnx.helper.make_node("MatMul", ["x", "y"], ["product"])
    graph = onnx.helper.make_graph(
        [node], "product", [array("x", [rows, width])], [array("product", [rows, columns])], [y]
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    session = _session(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=IR).SerializeToString())
    x = np.full((rows, width), 0.5, np.float32)
    return product_speed(lambda: session.run(None, {"x": x}))


def _session(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    return onnxruntime.InferenceSession(model, options, providers=ON_CPU)


class _States(torch.nn.Module):
    """A BERT as a function of two arrays to one."""

    def __init__(self, bert: torch.nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns contextual states [B, L, D]."""
        return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state


def export(bert: torch.nn.Module, path: Path) -> None:
    """Writes a BERT of transformers as ONNX: `ids` and `mask`, int64 [B, L], to `states`, float32 [B, L, D]."""
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    axes = {0: batch, 1: length}
    ids_BL = torch.ones((2, 8), dtype=torch.int64)  # neither axis may be 1, which would be taken for a constant
    with torch.inference_mode():
        torch.onnx.export(
            _States(bert.eval()), (ids_BL, torch.ones_like(ids_BL)), str(path),
            input_names=["ids", "mask"], output_names=["states"], dynamic_shapes={"ids": axes, "mask": axes},
            external_data=False, dynamo=True, verbose=False,
        )  # fmt: skip


class OnnxBert(Runner):
    """Computes contextual states [B, L, D] of all pieces."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._kind = _KINDS[job.path]
        self._tokenizer = SubwordTokenizer.load(job.tokenizer)
        torch.manual_seed(0)
        config = bert_config(job, self._tokenizer, self._kind.shape)
        self.bert = transformers.BertModel._from_config(config, attn_implementation="eager", add_pooling_layer=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "bert.onnx"
            export(self.bert, path)
            if self._kind.int8:
                quantize_dynamic(str(path), str(path.with_stem("int8")), weight_type=QuantType.QInt8)
                path = path.with_stem("int8")
            self.about = {"device": "1 x cpu", "runtime": f"onnxruntime {onnxruntime.__version__}"}
            self.about["file_mib"] = round(os.path.getsize(path) / 2**20)
            self._session = _session(str(path))

    def tokenise(self, texts: list[str], words: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Runner`."""
        ids_BL, mask_BL = subwords(self._tokenizer, texts)
        return ids_BL.astype(np.int64), mask_BL

    def _calls(self, host: tuple[np.ndarray, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(ids_BL, mask_BL) for _, ids_BL, mask_BL in sorted_calls(*host)] if self._kind.by_length else [host]

    def run(self, host: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
        """See `Runner`; returns the states of each call. Sorting is part of the measured work."""
        return [
            self._session.run(None, {"ids": ids_BL, "mask": mask_BL.astype(np.int64)})[0]
            for ids_BL, mask_BL in self._calls(host)
        ]

    def tokens(self, host: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
        """See `Runner`."""
        positions = sum(ids_BL.size for ids_BL, _ in self._calls(host))
        return float(host[1].sum(axis=1).mean()), round(positions / len(host[1]))
