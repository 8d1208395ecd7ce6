# SPDX-License-Identifier: Apache-2.0
"""The command, as a user types it: in a process of its own, with real files, signals and a terminal."""

from __future__ import annotations

import inspect
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pens.command_line import completion
from pens.command_line.main import _spread_assignments, app, main
from pens.experiment.defaults import DEFAULT_METHODS, DEFAULT_PRESET, PAPERS_METHOD
from pens.experiment.interface import run as pens_run
from pens.experiment.presets import PRESETS, resolve_settings, starting_point
from pens.paper.exhibits import EXHIBITS
from pens.paper.verdicts import PAPER_SEEDS
from pens.parts import METHODS
from pens.settings.catalogue import as_toml
from pens.settings.reading import parse_settings
from pens.settings.tree import Settings
from pens.storage.runlog import ExperimentDir
from pens.version import VERSION
from tests.experiment.test_experiment import same_result

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
    for word in ("method", "accuracy", "worst", "tenth %", "precision", "recall", "models", "received", "work"):
        assert word in printed  # not `time`: that column is left out where long times make the table too wide
    assert re.search(r"│ local +│ \d+\.\d \(\d+\.\d, \d+\.\d\)", printed)
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
    "run digits --set rotations=[0,4.5]": "rotations = 4.5: input should be a valid integer",
    "run digits --set lr=0": "lr = 0",
    "run digits --set lr": "expected key=value",
    "run digits --methods pens,fedprox": "unknown method 'fedprox'",
    "run digits --seeds 0": "seeds = 0",
    "run digits --seeds 99999999999999999999": "at most 10,000 seeds are run at once",
    "run digits --seeds 1000000000": "at most 10,000 seeds are run at once",
    "run digits --seeds 1,x": "--seeds 1,x: give a number of seeds (4 means 0, 1, 2 and 3), seeds (1,2,3), or a range",
    "reproduce table1 --seeds 1000000000": "at most 10,000 seeds are run at once",
    "run digits --set training.peers=3": "peers belongs to [scenario], not to [training]",
    "run digits --set rotations=0,-360": "rotations = [0, -360]: two of these are the same rotation: list each once",
    "up --method fedprox": "unknown method 'fedprox'",
    "up --preset digit": "unknown preset 'digit'",
    "up --set n_sampeld=3": "did you mean 'n_sampled'?",
    "settings n_sampeld": "unknown setting or section 'n_sampeld', did you mean 'n_sampled'?",
    "run digits --device cuda:77": "device cuda:77",
    "run digits --device gpu": "unknown device 'gpu': use auto, cpu, cuda or cuda:N",
    "run digit": "unknown preset 'digit'",
    "run missing.toml": "missing.toml: no such file",
    "run digits --set dataset=mnist": "unknown data set 'mnist'",
    "run digits --data-dir /no/such/folder": "--data-dir /no/such/folder: no such folder",
    "run --resume /no/such/folder": "there is no folder /no/such/folder",
    "run digits --resume /no/such/folder": "leave out the preset",
    "show /no/such/folder": "there is no folder /no/such/folder",
    "report /no/such/folder": "there is no folder /no/such/folder",
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


@pytest.mark.parametrize("command", [["run", ""], ["up", "--preset", ""], ["presets", ""]])
def test_an_empty_name_is_not_the_default(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(command)
    assert exit_.value.code == 2
    assert "unknown preset ''" in capsys.readouterr().err


def test_seeds_and_lists_may_be_written_with_commas(tmp_path: Path) -> None:
    out = tmp_path / "run"
    pens("run", "--methods", "local", "--seeds", "7,3-4", "--set", "rotations=0,90", "rounds=1", "--out", out)
    record = ExperimentDir(out).read()
    assert record.seeds == (7, 3, 4)
    assert record.settings.scenario.rotations == (0, 90)


# --- first contact ----------------------------------------------------------------------------------------------------

HEAVY = {"torch", "sklearn", "matplotlib", "scipy", "grpc", "pyarrow"}


def commands_of(group: Any, *path: str) -> Iterator[list[str]]:
    yield list(path)
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, *path, name)


COMMAND: Any = typer.main.get_command(app)
COMMANDS = list(commands_of(COMMAND))


def imported_by(*arguments: str) -> tuple[int, str, set[str]]:
    """Exit status, output, and the large packages that a command has imported at its end."""
    code = (
        "import atexit, sys; from pens_fl import main\n"
        "atexit.register(lambda: print('IMPORTED', *{name.partition('.')[0] for name in sys.modules}))\n"
        "sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    printed, _, names = done.stdout.rpartition("IMPORTED")
    assert "typer" in names.split()
    return done.returncode, printed + done.stderr, HEAVY & set(names.split())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_is_printed_without_what_takes_time(command: list[str]) -> None:
    status, printed, heavy = imported_by(*command, "-h")
    assert status == 0
    assert "Usage: pens" in printed
    assert not heavy


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("--version", 0, f"pens {VERSION}"),
        ("presets", 0, "fashion-mnist-small"),
        ("presets digits", 0, "[scenario]"),
        ("settings", 0, "n_sampled"),
        ("methods", 0, "gossip with random others"),
        ("run nosuch", 2, "unknown preset 'nosuch'"),
        ("run nosuch.toml", 2, "nosuch.toml: no such file"),
        ("run digits --methods nosuch", 2, "unknown method 'nosuch'"),
        ("run digits --set nosuch=1", 2, "unknown setting 'nosuch'"),
        ("run digits --set lr=0", 2, "lr = 0"),
        ("run digits --set peers=6", 2, "n_peers = 9, but each peer can hear at most 5 others"),
        ("run digits --seeds nosuch", 2, "--seeds nosuch"),
        ("reproduce table1 --methods nosuch", 2, "unknown method 'nosuch'"),
        ("bench --precision nosuch", 2, "--precision nosuch"),
        ("up --preset nosuch", 2, "unknown preset 'nosuch'"),
    ],
)
def test_lookups_and_wrong_arguments_are_answered_without_what_takes_time(
    command: str, status: int, words: str
) -> None:
    answered, printed, heavy = imported_by(*command.split())
    assert answered == status
    assert words in printed
    assert not heavy


def test_the_help_names_the_methods_defaults_and_tables_that_there_are() -> None:
    parameters = {p.name: p for p in COMMAND.commands["run"].params}
    assert parameters["methods"].help.endswith(f": {', '.join(METHODS.built_in)}.")
    assert parameters["methods"].show_default == ",".join(DEFAULT_METHODS)
    assert parameters["settings"].show_default == DEFAULT_PRESET
    assert inspect.signature(pens_run).parameters["settings"].default is None
    assert starting_point(None) == resolve_settings(DEFAULT_PRESET)
    real = {p.name: p for p in COMMAND.commands["up"].params}
    assert (real["settings"].show_default, real["method"].show_default) == (DEFAULT_PRESET, PAPERS_METHOD)
    assert sorted(completion.EXHIBITS) == sorted(EXHIBITS)
    parameters = {p.name: p for p in COMMAND.commands["reproduce"].params}
    assert parameters["seeds"].default == str(PAPER_SEEDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_and_option_is_explained(command: list[str]) -> None:
    found = COMMAND
    for name in command:
        found = found.commands[name]
    assert found.help
    for parameter in found.params:
        assert parameter.help, f"{' '.join(command)}: {parameter.name}"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pens ru", "run"),
        ("pens run fash", "fashion-mnist\nfashion-mnist-small"),
        ("pens run --methods pens,loc", "pens,local"),
        ("pens run --set n_sam", "n_sampled="),
        ("pens run --set schedule=a", "schedule=async"),
        ("pens settings step1_s", "step1_samplings"),
        ("pens reproduce figure1", "figure1a\nfigure1b"),
        ("pens up --preset digi", "digits"),
    ],
)
def test_a_shell_completes_commands_presets_methods_and_settings(typed: str, offered: str) -> None:
    environment = {"_PENS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(PENS, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == offered, done.stderr


def test_completion_can_be_installed(tmp_path: Path) -> None:
    printed = pens("--help")
    assert "--install-completion" in printed
    script = subprocess.run(
        [*PENS, "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_PENS_COMPLETE=complete_bash" in script.stdout, script.stderr


def test_settings_are_explained_one_by_one_by_section_and_all(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*names: str) -> str:
        with pytest.raises(SystemExit) as exit_:
            main(["settings", *names])
        assert exit_.value.code == 0
        return " ".join(capsys.readouterr().out.split())

    for name in ("n_sampled", "pens.n_sampled"):
        assert "pens.n_sampled Models that a peer compares at once in step 1 (paper: 10)." in shown(name)
    assert "allowed: a whole number of at least 1 default: 10 in the preset digits: 8" in shown("n_sampled")
    assert "allowed: a number of at least 0 and below 1" in shown("jitter")
    assert "allowed: a whole number of at least 1 or none default: none" in shown("score_samples")
    assert "allowed: fp32, fp16 or int8" in shown("wire")
    section, everything = shown("gossip"), shown()
    assert "own_in_merge" in section
    assert "n_sampled" not in section
    for part in Settings().model_dump().values():
        for key in part:
            assert key in everything


def test_an_output_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    pens("run", "digits", "--methods", "local", "--set", "rounds=1", "--out", out)
    printed = pens("run", "digits", "--out", out, code=2)
    assert f"already holds a run: choose another --out, or continue that run with --resume {out}" in printed


def test_presets_print_as_files_that_run(tmp_path: Path) -> None:
    listed = pens("presets")
    for preset in PRESETS.values():
        assert preset.name in listed
        assert parse_settings(tomllib.loads(as_toml(preset.settings))) == preset.settings
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


def test_a_model_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pens("run", "digits", "--methods", "local,random", *QUICK, "--out", "run")
    printed = pens("export", "run", "--peer", "3", "--method", "random")
    assert "peer 3 of random seed 0: random-seed0-peer3.safetensors" in printed
    pens("export", "run", "--peer", "3", "--method", "random", "--format", "torchscript", "--out", "model.pt")
    assert {"model.pt", "random-seed0-peer3.safetensors"} <= {path.name for path in tmp_path.iterdir()}
    for arguments, words in (
        (["--peer", "3"], "there are 2 runs: choose one by method="),
        (["--peer", "9", "--method", "local"], "there is no peer 9: this run has peers 0 to 5"),
        (["--peer", "x", "--method", "local"], "there is no peer x"),
        (["--peer", "3", "--method", "local", "--format", "pdf"], "choose from state_dict, torchscript, onnx"),
    ):
        assert words in pens("export", "run", *arguments, code=2)


def test_a_warning_is_printed_once(tmp_path: Path) -> None:
    alone = ["schedule=async", "latency=9", "give_up=0.05", "step1_rounds=1", "step1_samplings=1"]
    printed = pens("run", "digits", "--methods", "pens", *QUICK, *alone, "--out", tmp_path / "run")
    assert printed.count("heard nobody in step 1") == 1
    assert "warning pens seed 0: peers 0, 1, 2, 3, 4, 5: heard nobody in step 1, so trained alone" in printed
    assert pens("show", tmp_path / "run").count("heard nobody in step 1") == 3
