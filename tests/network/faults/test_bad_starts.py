"""What a peer cannot live with it says in a line, before it does harm, and with an exit status that is not 0."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from pens.network.state import PeerFolder
from tests.network.faults.harness import HOST, RealPeer, Site, running, wait_until


def can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and not subprocess.run(command, capture_output=True).returncode


def assert_refuses(peer: RealPeer, *words: str) -> None:
    """It ends with an error and one line that says why."""
    assert peer.process
    assert peer.process.wait(timeout=45) not in (0, None), peer.log
    assert "Traceback" not in peer.log
    for word in words:
        assert word in peer.log


def copied(peer: RealPeer, me: int) -> RealPeer:
    """The same peer with a log of its own."""
    twin = RealPeer(peer.folder, me, peer.address, peer.metrics_port)
    twin.config.write_text(peer.config.read_text())
    return twin


def test_a_peer_that_cannot_live_says_why(tmp_path: Path) -> None:
    site = Site(tmp_path, 6)
    site.configure({"wait_for": 0})
    well, on_taken_port, with_torn_state, with_torn_members, with_taken_monitor, with_other_state = site.peers
    for peer, file in ((with_torn_state, "checkpoint.safetensors"), (with_torn_members, "membership.json")):
        peer.state.mkdir()
        (peer.state / file).write_bytes(b"\x07torn")
    with_other_state.state.mkdir()
    PeerFolder(with_other_state.state).save({"peer": {"phase": "gossiping"}}, {})
    with (
        socket.create_server((HOST, on_taken_port.address.port)),
        socket.create_server((HOST, with_taken_monitor.metrics_port)),
    ):
        try:
            for peer in site.peers:
                peer.start()
            wait_until((well.state / "checkpoint.safetensors").exists, "the first peer lives")
            twin = copied(well, 9)
            twin.start()
            assert_refuses(twin, "another process lives in this state folder")
            assert_refuses(on_taken_port, "cannot listen at", str(on_taken_port.address.port))
            assert_refuses(with_torn_state, "checkpoint.safetensors", "anew")
            assert_refuses(with_torn_members, "membership.json", "delete it")
            assert_refuses(with_other_state, "another version", "anew")
            assert_refuses(with_taken_monitor, "monitor port", str(with_taken_monitor.metrics_port))
            assert (with_torn_state.state / "checkpoint.safetensors").read_bytes() == b"\x07torn"
            assert well.stop() == 0
        finally:
            for peer in site.peers:
                peer.kill()


def test_who_finds_no_bootstrap_member_waits_for_one(tmp_path: Path) -> None:
    site = Site(tmp_path, 2)
    site.configure()
    first, late = site.peers
    site.peers = [late]
    with running(site):
        wait_until(lambda: late.phase == "starting", "it lives")
        first.start()
        try:
            site.peers = [late, first]
            site.all_advance(1)
        finally:
            site.peers = [late, first]


@pytest.mark.skipif(not can_mount(), reason="this machine lets no user mount a small disk")
def test_a_full_disk_ends_a_peer_with_a_word_and_spares_its_state(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    site.configure({"wait_for": 0})
    (peer,) = site.peers
    peer.state.mkdir()
    script = 'mount -t tmpfs -o size=110k tmpfs "$0" && "$@"; code=$?; cp -r "$0" "$0-kept"; exit $code'
    peer.before = ("unshare", "-rm", "sh", "-c", script, str(peer.state))
    try:
        peer.start()
        assert_refuses(peer, "cannot be written", "No space left")
    finally:
        peer.kill()
    assert not [name for name in os.listdir(f"{peer.state}-kept") if name.startswith(".")]
