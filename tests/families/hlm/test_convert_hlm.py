"""HLM from and to the released code: round trips byte for byte, heads, and mistakes as one line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest
from again import again
from flax.traverse_util import flatten_dict
from golden_cases import VOCAB, case, write_release
from safetensors.numpy import load_file, save_file
from small_run import on_devices, python, small_config, write_text

import charlm.training.train
from charlm.convert.__main__ import main
from charlm.convert.heads import FINE_TUNED, MASKED_LM
from charlm.convert.rules import export_state
from charlm.core import checkpoint as checkpoints
from charlm.data.vocab import load_or_build_vocab
from charlm.families.hlm import conversion as hlm
from charlm.families.hlm.config import model_config
from charlm.families.hlm.golden import ours_of, shape_of
from charlm.families.hlm.objective import MaskedCharacters
from charlm.families.hlm.released_config import OWN_KEYS, to_theirs
from charlm.predict import Predictor
from charlm.text.chars import CharVocab
from charlm.training.run import build

MODELS = [
    ("reference", MASKED_LM, 0),
    again("reference", MASKED_LM, 1),
    *(again("reference", head, 0) for head in FINE_TUNED),
    *(("reference", head, 1) for head in FINE_TUNED),
    ("paper", MASKED_LM, 1),
    again("paper", "token_classification", 0),
]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def bring(release: Path, output: Path, *more: str) -> int:
    return run("import", f"--input={release}", f"--output={output}", *more)


def failure(capsys: pytest.CaptureFixture[str], status: int) -> str:
    """Returns the one line that a failed command printed."""
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 1
    assert line.startswith("error: ")
    return line


# ---- Round trips ----


@pytest.mark.parametrize(("name", "head", "layers"), MODELS)
def test_there_and_back_every_tensor_has_the_same_bytes(tmp_path, name, head, layers):
    release = write_release(tmp_path / "release", name, head, layers)
    theirs = (f"--head={head}", f"--heads={case(name).meta['hidden_heads_actually_used']}")
    assert bring(release, tmp_path / "ours", *theirs) == 0
    assert run("export", f"--checkpoint={tmp_path / 'ours'}", f"--output={tmp_path / 'back'}") == 0
    before, after = (load_file(folder / "model.safetensors") for folder in (release, tmp_path / "back"))
    if head == MASKED_LM:
        np.testing.assert_array_equal(after.pop("lm_layer.bias"), before["bias"])
    assert before.keys() == after.keys()
    for tensor, value in before.items():
        assert (after[tensor].dtype, after[tensor].shape) == (value.dtype, value.shape), tensor
        assert after[tensor].tobytes() == value.tobytes(), tensor
    told = json.loads((tmp_path / "back" / "config_model.json").read_text())
    heads = case(name).meta["hidden_heads_actually_used"]
    assert told.pop("charlm", {}) == ({} if heads == 12 else {"model.heads": heads})
    meant = json.loads((release / "config_model.json").read_text())
    assert told == meant | {"for_token_classification": head == "token_classification"}
    assert CharVocab.load(tmp_path / "back" / "char_vocab.json") == VOCAB
    assert bring(tmp_path / "back", tmp_path / "again", theirs[0]) == 0
    assert checkpoints.read_metadata(tmp_path / "again") == checkpoints.read_metadata(tmp_path / "ours")


def test_imported_from_shards_of_bfloat16(tmp_path):
    release = write_release(tmp_path / "release")
    state = load_file(release / "model.safetensors")
    (release / "model.safetensors").unlink()
    names = sorted(state)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: state[name].astype(ml_dtypes.bfloat16) for name in part}, release / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    (release / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert bring(release, tmp_path / "ours") == 0
    target = hlm.target(shape_of(case("reference")), MASKED_LM)
    params = checkpoints.load_params(tmp_path / "ours", checkpoints.on_one_device(target.params))
    for name, value in export_state(target.table, (), params).items():
        np.testing.assert_array_equal(value, state[name].astype(ml_dtypes.bfloat16).astype(np.float32), err_msg=name)


@pytest.mark.torch
def test_imported_from_what_pytorch_saved(tmp_path):
    torch = pytest.importorskip("torch")
    release = write_release(tmp_path / "release")
    state = {k: torch.from_numpy(v) for k, v in load_file(release / "model.safetensors").items()}
    assert bring(release, tmp_path / "one") == 0
    (release / "model.safetensors").unlink()
    torch.save(state | {"lm_layer.bias": state["bias"]}, release / "pytorch_model.bin")
    assert bring(release, tmp_path / "two") == 0
    for name in ("one", "two"):
        assert run("export", f"--checkpoint={tmp_path / name}", f"--output={tmp_path / name}_back") == 0
    one, two = (tmp_path / f"{name}_back" / "model.safetensors" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


TEXTS = [
    "the cat sat on a mat and dog ran to every small house in",
    "supercalifragilistic trees",
]  # 13 words: all distances


def vectors(checkpoint: Path) -> list[np.ndarray]:
    return [encoding.vectors_WD for encoding in Predictor.from_checkpoint(checkpoint).encode(TEXTS)]


def parameters(checkpoint: Path) -> dict[str, np.ndarray]:
    return flatten_dict(Predictor.from_checkpoint(checkpoint)._params, sep="/")


def test_a_run_of_other_buckets_heads_and_words_comes_back_with_the_same_bytes(tmp_path, trained):
    """Its 8 position buckets are not the released code's 256, nor its 2 heads the 12, nor how it splits words."""
    assert run("export", "--family=hlm", f"--checkpoint={trained.workdir}", f"--output={tmp_path / 'theirs'}") == 0
    state = load_file(tmp_path / "theirs" / "model.safetensors")
    assert {value.shape for name, value in state.items() if "rel_embeddings" in name} == {(512, 16)}
    assert bring(tmp_path / "theirs", tmp_path / "ours") == 0
    before, after = parameters(trained.workdir), parameters(tmp_path / "ours")
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert np.asarray(after[name]).tobytes() == np.asarray(value).tobytes(), name
    told, kept = (
        flatten_dict(checkpoints.read_metadata(checkpoints.find(at))["config"], sep=".")
        for at in (trained.workdir, tmp_path / "ours")
    )
    assert {key: kept[key] for key in OWN_KEYS} == {key: told[key] for key in OWN_KEYS}
    for one, other in zip(vectors(trained.workdir), vectors(tmp_path / "ours"), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run("export", f"--checkpoint={tmp_path / 'ours'}", f"--output={tmp_path / 'again'}") == 0
    for name in ("model.safetensors", "config_model.json", "char_vocab.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name


def test_an_export_of_other_buckets_is_the_same_function_with_the_256_of_the_released_code(tmp_path, trained):
    assert run("export", f"--checkpoint={trained.workdir}", f"--output={tmp_path / 'theirs'}") == 0
    told = json.loads((tmp_path / "theirs" / "config_model.json").read_text())
    assert told.pop("charlm")["model.position_buckets"] == 8
    (tmp_path / "theirs" / "config_model.json").write_text(json.dumps(told))
    assert bring(tmp_path / "theirs", tmp_path / "ours", "--heads=2") == 0
    assert Predictor.from_checkpoint(tmp_path / "ours").config.model.position_buckets == 256
    for one, other in zip(vectors(trained.workdir), vectors(tmp_path / "ours"), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_an_export_that_was_trained_on_keeps_all_rows_of_its_positions(tmp_path, trained, log_lines):
    assert run("export", f"--checkpoint={trained.workdir}", f"--output={tmp_path / 'theirs'}") == 0
    state = load_file(tmp_path / "theirs" / "model.safetensors")
    name = "hlm_model.deep_transformer.global_layer.rel_embeddings.weight"
    state[name] += np.random.default_rng(0).normal(0, 0.1, state[name].shape).astype(np.float32)
    save_file(state, tmp_path / "theirs" / "model.safetensors")
    assert bring(tmp_path / "theirs", tmp_path / "ours") == 0
    assert f"{name} was trained on with all its rows" in str(log_lines)
    np.testing.assert_array_equal(parameters(tmp_path / "ours")["hlm/inter_word/positions/embedding"], state[name])


# ---- What an imported checkpoint is good for ----


def test_an_imported_checkpoint_gives_the_released_vectors(tmp_path):
    assert bring(write_release(tmp_path / "release"), tmp_path / "ours") == 0
    predictor = Predictor.from_checkpoint(tmp_path / "ours")
    golden = case("reference")
    _, params, _ = ours_of(golden, shape_of(golden), MASKED_LM)
    np.testing.assert_array_equal(predictor._params["pooler"]["dense"]["kernel"], params["pooler"]["dense"]["kernel"])
    assert predictor.config.text.splitter == "reference"
    (encoding,) = predictor.encode(["don't stop"])
    assert encoding.words == ["don", "'", "t", "stop"]
    assert len(predictor.fill_mask("so [MASK:2] it", top=1)[0]) == 1
    with pytest.raises(ValueError, match="ours holds parameters alone, no run to go on with; init_from takes them"):
        checkpoints.load(tmp_path / "ours", None, None)


def test_a_fine_tuned_checkpoint_gives_vectors_and_says_that_it_fills_nothing(tmp_path):
    release = write_release(tmp_path / "release", head="token_classification", head_layers=0)
    assert bring(release, tmp_path / "ours") == 0
    predictor = Predictor.from_checkpoint(tmp_path / "ours")
    assert predictor.encode(["so it is"])[0].vectors_WD.shape == (3, 24)
    with pytest.raises(ValueError, match="no head that predicts characters"):
        predictor.fill_mask("so [MASK:2]")


@pytest.fixture
def imported(tmp_path):
    """The config of a run that starts from an imported checkpoint, whose numbers are random, and the imported state."""
    config = small_config(write_text(tmp_path / "text.txt", lines=60), tmp_path / "cache")
    config.model.update(vocab_size=1024, wiring="reference", position_buckets=256)
    config.text.char_vocab = "released"
    theirs = to_theirs(config, MASKED_LM, "here")
    target = hlm.target(model_config(config), MASKED_LM)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda p: rng.normal(0, 0.1, p.shape).astype(np.float32), target.params)
    (tmp_path / "release").mkdir()
    save_file(export_state(target.table, (), params), tmp_path / "release" / "model.safetensors")
    (tmp_path / "release" / "config_model.json").write_text(json.dumps(theirs))
    assert bring(tmp_path / "release", tmp_path / "ours", "--heads=2") == 0
    assert checkpoints.read_metadata(tmp_path / "ours")["char_vocab"] == CharVocab.released().to_dict()

    config.init_from = str(tmp_path / "ours")
    config.train.update(steps=1, eval_every=1, checkpoint_every=1)
    config.optim.learning_rate = 0.0
    return config, target, load_file(tmp_path / "release" / "model.safetensors")


def same_state(found, before):
    for name, value in before.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.slow
def test_training_starts_from_an_imported_checkpoint_and_is_exported_again(imported, tmp_path):
    config, _, before = imported
    with on_devices(1):
        charlm.training.train.train(config, str(tmp_path / "run"))
    assert run("export", f"--checkpoint={tmp_path / 'run'}", f"--output={tmp_path / 'out'}") == 0
    same_state(load_file(tmp_path / "out" / "model.safetensors"), before)  # the learning rate was 0


def test_a_run_starts_from_an_imported_checkpoint(imported, tmp_path):
    """init_from needs nothing else: the released characters by name, sizes from the config."""
    config, target, before = imported
    with on_devices(1):
        made = build(config, MaskedCharacters.prepare(config))
    params = made.objective.load_params(config.init_from, made.abstract_state.params, target.params)
    same_state(export_state(target.table, (), jax.device_get(params)), before)

    config.text.char_vocab = ""
    assert MaskedCharacters.prepare(config).vocab == CharVocab.released()  # those of init_from
    load_or_build_vocab(config).save(tmp_path / "mine.json")
    config.text.char_vocab = str(tmp_path / "mine.json")
    with on_devices(1), pytest.raises(ValueError, match=r"set text\.char_vocab to released"):
        charlm.training.train.train(config, str(tmp_path / "other"))
    config.model.vocab_size, config.text.char_vocab = 256, "released"
    with pytest.raises(ValueError, match=r"vocabulary released has 1009 entries, but model\.vocab_size is 256"):
        load_or_build_vocab(config)


# ---- Which head ----


def test_labels_of_words_and_of_sequences_are_told_apart_by_the_user_alone(tmp_path, capsys):
    release = write_release(tmp_path / "release", head="sequence_classification", head_layers=0)
    assert bring(release, tmp_path / "default") == 0
    assert bring(release, tmp_path / "words", "--head=token_classification") == 0
    heads = [checkpoints.read_metadata(tmp_path / name)["head"] for name in ("default", "words")]
    assert heads == ["sequence_classification", "token_classification"]
    capsys.readouterr()
    line = failure(capsys, bring(release, tmp_path / "no", "--head=masked_lm"))
    assert "holds label_layer.weight, a tensor of sequence_classification or token_classification" in line
    assert "head=no is not one of masked_lm" in failure(capsys, bring(release, tmp_path / "no", "--head=no"))


def test_a_state_dict_without_a_head_is_refused(tmp_path, capsys):
    release = write_release(tmp_path / "release", head="question_answering")
    state = load_file(release / "model.safetensors")
    save_file({k: v for k, v in state.items() if not k.startswith("qa_")}, release / "model.safetensors")
    assert "has no head of HLM" in failure(capsys, bring(release, tmp_path / "ours"))


# ---- Mistakes ----


def test_the_command_line_ends_in_one_line_and_a_status(tmp_path):
    done = python("-m", "charlm.convert", "import", f"--input={tmp_path / 'no.bin'}", f"--output={tmp_path / 'out'}")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {tmp_path / 'no.bin'} does not exist\n")
    done = python("-X", "importtime", "-m", "charlm.convert", "check", "--help")
    assert done.returncode == 0
    assert "--golden-dir" in done.stdout
    assert "jax" not in {line.split("|")[-1].strip() for line in done.stderr.splitlines()}, "help needs no jax"


def nothing_was_written(folder: Path) -> bool:
    return sorted(p.name for p in folder.iterdir()) == ["release"]


def test_sizes_that_config_and_tensors_disagree_about_are_all_named(tmp_path, capsys):
    release = write_release(tmp_path / "release")
    state = load_file(release / "model.safetensors")
    del state["dense_layer.bias"]
    save_file(state | {"extra": np.zeros(2, np.float32)}, release / "model.safetensors")
    told = json.loads((release / "config_model.json").read_text())
    (release / "config_model.json").write_text(json.dumps(told | {"transformer_ff_size": 30, "n_global_layer": 3}))
    line = failure(capsys, bring(release, tmp_path / "ours"))
    stack = "hlm_model.deep_transformer.global_layer.layer"
    assert f"missing dense_layer.bias, {stack}.2.attention" in line
    assert "unexpected extra" in line
    assert f"{stack}.[0-1].intermediate.dense.weight is (28, 24), expected (30, 24)" in line
    assert nothing_was_written(tmp_path)


def test_a_missing_config_is_asked_for_and_taken_from_elsewhere(tmp_path, capsys):
    release = write_release(tmp_path / "release")
    (release / "config_model.json").rename(release / "elsewhere.json")
    line = failure(capsys, bring(release, tmp_path / "ours"))
    assert "neither config_model.json nor config.json lies beside it; --model-config=FILE.json" in line
    assert nothing_was_written(tmp_path)
    assert bring(release, tmp_path / "ours", f"--model-config={release / 'elsewhere.json'}") == 0
    (release / "elsewhere.json").rename(release / "config.json")
    assert bring(release, tmp_path / "again") == 0


def test_characters_that_the_table_has_no_room_for_are_refused(tmp_path, capsys):
    release = write_release(tmp_path / "release")
    (release / "char_vocab.json").rename(release / "mine.json")
    line = failure(capsys, bring(release, tmp_path / "ours"))
    assert "of the released code needs 1009 rows" in line
    assert "max_codepoint=128" in line
    assert nothing_was_written(tmp_path)
    assert bring(release, tmp_path / "ours", f"--char-vocab={release / 'mine.json'}") == 0
    assert checkpoints.read_metadata(tmp_path / "ours")["char_vocab"] == VOCAB.to_dict()
    capsys.readouterr()
    assert "cannot be read" in failure(capsys, bring(release, tmp_path / "no", "--char-vocab=missing.json"))


def test_an_output_that_holds_something_is_left_alone(tmp_path, capsys):
    release = write_release(tmp_path / "release")
    before = {p.name: p.read_bytes() for p in release.iterdir()}
    assert "exists already and is not empty" in failure(capsys, bring(release, release))
    assert {p.name: p.read_bytes() for p in release.iterdir()} == before


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path, capsys, content):
    release = write_release(tmp_path / "release")
    (release / "config_model.json").write_text(content)
    assert "config_model.json" in failure(capsys, bring(release, tmp_path / "ours"))


def test_an_alias_that_differs_is_refused(tmp_path, capsys):
    release = write_release(tmp_path / "release")
    state = load_file(release / "model.safetensors")
    save_file(state | {"lm_layer.bias": state["bias"] + 1}, release / "model.safetensors")
    assert "lm_layer.bias differs from bias" in failure(capsys, bring(release, tmp_path / "ours"))


class _Touch:
    """Unpickled, it would run a shell command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.torch
@pytest.mark.parametrize("as_zip", [True, False])
def test_a_malicious_pickle_is_refused_by_name_and_nothing_is_written(tmp_path, capsys, as_zip):
    torch = pytest.importorskip("torch")
    release = write_release(tmp_path / "release")
    (release / "model.safetensors").unlink()
    torch.save({"bias": _Touch(tmp_path / "ran")}, release / "pytorch_model.bin", _use_new_zipfile_serialization=as_zip)
    line = failure(capsys, bring(release, tmp_path / "ours"))
    assert f"pytorch_model.bin is refused: its pickle asks for {os.system.__module__}.system" in line
    assert nothing_was_written(tmp_path)


def test_export_of_no_checkpoint_is_refused(tmp_path, capsys):
    line = failure(capsys, run("export", f"--checkpoint={tmp_path / 'no'}", f"--output={tmp_path / 'out'}"))
    assert "does not exist" in line
    assert not (tmp_path / "out").exists()


def test_inspect_says_what_every_tensor_becomes(tmp_path, capsys):
    release = write_release(tmp_path / "release")
    state = load_file(release / "model.safetensors")
    save_file(state | {"lm_layer.bias": state["bias"], "extra": np.zeros(2, np.float16)}, release / "model.safetensors")
    assert run("inspect", f"--input={release}") == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows.keys() == {*state, "lm_layer.bias", "extra"}
    assert rows["lm_layer.weight"] == "(128, 24) float32 head/output_kernel (transposed)"
    assert rows["lm_layer.bias"] == "(128,) float32 not imported: the same tensor as bias"
    assert rows["extra"] == "(2,) float16 not known: an import would refuse it"
    assert not any("not known" in row for name, row in rows.items() if name != "extra")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    release = write_release(tmp_path / "release")
    closed = "import os; r, w = os.pipe(); os.close(r); os.dup2(w, 1)"
    command = f"from charlm.convert.__main__ import main; raise SystemExit(main(['inspect', '--input={release}']))"
    done = python("-c", f"{closed}\n{command}")
    assert (done.returncode, done.stderr) == (0, "")
