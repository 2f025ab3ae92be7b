"""Tests of the config of a league: what is refused, what may change, and what claims may say."""

from __future__ import annotations

import json
import re

import pytest

from charlm.config import CARRIED, flatten, load_config_file
from charlm.league.__main__ import main
from charlm.league.changes import changes
from charlm.league.config import (
    add_system,
    add_task,
    claim_of,
    get_config,
    resolved,
    set_key,
)
from charlm.league.places import Places
from charlm.league.spending import budgets_of


def league(**systems):
    """A league of two systems and one behind the first, with two tasks."""
    config = get_config()
    add_system(config, "a", config="charbert_base:tiny+advbert")
    add_system(config, "b", config="hlm_base:tiny", **systems)
    add_system(config, "a+nfkc", behind="a", defence="nfkc")
    add_task(config, "pos", config="tag:tiny", train=("{folder}/pos.conllu",), set=("data.tag=upos",))
    add_task(config, "topic", config="classify:tiny", train=("topic.tsv",), measure=("held.tsv",))
    config.robustness.noise = ("keyboard", "swap:0.2")
    config.data.folder = "data/"
    return config


def stored(config):
    """A config as a workdir has it."""
    return json.loads(json.dumps(resolved(config).to_dict()))


@pytest.mark.parametrize("variant", ["", "tiny", "evening", "curves", "small", "small_bfloat16", "base"])
def test_the_leagues_that_charlm_carries_are_whole(variant):
    config = load_config_file(f"{CARRIED / 'league.py'}:{variant}".removesuffix(":"))
    set_key(config, "data.folder=data")
    found = resolved(config)
    assert not [text for text in found.corpora.train if "{" in text]
    assert ({"bert", "hlm"} if variant == "curves" else {"bert", "hlm", "charbert", "roberta"}) <= set(found.systems)


@pytest.mark.parametrize("variant", ["", "tiny", "evening", "base"])
def test_the_ablation_has_each_change_alone_and_all_of_them_together(variant):
    config = load_config_file(f"{CARRIED / 'hlm_ablation.py'}:{variant}".removesuffix(":"))
    set_key(config, "data.folder=data")
    found = resolved(config)
    models = {}
    for name, entry in found.systems.items():
        own = flatten(load_config_file(entry.config))
        for setting in entry["set"]:
            key, _, value = setting.partition("=")
            own[key] = type(own[key])(value) if not isinstance(own[key], bool) else value == "True"
        models[name] = {key: value for key, value in own.items() if key.startswith("model.")}
    paper = models.pop(found.pretraining.baseline)
    changes = {name: {k: v for k, v in own.items() if v != paper[k]} for name, own in models.items()}
    together = changes.pop("together")
    assert changes.pop("pieces") == {}
    assert [name for name, entry in found.systems.items() if entry.subwords] == ["pieces"]
    assert all(len(own) == 1 for own in changes.values())
    assert {key: value for own in changes.values() for key, value in own.items()} == together
    assert len(together) == len(changes) == 7


def test_folder_noise_and_configs_are_resolved():
    found = resolved(league())
    assert found.tasks.pos.train == ("data/pos.conllu",)
    assert found.robustness.noise == ("keyboard:0.1", "swap:0.2")
    assert found.systems.b.config.endswith("hlm_base.py:tiny")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.data.update(folder=""), "tasks.pos.train names files in {folder}: set data.folder"),
        (lambda c: c.tuning.update(seeds=(1, 1)), "tuning.seeds=(1, 1): expected different whole numbers"),
        (lambda c: c.systems.b.update(config="tag:tiny"), "systems.b.config='tag:tiny' is a config of fine-tuning"),
        (lambda c: c.systems.b.update(config="hlm_bas"), "systems.b.config='hlm_bas': --config: no such file"),
        (lambda c: c.systems.b.update(start="c"), "systems.b.start='c' is no trained system"),
        (lambda c: c.systems.b.update(start="b"), "starts, by way of others, from itself"),
        (lambda c: c.systems.b.update(defence="nfkc"), "systems.b: behind and defence belong together"),
        (lambda c: c.systems.b.update(subwords="bpe"), "systems.b.subwords='bpe' is neither wordpiece nor bytes:KIND"),
        (lambda c: c.systems.b.update(set=("lr",)), "systems.b.set: 'lr': expected key=value"),
        (
            lambda c: c.systems.b.update(set=("model.hiden=8",)),
            "unknown config key model.hiden; did you mean model.hidden?",
        ),
        (lambda c: c.systems.b.update(set=("data.train=x",)), "'data.train=x': the league sets data.train itself"),
        (lambda c: c.systems.b.update(set=("model.norm=batch",)), "'model.norm=batch': expected one of "),
        (
            lambda c: c.systems.b.update(tune=("data.nois=swap",)),
            "unknown config key data.nois; did you mean data.noise?",
        ),
        (lambda c: c.systems.b.update(tune=("seed=0",)), "systems.b.tune: 'seed=0': the league sets seed itself"),
        (lambda c: c.systems.b.update(tune=("model.mode=full",)), "'model.mode=full': HLM has no model.mode"),
        (lambda c: c.tasks.pos.update(set=("init_from=x",)), "tasks.pos.set: 'init_from=x': the league sets init_from"),
        (lambda c: c.systems.a.update(ranked=False), "systems.a+nfkc.behind='a' is not ranked"),
        (lambda c: add_system(c, "c", same="a+nfkc", tune=("k=v",)), "systems.c.same='a+nfkc' is no trained system"),
        (lambda c: add_system(c, "c", same="c", tune=("k=v",)), "systems.c.same='c' is no trained system"),
        (lambda c: add_system(c, "c", same="a"), "systems.c: same and tune belong together"),
        (
            lambda c: add_system(c, "c", same="a", tune=("k=v",), share=0.5, config="x"),
            "systems.c: same='a' is a system that is there, so config, share cannot be set",
        ),
        (
            lambda c: add_system(c, "c", same="a", tune=("k=v",), ranked=False),
            "systems.c: same='a' is a system that is there, so ranked cannot be set",
        ),
        (
            lambda c: c.systems["a+nfkc"].update(tune=("k=v",)),
            "systems.a+nfkc: behind='a' is a system that is there, so tune cannot be set",
        ),
        (
            lambda c: add_system(c, "c", same="a", tune=("seeds=1",), tasks=("poss",)),
            "systems.c.tasks: 'poss' is no task; did you mean pos?",
        ),
        (
            lambda c: add_system(c, "c", same="b", tune=("model.label_head=mean",)),
            "systems.c on pos: model.label_head=mean is for labels of texts; expected paper or reference for token",
        ),
        (
            lambda c: add_system(c, "c", same="b", tune=("model.label_head=perceptron",), tasks=("topic",)),
            "systems.c on topic: model.label_head=perceptron: HLM has the heads paper, reference, mean",
        ),
        (
            lambda c: c.tasks.topic.update(set=("model.label_head=paper",)),
            "systems.a on topic: model.label_head=paper: CharBERT has the heads linear, perceptron, lstm",
        ),
        (lambda c: c.systems.b.update(tasks=("pos",)), "systems.b.tasks=('pos',) is for entries with `same`"),
        (
            lambda c: [
                add_system(c, "c", same="a", tune=("data.noise=swap",), tasks=("pos",)),
                c.update(claims=("c ahead of b on topic",)),
            ],
            "claims: 'c ahead of b on topic': c is fine-tuned for pos alone",
        ),
        (
            lambda c: [
                add_system(c, "c", same="a", tune=("data.noise=swap",), tasks=("pos",)),
                c.update(claims=("a ahead of c on all",)),
            ],
            "claims: 'a ahead of c on all': c is fine-tuned for pos alone",
        ),
        (lambda c: c.update(claims=("a ahead of a on pos",)), "a system is not ahead of itself"),
        (lambda c: c.robustness.update(noise=("keybord",)), "did you mean keyboard?"),
        (lambda c: c.robustness.update(noise=("misspelling",)), "needs a list: robustness.misspellings names none"),
        (lambda c: c.update(claims=("a is ahead of b",)), "expected 'A ahead of B on TASK [under NOISE] [by POINTS]'"),
        (lambda c: c.update(claims=("a ahead of c on pos",)), "'c' is no ranked system"),
        (lambda c: c.update(claims=("a ahead of b on pos under drop",)), "drop:0.1 is not among robustness.noise"),
    ],
)
def test_a_mistake_is_named(change, message):
    config = league()
    with config.unlocked():
        change(config)
    with pytest.raises(ValueError, match=re.escape(message)):
        resolved(config)


def without_tasks(**systems):
    """A league of two HLMs that are compared by their losses."""
    config = get_config()
    for name in ("a", "b"):
        add_system(config, name, config="hlm_base:tiny", **systems.get(name, {}))
    config.pretraining.runs = 2
    return config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.__setattr__("systems", type(c)()), "a league needs at least one of systems"),
        (lambda c: c.pretraining.update(baseline="c"), "pretraining.baseline='c' is no trained system"),
        (lambda c: c.pretraining.update(runs=0), "pretraining.runs=0 must be at least 1"),
        (lambda c: c.budget.update(flops=-1.0), "budget.flops=-1.0 must not be negative"),
        (
            lambda c: c.systems.a.update(config="charbert_base:tiny"),
            "its systems must be of one family, got a (CharBERT), b (HLM)",
        ),
        (lambda c: add_system(c, "c", same="a", tune=("k=v",)), "systems.c.same: a league without tasks fine-tunes"),
        (
            lambda c: add_task(c, "pos", config="tag:tiny", train=("x.conllu",)),
            "pretraining.runs=2: a league with tasks has one run of pre-training a system, expected 1",
        ),
    ],
)
def test_a_mistake_of_a_league_without_tasks_is_named(change, message):
    config = without_tasks()
    with config.unlocked():
        change(config)
    with pytest.raises(ValueError, match=re.escape(message)):
        resolved(config)


def test_a_workdir_from_before_there_was_a_key_goes_on():
    before = stored(league())
    del before["pretraining"], before["budget"]["flops"], before["systems"]["a"]["same"]
    assert changes(before, stored(league())) == []
    more = league()
    more.budget.flops = 5.0
    after = stored(more)
    after["systems"]["a"]["same"] = "b"
    assert changes(before, after) == [
        "budget.flops is 5.0, there it is not set",
        "systems.a.same is 'b', there it is not set",
    ]


def test_what_nothing_is_kept_of_may_change(tmp_path):
    before, after, places = stored(league()), stored(league()), Places(tmp_path)
    after["systems"]["b"]["share"] = 0.5
    del after["tasks"]["pos"]
    assert changes(before, after, places.begun) == []
    (tmp_path / "measured" / "topic" / "b").mkdir(parents=True)
    assert changes(before, after, places.begun) == [f"systems.b.share is 0.5, there {before['systems']['b']['share']}"]
    places.parts("pos").mkdir(parents=True)
    assert changes(before, after, places.begun)[1:] == ["tasks.pos is gone"]


def test_a_start_may_not_change_below_what_came_of_it(tmp_path):
    config = league()
    add_system(config, "later", config="charbert_base:tiny", start="a", share=0.5)
    add_system(config, "noisy", same="later", tune=("data.noise=swap:0.1",))
    before, after, places = stored(config), stored(config), Places(tmp_path)
    after["systems"]["a"]["set"] = ["optim.learning_rate=1e-3"]
    assert changes(before, after, places.begun) == []
    (tmp_path / "tuned" / "pos" / "noisy").mkdir(parents=True)
    assert changes(before, after, places.begun)[0].startswith("systems.a.set is ")


def test_curves_have_one_system_each_on_several_shares():
    config = load_config_file(f"{CARRIED / 'league.py'}:curves")
    set_key(config, "data.folder=data")
    shares = ("-eighth", "-quarter", "-half", "")
    names = [[f"{system}{share}" for share in shares] for system in ("bert", "hlm", "roformer")]
    assert budgets_of(resolved(config)) == names


def test_an_unknown_key_of_a_system_is_named():
    with pytest.raises(ValueError, match=re.escape("systems.c: no key 'strat'; did you mean start?")):
        add_system(get_config(), "c", strat="a")


def test_settings_have_the_types_of_their_keys():
    config = league()
    for setting in ("budget.words=5", "tuning.seeds=3,4", "corpora.train=x.txt,y.txt", "budget.warmup_share=.2"):
        set_key(config, setting)
    assert (config.budget.words, config.tuning.seeds, config.corpora.train) == (5, (3, 4), ("x.txt", "y.txt"))
    assert config.budget.warmup_share == 0.2
    with pytest.raises(ValueError, match=r"did you mean budget\.words"):
        set_key(config, "budget.word=5")
    with pytest.raises(ValueError, match="expected a value such as 10000000"):
        set_key(config, "budget.words=many")


def test_claims_are_read():
    config = resolved(league())
    found = claim_of("b ahead of a+nfkc on all under keyboard by 2.5", config)
    assert found[1:] == ("b", "a+nfkc", "all", "keyboard:0.1", 2.5)
    assert claim_of("a ahead of b on pos", config)[1:] == ("a", "b", "pos", "", 0.0)


def test_systems_tasks_seeds_and_noises_may_be_added_and_titles_may_change():
    before, now = stored(league()), league()
    now.title, now.systems.a.title, now.tasks.pos.title = "League", "A", "Tags"
    add_system(now, "c", config="hlm_base:tiny")
    add_task(now, "more", config="tag:tiny", train=("more.conll",))
    now.tuning.seeds = (0, 1, 2, 3)
    now.robustness.noise = ("keyboard", "swap:0.2", "drop")
    now.claims = ("a ahead of b on pos",)
    assert changes(before, stored(now)) == []
    assert changes(before, before) == []


def test_the_tasks_of_a_system_may_grow_and_not_shrink():
    def with_tasks(*names):
        config = league()
        add_system(config, "noisy", same="a", tune=("data.noise=swap:0.1",), tasks=names)
        return stored(config)

    assert changes(with_tasks("pos"), with_tasks("pos", "topic")) == []
    assert changes(with_tasks("pos"), with_tasks()) == []  # all
    assert changes(with_tasks("pos", "topic"), with_tasks("pos")) == [
        "systems.noisy.tasks is ['pos'], there ['pos', 'topic']"
    ]
    assert changes(with_tasks(), with_tasks("pos")) == ["systems.noisy.tasks is ['pos'], there []"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c.budget.update(words=7), ["budget.words is 7, there 10000000"]),
        (lambda c: c.tuning.update(seeds=(0, 1)), ["tuning.seeds is [0, 1], there [0, 1, 2]"]),
        (lambda c: c.systems.b.update(share=0.5), ["systems.b.share is 0.5, there 1.0"]),
        (lambda c: c.tasks.pos.update(set=()), ["tasks.pos.set is [], there ['data.tag=upos']"]),
        (lambda c: c.tasks.__delattr__("topic"), ["tasks.topic is gone"]),
    ],
)
def test_any_other_change_is_named(change, told):
    now = league()
    with now.unlocked():
        change(now)
    assert changes(stored(league()), stored(now)) == told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], "holds no league"),
        (["--only", "tune/*"], "--report and --only: a report is written, and of all jobs"),
        (["--dry-run"], "--report and --dry-run: a report is written, and of all jobs"),
    ],
)
def test_a_report_needs_a_league_and_is_whole(tmp_path, capsys, more, told):
    line = ["league:tiny", "--set", "data.folder=x", "--workdir", str(tmp_path / "none"), "--report", *more]
    assert main(line) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("glob", "told"),
    [
        ("measure/*/bert+symspell/*", "bert+symspell is measured by the jobs of bert\n"),
        ("tune/gone", "--only=tune/gone is the name of no job; --dry-run lists them\n"),
        ("train/hml", "--only=train/hml is the name of no job; --dry-run lists them; did you mean train/hlm?\n"),
    ],
)
def test_names_of_no_job_are_told(tmp_path, capsys, glob, told):
    line = [
        "league:evening",
        "--set",
        "data.folder=x",
        "--workdir",
        str(tmp_path / "none"),
        "--dry-run",
        "--only",
        glob,
    ]
    assert main(line) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("text/a.txt", "corpora.train: '{}' does not exist"),
        ("pos/en_ewt-ud-dev.conllu.gz", "tasks.pos.train: '{}' does not exist"),
        ("list.txt", "robustness.misspellings: '{}' does not exist"),
    ],
)
def test_files_are_there_before_anything_runs(tmp_path, capsys, gone, told):
    files = ("text/a.txt", "pos/en_ewt-ud-dev.conllu.gz", "cls/goemotions_dev.tsv.gz", "list.txt")
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    own = ["corpora.train={folder}/text/a.txt", "robustness.misspellings={folder}/list.txt"]
    line = ["league:tiny", "--set", f"data.folder={tmp_path}", *own, "--workdir", str(tmp_path / "run"), "--dry-run"]
    assert main(line) == 0
    assert "ready  budget/bert" in capsys.readouterr().out
    (tmp_path / gone).unlink()
    assert main(line) == 1
    assert told.format(tmp_path / gone) in capsys.readouterr().err


def test_mistakes_of_the_command_line_are_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    workdir, file = ["--workdir", str(tmp_path / "run")], ["--workdir", str(tmp_path / "file")]
    for line, told in (
        (["leage", *workdir], "error: 'leage' is neither a config of charlm (charlm models lists them) nor a file; did "
         "you mean league?\n"),
        (["league:tiny", "--set", "data.folder=x", *file, "--dry-run"], f"--workdir={file[1]} is a file, expected a "
         "folder\n"),
        (["league:tiny", *workdir, "--set", "budget.wrds=5"], "--set budget.wrds=5: the league has no key budget.wrds; "
         "did you mean budget.words?\n"),
    ):  # fmt: skip
        assert main(line) == 1
        assert capsys.readouterr().err.endswith(told)


def test_a_workdir_of_another_league_tells_a_few_differences(tmp_path, capsys):
    other = stored(league())
    (tmp_path / "league.json").write_text(json.dumps(other))
    assert main(["league:tiny", "--set", "data.folder=x", "--workdir", str(tmp_path), "--dry-run"]) == 1
    told = capsys.readouterr().err
    assert "holds a league of another config: " in told
    assert re.search(r"; and \d+ more; choose another --workdir", told)
    assert len(told) < 1000
