"""Tests noise: spans, words and tags follow it, its rate is as asked for, and it is the same on every machine."""

from __future__ import annotations

import collections
import hashlib
import itertools
import os
import pickle
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from charlm.text.noise import KINDS, Edit, Noise, NoisedText, NoisedWords, Noiser, collect, move_tags, single_edits
from charlm.text.noise.keyboards import keyboard_for
from charlm.text.noise.misspellings import Misspellings
from charlm.text.noise.words import CHAR2SUBWORD, one_edit

LISTED = Misspellings(
    {
        "because": ["becuase", "be cause", "cos"],
        "the": ["teh"],
        "a": ["an"],
        "don't": ["dont"],
        "नमस्ते": ["नमसते"],
    }.items()
)
CUTTING = ("spaces", "ocr", "mobile")  # they merge words, too
MERGING = ("hlm_drop", "hlm", *CUTTING)
VIPER = ("viper_dces", "viper_eces")
DELETING = ("drop", "hlm_drop", "hlm")
ZWJ, ACUTE = "\u200d", "\u0301"

WORDS = ["The", "because", "don't", "A", "a", "to", "straße", "İstanbul", "1984", "U.S.", "«", ",", "...", "coffee"]
WORDS += ["ＡＢ", "ǅ", "नमस्ते", "हिन्दी", "ภาษา", "ที่", "กำ", "中文字", "日", "ｶﾞ"]
WORDS += ["Привет", "שלום", "क्" + ZWJ + "ष", "e" + ACUTE, "a\u00adb", "\ud800x", "\U00020000", ACUTE + "x", ACUTE]
WORDS += ["\U00031350", "👩" + ZWJ + "💻", "👍🏽", "❤\ufe0f", "🇩🇪"]
SPACES = [" ", "  ", "\n", "\t", "\u00a0", "\u3000", ""]
RATES = st.sampled_from([0.05, 0.3, 0.5, 1.0])


def noises(kinds=tuple(KINDS)):
    """Noise of the kinds, at any rate they may have."""
    lengths, languages = st.sampled_from([1, 1, 2, 4]), st.sampled_from(["auto", "de", "th"])
    parts = st.tuples(st.sampled_from(kinds), RATES, lengths, languages)
    return parts.map(lambda p: Noise(p[0], min(p[1], KINDS[p[0]].highest), *p[2:]))


TEXTS = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SPACES)), max_size=12).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)
GIVEN_WORDS = st.lists(st.sampled_from([*WORDS, "New York", "a " + ACUTE, "1 000"]), max_size=12)
KEYS = st.one_of(st.integers(0, 10**6), st.text(max_size=3))


@st.composite
def spans(draw, text):
    """A span of a text."""
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    return start, end


@st.composite
def edited(draw):
    """A text with any edits there can be."""
    original = draw(st.text("abcdefgh", max_size=12))
    edits, position = [], 0
    while position <= len(original) and draw(st.booleans()):
        start = draw(st.integers(position, len(original)))
        end = draw(st.integers(start, min(start + 3, len(original))))
        edits.append(Edit(start, end, draw(st.text("XYZ", max_size=4))))
        position = end + draw(st.integers(0, 1))
    return NoisedText.of(original, edits)


def owners(noised):
    """Returns for every character now: the original ones it stands for, and where it was inserted if for none."""
    found, position = [], 0
    for start, end, text in [*noised.edits, Edit(len(noised.original), len(noised.original), "")]:
        found += [({place}, None) for place in range(position, start)]
        for index in range(len(text)):
            if start == end:
                found.append((set(), start))
            else:
                last = index == len(text) - 1
                found.append(
                    ({min(start + index, end - 1)} | (set(range(start + index, end)) if last else set()), None)
                )
        position = end
    return found


def expected_span(noised, start, end):
    """Returns the characters a moved span must hold, by the rules one by one; None if there are none."""
    inside = [
        index
        for index, (origins, inserted) in enumerate(owners(noised))
        if any(start <= origin < end for origin in origins) or (inserted is not None and start < inserted < end)
    ]
    assert inside == list(range(inside[0], inside[-1] + 1)) if inside else True
    return (inside[0], inside[-1] + 1) if inside else None


def check_moves(noised, span, other):
    """Checks all that `move` promises for two spans."""
    moved, moved_other = noised.move(*span), noised.move(*other)
    assert 0 <= moved[0] <= moved[1] <= len(noised.text)
    wanted = expected_span(noised, *span)
    assert moved == wanted if wanted else moved[0] == moved[1]
    if span[0] <= other[0] and span[1] <= other[1] and span[0] < span[1] and other[0] < other[1]:
        assert moved[0] <= moved_other[0]
        assert moved[1] <= moved_other[1]


def reversed_edits(noised):
    """Returns the noise that leads back."""
    shift, edits = 0, []
    for start, end, text in noised.edits:
        edits.append(Edit(start + shift, start + shift + len(text), noised.original[start:end]))
        shift += len(text) - (end - start)
    return NoisedText.of(noised.text, edits)


@settings(max_examples=600, deadline=None)
@given(edited(), st.data())
def test_spans_move_by_the_rules(noised, data):
    span, other = data.draw(spans(noised.original)), data.draw(spans(noised.original))
    check_moves(noised, span, other)
    check_moves(reversed_edits(noised), *(data.draw(spans(noised.text)) for _ in range(2)))
    back = data.draw(spans(noised.text))
    assert noised.back(*back) == reversed_edits(noised).move(*back)
    if expected_span(noised, *span) and any(owners(noised)[index][0] for index in range(*noised.move(*span))):
        start, end = noised.back(*noised.move(*span))
        assert max(start, span[0]) < min(end, span[1])


@settings(max_examples=500, deadline=None)
@given(noises(), TEXTS, KEYS, st.data())
def test_texts_keep_their_spans(noise, text, key, data):
    protected = data.draw(st.lists(spans(text), max_size=3))
    noised = Noiser(noise, 0, LISTED).text(text, key, protected)
    assert NoisedText.of(text, noised.edits) == noised
    assert all(noised.original[start:end] != new for start, end, new in noised.edits)
    check_moves(noised, data.draw(spans(text)), data.draw(spans(text)))
    for start, end in protected:
        moved = noised.move(start, end)
        if text[start:end].strip():
            assert noised.text[slice(*moved)].strip()
        assert (start == end) or moved[0] < moved[1]
        back = noised.back(*moved)
        assert start == end or max(back[0], start) < min(back[1], end)
        # Nothing is replaced by what was on the other side.
        assert not any(edit.text and edit.start < border < edit.end for edit in noised.edits for border in (start, end))


def units(text):
    """Returns the characters with their marks, by going through the text."""
    found = []
    for char in text:
        extends = unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf") or char in "ﾞﾟ🏻🏼🏽🏾🏿"
        # A joiner behind a letter, as in Indian scripts, joins no pictograph.
        pictures = found and all(unicodedata.category(x) in ("So", "Sm") for x in (char, found[-1][0]))
        joined = pictures and found[-1].endswith(ZWJ)
        if found and not found[-1].isspace() and (extends or joined):
            found[-1] += char
        else:
            found.append(char)
    return found


def stray_marks(text):
    """Returns the number of marks without a letter before them."""
    return sum(unicodedata.category(unit[0]) in ("Mn", "Mc", "Me", "Cf") for unit in units(text))


@settings(max_examples=350, deadline=None)
@given(noises(), TEXTS.map(lambda text: text.replace(" " + ACUTE, "")), KEYS)
@example(Noise("swap", 0.5), "क्\u200dष👩\u200d💻", 0)
def test_marks_stay_with_their_letters(noise, text, key):
    assume(noise.kind != "misspelling" and not stray_marks(text) and ZWJ + "🇩" not in text)
    noised = Noiser(noise, 0).text(text, key).text
    assert stray_marks(noised) == 0
    before, after = collections.Counter(units(text)), collections.Counter(units(noised))
    if noise.kind in ("drop", "hlm_drop", "swap", "spaces"):
        assert after - collections.Counter({" ": 99}) <= before
    if noise.kind in ("repeat", "hlm_repeat", "insert", "punctuation"):
        assert before <= after
    if noise.kind in ("keyboard", "case", "hlm_case", "toggle", "homoglyph", "leet", "fullwidth", "styled", *VIPER):
        assert len(units(noised)) == len(units(text))
        assert [unit[1:] for unit in units(noised)] == [unit[1:] for unit in units(text)]


@settings(max_examples=350, deadline=None)
@given(noises(), GIVEN_WORDS, KEYS, st.data())
def test_no_word_vanishes(noise, words, key, data):
    spaces = data.draw(st.one_of(st.booleans(), st.lists(st.booleans(), min_size=len(words), max_size=len(words))))
    noised = Noiser(noise, 0, LISTED).words(words, key, spaces)
    assert all(noised.words)
    assert len(noised.first) == len(words)
    assert len(noised.origin) == len(noised.words)
    assert list(noised.first) == sorted(noised.first)
    assert list(noised.origin) == sorted(noised.origin)
    if noise.kind not in MERGING:
        assert noised.first == noised.origin == tuple(range(len(words)))
    if noise.kind in ("hlm_drop", "hlm"):
        assert len(noised.words) <= len(words)
    each = [spaces] * len(words) if isinstance(spaces, bool) else spaces
    for index, gap in enumerate(each[:-1]):
        if not gap:  # these never merge
            assert noised.first[index] < noised.first[index + 1]
    if all(word.strip() and not stray_marks(word) for word in words) and noise.kind != "misspelling":
        # Controls of direction stand before what they turn, which may follow a space, as in "New York".
        marks = stray_marks if noise.kind != "bidi" else lambda word: 0
        assert all(word.strip() and not marks(word) for word in noised.words)


@settings(max_examples=350, deadline=None)
@given(
    noises(("drop", "repeat", "swap", "hlm_drop", "hlm", "spaces")),
    st.lists(st.integers(1, 7), max_size=12),
    KEYS,
    st.data(),
)
def test_words_know_their_origin(noise, lengths, key, data):
    """Every character tells which word it is from."""
    words = ["".join(chr(0x4E00 + 10 * index + place) for place in range(n)) for index, n in enumerate(lengths)]
    spaces = data.draw(st.booleans())
    noised = Noiser(noise, 0).words(words, key, spaces)
    sources = [[(ord(char) - 0x4E00) // 10 for char in word if char != " "] for word in noised.words]
    assert [source[0] for source in sources] == list(noised.origin)
    for index in range(len(words)):
        assert noised.first[index] == next(j for j, source in enumerate(sources) if index in source)
    if noise.kind not in DELETING:
        assert all(set(word) <= set("".join(noised.words)) for word in words)
    if noise.kind == "spaces":
        assert "".join(noised.words) == "".join(words)


@st.composite
def iob2(draw, length):
    """Valid tags."""
    tags = []
    for _ in range(length):
        inside = [tags[-1].replace("B-", "I-")] * 3 if tags and tags[-1] != "O" else []
        tags.append(draw(st.sampled_from(["O", "B-PER", "B-LOC", *inside])))
    return tags


def valid(tags):
    """Whether tags are IOB2."""
    before = "O"
    for tag in tags:
        if tag[0] == "I" and before not in ("B" + tag[1:], tag):
            return False
        before = tag
    return True


@settings(max_examples=350, deadline=None)
@given(noises(MERGING), GIVEN_WORDS, KEYS, st.data())
def test_tags_stay_valid(noise, words, key, data):
    tags = data.draw(iob2(len(words)))
    assert valid(tags)
    noised = Noiser(noise, 0).words(words, key)
    moved = move_tags(tags, noised)
    assert valid(moved)
    for index, place in enumerate(noised.first):
        if noised.origin[place] == index:
            assert moved[place][2:] == tags[index][2:]
    plain = [str(index) for index in range(len(words))]
    assert move_tags(plain, noised) == [str(origin) for origin in noised.origin]
    only_cut = Noiser(Noise("spaces", noise.rate), 0).words(words, key, spaces=False)
    assert collect(move_tags(tags, only_cut), only_cut) == tags
    assert collect(move_tags(plain, only_cut), only_cut) == plain


def test_tags_of_words_cut_and_merged():
    cut = NoisedWords.of(["Anna", "sings"], [Edit(2, 2, " "), Edit(7, 7, " ")])
    assert cut == NoisedWords(("An", "na", "si", "ngs"), (0, 2), (0, 0, 1, 1))
    assert move_tags(["B-PER", "O"], cut) == ["B-PER", "I-PER", "O", "O"]
    assert move_tags(["I-PER", "O"], cut) == ["I-PER", "I-PER", "O", "O"]  # no valid IOB2, and left so
    assert move_tags(["B-PER", "S-X"], cut) == ["B-PER", "B-PER", "S-X", "S-X"]  # not of this kind at all
    assert NoisedWords.of(["ab", "c"], [Edit(0, 0, " "), Edit(2, 2, " ")]).words == (" ab ", "c")  # no empty words
    merged = NoisedWords.of(["in", "New", "York", "City"], [Edit(2, 3, ""), Edit(4, 4, " ")])
    assert merged == NoisedWords(("inN", "ew", "York", "City"), (0, 0, 2, 3), (0, 1, 2, 3))
    assert move_tags(["O", "B-LOC", "I-LOC", "I-LOC"], merged) == ["O", "B-LOC", "I-LOC", "I-LOC"]
    swallowed = NoisedWords.of(["in", "New", "York", "City"], [Edit(2, 3, "")])
    assert swallowed == NoisedWords(("inNew", "York", "City"), (0, 0, 1, 2), (0, 2, 3))
    assert move_tags(["O", "B-LOC", "I-LOC", "I-LOC"], swallowed) == ["O", "B-LOC", "I-LOC"]
    assert move_tags(["B-PER", "B-LOC", "I-LOC", "O"], swallowed) == ["B-PER", "B-LOC", "O"]
    assert collect(["x", "y", "z"], swallowed) == ["x", "x", "y", "z"]
    with pytest.raises(ValueError, match="tags: expected one for each of the 4 original words, got 3"):
        move_tags(["O"] * 3, swallowed)
    with pytest.raises(ValueError, match="predictions: expected one for each of the 3 noised words, got 4"):
        collect(["O"] * 4, swallowed)


def everything(keys=range(20)):
    """Returns a digest of what all kinds do to some texts and words."""
    results = []
    for kind in KINDS:
        noiser = Noiser(Noise.parse(kind), 7, LISTED)
        for key in keys:
            text = "Because the Füße of नमस्ते don't 👍🏽 fit, she left."
            results.append((kind, key, noiser.text(text, key), noiser.words(text.split(), str(key))))
    return results


def test_the_same_in_any_order_and_process():
    assert sorted(everything(range(19, -1, -1)), key=repr) == sorted(everything(), key=repr)
    assert len({repr(result[2].text) for result in everything()}) > 200
    program = "import hashlib, test_noise; print(hashlib.sha256(repr(test_noise.everything()).encode()).hexdigest())"
    folder = os.path.dirname(__file__)
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(folder)), folder])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
        output = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
        assert output.strip() == hashlib.sha256(repr(everything()).encode()).hexdigest()


def test_noise_of_a_version_stays_what_it_is():
    """Changing these lines means that published results can no longer be repeated."""
    text = "The quick brown fox jumps over the lazy dog."
    results = [Noiser(Noise.parse(spec), 1).text(text, "key").text for spec in ("hlm:0.2", "charbert", "keyboard:0.3")]
    assert results == [
        "The qqqquick rownn ox jumps ov the lazy dog.",
        "The quivk borwn fox jums ovr the lqzy dog.",
        "The quixk brown fox jumps ofer tuf lazy wog.",
    ]


def test_seed_key_and_kind_decide_and_the_rate_adds():
    text = "abcdefghij" * 30
    drop = Noise.parse("drop:0.1")
    results = [Noiser(drop, seed).text(text, key).text for seed in (0, 1) for key in (1, "1", 2)]
    assert len(set(results)) == 6
    less, more = (set(Noiser(Noise("drop", rate), 0).text(text, 1).edits) for rate in (0.1, 0.2))
    assert less < more
    assert less != set(Noiser(Noise("hlm_drop", 0.1), 0).text(text, 1).edits)


def test_noisers_can_be_sent_to_other_processes():
    noiser = Noiser(Noise.parse("keyboard:0.5@fr"), 3, LISTED)
    assert pickle.loads(pickle.dumps(noiser)).text("Zut alors", 5) == noiser.text("Zut alors", 5)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(KINDS)), TEXTS, GIVEN_WORDS, KEYS)
def test_rate_zero_changes_nothing(kind, text, words, key):
    noiser = Noiser(Noise(kind, 0.0), 0, LISTED)
    assert noiser.text(text, key) == NoisedText(text, text, ())
    places = tuple(range(len(words)))
    assert noiser.words(words, key) == NoisedWords(tuple(words), places, places)
    assert noiser.word(text, np.random.default_rng(0)) == text


@settings(max_examples=100, deadline=None)
@given(noises(), st.floats(0, 0.5))
def test_specs_are_read_as_written(noise, rate):
    assert Noise.parse(str(noise)) == noise
    exact = Noise(noise.kind, rate, noise.min_length, noise.language)
    assert Noise.parse(str(exact)) == exact


def test_specs():
    assert Noise.parse("hlm:0.15") == Noise("hlm", 0.15, 1, "auto")
    assert Noise.parse("charbert") == Noise("charbert", 1.0, 4)
    assert Noise.parse("char2subword:0.25") == Noise("char2subword", 0.25, 5)
    assert Noise.parse("keyboard:0.1:4@de") == Noise("keyboard", 0.1, 4, "de")
    assert Noise.parse("keyboard@tr") == Noise("keyboard", 0.1, 1, "tr")
    assert str(Noise.parse("keyboard:0.1:4@de")) == "keyboard:0.1:4@de"
    assert str(Noise.parse("charbert")) == "charbert:1.0"
    assert str(Noise("charbert", 1, 1)) == "charbert:1.0:1"
    published = {"hlm_drop": 0.1, "hlm_repeat": 0.2, "hlm_case": 1.0}
    published |= {"charbert": 1.0, "charbert_nlm": 0.15, "charbert_inner": 0.15, "char2subword": 0.5}
    assert {kind: KINDS[kind].rate for kind in published} == published
    assert {kind for kind in KINDS if KINDS[kind].min_length > 1} == {"charbert", "char2subword"}
    assert all(kind.line and kind.share_of and kind.unit in ("character", "word") for kind in KINDS.values())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dorp:0.1", "'dorp' is not one of drop, .*; did you mean drop"),
        ("charbret", "did you mean charbert"),
        ("", "noise '' is not one of drop"),
        ("drop:1.1", "'drop': expected a rate from 0 to 1, got 1.1"),
        ("drop:-0.1", "expected a rate from 0 to 1"),
        ("drop:nan", "expected a rate from 0 to 1, got nan"),
        ("swap:0.6", "'swap': expected a rate from 0 to 0.5, got 0.6"),
        ("drop:much", "'drop:much': expected numbers in kind"),
        ("drop:", "expected numbers"),
        ("drop:0.1:2.5", "expected numbers"),
        ("drop:0.1:0", "expected a shortest word of 1 or more, got 0"),
        ("drop:0.1:2:3", "expected kind"),
        ("drop:0.1@", "expected kind"),
        ("keyboard@xx", "no keyboard for language 'xx': expected one of auto, de"),
    ],
)
def test_wrong_specs_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        Noise.parse(spec)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"'misspelling:0.1' needs a list of misspellings"):
        Noiser(Noise.parse("misspelling"), 0)
    noiser = Noiser(Noise.parse("drop"), 0)
    for span in [(-1, 2), (2, 1), (0, 5)]:
        with pytest.raises(ValueError, match=r"protected span .* <= 4"):
            noiser.text("text", 0, [span])
        with pytest.raises(ValueError, match=r"span .* <= 4"):
            noiser.text("text", 0).move(*span)
    with pytest.raises(ValueError, match="none empty"):
        noiser.words(["a", ""], 0)
    with pytest.raises(ValueError, match="sequence of words"):
        noiser.words("text", 0)
    with pytest.raises(ValueError, match="one for each of 2 words, got 1"):
        noiser.words(["a", "b"], 0, [True])
    for edits in ([Edit(2, 1, "")], [Edit(0, 5, "")], [Edit(1, 3, ""), Edit(2, 3, "")], [Edit(-1, 0, "")]):
        with pytest.raises(ValueError, match="<= start <= end <= 4"):
            NoisedText.of("text", edits)


def assert_share(found, total, share, what=""):
    """Checks a number of independent events against its expected share, within four standard deviations."""
    deviation = (total * share * (1 - share)) ** 0.5
    assert abs(found - total * share) <= 4 * deviation + 1e-9, (
        f"{what}: {found} of {total}, expected a share of {share}"
    )


def spread(share, choices):
    """Returns the probability of every result, where nested lists share theirs evenly."""
    if isinstance(choices, str):
        return collections.Counter({choices: share})
    return sum((spread(share / len(choices), choice) for choice in choices), collections.Counter())


def assert_outcomes(spec, word, expected):
    """Checks which words a noise makes of one, and how often each: the rarest is awaited eight times."""
    count = max(1000, round(8 / min(expected.values())))
    noiser, rng = Noiser(Noise.parse(spec), 0, LISTED), np.random.default_rng(2)
    found = collections.Counter(noiser.word(word, rng) for _ in range(count))
    assert set(found) == set(expected)
    for result, share in expected.items():
        assert_share(found[result], count, share, f"{word!r} to {result!r}")


def put(word, place, text, length=0):
    """Puts a text in the place of so many characters."""
    return word[:place] + text + word[place + length :]


def drops(word, places):
    return [put(word, place, "", 1) for place in places]


def swaps(word, places):
    return [put(word, place, word[place + 1] + word[place], 2) for place in places]


def inserts(word, places, letters):
    return [[put(word, place, letter) for letter in letters] for place in places]


def mistypes(word, places, lower=False):
    near = [keyboard_for("en").near(word[place].lower() if lower else word[place]) for place in places]
    return [[put(word, place, letter, 1) for letter in letters] for place, letters in zip(places, near, strict=True)]


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def test_charbert_attack():
    word = "FOrmat"
    expected = spread(0.25, drops(word, range(1, 5))) + spread(
        0.25, inserts(word, range(1, 6), LETTERS + LETTERS.upper())
    )
    expected += spread(0.25, swaps(word, range(1, 4))) + spread(0.25, mistypes(word, range(1, 5), lower=True))
    assert_outcomes("charbert", word, expected)
    assert_outcomes("charbert", "abc", {"abc": 1})
    lengths = [len(result) for result in Noiser(Noise.parse("charbert"), 0).words([word] * 12000, 0).words]
    assert_share(lengths.count(5), 12000, 0.25)
    assert_share(lengths.count(7), 12000, 0.25)
    dull = spread(0.25, drops("1334", [1, 2])) + spread(0.25, inserts("1334", [1, 2, 3], LETTERS + LETTERS.upper()))
    assert_outcomes("charbert", "1334", dull + spread(0.5, "1334"))  # equal ones swapped, digits mistyped
    same = Noiser(Noise.parse("charbert"), 0).text("aoob " * 200, 0)
    assert all(same.original[start:end] != text for start, end, text in same.edits)
    marked = "ae" + ACUTE + "b"
    expected = spread(0.25, "ab") + spread(0.25, inserts(marked, [1, 3], LETTERS + LETTERS.upper()))
    assert_outcomes("charbert:1:3", marked, expected + spread(0.25, marked) + spread(0.25, mistypes(marked, [1])))


def test_charbert_pretraining():
    word = "Word"
    assert_outcomes("charbert_nlm:1", word, spread(0.5, drops(word, range(4))) + spread(0.5, swaps(word, [1, 2])))
    inserted = "etainorshldcumfpgwyb,v.?WkAST10CIMBPx2H-'\"9EDNRFG)(zLU8O5j3Jq476KV;Y:%Q/][ZX$"
    assert_outcomes("charbert_nlm:1", "Xy", spread(1, inserts("Xy", [0, 1], inserted)))
    assert_outcomes("charbert_nlm:1", "да", spread(1, inserts("да", [0, 1], keyboard_for("uk").alphabets["д"])))
    assert_outcomes("charbert_nlm:1", "日本", spread(1, inserts("日本", [0, 1], "日本")))


def test_charbert_inside_of_words():
    any_case = LETTERS + LETTERS.upper()
    word = "Wordss"  # of two equal letters, none is swapped
    changes = [drops(word, range(1, 5)), inserts(word, range(1, 6), any_case), swaps(word, [1, 2, 3])]
    assert_outcomes("charbert_inner:1", word, spread(1, changes))
    changes = [drops("abbc", [1, 2]), inserts("abbc", [1, 2, 3], any_case)]
    assert_outcomes("charbert_inner:1", "abbc", spread(1, changes))
    assert_outcomes("charbert_inner:1", "日本", spread(1, inserts("日本", [1], "日本")))
    newer = "\U00031350\U00031351"  # Han since Unicode 15, which Python 3.11 does not know: letters all the same
    assert_outcomes("charbert_inner:1", newer, spread(1, inserts(newer, [1], newer)))
    assert_outcomes("charbert_nlm:1", newer[0], spread(1, inserts(newer[0], [0], newer[0])))
    assert_outcomes("charbert_inner:1", "a", {"a": 1})


def test_char2subword():
    word = "Tell4d"
    assert_outcomes("char2subword", "Tell", {"Tell": 1})
    operations = [
        mistypes(word, [0, 1, 2, 3, 5]),
        [put(word, place, word[place]) for place in range(6)],
        swaps(word, range(5)),
        drops(word, range(6)),
        [put(word, place, word[place].swapcase(), 1) for place in [0, 1, 2, 3, 5]],
        inserts(word, range(1, 6), "-.'_"),
    ]
    assert_outcomes("char2subword:1", word, spread(1, operations))
    assert_outcomes("char2subword:0.5", word, spread(0.5, operations) + spread(0.5, word))
    marked = "e" + ACUTE  # cannot be swapped or punctuated, and what would vanish stays
    assert_outcomes("char2subword:1:1", marked, spread(1, [mistypes(marked, [0]), marked * 2, marked, "E" + ACUTE]))
    rng = np.random.default_rng(0)
    assert not any(
        "a" + ACUTE in Noiser(Noise.parse("char2subword:1"), 0).word(ACUTE + "abcd", rng) for _ in range(500)
    )
    digits = [["113579", "133579", "135579", "135779", "135799"], swaps("13579", range(4)), drops("13579", range(5))]
    assert_outcomes("char2subword:1", "13579", spread(1, [*digits, inserts("13579", range(1, 5), "-.'_")]))


@pytest.mark.parametrize(
    ("spec", "word", "expected"),
    [
        ("toggle:1", "aBß1", ["ABß1", "abß1"]),
        ("toggle:1", "ßİ1", ["ßİ1"]),
        ("punctuation:1", "abc", inserts("abc", [1, 2], "-.'_")),
        ("punctuation:1", "a", ["a"]),
        ("misspelling:1", "Because", ["Becuase", "Cos"]),  # "Be cause" would be two words
        ("misspelling:1", "becaus", ["becaus"]),
        ("spaces:1", "abc", ["a bc", "ab c"]),
        ("hlm_repeat:1", "a", ["aa", "aaa", "aaaa"]),
        ("hlm:1", "a", ["a", "a", "a", "aa", "aaa", "aaaa"]),  # what would vanish stays
        ("hlm:1:2", "a", ["a"]),
        ("hlm_case:1", "a", ["a", "A"]),
        ("insert:1", "a", inserts("a", [1], LETTERS)),
        ("insert:1@tr", "Ş", ["Ş" + letter for letter in keyboard_for("tr").alphabets["Ş"]]),
        ("insert:1", "日", ["日日"]),
        ("keyboard:1", "Q" + ACUTE, ["A" + ACUTE, "S" + ACUTE, "W" + ACUTE]),
        ("keyboard:1@fr", "w", ["q", "s", "x"]),
        ("keyboard:1", "日1", ["日1"]),
        ("swap:0.5", "ab", ["ab", "ba"]),
        ("swap:0.5", "aa", ["aa"]),
        ("swap:0.5", "a" + ACUTE + "a", ["aa" + ACUTE, "a" + ACUTE + "a"]),
        ("swap:0.5", "किकु", ["किकु", "कुकि"]),
        ("swap:0.5", ACUTE + "ab", [ACUTE + "ab", ACUTE + "ba"]),
        ("swap:0.5:3", "ab", ["ab"]),
        ("drop:1", "ab", ["a", "b"]),
        ("drop:1", "...", ["..."]),
        ("hlm_drop:1", "..", ["."]),
        ("drop:0.5", "ab", ["ab", "a", "b", ["a", "b"]]),
        ("leet:1", "bAk", ["84k", "8@k"]),
        ("homoglyph:1", "d" + ACUTE + "m", [letter + ACUTE + "m" for letter in "ԁᑯꓒ"]),
        ("homoglyph:1", "пё", ["пё"]),
        ("homoglyph:1", "ԁ", ["d"]),
        ("viper_eces:1", "qX1ß", ["ʠẊ1ß"]),
        ("viper_eces:1", "Q" + ACUTE + "é", ["Q" + ACUTE + "é"]),
        ("viper_dces:1", "Q" + ACUTE + "1é", ["Ꝗ" + ACUTE + "1é", "Ꝙ" + ACUTE + "1é"]),
        ("viper_dces:1", "x", ["ẋ", "ẍ", "ᶍ"]),
        ("fullwidth:1", "aß1" + ACUTE, ["ａß１" + ACUTE]),
        ("zero_width:1", "a'b", [f"a{char}'b" for char in "​‌‍⁠﻿"]),
        ("zero_width:1", "a", ["a"]),
        ("bidi:1", "abb", ["a" + "bb"]),
        ("bidi:1", "abc", ["a⁦‮⁦c⁩⁦b⁩‬⁩"]),
        ("styled:1", "日本", ["日本"]),
        ("homophone:1", "Their", ["There"]),
        ("homophone:1", "WRITE", ["RIGHT", "RITE", "WRIGHT"]),
        ("homophone:1", "thier", ["thier"]),
        ("phonetic:1", "phone", ["fone"]),
        ("phonetic:1", "Knight", ["Night", "Knit"]),
        ("phonetic:1", "back", ["bak"]),
        ("phonetic:1", "WALKED", ["WALKT"]),
        ("phonetic:1", "wanted", ["wanted"]),
        ("phonetic:1", "Straße", ["Straße"]),
        ("phonetic:1", "nation", ["nashun"]),
        ("phonetic:1", "letter", ["leter"]),
        ("phonetic:1", "Xerox", ["Xeroks"]),
        ("ocr:1:2", "yy", ["y y"]),
        ("ocr:1", "y", ["y"]),
        ("mobile:1", "é", ["éé", "É"]),
        ("mobile:1", "É", ["ÉÉ"]),
        ("mobile:1", "ob1", [["oob1", "obb1", "ob11"], "o 1", "Ob1"]),
    ],
)
def test_outcomes(spec, word, expected):
    assert_outcomes(spec, word, spread(1, expected))


def test_certain_outcomes():
    def of(spec, text):
        return Noiser(Noise.parse(spec), 0, LISTED).text(text, 0).text

    text = "It isn't 'so', नमस्ते e" + ACUTE + "a!"
    assert of("drop:1", text) == "  '',  !"
    assert of("drop:1:3", text) == "It  'so',  e" + ACUTE + "a!"
    assert of("repeat:1:3", text) == "It iissnn''tt 'so', ननममस्स्तेते e" + ACUTE + "a!"
    assert of("repeat:1", "क्" + ZWJ + "ष") == ("क्" + ZWJ) * 2 + "षष"
    assert of("hlm_drop:1", text) == of("hlm_drop:1", ACUTE + "x") == of("drop:1", "\U00020000") == ""
    assert of("repeat:1", "a\U000e0100") == "a\U000e0100" * 2
    assert of("spaces:1", "a " + ACUTE + "b") == "a" + ACUTE + " b"  # the mark does not belong to the space
    assert of("hlm_drop:1:3", "It is.") == "Itis"
    assert of("case:1", "aB ßİıςſⅷǆ 1") == "Ab ßİIΣSⅧǄ 1"
    assert of("case:1:3", "aB abc") == "aB ABC"
    misspelled = {Noiser(Noise.parse("misspelling:1"), 0, LISTED).text("BECAUSE the-a", key).text for key in range(30)}
    assert misspelled == {"BECUASE teh-an", "BE CAUSE teh-an", "COS teh-an"}
    found = Noiser(Noise.parse("misspelling:1"), 0, LISTED).text("The don't", 0)
    assert found.edits == (Edit(1, 3, "eh"), Edit(7, 8, ""))  # no more than what differs
    assert {Noiser(Noise.parse("spaces:1"), 0).text("a \n b", key).text for key in range(9)} == {"ab"}
    joined = {Noiser(Noise.parse("spaces:1:2"), 0).text("ab c de", key).text for key in range(99)}
    assert joined == {"abc d e", "a b c d e"}
    assert Noiser(Noise.parse("hlm_drop:1"), 0).words(["ab", "c"], 0, [False, True]).words[1:] == ("c",)


def test_scanned_words_are_misread_as_the_engines_say():
    """Four in five hits misread what is there; the others split the word, where it cannot be joined with a next one."""
    expected = spread(0.8, ["mv", "knv", "rriv", "riiv", "rrrv"]) + spread(0.2, ["r nv", "rn v"])
    assert_outcomes("ocr:1", "rnv", expected)


def test_a_style_is_an_alphabet_that_normalisation_takes_back():
    rng, noiser = np.random.default_rng(0), Noiser(Noise("styled", 1), 0)
    word = LETTERS + LETTERS.upper() + "0123456789"
    styles = {noiser.word(word, rng) for _ in range(300)}
    assert len(styles) == 13
    for style in styles:
        assert unicodedata.normalize("NFKC", style) == word
        assert all(unicodedata.category(char) != "Cn" for char in style)


@pytest.mark.parametrize("kind", VIPER)
def test_letters_of_viper_are_named_after_what_they_replace(kind):
    """Every neighbour is a Latin letter that its name calls the same one, in the same case."""
    noiser = Noiser(Noise(kind, 1), 0)
    for letter in LETTERS + LETTERS.upper():
        found = set(noiser.text(" ".join(letter * 300), 0).text.split())
        if (kind, letter) == ("viper_eces", "Q"):
            assert found == {"Q"}
            continue
        assert letter not in found
        assert len(found) == 1 if kind == "viper_eces" else 2 <= len(found) <= 20
        for name in map(unicodedata.name, found):
            assert letter.upper() in name.split()
            assert ("CAPITAL" in name, "SMALL" in name) == (letter.isupper(), letter.islower())
    dces, eces = (set(Noiser(Noise(one, 1), 0).text("e " * 400, 0).text.split()) for one in VIPER)
    assert {"é", "ê", "ë"} | eces < dces


def test_marks_and_controls_leave_the_letters_in_place():
    rng = np.random.default_rng(0)
    for kind in ("combining", "zero_width"):
        noised = Noiser(Noise(kind, 1), 0).word("Wörter", rng)
        assert "".join(char for char in noised if char.isalpha()) == "Wörter"
        assert len(noised) == 11 + (kind == "combining")


def distinct_words(count):
    """Returns words of 5 to 8 letters, none twice in a word."""
    rng = np.random.default_rng(0)
    return ["".join(rng.permutation(list(LETTERS))[: rng.integers(5, 9)]) for _ in range(count)]


def respelled(words):
    """Returns every word as one rule of sound respells it."""
    return Noiser(Noise("phonetic", 1), 0).words(words, 0).words


@pytest.mark.parametrize("kind", KINDS)
def test_the_rate_is_the_share_edited(kind):
    words = distinct_words(3000)
    text = " ".join(words) + ", 12 ???"
    letters = sum(map(len, words))
    of_characters = {"swap": letters - len(words), "case": letters, "hlm_case": letters, "keyboard": letters}
    of_characters |= dict.fromkeys(["drop", "repeat", "insert"], letters + 2)
    of_characters |= dict.fromkeys(["hlm", "hlm_drop", "hlm_repeat"], len(text))
    of_characters |= dict.fromkeys(["combining", "fullwidth"], letters + 2) | dict.fromkeys(VIPER, letters)
    of_characters |= {"zero_width": letters - len(words) + 1, "leet": sum(char in "abegilostz" for char in text)}
    of_characters |= {"homoglyph": sum(char not in "km ,?" for char in text)}  # the table has 1 and 2, too
    of_words = dict.fromkeys(["charbert", "char2subword", "toggle"], len(words))
    of_words |= dict.fromkeys(["punctuation", "charbert_nlm", "charbert_inner"], len(words) + 1) | {
        "spaces": len(words) + 2
    }
    of_words |= {"ocr": len(words) + 2, "mobile": len(words) + 2, "styled": len(words) + 1, "bidi": len(words)}
    listed = Misspellings([(word, [word + "x"]) for word in words[:1500]])
    if kind == "phonetic":
        of_words[kind] = sum(one != word for word, one in zip(words, respelled(words), strict=True))
    if kind == "homophone":
        words = ["their", "right", "nonesuch"] * 1000
        text, of_words[kind] = " ".join(words), 2000
    total = {"misspelling": 1500, **of_characters, **of_words}[kind]
    for rate in (0.05, 0.2):
        noised = Noiser(Noise(kind, rate, KINDS[kind].min_length), 1, listed).text(text, 1)
        slips = sum(a.end < b.start or a.start == a.end for a, b in itertools.pairwise(noised.edits)) + 1
        found = slips if kind == "mobile" else len(noised.edits)  # a letter that became a space is two edits
        assert_share(found, total, rate / 2 if kind == "hlm_case" else rate)
    longest = {"styled": (8, 8), "bidi": (2, 11), "homophone": (5, 6)}.get(kind, (3, 4))
    assert all(end - start <= longest[0] and len(new) <= longest[1] for start, end, new in noised.edits)


@pytest.mark.parametrize(
    ("kind", "units"), [("drop", 3), ("hlm_repeat", 5), ("swap", 2), ("keyboard", 3), ("spaces", 1), ("toggle", 1)]
)
def test_small_texts_get_their_share(kind, units):
    """Nothing is rounded: at a rate of 0.1 most texts of a few letters stay as they are."""
    noiser = Noiser(Noise(kind, 0.1), 0)
    assert_share(sum(len(noiser.text("abc !", key).edits) for key in range(4000)), 4000 * units, 0.1)


@pytest.mark.parametrize("pair", ["ab", "bc", "cd", "de", "ef"])
def test_every_pair_is_swapped_alike(pair):
    noiser, rng = Noiser(Noise("swap", 0.4), 0), np.random.default_rng(3)
    assert_share(sum(pair[::-1] in noiser.word("abccdef", rng) for _ in range(4000)), 4000, 0.4)


def test_all_cased_characters_change_sometime():
    text = "Straße Ünal éa ΑΒΓ привет"
    texts = [Noiser(Noise.parse("hlm_case"), 0).text(text, key).text for key in range(60)]
    for index, char in enumerate(text):
        assert {noised[index] for noised in texts} == ({char} if char in "ß " else {char, char.swapcase()})


@pytest.mark.parametrize("kind", KINDS)
def test_short_words_are_left_alone(kind):
    listed = Misspellings([("abcde", ["abcd"])])
    long, short = (Noiser(Noise(kind, KINDS[kind].highest, length), 0, listed) for length in (5, 6))
    word = "their" if kind == "homophone" else "abcde"
    assert any(long.text(word, key).edits for key in range(9))
    assert not any(short.text(word, key).edits for key in range(9))
    assert not any(short.words([word] * 2, key, False).words != (word,) * 2 for key in range(9))


def test_given_spaces_are_dropped_at_the_rate():
    words = distinct_words(3000)
    for kind, rate in (("hlm_drop", 0.2), ("hlm", 0.4)):
        merged = len(words) - len(Noiser(Noise(kind, rate), 0).words(words, 1).words)
        assert_share(merged, len(words) - 1, 0.2)
    edits = Noiser(Noise("spaces", 0.5), 0).text(" ".join(words), 1).edits
    assert_share(sum(not edit.text for edit in edits), len(edits), 0.5)
    assert_share(len(Noiser(Noise("spaces", 0.2), 0).words(words, 1, False).words) - len(words), len(words), 0.2)


def test_single_edits():
    assert single_edits("cat", "en") == [
        *("ct", "cqt", "cst", "cwt", "cxt", "czt"),  # a dropped, then mistyped
        *("cdat", "cfat", "csat", "cvat", "cxat", "cqat", "cwat", "czat"),  # beside c, beside a
        *("caqt", "cast", "cawt", "caxt", "cazt", "caft", "cagt", "caht", "cart", "cayt"),  # beside a, beside t
    ]
    word = "Ärmel"
    found = single_edits(word, "de")
    assert len(found) == len(set(found))
    assert word not in found
    assert all(edit[0] == "Ä" and edit[-1] == "l" for edit in found)
    assert {"Ämel", "Ärml", "Ämrel", "Ärkel", "Ärmerl"} <= set(found)
    assert "Ärmle" not in found
    assert single_edits("abba")[:2] == ["aba", "afba"]  # the same drop once, and no swap of equal letters
    assert single_edits("abca")[2:3] == ["acba"]
    assert single_edits("a") == single_edits("") == single_edits("中文") == []
    assert single_edits("ක්ෂිකා") == ["ක්කා"]  # no keyboard, and the marks go with their letter
    with pytest.raises(ValueError, match="no keyboard"):
        single_edits("word", "xx")


def test_a_change_of_an_empty_word_leaves_it_so():
    rng = np.random.default_rng(0)
    assert [one_edit("", operation, rng) for operation in CHAR2SUBWORD] == [""] * len(CHAR2SUBWORD)
