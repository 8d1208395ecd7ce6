# SPDX-License-Identifier: Apache-2.0
"""What is seen of peers, whoever started them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pens.network.federation.loopback import Member, free_ports
from pens.network.federation.peer_processes import PeerProcess, PeerProcesses
from pens.network.operating.monitor import Monitor, Vitals


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member("peer-1", tmp_path, free_ports(1)[0])


def test_a_peer_that_is_there_is_not_started_again_and_seen_whoever_started_it(member: Member) -> None:
    peer = PeerProcess(member)
    with Monitor(member.monitor_port, lambda: Vitals("peer-1", "1", "searching", 7, trouble="no update for an hour")):
        peer.start()
        assert not peer.runs
        seen = peer.look()
    assert seen.presence == "there"
    assert seen.health
    assert seen.health["step"] == 7
    gone = peer.look()
    assert (gone.presence, gone.end) == ("dead", "not there")
    assert gone.health == seen.health
    (member.folder / "result.json").write_text(json.dumps({"final": True}))
    assert peer.look().presence == "ended"


def test_somebody_else_at_the_port_is_not_taken_for_the_peer(member: Member) -> None:
    with Monitor(member.monitor_port, lambda: Vitals("peer-2", "1", "searching", 7)):
        assert PeerProcess(member).look().presence == "dead"


def test_who_cannot_start_is_dead_with_its_exit_code_and_exit_message(member: Member) -> None:
    company = PeerProcesses([member])
    company.start()
    company.peers[0].wait(60)
    (seen,) = company.look()
    company.stop()
    assert (seen.presence, seen.exit_code, seen.end) == ("dead", 2, "exit code 2")
    assert "no such file" in seen.exit_message


def test_an_exit_message_is_for_people(member: Member) -> None:
    member.log.write_text('{"time": "now", "level": "INFO", "logger": "x", "event": "selected", "luck": false}\n\n')
    assert PeerProcess(member).look().exit_message == "selected luck=False"
