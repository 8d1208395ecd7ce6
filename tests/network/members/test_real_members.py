# SPDX-License-Identifier: Apache-2.0
"""Members over gRPC and TLS that sign with the keys of their certificates, and liars among them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import Credentials
from pens.network.members.certified import CertificateNotary
from pens.network.members.gossiper import Gossiper
from pens.network.members.membership import Membership
from pens.network.members.notary import Verdict
from pens.network.members.rules import MembershipRules
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Table
from tests.network.federations import LOOPBACK, QUICK, credentials, make_federation

Lie = Callable[[], tuple[MemberRecord, ...]]
RULES = MembershipRules(gossip_s=0.1, suspect_s=2.0, drop_s=6.0)


# --- the notary alone -------------------------------------------------------------------------------------------------


def notary_of(authority: Authority, name: str) -> CertificateNotary:
    return CertificateNotary(credentials(authority, name))


def own(name: str, heartbeat: int = 1) -> MemberRecord:
    return MemberRecord(name, Address("a.example.org", 7400), 1, heartbeat)


def test_a_signature_holds_for_one_record_by_one_member(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob", "mallory")
    alice, bob, mallory = (notary_of(authority, name) for name in ("alice", "bob", "mallory"))
    signed = alice.sign(own("alice"))
    assert bob.check(signed) is Verdict.UNKNOWN
    certificate = alice.certificate(signed.serial)
    assert certificate
    assert bob.learn(certificate) == signed.serial
    assert bob.check(signed) is Verdict.GENUINE
    assert bob.certificate(signed.serial) == certificate
    theirs = mallory.certificate(credentials(authority, "mallory").identity.serial)
    assert theirs
    bob.learn(theirs)
    for false in (
        replace(signed, address=Address("evil", 1)),
        replace(signed, left=True),
        replace(signed, heartbeat=2),
        replace(signed, incarnation=2),
        replace(signed, signature=b"no DER"),
        mallory.sign(own("alice")),
        replace(mallory.sign(own("alice")), serial=signed.serial),
    ):
        assert bob.check(false) is Verdict.FORGED


def test_certificates_of_others_than_members_are_not_taken(tmp_path: Path) -> None:
    ours, theirs = make_federation(tmp_path / "ours", "bob", "carol"), make_federation(tmp_path / "theirs", "carol")
    bob = notary_of(ours, "bob")
    stranger = notary_of(theirs, "carol")
    certificate = stranger.certificate(credentials(theirs, "carol").identity.serial)
    assert certificate
    assert bob.learn(certificate) is bob.learn(b"") is bob.learn(b"x" * 600) is None
    assert bob.check(stranger.sign(own("carol"))) is Verdict.UNKNOWN


def test_a_revoked_members_signature_no_longer_counts(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "bob", "carol")
    of_bob, carol = credentials(authority, "bob"), notary_of(authority, "carol")
    bob = CertificateNotary(of_bob)
    signed = carol.sign(own("carol"))
    certificate = carol.certificate(signed.serial)
    assert certificate
    bob.learn(certificate)
    assert bob.check(signed) is Verdict.GENUINE
    authority.revoke("carol")
    of_bob.reload()
    assert bob.is_withdrawn(signed.serial)
    assert bob.check(signed) is Verdict.WITHDRAWN
    assert notary_of(authority, "bob").learn(certificate) is None


def test_the_oldest_certificates_are_forgotten_but_not_the_own_one(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob", "carol")
    bob = CertificateNotary(credentials(authority, "bob"), most=1)
    known = []
    for name in ("alice", "carol"):
        notary = notary_of(authority, name)
        serial = notary.sign(own(name)).serial
        certificate = notary.certificate(serial)
        assert certificate
        assert bob.learn(certificate) == serial
        known.append(serial)
    assert [bob.certificate(serial) is None for serial in known] == [True, False]
    assert bob.certificate(bob.sign(own("bob")).serial)


# --- members that gossip ----------------------------------------------------------------------------------------------


@dataclass
class RealMember:
    """The membership of one peer, without the peer. `lie`: what it tells in place of the truth."""

    name: str
    membership: Membership
    notary: CertificateNotary
    transport: GrpcTransport
    gossiper: Gossiper
    own: Credentials
    lie: Lie | None = None

    async def gossip(self, sender: str, table: Table) -> Table:
        answer = self.gossiper.answer(sender, table)
        return replace(answer, records=self.lie()) if self.lie and table.records else answer

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        return Reception.REFUSED

    def wants(self, sender: str, size: int) -> Reception:
        return Reception.REFUSED

    async def live(self) -> None:
        while True:
            self.gossiper.call()
            await asyncio.sleep(RULES.gossip_s)

    def sees(self, *others: RealMember) -> bool:
        now = asyncio.get_running_loop().time()
        there = {record.name: record for record in self.membership.members(now, "alive")}
        return all(
            other.name in there and there[other.name].address == other.membership.me.address
            for other in others
            if other is not self
        )


@asynccontextmanager
async def members(authority: Authority, *names: str) -> AsyncIterator[list[RealMember]]:
    """Members that gossip while the block lasts; all know the address of the first."""
    started: list[RealMember] = []
    tasks = []
    try:
        for name in names:
            bootstrap = [started[0].membership.me.address] if started else []
            started.append(await _member(authority, name, bootstrap))
            tasks.append(asyncio.create_task(started[-1].live()))
        yield started
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(member.transport.stop(0) for member in started))


async def _member(authority: Authority, name: str, bootstrap: list[Address]) -> RealMember:
    own = credentials(authority, name)
    transport, notary = GrpcTransport(own, LOOPBACK, QUICK), CertificateNotary(own)
    me = MemberRecord(name, LOOPBACK, 1, 0)
    membership = Membership(me, hash(name), RULES, notary, time.time, bootstrap)
    member = RealMember(name, membership, notary, transport, Gossiper(membership, transport, lambda: None), own)
    membership.move(await transport.start(member))
    return member


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.05)


def lies_of(liar: RealMember, victims: list[RealMember], old: list[MemberRecord]) -> Lie:
    """A liar's tables, one kind after the other: other addresses, departures, ends, old records, invented names."""
    turns = 0

    def signed(records: list[MemberRecord]) -> list[MemberRecord]:
        return [liar.notary.sign(record) for record in records]

    def lie() -> tuple[MemberRecord, ...]:
        nonlocal turns
        turns += 1
        newer = [replace(v.membership.me, incarnation=5, heartbeat=int(time.time())) for v in victims]
        moved = [replace(record, address=Address("127.0.0.1", 9)) for record in newer]
        gone = [replace(record, left=True, finished=True) for record in newer]
        invented = [replace(liar.membership.me, name=f"x{turns}-{n}") for n in range(20)]
        kinds = [moved, signed(moved), gone, signed(gone), old, invented, signed(invented)]
        return (liar.membership.me, *kinds[turns % len(kinds)])

    return lie


@pytest.mark.parametrize(("honest", "liars", "lie_s"), [(3, 1, 1.0), pytest.param(11, 5, 60.0, marks=pytest.mark.slow)])
def test_real_members_know_the_truth_of_each_other_among_liars(
    tmp_path: Path, honest: int, liars: int, lie_s: float
) -> None:
    names = [f"m{n}" for n in range(honest + liars)]
    authority = make_federation(tmp_path, *names)

    async def steps() -> None:
        async with members(authority, *names) as everyone:
            true, false = everyone[:honest], everyone[honest:]
            await until(lambda: all(member.sees(*everyone) for member in everyone))
            old = [member.membership.me for member in true]
            for liar in false:
                liar.lie = lies_of(liar, true, old)
            for _ in range(int(lie_s * 5)):
                calls = [_tell(liar, victim) for liar in false for victim in true]
                await asyncio.gather(*calls, return_exceptions=True)
                await asyncio.sleep(0.2)
            assert all(member.membership.forged > 0 for member in true)
            assert all(member.membership.me.incarnation == 1 for member in true)
            await until(lambda: all(member.sees(*true) for member in true), 10.0)
            for member in true:
                known = member.membership.members(_now(), "alive", "suspect", "dropped", "left")
                assert {record.name for record in known} <= set(names)
                assert not [r for r in known if (r.left or r.finished) and r.name in names[:honest]]

    asyncio.run(steps())


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _tell(liar: RealMember, victim: RealMember) -> None:
    assert liar.lie
    await liar.transport.gossip(victim.membership.me.address, victim.name, Table(liar.lie(), room=64))


def test_a_revoked_member_is_forgotten_by_all(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob", "carol")

    async def steps() -> None:
        async with members(authority, "alice", "bob", "carol") as (alice, bob, carol):
            await until(lambda: all(member.sees(alice, bob, carol) for member in (alice, bob, carol)))
            authority.revoke("carol")
            for member in (alice, bob):
                member.own.reload()
            await until(lambda: all(member.membership.find("carol") is None for member in (alice, bob)))
            assert alice.sees(bob)

    asyncio.run(steps())
