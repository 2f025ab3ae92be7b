"""A plan compiles the run's own step: the same program, the same communication, and the memory that the run takes."""

from __future__ import annotations

import contextlib
import json
import math

import jax
import pytest
from finetune.tiny_tasks import write_conll

from charlm.config import get_config
from charlm.config.finetuning import get_config as finetuning
from charlm.core.sharding import collectives
from charlm.finetune.run import first_run
from charlm.plan import program
from charlm.plan.analysis import Analysis, compiled, exceeded, last_error
from charlm.plan.chips import CHIPS
from charlm.plan.planning import Planning
from charlm.plan.program import bytes_on_chip, planner_of, stages_of
from charlm.plan.report import as_json, lines
from charlm.plan.search import setting_of
from charlm.plan.topology import devices_of, parse
from charlm.training.run import build


def on_mesh(config, data: int, fsdp: int, model: int):
    config.mesh.data, config.mesh.fsdp, config.mesh.model = data, fsdp, model
    return config


@pytest.fixture(scope="module")
def planner(trained):
    return planner_of(trained.new_config())


@pytest.mark.parametrize("mesh", [pytest.param((8, 1, 1), marks=pytest.mark.slow), (2, 2, 2)], ids=str)
def test_the_plan_and_the_run_compile_the_same(trained, planner, mesh):
    config = on_mesh(trained.new_config(), *mesh)
    planned = planner(config, devices_of(parse("cpu:8")))
    run = build(config, trained.data)
    step = run.train_step.lower(run.abstract_state, run.place(next(iter(run.train_batches))))
    lowered = planned.lower()
    assert lowered.as_text() == step.as_text()
    of_plan, of_run = (collectives(x.compile().as_text()) for x in (lowered, step))
    assert of_plan == of_run
    assert of_plan


@pytest.mark.slow
def test_memory_is_what_the_step_of_a_run_takes(trained, planner):
    config = trained.new_config()
    found = Planning(config, planner, devices_of(parse("cpu:8")), parse("cpu:8")).figures()
    run = build(config, trained.data)
    state, batch = run.init(), run.place(next(iter(run.train_batches)))
    held = lambda tree: sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(tree))
    assert found.memory.parameters == held(state.params)
    assert found.memory.optimizer == held(state.opt_state)
    assert found.memory.batch == held(batch)
    memory = run.train_step.lower(state, batch).compile().memory_analysis()
    assert found.memory.activations + found.memory.temporaries == memory.temp_size_in_bytes
    assert 0 < found.memory.activations < memory.temp_size_in_bytes


def test_speed_counts_the_words_of_a_real_batch(trained, planner):
    config = trained.new_config()
    planned = planner(config, devices_of(parse("cpu:8")))
    run = build(config, trained.data)
    batch = next(iter(run.train_batches))
    assert planned.units == pytest.approx(run.objective.count(batch), rel=0.5)  # of the first shard, eight times
    assert planned.useful == pytest.approx(run.objective.training_flops(batch), rel=0.5)
    assert planned.steps == config.train.steps


def test_what_is_compiled_is_kept(trained, planner, tmp_path, monkeypatch):
    config = trained.new_config()
    config.data.cache_dir = str(tmp_path)
    topology = parse("cpu:1")
    arguments = planner(config, devices_of(topology)), config, topology
    first = compiled(*arguments)
    monkeypatch.setattr("charlm.plan.analysis._compile", None)
    assert not first.kept
    assert compiled(*arguments) == first._replace(kept=True)
    (kept,) = (tmp_path / "plans").iterdir()
    kept.write_text("{}")
    with pytest.raises(TypeError, match="not callable"):  # what is damaged is made again
        compiled(*arguments)


@pytest.mark.slow  # compiles several settings
def test_what_does_not_fit_is_made_to(trained, planner, monkeypatch):
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 64, 1
    topology = parse("cpu:1")
    own = Planning(config, planner, devices_of(topology), topology).figures()
    room = int(0.8 * own.memory.needed)
    monkeypatch.setitem(CHIPS, "cpu", CHIPS["cpu"]._replace(usable=room, memory=room))
    plan = Planning(config, planner, devices_of(topology), topology).plan()
    assert plan.asked is not None
    assert not plan.asked.fits
    assert plan.found is not None
    assert plan.found.memory <= room
    text = "\n".join(lines(plan, command="python -m charlm.main --config=x"))
    assert "DOES NOT FIT" in text
    assert text.splitlines()[-1].startswith("python -m charlm.main --config=x --config.")
    found = json.loads(json.dumps(as_json(plan, price=2.0)))
    assert found["asked"]["fits"] is False
    assert found["found"]["fits"] is True
    assert found["found"]["flags"]


class MadeUp:
    """Stands in for a compiler: a step takes what its forward pass keeps, and a twentieth more.

    Beyond `room` it gives up as compilers for TPUs do, and states how much it needs in all.
    """

    def __init__(self, refuses=lambda setting: False, room=math.inf) -> None:
        self.begun, self.finished, self.left = [], [], []
        self.refuses, self.room = refuses, room

    @contextlib.contextmanager
    def __call__(self, planned, config, topology):
        setting = setting_of(config)
        self.begun.append(setting)

        def wait() -> Analysis:
            self.finished.append(setting)
            if self.refuses(setting):
                raise ValueError("the compiler refuses this step: of this setting")
            gradients, state = bytes_on_chip(planned.state.params), bytes_on_chip(planned.state)
            taken = Analysis(
                products={"bf16": 1e12}, other=0.0, transcendental=0.0, bytes=1e9, collectives=[], arguments=state,
                outputs=state, aliased=state, temporary=1.05 * planned.saved() + gradients, code=0.0, unknown=0.0,
                calls={}, xla={}, once=0.0, seconds=1.0,
            )  # fmt: skip
            if taken.memory <= self.room:
                return taken
            nothing = dict.fromkeys(("bytes", "arguments", "outputs", "aliased"), 0.0)
            return taken._replace(products={}, temporary=taken.memory, beyond="out of memory", **nothing)

        try:
            yield wait
        finally:
            self.left.append(setting)


@pytest.mark.parametrize(
    ("share", "compiled", "refused"),
    [pytest.param(1.2, ["own"], False, marks=pytest.mark.slow), (0.9, ["own", "other"], False), (0.5, ["other"], True)],
)
def test_the_likely_setting_is_compiled_beside_a_config_that_may_not_fit(
    share, compiled, refused, trained, planner, monkeypatch
):
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 64, 1
    made_up, here, topology = MadeUp(), devices_of(parse("cpu:1")), parse("h100:1")
    monkeypatch.setattr("charlm.plan.planning.compiling", made_up)
    with made_up(planner(config, here), config, topology) as wait:
        taken = wait().memory
    made_up.begun.clear(), made_up.finished.clear(), made_up.left.clear()
    room = int(share * taken)
    monkeypatch.setitem(CHIPS, "h100", CHIPS["h100"]._replace(usable=room, memory=room))
    plan = Planning(config, planner, here, topology, as_is=True).plan()
    own = setting_of(config)
    assert ["own" if one == own else "other" for one in made_up.finished] == compiled
    assert sorted(made_up.left) == sorted(made_up.begun)  # no compiler is left at work
    assert made_up.begun[0] == own
    assert ("a guess, not compiled" in plan.refused) is refused
    assert (plan.asked is None) is refused
    if share > 1:
        assert plan.best is plan.asked
        return
    assert plan.found is not None
    assert plan.found.memory <= room
    assert plan.found.setting == own._replace(accumulation=plan.found.setting.accumulation)
    text = "\n".join(lines(plan, command="python -m charlm.main --config=x"))
    assert text.splitlines()[-1].startswith("python -m charlm.main --config=x --config.data.accumulation=")


def test_on_tpus_more_micro_batches_are_expected_to_be_faster(trained, planner, monkeypatch):
    """The config does not fit, and its compiler states one number alone; the likeliest setting is tried beside it."""
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 64, 1
    made_up, here, topology = MadeUp(), devices_of(parse("cpu:1")), parse("v5e-1")
    monkeypatch.setattr("charlm.plan.planning.compiling", made_up)
    with made_up(planner(config, here), config, topology) as wait:
        taken = wait()
    made_up.room = int(0.9 * taken.memory)
    monkeypatch.setitem(CHIPS, "v5e", CHIPS["v5e"]._replace(usable=made_up.room, memory=made_up.room))
    plan = Planning(config, planner, here, topology, as_is=True).plan()
    assert plan.asked is not None
    assert not plan.asked.fits
    memory = plan.asked.memory
    assert memory.needed == taken.memory
    assert memory.activations + memory.temporaries == pytest.approx(taken.memory - taken.arguments - memory.batch)
    assert plan.found is not None
    assert plan.found.setting == setting_of(config)._replace(accumulation=64)
    assert plan.tried[1] is plan.found


@pytest.mark.parametrize("tries", [1, 3])
def test_a_config_that_cannot_run_is_answered_by_two_settings_at_once(trained, planner, monkeypatch, tries):
    """The simplest changes, the model axis and the batch; the one that the compiler refuses is not compiled again."""
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 4, 0
    made_up = MadeUp(refuses=lambda setting: setting.batch == 4 and setting.model == 2 and setting.fsdp == 1)
    monkeypatch.setattr("charlm.plan.planning.compiling", made_up)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    plan = Planning(config, planner, devices_of(parse("cpu:8")), parse("h100:8"), as_is=True).plan(tries=tries)
    assert plan.asked is None
    assert "data.batch_size=4" in plan.refused
    first, second = made_up.begun[:2]
    assert (first.batch, first.model) == (4, 2)
    assert tries == 1 or (second.batch, second.model) == (8, 1)
    assert len(set(made_up.begun)) == len(made_up.begun)  # nothing is compiled twice
    assert len(plan.tried) <= tries
    assert plan.found is not None
    assert sorted(made_up.left) == sorted(made_up.begun)


def test_a_mesh_that_does_not_fit_is_changed_alone(trained, planner, monkeypatch):
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards, config.data.accumulation = 8, 0, 1
    config.mesh.data, config.mesh.fsdp, config.mesh.model = 4, 1, 1
    monkeypatch.setattr("charlm.plan.planning.compiling", MadeUp())
    plan = Planning(config, planner, devices_of(parse("cpu:8")), parse("h100:8"), as_is=True).plan(tries=1)
    assert "mesh.data=4" in plan.refused
    assert plan.found is not None
    assert plan.found.setting == setting_of(config)
    text = lines(plan, command="python -m charlm.main --config=x")
    assert text[-1] == "python -m charlm.main --config=x --config.mesh.data=-1"
    assert any("tried       mesh.data=-1" in line for line in text)


@pytest.mark.slow
def test_a_setting_that_the_compiler_refuses_is_left_out(trained, planner, monkeypatch):
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 64, 1
    here, topology, own = devices_of(parse("cpu:1")), parse("h100:1"), setting_of(config)
    made_up = MadeUp(refuses=lambda setting: setting.accumulation == 4)
    monkeypatch.setattr("charlm.plan.planning.compiling", made_up)
    with made_up(planner(config, here), config, topology) as wait:
        room = int(wait().memory / 3)
    made_up.finished.clear()
    monkeypatch.setitem(CHIPS, "h100", CHIPS["h100"]._replace(usable=room, memory=room))
    plan = Planning(config, planner, here, topology, as_is=True).plan()
    assert made_up.finished.count(own._replace(accumulation=4)) == 1
    assert made_up.finished[1] == own  # which was not compiled before, as hopeless
    assert plan.asked is not None
    assert plan.found is not None
    assert plan.found.setting.accumulation != 4


@pytest.mark.slow
def test_a_config_that_does_not_divide_is_answered_with_one_that_does(trained, planner):
    config = trained.new_config()
    config.data.batch_size, config.data.table_shards = 6, 0
    topology = parse("cpu:8")
    plan = Planning(config, planner, devices_of(topology), topology).plan(tries=1)
    assert "data.batch_size=6 must be a multiple" in plan.refused
    assert plan.found is not None
    assert plan.found.setting.batch == 8
    assert any("8 sequences a step, not 6" in line for line in lines(plan))


@pytest.mark.parametrize("stored", [["a.txt"], []])
def test_text_in_a_store_is_that_of_the_plan(monkeypatch, stored):
    def matching(spec, key):
        if not stored:
            raise ValueError(f"{key}: {spec} matches no object")
        return stored

    monkeypatch.setattr(program.stores, "matching", matching)
    config = get_config()
    config.data.train, config.text.splitter = ("s3://bucket/*.txt",), "rules"
    planned, notes = program.with_text_here(config)
    assert planned.data.train == (("s3://bucket/*.txt",) if stored else ("builtin",))
    assert ("data.train" in notes) == (not stored)


@pytest.mark.slow
def test_text_that_is_not_here_is_replaced(trained):
    config = trained.new_config()
    config.data.train = ("/nowhere/*.txt",)
    planned = planner_of(config)(config, devices_of(parse("cpu:8")))
    assert "/nowhere/*.txt is not here" in planned.notes[0]


@pytest.mark.slow
def test_fine_tuning_is_planned_with_a_batch_of_its_own(trained, tmp_path):
    config = finetuning("tagging")
    config.init_from = str(trained.workdir)
    config.data.train = (str(write_conll(tmp_path / "train.conll", 48)),)
    config.data.batch_size, config.train.epochs = 8, 2
    devices = devices_of(parse("cpu:8"))
    ((stage, own),) = stages_of(config)
    planned = planner_of(own)(own, devices)
    run, runs = first_run(config, devices)
    assert (stage, runs) == ("", 1)
    assert planned.steps == run.steps
    real = run.program.place(run.sample())
    shapes = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
    assert shapes(planned.batch) == shapes(real)
    assert planned.lower().as_text() == run.program.train_step.lower(planned.state, real).as_text()
    assert planned.units > 0


def test_fine_tuning_is_compiled(trained, tmp_path, monkeypatch):
    """Its configs have no folder of encoded corpora, so its plans are kept in the default one."""
    monkeypatch.setenv("CHARLM_CACHE", str(tmp_path / "cache"))
    config = finetuning("tagging")
    config.init_from = str(trained.workdir)
    config.data.train = (str(write_conll(tmp_path / "train.conll", 48)),)
    config.data.batch_size, config.train.epochs = 8, 1
    plan = Planning(config, planner_of(config), devices_of(parse("cpu:1")), parse("cpu:1")).plan()
    assert plan.asked is not None
    assert plan.asked.memory.needed > 0
    assert len(list((tmp_path / "cache" / "plans").iterdir())) == 1


def test_a_compilers_refusal_for_memory_is_read():
    needed, words = exceeded("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 24.50G of 15.75G hbm. Ex")
    assert needed == 24.5 * 2**30
    assert words == "Used 24.50G of 15.75G hbm"
    message = "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for "
    needed, words = exceeded(message + "HLO temporaries (20.41G) exceeds available HBM (15.75G). HLO module: jit_step.")
    assert needed == 20.41 * 2**30
    assert words == "memory required for HLO temporaries (20.41G) exceeds available HBM (15.75G)"
    assert exceeded("INVALID_ARGUMENT: no") is None


def test_the_error_that_ended_a_compiler_is_named():
    notice = "For simplicity, JAX has removed its internal frames from the traceback of the following exception."
    raised = (
        f'Traceback (most recent call last):\n  File "x.py"\nValueError: too wide\n--------------------\n{notice}\n'
    )
    assert last_error(raised) == "ValueError: too wide"
    assert last_error("jaxlib._jax.XlaRuntimeError: INTERNAL: no\n\n") == "jaxlib._jax.XlaRuntimeError: INTERNAL: no"
    assert last_error("Killed\n") == "Killed"
    assert last_error("") == ""
