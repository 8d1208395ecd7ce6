# SPDX-License-Identifier: Apache-2.0
"""`pens compare` and `pens tune`, as a user types them, with real runs in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pens.command_line.main import main
from pens.comparing.file import read_comparison
from pens.comparing.kept import load, to_json
from pens.comparing.results import findings
from pens.comparing.scenes import scenes_of
from pens.errors import Interrupted
from pens.planning.plan import Means
from pens.planning.runs import RunPlan
from pens.planning.shared_data import SharedData
from pens.planning.store import RunStore
from tests.comparing.files import CLINICS, HEAD, written
from tests.reproduce.test_run import Diary

FILE = f"""
methods = ["random", "pens", "oracle"]
seeds = 1
{HEAD}
[method.pens]
lr = 0.002
[scenarios.one]
[scenarios.two]
[scenarios.two.method.random]
lr = 0.002
[scenarios.skew]
partition = "dirichlet"
methods = ["random", "oracle"]
[tuning]
trials = 2
"""


def pens(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    """Run a command here and return what it printed, both streams."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert end.value.code == code, printed.out + printed.err
    return printed.out + printed.err


def plan_of(folder: Path, name: str, data: SharedData) -> RunPlan:
    scenes = scenes_of(read_comparison(folder / "mine.toml"), data)
    wanted = [each for scene in scenes for each in scene.wanted()]
    plan = RunPlan(wanted, RunStore(folder / name, "compare"), Means("cpu"), data)
    plan.prepare()
    return plan


def test_a_stopped_comparison_goes_on_to_the_same_findings_and_shares_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = written(tmp_path, FILE), SharedData()
    with pytest.raises(Interrupted):
        plan_of(tmp_path, "broken", data).run(Diary(stop_at=3))
    diary = Diary()
    plan_of(tmp_path, "broken", data).run(diary)
    ran = [(label, method) for label, method, _ in diary.ran]
    assert ran.count(("two", "random")) == 1  # with settings of its own
    assert ("two", "oracle") not in ran  # shared with the first scenario, as pens is
    assert ("two", "pens") not in ran
    assert ran.count(("skew", "random")) == 1
    printed = pens(capsys, "compare", path, "--out", tmp_path / "whole", "--device", "cpu")
    assert "5 runs in all, each counted once; 0 complete, 5 to run" in printed
    assert "skew: left out oracle, because its clusters are not known." in printed
    file = read_comparison(path)
    store = plan_of(tmp_path, "broken", data).store
    broken, whole = to_json(findings(file, scenes_of(file, data), store)), to_json(load(tmp_path / "whole"))
    for one, other in zip(broken["scenarios"], whole["scenarios"], strict=True):
        assert [each["values"] for each in one["methods"]] == [each["values"] for each in other["methods"]]
        assert [each["tested_forms"] for each in one["methods"]] == [each["tested_forms"] for each in other["methods"]]
    again = pens(capsys, "compare", path, "--out", tmp_path / "whole", "--dry-run")
    assert "5 runs in all, each counted once; 5 complete, 0 to run." in again
    shown = pens(capsys, "compare", "--from", tmp_path / "whole", "--markdown")
    assert shown.splitlines()[0].startswith(
        "| scenario | method | accuracy % | worst tenth | worst cluster | gap | fair"
    )


def test_trials_end_as_a_comparison_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = written(tmp_path, FILE), tmp_path / "tuned"
    arguments: list[str | Path] = ["tune", path, "--out", out, "--device", "cpu"]
    arguments += ["--scenarios", "skew,two", "--methods", "random,pens"]
    printed = pens(capsys, *arguments)
    assert "6 of 6 skew, random, trial 1, seed 1000: validation" in printed
    assert "6 complete, 0 to run" in pens(capsys, *arguments)
    record = json.loads((out / "tuning.json").read_text())
    assert [(each["scenario"], each["method"], len(each["trials"])) for each in record["methods"]] == [
        ("two", "random", 2),
        ("two", "pens", 2),
        ("skew", "random", 2),
    ]
    best = [each["trials"][each["best"]] for each in record["methods"]]
    for each, chosen in zip(record["methods"], best, strict=True):
        assert chosen["validation"] == max(trial["validation"] for trial in each["trials"])
    tuned = read_comparison(out / "tuned.toml")
    given = {"training.lr": 0.002}
    assert tuned.scenarios[1].of_method["random"] == {**given, **best[0]["values"]}
    assert tuned.scenarios[0].of_method == {}
    assert tuned.tuned == {"trials": 2, "seeds": [1000]}
    assert "5 to run" in pens(capsys, "compare", out / "tuned.toml", "--dry-run", "--out", tmp_path / "none")
    assert "seed 1000 is both" in pens(capsys, "compare", out / "tuned.toml", "--seeds", "1000-1000", code=2)
    assert "seed 0 is both tuned" in pens(capsys, "tune", path, "--seeds", "0,7", code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare"], "name the file of a comparison"),
        (["compare", "none.toml"], "none.toml: no such file"),
        (["compare", "--from", "none", "--dry-run"], "leave out the file, and all options"),
        (["compare", "none.toml", "--from", "none"], "leave out the file"),
    ],
)
def test_what_cannot_be_asked_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert words in pens(capsys, *arguments, code=2)


def test_a_file_of_own_data_that_changed_is_told(tmp_path: Path) -> None:
    written(tmp_path, CLINICS, "clinics.csv")
    written(tmp_path, 'methods = ["local"]\n[scenarios.own]\nsource = "clinics.csv"\nrounds = 1\n')
    told: list[str] = []

    class Told(Diary):
        def noted(self, message: str) -> None:
            told.append(message)

    for text, changed in ((CLINICS, False), (CLINICS, False), (f"{CLINICS}\nclinic-0,3,1,no", True)):
        written(tmp_path, text, "clinics.csv")
        plan_of(tmp_path, "out", SharedData()).run(Told())
        assert [message.partition(" since")[0] for message in told] == (
            ["the file of the data clinics.csv has changed"] if changed else []
        )
