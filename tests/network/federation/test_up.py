# SPDX-License-Identifier: Apache-2.0
"""`pens up` as a user types it: real processes, certificates and sockets."""

from __future__ import annotations

import io
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pens.command_line.main import main
from pens.network.federation.loopback import FederationRequest, make_federation
from pens.network.federation.peer_processes import Presence, Sighting
from pens.network.federation.up import Watch
from pens.storage.runlog import ExperimentDir
from tests.command_line.test_main import pens, wait_for

TINY = ["--interval", "0.1", "--set", "step1_rounds=2", "step1_samplings=2", "step1_epochs=2", "compile=never"]


def pens_here(*arguments: str | Path) -> None:
    """In this process, which spares a start."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert not ended.value.code


def results(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("peer-*/result.json"))]


def test_a_federation_ends_by_itself_and_reads_like_a_simulation(tmp_path: Path) -> None:
    up = tmp_path / "up"
    printed = pens("up", "--peers", "4", "--preset", "digits", "--out", up, *TINY, "rounds=4")
    assert "to fit 4 peers: n_peers 9 → 1, m 2 → 1, n_sampled 8 → 2" in printed
    assert f"pens report {up}/run" in printed
    assert "digits: 4 peers, clusters 0°, 180°, 1 seed" in printed
    told = results(up)
    assert len(told) == 4
    assert all(peer["final"] and peer["done"] for peer in told)
    (run,) = ExperimentDir(up / "run").results()
    assert run.warnings == ()
    assert run.cluster_names == ("0°", "180°")
    assert run.agreement is not None
    pens_here("show", up / "run")
    pens_here("report", up / "run", "--out", tmp_path / "report.html")
    pens_here("collect", *sorted(up.glob("peer-*/")), "--out", tmp_path / "again")
    assert ExperimentDir(tmp_path / "again").results()[0].accuracy.tolist() == run.accuracy.tolist()
    assert "real peers" in (tmp_path / "report.html").read_text()


def test_a_signal_stops_all_peers_cleanly_and_they_can_go_on(tmp_path: Path) -> None:
    up = tmp_path / "up"
    first = ["--peers", "2", "--method", "random", "--out", str(up), *TINY, "rotations=[0]", "rounds=100000"]
    for life, arguments in enumerate((first, ["--resume", str(up)]), start=1):
        federation = subprocess.Popen(
            [sys.executable, "-m", "pens", "up", *arguments], stderr=subprocess.PIPE, text=True
        )
        try:
            wait_for(lambda: len(results(up)) == 2 and all(peer["lives"] == life for peer in results(up)))  # noqa: B023
            federation.send_signal(signal.SIGTERM)
            assert f"pens up --resume {up}" in federation.communicate(timeout=60)[1]
        finally:
            federation.terminate()
            federation.wait(60)
        assert federation.returncode == 130
        assert all(peer["final"] and not peer["done"] for peer in results(up))
    assert len(ExperimentDir(up / "run").results()) == 1


def test_a_peer_that_cannot_start_ends_all(tmp_path: Path) -> None:
    federation, _ = make_federation(tmp_path / "up", FederationRequest("digits", {}, peers=2, method="random", seed=0))
    shutil.rmtree(federation.folder / "certs" / "peers" / "peer-1")
    printed = pens("up", "--resume", federation.folder, code=1)
    assert "peer-1 exited uncleanly: exit code 2" in printed
    assert "peer.key" in printed


def sighting(name: str, presence: Presence, **health: object) -> Sighting:
    told = {
        "phase": "gossiping",
        "step": 23,
        "done": False,
        "neighbours": ["peer-2", "peer-1"],
        "val_accuracy": 0.875,
        "seconds_since_update": 1.5,
        "models": {"in": 1234, "out": 56},
        "bytes": {"in": 7_800_000, "out": 0},
        **health,
    }
    return Sighting(
        name, presence, told, -9 if presence == "dead" else None, "goes on step=3" if presence == "dead" else ""
    )


@pytest.mark.parametrize(("width", "left_out"), [(120, []), (80, ["MB"]), (70, ["MB", "models"])])
def test_the_live_table_tells_of_each_peer_and_stays_within_the_terminal(
    tmp_path: Path, width: int, left_out: list[str]
) -> None:
    federation, _ = make_federation(tmp_path / "up", FederationRequest("digits", {}, peers=4, method="pens", seed=0))
    printed = io.StringIO()
    console = Console(file=printed, width=width, force_terminal=True, color_system=None)
    watch = Watch(federation, console)
    with watch.watching() as live:
        watch.show(
            live,
            [
                Sighting("peer-0", "starts", None),
                sighting("peer-1", "there"),
                sighting("peer-2", "there", done=True, step=61, neighbours=["peer-0", "peer-1", "peer-3"]),
                sighting("peer-3", "dead"),
            ],
        )
    lines = printed.getvalue()
    assert re.search(r"peer-0 +│ starts", lines)
    assert re.search(r"peer-1 +│ gossiping +│ 23/61 │ 1 2 +│ +87.5 │", lines)
    assert re.search(r"peer-2 +│ done +│ +61 │ all", lines)
    assert "peer-3: killed by SIGKILL; start it again with: pens peer" in lines
    assert "last line: goes on step=3" in lines
    for heading, cell in {"models": "1,234 / 56", "MB": "7.8 / 0.0"}.items():
        assert (heading in lines, cell in lines) == (heading not in left_out,) * 2
    assert all(len(line) <= width for line in lines.splitlines() if "│" in line)
