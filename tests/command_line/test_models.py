# SPDX-License-Identifier: Apache-2.0
"""`pens predict`: what it prints, and what it refuses. docs/own-data.md is run by tests/test_own_data_page.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pens.command_line.models import _as_csv, predict_command
from pens.errors import ResultError
from tests.experiment.test_experiment import tiny_run


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (np.array(["ill", "a, b"]), ["row,prediction", "1,ill", '2,"a, b"']),
        (np.array([0.1, -2], np.float32), ["row,prediction", "1,0.1", "2,-2.0"]),
        (np.array([[1, 0], [0, 1]]), ["row,prediction_1,prediction_2", "1,1,0", "2,0,1"]),
    ],
)
def test_predictions_are_a_table(found: Any, lines: list[str]) -> None:
    assert _as_csv(found).splitlines() == lines


def test_runs_whose_features_have_no_names_are_refused(tmp_path: Path) -> None:
    tiny_run(methods="local", out=tmp_path / "run")
    with pytest.raises(ResultError, match=r"does not name the features: its data came from no table, .* run\.predict"):
        predict_command(tmp_path / "run", "0", tmp_path / "new.csv")
