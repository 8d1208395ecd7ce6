# SPDX-License-Identifier: Apache-2.0
"""Tested models take inputs as the peers have them: each peer's are standardised by its own recorded numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

import pens
from pens.data.own_sources import older_preparation
from pens.data.preparation import AS_GIVEN, Preparation
from pens.data.scenarios import Federation
from pens.errors import DataError, ResultError
from pens.inference.network_form import NetworkForm
from pens.inference.peer_models import PeerModels
from pens.settings.tree import Settings
from pens.storage.runlog import RunDir
from tests.experiment.test_experiment import tiny_run


def parts(*x: float) -> tuple[tuple[list[list[float]], list[float]], ...]:
    """The same inputs for training, validation and tests."""
    return (([[one] for one in x], [0.0] * len(x)),) * 3


def same() -> nn.Module:
    """A network of one feature that returns what it is given."""
    return nn.Linear(1, 1)


@pytest.fixture(scope="module")
def run() -> pens.RunResult:
    """Peer a trained on 1, 1, 3 and 3: mean 2, deviation 1. Peer b on 10, 10, 14 and 14: mean 12, deviation 2."""
    given = {"a": parts(1, 1, 3, 3), "b": parts(10, 10, 14, 14)}
    federation = Federation.of(given, numbers=True, standardise=True)
    made = tiny_run(methods="local").runs[0]
    return replace(
        made,
        score=np.zeros(2),
        clusters=None,
        cluster_names=(),
        agreement=None,
        peer_names=federation.peer_names,
        models=PeerModels({"weight": torch.ones(2, 1, 1), "bias": torch.zeros(2, 1)}, federation.peer_names),
        network=NetworkForm("", "own", (1,), 1, task="regression", factory=same),
        preparation=federation.preparation,
    )


def test_each_peers_inputs_are_standardised_by_its_own_numbers(run: pens.RunResult) -> None:
    assert run.predict("a", [[3.0], [2.0]]).tolist() == [1, 0]
    assert run.predict("b", [[14.0], [11.0]]).tolist() == [1, -0.5]
    assert run.scores("b", np.array([[14], [11]])).tolist() == [[1], [-0.5]]  # whole numbers, too
    assert run.predict("a", [[3.0]], standardised=True).tolist() == [3]
    result = pens.ExperimentResult(Settings(), (run,))
    assert result.predict("b", [[14.0]]).tolist() == [1]
    assert result.scores("b", [[14.0]], standardised=True).tolist() == [[14]]


def test_large_numbers_that_differ_little_keep_apart(run: pens.RunResult) -> None:
    """Their mean, 2^24 + 1, is no number of float32: training and prediction compute with it all the same."""
    data = {"a": parts(2**24, 2**24 + 2), "b": parts(0, 2)}
    federation = Federation.of(data, numbers=True, standardise=True)
    assert federation.peers[0].train.x.tolist() == [[-1], [1]]
    made = replace(run, preparation=federation.preparation)
    assert made.predict("a", [[2.0**24], [2.0**24 + 2]]).tolist() == [-1, 1]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_modules_and_programs_standardise_first_and_the_tensors_are_the_networks(
    run: pens.RunResult, tmp_path: Path
) -> None:
    x = torch.tensor([[14.0], [11.0]])
    assert run.module("b")(x).tolist() == [[1], [-0.5]]
    assert run.module("b", standardised=True)(x).tolist() == x.tolist()
    assert list(run.state_dict("b")) == ["weight", "bias"]
    program = torch.jit.load(run.export("b", tmp_path / "b.pt", format="torchscript"))  # type: ignore[no-untyped-call]
    assert program(x).tolist() == [[1], [-0.5]]
    bare = run.export("b", tmp_path / "bare.pt", format="torchscript", standardised=True)
    assert torch.jit.load(bare)(x).tolist() == x.tolist()  # type: ignore[no-untyped-call]
    assert set(torch.load(run.export("b", tmp_path / "tensors.pt"))) == {"weight", "bias"}


def test_images_have_one_shift_and_scale_for_all_their_numbers() -> None:
    images = np.zeros((4, 1, 2, 2), np.uint8)
    images[:, :, 0] = 4
    made = Federation.of({"a": ((images, [0, 1, 0, 1]),) * 3}, standardise=True)
    standard = made.preparation.standard_of(0)
    assert standard
    assert (standard.shift.tolist(), standard.scale.tolist()) == (2, 2)
    assert made.peers[0].train.x[0].tolist() == [[[1, 1], [-1, -1]]]


# --- tables -----------------------------------------------------------------------------------------------------------


def table(**columns: list[float]) -> pa.Table:
    return pa.table({**columns, "label": [0, 1] * 4})


def test_a_tables_features_are_found_by_their_names(run: pens.RunResult) -> None:
    x, y = [1.0, 3.0] * 4, [0.0, 1.0] * 4
    federation = Federation.of({"a": table(x=x, y=y), "b": table(x=x, y=y)})
    assert federation.preparation == Preparation(("x", "y"))
    first = replace(
        run,
        models=PeerModels({"weight": torch.tensor([[[1.0, 0.0]]] * 2), "bias": torch.zeros(2, 1)}, run.peer_names),
        network=NetworkForm("", "own", (2,), 1, task="regression", factory=lambda: nn.Linear(2, 1)),
        preparation=federation.preparation,
    )
    columns = {"y": [7, 8], "name": ["n", "m"], "x": [5, 6]}
    for frame in (pd.DataFrame(columns), pa.table(columns)):
        assert first.predict("a", frame).tolist() == [5, 6]
    with pytest.raises(DataError, match=r"no column 'x', on which .* \(1 of 2 features are missing\).* are y, name"):
        first.predict("a", pd.DataFrame(columns).drop(columns="x"))
    with pytest.raises(DataError, match=r"'x' is a feature, but holds 'old' in row 2: .* into numbers$"):
        first.predict("a", pd.DataFrame({**columns, "x": ["1", "old"]}))
    with pytest.raises(DataError, match="'y' is empty in row 1"):
        first.predict("a", pd.DataFrame({**columns, "y": [None, 1.0]}))


def test_tables_with_other_features_or_in_another_order_are_refused() -> None:
    x, y = [1.0, 3.0] * 4, [0.0, 1.0] * 4
    for other, words in (
        (table(y=y, x=x), "feature 1 of peer b is y, but that of peer a is x"),
        (table(x=x), "feature 2 of peer b is not there, but that of peer a is y"),
    ):
        with pytest.raises(DataError, match=words):
            Federation.of({"a": table(x=x, y=y), "b": other})
    mixed = Federation.of({"a": table(x=x, y=y), "b": (np.zeros((8, 2)), [0, 1] * 4)})
    assert mixed.preparation == AS_GIVEN


# --- records ----------------------------------------------------------------------------------------------------------


def test_the_numbers_are_on_record(run: pens.RunResult, tmp_path: Path) -> None:
    place = RunDir(tmp_path / "run")
    place.save(run)
    assert place.read().predict("b", [[14.0]], model=same).tolist() == [1]
    file = tmp_path / "run" / "result.json"
    stored = json.loads(file.read_text())
    assert stored["preparation"] == {"standards": [{"shift": [2.0], "scale": [1.0]}, {"shift": [12.0], "scale": [2.0]}]}
    del stored["preparation"]
    file.write_text(json.dumps(stored))
    assert place.read().preparation is None
    assert place.read().predict("b", [[14.0]], model=same).tolist() == [14]
    place.save(replace(run, preparation=AS_GIVEN))
    assert place.read().preparation == AS_GIVEN


@pytest.mark.parametrize(
    ("changes", "own_parts", "standardised"),
    [
        ({"source": "a.csv"}, (), True),
        ({"source": "a.PARQUET", "standardise": "yes"}, (), True),
        ({"source": "a.csv", "standardise": "no"}, (), False),
        ({"source": "a.npz"}, (), False),
        ({"source": "a.npz", "standardise": "yes"}, (), True),
        ({"source": "digits", "standardise": "yes"}, (), False),
        ({"source": "digits", "partition_file": "split.json", "standardise": "yes"}, (), True),
        ({"standardise": "yes"}, ("data",), True),
        ({}, ("data",), False),
    ],
)
def test_what_older_records_say(changes: dict[str, str], own_parts: tuple[str, ...], standardised: bool) -> None:
    expected = Preparation(lost=True) if standardised else None
    assert older_preparation(Settings().replace(changes), own_parts) == expected


def test_older_records_of_standardised_data_take_only_what_is_so_already(run: pens.RunResult, tmp_path: Path) -> None:
    assert run.preparation
    own = run.preparation.standards[1]
    older = replace(run, preparation=Preparation((), (None, own), lost=True))
    assert older.predict("b", [[14.0]]).tolist() == [1]
    for use in (
        lambda: older.predict("a", [[3.0]]),
        lambda: older.module("a"),
        lambda: older.export("a", tmp_path / "a.pt", format="torchscript"),
    ):
        with pytest.raises(ResultError, match=r"data of a were .* older version .* pass standardised=True, or compute"):
            use()
    assert older.predict("a", [[3.0]], standardised=True).tolist() == [3]
    assert older.export("a", tmp_path / "a.pt").is_file()
