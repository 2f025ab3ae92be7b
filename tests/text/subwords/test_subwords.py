"""Tests subword tokenizers: equal to transformers on goldens, nothing lost, right offsets, checked files."""

import base64
import json
import pickle
import shutil
import subprocess
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.text.subwords import Subwords, SubwordTokenizer, Surface
from charlm.text.subwords.pieces import byte_of_glyph

GOLDEN = json.loads((Path(__file__).parents[2] / "goldens" / "subwords_small.json").read_text(encoding="utf-8"))
FAMILIES = sorted(GOLDEN["families"])
XLNET_SPECIAL = ["<pad>", "<cls>", "<sep>", "<mask>", "<unk>"]
# No angle or square brackets, so no special token is spelled out; scripts, marks, joiners, controls, spaces.
TEXTS = st.text(st.sampled_from("aeTkns'.,09 \t\n\u3000\u200d\x01\u00adéßñ\u0301ﬁＡ今東ياमा😀👍🏽İ#▁Ġ"), max_size=24)
WORDS = st.lists(st.text(st.sampled_from("aeTkns'.9 \x01\u200bé\u0301今म😀▁"), max_size=6), max_size=6)


def write_vocabulary(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in GOLDEN["vocabularies"][name].items():
        raw = content.encode() if isinstance(content, str) else base64.b64decode(content["base64"])
        (folder / file).write_bytes(raw)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("vocabularies")
    return {name: write_vocabulary(root / name, name) for name in GOLDEN["vocabularies"]}


@pytest.fixture(scope="session")
def loaded(folders) -> dict[str, SubwordTokenizer]:
    cases = GOLDEN["families"].items()
    return {name: SubwordTokenizer.load(folders[case["files"]], **case["arguments"]) for name, case in cases}


def as_golden(item: Subwords) -> list:
    special = [int(flag) for flag in item.special]
    offsets = [list(span) for span in item.offsets]
    return [list(item.ids), list(item.type_ids), special, offsets, list(item.words), list(item.sequences)]


def same(results: list, expected: list) -> None:
    for index, (result, golden) in enumerate(zip(results, expected, strict=True)):
        if golden is not None:
            assert (index, result) == (index, golden)


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_to_transformers(loaded, name):
    tokenizer, case = loaded[name], GOLDEN["families"][name]
    assert tokenizer.size == case["size"]
    encoded = tokenizer.encode_batch(GOLDEN["texts"])
    same([as_golden(item) for item in encoded], case["single"])
    same([tokenizer.decode(item.ids) for item in encoded], case["decoded"])
    same([list(item.ids) for item in encoded], case.get("ids_slow", [None] * len(encoded)))
    assert encoded == [tokenizer.encode(text) for text in GOLDEN["texts"]]
    firsts, seconds = zip(*GOLDEN["pairs"], strict=True)
    same([as_golden(item) for item in tokenizer.encode_batch(firsts, seconds)], case["pair"])
    lengths = GOLDEN["truncated_to"]
    shortened = [tokenizer.encode(*pair, max_length=length) for pair in GOLDEN["pairs"][:2] for length in lengths]
    same([as_golden(item) for item in shortened], case["truncated"])


@pytest.mark.parametrize("name", [name for name in FAMILIES if "words" in GOLDEN["families"][name]])
def test_words_equal_to_transformers(loaded, name):
    tokenizer, case = loaded[name], GOLDEN["families"][name]
    same([as_golden(tokenizer.encode_words(words)) for words in GOLDEN["words"]], case["words"])
    pair = GOLDEN["word_pair"]
    encoded = tokenizer.encode_words(pair["words"], pair["pair"], max_length=pair["max_length"])
    assert as_golden(encoded) == case["word_pair"]


def test_words_see_a_space_before_each_whatever_the_prefix(loaded):
    words = ["The", "running", "x"]
    assert loaded["roberta"].encode_words(words) == loaded["roberta-prefix"].encode_words(words)
    assert loaded["gpt2"].token(loaded["gpt2"].encode_words(words).ids[0]).startswith("Ġ")
    assert not loaded["gpt2"].token(loaded["gpt2"].encode("The").ids[0]).startswith("Ġ")


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(words=WORDS, pair=st.none() | WORDS)
def test_no_word_is_lost(loaded, name, words, pair):
    tokenizer = loaded[name]
    encoded = tokenizer.encode_words(words, pair)
    for side, given_words in enumerate([words, pair or []]):
        rows = [row for row, sequence in enumerate(encoded.sequences) if sequence == side]
        found = [encoded.words[row] for row in rows]
        assert sorted(set(found)) == list(range(len(given_words)))
        assert found == sorted(found)
        for row in rows:
            start, end = encoded.offsets[row]
            assert 0 <= start <= end <= len(given_words[encoded.words[row]])
    assert [row for row, word in enumerate(encoded.words) if word is None] == np.flatnonzero(encoded.special).tolist()


def test_word_without_a_piece_becomes_unknown_at_its_place(loaded):
    tokenizer = loaded["bert-cased"]
    encoded = tokenizer.encode_words(["The", "\x01\x02", "", "birds"], ["\x01", "a"])
    unknown = [row for row, index in enumerate(encoded.ids) if index == tokenizer.special.unk]
    assert [(encoded.sequences[row], encoded.words[row], encoded.offsets[row]) for row in unknown] == [
        (0, 1, (0, 2)),
        (0, 2, (0, 0)),
        (1, 0, (0, 1)),
    ]
    assert tokenizer.encode_words(["The", "\x01", "birds"], max_length=4).words[-2] == 1


def test_only_max_length_cuts_words_off(loaded):
    tokenizer = loaded["bert-cased"]
    words = ["unbelievable"] * 3
    whole, short = tokenizer.encode_words(words), tokenizer.encode_words(words, max_length=6)
    assert short.ids == (*whole.ids[:5], whole.ids[-1])
    assert set(short.words) < set(whole.words)


def without_controls(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char) not in ("Cc", "Cf"))


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_wordpiece_offsets_slice_the_original_text(loaded, text):
    tokenizer = loaded["bert-cased"]
    encoded = tokenizer.encode(text)
    for index, special, (start, end) in zip(encoded.ids, encoded.special, encoded.offsets, strict=True):
        if not special and index != tokenizer.special.unk:
            assert without_controls(text[start:end]) == tokenizer.surface(index).chars


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_uncased_offsets_point_into_the_original_text(loaded, text):
    tokenizer = loaded["bert-uncased"]
    encoded = tokenizer.encode(text)
    for index, special, (start, end) in zip(encoded.ids, encoded.special, encoded.offsets, strict=True):
        if not special and index != tokenizer.special.unk:
            plain = unicodedata.normalize("NFD", without_controls(text[start:end]).lower())
            assert tokenizer.surface(index).chars == "".join(c for c in plain if unicodedata.category(c) != "Mn")


@pytest.mark.parametrize("name", ["gpt2", "roberta"])
@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_bytes_lose_nothing(loaded, name, text):
    tokenizer = loaded[name]
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    content = b""
    for index, special, (start, end) in zip(encoded.ids, encoded.special, encoded.offsets, strict=True):
        if special:
            continue
        surface = tokenizer.surface(index)
        own = surface.chars.encode("utf-8", "surrogateescape")
        content += b" " * surface.starts_word + own
        if not surface.whole:  # every piece of a cut character has the offsets of the whole character
            assert own in text[start:end].encode()
        elif name == "gpt2":
            assert text[start:end] == " " * surface.starts_word + surface.chars
        else:
            assert text[start:end] == surface.chars.strip(" ")
    assert content == text.encode()


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(text=TEXTS, pair=st.none() | TEXTS, length=st.integers(4, 20))
def test_places_are_ordered_and_shortening_cuts_ends(loaded, name, text, pair, length):
    tokenizer = loaded[name]
    whole, short = tokenizer.encode(text, pair), tokenizer.encode(text, pair, max_length=length)
    assert len(short.ids) == min(len(whole.ids), length)
    for side, source in enumerate([text, pair or ""]):
        rows = [row for row, sequence in enumerate(whole.sequences) if sequence == side]
        spans = [whole.offsets[row] for row in rows]
        assert all(0 <= start <= end <= len(source) for start, end in spans)
        assert [start for start, _ in spans] == sorted(start for start, _ in spans)
        kept = [index for index, sequence in zip(short.ids, short.sequences, strict=True) if sequence == side]
        assert kept == [whole.ids[row] for row in rows][: len(kept)]
    specials = [index for index, special in zip(whole.ids, whole.special, strict=True) if special]
    assert specials == [index for index, special in zip(short.ids, short.special, strict=True) if special]
    assert len(specials) == tokenizer.special_count(pair is not None)


def test_pieces_of_one_character_share_its_offsets(loaded):
    encoded = loaded["gpt2"].encode("x👍🏽")
    assert encoded.offsets[0] == (0, 1)
    assert set(encoded.offsets[1:]) == {(1, 2), (2, 3)}
    assert len(encoded.ids) > 3


def test_lone_surrogates_are_read_as_replacement_characters(loaded):
    for tokenizer in loaded.values():
        assert tokenizer.encode("a\ud800 b", "\udfff") == tokenizer.encode("a\ufffd b", "\ufffd")
        assert tokenizer.encode_words(["a\ud800"]) == tokenizer.encode_words(["a\ufffd"])


def test_bytes_of_glyphs_are_those_of_the_library():
    from tokenizers import pre_tokenizers

    stage = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    table = byte_of_glyph()
    assert sorted(table.values()) == list(range(256))
    for char in map(chr, range(0x900)):
        assert bytes(table[glyph] for glyph in stage.pre_tokenize_str(char)[0][0]) == char.encode()


def test_surfaces(loaded):
    bert, roberta, xlnet = loaded["bert-cased"], loaded["roberta"], loaded["xlnet"]
    assert bert.surface(bert.id("##ing")) == Surface("ing", False)
    assert bert.surface(bert.id("a")) == Surface("a", True)
    assert roberta.surface(roberta.id("Ġa")) == Surface("a", True)
    assert roberta.surface(roberta.id("ing")) == Surface("ing", False)
    assert roberta.surface(roberta.id("Ġ")) == Surface("", True)
    assert roberta.surface(roberta.id("Ã")) == Surface("\udcc3", False, False)
    assert xlnet.surface(xlnet.id("▁a")) == Surface("a", True)
    assert xlnet.surface(xlnet.id("a")) == Surface("a", False)
    without = [bert.id("[unused0]"), bert.special.mask, bert.special.unk]
    assert [bert.surface(index) for index in without] == [None] * 3
    assert roberta.surface(roberta.id("madeupword0000")) is None
    assert xlnet.surface(xlnet.id("<eod>")) is None


def test_bare_continuation_mark_is_a_word(tmp_path, folders):
    vocab = (folders["bert-cased"] / "vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(vocab + "##\n", encoding="utf-8")
    tokenizer = SubwordTokenizer.load(tmp_path, lowercase=False)
    assert tokenizer.surface(tokenizer.id("##")) == Surface("##", True)


def test_surfaces_of_byte_fallback_and_of_an_unknown_kind(tmp_path):
    from tokenizers import Tokenizer, decoders, models

    vocab = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3, "<0xC3>": 4, "<0x41>": 5}
    backend = Tokenizer(models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = SubwordTokenizer.load(tmp_path)
    found = [tokenizer.surface(index) for index in (3, 4, 5)]
    assert found == [Surface("a", True), Surface("\udcc3", False, False), Surface("A", False)]
    backend.decoder = None
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = SubwordTokenizer.load(tmp_path)
    with pytest.raises(ValueError, match="BPE model: expected pieces that mark words"):
        tokenizer.surface(2)


def test_only_one_leading_space_marks_a_byte_level_word(folders, tmp_path):
    folder = shutil.copytree(folders["gpt2"], tmp_path / "spaces")
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    vocab |= {"ĠĠx": len(vocab)}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "added_tokens.json").write_text(json.dumps({"newword": len(vocab)}), encoding="utf-8")
    tokenizer = SubwordTokenizer.load(folder)
    assert tokenizer.surface(len(vocab) - 1) == Surface(" x", True)
    assert tokenizer.surface(len(vocab)) == Surface("newword", True)


def test_special_ids_and_tokens(loaded):
    bert, gpt2, xlnet = loaded["bert-cased"], loaded["gpt2"], loaded["xlnet"]
    assert [bert.token(index) for index in bert.special[:5]] == ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
    assert bert.special[5:] == (None, None)
    assert gpt2.special == (None, None, None, None, *[gpt2.id("<|endoftext|>")] * 3)
    assert [xlnet.token(index) for index in xlnet.special] == [*XLNET_SPECIAL, "<s>", "</s>"]
    with pytest.raises(KeyError, match="no such token"):
        bert.id("no such token")
    for wrong in (-1, bert.size):
        for call in (bert.token, bert.surface, lambda index: bert.decode([index])):
            with pytest.raises(ValueError, match=f"id {wrong}: expected an id of this vocabulary, 0 to"):
                call(wrong)


def test_fairseq_ids_are_shifted(loaded, folders):
    import sentencepiece

    tokenizer = loaded["xlm-roberta"]
    model = sentencepiece.SentencePieceProcessor(model_file=str(folders["xlm-roberta"] / "sentencepiece.bpe.model"))
    assert all(tokenizer.id(model.id_to_piece(index)) == index + 1 for index in range(3, len(model)))
    assert tokenizer.special == (1, 0, 2, len(model) + 1, 3, 0, 2)


def test_padding_is_on_the_side_of_the_family(loaded):
    for name, left, pad_type in (("bert-cased", False, 0), ("xlnet", True, 3)):
        tokenizer = loaded[name]
        long, short = tokenizer.encode_batch(["a word is here", "a"])
        padded = tokenizer.pad([long, short])
        count = len(long.ids) - len(short.ids)
        filling, rest = (slice(count), slice(count, None)) if left else (slice(-count, None), slice(-count))
        assert padded.ids_BW.dtype == padded.type_ids_BW.dtype == np.int32
        assert padded.ids_BW[0].tolist() == list(long.ids)
        assert padded.ids_BW[1, rest].tolist() == list(short.ids)
        assert set(padded.ids_BW[1, filling].tolist()) == {tokenizer.special.pad}
        assert set(padded.type_ids_BW[1, filling].tolist()) == {pad_type}
        assert padded.mask_BW.sum(axis=1).tolist() == [len(long.ids), len(short.ids)]
        assert padded.mask_BW[1, rest].all()
        with pytest.raises(ValueError, match="length=2: expected texts no longer"):
            tokenizer.pad([long], length=2)
    with pytest.raises(ValueError, match="pass pad_id="):
        loaded["gpt2"].pad([loaded["gpt2"].encode("a")], 5)
    assert loaded["gpt2"].pad([loaded["gpt2"].encode("a")], 3, pad_id=9).ids_BW[0, 1:].tolist() == [9, 9]


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_files_stand_alone(loaded, name, tmp_path):
    tokenizer = loaded[name]
    tokenizer.save(tmp_path / "deep" / "folder")
    for again in (SubwordTokenizer.load(tmp_path / "deep" / "folder"), pickle.loads(pickle.dumps(tokenizer))):
        assert again.digest() == tokenizer.digest()
        assert again.encode_batch(GOLDEN["texts"], max_length=9) == tokenizer.encode_batch(
            GOLDEN["texts"], max_length=9
        )
        assert [again.encode_words(words) for words in GOLDEN["words"]] == [
            tokenizer.encode_words(words) for words in GOLDEN["words"]
        ]
        for attribute in ("family", "special", "padding_side", "pad_type_id", "size"):
            assert getattr(again, attribute) == getattr(tokenizer, attribute)
        assert [again.surface(index) for index in range(again.size)] == [
            tokenizer.surface(index) for index in range(again.size)
        ]
    others = [other for other in FAMILIES if other != name]
    assert tokenizer.digest() not in {loaded[other].digest() for other in others}


def test_saved_configuration_is_that_of_transformers(loaded, tmp_path):
    for name, expected in {
        "bert-cased": {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "cls_token": "[CLS]"},
        "roberta-prefix": {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True, "eos_token": "</s>"},
        "xlnet": {"tokenizer_class": "XLNetTokenizer", "padding_side": "left", "pad_token_type_id": 3},
    }.items():
        loaded[name].save(tmp_path)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
        assert {key: config.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", ["bert-uncased", "roberta", "xlnet"])
def test_saved_tokenizer_gives_the_same_ids_for_any_text(loaded, name, tmp_path):
    loaded[name].save(tmp_path)
    again = SubwordTokenizer.load(tmp_path / "tokenizer.json")

    @settings(max_examples=100, deadline=None)
    @given(text=TEXTS)
    def check(text):
        assert again.encode(text) == loaded[name].encode(text)

    check()


def test_threads_may_ask_for_different_lengths(loaded):
    tokenizer, text = loaded["bert-cased"], "unbelievable stories need believable tellers " * 3
    lengths = list(range(3, 33)) * 4
    expected = [tokenizer.encode(text).ids[: length - 1] for length in lengths]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda length: tokenizer.encode(text, max_length=length).ids[:-1], lengths))
    assert found == expected
    assert len(tokenizer._views) <= 16


def test_settings_inside_a_tokenizer_json_do_not_pad_or_shorten(loaded, tmp_path):
    loaded["bert-cased"].save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    pad = {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]", "pad_to_multiple_of": None}
    content["padding"] = {"strategy": {"Fixed": 64}, "direction": "Right", **pad}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    text = "reading and writing"
    assert SubwordTokenizer.load(tmp_path).encode(text) == loaded["bert-cased"].encode(text)


def test_roles_of_a_lone_tokenizer_json_are_those_of_its_added_tokens(loaded, tmp_path):
    for name in ("bert-cased", "xlnet"):
        loaded[name].save(tmp_path)
        (tmp_path / "tokenizer_config.json").unlink()
        again = SubwordTokenizer.load(tmp_path)
        assert again.family is None
        assert again.special == loaded[name].special
        family = loaded[name].family
        assert SubwordTokenizer.load(tmp_path, family=family).padding_side == loaded[name].padding_side


def write_config(folder: Path, **content) -> Path:
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_casing_and_family_come_from_the_configuration(loaded, tmp_path):
    folder = write_config(write_vocabulary(tmp_path / "a", "bert-uncased"), do_lower_case=True)
    assert SubwordTokenizer.load(folder / "vocab.txt").digest() == loaded["bert-uncased"].digest()
    folder = write_config(folder, do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False)
    assert SubwordTokenizer.load(folder).digest() == loaded["bert-uncased-accents"].digest()
    folder = write_config(write_vocabulary(tmp_path / "b", "xlnet"), tokenizer_class="XLNetTokenizerFast")
    assert SubwordTokenizer.load(folder).digest() == loaded["xlnet"].digest()
    folder = write_vocabulary(tmp_path / "c", "albert")
    (folder / "config.json").write_text('{"model_type": "albert"}', encoding="utf-8")
    assert SubwordTokenizer.load(folder).digest() == loaded["albert"].digest()
    assert SubwordTokenizer.load(folder, lowercase=False).encode("Ab").ids != loaded["albert"].encode("Ab").ids
    folder = write_config(folder, keep_accents=True)
    assert SubwordTokenizer.load(folder).encode("á").ids != loaded["albert"].encode("á").ids
    assert SubwordTokenizer.load(folder).digest() == SubwordTokenizer.load(folder, strip_accents=False).digest()
    folder = write_config(write_vocabulary(tmp_path / "d", "roberta"), add_prefix_space=True, padding_side="left")
    assert SubwordTokenizer.load(folder).encode("a b") == loaded["roberta-prefix"].encode("a b")
    assert SubwordTokenizer.load(folder / "merges.txt").padding_side == "left"


def test_added_tokens_keep_their_ids(folders, tmp_path):
    folder = shutil.copytree(folders["bert-cased"], tmp_path / "added")
    size = SubwordTokenizer.load(folder, lowercase=False).size
    flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    entry = {"content": "[VECTOR]", "special": True, **flags}
    (folder / "added_tokens.json").write_text(json.dumps({"newword": size}), encoding="utf-8")
    write_config(folder, do_lower_case=False, added_tokens_decoder={str(size + 1): entry})
    tokenizer = SubwordTokenizer.load(folder)
    assert tokenizer.encode("newword[VECTOR]").ids[1:3] == (size, size + 1)
    assert tokenizer.surface(size) == Surface("newword", True)
    assert tokenizer.surface(size + 1) is None
    assert tokenizer.encode("newword newword", max_length=3).ids[1] == size
    write_config(folder, do_lower_case=False, added_tokens_decoder={str(size + 5): entry})
    with pytest.raises(ValueError, match=rf"vocab\.txt: '\[VECTOR\]' was added with id {size + 5}"):
        SubwordTokenizer.load(folder)


def test_vocabulary_lines_end_at_newlines_only(folders, tmp_path):
    vocab = (folders["bert-cased"] / "vocab.txt").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_bytes((vocab + "\u2028\n\x85x\nlast\n").encode())
    tokenizer = SubwordTokenizer.load(tmp_path, lowercase=False)
    assert tokenizer.id("last") == tokenizer.id("\u2028") + 2 == vocab.count("\n") + 2
    (tmp_path / "vocab.txt").write_bytes(vocab.replace("\n", "\r\n").encode())
    assert SubwordTokenizer.load(tmp_path, lowercase=False).id("##ing") == vocab.split("\n").index("##ing")


def changed(file: str, change) -> object:
    """Returns a damage: `change` of the text of a file, or its removal if None."""

    def damage(folder: Path) -> None:
        path = folder / file
        if change is None:
            path.unlink()
        else:
            path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")

    return damage


def added(file: str, content: str | bytes) -> object:
    raw = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / file).write_bytes(raw)


CASED, XLM = {"lowercase": False}, {"family": "xlm-roberta"}
BAD = {
    "nothing": ("bert-cased", changed("vocab.txt", None), CASED, r"expected a tokenizer .* found nothing"),
    "casing": ("bert-cased", added("x", ""), {}, r"vocab\.txt: expected do_lower_case .* found neither; \d+ of"),
    "no unk": ("bert-cased", changed("vocab.txt", lambda t: t.replace("[UNK]\n", "")), CASED, r"txt: .*\[UNK\]"),
    "twice": ("bert-cased", changed("vocab.txt", lambda t: t + "##ing\n"), CASED, r"txt: .* '##ing' 2 times"),
    "empty line": ("bert-cased", changed("vocab.txt", lambda t: "[PAD]\n\n" + t[6:]), CASED, r"txt: .*empty line 2"),
    "not utf-8": ("bert-cased", added("vocab.txt", b"[PAD]\n\xff\n"), CASED, r"vocab\.txt: expected UTF-8"),
    "json as txt": ("bert-cased", added("vocab.txt", '{"a": 1}'), CASED, r"vocab\.txt: expected one piece a line"),
    "contradiction": ("bert-cased", added("tokenizer_config.json", '{"do_lower_case": true}'), CASED, r"config\.json"),
    "config kind": ("bert-cased", added("tokenizer_config.json", '{"do_lower_case": "no"}'), {}, r"config\.json: do_l"),
    "config broken": ("bert-cased", added("tokenizer_config.json", "{"), CASED, r"tokenizer_config\.json: expected a"),
    "config role": ("bert-cased", added("tokenizer_config.json", '{"cls_token": "<c>"}'), CASED, r"tokens <c>, found"),
    "null": (
        "bert-cased",
        added("tokenizer_config.json", '{"sep_token": null}'),
        CASED,
        r"config\.json: expected sep_",
    ),
    "class": ("bert-cased", added("tokenizer_config.json", '{"tokenizer_class": "X"}'), CASED, r"found 'X'"),
    "padding": ("bert-cased", added("tokenizer_config.json", '{"padding_side": "up"}'), CASED, r"config\.json: .*'up'"),
    "added": ("bert-cased", added("added_tokens.json", '{"x": "1"}'), CASED, r"added_tokens\.json: expected ids"),
    "decoder": ("bert-cased", added("tokenizer_config.json", '{"added_tokens_decoder": [1]}'), CASED, r"config\.json"),
    "family": ("bert-cased", added("x", ""), {**CASED, "family": "brt"}, r"family='brt': expected bert, "),
    "other family": ("bert-cased", added("x", ""), {**CASED, "family": "gpt2"}, r"file of bert; found 'gpt2'"),
    "two families": ("bert-cased", added("config.json", '{"model_type": "gpt2"}'), {"family": "bert"}, r"'gpt2'"),
    "option": ("gpt2", added("x", ""), CASED, r"vocab\.json: lowercase cannot be chosen here: expected add_prefix"),
    "no merges": ("gpt2", changed("merges.txt", None), {}, r"merges\.txt: expected the merges .* found no such file"),
    "no vocab": ("gpt2", changed("vocab.json", None), {}, r"found merges\.txt"),
    "cut json": ("gpt2", changed("vocab.json", lambda t: t[:500]), {}, r"vocab\.json: expected a UTF-8 JSON object"),
    "list": ("gpt2", added("vocab.json", "[1]"), {}, r"vocab\.json: expected a JSON object, found list"),
    "empty": ("gpt2", added("vocab.json", "{}"), {"family": "gpt2"}, r"vocab\.json: expected pieces and ids, found an"),
    "key twice": (
        "gpt2",
        changed("vocab.json", lambda t: '{"!": 999,' + t[1:]),
        {},
        r"vocab\.json: .*'!' is there twi",
    ),
    "id twice": ("gpt2", changed("vocab.json", lambda t: '{"~~": 0,' + t[1:]), {}, r"vocab\.json: .* 0 for '~~' and"),
    "id kind": ("gpt2", changed("vocab.json", lambda t: '{"~~": "0",' + t[1:]), {}, r"vocab\.json: .*'~~': 0"),
    "no end": (
        "gpt2",
        changed("vocab.json", lambda t: t.replace("<|endoftext|>", "x~")),
        {},
        r"<\|endoftext\|>, found",
    ),
    "merge of one": (
        "gpt2",
        changed("merges.txt", lambda t: t + "abc\n"),
        {},
        r"merges\.txt, line \d+: expected two pieces, found 'abc'",
    ),
    "strange merge": ("gpt2", changed("merges.txt", lambda t: t + "a ~~\n"), {}, r"merges\.txt, line \d+: .*'~~'"),
    "empty merges": ("gpt2", added("merges.txt", "#version: 0.2\n"), {}, r"merges\.txt: expected merges, found none"),
    "no family": ("xlnet", added("x", ""), {}, r"spiece\.model: .*xlm-roberta, albert, xlnet; .*state family="),
    "two models": ("xlnet", added("b.model", b"x"), {}, r"one \*\.model, found b\.model, spiece\.model"),
    "no model": ("xlnet", added("spiece.model", b"\x08\x01hello"), XLM, r"spiece\.model: expected a SentencePiece"),
    "empty model": ("xlnet", added("spiece.model", b""), XLM, r"spiece\.model: .*found an empty file"),
    "other model": ("albert", added("x", ""), XLM, r"spiece\.model: expected <unk>, <s>, </s> first"),
    "lacks": ("xlm-roberta", added("x", ""), {"family": "xlnet"}, r"tokens <cls>, <mask>, <pad>, <sep>, found none"),
    "no tokenizer": ("gpt2", added("tokenizer.json", "{}"), {}, r"tokenizer\.json: expected a tokenizer\.json: Model"),
    "cut tokenizer": ("gpt2", added("tokenizer.json", '{"version"'), {}, r"tokenizer\.json: expected a UTF-8 JSON obj"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_end_in_one_line_that_names_them(tmp_path, case):
    name, damage, arguments, message = BAD[case]
    folder = write_vocabulary(tmp_path / "bad", name)
    SubwordTokenizer.load(folder, **GOLDEN["families"][name]["arguments"])  # it is the damage that is reported
    damage(folder)
    with pytest.raises(ValueError, match=message) as error:
        SubwordTokenizer.load(folder, **arguments)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value) or case == "family"


def test_bad_models_of_other_kinds(tmp_path):
    import sentencepiece

    text = tmp_path / "text.txt"
    text.write_text("a few words of a small text\n" * 20, encoding="utf-8")
    options = {"input": str(text), "vocab_size": 24, "hard_vocab_limit": False, "minloglevel": 2}
    for number, (more, message) in enumerate(
        [
            ({"model_type": "bpe"}, "expected a unigram model, found bpe"),
            ({"model_type": "unigram", "byte_fallback": True, "vocab_size": 290}, "without byte_fallback"),
            ({"model_type": "unigram", "add_dummy_prefix": False}, "add_dummy_prefix=False"),
        ]
    ):
        prefix = tmp_path / f"m{number}"
        sentencepiece.SentencePieceTrainer.train(model_prefix=str(prefix), **{**options, **more})
        with pytest.raises(ValueError, match=rf"m{number}\.model: .*{message}"):
            SubwordTokenizer.load(f"{prefix}.model", family="xlm-roberta")


def test_contradicting_or_missing_paths(loaded, tmp_path):
    with pytest.raises(ValueError, match=r"bert-base-cased: no such file or folder; .* never downloaded"):
        SubwordTokenizer.load("bert-base-cased")
    (tmp_path / "weights.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"weights\.bin: expected a tokenizer file .* found '\.bin'"):
        SubwordTokenizer.load(tmp_path / "weights.bin")
    loaded["bert-cased"].save(tmp_path)
    with pytest.raises(ValueError, match=r"tokenizer\.json: lowercase cannot be chosen here"):
        SubwordTokenizer.load(tmp_path, lowercase=False)
    write_config(tmp_path, do_lower_case=True)
    with pytest.raises(ValueError, match=r"tokenizer\.json has lowercase=False, .*tokenizer_config\.json"):
        SubwordTokenizer.load(tmp_path)
    write_config(tmp_path, cls_token="<c>")
    with pytest.raises(ValueError, match=r"tokenizer\.json: expected '<c>' \(cls_token\)"):
        SubwordTokenizer.load(tmp_path)


def test_wrong_arguments(loaded):
    bert = loaded["bert-cased"]
    for call, message in [
        (lambda: bert.encode(["a", "b"]), "expected texts .* found list; split words go to encode_words"),
        (lambda: bert.encode_batch("text"), "expected a list, found str"),
        (lambda: bert.encode_words("text"), "expected a list, found str"),
        (lambda: bert.encode_batch(["a"], ["b", "c"]), "pairs: expected 1, one for each text, found 2"),
        (lambda: bert.encode("a", max_length=1), "max_length=1: expected a whole number of at least 2"),
        (lambda: bert.encode("a", "b", max_length=2), "at least 3"),
        (lambda: bert.encode("a", max_length=2.5), "max_length=2.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert bert.encode("words", max_length=2).ids == (bert.special.cls, bert.special.sep)
    assert loaded["gpt2"].encode("words", max_length=1).ids == loaded["gpt2"].encode("words").ids[:1]


def test_word_without_a_piece_needs_an_unknown_token(loaded, tmp_path):
    loaded["gpt2"].save(tmp_path)
    write_config(tmp_path, tokenizer_class="GPT2Tokenizer", unk_token=None)
    with pytest.raises(ValueError, match="word '' has no piece"):
        SubwordTokenizer.load(tmp_path).encode_words(["a", ""])


def test_nothing_heavy_is_imported():
    code = "import charlm.text.subwords, sys; print({'jax', 'tokenizers', 'sentencepiece'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
