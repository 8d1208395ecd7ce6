# SPDX-License-Identifier: Apache-2.0
"""The audit log: who was sent which model, who was received, merged and refused; over restarts, in bounded files."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pens.errors import DiskError
from pens.network.node.audit import AuditLog
from pens.network.node.parts import NodeRules
from pens.network.transport.interface import Parcel, Reception
from pens.protocol.messages import ModelRef, PeerId, Update
from tests.network.node.test_node import cluster
from tests.network.virtual import run_virtually


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def models(log: list[dict[str, Any]], event: str, member: str) -> set[tuple[int, str]]:
    """The version and hash of each model in lines of one sort about one member."""
    return {(line["version"], line["sha256"]) for line in log if (line["event"], line.get("member")) == (event, member)}


def test_both_sides_tell_of_each_model_by_its_hash_and_of_what_was_merged(tmp_path: Path) -> None:
    it = cluster("pens", rounds=2, n_peers=1, n_sampled=2, step1_rounds=2, step1_samplings=1)
    logs = [AuditLog(tmp_path / f"{p}.jsonl", 1 << 20, 2) for p in range(3)]
    nodes = [it.node(p, rules=NodeRules(wait_for=2), audit=logs[p]) for p in range(3)]
    told: list[str] = []

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        while any(node.peer.phase != "finished" for node in nodes):
            await asyncio.sleep(1)
        told.append(sha256(nodes[1].learning.payload or b"").hexdigest())
        assert await nodes[0].exchange.take_model("peer-1", Parcel(9, b"damaged")) is Reception.REFUSED
        assert await nodes[0].exchange.take_model("peer-1", Parcel(9, b"damaged")) is Reception.REFUSED
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())
    mine, theirs = lines(tmp_path / "0.jsonl"), lines(tmp_path / "1.jsonl")
    assert mine[0]["event"] == "begins"
    assert [line["life"] for line in mine] == [1] * len(mine)
    sent = models(theirs, "sent", "peer-0")
    received = models(mine, "received", "peer-1")
    assert sent
    assert sent == received
    assert {line["sha256"] for line in theirs if line["event"] == "sent" and line["version"] == 5} <= set(told)
    merged = {line["version"]: line["models"] for line in mine if line["event"] == "merged"}
    assert merged[1] == []
    counts = nodes[0].learners.by_peer[nodes[0].peer.me].merges
    assert sum(len(some) for some in merged.values()) == counts.total() > 0
    heard = {(line["member"], line["version"]) for line in mine if line["event"] == "received"}
    assert {(model["member"], model["version"]) for some in merged.values() for model in some} <= heard
    refused = [line for line in mine if line["event"] == "refused" and line["why"] == "malformed"]
    assert [(line["member"], line.get("times")) for line in refused] == [("peer-1", None)]


def test_of_the_models_that_an_update_chose_among_only_those_are_told_that_it_merged(tmp_path: Path) -> None:
    """By hand: it could have merged the models of peers 1 and 2, both of which it merged before, and took that of 2."""
    node = cluster("random").node(0, audit=AuditLog(tmp_path / "audit.jsonl", 1 << 20, 1))
    node.learners.by_peer[node.peer.me].merges = Counter({PeerId(1): 3, PeerId(2): 5})
    job = Update((ModelRef(PeerId(1), 7), ModelRef(PeerId(2), 9)), top_m=1, epochs=1, may_stop=False)
    node.queue._note_merged(job, Counter({PeerId(1): 3, PeerId(2): 4}))
    assert [line["models"] for line in lines(tmp_path / "audit.jsonl")] == [[{"member": "2", "version": 9}]]


def test_refusals_are_told_once_an_hour_with_their_number(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", 1 << 20, 1, life=3)
    for now in range(0, 7300, 10):
        log.note_refused("b", "malformed", float(now))
    assert [(line["why"], line.get("times"), line["life"]) for line in lines(log.path)] == [
        ("malformed", None, 3),
        ("malformed", 360, 3),
        ("malformed", 360, 3),
    ]


def test_a_torn_line_stands_alone_and_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"time": "2031", "event": "se')
    log = AuditLog(path, max_bytes=300, keep=2)
    log.note("begins", version=7)
    assert json.loads(path.read_text().splitlines()[1])["version"] == 7
    for number in range(40):
        log.note("sent", number=number)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"][: len(files)]
    assert all(file.stat().st_size < 400 for file in files)
    assert lines(tmp_path / "audit.jsonl.1")[-1]["number"] >= 36
    path.unlink(missing_ok=True)  # as logrotate does
    log.note("sent", number=99)
    assert lines(path)[0]["number"] == 99
    assert path.stat().st_mode & 0o077 == 0


def test_a_log_that_cannot_be_written_ends_the_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = cluster("random", rounds=9)
    log = AuditLog(tmp_path / "audit.jsonl", 1 << 20, 1)
    node, other = it.node(0, rules=NodeRules(wait_for=1), audit=log), it.node(1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def live() -> None:
        stop = asyncio.Event()
        helper = asyncio.create_task(other.run(stop))
        running = asyncio.create_task(node.run(stop))
        await asyncio.sleep(1)
        monkeypatch.setattr(log, "_write", full)
        with pytest.raises(DiskError, match=r"audit\.jsonl: cannot be written.*make room"):
            await running
        stop.set()
        await helper

    run_virtually(live())
