# SPDX-License-Identifier: Apache-2.0
"""Peers that are killed at any moment and started again: they go on where they were, and the others do not wait."""

from __future__ import annotations

import random
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.network.faults.harness import RealPeer, Site, running, wait_until


def history(peer: RealPeer) -> list[dict[str, Any]]:
    return list(pq.read_table(BytesIO((peer.state / "history.parquet").read_bytes())).to_pylist())


def assert_goes_on(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Two states of one peer, the second of a later life: what it knew it still knows."""
    old, new = before["peer"], after["peer"]
    assert new["draws"] >= old["draws"]
    assert after["learning"]["current"] >= before["learning"]["current"]
    if old["phase"] == new["phase"] == "gossiping":
        assert set(new["neighbours"]) >= set(old["neighbours"])
    assert all(after["counts"][what] >= count for what, count in before["counts"].items())
    assert set(map(tuple, after["names"])) >= set(map(tuple, before["names"]))
    assert after["past"]["lives"] > before["past"]["lives"]
    assert after["past"]["completed"][: len(before["past"]["completed"])] == before["past"]["completed"]


def kill_and_restart(site: Site, victim: RealPeer) -> None:
    victim.kill()
    before, told = victim.checkpoint()[0], history(victim)
    site.all_advance(1, but=[victim.me])
    victim.start()
    see_it_go_on(victim, before, told)
    assert '"goes on"' in victim.log


def see_it_go_on(peer: RealPeer, before: dict[str, Any], told: list[dict[str, Any]]) -> None:
    """Wait until it has saved one more update, and compare."""
    version = before["learning"]["current"]
    wait_until(lambda: peer.checkpoint()[0]["learning"]["current"] > version, f"{peer.name} goes on")
    assert_goes_on(before, peer.checkpoint()[0])
    assert history(peer)[: len(told)] == told


def test_who_finds_nobody_waits_and_who_is_killed_goes_on_and_the_others_do_not_wait(tmp_path: Path) -> None:
    site, luck = Site(tmp_path, 3), random.Random(1)
    site.configure()
    last = site.peers.pop()
    with running(site):
        wait_until(lambda: all(p.alive() == 1 for p in site.peers), "two that wait for a third")
        assert all(p.phase == "starting" for p in site.peers)
        last.start()
        site.peers.append(last)
        wait_until(lambda: all((p.state / "result.json").exists() for p in site.peers), "the first updates")
        for victim in site.peers[:2]:
            time.sleep(luck.uniform(0, 0.5))  # whatever it is doing then
            kill_and_restart(site, victim)
        site.all_gossip()
        site.all_advance()
        wait_until(lambda: all(p.alive() == 2 for p in site.peers), "everybody there again")
    for peer in site.peers:
        assert peer.result()["final"]
        assert peer.result()["lives"] == 1 + (peer.me < 2)


@pytest.mark.slow
def test_a_storm_of_kills(tmp_path: Path) -> None:
    """Five minutes, a kill every few seconds, sometimes of somebody who has just begun."""
    site, luck = Site(tmp_path, 4), random.Random(2)
    site.configure()
    kills, end = 0, time.monotonic() + 300
    with running(site):
        wait_until(lambda: all((p.state / "result.json").exists() for p in site.peers), "the first updates")
        while time.monotonic() < end:
            time.sleep(luck.uniform(0, 5))
            victim = luck.choice(site.peers)
            victim.kill()
            before, told = victim.checkpoint()[0], history(victim)
            victim.start()
            kills += 1
            if luck.random() < 0.5:  # else it may be killed again before it has done anything
                see_it_go_on(victim, before, told)
        site.all_gossip()
        site.all_advance()
        wait_until(lambda: all(p.alive() == 3 for p in site.peers), "everybody there again")
        steps = {p.name: p.step for p in site.peers}
        print(f"{kills} kills; updates {steps}; memory {[p.memory_bytes() >> 20 for p in site.peers]} MB")
    for peer in site.peers:
        versions = [row["version"] for row in history(peer)]
        assert versions == list(range(1, len(versions) + 1))
