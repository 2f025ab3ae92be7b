"""Where the small XRayEmb of the tests keeps its vocabularies."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def xray_folder(tmp_path_factory):
    """Where the vocabularies of `small_xrayemb_run.small_maker` lie."""
    return tmp_path_factory.getbasetemp() / "small_xrayemb"
