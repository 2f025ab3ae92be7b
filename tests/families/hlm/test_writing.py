"""Tests an HLM that writes, with random parameters: it sees only what is before, and its caches change nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_run import small_config

from charlm.core.trees import stack
from charlm.data.batching import BatchShape, ShardPacker, pack_all
from charlm.data.forms import SpacedForm, rows_of, spaces_behind
from charlm.families.hlm.config import model_config
from charlm.families.hlm.keys import validate
from charlm.families.hlm.writer import HLMForNextWord
from charlm.families.hlm.writing_loop import letters_of
from charlm.families.hlm.writing_loss import summarize, writing_sums
from charlm.families.hlm.writing_predictor import WritingPredictor
from charlm.families.hlm.written import predicted
from charlm.text.chars import FIRST_CHAR, JOINED, SPACED, CharVocab

VOCAB = CharVocab(sorted("abcdefghijklmnopqrstuvwxyz.,'"))
TEXTS = ["the cat sat on a mat", "it's a bewildering town, they said.", "", "supercalifragilistic"]


def new_config(tmp_path, **model):
    config = small_config(tmp_path / "none.txt", tmp_path)
    config.objective = "next_word"
    config.model.position = "rotary"
    config.model.vocab_size = 48
    config.model.inter_layers = config.model.head_layers = 2
    config.model.initializer = "lecun"
    config.model.update(model)
    validate(config)
    return config


def new_model(config, seed=0):
    """Returns a model with random parameters, none of them zero."""
    shape = model_config(config)
    model = HLMForNextWord(shape)
    rows = np.zeros((1, shape.char_slots), np.uint16)
    rows[0, :3] = 5, 8, SPACED
    params = model.init(jax.random.key(seed), pack_all([predicted(rows)], 4, (shape.char_slots,)))["params"]
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [x + 0.1 * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return model, jax.tree.unflatten(tree, noisy)


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    config = new_config(tmp_path_factory.mktemp("writer"))
    return WritingPredictor(config, VOCAB, new_model(config)[1])


def record_rows(text, slots=8):
    """Returns the words of a text as a record of spaced words holds them."""
    words = text.replace(".", " .").replace(",", " ,").split(" ")
    spaces = [word not in (".", ",") for word in words]
    record, _ = SpacedForm(VOCAB.to_dict(), slots, "none").start().record([len(words)], words, spaces)
    return rows_of(record, slots)


def test_a_record_holds_letters_and_whether_a_space_follows():
    rows_WC = record_rows("a cat, sat elsewhere.")
    assert ["".join(map(str, VOCAB.decode(row_C[1:]))) for row_C in rows_WC] == [
        f"a[{SPACED}]", f"cat[{JOINED}]", f",[{SPACED}]", f"sat[{SPACED}]", f"elsewh[{JOINED}]", f"ere[{JOINED}]",
        f".[{SPACED}]",
    ]  # fmt: skip


def test_sentences_of_a_record_count_the_pieces_of_long_words():
    words, spaces = ["a", "bewildering", "cat", "sat"], [True] * 4
    record, _ = SpacedForm(VOCAB.to_dict(), 8, "none").start().record([2, 2], words, spaces)
    assert record.sentences.tolist() == [3, 2]
    assert spaces_behind([["a"], ["bewild", "ering"], ["cat"], ["sat"]], [True, True, False, True]) == [
        True, False, False, True, True
    ]  # fmt: skip


@pytest.mark.parametrize("local", [0, 3])
@pytest.mark.parametrize("unique", [True, False])
def test_a_word_is_predicted_from_those_before_it_alone(tmp_path, local, unique):
    """The logits of a word depend on the words before it and on its letters so far, and on nothing else."""
    model, params = new_model(new_config(tmp_path, local_words=local, global_every=2))
    rows_WC = record_rows("the cat sat on a mat and dog ran to every town")
    W = len(rows_WC)
    shape = BatchShape(1, 1, 16, (8,), (32,) if unique else (), (32,), (16,), unique_words=unique, room=1)

    def logits(rows_WC):
        packer = ShardPacker(shape)
        assert packer.add(predicted(rows_WC))
        batch = stack([packer.build()])
        (found,) = model.apply({"params": params}, batch)
        order = np.argsort(batch.masked[0].position_SM[0][:W])
        return np.asarray(found)[0][:W][order]

    whole = logits(rows_WC)
    changed = rows_WC.copy()
    changed[6, 1:3] = changed[6, 2:0:-1]  # "and" becomes "nad"
    other = logits(changed)
    np.testing.assert_allclose(other[:6], whole[:6], atol=1e-5)
    np.testing.assert_allclose(other[6, 0], whole[6, 0], atol=1e-5)
    assert np.abs(other[6, 1:3] - whole[6, 1:3]).max() > 1e-2
    assert (np.abs(other[7:] - whole[7:]).max(axis=(1, 2)) > 1e-4).all()


@pytest.mark.parametrize("local", [0, 3])
def test_scores_do_not_depend_on_batches_and_add_up_to_the_loss(tmp_path, local):
    config = new_config(tmp_path, local_words=local, global_every=2)
    model, params = new_model(config)
    writer = WritingPredictor(config, VOCAB, params)
    together = writer.score(TEXTS)
    for text, one in zip(TEXTS, together, strict=True):
        (alone,) = writer.score([text])
        np.testing.assert_allclose(alone.log_probs_P, one.log_probs_P, atol=1e-4)
        assert "".join(one.pieces) == text.replace(" ", "")
        assert [text[a:b] for a, b in one.offsets] == one.pieces
        assert one.chars == len(text) + bool(text)
    rows_WC = writer._spaced_rows(*map(list, ([*"the"], [False, False, True])))
    sums = writing_sums(model, params, pack_all([predicted(rows_WC)], 8, (8,)), None)
    (score,) = WritingPredictor(config, VOCAB, params).score(["the"])
    assert len(score.pieces) == 1
    own = writing_sums(model, params, pack_all([predicted(record_rows("the"))], 8, (8,)), None)
    assert summarize(own)["bits_per_char"] == pytest.approx(score.bits_per_char, rel=1e-4)
    assert float(own.chars) == score.chars == 4
    assert float(sums.chars) == 4  # three letters and one space, though there are three words
    assert float(sums.letters) == 6


def test_a_text_longer_than_the_window_is_scored_with_half_a_window_before_each_word(writer):
    words = [w for text in TEXTS for w in text.replace(",", "").replace(".", "").split() if "'" not in w and len(w) < 7]
    text = " ".join(words * 3)
    (score,) = writer.score([text])
    assert len(score.pieces) == 3 * len(words) > 20
    assert np.isfinite(score.log_probs_P).all()
    (begun,) = writer.score([" ".join((words * 3)[:14])])
    np.testing.assert_allclose(score.log_probs_P[:14], begun.log_probs_P, atol=1e-4)
    (without,) = writer.score([text], start=False)
    assert np.isnan(without.log_probs_P[0])
    assert without.chars == score.chars - len(words[0]) - 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_letters_are_drawn_as_a_whole_reading_predicts_them(writer, temperature):
    """Caches change nothing: the loop's log-probabilities, and the likeliest letters, are those of a new reading."""
    (one,) = writer.generate(["the cat "], 4, temperature=temperature)
    rows_WC = np.concatenate([record_rows("the cat"), words_of(one.ids)])
    (found,) = writer._model.apply({"params": writer._params}, batch := pack_all([predicted(rows_WC)], 16, (8,)))
    letters_V = np.zeros(48, bool)
    letters_V[list(VOCAB.ids.values())] = True
    log_probs = []
    for m in np.argsort(batch.masked[0].position_SM[0][: len(rows_WC)])[2:].tolist():
        labels_C, logits_CV = batch.masked[0].labels_SMC[0, m], np.asarray(found)[0, m]
        for slot in range(1, np.count_nonzero(labels_C) + 1):
            may_V = letters_V & (slot < 7)
            may_V[[SPACED, JOINED]] = slot > 1
            assert may_V[labels_C[slot]]
            if not temperature:
                assert np.where(may_V, logits_CV[slot - 1], -np.inf).argmax() == labels_C[slot]
            log_probs.append(jax.nn.log_softmax(logits_CV[slot - 1])[int(labels_C[slot])])
    np.testing.assert_allclose(one.log_probs_T, log_probs, atol=1e-4)


def words_of(ids):
    """Returns letters and ends as rows of a record of spaced words."""
    rows, row = [], [5]
    for i in ids:
        row.append(i)
        if i in (SPACED, JOINED):
            rows.append(np.array(row + [0] * (8 - len(row)), np.uint16))
            row = [5]
    assert row == [5], "every word has an end"
    return np.stack(rows)


def test_a_word_begun_is_written_to_its_end(writer):
    """The letters that are there stay, and the text goes on behind them; their log-probabilities are not counted."""
    for prompt in ("the ca", "bewild", "the cat sat on a mat"):
        (one,) = writer.generate([prompt], 3, temperature=1.0)
        assert len(words_of([*writer._rows([prompt.split()[-1]])[0, 1:][: len(prompt.split()[-1])], *one.ids])) == 3
        assert len(one.log_probs_T) == len(one.ids)
        assert (one.log_probs_T < 0).all()
    whole, begun = writer.generate(["", "t"], 1, temperature=0.0)
    assert whole.text
    assert begun.ids[-1] in (SPACED, JOINED)


def test_the_same_prompt_and_seed_give_the_same_text_among_any_others(writer):
    options = {"temperature": 1.0, "top_k": 5, "top_p": 0.9}
    (alone,) = writer.generate(["the cat "], 4, seed=7, **options)
    among = writer.generate(["a ", "the cat ", "the cat ", "sat on a mat and "], 4, seed=7, **options)
    assert among[1].text == alone.text
    assert among[2].text != alone.text
    np.testing.assert_allclose(among[1].log_probs_T, alone.log_probs_T, atol=1e-4)
    assert writer.generate(["the cat "], 4, seed=[8], **options)[0].text == among[2].text


def test_a_config_for_long_training_writes_the_same(writer, tmp_path):
    other = new_config(tmp_path, scan_layers=True, remat=True)
    found = WritingPredictor(other, VOCAB, writer._params).generate(["the cat "], 3)
    assert found[0].ids == writer.generate(["the cat "], 3)[0].ids


def test_without_a_cache_of_words_the_same_is_written(writer, tmp_path):
    other = WritingPredictor(writer.config, VOCAB, writer._params)
    other.cache = None
    assert other.generate(TEXTS[:2], 3)[0].text == writer.generate(TEXTS[:2], 3)[0].text


BYTES = CharVocab(sorted("abcdefghinorstu.,"), by_bytes=True)
RARE = "naïve ξενοδοχείο 語国🙂 zoo"  # the bytes of "z" and "v" are ASCII's


@pytest.fixture(scope="module")
def byte_writer(tmp_path_factory):
    config = new_config(tmp_path_factory.mktemp("bytes"), vocab_size=BYTES.size)
    config.text.unknown = "bytes"
    return WritingPredictor(config, BYTES, new_model(config)[1])


def test_long_words_of_bytes_are_cut_between_characters(byte_writer):
    (score,) = byte_writer.score([RARE])
    assert score.pieces == ["naïve", "ξεν", "οδο", "χεί", "ο", "語", "国", "🙂", "zoo"]
    assert [RARE[a:b] for a, b in score.offsets] == score.pieces
    assert score.chars == len(RARE) + 1
    words, spaces = ["naïve", "ξενοδοχείο", "語", "国", "🙂", "zoo"], [True, True, True, False, False, True]
    record, _ = SpacedForm(BYTES.to_dict(), 8, "none").start().record([2, 4], words, spaces)
    assert record.sentences.tolist() == [5, 4]
    own = pack_all([predicted(rows_of(record, 8))], 16, (8,))
    sums = writing_sums(byte_writer._model, byte_writer._params, own, None, by_bytes=True)
    assert float(sums.chars) == score.chars
    assert float(sums.letters) == 6 + 20 + 3 + 3 + 4 + 3 + 9  # a byte or letter each, and the end of each piece
    assert summarize(sums)["bits_per_char"] == pytest.approx(score.bits_per_char, rel=1e-4)
    assert byte_writer.texts_of(own) == [RARE + " "]


def test_words_are_cut_as_they_are_spelled():
    """A letter that its normal form spells by two characters takes the room of two."""
    vocab = CharVocab("\u0915\u093cab")
    assert vocab.cut("\u0958" * 5, 4, "nfc") == ["\u0958" * 2, "\u0958" * 2, "\u0958"]
    assert vocab.cut("abab", 4, "nfc") == ["abab"]
    assert vocab.cut("ababa", 4) == ["abab", "a"]
    assert vocab.cut("", 4) == [""]
    assert BYTES.cut("🙂🙂", 3) == ["🙂", "🙂"]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 30.0])
def test_only_whole_characters_are_written(byte_writer, temperature):
    """At a high temperature all bytes are about as likely, so that without rules most would be no UTF-8."""
    found = byte_writer.generate(["", "the ", "国"] * 11, 9, temperature=temperature, seed=3)
    text = "".join(one.text for one in found)
    assert "\ufffd" not in text
    assert "[" not in text or temperature  # a bracket is a byte that may stand alone
    assert [word for one in found for word in one.text.split()]
    if temperature == 30.0:
        codes = {len(char.encode()) for char in text}
        assert codes == {1, 2, 3, 4}
        assert all(char == " " or char.isprintable() for char in text if char.isascii())
    for one in found:
        letters = sum(i not in (SPACED, JOINED) for i in one.ids)
        assert letters == sum(len(BYTES.encode_word(word)) for word in one.text.split(" "))


@pytest.mark.parametrize("byte", range(256))
def test_bytes_that_may_be_written_are_those_of_utf8(byte):
    """Each byte that begins a character, with the least and the most behind it, is decoded; no other begins one."""
    letters_V, rules = letters_of(BYTES, BYTES.size)
    lead = FIRST_CHAR + byte
    ends = []
    for edge_V in (rules.least_V, rules.most_V):
        others = [edge_V[lead]] + [edge_V[FIRST_CHAR + 0x80]] * 2
        ends.append(bytes([byte, *(int(one) - FIRST_CHAR for one in others)])[: 1 + rules.more_V[lead]])
    if byte < 0x80:
        char = chr(byte)
        assert letters_V[lead] == (char.isprintable() and char != " " and char not in BYTES.ids)
    elif letters_V[lead]:
        assert [len(one.decode()) for one in ends] == [1, 1]
        below, above = (int.from_bytes(one[1:2], "big") for one in ends)
        for other in (below - 1, above + 1):
            if (byte, other) == (0xC2, 0xA0):  # what is below is UTF-8, but controls and a space
                assert bytes([byte, other]).decode() == "\u00a0"
                continue
            with pytest.raises(UnicodeDecodeError):
                bytes([byte, other, *ends[0][2:]]).decode()
    else:
        with pytest.raises(UnicodeDecodeError):
            bytes([byte, 0x80, 0x80, 0x80]).decode()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"max_new": 0}, "max_new=0"),
        ({"max_new": 16}, "the model has room for 15 words"),
        ({"temperature": -1.0}, "temperature=-1"),
        ({"top_p": 0.0}, "top_p=0.0"),
    ],
)
def test_arguments_out_of_range_are_named(writer, arguments, why):
    with pytest.raises(ValueError, match=why):
        writer.generate(["the cat "], **arguments)


def test_other_abilities_are_refused(writer):
    assert writer.abilities == ("score", "generate")
    with pytest.raises(ValueError, match="fills no gaps: it can score, generate"):
        writer.fill_mask("the [MASK]")


def test_vectors_and_attention_are_refused(writer):
    with pytest.raises(ValueError, match="makes no vectors of texts"):
        writer.encode(["the cat"])
    with pytest.raises(ValueError, match="shows no attention"):
        writer.views("the cat")


def test_what_follows_depends_on_whether_a_space_does(tmp_path):
    """The end of a word changes the logits of the words behind it, and of none before."""
    model, params = new_model(new_config(tmp_path))
    rows_WC = record_rows("the cat sat on a mat")

    def logits(rows_WC):
        (found,) = model.apply({"params": params}, batch := pack_all([predicted(rows_WC)], 8, (8,)))
        return np.asarray(found)[0][np.argsort(batch.masked[0].position_SM[0][: len(rows_WC)])]

    whole = logits(rows_WC)
    rows_WC[2, np.count_nonzero(rows_WC[2]) - 1] = JOINED
    other = logits(rows_WC)
    np.testing.assert_allclose(other[:3, :3], whole[:3, :3], atol=1e-5)
    assert (np.abs(other[3:] - whole[3:]).max(axis=(1, 2)) > 1e-4).all()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"position": "disentangled"}, 'expected "rotary"'),
        ({"wiring": "reference"}, 'expected "paper"'),
        ({"head_layers": 0}, "expected 1 or more"),
    ],
)
def test_configs_that_cannot_write_are_refused(tmp_path, changes, why):
    with pytest.raises(ValueError, match=why):
        new_config(tmp_path, **changes)


def test_gradients_do_not_reach_words_behind(tmp_path):
    """The context of the first words has no gradient to the vectors of later ones."""
    model, params = new_model(new_config(tmp_path))

    def first(words_BWD):
        read = lambda model, words_BWD: model.hlm.contextualize(words_BWD, jnp.ones(words_BWD.shape[:2], bool))
        return model.apply({"params": params}, words_BWD, method=read)[:, :3].sum()

    gradient = jax.grad(first)(jax.random.normal(jax.random.key(0), (1, 6, 16)))
    assert (np.abs(gradient[:, :3]).max(axis=-1) > 0).all()
    np.testing.assert_array_equal(gradient[:, 3:], 0)
