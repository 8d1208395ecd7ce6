# SPDX-License-Identifier: Apache-2.0
"""`pens reproduce`, as a user types it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from pens.command_line.main import main
from pens.experiment.presets import AUTHORS_CODE
from pens.storage.runlog import RULES
from tests.command_line.test_main import PENS, wait_for
from tests.reproduce.test_compare import RESULTS
from tests.reproduce.trial import SMALL

TRIAL = ["--set", *(f"{key}={value}" for key, value in SMALL.items())]


def reproduce(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> str:
    """Run the command here and return what it printed, both streams."""
    with pytest.raises(SystemExit) as end:
        main(["reproduce", *map(str, arguments)])
    printed = capsys.readouterr()
    assert end.value.code == code, printed.out + printed.err
    return printed.out + printed.err


def rows(printed: str) -> list[str]:
    """Of a table, each with a number or a verdict of ours."""
    words = ("±", "not run", "too few seeds")
    table = [line.rstrip() for line in printed.splitlines() if line.startswith("  ")]
    return [line for line in table if any(word in line for word in words)]


def test_a_table_ends_beside_the_papers_and_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, kept = tmp_path / "runs", tmp_path / "results"
    arguments: tuple[str | Path, ...] = (
        "table1",
        "figure1b",
        "--seeds",
        "2",
        "--methods",
        "pens,local",
        "--out",
        out,
        *TRIAL,
    )
    printed = reproduce(capsys, *arguments, "--keep", kept)
    assert "8 of 8 table1, common init: local seed 1" in printed
    assert "57.8 ± 0.4" in printed
    assert any(row.split()[:1] == ["oracle"] and "not run" in row for row in rows(printed))
    names = [f"{name}.{ending}" for name in ("figure1b", "table1") for ending in ("json", "svg")]
    assert sorted(path.name for path in kept.iterdir()) == names
    assert json.loads((kept / "table1.json").read_text())["changed"]["peers"] == 4
    again = reproduce(capsys, "table1", "figure1b", "--from", kept)
    assert rows(again) == rows(printed)
    assert "outdated" not in again
    assert rows(reproduce(capsys, *arguments)) == rows(printed)
    file = kept / "table1.json"
    data = json.loads(file.read_text())
    data["settings"]["step1_epochs"] = 9
    file.write_text(json.dumps(data))
    lines = reproduce(capsys, "table1", "--from", kept).splitlines()
    assert lines[-4:] == [
        "outdated:",
        "pens (independent init) was run with step1_epochs = 9, today 1",
        "pens (common init) was run with step1_epochs = 9, today 1",
        f"pens reproduce table1 --methods pens,local --seeds 2 --keep {kept} --fill with the same --set runs it again",
    ]
    file.write_text(json.dumps({**data, "rules": 0}))
    assert f"kept by rules 0; today's rules are {RULES}" in reproduce(capsys, "table1", "--from", kept)


def test_what_was_kept_is_shown_between_the_papers_and_ours_and_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((RESULTS / "table2.json").read_text())
    for cell in before["columns"][0]["cells"]:
        cell.pop("spent", None)
    before["columns"][0]["cells"][0]["verdict"] = "overlap"
    pens = next(cell for cell in before["columns"][0]["cells"] if cell["method"] == "pens")
    (tmp_path / "authors").mkdir()
    for folder, values in ((tmp_path / "authors", [0.40, 0.41, 0.40, 0.41]), (tmp_path, [0.54, 0.55, 0.54, 0.55])):
        pens["values"] = values
        before["changed"] = dict(AUTHORS_CODE) if folder.name == "authors" else {}
        (folder / "table2.json").write_text(json.dumps(before))

    three: tuple[str | Path, ...] = ("table2", "--from", tmp_path, "--beside", tmp_path / "authors")
    printed = reproduce(capsys, *three)
    row = next(row for row in rows(printed) if row.split()[0] == "pens")
    assert " ".join(row.split()).startswith("pens 53.4 ± 0.7 40.5 ± 0.9 below by 12.9")
    assert " ".join(row.split()).endswith("54.5 ± 0.9 above by 1.1 0.9")
    assert "By the authors' rules, over 4 seeds:" in printed
    alone = reproduce(capsys, "table2", "--from", tmp_path / "authors")
    assert "By the authors' rules: half_turn = flip, test = full" in alone

    lines = reproduce(capsys, *three, "--markdown").splitlines()
    assert lines[0] == "**Table 2: CIFAR-10, four rotations, 100 peers of 400 samples**"
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert {len(cells) for cells in table} == {9}
    assert table[0][2:6] == ["paper %", "authors' rules %", "verdict (authors' rules)", "detectable (authors' rules)"]
    assert table[2][:3] == ["four rotations", "central", "60.3 ± 0.8"]

    reproduce(capsys, *three, "--keep", tmp_path, "--out", tmp_path / "none")
    written = json.loads((tmp_path / "table2.json").read_text())
    assert written["columns"][0]["cells"][0]["verdict"] != "overlap"
    assert [c["values"] for c in written["columns"][0]["cells"]] == [c["values"] for c in before["columns"][0]["cells"]]
    svg = (tmp_path / "table2.svg").read_text()
    assert "authors' rules" in svg
    assert "below by 12.9" in svg
    assert not (tmp_path / "none").exists()
    assert "no such folder" in reproduce(capsys, "table2", "--from", tmp_path, "--beside", tmp_path / "no", code=2)


def test_only_what_is_not_kept_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "results"
    common: tuple[str | Path, ...] = ("--seeds", "2", "--keep", kept, *TRIAL)
    first = reproduce(capsys, "table2", "--methods", "random", "--out", tmp_path / "first", *common)
    printed = reproduce(
        capsys, "table2", "figure1b", "--methods", "random,local", "--fill", "--out", tmp_path / "new", *common
    )
    assert "8 runs in all, each counted once; 2 complete, 6 to run" in printed
    assert "2 of 6 table2, four rotations: local seed 1" in printed
    assert next(row for row in rows(first) if "random" in row) in rows(printed)
    again = reproduce(capsys, "table2", "--methods", "random,local", "--fill", "--out", tmp_path / "third", *common)
    assert "4 complete, 0 to run" in again
    assert rows(again) == rows(printed)[: len(rows(again))]
    assert not (tmp_path / "third").exists()
    more: tuple[str | Path, ...] = ("--fill", "--keep", kept, *TRIAL)
    reproduce(capsys, "table2", "--methods", "pens", "--seeds", "1", "--out", tmp_path / "one", *more)
    uneven = ("table2", "--methods", "random,local,pens", "--seeds", "3", "--out", tmp_path / "uneven")
    assert "9 runs in all, each counted once; 5 complete, 4 to run" in reproduce(capsys, *uneven, *more)
    assert "9 complete, 0 to run" in reproduce(capsys, *uneven[:-1], tmp_path / "none", *more)
    assert "name their folder with --keep" in reproduce(capsys, "table2", "--fill", code=2)


def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = reproduce(capsys, "all", "--dry-run", "--out", tmp_path / "none")
    assert "288 runs in all, each counted once; 0 complete, 288 to run: time unknown." in printed
    for word in ("Table 1", "Figure 2", "n_sampled 50, m 25", "0/4", "as above"):
        assert word in printed
    assert not (tmp_path / "none").exists()


def test_what_a_budget_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: tuple[str | Path, ...] = ("table2", "--methods", "random,local", "--seeds", "1", "--out", tmp_path)
    arguments += tuple(TRIAL)
    printed = reproduce(capsys, *arguments, "--budget", "0.000001")
    assert "  table2, four rotations: random, local: seed 0\n" in printed
    assert "goes on" not in reproduce(capsys, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel1"], "did you mean 'table1'"),
        (["table1", "--budget", "0"], "--budget 0: give a number of minutes above 0"),
        (["table1", "--methods", "pns"], "did you mean 'pens'"),
        (["table1", "--seeds", "0"], "at least 1"),
        (["table1", "--set", "pers=3"], "did you mean 'peers'"),
        (["table1", "--from", "nowhere"], "--keep nowhere"),
        (["table1", "--from", "nowhere", "--dry-run"], "--from shows what was kept: leave out"),
    ],
)
def test_slips_are_explained(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in " ".join(reproduce(capsys, *arguments, code=2).split())
    assert not list(tmp_path.iterdir())


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = [*TRIAL, "rounds=2000", "patience=2000", "checkpoint_every_s=0"]
    arguments = ["reproduce", "table2", "--methods", "random", "--seeds", "1", "--out", str(tmp_path), *slow]
    with subprocess.Popen([*PENS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as it:
        wait_for(lambda: bool(list(tmp_path.rglob("checkpoint.safetensors"))))
        it.send_signal(signal.SIGINT)
        _, errors = it.communicate(timeout=60)
    assert it.returncode == 130
    assert "Continue with the same command: pens reproduce table2 --methods random" in errors.decode()
    assert list(tmp_path.rglob("checkpoint.safetensors"))
    assert "0 complete, 1 to run" in reproduce(capsys, *arguments[1:], "--dry-run")


def test_the_authors_rules_leave_out_what_their_code_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --set these are their rules to the letter, so nothing is run here: the plan tells what would be."""
    printed = reproduce(capsys, "table1", "--as", "authors", "--dry-run", "--out", tmp_path / "runs")
    assert "central" not in printed
    assert "32 runs in all" in printed  # two settings, four methods, four seeds
    kept = tmp_path / "kept"
    small = reproduce(
        capsys,
        "table1",
        "--as",
        "authors",
        "--methods",
        "local",
        "--seeds",
        "1",
        "--out",
        tmp_path,
        "--keep",
        kept,
        *TRIAL,
    )
    assert "pull_from" not in small
    changed = json.loads((kept / "table1.json").read_text())["changed"]
    assert changed["half_turn"] == "flip"
    assert changed["step1_epochs"] == 1  # --set goes over the rules
    assert "--as nobody: choose from ours, authors" in reproduce(capsys, "table1", "--as", "nobody", code=2)
