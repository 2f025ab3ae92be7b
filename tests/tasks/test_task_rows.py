"""Tests tasks: rows carry every label, and the right logits give the right predictions, in every family."""

from __future__ import annotations

import numpy as np
import pytest
from finetune.tiny_tasks import ANIMALS, FAMILIES, source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from charlm.data.examples import Answer, QuestionExample, TaggedExample, TextExample
from charlm.families.lookup import units_of
from charlm.families.pretrained import from_pretrained
from charlm.tasks.classification import Classification, Regression, join_cut
from charlm.tasks.columns import Columns
from charlm.tasks.contexts import ContextPlaces
from charlm.tasks.create import TASKS, from_settings
from charlm.tasks.question_answering import QuestionAnswering
from charlm.tasks.ranking import Ranking
from charlm.tasks.tagging import Tagging
from charlm.text.noise import Noise, Noiser


@pytest.fixture(scope="module", params=FAMILIES)
def units(request, trained):
    return units_of(from_pretrained(source(request.param, trained.workdir)))


def knowing(task, rows):
    """Logits of a model that knows the targets."""
    found = []
    for row in rows:
        length = row.joined.length
        if task.name == "tagging":
            logits = np.full((length, task.outputs), -5.0)
            logits[np.arange(length), row.targets["label"]] = 5
            logits[row.targets["weight"] == 0] = 9 * np.eye(task.outputs)[0]  # what nobody asked for is noise
        elif task.name == "question_answering":
            logits = np.full((length, 2), -5.0)
            logits[row.targets["start"], 0] = logits[row.targets["end"], 1] = 5
        else:
            logits = 9 * np.eye(task.outputs)[row.targets["label"]]
        found.append(logits.astype(np.float32))
    return found


# ---- Tagging ----

WORDS = st.lists(
    st.sampled_from(["the", "cat", "\x00", "trees", "supercalifragilistic", "ñandú", "a", "."]), min_size=1
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=WORDS, repeat=st.integers(1, 12), seed=st.integers(0, 99))
def test_every_word_is_tagged_once_however_long_the_sentence(units, words, repeat, seed):
    words = (words * repeat)[:80]
    tags = tuple(np.random.default_rng(seed).choice(["O", "B-X", "I-X", "B-Y"], len(words)).tolist())
    task = Tagging(labels=["O", "B-X", "I-X", "B-Y", "I-Y"], entities=True)
    example = TaggedExample("1", "f:1", tuple(words), tags)
    rows = task.rows([example], units, training=True)
    assert all(row.joined.length <= units.longest for row in rows)
    asked = np.concatenate([row.places.words for row in rows])
    assert sorted(asked.tolist()) == list(range(len(words)))
    assert sum(row.targets["weight"].sum() for row in rows) == len(words)
    assert task.predict([example], rows, knowing(task, rows)) == [tags]


def test_the_words_at_the_edge_of_a_window_have_context(units):
    words = tuple(["the", "cat"] * 60)
    rows = Tagging(labels=["O"]).rows([TaggedExample("1", "f", words)], units, training=False)
    assert len(rows) > 2
    room = units.room(False)
    for row in rows[:-1]:
        first, last = row.places.positions.min(), row.places.positions.max()
        if row is not rows[0]:
            assert first - row.joined.first >= room // 4 - 6
        assert row.joined.length - last >= room // 4 - 6


def test_a_word_is_spoken_for_by_its_first_piece_and_left_to_right_by_its_last(units):
    words = ("supercalifragilistic", "cat")
    (row,) = Tagging(labels=["O"]).rows([TaggedExample("1", "f", words)], units, training=False)
    (encoded,) = units.encode_words([words])
    places = [row.joined.first + encoded.words.index(w) for w in (0, 1)]
    if units.labelled == "last":
        places = [row.joined.first + len(encoded.words) - 1 - encoded.words[::-1].index(w) for w in (0, 1)]
    assert row.places.positions.tolist() == places


def test_unknown_tags_of_test_data_are_not_learned_from_and_count_as_wrong(units):
    task = Tagging(labels=["NOUN", "VERB"], entities=False)
    example = TaggedExample("1", "f", ("cat", "ran"), ("NOUN", "FOO"))
    rows = task.rows([example], units, training=False)
    assert sum(row.targets["weight"].sum() for row in rows) == 1
    predictions = task.predict([example], rows, knowing(task, rows))
    assert task.scores([example], predictions)["accuracy"] == 0.5


def test_statistics_know_tags_that_training_did_not(units):
    task = Tagging(labels=["NOUN", "VERB"], entities=False)
    examples = [TaggedExample("1", "f", ("cat", "ran"), ("NOUN", "FOO"))]
    kind, rows = task.statistics(examples, [("NOUN", "VERB")])
    assert (kind, len(rows)) == ("tags", 1)


def test_labels_of_entities_have_both_parts_and_o_comes_first():
    task = Tagging()
    task.learn_labels(
        [TaggedExample("1", "f", ("a", "b"), ("B-PER", "O")), TaggedExample("2", "f", ("a",), ("B-LOC",))]
    )
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert task.metric == "f1"
    plain = Tagging()
    plain.learn_labels([TaggedExample("1", "f", ("a", "b"), ("B", "O"))])
    assert (plain.labels, plain.metric) == (("O", "B", "I"), "f1")
    parts = Tagging()
    parts.learn_labels([TaggedExample("1", "f", ("a", "b"), ("NOUN", "X"))])
    assert (parts.labels, parts.metric) == (("NOUN", "X"), "accuracy")
    with pytest.raises(ValueError, match=r"data.train: 1 tags \('NOUN'\)"):
        Tagging().learn_labels([TaggedExample("1", "f", ("a",), ("NOUN",))])


def test_tags_follow_words_through_noise_and_back(units):
    task = Tagging(labels=["O", "B-X", "I-X"], entities=True)
    words = ("the", "catamaran", "sat", "on", "every", "matchbox", "in", "town")
    example = TaggedExample("1", "f", words, ("O", "B-X", "I-X", "O", "O", "B-X", "O", "O"))
    changed = 0
    for key in range(30):
        noisy, trace = task.noised(example, Noiser(Noise.parse("spaces:0.3"), 0), str(key))
        assert len(noisy.words) == len(noisy.tags)
        changed += len(noisy.words) != len(words)
        rows = task.rows([noisy], units, training=True)
        restored = task.restored(task.predict([noisy], rows, knowing(task, rows))[0], trace)
        assert len(restored) == len(words)
    assert changed > 10
    kept, trace = task.noised(example, Noiser(Noise.parse("drop:0.3"), 0), "1")
    rows = task.rows([kept], units, training=True)
    assert task.restored(task.predict([kept], rows, knowing(task, rows))[0], trace) == example.tags


# ---- Question answering ----


def question(context, text, start, **more):
    answers = () if text is None else (Answer(text, start),)
    return QuestionExample("q", "f: q", "which animal ?", context, answers, impossible=text is None, **more)


def answered(task, example, units, training=True):
    rows = task.rows([example], units, training)
    return task.predict([example], rows, knowing(task, rows))[0], rows


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.integers(0, 60), after=st.integers(0, 60), words=st.integers(1, 2))
def test_answers_are_found_wherever_they_stand(units, before, after, words):
    text = " ".join(ANIMALS[:words])
    context = " ".join(["the"] * before + [text] + ["town"] * after)
    example = question(context, text, 4 * before)
    prediction, rows = answered(QuestionAnswering(impossible=False), example, units)
    assert prediction.text == text
    best = prediction.candidates[0]
    assert (best.start, best.end) == (4 * before, 4 * before + len(text))
    assert sum(c.probability for c in prediction.candidates) == pytest.approx(1)
    assert all(row.joined.length <= units.longest for row in rows)
    most = np.concatenate([row.places.most for row in rows])
    (whole,) = units.encode([context])
    assert most.sum() == len(whole)  # each unit has most context in exactly one window


def test_answers_inside_a_unit_are_counted(units, log_lines):
    example = question("the catalog", "cat", 4)
    prediction, _ = answered(QuestionAnswering(impossible=False), example, units)
    assert "cat" in prediction.text
    inside = "1 of 1 answers (100.00 %)" in str(log_lines)
    assert inside == (prediction.text != "cat")


def test_no_answer_is_the_whole_rows_place_and_the_threshold_decides(units):
    task = QuestionAnswering(impossible=True)
    none, rows = answered(task, question("the town house", None, 0), units)
    for row in rows:
        assert row.targets["start"] == row.targets["end"] == row.joined.whole
    assert none.null_odds == pytest.approx(20)
    assert task.answer(none) == ""
    assert task.answer(none._replace(null_odds=-1.0)) == none.text != ""
    some, _ = answered(task, question("the cat house", "cat", 4), units)
    assert some.null_odds == pytest.approx(-20)
    examples = [
        question("the town house", None, 0)._replace(id="1"),
        question("the cat house", "cat", 4)._replace(id="2"),
    ]
    task.tune(examples, [none._replace(null_odds=3.0), some._replace(null_odds=2.5)])
    assert task.threshold == 2.5
    assert task.scores(examples, [none._replace(null_odds=3.0), some._replace(null_odds=2.5)])["exact"] == 100


def test_the_longest_answer_has_as_many_units_as_it_may():
    task = QuestionAnswering(impossible=False, max_answer=2, n_best=3)
    places = ContextPlaces(np.array([[0, 3], [4, 7], [8, 11]]), 0, np.ones(3, bool), 3)
    found = {(a, b) for a, b, _ in task._spans(np.array([[9.0, 1], [1, 2], [1, 9]]), places)}
    assert (0, 7) in found  # two units
    assert (0, 11) not in found  # three


def test_no_answer_is_as_likely_as_in_the_window_where_it_is_least_likely(units):
    task = QuestionAnswering(impossible=True)
    example = question("the town house " * 30, None, 0)
    rows = task.rows([example], units, training=False)
    logits = knowing(task, rows)
    for n, (row, scores) in enumerate(zip(rows, logits, strict=True)):
        scores[row.joined.whole] = 5 if n else -4
    assert task.predict([example], rows, logits)[0].null_odds == pytest.approx(-8 + 10)


def test_loss_of_answers_is_the_mean_of_both_sides_over_places_that_may_answer():
    task = QuestionAnswering()
    logits = np.log(np.array([[[1, 2], [3, 4], [5, 6], [7, 8]]], np.float32))
    targets = {
        "start": np.array([1]), "end": np.array([2]), "weight": np.ones(1, np.float32),
        "allowed": np.array([[True, True, True, False]]),
    }  # fmt: skip
    sums = task.sums(logits, targets)
    assert float(sums.loss) == pytest.approx(-(np.log(3 / 9) + np.log(6 / 12)) / 2, abs=1e-6)
    assert (float(sums.weight), float(sums.right)) == (1, 0)  # the start would be 2


def test_noise_in_a_context_moves_its_answer_and_predictions_come_back(units):
    task = QuestionAnswering(impossible=False, noise_context=True)
    context = "the town in every room the cat sat on a mat near old trees"
    example = question(context, "cat sat", context.index("cat sat"))
    for key in range(30):
        noisy, trace = task.noised(example, Noiser(Noise.parse("hlm:0.2"), 0), str(key))
        (answer,) = noisy.answers
        assert noisy.context[answer.start : answer.start + len(answer.text)] == answer.text != ""
        prediction, _ = answered(task, noisy, units)
        back = task.restored(prediction, trace).candidates[0]
        assert context[back.start : back.end] == back.text
        assert set(back.text.split()) & {"cat", "sat"} or back.text in "cat sat"
    absent = Answer("no such text", -1)  # kept by files of development data, for scoring only
    several = example._replace(answers=(absent, *example.answers, absent))
    noisy, _ = task.noised(several, Noiser(Noise.parse("hlm:0.2"), 0), "1")
    assert noisy.answers == (absent, *task.noised(example, Noiser(Noise.parse("hlm:0.2"), 0), "1")[0].answers, absent)
    plain, trace = QuestionAnswering().noised(example, Noiser(Noise.parse("drop:0.5"), 0), "1")
    assert (plain.context, trace) == (context, None)
    assert plain.question != example.question


# ---- Texts ----


@pytest.mark.parametrize(("a", "b"), [(3, 3), (60, 3), (3, 60), (60, 60), (17, 16)])
def test_pairs_that_are_too_long_lose_the_end_of_the_longer(units, a, b):
    first, second = units.encode(["cat " * a, "dog " * b])
    room, row = units.room(True), join_cut(units, first, second)
    assert row.length == min(units.longest, len(first) + len(second) + units.specials(True))
    if len(first) + len(second) <= room:
        return
    empty = units.join(first.part(0, 0), second.part(0, 0))
    kept_a = row.second - row.first - (empty.second - empty.first)
    kept_b = room - kept_a
    assert kept_a == (len(first) if len(first) <= room // 2 else max(room - room // 2, room - len(second)))
    assert kept_b == (len(second) if len(second) <= room // 2 else max(room // 2, room - len(first)))


def test_classes_are_predicted_and_probabilities_are_those_of_the_logits(units):
    task = Classification(Columns(), ["a", "b", "c"])
    examples = [TextExample(str(n), "f", "the cat", None, label) for n, label in enumerate("cab")]
    rows = task.rows(examples, units, training=True)
    predictions = task.predict(examples, rows, knowing(task, rows))
    assert [p.label for p in predictions] == list("cab")
    assert sum(predictions[0].probabilities) == pytest.approx(1)
    assert predictions[0].probabilities[2] == pytest.approx(np.exp(9) / (np.exp(9) + 2), rel=1e-5)
    assert task.scores(examples, predictions)["accuracy"] == 1


def test_f1_is_that_of_the_second_of_two_classes_and_zero_where_it_never_occurs():
    task = Classification(Columns(), ["no", "yes"], metric="f1")
    examples = [TextExample("1", "f", "x", None, "no")]
    rows = [task.target(example) for example in examples]
    assert rows == [{"label": 0, "weight": 1}]
    predict = lambda label: [task.predict(examples, [], [])[0]._replace(label=label)]
    assert task.scores(examples, predict("no"))["f1"] == 0
    assert task.scores(examples, predict("yes"))["f1"] == 0


def test_numbers_are_learned_in_units_of_their_spread_and_come_back(units):
    task = Regression(Columns())
    examples = [TextExample(str(n), "f", "the cat", None, value) for n, value in enumerate([1.0, 3.0, 5.0])]
    task.learn_labels(examples)
    rows = task.rows(examples, units, training=True)
    scaled = [row.targets["number"] for row in rows]
    np.testing.assert_allclose(scaled, [-np.sqrt(1.5), 0, np.sqrt(1.5)], atol=1e-6)
    back = task.predict(examples, rows, [np.array([value]) for value in scaled])
    np.testing.assert_allclose(back, [1, 3, 5], atol=1e-5)
    sums = task.sums(np.array([[1.0], [2.0]]), {"number": np.array([0.0, 5.0]), "weight": np.array([1.0, 0.0])})
    assert (float(sums.loss), float(sums.weight)) == (1, 1)
    with pytest.raises(ValueError, match=r"all 2 numbers are 1.0"):
        task.learn_labels([examples[0], examples[0]])


def test_passages_are_scored_one_by_one_and_ranked_within_their_query(units):
    task = Ranking.usual()
    examples = [TextExample(f"{q}{n}", "f", "which", "the cat", float(n == 1), q) for q in ("x", "y") for n in range(3)]
    rows = task.rows(examples, units, training=True)
    relevant = [float(row.targets["relevant"]) for row in rows]
    assert relevant == [0, 1, 0, 0, 1, 0]
    predictions = task.predict(examples, rows, [np.array([value]) for value in (1, 2, 0, 3, 2, 1)])
    assert task.scores(examples, predictions)["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    sums = task.sums(np.array([[0.0], [2.0]]), {"relevant": np.array([1.0, 0.0]), "weight": np.ones(2)})
    assert float(sums.loss) == pytest.approx(np.log(2) + np.log1p(np.exp(2)), rel=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_settings_make_the_task_anew(name):
    columns = Columns("a", "b", "c")
    task = {
        "classification": lambda: Classification(columns, ["x", "y"], "f1"),
        "regression": lambda: Regression(columns, 2.0, 3.0),
        "tagging": lambda: Tagging("1", "2", "iob1", ["O", "B-X"], True),
        "question_answering": lambda: QuestionAnswering(9, 8, 7, 6, True, 0.5, True),
        "ranking": lambda: Ranking(columns),
    }[name]()
    assert from_settings(task.settings()).settings() == task.settings()
    of_passages = Tagging(labels=["x"], skip_labels=["y"], columns=columns)
    assert from_settings(of_passages.settings()).columns == columns
    assert of_passages.skip_labels == ("y", "_")
    with pytest.raises(ValueError, match=f"task {name}: its settings cannot be read"):
        from_settings(task.settings() | {"colour": 1})


def test_statistics_reproduce_the_scores(units):
    from charlm.metrics import score_of

    task = Tagging(labels=["O", "B-X", "I-X"], entities=True)
    examples = [TaggedExample(str(n), "f", ("a", "b"), ("B-X", "I-X")) for n in range(4)]
    predictions = [("B-X", "I-X"), ("B-X", "O"), ("O", "O"), ("B-X", "I-X")]
    kind, rows = task.statistics(examples, predictions)
    value = score_of(kind, "f1")(rows.sum(axis=0)[None])[0]
    assert value == pytest.approx(task.scores(examples, predictions)["f1"])


# ---- Several labels in one ----


def classes_of(tmp_path, labels, **columns):
    file = tmp_path / "rows.tsv"
    file.write_text("".join(f"some text\t{label}\n" for label in labels), encoding="utf-8")
    task = Classification(Columns(text="0", label="1", header="no", **columns))
    task.learn_labels(task.read([str(file)], training=True))
    return task


def test_classes_that_are_several_in_one_are_told(tmp_path, log_lines):
    task = classes_of(tmp_path, ["3", "14", "7", "3,14", "3,7", "7,14", "3", "14,3", "3"])
    assert len(task.labels) == 7
    (line,) = log_lines.lines
    assert "4 of 7 classes look like several labels with ',' between, such as '3,7'" in line
    assert "set --config.data.separator=, and --config.data.multi_label" in line


def test_parts_that_never_stand_alone_are_known_by_their_repetition(tmp_path, log_lines):
    classes_of(tmp_path, ["a|b", "b|c", "a|c", "d"])
    (line,) = log_lines.lines
    assert "3 of 4 classes look like several labels with '|' between" in line
    assert "set --config.data.separator='|' and" in line


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (["joy", "anger", "fear", "joy,anger"], {}),  # one class of that name may be meant
        (["New York", "New", "Boston", "a, b", "c, d"], {}),  # whose parts are no classes
        (["Boston, MA", "Los Angeles, CA", "San Diego, CA", "Reno, NV"], {}),  # whose first parts stand once
        (["3", "14", "3,14", "14,3"], {"separator": ",", "multi_label": "first"}),
    ],
)
def test_other_classes_are_taken_as_they_are(tmp_path, log_lines, labels, columns):
    classes_of(tmp_path, labels, **columns)
    assert "data.separator" not in str(log_lines)
