"""What others add: known to every command once it is installed, checked like charlm's own, refused in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import pytest

from charlm import register
from charlm.config import finetuning, validate
from charlm.families.family import FAMILIES
from charlm.families.fusions import FUSIONS, layer_of
from charlm.families.hlm import FAMILY as HLM
from charlm.nn.fusions import Fusion
from charlm.tasks.base import Task
from charlm.tasks.classification import Classification
from charlm.tasks.registry import task_named, task_of
from charlm.tasks.table import TASKS
from charlm.text.noise import KINDS, Kind, Noise, Noiser

TESTS = Path(__file__).resolve().parent
TABLES = (FAMILIES, TASKS, KINDS, FUSIONS)
NOISE = {"share_of": "words", "rate": 0.1, "line": "does nothing"}


@pytest.fixture(autouse=True)
def _nothing_stays(monkeypatch):
    """What a test adds is gone after it."""
    for table in TABLES:
        monkeypatch.setattr(table, "_added", dict(table._added))
        monkeypatch.setattr(table, "_makers", dict(table._makers))


def python(*arguments: str, cwd: Path = TESTS) -> subprocess.CompletedProcess[str]:
    """Runs Python where the package in tests/package is installed."""
    path = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "package")))
    command = [sys.executable, *arguments]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def found(quick, tmp_path_factory):
    """What came of `register_run.py`."""
    done = python(str(TESTS / "register_run.py"), cwd=tmp_path_factory.mktemp("installed"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_installed_fusion_is_trained(found):
    assert found["train"][0] == 0, found["train"][1]
    gate = "charbert/encoder/fusion_0/gate"
    assert found["fusion"] == ["gated", f"{gate}/bias", f"{gate}/kernel"]


def test_an_installed_task_is_fine_tuned_with_an_installed_noise(found):
    assert found["tune"][0] == 0, found["tune"][1]
    assert found["settings"] == {"name": "shouting", "sign": "?", "least": 1, "labels": ["loud", "quiet"]}
    assert found["answers"] == [True]


def test_an_installed_noise_makes_text(found):
    assert found["noised"] == " qt mrnng"
    assert found["levels"] == ["vowels:0.1", "vowels:0.3"], "it is one of all kinds"


def test_an_installed_family_is_listed(found):
    assert found["family"] == ["Short HLM", True]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("task", "error: task='shoutin' is not one of masked_lm, classification, regression, tagging, question_answeri"
                 "ng, ranking, shouting; did you mean shouting?"),
        ("key", "error: unknown config key shouting.sgin; did you mean shouting.sign?"),
        ("value", "error: shouting.least=0 must be at least 1"),
        ("foreign", "error: data.scheme='iob1' is of tagging, but the task is shouting"),
        ("noise", "spaces, misspelling, vowels; nearest: 'vowels'"),
        ("fusion", "error: model.fusion='gatd' is not one of paper, reference, none, gated; did you mean gated?"),
        ("family", "error: family='short_hml' is not one of hlm, charbert, characterbert, char2subword, x"
                   "rayemb, short_hlm; did you mean short_hlm?"),
    ],
)  # fmt: skip
def test_mistakes_know_what_is_installed(found, what, message):
    assert found["errors"][what].endswith(message)


def test_help_lists_what_is_installed_and_needs_no_jax():
    code = "import sys, charlm.cli as c; print(c._help_text()); assert 'jax' not in sys.modules"
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    lines = {" ".join(line.split()) for line in done.stdout.splitlines()}
    assert {
        "short_hlm Short HLM",
        "gated each channel takes a share of the other",
        "shouting whether a line is shouted",
        "vowels deletes a vowel; rate: share of vowels",
        "config keys of pre-training short_hlm with their defaults, each set by --config.KEY=VALUE:",
        "short.words = 2 how short the words are",
        "config keys of fine-tuning on shouting with their defaults, each set by --config.KEY=VALUE:",
        "shouting.sign = '!' what a shouted line ends with",
    } <= lines


# What code adds


def test_what_is_added_is_like_charlms_own():
    @register.noise("doubled", **NOISE)
    def doubled(characters, how, rng):
        return []

    @register.task("calm", keys={"calm.depth": register.Key(2, "how calm", choices=(2, 3))})
    class Calm(Classification):
        """How calm a text is."""

    @register.fusion("swapped")
    class Swapped(Fusion):
        """Each channel becomes the other."""

        def __call__(self, tokens_BLD, chars_BLD, mask_BL1):
            return chars_BLD, tokens_BLD

    assert Noiser(Noise.parse("doubled"), 0).text("as it is", 0).text == "as it is"
    assert list(KINDS)[-1] == "doubled"
    assert (FUSIONS["swapped"].line, layer_of("swapped")) == ("Each channel becomes the other", Swapped)
    assert (TASKS["calm"].line, task_named("calm"), Calm.name) == ("How calm a text is", Calm, "calm")
    config = finetuning.get_config("calm")
    config.data.train, config.init_from, config.data.text = ("x.tsv",), "run", "words"
    validate(config)
    assert type(task_of(config)) is Calm
    config.calm.depth = 4
    with pytest.raises(ValueError, match=r"^calm.depth=4 is not one of 2, 3$"):
        validate(config)
    other = finetuning.get_config("tagging")
    assert "calm" not in other
    other.task, other.data.train, other.init_from = "calm", ("x.tsv",), "run"
    with pytest.raises(ValueError, match=r"^calm.depth is missing: charlm.config.finetuning.get_config\('calm'\) has"):
        validate(other)


def test_the_readme_adds_a_noise():
    section = (TESTS.parent / "README.md").read_text(encoding="utf-8").partition("## Add your own")[2]
    exec(compile(section.partition("```python\n")[2].partition("```")[0], "README.md", "exec"), {"__name__": "readme"})
    assert Noiser(Noise.parse("stutter:1"), 0).text("so it", 0).text == "sssooo iiittt"


def test_a_cell_of_a_notebook_may_run_again():
    for line in ("first", "second"):

        @register.noise("again", **NOISE | {"line": line})
        def again(characters, how, rng):
            return []

    assert KINDS["again"].line == "second"
    with pytest.raises(ValueError, match=r"^noise 'again': the name is taken by test_register:.*again; choose another"):
        register.noise("again", **NOISE)(print)


class Unfinished(Task):
    """A task that lacks most."""

    head, metric = "sequence_classification", "accuracy"


class Named(Classification):
    """A class with the name of another task."""

    name = "classification"


class Headless(Classification):
    """A task without a head."""

    head = "none"


class Silent(Fusion):
    """A fusion that does nothing."""


KEY = register.Key(1, "a number")
REFUSED = [
    (lambda: register.noise("drop", **NOISE)(print), "noise 'drop': the name is taken by charlm; choose another one"),
    (lambda: register.noise("a:b", **NOISE)(print), "noise 'a:b': expected a name of small letters, digits and _"),
    (lambda: register.noise("own", **NOISE)("drop"), "noise 'own': its operation is 'drop', expected a function"),
    (lambda: register.noise("own", **NOISE | {"rate": 2})(print), "noise 'own': rate=2, highest=1.0, min_length=1"),
    (lambda: register.noise("own", **NOISE | {"line": ""})(print), "noise 'own': it lacks line, which says"),
    (lambda: register.noise("own", **NOISE, unit="byte")(print), "noise 'own': its unit is 'byte', expected"),
    (lambda: KINDS.add("own", print), "noise 'own': expected a charlm.text.noise.Kind, got <built-in"),
    (lambda: register.task("ranking")(Named), "task 'ranking': the name is taken by charlm"),
    (lambda: register.task("masked_lm")(Named), "task 'masked_lm': the name is taken by charlm"),
    (lambda: register.task("own")(Named), "task 'own': Named.name='classification', expected 'own'"),
    (lambda: register.task("own")(Headless), "task 'own': Headless.head='none', expected one of sequence"),
    (lambda: register.task("own")(Unfinished), "task 'own': Unfinished lacks learn_labels, noised, outputs, pred"),
    (lambda: register.task("own", line="x")(dict), "task 'own': expected a subclass of charlm.tasks.base.Task, got"),
    (lambda: register.task("own", line="")(Classification), "task 'own': it lacks a line that says what is predicted"),
    (lambda: register.task("own", keys={"data.text": KEY})(Named), "task 'own': its key data.text is taken by charlm"),
    (lambda: register.task("own", keys={"sign": KEY})(Named), "task 'own': its key 'sign' is no SECTION.NAME"),
    (lambda: register.task("own", keys={"a.b": 1})(Named), "task 'own': its key 'a.b': expected charlm.register.Key("),
    (lambda: register.fusion("none")(Silent), "fusion 'none': the name is taken by charlm"),
    (lambda: register.fusion("own")(Silent), "fusion 'own': Silent lacks __call__(tokens_BLD, chars_BLD, mask_BL1)"),
    (lambda: register.fusion("own", line="x")(nn.Dense), "fusion 'own': expected a subclass of charlm.nn.fusions"),
    (lambda: register.family(HLM), "family 'hlm': the name is taken by charlm"),
    (lambda: register.family("hlm"), "family '': expected a name of small letters, digits and _"),
    (lambda: register.family(_family(units="")), "family 'own': it lacks its units, as module:name"),
    (lambda: register.family(_family(golden="no.such")), "family 'own': golden='no.such': there is no module no"),
    (lambda: register.family(_family(keys="")), "family 'own': keys and objectives belong together"),
    (lambda: register.family(_family(keys="json")), "family 'own': its keys, json, lack KEYS, validate"),
]  # fmt: skip


def _family(**changes: str) -> register.Family:
    return register.Family(**{**vars(HLM), "name": "own", **changes})


@pytest.mark.parametrize(("add", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_lacks_a_part_is_refused_in_one_line(add, message):
    before = [list(table) for table in TABLES]
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        add()
    assert str(error.value).startswith(message)
    assert [list(table) for table in TABLES] == before


def test_charlms_own_pass_the_same_checks():
    for table in TABLES:
        for name in table.own:
            assert table._check(name, table[name]) == table[name]
    for name, entry in TASKS.items():
        TASKS._check(name, register.TaskEntry(entry.line, task_named(name), entry.reads))
    assert layer_of("none") is None
    for name in ("paper", "reference"):
        FUSIONS._check("own", register.FusionEntry("x", layer_of(name)))
    assert all(isinstance(kind, Kind) for kind in KINDS.values())


# Packages that are broken


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Returns a function that installs a package with a module and entry points of noises; then the table is new."""

    def install(package: str, module: str, **points: str) -> None:
        (tmp_path / f"{package}_code.py").write_text(module, encoding="utf-8")
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        lines = "\n".join(f"{name} = {package}_code:{value}" for name, value in points.items())
        (info / "entry_points.txt").write_text(f"[charlm.noises]\n{lines}\n", encoding="utf-8")

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(KINDS, "_warned", set())
    monkeypatch.delitem(KINDS.__dict__, "_brought", raising=False)
    yield install
    KINDS.__dict__.pop("_brought", None)


GOOD = """
from charlm.text.noise import Kind
KIND = Kind(lambda characters, how, rng: [], "word", "words", 0.1, "does nothing")
"""


def test_a_broken_package_has_one_line_that_names_it(installed, log_lines):
    installed("bad_one", "import no_such_module", torn="KIND")
    installed("bad_two", "THING = 3", odd="THING", lost="NONE")
    installed("fine_one", GOOD, quiet="KIND")
    for name, message in {
        "torn": r"^package bad_one: noise 'torn' cannot be loaded from bad_one_code:KIND: ModuleNotFoundError: No "
        r"module named 'no_such_module'$",
        "odd": r"^package bad_two: noise 'odd': expected a charlm.text.noise.Kind, got 3$",
        "lost": r"^package bad_two: noise 'lost' cannot be loaded from bad_two_code:NONE: AttributeError: .*$",
    }.items():
        with pytest.raises(ValueError, match=message):
            Noise.parse(f"{name}:0.1")
    assert Noise.parse("quiet").rate == 0.1
    assert Noise.parse("drop").rate == 0.1
    assert not log_lines.lines
    assert [name for name, _ in KINDS.usable()] == [*KINDS.own, "quiet"]
    assert [name for name, _ in KINDS.usable()] == [*KINDS.own, "quiet"]
    assert sorted(line.partition(" cannot")[0].partition(": expected")[0] for line in log_lines.lines) == [
        "package bad_one: noise 'torn'", "package bad_two: noise 'lost'", "package bad_two: noise 'odd'",
    ], "each once"  # fmt: skip


def test_a_name_that_a_package_may_not_have_is_left_out(installed, log_lines):
    installed("one", GOOD, drop="KIND", twice="KIND")
    installed("two", GOOD, twice="KIND", Loud="KIND")
    assert list(KINDS) == [*KINDS.own, "twice"]
    assert sorted(log_lines.lines) == [
        "package one: noise 'drop' is left out: the name is taken by charlm",
        "package two: noise 'Loud' is left out: expected a name of small letters, digits and _",
        "package two: noise 'twice' is left out: the name is taken by the package one",
    ]
    with pytest.raises(ValueError, match=r"^noise 'twice': the name is taken by the package one; choose another one$"):
        register.noise("twice", **NOISE)(print)
