# SPDX-License-Identifier: Apache-2.0
"""`pens peer` as real processes: over mutual TLS, killed and started again, stopped by a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pens.command_line.main import main
from pens.network.certificates.authority import Authority
from pens.network.federation.loopback import free_ports

LIMIT_S = 240.0  # for a test that hangs; how long peers take on a busy machine decides nothing
PEER = """
preset = "digits"
[peer]
name = "peer-{me}"
listen = "127.0.0.1:{port}"
bootstrap = ["127.0.0.1:{first}"]
certificates = "certs/peers/peer-{me}"
state = "state-{me}"
wait_for = {others}
linger_s = {linger}
threads = 1
gossip_s = 0.2
drop_s = 600
[data]
share = {me}
[scenario]
peers = 4
[gossip]
rounds = {rounds}
n_peers = 1
[pens]
n_sampled = 2
m = 1
step1_rounds = 2
step1_samplings = 2
step1_epochs = 3
[timing]
interval = 0.1
[engine]
compile = "never"
"""


def prepare(folder: Path, count: int, rounds: int, linger: float) -> None:
    """Files of so many peers. They wait ten minutes (`drop_s`) for one that is away: a start takes long where a machine
    is busy, and peers that give up on the one that was killed finish and leave it alone."""
    authority = Authority(folder / "certs")
    authority.create("test", 1, False)
    ports = free_ports(count)
    for me in range(count):
        main_ok("certs", "issue", f"peer-{me}", "--dir", str(folder / "certs"))
        values = {"me": me, "port": ports[me], "first": ports[0], "others": count - 1}
        (folder / f"{me}.toml").write_text(PEER.format(**values, rounds=rounds, linger=linger))


def main_ok(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


def start(folder: Path, me: int) -> subprocess.Popen[bytes]:
    with (folder / f"{me}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", "pens", "peer", str(folder / f"{me}.toml")], stderr=log)


def wait_for(condition: Callable[[], bool], peers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait while all peers run."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert [peer.poll() for peer in peers] == [None] * len(peers), "a peer ended"
        assert time.monotonic() < end, f"waited {LIMIT_S:g} s in vain"
        time.sleep(0.05)


def result(folder: Path, me: int) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / f"state-{me}" / "result.json").read_text())
    return found


def test_peers_find_each_other_and_one_that_is_killed_comes_back(tmp_path: Path) -> None:
    prepare(tmp_path, 3, rounds=6, linger=1.0)
    peers = [start(tmp_path, me) for me in range(3)]
    try:
        wait_for((tmp_path / "state-1" / "checkpoint.safetensors").exists, peers)
        peers[1].kill()
        peers[1].wait()
        peers[1] = start(tmp_path, 1)
        for peer in peers:
            assert peer.wait(timeout=LIMIT_S) == 0
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
    for me in range(3):
        told = result(tmp_path, me)
        assert told["final"]
        assert told["phase"] == "finished"
        assert isinstance(told["neighbours"], list)
        assert set(told["neighbours"]) <= {f"peer-{other}" for other in range(3) if other != me}
        assert "Traceback" not in (tmp_path / f"{me}.log").read_text()
    assert result(tmp_path, 1)["lives"] == 2


def test_a_peer_exits_cleanly_on_a_signal_at_any_time(tmp_path: Path) -> None:
    prepare(tmp_path, 2, rounds=100_000, linger=1.0)
    peers = [start(tmp_path, me) for me in range(2)]
    try:
        wait_for((tmp_path / "state-0" / "result.json").exists, peers)
        for peer, number in zip(peers, (signal.SIGTERM, signal.SIGINT), strict=True):
            peer.send_signal(number)
            assert peer.wait(timeout=LIMIT_S) == 0
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
    assert result(tmp_path, 0)["final"]


def test_missing_certificates_are_named_with_the_setting_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(tmp_path, 1, rounds=1, linger=1.0)
    folder = tmp_path / "certs" / "peers" / "peer-0"
    for gone in (["peer.key"], ["peer.pem", "authority.pem", "revoked.pem"]):
        for name in gone:
            (folder / name).unlink()
        with pytest.raises(SystemExit) as ended:
            main(["peer", str(tmp_path / "0.toml")])
        assert ended.value.code == 2
        told = " ".join(capsys.readouterr().err.split())
        assert "peer.certificates = 'certs/peers/peer-0': there is no " in told
        assert all(name in told for name in gone)
        assert str(folder) in told
        assert "`pens certs issue peer-0`" in told
    assert not (tmp_path / "state-0").exists()
