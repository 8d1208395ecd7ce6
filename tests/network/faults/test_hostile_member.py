# SPDX-License-Identifier: Apache-2.0
"""A member that sends nonsense, lies, floods and dawdles: the others train on, remember it, and hold no more for it."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path

import pytest
from safetensors.torch import load_file, save

from pens.network.members.certified import CertificateNotary
from pens.network.transport.interface import MemberRecord
from pens.network.transport.limits import Limits
from tests.network.faults.harness import RealPeer, Site, running, wait_until
from tests.network.faults.hostile import TAKEN, agree, broken_models, channel_to, dawdling, deliver, flood, lies, tell

MB = 1 << 20
NAME = "mallory"
MAY_GROW = 128 * MB
"""max_held models of 20 kB, records that wait for certificates, buffers of gRPC for 512 connections and 256 calls,
threads, fragments."""


def total(peer: RealPeer, *reasons: str) -> int:
    found = peer.refusals()
    return sum(found.get(reason, 0) for reason in reasons)


def has_refused(peer: RealPeer, count: int, *reasons: str) -> bool:
    return total(peer, *reasons) >= count


def may_pass(limits: Limits, seconds: float) -> float:
    """Models and tables of one member in such a time, however fast it sends them."""
    return limits.burst_models + limits.burst_gossip + (limits.models_per_s + limits.gossip_per_s) * seconds


async def agree_with_all(site: Site) -> None:
    for peer in site.peers:
        async with channel_to(peer.address, site.credentials(NAME)) as channel:
            await agree(channel)


def attack_with_models(site: Site) -> None:
    model = load_file(site.peers[0].state / "models.safetensors")
    reasons = ("malformed", "size", "unwanted", "another network")
    payloads, before = broken_models(model), {p.me: total(p, *reasons) for p in site.peers}

    async def attack() -> None:
        for peer in site.peers:
            async with channel_to(peer.address, site.credentials(NAME)) as channel:
                for what, (payload, announced) in payloads.items():
                    assert await deliver(channel, payload, announced) in ("REFUSED", "OTHER_NETWORK"), what
                assert await deliver(channel, save(model), version=(1 << 64) - 1) == "REFUSED", "an absurd version"
                assert await deliver(channel, save(model), version=1) == TAKEN

    asyncio.run(attack())
    for peer in site.peers:
        expected = before[peer.me] + len(payloads)
        wait_until(partial(has_refused, peer, expected, *reasons), f"{expected} refusals")
        assert "model refused" in peer.log


def attack_with_lies(site: Site) -> None:
    members = [MemberRecord(p.name, p.address, 1, int(time.time()), signature=b"x") for p in site.peers]
    notary = CertificateNotary(site.credentials(NAME))
    own = notary.sign(MemberRecord(NAME, site.peers[0].address, 1, 1))  # where somebody else listens
    certificate = notary.certificate(own.serial)
    assert certificate

    async def attack() -> None:
        for round_ in range(3):
            for peer in site.peers:
                async with channel_to(peer.address, site.credentials(NAME)) as channel:
                    await tell(channel, [own])
                    await tell(channel, [], (certificate,))
                    for table in lies(notary, members, site.peers[-1].address):
                        assert await tell(channel, [own, *table]) == "OK"
                    assert await tell(channel, [own] * 129) == "INVALID_ARGUMENT", round_

    asyncio.run(attack())
    everybody = len(site.peers) - 1
    wait_until(lambda: all(everybody <= p.alive() <= everybody + 1 for p in site.peers), "members as they are")
    for peer in site.peers:
        known = json.loads((peer.state / "membership.json").read_text())["records"]
        assert not [name for name, *_ in known if name.startswith("invented")]
        assert total(peer, "forged record") >= 3


def attack_with_floods(site: Site, count: int) -> None:
    payload = save(load_file(site.peers[0].state / "models.safetensors"))
    target = site.peers[0]
    before, lines, counted = target.memory_bytes(), len(target.log.splitlines()), total(target, "rate")
    begun = time.monotonic()
    seen = asyncio.run(flood(target.address, site.credentials(NAME), payload, count))
    lasted = time.monotonic() - begun
    assert seen.total() == count // 4 * 4
    refused = seen["REFUSED"] + seen["BUSY"] + seen["RESOURCE_EXHAUSTED"]
    assert seen.total() - refused <= may_pass(Limits(), lasted), f"in {lasted:.1f} s: {seen}"
    wait_until(lambda: total(target, "rate") > counted, "refusals counted")
    assert target.memory_bytes() - before < MAY_GROW
    assert len(target.log.splitlines()) - lines < 200, target.log[-3000:]


def attack_by_dawdling(site: Site, connections: int) -> None:
    target = site.peers[0]

    async def attack() -> None:
        async with dawdling(target.address, site.credentials(NAME), connections):
            await asyncio.to_thread(site.all_advance, 3)
            await asyncio.to_thread(wait_until, lambda: target.alive() >= len(site.peers) - 1, "all others there")

    before = target.memory_bytes()
    asyncio.run(attack())
    assert target.memory_bytes() - before < MAY_GROW
    assert total(target, "calls") > 0


def test_a_federation_outlives_a_hostile_member(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, [NAME])
    site.configure()
    with running(site):
        site.all_gossip()
        asyncio.run(agree_with_all(site))
        attack_with_models(site)
        site.all_advance()
        attack_with_lies(site)
        site.all_advance()
        attack_with_floods(site, 600)
        attack_by_dawdling(site, 20)
        site.all_advance()
        for peer in site.peers:
            assert peer.health()["healthy"]


@pytest.mark.slow
def test_memory_is_bounded_under_a_long_flood(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, [NAME])
    site.configure()
    with running(site):
        site.all_gossip()
        asyncio.run(agree_with_all(site))
        attack_with_floods(site, 2000)
        used = site.peers[0].memory_bytes()
        attack_with_floods(site, 20_000)
        assert site.peers[0].memory_bytes() - used < 16 * MB
        attack_by_dawdling(site, 100)
        site.all_advance()
