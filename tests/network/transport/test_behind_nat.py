# SPDX-License-Identifier: Apache-2.0
"""Members that only call out: over real connections, with a relay that is watched, and one that does harm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pens.network.certificates.authority import Authority
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import (
    Address,
    MemberRecord,
    Parcel,
    Reception,
    Table,
    TransportCounts,
    TransportError,
)
from pens.network.transport.limits import Limits
from pens.network.transport.outward import Ways, attached_address, is_attached
from pens.network.transport.terms import AnyTerms, Terms
from pens.network.transport.tunnel_door import TunnelDoor
from pens.network.transport.tunnels import End, NoTunnel, Pace, Switchboard, TunnelLimits, splice
from tests.network.federations import LOOPBACK, QUICK, NotingInbox, credentials, make_federation

MODEL = os.urandom(1 << 16)
OUTWARD = Ways(reachable=False)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_federation(tmp_path_factory.mktemp("certs"), "alice", "bob", "mallory", "relay")


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


class Said(AnyTerms):
    def __init__(self, relays: bool) -> None:
        self.terms = Terms(relays=relays)


class Member:
    """A member with these ways."""

    def __init__(
        self,
        federation: Authority,
        name: str,
        ways: Ways,
        limits: TunnelLimits | None = None,
        listen: Address = LOOPBACK,
        takes: Limits = QUICK,
    ) -> None:
        own = credentials(federation, name)
        self.transport = GrpcTransport(own, listen, takes, ways=ways, tunnel_limits=limits)
        self.inbox, self.said = NotingInbox(), Said(ways.relay)
        self.record = MemberRecord(name, LOOPBACK, 1, 0)

    async def __aenter__(self) -> Member:
        self.record = replace(self.record, address=await self.transport.start(self.inbox, self.said))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.stop(0)

    async def knows(self, other: Member) -> None:
        assert (await self.transport.gossip(other.record.address, other.record.name, Table())).name == other.record.name

    def attached(self) -> int:
        assert self.transport._attaching
        return len(self.transport._attaching._switchboard._attached)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@asynccontextmanager
async def three(
    federation: Authority, alice: Ways = OUTWARD, limits: TunnelLimits | None = None, takes: Limits = QUICK
) -> AsyncIterator[tuple[Member, Member, Member]]:
    """A relay, bob, who only calls out, and alice; both know the relay."""
    async with (
        Member(federation, "relay", Ways(relay=True), limits, takes=takes) as relay,
        Member(federation, "alice", alice) as a,
        Member(federation, "bob", OUTWARD) as b,
    ):
        await a.knows(relay)
        await b.knows(relay)
        await until(lambda: relay.attached() == 1 + (not alice.reachable))
        yield relay, a, b


def test_a_member_without_a_port_is_sent_models_over_a_connection_that_it_opened(federation: Authority) -> None:
    async def steps() -> None:
        async with Member(federation, "alice", Ways()) as alice, Member(federation, "bob", OUTWARD) as bob:
            assert is_attached(bob.record.address)
            assert bob.record.address == attached_address("bob")
            with pytest.raises(TransportError, match="only calls out: it is not attached to this member, and no relay"):
                await alice.transport.send_model(bob.record, Parcel(1, MODEL))
            assert await bob.transport.send_model(alice.record, Parcel(1, MODEL)) is Reception.TAKEN
            await until(lambda: alice.attached() == 1)
            assert await alice.transport.send_model(bob.record, Parcel(2, MODEL)) is Reception.TAKEN
            await alice.knows(bob)
            assert bob.inbox.models == [("alice", Parcel(2, MODEL))]
            assert alice.inbox.models == [("bob", Parcel(1, MODEL))]
            wrong = replace(bob.record, name="relay")
            with pytest.raises(TransportError, match=r"called relay at .*, but bob answers"):
                await alice.transport.send_model(wrong, Parcel(1, MODEL))

    run(steps())


def test_two_such_members_exchange_through_a_relay_that_sees_ciphertext_only(
    federation: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes that pass the relay are recorded. The marks that are looked for are found at the two ends."""
    passed: list[bytes] = []

    def note(data: bytes) -> bytes:
        passed.append(data)
        return data

    at_the_relay(monkeypatch, note)

    async def steps() -> None:
        async with three(federation) as (relay, alice, bob):
            for sender, receiver in ((alice, bob), (bob, alice)):
                assert await sender.transport.send_model(receiver.record, Parcel(1, MODEL)) is Reception.TAKEN
                assert receiver.inbox.models == [(sender.record.name, Parcel(1, MODEL))]
            assert not relay.inbox.models
            assert relay.transport.traffic.bytes_relayed == sum(map(len, passed))

    run(steps())
    seen = b"".join(passed)
    assert len(seen) > 2 * len(MODEL), "all of it went through the relay"
    assert not any(MODEL[at : at + 16] in seen for at in range(0, len(MODEL) - 16, 16))
    for mark in (b"pens-header-bin", b"Deliver", b"BEGIN CERTIFICATE"):
        assert mark not in seen


def at_the_relay(monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]) -> None:
    """Let all bytes that a server carries between two others go through `change`."""

    class Changed:
        def __init__(self, end: End) -> None:
            self._end = end

        async def read(self) -> bytes:
            data = await self._end.read()
            return change(data) if data else data

        async def write(self, data: bytes) -> None:
            await self._end.write(data)

        def close(self) -> None:
            self._end.close()

    async def changed(one: End, other: End, *more: Any) -> None:
        await splice(Changed(one), Changed(other), *more)

    monkeypatch.setattr("pens.network.transport.grpc_tunnels.splice", changed)


@pytest.mark.parametrize("harm", ["one bit", "an end"])
def test_a_relay_that_changes_or_cuts_is_noticed(
    federation: Authority, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """After some 20,000 bytes in good order: the handshakes are over then, and the model is on its way."""
    carried = [0]

    def change(data: bytes) -> bytes:
        carried[0] += len(data)
        if carried[0] < 20_000:
            return data
        return b"" if harm == "an end" else bytes([data[0] ^ 1]) + data[1:]

    at_the_relay(monkeypatch, change)

    async def steps() -> None:
        async with three(federation) as (_, alice, bob):
            with pytest.raises(TransportError):
                await alice.transport.send_model(bob.record, Parcel(1, MODEL))
            assert not bob.inbox.models
            assert carried[0] > 20_000

    run(steps())


def test_a_relay_that_leads_to_another_member_is_noticed(federation: Authority) -> None:
    async def steps() -> None:
        async with three(federation) as (relay, alice, bob), Member(federation, "mallory", OUTWARD) as mallory:
            await mallory.knows(relay)
            await until(lambda: relay.attached() == 3)
            assert relay.transport._attaching
            attached = relay.transport._attaching._switchboard._attached
            attached[bob.record.address.host] = attached[mallory.record.address.host]
            with pytest.raises(TransportError, match=r"called bob at .*, but mallory answers there"):
                await alice.transport.send_model(bob.record, Parcel(1, MODEL))
            assert not mallory.inbox.models

    run(steps())


def test_who_is_no_relay_carries_nothing_for_others(federation: Authority) -> None:
    async def steps() -> None:
        async with three(federation) as (relay, alice, bob):
            assert relay.transport._attaching
            relay.transport._attaching._switchboard._relay = False
            with pytest.raises(TransportError):
                await alice.transport.send_model(bob.record, Parcel(1, MODEL))
            assert relay.transport.traffic.refusals["no tunnel"] >= 1
            assert await relay.transport.send_model(bob.record, Parcel(2, MODEL)) is Reception.TAKEN  # for itself

    run(steps())


def test_tunnels_use_up_neither_the_calls_nor_the_connections_of_a_member(federation: Authority) -> None:
    """Each of both members has its own calls, an attachment, and two tunnels: one to ask who is there, and one more."""
    takes = replace(QUICK, calls_of_member=2, connections_of_member=2)

    async def steps() -> None:
        async with three(federation, takes=takes) as (relay, alice, bob):
            for sender, receiver in ((alice, bob), (bob, alice)):
                assert await sender.transport.send_model(receiver.record, Parcel(1, MODEL)) is Reception.TAKEN
                await sender.knows(relay)
            assert relay.attached() == 2
            assert not relay.transport.traffic.refusals

    run(steps())


def test_who_attaches_anew_is_attached_once(federation: Authority) -> None:
    async def steps() -> None:
        board = Switchboard("relay", True, TunnelLimits(), TransportCounts(), lambda: 0.0)
        with board.attached("bob") as before, board.attached("bob") as tickets:
            assert await before.get() == b"", "the earlier attachment is over"
            assert tickets.empty()

    run(steps())


def test_connections_that_come_through_tunnels_have_the_bounds_of_others(tmp_path: Path) -> None:
    limits = replace(QUICK, connections_of_member=2, call_s=0.2, bytes_per_minute=600)  # ten bytes a second
    counts = TransportCounts()

    async def steps() -> None:
        seen: list[str] = []

        served = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(f"unix:{writer.get_extra_info('peername')}")  # as gRPC names it
            served.append(writer)
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(serve, tmp_path / "in")
        door = TunnelDoor(limits, counts, lambda: float(len(seen)))
        made = []
        for n in range(3):
            made.append(await door.connect(tmp_path / "in", "relay"))
            while len(seen) <= n:
                await asyncio.sleep(0.005)
            assert door.recognise(seen[n], "alice")
        assert [writer.is_closing() for _, _, writer in made] == [True, False, False]
        assert counts.refusals == {"connections": 1}
        assert door.shown(seen[1]) == "tunnel by relay"
        assert not door.recognise("unix:", "alice")
        door.end(seen[1])
        assert made[1][2].is_closing()
        for name, _, _ in made[:2]:
            door.leave(name)
        assert not door.recognise(seen[1], "alice")

        name, _, _ = made[2]
        assert [door.came(name, 600), door.came(name, 50)] == [0.0, 5.0]
        stranger, _, writer = await door.connect(tmp_path / "in", "relay")
        assert door.came(stranger, 100) == 0.0
        await until(writer.is_closing)
        assert not made[2][2].is_closing()
        made[2][2].close()
        await until(lambda: all(writer.is_closing() for writer in served))
        server.close()
        assert [path.name for path in tmp_path.iterdir()] == ["in"]

    run(steps())


def test_a_reachable_member_finds_the_relay_to_one_that_is_not_attached_to_it(federation: Authority) -> None:
    async def steps() -> None:
        async with three(federation, alice=Ways()) as (relay, alice, bob):
            assert relay.attached() == 1, "who can be called does not attach itself"
            assert await alice.transport.send_model(bob.record, Parcel(1, MODEL)) is Reception.TAKEN
            assert bob.inbox.models == [("alice", Parcel(1, MODEL))]

    run(steps())


def test_who_called_a_member_attaches_anew_when_it_comes_back_with_another_certificate(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")

    async def steps() -> None:
        async with Member(authority, "bob", OUTWARD) as bob:
            async with Member(authority, "alice", Ways()) as alice:
                await bob.knows(alice)
                await until(lambda: alice.attached() == 1)
            authority.issue("alice", force=True)
            async with Member(authority, "alice", Ways(), listen=alice.record.address) as again:
                await bob.knows(again)
                await until(lambda: again.attached() == 1)
                assert await again.transport.send_model(bob.record, Parcel(2, MODEL)) is Reception.TAKEN
            assert bob.transport._attaching
            assert len(bob.transport._attaching._attachments) == 1

    run(steps())


def test_a_relay_that_failed_is_asked_after_the_others(federation: Authority) -> None:
    async def steps() -> None:
        async with three(federation) as (_, alice, bob):
            attaching = alice.transport._attaching
            assert attaching
            host = bob.record.address.host
            good = attaching._relays["relay"]
            liars = [replace(good, name=f"liar-{n}", address=Address("127.0.0.1", 1)) for n in range(3)]
            attaching._relays |= {liar.name: liar for liar in liars}
            assert await alice.transport.send_model(bob.record, Parcel(1, MODEL)) is Reception.TAKEN
            attaching._faults.update(liar.name for liar in liars)
            assert attaching._in_order(host)[0] == good
            attaching._faults["relay"] = 2
            assert attaching._in_order(host)[-1] == good
            assert attaching._in_order(host) != attaching._in_order(alice.record.address.host), "each has its own order"

    run(steps())


def test_calls_go_through_a_proxy(federation: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small HTTP proxy that knows CONNECT alone. It also carries the tunnels of a member that only calls out."""
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    asked: list[str] = []

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[0]
        asked.append(line)
        host, _, port = line.split()[1].rpartition(":")
        far = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                sink.write(data)
            sink.close()

        await asyncio.gather(carry(reader, far[1]), carry(far[0], writer), return_exceptions=True)

    async def steps() -> None:
        proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
        at = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        async with (
            Member(federation, "alice", Ways()) as alice,
            Member(federation, "bob", Ways(reachable=False, proxy=at)) as bob,
        ):
            assert await bob.transport.send_model(alice.record, Parcel(1, MODEL)) is Reception.TAKEN
            await until(lambda: alice.attached() == 1)
            assert await alice.transport.send_model(bob.record, Parcel(2, MODEL)) is Reception.TAKEN
            with pytest.raises(TransportError, match=r"169\.254\.169\.254 is link-local"):
                await bob.transport.gossip(Address("169.254.169.254", 80), None, Table())
        proxy.close()
        assert len(asked) >= 4  # who is there, its certificate, attached, a tunnel
        assert set(asked) == {f"CONNECT {alice.record.address} HTTP/1.1"}

    run(steps())


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_a_pair_may_send_a_minutes_worth_at_once_and_then_waits() -> None:
    pace = Pace(600.0, now=0.0)  # ten bytes a second
    assert pace.wait_s(600, 0.0) == 0.0
    assert pace.wait_s(50, 0.0) == 5.0
    assert pace.wait_s(10, 5.0) == 1.0
    assert pace.wait_s(0, 1000.0) == 0.0
    assert pace.wait_s(601, 1000.0) == pytest.approx(0.1)


class Nothing:
    async def read(self) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_the_switchboard_has_bounds_and_tickets_are_their_members_own() -> None:
    limits = TunnelLimits(attached=2, tunnels=2, tunnels_of_pair=1, tunnels_of_member=1, answer_s=0.01)

    async def steps() -> None:
        board = Switchboard("relay", True, limits, TransportCounts(), lambda: 0.0)
        bob = attached_address("bob").host
        with board.attached("bob") as tickets, board.attached("carol"):
            with pytest.raises(NoTunnel, match="2 members are attached"), board.attached("dave"):
                pass
            with pytest.raises(NoTunnel, match="bob does not answer"):
                async with board.tunnel("alice", bob):
                    pass
            tickets.get_nowait()
            waiting = asyncio.create_task(_first(board, bob))
            ticket = await tickets.get()
            end = Nothing()
            for member, shown in (("mallory", ticket), ("bob", bytes(16))):
                with pytest.raises(NoTunnel, match="nobody waits"):
                    board.answer(member, shown, end)
            board.answer("bob", ticket, end)
            await asyncio.sleep(0)
            with pytest.raises(NoTunnel, match="too many tunnels between alice and bob"):
                async with board.tunnel("alice", bob):
                    pass
            with pytest.raises(NoTunnel, match="too many tunnels between alice and carol, or of alice"):
                async with board.tunnel("alice", attached_address("carol").host):
                    pass
            await waiting
            assert end.closed
        with pytest.raises(NoTunnel, match="not attached"):
            async with board.tunnel("alice", bob):
                pass
        with pytest.raises(NoTunnel, match="no relay"):
            async with Switchboard("x", False, limits, TransportCounts(), lambda: 0.0).tunnel("alice", bob):
                pass

    async def _first(board: Switchboard, host: str) -> None:
        async with board.tunnel("alice", host):
            await asyncio.sleep(0.02)

    run(steps())


def test_a_tunnel_on_which_nothing_moves_ends() -> None:
    class Silent(Nothing):
        async def read(self) -> bytes:
            return bytes(await asyncio.Future())

    run(splice(Silent(), Silent(), idle_s=0.01))


def test_addresses_of_members_that_only_call_out_are_those_of_nobody() -> None:
    assert attached_address("a_b") != attached_address("a-b")
    assert not is_attached(Address("m1.example.org", 1))
