# SPDX-License-Identifier: Apache-2.0
"""docs/own-data.md: its commands, its file of settings and its program run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pens
from pens.command_line.main import main
from pens.data.own_sources import OwnPeers, load_data

PAGE = (Path(__file__).parent.parent / "docs" / "own-data.md").read_text(encoding="utf-8")
QUICK = ("rounds=1", "step1_rounds=1", "step1_samplings=1", "step1_epochs=1")


def pens_here(*arguments: str) -> None:
    """Run the command in this process."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code


@pytest.fixture
def _clinics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of the page, with more rows."""
    monkeypatch.chdir(tmp_path)
    head, _ = re.findall(r"```csv\n(.*?)\n", PAGE)
    Path("new.csv").write_text(re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL)[1])
    random = np.random.default_rng(0)
    rows = [
        f"{clinic},{age:.0f},{pressure:.1f},{'ill' if age > 50 else 'well'}"
        for clinic in ("north", "south", "east", "west")
        for age, pressure in zip(random.normal(50, 9, 30), random.normal(130, 9, 30), strict=True)
    ]
    Path("clinics.csv").write_text("\n".join([head, *rows]) + "\n")


@pytest.mark.usefixtures("_clinics")
def test_the_commands_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    commands, predict = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    show, run = commands.strip().splitlines()
    pens_here(*show.split()[1:])
    assert Path("data.png").stat().st_size > 5_000
    printed = capsys.readouterr().out
    for words in ("north", "ill", "Training samples of a peer: 18 to 18, median 18."):
        assert words in printed
    pens_here(*run.split()[1:], *QUICK[1:], "--device", "cpu", "--out", "run")
    printed = capsys.readouterr().out
    told = (
        "clinics.csv: 4 peers, 1 seed",
        "without oracle: the clusters are not known",
        "fitted to 4 peers: n_peers = 1",
    )
    for words in told:
        assert words in printed
    pens_here("report", "run", "--out", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "north" in page
    assert "clinics.csv" in page
    pens_here(*predict.split()[1:])
    head, *rows = Path("predictions.csv").read_text().splitlines()
    assert head == "row,prediction"
    assert [row.split(",")[0] for row in rows] == ["1", "2"]
    assert {row.split(",")[1] for row in rows} <= {"ill", "well"}
    check_predictions_of_rows_are_those_that_were_tested()


def check_predictions_of_rows_are_those_that_were_tested() -> None:
    """The split does not depend on whether inputs are standardised, so the rows of the tests are known."""
    result = pens.load("run")
    own = load_data(result.settings.replace({"standardise": "no"}))
    assert isinstance(own, OwnPeers)
    for run in result.runs:
        given = own.federation(run.seed)
        for peer, test in enumerate(given.tests):
            right = run.predict(peer, test.x) == np.array(given.class_names)[test.y]
            assert right.mean() == pytest.approx(run.accuracy[peer])


@pytest.mark.usefixtures("_clinics")
def test_the_file_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.toml").write_text(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])
    pens_here("run", "my.toml", "--methods", "local", "--set", *QUICK, "--device", "cpu", "--out", "run")
    assert "clinics.csv: 4 peers" in capsys.readouterr().out
    pens_here("run", "--resume", "run", "--device", "cpu")
    assert "clinics.csv: 4 peers" in capsys.readouterr().out


def test_the_program_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "docs/own-data.md", "exec"), names)
    result = names["result"]
    assert result.methods == ("local", "random", "pens")
    assert result.runs[0].peer_names[0] == "clinic-0"
    assert "own data, 6 peers" in capsys.readouterr().out


def test_data_that_are_not_there_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data", "nosuch"], ["data", "--plot", "x.png"]):
        with pytest.raises(SystemExit):
            main(words)
        capsys.readouterr()
