"""Tests of finding the lines that are written in capitals."""

import pytest

from charlm.text.casing import quieted


@pytest.mark.parametrize(
    ("text", "quiet"),
    [
        ("I RECIEVE IT", "i recieve it"),
        ("THE U.S. ARMY IS 3.5 KM AWAY!", "the u.s. army is 3.5 km away!"),
        ("See it.\r\nI RECIEVE TEH LETTER!\nNASA, too", "See it.\r\ni recieve teh letter!\nNASA, too"),
        ("HEAD LINE\nTHIS IS A TEXT", "HEAD LINE\nthis is a text"),
        ("He met Mr. JOHN HOSUE LENNON. ok", "He met Mr. JOHN HOSUE LENNON. ok"),
        ("He lives in the U.S. NEW YORK CITY.", "He lives in the U.S. NEW YORK CITY."),
        ("USA, NATO", "USA, NATO"),
        ("THEY RECIEVE tEH LETTER", "THEY RECIEVE tEH LETTER"),
        ("ÜBER ALLE STRASSEN", "über alle strassen"),
        ("ΟΔΟΣ ΚΑΙ ΛΟΓΟΣ", "οδος και λογος"),
        ("我们 在 NASA 工作 很久", "我们 在 NASA 工作 很久"),
        ("NASA UND ESA היום", "NASA UND ESA היום"),
        ("İYİ BİR GÜN", "İyİ bİr gün"),
        ("ǅ IS A LETTER", "ǅ IS A LETTER"),
        ("1 2 3 - 4", "1 2 3 - 4"),
        ("", ""),
    ],
)
def test_lines_of_capitals_become_quiet_and_keep_their_places(text, quiet):
    assert quieted(text) == quiet
    assert len(quieted(text)) == len(text)
