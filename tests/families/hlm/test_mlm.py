"""Tests masked character modelling: its sums equal those of a loop over characters and add up over batches."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trees import assert_same_trees

from charlm.data.word_batch import MaskedWords, WordBatch
from charlm.families.hlm.loss import MaskedCharSums, masked_char_sums, summarize, whole_characters
from charlm.text.chars import CharVocab

V = 11


class Fixed:
    """Stands in for a model: its parameters are its logits."""

    def apply(self, variables, batch, *, deterministic, rngs):
        assert deterministic == (rngs is None)
        self.rngs = rngs
        return variables["params"]


def example(seed: int, shapes: tuple[tuple[int, int, int], ...]) -> tuple[tuple[np.ndarray, ...], WordBatch]:
    """Returns logits and a batch with buckets of [S, M, C]; many words half right, padded words, empty places."""
    rng = np.random.default_rng(seed)
    logits, buckets = [], []
    for S, M, C in shapes:
        labels = rng.integers(1, V, (S, M, C)).astype(np.uint16)
        labels[np.arange(C) > rng.integers(1, C, (S, M, 1))] = 0
        labels[:, :, 0] = 0
        labels[:, M - 1] = 0
        x = rng.normal(0, 3, (S, M, C - 1, V)).astype(np.float32)
        right = rng.random((S, M, C - 1)) < rng.choice([0.3, 1.0], (S, M, 1))
        np.put_along_axis(x, labels[..., 1:, None].astype(int), np.where(right, 20, x.min(-1) - 1)[..., None], axis=-1)
        logits.append(x)
        buckets.append(MaskedWords(None, None, None, labels))
    return tuple(logits), WordBatch((), tuple(buckets), None, None)


def naive(logits, batch) -> dict[str, float]:
    sums = dict.fromkeys(MaskedCharSums._fields, 0.0)
    for x_SMCV, bucket in zip(logits, batch.masked, strict=True):
        for word in np.ndindex(bucket.labels_SMC.shape[:2]):
            labels, hits = bucket.labels_SMC[word][1:], []
            for x, label in zip(x_SMCV[word].astype(np.float64), labels, strict=True):
                if label:
                    sums["nats"] += math.log(sum(math.exp(v) for v in x)) - x[label]
                    hits.append(max(range(V), key=lambda v, x=x: x[v]) == label)
            sums["chars"] += len(hits)
            sums["whole"] += len(hits)
            sums["chars_right"] += sum(hits)
            sums["words"] += bool(hits)
            sums["words_right"] += bool(hits) and all(hits)
    return sums


SHAPES = ((2, 5, 3), (2, 7, 6))


def test_sums_equal_a_loop_over_characters():
    logits, batch = example(0, SHAPES)
    got, want = masked_char_sums(Fixed(), logits, batch, None), naive(logits, batch)
    assert 0 < want["words_right"] < want["words"]
    assert want["words_right"] / want["words"] != want["chars_right"] / want["chars"]
    for name, value in want.items():
        np.testing.assert_allclose(getattr(got, name), value, rtol=1e-6, err_msg=name)
        assert getattr(got, name).dtype == np.float32


def test_sums_of_two_batches_are_the_sums_of_both_together():
    a, b = example(1, SHAPES), example(2, SHAPES)
    logits = tuple(np.concatenate(pair) for pair in zip(a[0], b[0], strict=True))
    labels = [np.concatenate([x.labels_SMC, y.labels_SMC]) for x, y in zip(a[1].masked, b[1].masked, strict=True)]
    both = logits, WordBatch((), tuple(MaskedWords(None, None, None, x) for x in labels), None, None)
    sums = [masked_char_sums(Fixed(), logits, batch, None) for logits, batch in (a, b, both)]
    for name, first, second, together in zip(MaskedCharSums._fields, *sums, strict=True):
        np.testing.assert_allclose(first + second, together, rtol=1e-6, err_msg=name)


def test_what_stands_where_nothing_is_predicted_does_not_count():
    logits, batch = example(3, SHAPES)
    want = masked_char_sums(Fixed(), logits, batch, None)
    other = tuple(
        np.where((bucket.labels_SMC[..., 1:] != 0)[..., None], x, 1e4)
        for x, bucket in zip(logits, batch.masked, strict=True)
    )
    assert_same_trees(masked_char_sums(Fixed(), other, batch, None), want)


def test_the_gradient_where_nothing_is_predicted_is_zero():
    logits, batch = example(4, SHAPES)
    grads = jax.grad(lambda x: masked_char_sums(Fixed(), x, batch, None).nats)(logits)
    for gradient, bucket in zip(grads, batch.masked, strict=True):
        real = bucket.labels_SMC[..., 1:] != 0
        assert (np.abs(gradient).max(axis=-1) > 0)[real].any()
        assert not np.asarray(gradient)[~real].any()


def test_dropout_key_reaches_the_model():
    logits, batch = example(5, SHAPES)
    model, key = Fixed(), jax.random.key(3)
    masked_char_sums(model, logits, batch, key)
    assert model.rngs["dropout"] is key


def test_summary_is_a_mean_over_characters_and_over_words():
    sums = MaskedCharSums(nats=6.0, chars=4.0, chars_right=3.0, words=2.0, words_right=1.0, whole=4.0)
    want = {"loss": 1.5, "bits_per_char": 1.5 / math.log(2), "char_accuracy": 0.75, "word_accuracy": 0.5}
    assert summarize(sums) == pytest.approx(want)
    spelled = summarize(sums._replace(whole=3.0))  # one of the characters takes two bytes
    assert spelled == pytest.approx(want | {"bits_per_char": 2 / math.log(2)})


def test_bytes_that_continue_a_character_are_none_of_their_own():
    vocab = CharVocab("aж", by_bytes=True)
    words = ["a", "語", "aж語語", "é!"]
    ids_WC = np.zeros((len(words), 8), np.uint16)
    for n, word in enumerate(words):
        spelled = vocab.encode_word(word)
        ids_WC[n, : len(spelled)] = spelled
    begins_WC = np.asarray(whole_characters(jnp.asarray(ids_WC, jnp.int32), True)) & (ids_WC != 0)
    assert begins_WC.sum(axis=1).tolist() == [1, 1, 4, 2]
    labels = np.pad(ids_WC, ((0, 0), (1, 0)))[None]
    batch = WordBatch((), (MaskedWords(None, None, None, labels),), None, None)
    logits = (np.zeros((1, 4, 8, vocab.size), np.float32),)
    sums = masked_char_sums(Fixed(), logits, batch, None, True)
    assert (float(sums.chars), float(sums.whole)) == (1 + 3 + 8 + 3, 8)
    assert float(masked_char_sums(Fixed(), logits, batch, None).whole) == 15


def test_nothing_masked_is_an_error_in_one_line():
    logits, batch = example(6, ((1, 1, 4),))
    sums = masked_char_sums(Fixed(), logits, batch, None)
    assert float(sums.chars) == 0
    with pytest.raises(ValueError, match="no word was masked"):
        summarize(sums)
