# SPDX-License-Identifier: Apache-2.0
"""Certificates, authorities and revocation lists change over real sockets and TLS, while members go on talking."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pens.network.certificates.authority import Authority
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import Parcel, Reception, Table, TransportError
from pens.network.transport.wire import encode_lists
from tests.network.certificates.test_revocations import signed_list
from tests.network.faults.hostile import SERVICE, channel_to
from tests.network.federations import LOOPBACK, QUICK, NotingInbox, RunningMember, credentials, make_federation, running

from grpc import aio  # isort: skip  # after grpc_transport, which prepares the environment

OFTEN = replace(QUICK, lists_s=0.0)


def run(steps: object) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))  # type: ignore[arg-type]


def keep_lists(authority: Authority, *names: str) -> dict[Path, bytes]:
    """The lists that these members have now: the authority writes newer ones into their folders."""
    paths = [authority.folder / "peers" / name / "revoked.pem" for name in names]
    return {path: path.read_bytes() for path in paths}


async def talk(one: RunningMember, other: RunningMember) -> None:
    """Each sends the other a model over a connection that is made anew if need be."""
    for sender, receiver in ((one, other), (other, one)):
        assert await sender.transport.send_model(receiver.record, Parcel(1, b"x")) is Reception.TAKEN


def test_certificates_change_under_traffic_and_no_model_is_lost(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")

    async def steps() -> None:
        async with running(authority, "alice", "bob") as (alice, bob):
            first = bob.own.identity.serial

            async def send(sender: RunningMember, receiver: RunningMember, count: int) -> None:
                for k in range(count):
                    verdict = await sender.transport.send_model(receiver.record, Parcel(k, bytes(20_000)))
                    assert verdict is Reception.TAKEN
                    await asyncio.sleep(0)

            sending = asyncio.gather(*(send(*pair, 40) for pair in ((alice, bob), (bob, alice)) for _ in range(2)))
            for name, member, least in (("bob", bob, 10), ("alice", alice, 20), ("bob", bob, 40), ("alice", alice, 50)):
                while len(member.inbox.models) < least:
                    await asyncio.sleep(0)
                authority.issue(name, force=True)
                member.own.reload()
                await asyncio.sleep(0.02)
            await sending
            assert [len(member.inbox.models) for member in (alice, bob)] == [80, 80]
            assert bob.own.identity.serial != first
            heard = await alice.transport.gossip(bob.address, "bob", Table())
            assert heard.name == "bob"
            (connection,) = alice.transport._caller._connections.values()  # type: ignore[union-attr]
            assert connection.serial == bob.own.identity.serial, "the server shows its new certificate"

    run(steps())


def test_an_authority_is_replaced_while_old_and_new_members_talk_and_then_the_old_one_is_trusted_no_more(
    tmp_path: Path,
) -> None:
    authority = make_federation(tmp_path, "alice", "bob", "carol")

    async def steps() -> None:
        async with running(authority, "alice", "bob", "carol") as (alice, bob, carol):
            members = (alice, bob, carol)
            await talk(alice, bob)
            authority.rotate()
            alice.own.reload()  # one member trusts both, the others only the old one
            await talk(alice, bob)
            for member in members:
                member.own.reload()
            for name, member in (("alice", alice), ("bob", bob)):
                authority.issue(name, force=True)
                member.own.reload()
                await talk(alice, bob)  # old and old, old and new, new and new
                await talk(bob, carol)
                await talk(alice, carol)
            assert alice.own.identity.serial in {entry.identity.serial for entry in authority.issued()}
            assert authority.finish_rotation(force=True) == ["carol"]
            for member in (alice, bob):
                member.own.reload()
            await talk(alice, bob)
            for call in (
                carol.transport.send_model(alice.record, Parcel(1, b"x")),  # over a connection that is still open
                alice.transport.send_model(carol.record, Parcel(1, b"x")),
            ):
                with pytest.raises(TransportError):
                    await call
            assert alice.transport.traffic.refusals["authority"] == 1
            async with channel_to(alice.address, carol.own) as channel:
                with pytest.raises(aio.AioRpcError, match="UNAVAILABLE"):  # over a new one
                    await channel.unary_unary(f"{SERVICE}/Introduce")(b"")
            authority.issue("carol", force=True)
            carol.own.reload()
            await talk(carol, alice)

    run(steps())


@pytest.mark.parametrize("caller", ["alice", "bob"])
def test_a_list_that_one_member_has_reaches_the_other_whoever_calls(
    tmp_path: Path, caller: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_federation(tmp_path, "alice", "bob", "mallory")

    async def steps() -> None:
        async with running(authority, "alice", "bob", "mallory", limits=OFTEN) as (alice, bob, mallory):
            await mallory.transport.gossip(bob.address, "bob", Table())
            authority.revoke("mallory")
            alice.own.reload()
            one, other = (alice, bob) if caller == "alice" else (bob, alice)
            await one.transport.gossip(other.address, None, Table())
            assert bob.own.is_revoked(mallory.own.identity.serial)
            with pytest.raises(TransportError, match="revoked"):
                await mallory.transport.gossip(bob.address, "bob", Table())
            assert bob.own.lists.pem == alice.own.lists.pem

    with caplog.at_level(logging.INFO, "pens.network"):
        run(steps())
    assert sum("newer revocation list" in record.getMessage() for record in caplog.records) == 1


def test_members_that_trust_another_set_of_authorities_exchange_the_lists_of_those_they_share(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")

    async def steps() -> None:
        async with running(authority, "alice", "bob", limits=OFTEN) as (alice, bob):
            authority.rotate()
            alice.own.reload()
            for one, other in ((alice, bob), (bob, alice)):
                await one.transport.gossip(other.address, None, Table())
            assert [len(member.own.wanted_lists()) for member in (alice, bob)] == [2, 1]
            (old,) = bob.own.wanted_lists()
            assert alice.own.lists.number(old) == bob.own.lists.number(old) > 0
            assert not alice.transport.traffic.refusals + bob.transport.traffic.refusals

    run(steps())


def test_a_member_that_is_away_keeps_no_list_from_the_next_one_that_is_called(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob", "carol")

    async def steps() -> None:
        now = [0.0]
        own = credentials(authority, "alice")
        alice = GrpcTransport(own, LOOPBACK, replace(QUICK, lists_s=30.0), clock=lambda: now[0])
        await alice.start(NotingInbox())
        async with running(authority, "carol") as (carol,):
            async with running(authority, "bob") as (bob,):
                await alice.gossip(bob.address, "bob", Table())
            await asyncio.sleep(0)
            authority.refresh()
            carol.own.reload()
            before = own.lists.pem
            await alice.gossip(carol.address, "carol", Table())
            assert own.lists.pem == before, "it asks no sooner than 30 s after it asked bob"
            now[0] = 31.0
            with pytest.raises(TransportError):
                await alice.gossip(bob.address, "bob", Table())
            await alice.gossip(carol.address, "carol", Table())
            assert own.lists.pem == carol.own.lists.pem != before
        await alice.stop(0)

    run(steps())


def test_lists_that_no_authority_signed_are_refused_and_counted(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "ours", "alice", "mallory")
    others = make_federation(tmp_path / "theirs")
    end = datetime.now(UTC) + timedelta(days=1)

    async def steps() -> None:
        async with running(authority, "alice", "mallory") as (alice, mallory):
            before = alice.own.lists.pem
            forged = signed_list(others, 1 << 40, end, [alice.own.identity.serial])
            async with channel_to(alice.address, mallory.own) as channel:
                for bad in (
                    encode_lists({}, [forged]),
                    encode_lists({}, [forged] * 5),
                    b"\xff",
                    encode_lists({b"k": 1}, []),
                ):
                    with pytest.raises(aio.AioRpcError, match="INVALID_ARGUMENT"):
                        await channel.unary_unary(f"{SERVICE}/Lists")(bad)
            assert alice.transport.traffic.refusals == {"malformed": 4}
            assert alice.own.lists.pem == before

    run(steps())


def test_where_no_list_may_be_too_old_only_lists_are_exchanged_until_there_is_a_newer_one(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")
    ended = signed_list(authority, 1 << 40, datetime.now(UTC) - timedelta(days=3), [])

    async def steps() -> None:
        async with running(authority, "alice", "bob", limits=OFTEN) as (alice, bob):
            for member in (alice, bob):
                member.own.receive_list(ended, "list")
            alice.own.list_grace = timedelta(days=2)
            with pytest.raises(TransportError, match="no revocation list here is up to date"):
                await alice.transport.gossip(bob.address, "bob", Table())
            with pytest.raises(TransportError, match=r"revocation list of .* ended on"):
                await bob.transport.gossip(alice.address, "alice", Table())
            with pytest.raises(TransportError, match="no revocation list here is up to date"):
                await alice.transport.send_model(bob.record, Parcel(1, b"x"))
            assert not bob.inbox.tables + alice.inbox.tables
            bob.own.receive_list(signed_list(authority, 1 << 41, datetime.now(UTC) + timedelta(days=1), []), "list")
            await bob.transport.gossip(alice.address, "alice", Table())
            await talk(alice, bob)

    run(steps())
