"""Tests the table of defences with a recogniser: what may follow its name, and mistakes in one line."""

from __future__ import annotations

import pytest

from charlm.robustness.settings import ReportSettings
from charlm.text.defences import parsed
from charlm.wordrec.defences import KNOWN, Recognisers, read_recognisers


def test_a_recogniser_has_a_folder_and_a_backoff(tmp_path):
    folder, other = tmp_path / "runs", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    assert read_recognisers(f"{folder}") == Recognisers(str(folder))
    assert read_recognisers(f"{folder},neutral=a") == Recognisers(str(folder), neutral="a")
    assert read_recognisers(f"{folder},background={other}") == Recognisers(str(folder), background=str(other))
    assert parsed(f"nfkc+wordrec:{folder},neutral=a", KNOWN) == ("nfkc", f"wordrec:{folder},neutral=a")
    (plus := tmp_path / "a+tiny").mkdir()
    assert parsed(f"nfkc+wordrec:{plus}+symspell", KNOWN) == ("nfkc", f"wordrec:{plus}", "symspell")
    both = f"wordrec:{folder}+wordrec:{other}"
    assert ReportSettings(("m",), ("d",), "o", defence=(both,)).defence == (both,)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("wordrec", r"expected wordrec:FOLDER\[,neutral=WORD \| ,background=FOLDER\], got 'wordrec'"),
        ("wordrec:", "got 'wordrec:'"),
        ("wordrec:/none", "there is no folder '/none'"),
        ("wordrec:.,background=/none", "there is no folder '/none'"),
        ("wordrec:.,neutrl=a", r"got 'neutrl=a'; did you mean neutral\?"),
        ("wordrec:.,neutral=", "got 'neutral='"),
        ("wordrec:.,neutral=a b", "got 'neutral=a b'"),
        ("wordrec:.,neutral=a,background=.", "neutral or background, one of them"),
        ("wordrec:.,neutral=a,neutral=b", "one of them and once"),
        ("wordrec:.+wordrec:.", "a defence is named twice"),
        ("nfkc:runs", "expected nfkc, got 'nfkc:runs'"),
        ("wordrek:.", r"'wordrek' is not one of .*; did you mean wordrec\?"),
    ],
)
def test_wrong_specs_are_named(spec, message):
    with pytest.raises(ValueError, match=f"^--defence={spec[:4]}.*{message}"):
        parsed(spec, KNOWN)
