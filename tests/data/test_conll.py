"""Tests tagged sentences: formats, defects, spaces and offsets; written files can be read again."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from charlm.data.conll import read_tagged, write_conll
from charlm.data.examples import Skipped, TaggedExample, joined

CONLLU = """# newdoc id = d
# sent_id = s-1
# text = Im Haus cannot "go".
1-2	Im	_	_	_	_	_	_	_	_
1	In	in	ADP	IN	_	3	case	_	CSID=DE|Lang=de
2	dem	der	DET	DT	Case=Dat|Number=Sing	3	det	_	CSID=DE
3	Haus	Haus	NOUN	NN	Case=Dat	0	root	_	CSID=DE
4-5	cannot	_	_	_	_	_	_	_	SpaceAfter=No
4	can	can	AUX	MD	_	3	aux	_	CSID=EN
5	not	not	PART	RB	_	3	advmod	_	CSID=EN
5.1	do	do	VERB	VB	_	_	_	0:x	_
6	"go"	go	VERB	VB	_	3	x	_	CSID=EN|SpaceAfter=No
7	.	.	PUNCT	.	_	3	punct	_	_

1	10 000	10000	NUM	CD	_	0	root	_	_
2	#	#	SYM	NN	_	1	x	_	_

"""

UNER = """# sent_id = u-1
# text = 东京 、 大阪
1	东京	B-LOC	-	ann
2	、	O	-	-
3	大阪	B-LOC	-	ann

# sent_id = u-2
# text = 东京不是大阪
1	东京	B-LOC	-	ann
2	不是	O	-	-
3	大阪	B-LOC	-	ann
"""


def write(path, text):
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return str(path)


def read(tmp_path, text, name="a.conll", **kwargs):
    return read_tagged(write(tmp_path / name, text), **kwargs)


@pytest.mark.parametrize("name", ["a.txt", "a.conll.gz"])
def test_conll_2003(tmp_path, name):
    text = (
        "\ufeff-DOCSTART- -X- O O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n \t\r\n"
        "Peter NNP I-NP I-PER\r\n-DOCSTART- -X- O O\r\n# NN O O\r\n"
    )
    path = write(tmp_path / name, text)
    assert read_tagged(path) == [
        TaggedExample(f"{name}:3", f"{path}:3", ("EU", "rejects"), ("I-ORG", "O")),
        TaggedExample(f"{name}:6", f"{path}:6", ("Peter",), ("I-PER",)),
        TaggedExample(f"{name}:8", f"{path}:8", ("#",), ("O",)),
    ]
    assert [example.tags for example in read_tagged(path, tag=1)] == [("NNP", "VBZ"), ("NNP",), ("NN",)]
    assert [example.tags for example in read_tagged(path, tag="-2")] == [("I-NP", "I-VP"), ("I-NP",), ("O",)]
    assert read_tagged(path, as_iob2=True)[0].tags == ("B-ORG", "O")
    assert read_tagged(path, tag=None)[0] == TaggedExample(f"{name}:3", f"{path}:3", ("EU", "rejects"))


def test_only_tabs_and_spaces_part_columns(tmp_path):
    odd = ["a\u00a0b", "\u00a0", "\u200b", "\u2028", "\u0085", "\ufeff", "\u3000", "x\u001cy", "#", "#tag"]
    for separator in "\t ":
        text = "\n".join(f"{word}{separator}O" for word in odd)
        assert read(tmp_path, text)[0].words == tuple(odd)
    assert read(tmp_path, "10 000\tO\n two \tO\n")[0].words == ("10 000", " two ")
    assert read(tmp_path, "a\t O\nb\tB-X \n")[0].tags == ("O", "B-X"), "spaces around a tag are none of it"
    assert read(tmp_path, " a   b  O \nc d O\n")[0] == TaggedExample(
        "a.conll:1", str(tmp_path / "a.conll") + ":1", ("a", "c"), ("O", "O")
    )


@pytest.mark.parametrize("blank", ["", " ", "\t", " \t  ", "\r"])
def test_blank_lines_part_sentences(tmp_path, blank):
    found = read(tmp_path, f"{blank}\na\tO\n{blank}\n{blank}\nb\tO\nc\tO")
    assert [example.words for example in found] == [("a",), ("b", "c")]


def test_lines_that_end_in_carriage_returns_alone_are_refused(tmp_path):
    """They were one sentence of one word."""
    with pytest.raises(ValueError, match="one line, with carriage returns inside"):
        read(tmp_path, "I\tPRON\rsaw\tVERB\r\ra\tDET\r")


def test_hashes_are_words_unless_told_otherwise(tmp_path):
    text = "# O\n# id 1 domain=en\na B-X\n"
    with pytest.raises(ValueError, match=r"a\.conll:2: line has 4 columns; expected 2 as in the first line"):
        read(tmp_path, text)
    assert read(tmp_path, text, comments=True)[0].words == ("a",)
    assert read(tmp_path, "#\tO\n#\tO\n")[0].words == ("#", "#")
    assert read(tmp_path, "#1\tx\ty\tz\tO\n2\tx\tB-A\tz\tO\n")[0].words == ("#1", "2"), "five columns, but no comment"


def test_conllu(tmp_path):
    for name in ("a.conllu", "a.conllu.gz", "a.txt"):
        first, second = read(tmp_path, CONLLU, name)
        assert first.id == "s-1"
        assert first.place == f"{tmp_path / name}:5"
        assert first.words == ("In", "dem", "Haus", "can", "not", '"go"', ".")
        assert first.tags == ("ADP", "DET", "NOUN", "AUX", "PART", "VERB", "PUNCT")
        assert first.spaces == (True, True, True, False, False, False, True)
        assert second == TaggedExample(
            f"{name}:15", f"{tmp_path / name}:15", ("10 000", "#"), ("NUM", "SYM"), (True, True)
        )
    assert joined(first.words, first.spaces)[0] == 'In dem Haus cannot"go".'


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("xpos", "IN DT NN MD RB VB ."),
        ("misc:CSID", "DE DE DE EN EN EN _"),
        ("feats:Case", "_ Dat Dat _ _ _ _"),
        ("lemma", "in der Haus can not go ."),
        ("deprel", "case det root aux advmod x punct"),
        (2, "in der Haus can not go ."),
    ],
)
def test_conllu_columns(tmp_path, tag, expected):
    assert read(tmp_path, CONLLU, "a.conllu", tag=tag)[0].tags == tuple(expected.split())


def test_contraction_at_the_end_of_a_range_of_ids(tmp_path):
    lines = ["9-11\tdámelo\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No"]
    words = [(9, "dá"), (10, "me"), (11, "lo"), (12, ".")]
    lines += [f"{i}\t{word}\t_\tX\t_\t_\t0\t_\t_\t_" for i, word in words]
    assert read(tmp_path, "\n".join(lines))[0].spaces == (False, False, False, True)
    lines[0] = lines[0].replace("9-11", "8-11")
    assert read(tmp_path, "\n".join(lines))[0].spaces == (True,) * 4, "a range without its first word says nothing"


def test_uner(tmp_path):
    for name in ("a.iob2", "a.txt.gz"):
        first, second = read(tmp_path, UNER, name)
        assert first == TaggedExample(
            "u-1", f"{tmp_path / name}:3", ("东京", "、", "大阪"), ("B-LOC", "O", "B-LOC"), (True, True, True)
        )
        assert second.spaces == (False, False, True)
    unlike = UNER.replace("# text = 东京不是大阪", "# text = 东京不是上海")
    assert read(tmp_path, unlike)[1].spaces is None
    assert read(tmp_path, "a\tB-X\nb\tI-X\n", "b.iob2")[0].words == ("a", "b"), "an extension alone decides nothing"


@pytest.mark.parametrize(
    ("text", "kwargs", "message"),
    [
        ("a O\nb\n", {}, r"a\.conll:2: line has 1 columns; expected 2 as in the first line"),
        ("a O\nb c O\n", {}, r":2: line has 3 columns; expected 2"),
        ("a\nb\n", {}, r":1: line has 1 columns; expected at least 2 \(columns\)"),
        ("a O\nb\n", {"tag": 1}, r":2: line has 1 columns; expected at least 2"),
        ("a O\n", {"tag": -5}, r":1: line has 2 columns; expected at least 5"),
        ("a O\n", {"word": 2}, r":1: line has 2 columns; expected at least 3"),
        ("a\tO\n\tO\n", {}, r":2: empty word \(column 0\)"),
        ("a\tO\nb\t\n", {}, r":2: empty tag \(column -1\)"),
        ("a O\nb I-X\n", {"tags": ["O", "I-XY"]}, r":2: tag 'I-X'; expected one of O, I-XY; did you mean I-XY"),
        ("a B-A\nb X\n", {"scheme": "iob1"}, r":2: tag 'X'; expected O or a tag such as B-PER \(scheme iob1\)"),
        ("a O\n", {"tag": "upos"}, r"tag='upos' in the format columns: expected a number$"),
        (CONLLU, {"tag": "pos"}, r"expected a number, feats:KEY, misc:KEY or one of id, form, .*did you mean [ux]pos"),
        (CONLLU, {"tag": "upos:x"}, r"tag='upos:x' in the format conllu: expected"),
        (CONLLU, {"tag": "misc:CSDI"}, r"no word has the key 'CSDI' in column misc"),
        (CONLLU.replace("\t_\tCSID=EN\n", "\n"), {}, r":9: line has 8 columns; expected at least 10 \(conllu\)"),
        (CONLLU + "x\t" * 9 + "\n", {}, r":18: first column is 'x'; expected the number of a word \(conllu\)"),
        ("", {}, r"a\.conll: no sentences"),
        ("", {"tag": "upos"}, r"a\.conll: no sentences"),
        ("\n-DOCSTART- O\n\n", {}, r"a\.conll: no sentences"),
        ("a O\n", {"scheme": "bio"}, r"scheme='bio': expected one of auto, iob1"),
        ("a O\n", {"format": "conll"}, r"format='conll': expected one of auto, .*; did you mean conllu"),
        ("a O\n", {"broken": "fix"}, r"broken='fix': expected one of error, repair"),
    ],
)  # fmt: skip
def test_errors(tmp_path, text, kwargs, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, text, **kwargs)
    assert "\n" not in str(caught.value)


def test_broken_iob2(tmp_path):
    text = "a B-A\nb I-A\n\nc O\nd I-B\ne I-B\nf I-A\n\ng I-A\n"
    path = str(tmp_path / "a.conll")
    with pytest.raises(
        ValueError, match=r"a\.conll:5: tag 'I-B' after 'O' opens no entity in IOB2; expected 'B-B' \(broken="
    ):
        read(tmp_path, text)
    with pytest.raises(ValueError, match=r"a\.conll:1: tag 'I-B' after the beginning of the sentence opens"):
        read(tmp_path, "d I-B\n\na B-A\n")
    skipped = Skipped()
    found = read(tmp_path, text, broken="repair", skipped=skipped)
    assert [example.tags for example in found] == [("B-A", "I-A"), ("O", "B-B", "I-B", "B-A"), ("B-A",)]
    places = f"{path}:5, {path}:7, {path}:9"
    assert skipped.report() == [f"repaired 3 x I- that opens an entity, read as B-: {places}"]
    assert read(tmp_path, text, scheme="iob1")[1].tags == ("O", "I-B", "I-B", "I-A")
    assert read(tmp_path, text, scheme="none")[2].tags == ("I-A",)
    with pytest.raises(ValueError, match=r":1: tag 'I-A' after the beginning"):
        read(tmp_path, "a I-A\n", scheme="iob2")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A B-A I-B", "B-A I-A B-A B-B"),
        ("B-A E-A S-A O", "B-A I-A B-A O"),
        ("NOUN VERB NOUN X", "NOUN VERB NOUN X"),
    ],
)
def test_as_iob2(tmp_path, tags, expected):
    text = "".join(f"w {tag}\n" for tag in tags.split())
    assert read(tmp_path, text)[0].tags == tuple(tags.split())
    assert read(tmp_path, text, as_iob2=True)[0].tags == tuple(expected.split())


def test_predictions_with_offsets(tmp_path):
    path = tmp_path / "out.conll"
    examples = [
        TaggedExample("1", "a:1", ("Don", "'t", "go"), ("O", "O", "B-A"), (False, True, True)),
        TaggedExample("2", "a:5", ("#",)),
    ]
    assert write_conll(str(path), examples, [["O", "O", "O"], ["B-A"]], offsets=True) == 0
    assert path.read_text() == "Don 0 3 O O\n't 3 5 O O\ngo 6 8 B-A O\n\n# 0 1 _ B-A\n\n"
    assert [child.name for child in tmp_path.iterdir()] == ["out.conll"]


def test_a_word_with_a_space_makes_tabs(tmp_path):
    path = tmp_path / "out.conll"
    write_conll(str(path), [TaggedExample("1", "", ("10 000", "x"), ("O", "O"))], [["O", "O"]])
    assert path.read_text() == "10 000\tO\tO\nx\tO\tO\n\n"
    assert write_conll(str(path), [TaggedExample("1", "", ("10 000",), ("O",))], [["O"]], separator=" ") == 1
    assert path.read_text() == "10\ufffd000 O O\n\n"


def test_every_word_keeps_a_line(tmp_path):
    odd = ("", "a\tb", "a\nb", "a\r", "-X-", "-DOCSTART-", "\ud800", "\u2028", " ", "#", "1")
    path = str(tmp_path / "out.conll")
    example = TaggedExample("1", "", odd, ("O",) * len(odd))
    assert write_conll(path, [example], [["B-A"] * len(odd)]) == 7
    assert read_tagged(path)[0].words == (
        "\ufffd", "a\ufffdb", "a\ufffdb", "a\ufffd", "\ufffd-X-", "\ufffd-DOCSTART-", "?", "\u2028", " ", "#", "1",
    )  # fmt: skip


def test_predictions_of_wrong_lengths(tmp_path):
    path = str(tmp_path / "out.conll")
    examples = [TaggedExample("1", "in.conll:7", ("a", "b"), ("O", "O"))]
    with pytest.raises(ValueError, match=r"out\.conll: in\.conll:7: expected 2 predicted tags, one a word, got 1"):
        write_conll(path, examples, [["O"]])
    with pytest.raises(ValueError, match=r"out\.conll: expected tags of 1 sentences, got 2"):
        write_conll(path, examples, [["O", "O"], []])
    for tag in ("", "B\t", "B\n"):
        with pytest.raises(ValueError, match=r"in\.conll:7: tags 'O', .* do not fit in columns"):
            write_conll(path, examples, [["O", tag]])
    assert not list(tmp_path.iterdir()), "a file appears whole or not at all"


WORD = st.text(st.characters(exclude_characters="\t\n\r\0", exclude_categories=["Cs"]), min_size=1)
WORD = st.one_of(st.sampled_from(["#", "1", "1-2", "a b", "# sent_id = x", "\ufeff"]), WORD)
WORD = WORD.filter(lambda word: word not in ("-DOCSTART-", "-X-"))  # written otherwise, see above
TAG = st.sampled_from(["O", "B-A", "B-B", "B"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.tuples(WORD, TAG, TAG), min_size=1, max_size=6), min_size=1, max_size=4), st.booleans())
def test_written_sentences_read_back(tmp_path_factory, sentences, offsets):
    path = str(tmp_path_factory.mktemp("conll") / "out.txt")
    examples = [TaggedExample("", "", tuple(w for w, _, _ in s), tuple(gold for _, gold, _ in s)) for s in sentences]
    predicted = [[guess for _, _, guess in sentence] for sentence in sentences]
    write_conll(path, examples, predicted, offsets=offsets)
    found = read_tagged(path)
    assert [example.words for example in found] == [example.words for example in examples]
    assert [list(example.tags) for example in found] == predicted
    gold = read_tagged(path, tag=-2)
    assert [example.tags for example in gold] == [example.tags for example in examples]
    if offsets:
        starts = [example.tags for example in read_tagged(path, tag=1)]
        assert starts == [tuple(str(start) for start, _ in joined(example.words)[1]) for example in examples]


LINCE = """# sent_enum = 1
#hola	lang2	O
# sent_enum	other	O
@user	other	O
ne New York	ne	B-LOC

# sent_enum = 2

# sent_enum = 3
#	other	O
# sent_enum = 4
ok	lang1	O
"""


@pytest.mark.parametrize("comments", [None, True])
def test_lince_numbers_its_sentences_and_keeps_hashtags(tmp_path, comments):
    found = read(tmp_path, LINCE, comments=comments)
    assert [example.words for example in found] == [("#hola", "# sent_enum", "@user", "ne New York"), ("#",), ("ok",)]
    assert [example.tags for example in found] == [("O", "O", "O", "B-LOC"), ("O",), ("O",)]
    assert [example.id for example in found] == ["1", "3", "4"]
    assert read(tmp_path, LINCE, tag=1)[0].tags == ("lang2", "other", "other", "ne")


def test_lince_has_tokens_without_tags_in_its_test_files(tmp_path):
    text = "# sent_enum = 1\n#hola\nne New York\n\n# sent_enum = 2\nok\n"
    found = read(tmp_path, text, tag=None)
    assert [(example.words, example.tags) for example in found] == [(("#hola", "ne New York"), None), (("ok",), None)]
    with pytest.raises(ValueError, match=r"a\.conll:2: line has 1 columns; expected at least 2"):
        read(tmp_path, text)


def test_numbers_of_sentences_are_words_where_the_file_does_not_begin_with_one(tmp_path):
    found = read(tmp_path, "a\tO\n# sent_enum = 2\tO\n")
    assert [example.words for example in found] == [("a", "# sent_enum = 2")]


def test_a_correct_tag_with_a_space_makes_tabs_too(tmp_path):
    path = tmp_path / "found.conll"
    write_conll(str(path), [TaggedExample("1", "f", ("cat",), ("affix libfix",))], [["blend"]])
    assert path.read_text() == "cat\taffix libfix\tblend\n\n"
