"""Tests of finding the sentences that are written in capitals."""

import pytest

from charlm.text.casing import quieted


@pytest.mark.parametrize(
    ("text", "quiet"),
    [
        ("I RECIEVE TEH LETTER", "i recieve teh letter"),
        ("See it. I RECIEVE TEH LETTER! NASA, too", "See it. i recieve teh letter! NASA, too"),
        ("HEAD LINE\nTHIS IS A TEXT", "HEAD LINE\nthis is a text"),
        ("USA AND NATO", "usa and nato"),
        ("USA, NATO", "USA, NATO"),
        ("THEY RECIEVE tEH LETTER", "THEY RECIEVE tEH LETTER"),
        ("ÜBER ALLE STRASSEN", "über alle strassen"),
        ("我们都在这里", "我们都在这里"),
        ("İYİ BİR GÜN", "İyİ bİr gün"),
        ("", ""),
    ],
)
def test_sentences_of_capitals_become_quiet_and_keep_their_places(text, quiet):
    assert quieted(text) == quiet
    assert len(quieted(text)) == len(text)
