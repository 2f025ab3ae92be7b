"""Tests that generation equals choosing token by token without a cache, whatever else is in the batch."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hf_reference import FILE, NEW, PROMPTS
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import POSITIONS, release, run_alone

from charlm.families.predictor import Predictor
from charlm.families.subword.generation import cut_tail
from charlm.families.subword.predictor import SubwordPredictor

NOISE = 5e-5
END = "<|endoftext|>"


@pytest.fixture(scope="module")
def predictor():
    return Predictor.from_checkpoint(release("gpt2"))


def follow(ids, **changes):
    """Returns the log-probabilities [V] of what follows some ids, without a cache."""
    return run_alone("gpt2", ids, **changes)[1][-1]


def without_cache(predictor, prompt, steps):
    """Returns the likeliest ids, one after the other, and their log-probabilities."""
    ids = list(predictor.tokenizer.encode(prompt).ids) or [predictor.tokenizer.id(END)]
    added, log_probs = [], []
    for _ in range(steps):
        row = follow(ids + added)
        added.append(int(row.argmax()))
        log_probs.append(row[added[-1]])
    return added, log_probs


# ---- Greedy ----


def test_greedy_is_that_of_transformers_and_of_no_cache(predictor):
    golden = json.loads(FILE.read_text(encoding="utf-8"))["gpt2"]["greedy"]
    found = predictor.generate(PROMPTS, NEW)
    assert [one.ids for one in found] == [golden[prompt] for prompt in PROMPTS]
    for prompt, one in zip(PROMPTS, found, strict=True):
        ids, log_probs = without_cache(predictor, prompt, NEW)
        assert one.ids == ids
        np.testing.assert_allclose(one.log_probs_T, log_probs, atol=NOISE)
        assert one.text == predictor.tokenizer.decode(ids)
        assert not one.finished
    assert len({len(predictor.tokenizer.encode(prompt).ids) for prompt in PROMPTS}) > 2


def test_an_empty_prompt_begins_a_text(predictor):
    (one,) = predictor.generate([""], 6)
    assert one.ids == without_cache(predictor, "", 6)[0]
    assert predictor.generate([], 6) == []


def test_prompts_do_not_depend_on_their_batch(predictor):
    together = predictor.generate([*PROMPTS, ""], 7)
    for prompt, want in zip([*PROMPTS, ""], together, strict=True):
        (alone,) = predictor.generate([prompt], 7)
        assert (alone.ids, alone.text) == (want.ids, want.text)
    for got, want in zip(predictor.generate(["", *PROMPTS[::-1]], 7, batch_size=2)[::-1], together, strict=True):
        assert got.ids == want.ids


def test_as_many_tokens_as_asked(predictor):
    (long,) = predictor.generate(PROMPTS[:1], 20)
    for count in (1, 5, 16, 17):
        (one,) = predictor.generate(PROMPTS[:1], count)
        assert one.ids == long.ids[:count]
        assert len(one.log_probs_T) == count


def test_to_the_last_position_and_not_beyond(predictor):
    room = POSITIONS - len(predictor.tokenizer.encode("She").ids)
    (one,) = predictor.generate(["She"], room)
    assert one.ids == without_cache(predictor, "She", room)[0]
    assert np.isfinite(one.log_probs_T).all()
    taken = len(predictor.tokenizer.encode(PROMPTS[0]).ids)
    message = f"max_new={room}: the model has room for 40 tokens, of which the prompt '{PROMPTS[0]}' takes {taken}"
    with pytest.raises(ValueError, match=message):
        predictor.generate(["She", PROMPTS[0]], room)


def ending_at(predictor, token):
    """Returns the predictor with the end of text in the place of a token, and the token in its."""
    end = predictor.tokenizer.id(END)

    def swap(path, leaf):
        return leaf.at[jnp.array([end, token])].set(leaf[jnp.array([token, end])]) if "token" in str(path) else leaf

    params = jax.tree_util.tree_map_with_path(swap, predictor.pretrained.params)
    return SubwordPredictor(dataclasses.replace(predictor.pretrained, params=params), predictor.tokenizer)


def test_the_end_of_text_ends_a_text_and_no_other(predictor):
    end, (first,) = predictor.tokenizer.id(END), predictor.generate(["She"], NEW)
    at = next(n for n in range(3, NEW) if first.ids[n] not in first.ids[:n])
    token = first.ids[at]
    prompts = ["She", *(p for p in PROMPTS if token not in predictor.tokenizer.encode(p).ids and p != "She")]
    before, ended = predictor.generate(prompts, NEW), ending_at(predictor, token).generate(prompts, NEW)
    assert (ended[0].ids, ended[0].finished) == ([*first.ids[:at], end], True)
    assert ended[0].text == predictor.tokenizer.decode(first.ids[:at])
    np.testing.assert_allclose(ended[0].log_probs_T, first.log_probs_T[: at + 1], atol=NOISE)
    assert len(prompts) > 2
    assert not all(one.finished for one in ended)
    for one, other in zip(before, ended, strict=True):
        finished = token in one.ids
        stop = one.ids.index(token) if finished else NEW
        assert (other.ids, other.finished) == (one.ids[:stop] + [end] * finished, finished)


def test_rows_that_are_no_tokens_are_never_chosen():
    wide = Predictor.from_checkpoint(release("gpt2", vocab_size=520))
    (one,) = wide.generate(["The birds had"], 20)
    assert max(one.ids) < wide.tokenizer.size == 421
    ids = list(wide.tokenizer.encode("The birds had").ids)
    best = [int(follow(ids + one.ids[:n], vocab_size=520).argmax()) for n in range(20)]
    assert max(best) >= 421  # the model alone would
    assert all(got == want for got, want in zip(one.ids, best, strict=True) if want < 421)
    sampled = wide.generate(["The birds had"] * 8, 12, temperature=3.0)
    assert max(max(found.ids) for found in sampled) < 421


def test_few_programs_are_compiled(predictor):
    before = predictor._write._cache_size()
    for count in (1, 3, 7, 11):
        for temperature in (0.5, 0.9):
            predictor.generate(["birds"] * 3, count, temperature=temperature, top_k=count, top_p=0.9, seed=count)
    assert predictor._write._cache_size() - before == 1


# ---- Drawn ----


def test_one_seed_gives_one_text_whatever_else_is_asked(predictor):
    options = {"temperature": 1.0, "top_k": 50, "seed": 3}
    together = predictor.generate(PROMPTS, 8, **options)
    for prompt, want in zip(PROMPTS, together, strict=True):
        (alone,) = predictor.generate([prompt], 8, **options)
        assert alone.ids == want.ids
    other = predictor.generate(PROMPTS, 8, **(options | {"seed": 4}))
    assert [one.ids for one in other] != [one.ids for one in together]
    ids = list(predictor.tokenizer.encode(PROMPTS[0]).ids)
    for n, (index, log_prob) in enumerate(zip(together[0].ids, together[0].log_probs_T, strict=True)):
        assert log_prob == pytest.approx(follow(ids + together[0].ids[:n])[index], abs=NOISE)  # no temperature, no cut


def test_a_repeated_prompt_goes_on_in_other_ways(predictor):
    draw = lambda seed: [
        tuple(one.ids) for one in predictor.generate(["She"] * 4, 8, temperature=1.0, top_k=50, seed=seed)
    ]
    found = draw(7)
    assert len(set(found)) == 4
    assert found == draw([7, 8, 9, 10])
    assert draw([9, 7, 7, 3])[:3] == [found[2], found[0], found[0]]


def test_every_token_is_drawn_anew(predictor):
    (one,) = predictor.generate(["She"], 12, temperature=1e6)  # all tokens alike: the random bits alone decide
    assert len(set(one.ids)) > 8


def test_what_is_drawn_follows_the_probabilities(predictor):
    draws, temperature = 600, 0.4
    prompt = PROMPTS[0]
    found = predictor.generate([prompt] * draws, 1, temperature=temperature, top_k=6, batch_size=64)
    row = follow(predictor.tokenizer.encode(prompt).ids) / temperature
    likely = np.argsort(-row)[:6]
    probs = np.exp(row[likely] - np.logaddexp.reduce(row[likely]))
    drawn = np.array([one.ids[0] for one in found])
    assert set(drawn) <= set(likely.tolist())
    counts = np.array([(drawn == index).sum() for index in likely])
    assert (np.abs(counts - draws * probs) < 4 * np.sqrt(draws * probs * (1 - probs))).all()


def test_one_token_to_choose_from_is_greedy(predictor):
    greedy = [one.ids for one in predictor.generate(PROMPTS, 6)]
    for options in ({"top_k": 1}, {"top_p": 1e-6}):
        assert [one.ids for one in predictor.generate(PROMPTS, 6, temperature=1.0, **options)] == greedy


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9), st.floats(0.01, 1.0), st.integers(0, 10_000))
def test_the_tail_is_cut_as_defined(top_k, top_p, seed):
    logits = np.random.default_rng(seed).normal(size=7).astype(np.float32)
    order = np.argsort(-logits)[: top_k or 7]
    probs = np.exp(logits[order].astype(np.float64))
    before = np.cumsum(probs / probs.sum()) - probs / probs.sum()
    if np.abs(before - top_p).min() < 1e-5:
        return  # which side of the edge it falls on is a matter of rounding
    kept = set(order[before < top_p].tolist())
    found = np.asarray(cut_tail(jnp.array(logits[None]), jnp.int32(top_k), jnp.float32(top_p)))[0]
    assert set(np.nonzero(np.isfinite(found))[0].tolist()) == kept
    np.testing.assert_array_equal(found[list(kept)], logits[list(kept)])


@pytest.mark.torch
def test_the_tail_is_cut_as_in_transformers():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    logits = np.random.default_rng(0).normal(size=(4, 300)).astype(np.float32) * 3
    for top_k, top_p in ((5, 1.0), (300, 0.5), (40, 0.9), (1, 0.3), (300, 0.99)):
        want = transformers.TopKLogitsWarper(top_k)(None, torch.tensor(logits))
        if top_p < 1:
            want = transformers.TopPLogitsWarper(top_p)(None, want)
        found = cut_tail(jnp.array(logits), jnp.int32(top_k), jnp.float32(top_p))
        np.testing.assert_array_equal(np.asarray(found), want.numpy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new": 0}, "max_new=0: expected a whole number from 1 on"),
        ({"max_new": 2.5}, "max_new=2.5: expected a whole number"),
        ({"top_k": 1.5}, "top_k=1.5: expected a whole number"),
        ({"seed": 1.5}, "seed=1.5: expected a whole number from 0"),
        ({"temperature": -1.0}, "temperature=-1.0: expected 0"),
        ({"temperature": float("nan")}, "temperature=nan: expected 0"),
        ({"top_k": -1}, "top_k=-1: expected a whole number from 0"),
        ({"top_p": 0.0}, "top_p=0.0: expected a probability from 1e-06 to 1"),
        ({"top_p": 1.5}, "top_p=1.5: expected a probability from 1e-06 to 1"),
        ({"temperature": "a"}, "temperature='a': expected 0"),
        ({"temperature": True}, "temperature=True: expected 0"),
        ({"top_p": "x"}, "top_p='x': expected a probability"),
        ({"temperature": np.complex64(1)}, "temperature=.*: expected 0"),
        ({"seed": b"a"}, "seed=b'a': expected a whole number"),
        ({"seed": np.array([1, -1])}, "seed=.*-1.*: expected a whole number"),
        ({"seed": None}, "seed=None: expected a whole number"),
        ({"seed": "a"}, "seed='a': expected a whole number"),
        ({"seed": -1}, "seed=-1: expected a whole number from 0 to 4294967295"),
        ({"seed": [1, 2]}, "seed: expected one seed or 1, one for each prompt, got 2"),
        ({"batch_size": 0}, "generate takes a list of texts and a positive batch_size"),
    ],
)
def test_generate_refuses(predictor, options, message):
    with pytest.raises(ValueError, match=message):
        predictor.generate(["a"], **options)


def test_generate_refuses_a_single_string(predictor):
    with pytest.raises(ValueError, match=r"write \[text\]"):
        predictor.generate("one text")
