"""Tests how texts are corrected, with a model whose predictions are stated: offsets, case, and what stays."""

from __future__ import annotations

import itertools
import math
import string

import numpy as np
import pytest

from charlm.data.forms import word_rows
from charlm.families.corrections import Correction, Meant, check_threshold, counted_words, weighted
from charlm.families.hlm.candidates import LEAST_CHAR, Candidate, Proposer, WordsNear, mean_of
from charlm.families.hlm.correcting import DOUBTFUL, Corrector
from charlm.families.hlm.misspelled import END
from charlm.families.hlm.reading import Doubt, Reader, is_mendable
from charlm.families.hlm.weighing import Weighing, Weights
from charlm.text.chars import MASK, CharVocab, WordEncoder
from charlm.text.words import get_splitter

VOCAB = CharVocab([*string.ascii_letters, *string.punctuation, *string.digits])
ENCODER = WordEncoder(VOCAB, 12)
FREQUENT = ["the", "cat", "receive", "letter", "house", "houses", "form", "from", "sat", "on"]
MEANT = {"teh": "the", "recieve": "receive", "Teh": "The", "TEH": "THE", "hosue": "house", "dinsoaur": "dinosaur"}


class Stated:
    """A model that predicts the words of `MEANT` with a probability, and all others as they stand."""

    def __init__(self, chance=0.95):
        self.chance, self.batches = chance, []

    def __call__(self, batch):
        self.batches.append(batch)
        return [self._log_probs(bucket) for bucket in batch.masked]

    def _log_probs(self, bucket):
        S, M, C = bucket.labels_SMC.shape
        found = np.full((S, M, C - 1, VOCAB.size), (1 - self.chance) / VOCAB.size)
        for m, labels_C in enumerate(bucket.labels_SMC[0]):
            if labels_C.any() and bucket.chars_SPC[0, bucket.row_SM[0, m], 1] != MASK:
                word = VOCAB.decode(bucket.chars_SPC[0, bucket.row_SM[0, m], 1:])
                ids = [*VOCAB.encode_word(MEANT.get(word, word)), END]
                found[0, m, np.arange(len(ids)), ids] += self.chance
        return np.log(found)


def reader(model, max_words=32):
    rows = lambda words: word_rows(ENCODER, words)
    return Reader(model, rows, VOCAB, get_splitter("rules"), (5, 8, 12), max_words)


def corrector(model, max_words=32, frequent=FREQUENT, weighing=None, hides=False):
    return Corrector(reader(model, max_words), Proposer(VOCAB), frequent, weighing, hides)


def corrected(texts, threshold=0.5, words=None, model=None, **options):
    mender = corrector(model or Stated(), **options)
    return mender.correct(texts, 2, threshold, mender.known(words))


def test_a_line_in_capitals_is_read_without_them():
    text = "TEH CAT RECIEVE IT.\nTeh CAT\nTEH CAT"
    (found,) = corrected([text])
    assert found.text == text
    assert [(edit.start, edit.word, edit.correction) for edit in found.edits] == [
        (0, "TEH", "THE"), (8, "RECIEVE", "RECEIVE"), (20, "Teh", "The")
    ]  # fmt: skip


def test_what_is_the_same_in_capitals_is_no_correction():
    model = Stated()
    text = "DIE STRASSE IST LANG"
    for words in (["straße"], ["strase"]):
        (found,) = corrected([text], threshold=0.0, words=words, model=model)
        assert all(edit.word != edit.correction for edit in found.edits)
        assert ("STRASSE" in {edit.word for edit in found.edits}) == (words == ["strase"])


def test_offsets_and_case():
    text = "  Teh cat, hosue;  recieve teh letter."
    (found,) = corrected([text])
    assert found.corrected == "  The cat, house;  receive the letter."
    assert [(edit.word, edit.correction) for edit in found.edits] == [
        ("Teh", "The"), ("hosue", "house"), ("recieve", "receive"), ("teh", "the"),
    ]  # fmt: skip
    for edit in found.edits:
        assert text[edit.start : edit.end] == edit.word
        assert 0.5 <= edit.probability <= 1


def test_what_is_no_word_of_letters_stays():
    text = "http://x.org/teh @teh #teh 3teh teh1 x.teh teh/cat teh_cat $teh 12 — …"
    assert corrected([text])[0] == Correction(text, ())


@pytest.mark.parametrize(
    "text",
    [
        "#cat-teh", "@john-teh", "C:\\teh-docs\\hosue", "~/hosue-teh", "src/teh-foo", "--teh-flag", "<hosue>", "tEh",
        "THe", "HOSUe",
    ],
)  # fmt: skip
def test_names_and_paths_stay_up_to_the_next_space(text):
    assert corrected([f"see {text} teh cat"])[0].corrected == f"see {text} the cat"


@pytest.mark.parametrize("text", ["I don't", "she isn't", "we can n't", "don\u2019t", "they'll teh"])
def test_halves_of_contractions_are_not_asked_about(text):
    for start, end in get_splitter("rules").spans(text):
        whole = text[start:end] in ("she", "we", "can", "teh", "they")
        assert is_mendable(text, start, end) == (whole and len(text[start:end]) > 1)


def test_a_short_list_of_words_does_not_outweigh_the_language():
    frequent = {f"word{n}": 1 / (n + 10) for n in range(1000)}
    mender = corrector(None, frequent=frequent)
    known = mender.known(["lexicon"])
    assert known.prior("lexicon") < known.prior("word100")
    assert known.prior("lexicon") > known.prior("word999") - 3
    many = mender.known([f"new{n}" for n in range(5000)])
    assert many.prior("new0") > known.prior("lexicon") - 3


def test_words_with_characters_that_the_model_lacks_stay():
    """Also where it reads them as a typo of another word."""
    (found,) = corrected(["ﬂow teh kät"], threshold=0.0, words=["low", "now", "kit"])
    assert found.corrected == "ﬂow the kät"


def test_texts_do_not_depend_on_each_other_or_on_windows():
    texts = ["teh cat", "", "The house sat on recieve", "teh " * 50, " \n", "cat"]
    together, alone = corrected(texts), [corrected([text])[0] for text in texts]
    assert [one.corrected for one in together] == [one.corrected for one in alone]
    assert together[3].corrected == "the " * 50
    small = corrected(texts, max_words=5)
    assert [one.corrected for one in small] == [one.corrected for one in together]


def test_a_higher_threshold_corrects_less():
    (all_of_it,) = corrected(["teh cat recieve"], threshold=0.0)
    chances = sorted(edit.probability for edit in all_of_it.edits)
    assert len(chances) == 2
    (less,) = corrected(["teh cat recieve"], threshold=(chances[0] + chances[1]) / 2)
    assert len(less.edits) == 1
    assert not corrected(["teh cat recieve"], threshold=1.0)[0].edits


def test_words_of_the_user_are_known():
    unsure = Stated(0.3)
    (without,) = corrected(["dinsoaur"], threshold=0.0, model=unsure)
    (told,) = corrected(["dinsoaur"], threshold=0.0, words=["dinosaur"], model=unsure)
    assert told.corrected == "dinosaur"
    of = lambda found: sum(edit.probability for edit in found.edits if edit.correction == "dinosaur")
    assert of(told) > of(without)


def test_clean_text_stays():
    text = "The cat sat on the house, from letter form."
    assert corrected([text], threshold=0.0)[0].corrected == text


def test_choices_are_the_candidates_of_words_whose_meaning_is_among_them():
    mender = corrector(Stated())
    text = "Teh cat recieve zzzz, on"
    spans = [(0, 3), (4, 7), (8, 15), (16, 20), (20, 21), (22, 24)]
    meant = ["The", "cat", "qqqqq", "zzzz", ",", None]
    found = list(mender.choices([Meant(text, spans, meant)], 2, mender.known(None)))
    assert found[0].meant > 0  # "The" beside "Teh"
    assert [one.meant for one in found[1:]] == [0] * (len(found) - 1)  # "recieve" has no candidate "qqqqq"
    assert all(one.features_KF.shape[1] == len(Weights().vector()) and len(one.features_KF) > 1 for one in found)


def test_a_fit_with_one_further_word_can_be_stored():
    text = "teh cat on teh house"
    spans = [(0, 3), (4, 7), (8, 10), (11, 14), (15, 20)]
    given = [Meant(text, spans, ["the", "cat", "on", "the", "house"])]
    frequent = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in string.ascii_lowercase]
    mender = corrector(Stated(), frequent=[*FREQUENT, *frequent])
    found = mender.fitted(given, 2, {"zebra": 1.0})
    assert found.share == 1 / (1 + len({*FREQUENT, *frequent}))
    assert Weighing.of(found.settings()) == found


def test_weights_of_the_users_words_serve_these_alone():
    """With as many words of the user's as the weights were fitted to, every word stays; with a few, hardly any does."""
    mender = corrector(Stated(), weighing=Weighing(told=Weights(same=500.0), share=0.9))
    many = ["".join(letters) for letters in itertools.product("uvwxy", repeat=3)]
    found = [mender.correct(["teh cat"], 1, 0.5, mender.known(words))[0] for words in (None, many, ["zz"])]
    assert [one.corrected for one in found] == ["the cat", "teh cat", "teh cat"]
    small = corrector(Stated(), weighing=Weighing(told=Weights(same=5.0), share=0.9))
    assert small.correct(["teh cat"], 1, 0.5, small.known(["zz"]))[0].corrected == "the cat"


def test_an_unlikely_spelling_stays_a_candidate():
    """A model that is sure of nonsense does not veto a known word; one that cannot be written is none."""
    mender = corrector(Stated(chance=1.0))
    (judged,) = mender.judged(["hosue"], 1, mender.known(["hose", "housekeepings"]))
    names = [one.word for one in judged.candidates]
    assert "hose" in names
    assert "housekeepings" not in names


BEHIND = {"a": "from", "the": "form", "my": "letter"}


class Guesses(Stated):
    """Predicts hidden words by the word on their left, and others as they stand."""

    def __call__(self, batch):
        tables = [*(bucket.chars_SPC[0] for bucket in batch.masked), *(chars_SUC[0] for chars_SUC in batch.chars)]
        words = [VOCAB.decode(row_C[1:]) for table_UC in tables for row_C in table_UC]
        self.at = [words[row] for row in batch.index_SBW[0].reshape(-1)]
        return super().__call__(batch)

    def _log_probs(self, bucket):
        found = super()._log_probs(bucket)
        for m, labels_C in enumerate(bucket.labels_SMC[0]):
            chars_C = bucket.chars_SPC[0, bucket.row_SM[0, m]]
            if labels_C.any() and chars_C[1] == MASK:
                ids = VOCAB.encode_word(BEHIND.get(self.at[bucket.position_SM[0, m] - 1], "see"))
                found[0, m] = math.log((1 - self.chance) / VOCAB.size)
                if len(ids) == np.count_nonzero(chars_C[1:]):
                    found[0, m, np.arange(len(ids)), ids] = math.log(self.chance)
        return found


def test_context_says_how_well_each_word_suits():
    """Its mean log-probability of a character; the words of other lengths are asked for by other masks."""
    ask, model = reader(Guesses(0.9)), Guesses(0.9)
    texts = ["see a frim", "x " * 60 + "my lettr and " + "x " * 60]
    doubts = [Doubt(0, 2, ("frim", "from", "firm", "forms")), Doubt(1, 61, ("lettr", "letter"))]
    found = list(ask.contexts(texts, doubts, 3))
    rare, likely = math.log(0.1 / VOCAB.size), math.log(0.9)
    want = [(3 * likely + rare) / 4, likely, (2 * likely + 2 * rare) / 4, rare]
    np.testing.assert_allclose(found[0], want, atol=1e-6)
    np.testing.assert_allclose(found[1], [rare, likely], atol=1e-6)
    together = list(reader(model).contexts(texts, doubts, 8))
    np.testing.assert_allclose(np.concatenate(together), np.concatenate(found), atol=1e-6)


def test_hidden_words_show_their_length_alone():
    """Also shorter ones than the word that stands, and in windows of 30 words that end with the text."""
    model = Guesses()
    words = [f"w{'x' * (n % 5)}" for n in range(40)]
    list(reader(model).contexts([" ".join([*words, "mistakken"])], [Doubt(0, 40, ("a", "the"))], 4))
    (batch,) = model.batches
    tables = [*(bucket.chars_SPC[0] for bucket in batch.masked), *(chars_SUC[0] for chars_SUC in batch.chars)]
    rows = [row_C for table_UC in tables for row_C in table_UC]
    read = [[VOCAB.decode(rows[n][rows[n] != 0][1:]) for n in index_W[1:31]] for index_W in batch.index_SBW[0][:2]]
    assert read == [[*words[11:], "[MASK]"], [*words[11:], "[MASK]" * 3]]
    assert batch.mask_SBW[0, :2].sum(axis=-1).tolist() == [32, 32]


def test_a_character_that_the_model_lacks_suits_nowhere():
    ask = reader(Guesses())
    (found,) = ask.contexts(["see a frim"], [Doubt(0, 2, ("fröm", "from"))], 4)
    near = (3 * math.log(Guesses().chance) + LEAST_CHAR) / 4
    np.testing.assert_allclose(found, [near, math.log(Guesses().chance)], atol=1e-6)


def test_one_unlikely_character_counts_for_so_much():
    assert mean_of(np.array([-1.0, -3.0, -400.0, -np.inf])) == (-4 + 2 * LEAST_CHAR) / 4


class Near(Proposer):
    """Finds one other word for each, so many nats less likely by the usual weights."""

    def __init__(self, nats):
        super().__init__(VOCAB)
        self.nats = nats

    def candidates(self, word, inside, log_probs_CV, known):
        zeros = (0.0,) * 9
        return [Candidate(word, (0.0, 0.0, *zeros)), Candidate("the", (0.0, -self.nats / Weights().prior, *zeros))]


@pytest.mark.parametrize(("nats", "calls"), [(DOUBTFUL - 0.1, 2), (DOUBTFUL + 0.1, 1)])
def test_a_word_is_in_doubt_if_another_is_nearly_as_likely(nats, calls):
    """The usual weights say so, whatever has been fitted."""
    model, fitted = Guesses(), Weights(prior=9.0, context=-1.0)
    mender = Corrector(reader(model), Near(nats), FREQUENT, Weighing(fitted, fitted), hides=True)
    mender.correct(["abcde"], 4, 0.0, mender.known(None))
    assert len(model.batches) == calls


def test_context_decides_where_a_word_is_in_doubt():
    texts = ["see a fom", "see the fom"]
    of = lambda **options: [one.corrected for one in corrected(texts, 0.0, model=Guesses(), **options)]
    assert of(hides=True) == ["see a from", "see the form"]
    blind = of(hides=False)
    assert blind[0].removeprefix("see a ") == blind[1].removeprefix("see the ")


def test_what_is_clear_is_read_once():
    model = Guesses()
    corrected(["The cat sat on the house"], model=model, hides=True)
    assert len(model.batches) == 1


def test_shapes_grow_and_stay():
    model = Stated()
    mender = corrector(model)
    for text in ("teh cat sat", "on the letter", "teh " * 3, "the house sat"):
        mender.correct([text], 2, 0.5, mender.known(None))
    assert len({tuple(bucket.chars_SPC.shape for bucket in batch.masked) for batch in model.batches}) == 1


def test_near_words_are_the_cheapest():
    near = WordsNear({"the": 100.0, "then": 10.0, "zebra": 5.0})
    assert near.near("teh")[0].word == "the"
    assert near.cost("teh", "the") < near.cost("teh", "zebra")
    assert WordsNear({}).near("teh") == ()
    assert WordsNear({}).prior("the") is None


def test_words_and_thresholds_are_checked():
    assert weighted({"The": 2, "the": 1}) == {"the": 3.0}
    assert counted_words(["\ufeffthe 3", "", "cat", "the 1"], "w") == {"the": 4.0, "cat": 1.0}
    for wrong in ("teh", {"a": 0}, {"a": -1.0}, {"a": True}, {"": 1}, ["a b"], [3]):
        with pytest.raises(ValueError, match="words: "):
            weighted(wrong)
    with pytest.raises(ValueError, match=r"w, line 2: expected a word, perhaps with a positive count, got 'a b'"):
        counted_words(["the 3", "a b"], "w")
    with pytest.raises(ValueError, match="w: there is no word in it"):
        counted_words(["", " "], "w")
    for threshold in (-0.1, 1.1, True, float("nan")):
        with pytest.raises(ValueError, match="expected a probability"):
            check_threshold(threshold)
