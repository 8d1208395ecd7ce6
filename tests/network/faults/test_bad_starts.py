# SPDX-License-Identifier: Apache-2.0
"""What a peer cannot live with it says in a line, before it does harm, and with an exit status that is not 0."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from pens.errors import DiskError, PensError
from pens.network.node.state import held
from pens.network.operating.peer_command import run_peer
from pens.storage.checkpoint import Checkpoint, encode_state
from tests.network.faults.harness import HOST, RealPeer, Site


def can_mount() -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and not subprocess.run(command, capture_output=True).returncode


def torn(peer: RealPeer, file: str) -> AbstractContextManager[None]:
    (peer.state / file).write_bytes(b"\x07torn")
    return nullcontext()


def of_another_version(peer: RealPeer) -> AbstractContextManager[None]:
    Checkpoint(peer.state / "checkpoint.safetensors", "").save(encode_state({"peer": {"phase": "gossiping"}}), {})
    return nullcontext()


Fault = Callable[[RealPeer], AbstractContextManager[object]]
FAULTS: dict[str, tuple[Fault, str]] = {
    "two processes": (lambda peer: held(peer.state), "another process uses this state folder"),
    "port taken": (lambda peer: socket.create_server((HOST, peer.address.port)), "cannot listen at"),
    "monitor port taken": (
        lambda peer: socket.create_server((HOST, peer.metrics_port)),
        "the monitor cannot listen there",
    ),
    "torn state": (lambda peer: torn(peer, "checkpoint.safetensors"), "checkpoint.safetensors.*(?s:.)*anew"),
    "torn members": (lambda peer: torn(peer, "membership.json"), r"membership.json.*delete it"),
    "another version": (of_another_version, "another version.*anew"),
    "torn revocations": (lambda peer: torn(peer, "revoked.pem"), "revoked.pem.*or delete"),
}


PASSING = ("two processes", "port taken", "monitor port taken")
"""What a service manager may try again."""


@pytest.mark.parametrize("what", FAULTS)
def test_a_peer_that_cannot_live_says_why_and_leaves_its_state_alone(tmp_path: Path, what: str) -> None:
    site = Site(tmp_path, 1)
    site.configure({"wait_for": 0})
    (peer,) = site.peers
    peer.state.mkdir()
    fault, words = FAULTS[what]
    with fault(peer):
        before = {file.name: file.read_bytes() for file in peer.state.iterdir()}
        with pytest.raises(PensError, match=words) as found:
            run_peer(peer.config)
        assert found.value.exit_status == (75 if what in PASSING else 2)
        assert {name: (peer.state / name).read_bytes() for name in before} == before


@pytest.mark.skipif(not can_mount(), reason="this machine lets no user mount a small disk")
def test_a_full_disk_ends_a_peer_with_a_word_and_an_error(tmp_path: Path) -> None:
    site = Site(tmp_path, 1)
    site.configure({"wait_for": 0})
    (peer,) = site.peers
    peer.state.mkdir()
    script = 'mount -t tmpfs -o size=110k tmpfs "$0" && "$@"; code=$?; cp -r "$0" "$0-kept"; exit $code'
    peer.before = ("unshare", "-rm", "sh", "-c", script, str(peer.state))
    peer.start()
    assert peer.process
    try:
        assert peer.process.wait(timeout=60) == DiskError.exit_status
    finally:
        peer.kill()
    assert "cannot be written" in peer.log
    assert "No space left" in peer.log
    assert "Traceback" not in peer.log
    assert not list(Path(f"{peer.state}-kept").glob(".*"))
