"""Tests the case `attention`: what is computed, counted and compared, and that a wrong kernel is found out."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmark_jobs import CONFIG, NO_JOB

from charlm.benchmark import __main__ as benchmark
from charlm.benchmark import attention_case, report
from charlm.benchmark.attention import AttentionRunner, distance, left_out, same_bits
from charlm.benchmark.attention_case import Checks, KernelsHere, figures_of, shapes_of
from charlm.benchmark.cases import BenchmarkSettings
from charlm.benchmark.paths import ATTENTION
from charlm.benchmark.rounds import WorkerAnswers
from charlm.benchmark.text import TextShape
from charlm.nn.kernels import Machine

pytestmark = pytest.mark.usefixtures("log_lines")

PARTS = [
    "disentangled, forward",
    "plain, forward",
    "disentangled, gradient with dropout",
    "plain, gradient with dropout",
]
ARRAYS = {"query", "key", "value"}


def measured(capsys, *arguments):
    """Returns the figures and the messages of a measurement with --smoke."""
    assert benchmark.main(["--case=attention", "--smoke", f"--config={CONFIG}", "--repeats=2", *arguments]) == 0
    captured = capsys.readouterr()
    return [json.loads(line) for line in captured.out.splitlines()], captured.err


def runner_of(path: str, said: str, rows: int, words: int):
    """Returns a runner of tiny shape, and the call that it was asked for."""
    job = dataclasses.replace(NO_JOB, path=path, case=ATTENTION, texts=[[said] * rows], words=[words])
    runner = AttentionRunner(job)
    return runner, runner.tokenise(job.texts[0], words)


def checked(path: str, said: str, rows: int, words: int) -> Checks:
    """Returns what a runner finds out about one batch."""
    runner, call = runner_of(path, said, rows, words)
    runner.warm(call)
    (found,) = runner.about["checks"]
    return Checks(**found)


def test_a_kernel_has_a_time_a_speed_and_its_checks(capsys):
    figures, errors = measured(capsys, "--paths", "einsum", "--batch=2", "--words=24")
    assert [figure["of"] for figure in figures] == PARTS
    for figure in figures:
        assert (figure["path"], figure["unit"], figure["batch"], figure["rounds"]) == (
            "einsum",
            "ms",
            "2 x 24 words",
            2,
        )
        assert 0 < figure["low"] <= figure["value"] <= figure["high"]
        assert figure["tflop_per_second"] == pytest.approx(figure["useful_gflop"] / figure["value"], abs=1e-3)
        assert figure["temporaries_mib"] > 0
        assert figure["same_bits"] is True
        assert (figure["error"], figure["models"], figure["dtype"]) == (0, "smoke", "float32")  # it is the reference
        assert figure["device"]
        assert figure["config"] == CONFIG
    assert set(figures[2]["errors"]) == {"values", *ARRAYS, "pos_key", "pos_query"}
    assert set(figures[3]["errors"]) == {"values", *ARRAYS}
    assert "same bits" in errors
    assert "temporaries, MiB" in errors


@pytest.mark.slow  # the interpreter's programs take a minute to compile
def test_without_an_accelerator_tiles_are_checked_and_not_timed(capsys, log_lines):
    figures, _ = measured(capsys)
    assert any(line.startswith("attention: cudnn is left out: it needs an NVIDIA GPU") for line in log_lines.lines)
    assert [(f["path"], f["of"]) for f in figures] == [(path, part) for part in PARTS for path in ("einsum", "pallas")]
    for figure in figures[1::2]:
        assert figure["unit"] == attention_case.CHECKED_UNIT
        assert 0 < figure["value"] == max(figure["errors"].values()) < 1e-5
        assert figure["same_bits"] is True
        assert figure["temporaries_mib"] > 0
        assert not {"low", "high", "tflop_per_second", "mfu"} & set(figure)


def test_tiles_equal_the_reference():
    found = checked("pallas", "plain gradient", 1, 130)
    assert set(found.errors) == {"values", *ARRAYS}
    assert all(0 < error < 1e-5 for error in found.errors.values())
    assert (found.timed, found.same_bits, found.calls) == (False, True, 1)


def test_attention_is_computed_alone():
    runner, call = runner_of("einsum", "plain gradient", 2, 9)
    inputs, mask_BL = runner._inputs(call), jnp.array([[True] * 9, [True] * 6 + [False] * 3])
    found = runner.function("einsum", call, drops=False)(inputs, mask_BL, jax.random.key(0))

    def values(inputs):
        query, key, value = (inputs[name].reshape(2, 9, 2, 16) for name in ("query", "key", "value"))
        scores = jnp.einsum("bqhk,bnhk->bhqn", query, key) / 4
        probs = jax.nn.softmax(jnp.where(mask_BL[:, None, None], scores, -jnp.inf), axis=-1)
        return jnp.einsum("bhqn,bnhk->bqhk", probs, value).reshape(2, 9, 32)

    expected, pullback = jax.vjp(values, inputs)
    np.testing.assert_allclose(found["values"], expected, atol=1e-5)
    for name, gradient in pullback(expected)[0].items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-5)
    with_positions, call = runner_of("einsum", "disentangled gradient", 2, 9)
    found = with_positions.function("einsum", call, True)(with_positions._inputs(call), mask_BL, jax.random.key(0))
    assert {name: x.shape for name, x in found.items() if name.startswith("pos")} == {
        "pos_key": (32, 32), "pos_query": (32, 32)
    }  # fmt: skip
    assert all(np.abs(x).max() > 0.01 for x in found.values())


def test_operations_are_those_of_scores_positions_and_mixing():
    for said, operations in (
        ("plain forward", 2 * 2 * 3 * 50**2 * 32),
        ("plain gradient", 3 * 2 * 2 * 3 * 50**2 * 32),
        # Of positions at most 2 x 16 rows are scored for each word, by both terms.
        ("disentangled forward", (2 * 2 * 3 * 50**2 + 2 * 2 * 3 * 50 * 32) * 32),
    ):
        runner, call = runner_of("einsum", said, 3, 50)
        assert runner.work(call)["useful_gflop"] == pytest.approx(operations / 1e9)
        assert runner.tokens(call) == (50, 50)


def test_the_peak_is_that_of_the_one_device_that_works(monkeypatch):
    runner, call = runner_of("einsum", "plain forward", 1, 8)
    assert "peak_gflop" not in runner.work(call)  # of a CPU's peak nothing is known
    assert runner.about["device"] == "1 x cpu"  # of the eight that tests have
    monkeypatch.setattr("charlm.benchmark.attention.flops.peak", lambda kind, dtype: 7e12)
    assert runner.work(call)["peak_gflop"] == 7000


def plain_softmax(query_BQD, key_BND, value_BND, visible_BN, *, heads, wrong="", **_):
    """Stands in for the tiles; `wrong` says how it differs from them."""
    B, N, D = key_BND.shape
    if wrong == "gradient":
        key_BND = jax.lax.stop_gradient(key_BND)
    query, key, value = (x.reshape(B, N, heads, D // heads) for x in (query_BQD, key_BND, value_BND))
    scores = jnp.einsum("bqhk,bnhk->bhqn", query, key)
    if wrong != "mask":
        scores = jnp.where(visible_BN[:, None, None], scores, -1e30)
    mixed = jnp.einsum("bhqn,bnhk->bqhk", jax.nn.softmax(scores, axis=-1), value).reshape(B, N, D)
    return mixed * (jnp.nan if wrong == "nan" else 1)


@pytest.mark.parametrize("wrong", ["", "mask", "gradient", "nan"])
def test_a_wrong_kernel_is_found_out(monkeypatch, wrong):
    stand_in = lambda *args, **options: plain_softmax(*args, wrong=wrong, **options)
    monkeypatch.setattr("charlm.nn.tiled.tiled_attention", stand_in)
    found = checked("pallas", "plain gradient", 1, 128).errors
    if wrong == "nan":
        assert found["values"] is None
        return
    off = {name for name, error in found.items() if error > 1e-5}
    assert off == {"": set(), "mask": {"values", *ARRAYS}, "gradient": {"key"}}[wrong]


def test_two_runs_that_differ_are_found_out(monkeypatch):
    runner, call = runner_of("einsum", "plain gradient", 1, 8)
    run, number = AttentionRunner.run, iter(range(9))

    def unsteady(self, host):
        """Adds up in another order each time: the last bit of one number is another."""
        result = {name: np.array(x) for name, x in run(self, host).items()}
        if next(number):
            result["key"][0, 0, 0] = np.nextafter(result["key"][0, 0, 0], np.float32(9))
        return result

    monkeypatch.setattr(AttentionRunner, "run", unsteady)
    runner.warm(call)
    monkeypatch.undo()
    runner.warm(call)
    assert [found["same_bits"] for found in runner.about["checks"]] == [False, True]


def test_bits_are_compared_as_such():
    nan, zero = {"values": jnp.array([jnp.nan])}, {"values": jnp.array([0.0])}
    assert same_bits(nan, nan)
    assert not same_bits(zero, {"values": jnp.array([-0.0])})
    assert not same_bits(zero, zero | {"key": jnp.array([0.0])})
    assert distance(jnp.array([1.0, 2.5]), jnp.array([1.0, 2.0])) == 0.25
    assert distance(jnp.array([1.0, jnp.inf]), jnp.array([1.0, 2.0])) is None


def test_kernels_are_left_out_where_they_cannot_run():
    h100, cpu = Machine("gpu", (9, 0)), Machine("cpu")
    assert left_out(h100, "bfloat16", 64, 512, False) == {}
    assert set(left_out(h100, "float32", 64, 512, False)) == {"pallas", "cudnn"}
    assert set(left_out(Machine("gpu", (8, 0)), "bfloat16", 64, 512, False)) == {"pallas"}
    assert left_out(h100, "bfloat16", 64, 100, False) == {}
    short = left_out(Machine("tpu"), "bfloat16", 64, 100, False)
    assert short["pallas"] == "100 words would leave most of a tile empty"
    assert "at most 4096" in left_out(h100, "bfloat16", 64, 5000, False)["pallas"]
    assert set(left_out(Machine("tpu"), "bfloat16", 64, 512, False)) == {"cudnn"}
    assert left_out(cpu, "float32", 64, 512, False)["pallas"] == attention_case.INTERPRETED
    assert set(left_out(cpu, "float32", 64, 512, True)) == {"cudnn"}
    here = KernelsHere("cpu", {"pallas": "no chip"})
    assert here.chosen([]) == ["einsum", "cudnn"]
    assert here.chosen(["cudnn", "table"]) == ["cudnn"]
    assert here.chosen(["table"]) == []
    with pytest.raises(ValueError, match=r"^--paths: pallas: no chip$"):
        here.chosen(["pallas"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paths", "pallas"], f"--paths: pallas: {attention_case.INTERPRETED}"),
        (["--paths", "table"], "--paths: table is a path of inference and training_step only"),
        (["--text=x.txt"], "--text is read by "),
        (["--config=configs/none.py"], "--config: no such file: configs/none.py"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, arguments, message):
    if "pallas" in arguments:
        left = {"pallas": attention_case.INTERPRETED}
        monkeypatch.setattr(attention_case, "kernels_here", lambda settings: KernelsHere("cpu", left))
    assert benchmark.main(["--case=attention", f"--config={CONFIG}", *arguments]) == 1
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"error: {message}")
    assert captured.out == ""


def test_shapes_are_those_of_the_device():
    settings = BenchmarkSettings(CONFIG, "builtin", 1)
    assert shapes_of(settings, "gpu") == shapes_of(settings, "tpu") == (TextShape(64, 512), TextShape(16, 2048))
    assert sum(shape.batch * shape.words for shape in shapes_of(settings, "cpu")) < 1000
    assert shapes_of(dataclasses.replace(settings, smoke=True), "gpu") == (TextShape(2, 130),)
    assert shapes_of(dataclasses.replace(settings, words=256), "gpu") == (TextShape(64, 256),)


def test_figures_are_those_of_a_call(tmp_path):
    work = {"useful_gflop": 4.0, "peak_gflop": 4000.0}
    checks = Checks(True, 1.5, True, {"values": 1e-6, "key": 2e-6, "query": 1e-7}, 10)
    unsure = checks._replace(timed=False, errors={"values": None, "key": 2e-6}, same_bits=False)
    of = {"einsum": checks, "pallas": checks._replace(calls=40), "cudnn": unsure}
    rounds = [{"seconds": seconds, "cpu_seconds": 1.0} for seconds in (0.02, 0.04, 0.03)]
    answers = WorkerAnswers(
        ready={name: {"device": "1 x abacus", "checks": [found._asdict()]} for name, found in of.items()},
        tokens={name: [(8.0, 8)] for name in of},
        work={name: [work] for name in of},
        rounds={name: [rounds] for name in of},
    )
    figures = figures_of(answers, [TextShape(4, 8)], [{"of": PARTS[2]}])
    einsum, pallas, cudnn, ratio = figures
    assert (einsum["value"], einsum["low"], einsum["high"], einsum["unit"]) == (3.0, 2.0, 4.0, "ms")
    assert pallas["value"] == 0.75
    assert (einsum["tflop_per_second"], einsum["mfu"]) == (1.333, 0.3333)
    assert (einsum["error"], einsum["gradient_error"], einsum["temporaries_mib"]) == (1e-6, 2e-6, 1.5)
    assert (cudnn["value"], cudnn["unit"], cudnn["error"]) == (0, "values not finite", None)
    assert (ratio["path"], ratio["unit"], ratio["of"]) == ("pallas / einsum", "x", PARTS[2])
    assert ratio["value"] == 4
    path = tmp_path / "figures.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        report.write(figures, file)
    lines = [line.split() for line in report.table(report.read(str(path))).splitlines()]
    assert ["einsum", "3.000", "2.000", "4.000", "1.3", "33.3%", "2", "1.0e-06", "2.0e-06", "same", "bits"] in lines
    assert ["cudnn", "not", "timed", "2", "not", "finite", "2.0e-06", "DIFFERENT", "BITS"] in lines
    assert ["pallas", "4.00"] in lines
    path.write_text(json.dumps({name: x for name, x in einsum.items() if name != "low"}) + "\n")
    with pytest.raises(ValueError, match="line 1: 'low' is missing"):
        report.read(str(path))
