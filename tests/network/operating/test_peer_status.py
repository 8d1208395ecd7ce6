# SPDX-License-Identifier: Apache-2.0
"""`pens status`: a peer that runs, one that does not, one that never did; as a page and as JSON."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from pens.command_line.main import main
from pens.errors import SettingsError
from pens.network.node.state import held
from pens.network.operating.monitor import Monitor, Vitals
from pens.network.operating.peer_status import (
    PeerStatus,
    Target,
    forget_monitor,
    is_running,
    name_monitor,
    page,
    status_of,
    target_of,
)

VITALS = Vitals(
    name="hospital-a",
    version="0.1.0",
    phase="searching",
    step=7,
    members={"alive": 3, "suspect": 1},
    models_in=12,
    models_out=11,
    val_accuracy=0.8123,
    kept_val_accuracy=0.9,
    alone_val_accuracy=0.84,
    val_gain=0.06,
    progress=(3, 20),
    trouble="the certificate has been revoked: ask the federation's authority",
)


def words(status: PeerStatus) -> dict[str, str]:
    return dict(page(status)[1])


def test_a_peer_that_runs_is_asked(tmp_path: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(held(tmp_path))
        monitor = stack.enter_context(Monitor(0, lambda: VITALS))
        assert status_of(target_of(str(tmp_path))).state == "running"
        name_monitor(tmp_path, monitor.url)
        status = status_of(target_of(str(tmp_path)))
        assert status_of(target_of(monitor.url + "/healthz")).told == status.told
    forget_monitor(tmp_path)
    assert status.state == "unhealthy"
    assert status.exit_status == 1
    assert page(status)[0] == "hospital-a runs, but needs you"
    assert words(status) == {
        "trouble": "the certificate has been revoked: ask the federation's authority",
        "phase": "searching, sampling 3 of 20; 7 models trained in all",
        "members": "3 alive, 1 suspect",
        "val accuracy": "0.8123",
        "kept val accuracy": "0.9000",
        "gain": "+0.0600 over training alone",
        "models": "12 received, 11 sent",
        "at": str(tmp_path),
    }
    assert status_of(Target(url=monitor.url)).state == "stopped"


def test_a_peer_that_does_not_run_is_told_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(Target(tmp_path)).state == "new"
    with held(tmp_path):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)
    result = {"name": "b", "final": False, "phase": "gossiping", "updates": 9, "received": 4, "sent": 5}
    (tmp_path / "result.json").write_text(json.dumps({**result, "neighbours": ["a", "c"], "val_accuracy": 0.5}))
    with pytest.raises(SystemExit) as ended:
        main(["status", str(tmp_path)])
    assert ended.value.code == 3
    told = capsys.readouterr().out
    assert "b does not run" in told
    assert "gossiping; 9 models trained in all" in told
    assert "a, c" in told
    assert "killed" in told
    with pytest.raises(SystemExit):
        main(["status", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["state"] == "stopped"


def test_what_is_no_monitor_and_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pens.network.operating.peer_status._USUAL", (Path("config.toml"),))
    with pytest.raises(SettingsError, match=r"there is no config\.toml here: name a peer's file"):
        target_of(None)
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        target_of("missing.toml")


def test_the_days_of_a_certificate_are_told() -> None:
    assert words(PeerStatus("new", certificate_days=12.4))["certificate"] == "valid for 12 more days"
    assert "have a new one issued" in words(PeerStatus("new", certificate_days=-2.0))["certificate"]
