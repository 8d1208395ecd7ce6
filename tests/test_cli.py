"""The command, as a user types it: in a process of its own, with real files, signals and a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pens.cli import _spread_assignments, main, settings_as_toml
from pens.config import parse_settings
from pens.presets import PRESETS
from pens.runlog import ExperimentDir
from tests.test_experiment import same_result

PENS = [sys.executable, "-m", "pens"]
QUICK = ["--set", "rounds=3", "step1_rounds=2", "step1_samplings=2", "peers=6", "n_peers=2", "n_sampled=3", "m=1"]
LONG = [*QUICK[:1], "rounds=60", "patience=60", *QUICK[2:], "checkpoint_every_s=0"]


def pens(*arguments: str | Path, code: int = 0) -> str:
    """Run the command and return what it printed, both streams."""
    done = subprocess.run([*PENS, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited a minute in vain")


def test_a_run_ends_with_a_table_and_shows_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    printed = pens("run", "digits", "--methods", "local,pens", "--seeds", "2", *QUICK, "--out", out)
    for word in ("method", "accuracy", "worst", "tenth %", "precision", "recall", "models", "merged", "batch", "time"):
        assert word in printed
    assert re.search(r"│ local +│ \d+\.\d ± \d+\.\d", printed)
    shown = pens("show", out)
    table = [line for line in printed.splitlines() if line.startswith("│")]
    assert table == [line for line in shown.splitlines() if line.startswith("│")]
    for name in ("curves.png", "heatmap.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_the_default_folder_is_named_after_the_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pens("run", "--methods", "local", "--set", "rounds=1")
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"digits-\d{8}-\d{6}", folder.name)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_resumes_to_the_same_result(tmp_path: Path, how: signal.Signals) -> None:
    arguments = ["run", "digits", "--methods", "pens", *LONG]
    broken = tmp_path / "broken"
    with subprocess.Popen(
        [*PENS, *arguments, "--out", str(broken)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as it:
        wait_for((broken / "pens-seed0" / "checkpoint.safetensors").exists)
        it.send_signal(how)
        _, errors = it.communicate(timeout=60)
    assert it.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    if how != signal.SIGKILL:
        assert f"pens run --resume {broken}" in errors.decode()
    assert not (broken / "pens-seed0" / "result.json").exists()
    pens("run", "--resume", broken)
    pens(*arguments, "--out", tmp_path / "unbroken")
    same_result(ExperimentDir(broken).results()[0], ExperimentDir(tmp_path / "unbroken").results()[0])


def test_a_terminal_sees_a_bar_per_run_with_time_left(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [*PENS, "run", "digits", "--methods", "local,random", *QUICK, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=follower, stderr=follower, env=environment) as it:
        os.close(follower)
        printed = b""
        while select.select([leader], [], [], 60)[0]:
            try:
                printed += os.read(leader, 65536)
            except OSError:
                break
    os.close(leader)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode())
    assert it.returncode == 0
    for part in ("local seed 0", "random seed 0", "100%", "left 0:00:00"):
        assert part in text


REFUSALS = {
    "run digits --set n_sampled=30": "n_sampled = 30, but each peer can hear at most 19 others",
    "run digits --set m=9": "m = 9, but only n_sampled = 8 models are compared",
    "run digits --set peers=21": "peers = 21, but 2 rotations need the same number of peers each: use 20 or 22",
    "run digits --set n_sampeld=3": "unknown setting 'n_sampeld', did you mean 'n_sampled'?",
    "run digits --set train_per_peer=4000": "at most train_per_peer = 42 would fit",
    "run digits --set rotations=[0,45]": "45 is not a multiple of 90",
    "run digits --set lr=0": "lr = 0",
    "run digits --set lr": "expected key=value",
    "run digits --methods pens,fedavg": "unknown method 'fedavg'",
    "run digits --seeds 0": "seeds = 0",
    "run digits --device cuda:77": "device cuda:77",
    "run digits --device gpu": "unknown device 'gpu': use auto, cpu, cuda or cuda:N",
    "run digit": "unknown preset 'digit'",
    "run missing.toml": "missing.toml: no such file",
    "run digits --set dataset=mnist": "unknown data set 'mnist'",
    "run digits --data-dir /no/such/folder": "--data-dir /no/such/folder: no such folder",
    "run --resume /no/such/folder": "/no/such/folder holds no run",
    "run digits --resume /no/such/folder": "leave out the preset",
    "show /no/such/folder": "/no/such/folder holds no run",
    "report /no/such/folder": "/no/such/folder holds no run",
    "presets digit": "unknown preset 'digit'",
    "run digits --out /proc/pens": "/proc/pens: cannot be written",
}


@pytest.mark.parametrize("command", list(REFUSALS))
def test_bad_input_is_refused_in_words(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(command.split())
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error ")
    assert REFUSALS[command] in printed
    assert not list(tmp_path.iterdir())


def test_an_output_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    pens("run", "digits", "--methods", "local", "--set", "rounds=1", "--out", out)
    printed = pens("run", "digits", "--out", out, code=2)
    assert f"already holds a run: choose another --out, or continue that run with --resume {out}" in printed


def test_presets_print_as_files_that_run(tmp_path: Path) -> None:
    listed = pens("presets")
    for preset in PRESETS.values():
        assert preset.name in listed
        assert parse_settings(tomllib.loads(settings_as_toml(preset.settings))) == preset.settings
    (tmp_path / "my.toml").write_text(pens("presets", "digits"))
    pens("run", tmp_path / "my.toml", "--methods", "local", "--set", "rounds=1", "--out", tmp_path / "run")


def test_data_shows_what_is_there(tmp_path: Path) -> None:
    printed = pens("data", "--data-dir", tmp_path)
    assert "digits" in printed
    assert "fashion-mnist" in printed


def test_settings_may_follow_one_set() -> None:
    assert _spread_assignments(["run", "--set", "a=1", "b=2", "--seeds", "2", "--set", "c=3"]) == [
        *("run", "--set", "a=1", "--set", "b=2", "--seeds", "2", "--set", "c=3")
    ]
    assert _spread_assignments(["run", "--set", "broken", "digits"]) == ["run", "--set", "broken", "digits"]
