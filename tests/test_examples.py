# SPDX-License-Identifier: Apache-2.0
"""examples/: each is short, runs as it stands, and runs as real peers by the command of its row in the README."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from pens.command_line.main import main
from pens.network.federation.loopback import FederationRequest, make_federation
from pens.network.operating.assembly import load_holding
from pens.network.operating.peer_config import read_peer_config

EXAMPLES = Path(__file__).parent.parent / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))
FAST = ("regression", "tabular")
QUICK = ("rounds=1", "step1_rounds=1", "step1_samplings=1", "step1_epochs=1")
UP = dict(re.findall(r"^\| `(\w+)\.py` \| `pens up (.*?)` \|", README, re.MULTILINE))


def test_the_page_has_a_row_for_each_example() -> None:
    assert all(len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 40 for name in NAMES)
    assert set(re.findall(r"\[`(\w+)\.py`\]\(\w+\.py\)", README)) == set(NAMES)
    assert set(UP) == set(NAMES) - {"own_model_and_data"}  # which a partition shares out


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory that has the examples, into which they may write."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in sorted({*UP} - {*FAST}))]
)
def test_an_example_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *QUICK])
    runpy.run_path(f"examples/{name}.py", run_name="__main__")
    printed = capsys.readouterr().out
    assert "peers, 3 seeds" in printed
    assert re.search(r"^pens ", printed, re.MULTILINE)


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("name", sorted(set(UP) - {"image_folder"}))
def test_real_peers_take_the_data_of_an_example(name: str) -> None:
    """The last peer finds its data by its configuration alone."""
    said = dict(re.findall(r"--(data|model) (\S+)", UP[name]))
    places = {
        key: str(Path(said[flag]).absolute()) for key, flag in (("source", "data"), ("net", "model")) if flag in said
    }
    changes = {**places, **dict(re.findall(r"(\w+)=(\S+)", UP[name]))}
    federation, _ = make_federation(Path("up"), FederationRequest("own", changes, None, "pens", 0))
    holding = load_holding(read_peer_config(federation.members[-1].config))
    assert len(holding.data.train) > 10
    assert holding.test


@pytest.mark.slow
@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize("name", sorted(UP))
def test_an_example_runs_as_real_peers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "image_folder":
        runpy.run_path("examples/image_folder.py")["write_images"](Path("scanners"))
    with pytest.raises(SystemExit) as ended:
        main(["up", *shlex.split(UP[name]), "--minutes", "0.5", "--out", "up"])
    assert not ended.value.code
    assert "pens" in capsys.readouterr().out
