"""Tests shipped models: packed from a run, found by name wherever a model is named, the same up to bfloat16."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
import yaml
from again import again
from robustness.conftest import Models
from safetensors.numpy import load_file, save_file
from ship_cases import CORPUS, ship, write_about
from small_run import ROOT, write_text
from tiny_models import release

import charlm
from charlm import models
from charlm.convert.__main__ import main as convert
from charlm.core import checkpoint as checkpoints
from charlm.core import checksums
from charlm.core import trained as shelf
from charlm.core.checkpoint import find
from charlm.families.hlm.objective import MaskedCharacters
from charlm.families.pretrained import from_pretrained
from charlm.families.source import load_source
from charlm.predict.__main__ import main as predict
from charlm.robustness import subjects
from charlm.ship.facts import scores_of
from charlm.statistics.parameters import open_model
from charlm.training.train import train
from charlm.training.workdir import check_source, started_from

NAME = "hlm-test-en"
TEXT = "the cat sat on a mat"
POOLING = (("Transformer", ""), ("Pooling", "1_Pooling"))


@pytest.fixture(scope="module")
def shipped(trained, tmp_path_factory) -> Path:
    """The small run, packed."""
    folder = tmp_path_factory.mktemp("shelf") / NAME
    assert ship(trained.workdir, folder, write_about(folder.parent / "about.json", "text.txt")) == 0
    return folder


@pytest.fixture
def shelved(shipped, monkeypatch, tmp_path) -> Path:
    """charlm carries the packed run, and nothing else; the current folder is empty."""
    monkeypatch.setattr(shelf, "FOLDER", shipped.parent)
    monkeypatch.chdir(tmp_path)
    return shipped


def parameters(path: Path | str) -> dict[str, np.ndarray]:
    params = from_pretrained(path).params
    return {jax.tree_util.keystr(name): np.asarray(leaf) for name, leaf in jax.tree_util.tree_leaves_with_path(params)}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


# ---- The folder ----


def test_parameters_come_back_as_float32_rounded_once(shelved, trained):
    before, after = parameters(trained.workdir), parameters(NAME)
    assert before.keys() == after.keys()
    for name, value in after.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, before[name].astype(ml_dtypes.bfloat16).astype(np.float32))
    stored = load_file(shelved / "state.safetensors")
    assert {value.dtype.name for value in stored.values()} == {"bfloat16"}
    size = sum(value.size for value in after.values())
    assert 2 * size < (shelved / "state.safetensors").stat().st_size < 2 * size + 20_000


def test_one_byte_a_weight_is_near_and_read_wherever_two_are(shelved, trained, tmp_path):
    about = write_about(tmp_path / "about.json", "text.txt")
    assert ship(trained.workdir, tmp_path / "small", about, "--dtype=int8") == 0
    stored = load_file(tmp_path / "small" / "state.safetensors")
    before, after = parameters(trained.workdir), parameters(tmp_path / "small")
    assert before.keys() == after.keys()
    for name, value in after.items():
        assert value.dtype == np.float32
        matrix = "/".join(re.findall(r"\w+", name)) + "@scale" in stored
        largest = np.abs(before[name]).max(-1 if "embedding" in name else -2, keepdims=True) if matrix else 0
        assert np.all(np.abs(value - before[name]) <= largest / 254 * 1.001 + np.abs(before[name]) * (not matrix) / 256)
    assert sum(name.endswith("@scale") for name in stored) > 20
    assert {value.dtype.name for name, value in stored.items() if name.endswith("kernel")} == {"int8"}
    assert {value.dtype.name for name, value in stored.items() if name.endswith("bias")} == {"bfloat16"}
    sizes = [(folder / "state.safetensors").stat().st_size for folder in (tmp_path / "small", shelved)]
    assert sizes[0] < 0.9 * sizes[1]  # names and scales weigh much beside so few weights
    assert "stored as int8" in (tmp_path / "small" / "README.md").read_text()
    texts = ["The list is sorted.", "A function retrns a vlaue"]
    ours, theirs = (charlm.load(path).encode(texts, normalize=True) for path in (tmp_path / "small", trained.workdir))
    np.testing.assert_allclose(ours, theirs, atol=0.02)
    assert np.abs(ours - theirs).max() > 0


def test_the_folder_has_all_that_the_model_needs_and_no_place_of_the_machine(shelved, trained):
    assert sorted(path.name for path in shelved.iterdir()) == [
        "README.md", "_CHECKPOINT_METADATA", "card.json", "char_vocab.json", "checksums.json", "known_words.txt",
        "state.safetensors",
    ]  # fmt: skip
    assert all(str(trained.workdir.parent) not in path.read_text() for path in shelved.glob("*[!s]") if path.is_file())
    assert from_pretrained(NAME).run_config().data.train == ("text.txt",)
    assert from_pretrained(NAME).vocab() == trained.data.vocab
    assert len({path.stat().st_mode for path in shelved.iterdir()}) == 1


def test_damage_is_noticed_but_the_card_may_be_edited(shelved, tmp_path):
    copy = Path(shutil.copytree(shelved, tmp_path / "copy"))
    (copy / "README.md").write_text("Better words.")
    from_pretrained(copy)
    with open(copy / "state.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(ValueError, match=r"copy is damaged or incomplete: state\.safetensors is not what was saved"):
        from_pretrained(copy)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((6000, 1, 1), r"has the shape \(6000, 1, 1\), expected \(1, "),
        ((1, 1), r"has the shape \(1, 1\), expected \(1, "),
    ],
)
def test_scales_of_another_shape_are_refused(trained, tmp_path, shape, says):
    """With them a small file of a stranger would fill the memory."""
    folder = tmp_path / "small"
    assert ship(trained.workdir, folder, write_about(tmp_path / "about.json", "text.txt"), "--dtype=int8") == 0
    arrays = load_file(folder / "state.safetensors")
    name = next(name for name in arrays if name.endswith("kernel@scale"))
    save_file(arrays | {name: np.ones(shape, np.float32)}, folder / "state.safetensors")
    checksums.write(folder)
    with pytest.raises(ValueError, match=says):
        from_pretrained(folder)
    del arrays[name]
    save_file(arrays | {"a/" * 2000 + "b": np.ones(1, np.float32)}, folder / "state.safetensors")
    checksums.write(folder)
    with pytest.raises(ValueError, match="a parameter's name has 2000 levels, more than 64"):
        from_pretrained(folder)


def test_files_that_say_how_texts_become_vectors_are_packed(tmp_path):
    source = Path(shutil.copytree(release("bert"), tmp_path / "source"))
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in POOLING]
    (source / "modules.json").write_text(json.dumps(listed))
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (source / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "the "}}))
    charlm.load(source).pretrained.save_pretrained(tmp_path / "run")
    assert ship(tmp_path / "run", tmp_path / "out", write_about(tmp_path / "about.json"), "--dtype=float32") == 0
    for options in ({}, {"prompt_name": "query"}):
        found, wanted = (charlm.load(p).encode([TEXT], normalize=True, **options) for p in (tmp_path / "out", source))
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_packed_model_may_be_packed_again_and_saved_as_any_other(shelved, tmp_path):
    about = write_about(tmp_path / "about.json", "text.txt")
    assert ship(NAME, tmp_path / "again", about, "--dtype=float32") == 0
    from_pretrained(NAME).save_pretrained(tmp_path / "saved")
    for folder in (tmp_path / "again", tmp_path / "saved"):
        assert_same(parameters(folder), parameters(NAME))
    assert "nothing is known of it" in (tmp_path / "again" / "README.md").read_text()


def test_no_run_goes_on_from_parameters_alone(shelved, trained, same_run, tmp_path):
    config = trained.new_config()
    config.resume, config.train.steps = NAME, 20
    with pytest.raises(ValueError, match="holds parameters alone, no run to go on with; init_from"):
        train(config, str(tmp_path / "run"))


# ---- Names ----


def test_a_name_is_taken_wherever_a_model_is(shelved, trained, tmp_path, capsys):
    """From Python, and by the commands that predict, convert, count, fine-tune and pre-train."""
    model = charlm.load(NAME)
    assert repr(model) == f"<HLM from {NAME}: it can encode, fill_mask>"
    rounded = charlm.load(trained.workdir).encode(TEXT).vectors
    np.testing.assert_allclose(model.encode(TEXT).vectors, rounded, atol=0.1)
    assert model("the [MASK:3] sat")[0].word  # the known words lie beside the model
    assert predict(["fill-mask", f"--model={NAME}", "the [MASK:3] sat"]) == 0
    assert json.loads(capsys.readouterr().out)["fills"][0][0]["word"] == model("the [MASK:3] sat")[0].word
    assert convert(["export", f"--checkpoint={NAME}", f"--output={tmp_path / 'out'}", "--dtype=bfloat16"]) == 0
    for name, value in load_file(tmp_path / "out" / "model.safetensors").items():
        assert value.dtype.name == "bfloat16", name
    there = parameters(tmp_path / "out")
    assert_same(there, parameters(NAME))
    counted = open_model(NAME).parameters
    assert counted is not None
    assert counted.total == sum(value.size for value in there.values())
    config = Models(tmp_path, trained.workdir).config("tagging", "hlm")
    config.init_from = NAME
    assert load_source(config).folder == shelved
    assert started_from(config)["checkpoint"] == checkpoints.identity(shelved)


def test_pretraining_goes_on_by_one_flag_with_the_characters_of_the_model(
    shelved, trained, same_run, tmp_path, log_lines
):
    """Although its text has others."""
    config = trained.new_config()
    config.data.train = (str(write_text(tmp_path / "other.txt", extra="Ünbekannt und Ähnliches")),)
    config.init_from, config.train.steps = NAME, 1
    train(config, str(tmp_path / "run"))
    assert f"parameters from {shelved}" in str(log_lines)
    assert checkpoints.read_metadata(find(tmp_path / "run"))["char_vocab"] == trained.data.vocab.to_dict()
    config.init_from = ""  # the run has them by now
    assert MaskedCharacters.prepare(config, tmp_path / "run").vocab == trained.data.vocab
    assert MaskedCharacters.prepare(config).vocab != trained.data.vocab
    config.init_from = str(trained.workdir)
    with pytest.raises(ValueError, match=rf"holds a run that started from {NAME} \(saved .*\), not from init_from="):
        check_source(config, tmp_path / "run")


def test_a_folder_of_that_name_comes_first(shelved, trained):
    trained.copy(Path(NAME))
    assert find(NAME) == Path(NAME).absolute() / "checkpoints" / "12"
    shutil.rmtree(NAME)
    assert find(NAME) == shelved
    Path(NAME).mkdir()
    with pytest.raises(ValueError, match=f"^checkpoint: {NAME} holds no complete checkpoint; expected a workdir"):
        find(NAME)


@pytest.mark.parametrize("load", [find, charlm.load, from_pretrained])
def test_an_unknown_name_is_answered_with_those_there_are(shelved, load, monkeypatch):
    with pytest.raises(
        ValueError, match=rf"hlm-tst-en does not exist.*; charlm carries {NAME}; did you mean {NAME}\?$"
    ):
        load("hlm-tst-en")
    with pytest.raises(ValueError, match=rf"^[^;]*nothing does not exist.*; charlm carries {NAME}$"):
        load("nothing")
    with pytest.raises(ValueError, match=r"runs/hlm-tst-en does not exist") as found:
        load("runs/hlm-tst-en")  # a path, no name
    assert "carries" not in str(found.value)
    monkeypatch.setattr(shelf, "FOLDER", shelved / "none")
    with pytest.raises(ValueError, match="hlm-tst-en does not exist") as found:
        load("hlm-tst-en")
    assert "carries" not in str(found.value)


# ---- The card, and the list ----


def test_the_card_says_what_the_run_knows(shelved, trained):
    text = (shelved / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    data = yaml.safe_load(front)
    assert (data["license"], data["language"], data["pipeline_tag"]) == ("apache-2.0", ["en"], "fill-mask")
    assert data["library_name"] == "charlm"
    assert data["tags"] == ["character-aware", "hlm"]
    last = [json.loads(line) for line in (trained.workdir / "metrics.jsonl").read_text().splitlines()][-1]
    (result,) = data["model-index"][0]["results"]
    measured = {one["type"]: one["value"] for one in result["metrics"]}
    assert measured["bits_per_char"] == pytest.approx(last["heldout_bits_per_char"], abs=1e-5)
    words = trained.data.train[0].stats.words
    assert f"| text.txt | [{CORPUS['name']}]({CORPUS['url']}) | cc0-1.0 | {words:,} |" in body
    assert "12 steps, some " in body
    assert "- It knows English alone." in body
    assert f'charlm.load("{NAME}")' in body
    card = json.loads((shelved / "card.json").read_text())
    assert card["parameters"] == sum(value.size for value in parameters(NAME).values())
    # About what a run of twelve batches reads.
    assert 0.5 < card["training"]["read"]["words"] / (12 * 8 * 10) < 2
    assert card["headline"] == f"bits per char {last['heldout_bits_per_char']:.3f} on held-out text"


def test_the_list_has_a_line_for_each_model(shelved, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines = models.lines()
    (line,) = [line for line in lines if line.startswith(f"  {NAME} ")]
    size = sum(path.stat().st_size for path in shelved.iterdir()) / 1e6
    assert f"{size:.1f} MB  masked lm: A small model of English; bits per char " in line
    monkeypatch.setattr(shelf, "FOLDER", shelved / "none")
    after = models.lines()
    assert after[after.index(lines[lines.index(line) - 1]) + 1] == "  none"


def test_the_list_needs_no_jax():
    code = "import sys; from charlm import models; models.lines(); assert not {'jax', 'flax'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_card_names_the_data_of_earlier_runs(trained, tmp_path):
    made = "Tagged by another, then trained."
    about = write_about(tmp_path / "about.json", "text.txt", "silver.conll", made=made, base_model="hlm-small-en")
    assert ship(trained.workdir, tmp_path / "out", about) == 0
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert [(one["file"], one["words"] is None) for one in card["corpora"]] == [
        ("text.txt", False), ("silver.conll", True)
    ]  # fmt: skip
    page = (tmp_path / "out" / "README.md").read_text()
    assert "Made from hlm-small-en." in page
    assert made in page


@pytest.mark.parametrize(
    ("corpora", "more", "message"),
    [
        ((), {}, "--about: corpora: no word about text.txt, which the model was trained on"),
        (("text.txt", "x.txt"), {}, "--about: corpora: the model was not trained on x.txt"),
        (("text.txt",), {"titel": "A"}, "about.json: unknown key 'titel'; did you mean title?"),
        (("text.txt",), {"limits": []}, "about.json: limits: expected a list of texts"),
        (("text.txt",), {"corpora": {"text.txt": {"name": "A"}}}, "corpora: text.txt: expected name and license"),
        (("text.txt",), {"title": ""}, "about.json: title: expected a text"),
    ],
)
def test_what_the_maker_must_say(trained, tmp_path, capsys, corpora, more, message):
    about = write_about(tmp_path / "about.json", *corpora, **more)
    assert ship(trained.workdir, tmp_path / "out", about) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_named(trained, tmp_path, capsys):
    (tmp_path / "about.json").write_text('{"title": "A", "corpora": {}}')
    assert ship(trained.workdir, tmp_path / "out", tmp_path / "about.json") == 1
    assert "about.json: license, language, limits missing" in capsys.readouterr().err


def test_too_large_a_model_is_refused_and_leaves_nothing(trained, tmp_path, capsys):
    about = write_about(tmp_path / "about.json", "text.txt")
    assert ship(trained.workdir, tmp_path / "out", about, "--max-mb=0.01") == 1
    assert "out: it would have 0.0" in (errors := capsys.readouterr().err)
    assert "MB, --max-mb allows 0.01" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["about.json"]
    assert ship(trained.workdir, tmp_path / "out", about, "--max-mb=0") == 1
    assert "--max-mb=0: expected a positive number" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    assert ship(trained.workdir, tmp_path / "out", about) == 1
    assert "exists already and is not empty" in capsys.readouterr().err


# ---- Fine-tuned models ----


@pytest.fixture(scope="module")
def tasks(trained, tmp_path_factory) -> Models:
    return Models(tmp_path_factory.mktemp("tasks"), trained.workdir)


OTHERS = [again(task) for task in ("classification", "question_answering", "regression", "ranking")]


@pytest.mark.parametrize("task", ["tagging", *OTHERS])
def test_every_task_survives_with_labels_and_settings(tasks, task, tmp_path, monkeypatch):
    model = tasks.untrained(task, "hlm")
    folder = tmp_path / "shelf" / "hlm-test-task"
    monkeypatch.setattr(shelf, "FOLDER", folder.parent)
    assert ship(model, folder, write_about(tmp_path / "about.json", *_trained_on(model))) == 0
    before, after = charlm.load(model), charlm.load("hlm-test-task")
    assert (after.task, after.labels) == (before.task, before.labels)
    assert before._fine_tuned is not None
    assert after._fine_tuned is not None
    assert after._fine_tuned.task.settings() == before._fine_tuned.task.settings()
    assert after.pretrained.metadata["label_head"] == before.pretrained.metadata["label_head"]
    if task == "tagging":
        assert {tag.label for tag in after(TEXT)} <= set(before.labels)
        assert [subject.name for subject in subjects.load(["hlm-test-task"], 8)] == ["hlm-test-task"]
    if task == "classification":
        assert after(TEXT, "a dog").label in before.labels
    assert not (folder / "known_words.txt").exists()
    card = json.loads((folder / "card.json").read_text())
    assert (card["task"], card["labels"]) == (task, list(before.labels))
    kinds = {"tagging": "token-classification", "question_answering": "question-answering"}
    assert f"pipeline_tag: {kinds.get(task, 'text-classification')}" in (folder / "README.md").read_text()


def _trained_on(model: str) -> list[str]:
    config = checkpoints.read_metadata(find(model))["fine_tuning"]
    return [Path(name).name for name in config["data"]["train"]]


def report(path: Path, *models_at: Path) -> Path:
    """Writes the parts of a robustness report that a card reads: its models are at these places."""
    named = [{"name": f"m{n}", "path": str(place), "defence": ""} for n, place in enumerate(models_at)]
    behind = [{"name": "m0 + nfkc", "path": str(models_at[0]), "defence": "nfkc"}]
    entry = lambda name, kind, level, value: {
        "model": name, "kind": kind, "spec": f"{kind}:{level}", "level": level,
        "scores": {"accuracy": {"mean": value}, "macro_f1": {"mean": 0.5}},
    }  # fmt: skip
    results = {
        "metric": "accuracy",
        "models": named + behind,
        "settings": {"data": ["data/dev.conll"]},
        "clean": {one["name"]: {"accuracy": 0.95, "macro_f1": 0.9} for one in named + behind},
        "noise": [
            entry("m0", None, 0.0, 0.95), entry("m0 + nfkc", "keyboard", 0.1, 0.1), entry("m0", "keyboard", 0.1, 0.89),
            entry("m0", "drop", 0.2, 0.8), entry("m0", "swap", 0.2, 0.7),
        ],
    }  # fmt: skip
    path.write_text(json.dumps(results))
    return path


def test_scores_are_those_of_the_report(trained, tmp_path):
    about = write_about(tmp_path / "about.json", "text.txt", base_model="hlm-small-en")
    found = report(tmp_path / "report.json", trained.workdir, tmp_path / "other")
    assert ship(trained.workdir, tmp_path / "out", about, f"--report={found}") == 0
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["headline"] == "accuracy 95.0 % clean, 89.0 % keyboard:0.1, 80.0 % drop:0.2"
    assert [(one["metric"], one["noise"], one["value"]) for one in card["scores"]] == [
        ("accuracy", "", 0.95), ("macro_f1", "", 0.9),
        ("accuracy", "keyboard:0.1", 0.89), ("accuracy", "drop:0.2", 0.8), ("accuracy", "swap:0.2", 0.7),
    ]  # fmt: skip
    text = (tmp_path / "out" / "README.md").read_text()
    assert "| dev.conll | keyboard:0.1 | accuracy | 89.0 % |" in text
    assert "base_model: hlm-small-en" in text
    results = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"]
    assert [one["dataset"].get("config") for one in results] == [None, "keyboard:0.1", "drop:0.2", "swap:0.2"]
    assert [len(one["metrics"]) for one in results] == [2, 1, 1, 1]


def test_scores_of_a_report_on_retrieval_are_those_of_the_model_alone(trained, tmp_path):
    def score(name, metric, noise, value):
        return {"system": name, "score": metric, "noise": noise, "value": value}

    ours, behind = "student", "student behind symspell"
    results = {
        "metric": "mrr@10", "settings": {"squad": ["/data/dev.json"], "beir": ""},
        "systems": [
            {"name": ours, "model": str(trained.workdir), "defence": ""},
            {"name": behind, "model": str(trained.workdir), "defence": "symspell"},
            {"name": "teacher", "model": str(tmp_path / "teacher"), "defence": ""},
        ],
        "scores": [
            score(ours, "ndcg@10", "clean", 0.8), score(ours, "mrr@10", "clean", 0.7),
            score(behind, "mrr@10", "clean", 0.1),
            score("teacher", "mrr@10", "drop:0.1", 0.2), score(ours, "mrr@10", "drop:0.1", 0.5),
            score(ours, "ndcg@10", "drop:0.1", 0.6),
        ],
    }  # fmt: skip
    (tmp_path / "report.json").write_text(json.dumps(results))
    found = scores_of(find(trained.workdir), {}, str(tmp_path / "report.json"))
    assert found["metric"] == "mrr@10"
    assert [(one["metric"], one["noise"], one["value"], one["data"]) for one in found["scores"]] == [
        ("ndcg@10", "", 0.8, "dev.json"), ("mrr@10", "", 0.7, "dev.json"), ("mrr@10", "drop:0.1", 0.5, "dev.json"),
    ]  # fmt: skip
    results["settings"] = {"squad": [], "beir": "", "intents": ["/data/train.tsv", "/data/dev.tsv"]}
    (tmp_path / "report.json").write_text(json.dumps(results))
    found = scores_of(find(trained.workdir), {}, str(tmp_path / "report.json"))
    assert {one["data"] for one in found["scores"]} == {"dev.tsv"}


def test_a_pretrained_model_has_the_scores_of_a_cloze_test_and_its_own(trained, tmp_path):
    results = {
        "metric": "accuracy", "settings": {"data": ["/data/dev.txt"]}, "task": "cloze",
        "systems": [{"name": "hlm", "model": str(trained.workdir), "defence": ""}],
        "scores": [
            {"system": "hlm", "score": "accuracy", "noise": noise, "value": value}
            for noise, value in (("clean", 0.5), ("drop:0.1", 0.4))
        ],
    }  # fmt: skip
    (tmp_path / "report.json").write_text(json.dumps(results))
    about = write_about(tmp_path / "about.json", "text.txt")
    assert ship(trained.workdir, tmp_path / "out", about, f"--report={tmp_path / 'report.json'}") == 0
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["headline"] == "accuracy 50.0 % clean, 40.0 % drop:0.1"
    said = [(one["metric"], one["noise"], one["data"]) for one in card["scores"]]
    assert said[:2] == [("accuracy", "", "dev.txt"), ("accuracy", "drop:0.1", "dev.txt")]
    assert ("bits_per_char", "", "held-out text") in said[2:]


def test_a_report_of_other_models_is_refused(trained, tmp_path, capsys):
    about = write_about(tmp_path / "about.json", "text.txt")
    found = report(tmp_path / "report.json", tmp_path / "one", tmp_path / "other")
    assert ship(trained.workdir, tmp_path / "out", about, f"--report={found}") == 1
    assert "report.json: it measures 2 models, and not this one: " in capsys.readouterr().err
    found = report(tmp_path / "report.json", tmp_path / "other")
    assert ship(trained.workdir, tmp_path / "out", about, f"--report={found}") == 1
    assert "report.json: it measures 1 models, and not this one: " in capsys.readouterr().err
    found.write_text('{"metric": "accuracy"}')
    assert ship(trained.workdir, tmp_path / "out", about, f"--report={found}") == 1
    assert (
        "report.json: expected a report of charlm.robustness, charlm.evaluate_retrieval or charlm.evaluate_cloze: "
        "KeyError('models')" in capsys.readouterr().err
    )


def test_scores_of_fine_tuning_are_those_of_the_packed_epoch(trained, tmp_path):
    """A run's folder is made of the small run: its scores are those of a step, which has to be the packed one."""
    workdir = trained.copy(tmp_path / "run")
    (workdir / "result.json").write_text('{"step": 12, "dev": {"accuracy": 0.9, "macro_f1": 0.8}}')
    found = scores_of(find(workdir), {"fine_tuning": {}}, "")
    assert found["metric"] == "accuracy"
    assert [(one["metric"], one["value"], one["data"]) for one in found["scores"]] == [
        ("accuracy", 0.9, "dev"), ("macro_f1", 0.8, "dev"),
    ]  # fmt: skip
    assert scores_of(workdir / "checkpoints" / "9", {"fine_tuning": {}}, "") == {"metric": "", "scores": []}
    assert scores_of(workdir / "checkpoints" / "12", {}, "")["metric"] == "bits_per_char"
    assert scores_of(workdir / "checkpoints" / "9", {}, "") == {"metric": "", "scores": []}  # measured at 6 and 12
