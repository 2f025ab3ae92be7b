"""Tests entries of other packages: every command knows them once installed, checks them, and refuses in one line."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import pytest
from small_run import WORDS

import charlm.convert.__main__ as convert
from charlm import predict, register
from charlm.config import finetuning, validate
from charlm.convert.model import CHANGEABLE, Converter
from charlm.core.entries import problem_of_methods
from charlm.families import options
from charlm.families.family import FAMILIES, Family, own_families
from charlm.families.fusions import FUSIONS, layer_of
from charlm.families.hlm import FAMILY as HLM
from charlm.families.objective import Objective
from charlm.families.predictor import Predictor
from charlm.nn.fusions import Fusion
from charlm.predict.options import make_parser
from charlm.tasks.base import Task
from charlm.tasks.classification import Classification
from charlm.tasks.create import task_named, task_of
from charlm.tasks.table import TASKS
from charlm.text.noise import KINDS, Kind, Noise, Noiser
from charlm.text.noise.words import per_word

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
def found(tmp_path_factory):
    """What came of `register_run.py`."""
    done = python(str(TESTS / "register_run.py"), cwd=tmp_path_factory.mktemp("installed"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_installed_fusion_is_trained(found):
    assert found["train"][0] == 0, found["train"][1]
    gate = "charbert/encoder/fusion/gate"  # one for all layers, as model.shared_fusion has it
    assert found["fusion"] == ["gated", f"{gate}/bias", f"{gate}/kernel"]


def test_an_installed_task_is_fine_tuned_with_an_installed_noise(found):
    assert found["tune"][0] == 0, found["tune"][1]
    assert found["settings"] == {"name": "shouting", "sign": "?", "least": 1, "labels": ["loud", "quiet"]}


def test_an_installed_task_has_a_command_for_prediction(found):
    status, lines, errors = found["answers"]
    assert (status, errors) == (0, "")
    assert [line["id"] for line in lines] == [str(n) for n in range(1, len(lines) + 1)]
    assert len(lines) == 2 * len(WORDS), "one for each line of the file"
    for label, probabilities in (line["prediction"] for line in lines):
        assert label == ["loud", "quiet"][probabilities.index(max(probabilities))]
        assert sum(probabilities) == pytest.approx(1)
    assert found["no answers"] == [1, [], "error: nowhere.txt: No such file or directory\n"]
    refusal = "error: this model was fine-tuned for shouting: it can predict, not classify\n"
    assert found["no class"] == [1, [], refusal]


def test_an_installed_noise_makes_text(found):
    assert found["noised"] == " qt mrnng"
    assert found["levels"] == ["vowels:0.1", "vowels:0.3"], "it is one of all kinds"


def test_an_installed_family_is_fine_tuned_with_a_key_of_its_own(found):
    assert found["family"] == ["short_hlm", "mean", "mean"]


def test_an_installed_family_is_used_and_converted_in_ways_of_its_own(found):
    status, said, letters = found["letters"]
    assert (status, letters) == (0, int(said.split()[1])), said
    assert said == f"letters: {letters} letters, from {Path(said.partition('from ')[2])}"
    assert found["imported"] == [0, 0, "short_hlm", "max"]
    assert found["asked"] == "max"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("task", "error: task='shoutin' is not one of masked_lm, classification, regression, tagging, question_answeri"
                 "ng, ranking, shouting; did you mean shouting?"),
        ("key", "error: unknown config key shouting.sgin; did you mean shouting.sign?"),
        ("value", "error: shouting.least=0 must be at least 1"),
        ("foreign", "error: data.scheme='iob1' is of tagging, but the task is shouting"),
        ("noise", "mobile, misspelling, vowels; did you mean vowels?"),
        ("fusion", "error: model.fusion='gatd' is not one of paper, reference, none, gated; did you mean gated?"),
        ("family", "error: family='short_hml' is not one of hlm, gpt2, charbert, characterbert, char2subword, x"
                   "rayemb, short_hlm; did you mean short_hlm?"),
        ("own key", "error: unknown config key model.agregation; did you mean model.aggregation?"),
        ("own value", "error: aggregation='median': expected word_cls, mean or max"),
        ("own of another", "error: model.aggregation=mean needs a model of the kind Short HLM, and is left empty for a "
                           "charbert"),
        ("own form", "error: --letters: expected a model of the kind Short HLM, got a CharBERT"),
        ("own import", "error: --made-by: not for BERT; it is how a Short HLM makes words"),
        ("own option", "--aggregation: aggregation='median': expected word_cls, mean or max"),
        ("own option of another", "--aggregation=max: only a Short HLM makes words in ways, run is a charbert"),
    ],
)  # fmt: skip
def test_mistakes_know_what_is_installed(found, what, message):
    assert found["errors"][what].endswith(message)


def test_help_lists_what_is_installed_and_needs_no_jax():
    code = """
import contextlib, os, sys, charlm.cli, charlm.convert.__main__, charlm.predict
os.environ["COLUMNS"] = "200"
print(charlm.cli._help_text())
for main, command in ((charlm.convert.__main__.main, "import"), (charlm.convert.__main__.main, "export"),
                      (charlm.predict.main, "encode")):
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
assert 'jax' not in sys.modules
"""
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
        "config keys of fine-tuning a model of the family short_hlm with their defaults, each set by "
        "--config.KEY=VALUE:",
        "model.aggregation = '' Short HLM: how a word is made of its characters; empty: as the model says",
        "--letters short_hlm: the 100 % known letters, one a line",
        "--made-by MADE_BY how a Short HLM makes a word of its characters",
        "Short HLM: how a word is made of its characters",
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
    page = (TESTS.parent / "docs" / "howto" / "extend.md").read_text(encoding="utf-8")
    exec(compile(page.partition("```python\n")[2].partition("```")[0], "extend.md", "exec"), {"__name__": "page"})
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


class Narrow(Fusion):
    """A fusion that knows no mask."""

    def __call__(self, tokens_BLD, chars_BLD):
        return tokens_BLD, chars_BLD


class Unmaking:
    """A class where a function belongs."""

    def __init__(self, characters, how, rng):
        pass


class Extended(Classification):
    """A task that needs more than charlm gives."""

    def predict(self, examples, rows, logits, temperature):
        return []


class Renamed(Classification):
    """A task whose arguments have names of their own."""

    def read(self, files, training, with_labels=True):
        return []


class Bound(Classification):
    """A task that is made from an instance."""

    def from_config(self, config):
        return self


class Asked(Classification):
    """A task with a method where charlm reads a value."""

    def outputs(self):
        return 3


class Fixed(Classification):
    """A task with a value where charlm calls a method."""

    settings = {"name": "own"}  # noqa: RUF012


class Alike(Classification):
    """A task that takes what charlm gives, and more."""

    outputs = 3

    @staticmethod
    def from_config(config):
        return Alike(config)

    def read(self, *arguments, **named):
        return []

    def rows(self, examples, units, training, *, longest=8):
        return []

    @staticmethod
    def settings():
        return {"name": "own"}


KEY = register.Key(1, "a number")
REFUSED = [
    (lambda: register.noise("drop", **NOISE)(print), "noise 'drop': the name is taken by charlm; choose another one"),
    (lambda: register.noise("a:b", **NOISE)(print), "noise 'a:b': expected a name of small letters, digits and _"),
    (lambda: register.noise("own", **NOISE)("drop"), "noise 'own': its operation is 'drop', expected a function"),
    (lambda: register.noise("own", **NOISE | {"rate": 2})(print), "noise 'own': rate=2, highest=1.0, min_length=1"),
    (lambda: register.noise("own", **NOISE | {"line": ""})(print), "noise 'own': it lacks line, which says"),
    (lambda: register.noise("own", **NOISE, unit="byte")(print), "noise 'own': its unit is 'byte', expected"),
    (lambda: register.noise("own", **NOISE | {"rate": "0.1"})(print), "noise 'own': rate='0.1', expected a number"),
    (lambda: register.noise("own", **NOISE, min_length=True)(print), "noise 'own': min_length=True, expected a number"),
    (lambda: register.noise("own", **NOISE, resizes=1)(print), "noise 'own': resizes=1, expected True or False"),
    (lambda: register.noise("own", **NOISE)(len), "noise 'own': its operation <built-in function len>, expected to"),
    (lambda: register.noise("own", **NOISE)(Unmaking), "noise 'own': its operation is <class 'test_register.Unmaking'"),
    (lambda: register.noise("own", **NOISE | {"line": "a\nb"})(print), "noise 'own': line='a\\nb', expected one line "),
    (lambda: register.noise("own", **NOISE | {"share_of": "a\r"})(print), "noise 'own': share_of='a\\r', expected one"),
    (lambda: register.noise(7, **NOISE)(print), "noise 7: expected a name of small letters, digits and _"),
    *((lambda name=name: register.noise(name, **NOISE)(print), f"noise '{name}': the name is taken by charlm") for name
      in ("all", "clean", "none", "any", "auto")),
    (lambda: KINDS.add("own", print), "noise 'own': expected a charlm.text.noise.Kind, got <built-in"),
    (lambda: register.task("ranking")(Named), "task 'ranking': the name is taken by charlm"),
    (lambda: register.task("masked_lm")(Named), "task 'masked_lm': the name is taken by charlm"),
    (lambda: register.task("own")(Named), "task 'own': Named.name='classification', expected 'own'"),
    (lambda: register.task("own")(Headless), "task 'own': Headless.head='none', expected one of sequence"),
    (lambda: register.task("own")(Unfinished), "task 'own': Unfinished lacks learn_labels, noised, outputs, pred"),
    (lambda: register.task("own")(Extended), "task 'own': Extended.predict, expected to take examples, rows, logits"),
    (lambda: register.task("own")(Renamed), "task 'own': Renamed.read, expected to take files, training, labelled"),
    (lambda: register.task("own")(Bound), "task 'own': Bound.from_config, expected a class method or static method th"),
    (lambda: register.task("own")(Asked), "task 'own': Asked.outputs is a method, expected a property"),
    (lambda: register.task("own")(Fixed), "task 'own': Fixed.settings={'name': 'own'}, expected a method"),
    (lambda: register.task("own", line="x")(_without_from_config()), "task 'own': Unmade lacks from_config, since mak"),
    (lambda: register.task("own", line="x")(dict), "task 'own': expected a subclass of charlm.tasks.base.Task, got"),
    (lambda: register.task("own", line="")(Classification), "task 'own': it lacks a line that says what is predicted"),
    (lambda: register.task("own", keys={"data.text": KEY})(Named), "task 'own': its key data.text is taken by charlm"),
    (lambda: register.task("own", line="a\nb")(Classification), "task 'own': line='a\\nb', expected one line of text"),
    (lambda: register.task("own", keys={"model.foo": KEY})(Named), "task 'own': its key model.foo: the section model "),
    (lambda: register.task("own", keys={"mesh.foo": KEY})(Named), "task 'own': its key mesh.foo: the section mesh is "),
    (lambda: register.task("own", keys={"seed.foo": KEY})(Named), "task 'own': its key seed.foo is taken by charlm"),
    (lambda: register.task("own", keys={"family.x": KEY})(Named), "task 'own': its key family.x is taken by charlm"),
    (lambda: register.task("own", keys={"data.cache_dir": KEY})(Named), "task 'own': its key data.cache_dir is taken "),
    (lambda: register.task("own", keys={"a.update": KEY})(Named), "task 'own': its key 'a.update': every config has a"),
    (lambda: register.task("own", keys={"get.a": KEY})(Named), "task 'own': its key 'get.a': every config has an attr"),
    (lambda: register.task("own", keys={"a.b": KEY._replace(meaning="x\ny")})(Named), "task 'own': its key 'a.b': mea"),
    (lambda: register.task("own", keys={"a.b": KEY._replace(minus_one="\n")})(Named), "task 'own': its key 'a.b': min"),
    (lambda: register.task("own", keys={"sign": KEY})(Named), "task 'own': its key 'sign' is no SECTION.NAME"),
    (lambda: register.task("own", keys={"a.b": 1})(Named), "task 'own': its key 'a.b': expected charlm.register.Key("),
    (lambda: register.task("all")(Named), "task 'all': the name is taken by charlm"),
    (lambda: register.task("own", reads=("data.txt",))(Named), "task 'own': reads='data.txt', expected some of data.t"),
    (lambda: register.task("own", reads="data.text")(Named), "task 'own': reads='data.text', expected a tuple"),
    (lambda: register.task("own", keys={"a.b": KEY._replace(meaning="")})(Named), "task 'own': its key 'a.b': meaning"),
    (lambda: register.task("own", keys={"a.b": KEY._replace(least=2)})(Named), "task 'own': its key 'a.b': default=1 "),
    (lambda: register.task("own", keys={"a.b": KEY._replace(choices=(2,))})(Named), "task 'own': its key 'a.b': defau"),
    (lambda: register.task("own", keys=[KEY])(Named), "task 'own': keys=[Key("),
    (lambda: register.task("own", unlabelled="no")(Named), "task 'own': unlabelled='no', expected True or False"),
    (lambda: TASKS.add("own", register.TaskEntry("x", "json")), "task 'own': task='json': expected a place, module:na"),
    (lambda: TASKS.add("own", register.TaskEntry("x", "json:Task")), "task 'own': task='json:Task': the module json h"),
    (lambda: register.fusion("all", line="x")(Silent), "fusion 'all': the name is taken by charlm"),
    (lambda: register.fusion("own", line=3)(Silent), "fusion 'own': line=3, expected a text"),
    (lambda: register.fusion("own", line="a\nb")(Silent), "fusion 'own': line='a\\nb', expected one line of text"),
    (lambda: register.fusion("own", line="x", shared=1)(Silent), "fusion 'own': shared=1, expected True or False"),
    (lambda: FUSIONS.add("own", register.FusionEntry("x", "")), "fusion 'own': layer='': expected a place, module:nam"),
    (lambda: FUSIONS.add("own", register.FusionEntry("x", "json:")), "fusion 'own': layer='json:': expected a place, "),
    (lambda: FUSIONS.add("own", register.FusionEntry("x", "jso:x")), "fusion 'own': layer='jso:x': there is no module"),
    (lambda: register.fusion("none")(Silent), "fusion 'none': the name is taken by charlm"),
    (lambda: register.fusion("own", line="x")(Narrow), "fusion 'own': Narrow.__call__, expected to take tokens_BLD"),
    (lambda: register.fusion("own")(Silent), "fusion 'own': Silent lacks __call__(tokens_BLD, chars_BLD, mask_BL1)"),
    (lambda: register.fusion("own", line="x")(nn.Dense), "fusion 'own': expected a subclass of charlm.nn.fusions"),
    (lambda: register.family(HLM), "family 'hlm': the name is taken by charlm"),
    (lambda: register.family("hlm"), "family '': expected a name of small letters, digits and _"),
    (lambda: register.family(_family(units="")), "family 'own': it lacks its units, as module:name"),
    (lambda: register.family(_family(golden="no.such")), "family 'own': golden='no.such': there is no module no"),
    (lambda: register.family(_family(keys="")), "family 'own': keys and objectives belong together"),
    (lambda: register.family(_family(keys="json")), "family 'own': its keys, json, lack KEYS, validate"),
    (lambda: register.family(_family(name="none")), "family 'none': the name is taken by charlm"),
    (lambda: register.family(_family(title="")), "family 'own': it lacks its title, the name shown to users"),
    (lambda: register.family(_family(title="A\nB")), "family 'own': title='A\\nB', expected one line of text"),
    (lambda: register.family(_family(units="json")), "family 'own': units='json': expected a place, module:name, got "),
    (lambda: register.family(_family(golden="json:")), "family 'own': golden='json:': expected a module, got 'json:'"),
    (lambda: register.family(_family(keys="json:loads")), "family 'own': keys='json:loads': expected a module, got 'j"),
    (lambda: register.family(_family(objectives={"": "json"})), "family 'own': objectives['']='json': expected a plac"),
    (lambda: register.family(_family(title=None)), "family 'own': title=None, expected a text"),
    (lambda: register.family(_family(converter=int)), "family 'own': converter=<class 'int'>, expected a text"),
    (lambda: register.family(_family(converter="charlm.families.hlm.conversion:CONVERTR")),
     "family 'own': converter='charlm.families.hlm.conversion:CONVERTR': the module charlm.families.hlm.conversion ha"),
    (lambda: register.family(_family(golden="json")), "family 'own': golden='json': the module json has no outputs"),
    (lambda: register.family(_family(objectives={"": ""})), "family 'own': objectives['']='': expected a place, modul"),
    (lambda: register.family(_family(objectives={1: HLM.objectives[""]})), "family 'own': objectives[1], expected the"),
    (lambda: register.family(_family(objectives={"late": HLM.objectives[""]})), "family 'own': objectives of the stag"),
    (lambda: register.family(_family(objectives={**HLM.objectives, "late": HLM.objectives[""]})),
     "family 'own': its keys, charlm.families.hlm.keys: no key objective chooses late"),
    (lambda: register.family(_family(stage_config=HLM.objectives[""])), "family 'own': with stage_config each of its"),
    (lambda: register.family(_family(stage_config="json:loads", objectives={"late": HLM.objectives[""]})),
     "family 'own': its keys, charlm.families.hlm.keys: KEYS lack stages, stage, expected with stage_config"),
    (lambda: register.family(_family(keys="charlm.families.char2subword.keys")),
     "family 'own': its keys, charlm.families.char2subword.keys: KEYS have stages, stage, expected only with stage_co"),
    (lambda: register.family(_family(starts_from="brt")), "family 'own': starts_from='brt' is not one of hlm, bert, "),
    (lambda: register.family(_family(starts_from=None)), "family 'own': starts_from=None, expected a text"),
    (lambda: register.family(_family(corpora="json:no")), "family 'own': corpora='json:no': the module json has no no"),
    (lambda: register.family(_family(undecayed=("(",))), "family 'own': undecayed: '(' is no regular expression: miss"),
    (lambda: register.family(_family(undecayed="embed")), "family 'own': undecayed='embed', expected a tuple"),
    (lambda: _option("dropout"), "family 'own': options['dropout']: the name is taken by charlm; choose another one"),
    (lambda: _option("Own"), "family 'own': options['Own']: expected a name of small letters, digits and _"),
    (lambda: _option(check="json:no"), "family 'own': options['own']: check='json:no': the module json has no no"),
    (lambda: _option(check="json"), "family 'own': options['own']: check='json': expected a place, module:name, got '"),
    (lambda: _option(check="json:"), "family 'own': options['own']: check='json:': expected a place, module:name, got"),
    (lambda: _option("get", key=KEY), "family 'own': options['get']: every config has an attribute 'get' of its own"),
    (lambda: _option(key=3), "family 'own': options['own']: key: expected charlm.register.Key(default, meaning), got"),
    (lambda: _option(resets=("mode",)), "family 'own': options['own']: resets='mode', expected one of its options tha"),
    (lambda: _option(resets="mode"), "family 'own': options['own']: resets='mode', expected a tuple of names of optio"),
    (lambda: _option("mode"), "family 'own': options['mode']: Char2Subword has another option of that name; choose an"),
    (lambda: _option(predict=register.PredictOption("top", "x", "y")), "family 'own': options['own']: predict: its na"),
    (lambda: _option(predict=register.PredictOption("own", "", "y")), "family 'own': options['own']: predict: it lack"),
    (lambda: _option(predict=register.PredictOption("own", "a\nb", "y")), "family 'own': options['own']: predict: it "),
    (lambda: _option(predict=register.PredictOption("own", "x", "y\nz")), "family 'own': options['own']: predict: it "),
    (lambda: _option(predict=register.PredictOption("policy", "x", "y")), "family 'own': options['own']: XRayEmb has"),
    (lambda: register.family(_family(options={"own": KEY})), "family 'own': options['own']: expected a charlm.registe"),
    (lambda: register.family(_family(label_head=KEY)), "family 'own': label_head: default=1, choices=(), expected ''"),
    (lambda: _form("output"), "family 'own': exports['output']: the name is taken by charlm; choose another one"),
    (lambda: _form("words"), "family 'own': exports['words']: Char2Subword has another option of that name; choose an"),
    (lambda: _form(write="json:no"), "family 'own': exports['own']: write='json:no': the module json has no no"),
    (lambda: _form(write="json"), "family 'own': exports['own']: write='json': expected a place, module:name, got 'js"),
    (lambda: _form(help="a\nb"), "family 'own': exports['own']: help='a\\nb', expected a line for the help text"),
    (lambda: _form(help=""), "family 'own': exports['own']: help='', expected a line for the help text"),
    (lambda: _form(default=3), "family 'own': exports['own']: default=3, expected '' for a text, 0 for a number or Fa"),
    (lambda: register.family(_family(imports={"own": "x"})), "family 'own': imports['own']: expected a charlm.registe"),
    (lambda: register.family(_family(imports={"heads": register.ImportOption("x")})), "family 'own': imports['heads']: "
     "HLM has another option of that name; choose another one"),
    (lambda: register.family(_family(imports={"own": register.ImportOption("x", chooses=1)})),
     "family 'own': imports['own']: chooses=1, expected True or False"),
    (lambda: register.family(_family(imports={"own": register.ImportOption("x", foreign="a\nb")})),
     "family 'own': imports['own']: foreign='a\\nb', expected a text of one line"),
    (lambda: register.family(_family(imports={"own": register.ImportOption("a\nb")})),
     "family 'own': imports['own']: help='a\\nb', expected a line for the help text"),
]  # fmt: skip


def _without_from_config() -> type:
    """Returns a task whose making takes an argument, and that is made without."""
    return type("Unmade", (Classification,), {"from_config": vars(Task)["from_config"]})


def _family(**changes: Any) -> register.Family:
    return register.Family(**{**vars(HLM), "name": "own", **changes})


def _option(name: str = "own", **changes: Any) -> None:
    """Registers a family with one option of its models."""
    register.family(_family(options={name: register.ModelOption(**{"check": "json:loads"} | changes)}))


def _form(name: str = "own", **changes: Any) -> None:
    """Registers a family with one form of its own."""
    register.family(_family(exports={name: register.ExportForm(**{"write": "json:dumps", "help": "x"} | changes)}))


class OddPredictor(HLM.get_predictor()):
    """A predictor that needs more than charlm gives."""

    def score(self, texts, batch_size=32, start=True, *, base):
        return []


class OddObjective(HLM.get_objective()):
    """An objective that is given another argument than it takes."""

    def empty(self, parts):
        return None


class OddConverter(type(HLM.get_converter())):
    """A converter that cannot be told the head."""

    def read(self, source):
        return None


ODD_CONVERTER = OddConverter()


class OtherConverter(type(HLM.get_converter())):
    """A converter with a title of its own."""

    name = "own"


OTHER_CONVERTER = OtherConverter()


@pytest.mark.parametrize(
    ("changes", "use", "message"),
    [
        ({"converter": "json:dumps"}, Family.get_converter,
         "converter='json:dumps': expected an instance of charlm.convert.model.Converter, got <function dumps"),
        ({"options": {"own": register.ModelOption("json:loads")}}, Family.get_converter,
         "converter='charlm.families.hlm.conversion:CONVERTER': its own_options lack own"),
        ({"title": "Own", "converter": "test_register:OTHER_CONVERTER"}, Family.get_converter,
         "converter='test_register:OTHER_CONVERTER': its title is 'HLM', expected that of the family, 'Own'"),
        ({"units": "json:__all__"}, lambda one: one.get_units(None, 0), "units='json:__all__': expected a function, g"),
        ({"predictor": "json:JSONDecoder"}, Family.get_predictor,
         "predictor='json:JSONDecoder': expected a subclass of charlm.families.predictor.Predictor, got <class"),
        ({"predictor": "charlm.families.predictor:Predictor"}, Family.get_predictor,
         "predictor='charlm.families.predictor:Predictor' lacks encode"),
        ({"predictor": "test_register:OddPredictor"}, Family.get_predictor,
         "predictor='test_register:OddPredictor': OddPredictor.score, expected to take texts, batch_size, start"),
        ({"objectives": {"": "test_register:OddObjective"}}, Family.get_objective,
         "objectives='test_register:OddObjective': OddObjective.empty, expected to take shards"),
        ({"converter": "test_register:ODD_CONVERTER"}, Family.get_converter,
         "converter='test_register:ODD_CONVERTER': OddConverter.read, expected to take source, head"),
        ({"objectives": {"": "json:JSONDecoder"}}, Family.get_objective,
         "objectives='json:JSONDecoder': expected a subclass of charlm.families.objective.Objective, got <class"),
        ({"exports": {"own": register.ExportForm("json:__all__", "x")}}, lambda one: one.write_form("own"),
         "exports['own'].write='json:__all__': expected a function, got ["),
    ],
)  # fmt: skip
def test_a_part_that_is_something_else_is_refused_when_it_is_used(changes, use, message):
    with pytest.raises(ValueError, match=rf"^family 'own': {re.escape(message)}[^\n]*$"):
        use(register.family(_family(**changes)))


def test_the_names_that_no_option_may_have_are_those_of_charlm():
    parsers = {}
    for module, parser in ((convert, convert._parser()), (predict, make_parser(""))):
        (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        for name, command in commands.choices.items():
            parsers[module, name] = {action.dest for action in command._actions} | {"command"}
    brought = {name for one in FAMILIES.values() for name in (*one.imports, *one.exports)}
    flags = {option.predict.name for one in FAMILIES.values() for option in one.options.values() if option.predict}
    assert set(options._CONVERT) == (parsers[convert, "import"] | parsers[convert, "export"]) - brought
    assert set(options._PREDICT) == set().union(*(found for (of, _), found in parsers.items() if of is predict)) - flags
    fields = {key.removeprefix("model.") for key in finetuning.KEYS if key.startswith("model.")}
    of_families = {name for one in FAMILIES.values() for name in one.options}
    assert set(options._FIELDS) == (fields | set(CHANGEABLE)) - of_families


def test_a_noise_of_words_belongs_to_the_module_of_its_function():
    def upside_down(chars, draws, keyboard):
        return 0, len(chars), "".join(reversed(chars))

    def unchanged(chars, draws, keyboard):
        return None

    for _ in range(2):  # a cell of a notebook, run again
        register.noise("turned", share_of="words", rate=1.0, line="turns words around")(per_word(upside_down))
    assert Noiser(Noise.parse("turned:1"), 0).text("typos stay", 0).text == "sopyt yats"
    with pytest.raises(ValueError, match=r"^noise 'turned': the name is taken by test_register:.*upside_down"):
        register.noise("turned", share_of="words", rate=1.0, line="turns words around")(per_word(unchanged))


@pytest.mark.parametrize(("add", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_lacks_a_part_is_refused_in_one_line(add, message):
    before = [list(table) for table in TABLES]
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        add()
    assert str(error.value).startswith(message)
    assert [list(table) for table in TABLES] == before


def test_a_method_may_take_more_than_charlm_gives():
    register.task("own")(Alike)
    assert task_named("own") is Alike


def test_charlms_own_pass_the_same_checks():
    for table in TABLES:
        for name in table.own:
            assert table._check(name, table[name]) == table[name]
    for name, entry in TASKS.items():
        TASKS._check(name, register.TaskEntry(entry.line, task_named(name), entry.reads))
    for one in own_families():
        assert problem_of_methods(one.get_predictor(), Predictor) == ""
        assert problem_of_methods(type(one.get_converter()), Converter) == ""
        assert (one.get_converter().name, one.get_converter().title) == (one.name, one.title)
        assert {problem_of_methods(one.get_objective(stage), Objective) for stage in one.objectives} <= {""}
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
