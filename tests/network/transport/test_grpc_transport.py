# SPDX-License-Identifier: Apache-2.0
"""Members over real sockets and TLS: what is sent arrives, who sent it is certain, and what we hold is bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import Credentials
from pens.network.certificates.names import ANY_MEMBER
from pens.network.transport.grpc_transport import GrpcTransport, Limits
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Table, TransportError
from pens.network.transport.wire import (
    HEADER,
    Header,
    decode_receipt,
    encode_claim,
    encode_header,
    encode_piece,
    encode_table,
)
from tests.network.federations import (
    LOOPBACK,
    QUICK,
    NotingInbox,
    RunningMember,
    credentials,
    make_federation,
    running,
)

import grpc  # isort: skip  # after grpc_transport, which prepares the environment
from grpc import aio  # isort: skip

SERVICE = "/pens.v1.Member"
SMALL_PIECES = replace(QUICK, piece_bytes=1 << 14)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_federation(tmp_path_factory.mktemp("certs"), "alice", "bob", "mallory")


def run(steps: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(120):
            await steps

    asyncio.run(in_time())


# --- among friends ----------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 200_000) | st.sampled_from([1 << 14, (1 << 14) + 1, 1 << 15]), max_size=4))
def test_models_arrive_unchanged_and_in_the_senders_name(federation: Authority, sizes: list[int]) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "bob", limits=SMALL_PIECES) as (alice, bob):
            parcels = [Parcel(2**63 + size, (b"%d," % size * size)[:size]) for size in sizes]
            for parcel in parcels:
                assert await alice.transport.send_model(bob.record, parcel) is Reception.TAKEN
            assert bob.inbox.models == [("alice", parcel) for parcel in parcels]
            assert alice.transport.traffic.bytes_out == bob.transport.traffic.bytes_in == sum(sizes)
            assert alice.transport.traffic.models_out == bob.transport.traffic.models_in == len(sizes)

    run(steps())


def test_tables_are_exchanged_and_each_side_knows_the_other_by_its_certificate(federation: Authority) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "bob") as (alice, bob):
            carol = MemberRecord("carol", Address("::1", 7), 3, 4, True, serial=5, signature=b"hers")
            bob.inbox.answer = Table((carol, bob.record), wanted=(1 << 150,), certificates=(b"some",), room=3)
            for name in (None, "bob"):
                heard = await alice.transport.gossip(
                    bob.address, name, Table((replace(alice.record, name="somebody"),))
                )
                assert (heard.name, heard.table) == ("bob", bob.inbox.answer)
            assert {sender for sender, _ in bob.inbox.tables} == {"alice"}

    run(steps())


def test_many_models_at_once_in_both_directions(federation: Authority) -> None:
    async def steps() -> None:
        names = ("alice", "bob", "mallory")
        async with running(federation, *names, limits=replace(QUICK, connections=1, attempts=50)) as members:
            pairs = [(one, other) for one in members for other in members if one is not other]
            sent = [one.transport.send_model(other.record, Parcel(1, bytes(300_000))) for one, other in pairs * 3]
            assert await asyncio.gather(*sent) == [Reception.TAKEN] * len(sent)
            for member in members:
                others = [name for name in names if name != member.record.name]
                assert sorted(sender for sender, _ in member.inbox.models) == sorted(others * 3)

    run(steps())


def test_who_is_not_there_is_tried_again_and_welcomed_back_with_a_new_certificate(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")

    async def steps() -> None:
        async with running(authority, "alice") as (alice,):
            async with running(authority, "bob") as (bob,):
                assert await alice.transport.send_model(bob.record, Parcel(1, b"x")) is Reception.TAKEN
            with pytest.raises(TransportError, match="4 attempts"):
                await alice.transport.send_model(bob.record, Parcel(2, b"x"))
            authority.issue("bob", force=True)
            async with running(authority, "bob", listen=bob.address) as (again,):
                assert await alice.transport.send_model(bob.record, Parcel(3, b"x")) is Reception.TAKEN
                assert again.inbox.models == [("alice", Parcel(3, b"x"))]

    run(steps())


def test_a_member_that_changes_its_certificate_between_two_calls_is_asked_anew(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")

    async def steps() -> None:
        async with running(authority, "alice") as (alice,):
            async with running(authority, "bob") as (bob,):
                await alice.transport.gossip(bob.address, "bob", Table())
            authority.issue("bob", force=True)
            async with running(authority, "bob", listen=bob.address):
                assert (await alice.transport.gossip(bob.address, "bob", Table())).name == "bob"

    run(steps())


def test_a_receiver_that_ends_in_the_middle_of_a_model_is_an_error(federation: Authority) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "bob") as (alice, bob):
            ends: list[asyncio.Task[None]] = []

            def end(sender: str, size: int) -> Reception:
                ends.append(asyncio.create_task(bob.transport.stop(0)))
                return Reception.TAKEN

            bob.inbox.will = end
            with pytest.raises(TransportError):
                await alice.transport.send_model(bob.record, Parcel(1, bytes(50_000_000)))
            await asyncio.gather(*ends)
            assert not bob.inbox.models

    run(steps())


def test_a_sender_that_stops_in_the_middle_of_a_model_says_so(federation: Authority) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "bob") as (alice, bob):
            begun = asyncio.Event()

            async def never(sender: str, parcel: Parcel) -> Reception:
                begun.set()
                return await asyncio.Future()

            bob.inbox.take_model = never  # type: ignore[method-assign]
            sending = asyncio.create_task(alice.transport.send_model(bob.record, Parcel(1, b"x")))
            await begun.wait()
            await alice.transport.stop(0)
            with pytest.raises(TransportError, match="this member closed the connection"):
                await sending

    run(steps())


def test_a_port_in_use_is_an_error(federation: Authority) -> None:
    async def steps() -> None:
        async with running(federation, "alice") as (alice,):
            second = GrpcTransport(credentials(federation, "bob"), alice.address)
            with pytest.raises(TransportError, match="cannot listen"):
                await second.start(NotingInbox())
            with pytest.raises(TransportError, match="not started"):
                await second.gossip(alice.address, None, Table())

    run(steps())


# --- who is who -------------------------------------------------------------------------------------------------------


def test_the_wrong_member_gets_no_model_and_no_table(federation: Authority) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "mallory") as (alice, mallory):
            for name in ("bob", "alice"):
                with pytest.raises(TransportError, match=f"called {name} at .*, but mallory answers"):
                    await alice.transport.send_model(replace(mallory.record, name=name), Parcel(1, b"x"))
                with pytest.raises(TransportError, match="mallory answers"):
                    await alice.transport.gossip(mallory.address, name, Table())
            assert not mallory.inbox.models
            assert not mallory.inbox.tables

    run(steps())


def test_connections_that_are_used_again_outlast_those_of_single_calls(tmp_path: Path) -> None:
    """Two are kept: bob is called twice, then carol and dave once each. Carol's makes way, and bob's stays."""
    federation = make_federation(tmp_path, "alice", "bob", "carol", "dave")

    async def steps() -> None:
        limits = replace(QUICK, connections=2)
        async with running(federation, "alice", "bob", "carol", "dave", limits=limits) as (alice, *others):
            bob, carol, dave = others
            for called in (bob, bob, carol, dave):
                await alice.transport.gossip(called.address, None, Table())
            caller = alice.transport._caller
            assert caller
            assert {c.name for c in caller._connections.values()} == {"bob", "dave"}

    run(steps())


def test_a_member_that_claims_anothers_certificate_hears_nothing(federation: Authority) -> None:
    bob = credentials(federation, "bob").identity
    heard: list[bytes] = []

    async def note(request: bytes, context: Any) -> bytes:
        heard.append(request)
        return b""

    async def lie(request: bytes, context: Any) -> bytes:
        return encode_claim("bob", bob.serial)

    async def steps() -> None:
        methods = {
            name: grpc.unary_unary_rpc_method_handler(how) for name, how in {"Introduce": lie, "Exchange": note}.items()
        }
        async with (
            listening(credentials(federation, "mallory"), methods) as address,
            running(federation, "alice") as (alice,),
        ):
            for name in (None, "bob"):
                with pytest.raises(TransportError):
                    await alice.transport.gossip(address, name, Table((alice.record,)))
        assert not heard

    run(steps())


def test_the_revoked_are_turned_away_at_once_by_whoever_knows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = make_federation(tmp_path, "alice", "mallory")

    async def steps() -> None:
        async with running(authority, "alice", "mallory") as (alice, mallory):
            await mallory.transport.gossip(alice.address, "alice", Table())
            await alice.transport.gossip(mallory.address, "mallory", Table())
            known = (authority.folder / "peers" / "mallory" / "revoked.pem").read_bytes()
            authority.revoke("mallory")
            (authority.folder / "peers" / "mallory" / "revoked.pem").write_bytes(known)
            alice.own.reload()
            with pytest.raises(TransportError, match="revoked"):
                await mallory.transport.gossip(alice.address, "alice", Table())
            with pytest.raises(TransportError, match="revoked"):
                await mallory.transport.send_model(alice.record, Parcel(1, b"x"))
            assert alice.transport.traffic.refusals["revoked"] == 2
            for call in (
                alice.transport.gossip(mallory.address, "mallory", Table()),
                alice.transport.send_model(mallory.record, Parcel(1, b"x")),
            ):
                with pytest.raises(TransportError, match="revoked"):
                    await call
            assert [len(alice.inbox.tables), len(mallory.inbox.tables), len(mallory.inbox.models)] == [1, 1, 0]

    with caplog.at_level(logging.WARNING, "pens.network"):
        run(steps())
    assert sum("mallory has been revoked" in record.getMessage() for record in caplog.records) == 4


def test_a_certificate_that_ends_while_connected_is_turned_away(
    federation: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "bob") as (alice, bob):
            await alice.transport.gossip(bob.address, "bob", Table())
            ended = replace(credentials(federation, "alice").identity, not_after=datetime.now(UTC))
            monkeypatch.setattr("pens.network.certificates.credentials.identity_in", lambda certificate: ended)
            with pytest.raises(TransportError, match="has ended"):
                await alice.transport.gossip(bob.address, "bob", Table())
            assert bob.transport.traffic.refusals == {"expired": 1}
            assert len(bob.inbox.tables) == 1

    run(steps())


def test_other_federations_members_are_not_talked_to(tmp_path: Path, federation: Authority) -> None:
    others = make_federation(tmp_path, "bob")

    async def steps() -> None:
        async with running(federation, "alice") as (alice,), running(others, "bob") as (bob,):
            for caller, called in ((alice, bob), (bob, alice)):
                with pytest.raises(TransportError):
                    await caller.transport.gossip(called.address, None, Table())
                assert not called.inbox.tables

    run(steps())


# --- back-pressure ----------------------------------------------------------------------------------------------------


def test_who_is_busy_is_asked_again_and_who_refuses_is_not(federation: Authority) -> None:
    async def steps() -> None:
        async with running(federation, "alice", "bob") as (alice, bob):
            answers = iter([Reception.BUSY, Reception.BUSY, Reception.TAKEN, Reception.REFUSED])
            bob.inbox.will = lambda sender, size: next(answers)
            assert await alice.transport.send_model(bob.record, Parcel(1, bytes(10**6))) is Reception.TAKEN
            assert await alice.transport.send_model(bob.record, Parcel(2, bytes(10**6))) is Reception.REFUSED
            bob.inbox.will = lambda sender, size: Reception.BUSY
            assert await alice.transport.send_model(bob.record, Parcel(3, bytes(10**6))) is Reception.BUSY
            assert [parcel.version for _, parcel in bob.inbox.models] == [1]

    run(steps())


def test_a_sender_above_its_rate_is_refused(federation: Authority) -> None:
    async def steps() -> None:
        limits = replace(QUICK, models_per_s=1e-9, burst_models=2)
        async with running(federation, "alice", "mallory", "bob", limits=limits) as (alice, mallory, bob):
            verdicts = [await mallory.transport.send_model(bob.record, Parcel(k, b"x")) for k in range(4)]
            assert verdicts == [Reception.TAKEN, Reception.TAKEN, Reception.REFUSED, Reception.REFUSED]
            assert await alice.transport.send_model(bob.record, Parcel(9, b"x")) is Reception.TAKEN
            assert bob.transport.traffic.refusals["rate"] == 2

    run(steps())


# --- a hostile member: its certificate is good, its words are not -----------------------------------------------------


@asynccontextmanager
async def listening(own: Credentials, methods: dict[str, Any]) -> AsyncIterator[Address]:
    """A server that answers as it likes."""
    server = aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pens.v1.Member", methods),))
    tls = grpc.ssl_server_credentials([(own.key_pem, own.certificate_pem)], own.authority_pem, require_client_auth=True)
    port = server.add_secure_port(str(LOOPBACK), tls)
    await server.start()
    yield Address("127.0.0.1", port)
    await server.stop(0)


@asynccontextmanager
async def hostile(authority: Authority, limits: Limits = QUICK) -> AsyncIterator[tuple[Any, RunningMember]]:
    """A raw channel of mallory's to bob."""
    async with running(authority, "bob", limits=limits) as (bob,), hostile_channel(authority, bob.address) as channel:
        yield channel, bob


def hostile_channel(authority: Authority, to: Address) -> Any:
    own = credentials(authority, "mallory")
    tls = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
    options = [("grpc.ssl_target_name_override", ANY_MEMBER), ("grpc.use_local_subchannel_pool", 1)]
    return aio.secure_channel(str(to), tls, options=options)


def deliver(channel: Any, size: int) -> Any:
    return channel.stream_stream(f"{SERVICE}/Deliver")(metadata=((HEADER, encode_header(Header(1, size))),))


async def started(call: Any, receiver: RunningMember) -> None:
    """Wait until the receiver has let a model begin."""
    begun = asyncio.Event()

    def will(sender: str, size: int) -> Reception:
        begun.set()
        return Reception.TAKEN

    receiver.inbox.will = will
    await call.wait_for_connection()
    await begun.wait()


async def write_all(call: Any, count: int, piece: bytes) -> None:
    for _ in range(count):
        await call.write(encode_piece(memoryview(piece)))


@pytest.mark.parametrize(("announced", "count", "piece"), [(10, 40, bytes(1 << 18)), (10**6, 1, b"x"), (5, 0, b"")])
def test_more_or_fewer_bytes_than_announced(federation: Authority, announced: int, count: int, piece: bytes) -> None:
    async def steps() -> None:
        async with hostile(federation) as (channel, bob):
            call = deliver(channel, announced)
            await write_all(call, count, piece)
            await call.done_writing()
            assert decode_receipt(await call.read()) is Reception.REFUSED
            assert bob.transport.traffic.refusals["malformed"] == 1
            assert bob.transport.traffic.bytes_in <= announced
            assert not bob.inbox.models

    run(steps())


@pytest.mark.parametrize("metadata", [(), ((HEADER, b"\xff"),), ((HEADER, b""),) * 2, ((HEADER, b""),)])
def test_models_without_a_proper_header(federation: Authority, metadata: tuple[tuple[str, bytes], ...]) -> None:
    async def steps() -> None:
        async with hostile(federation) as (channel, bob):
            call = channel.stream_stream(f"{SERVICE}/Deliver")(metadata=metadata)
            await call.done_writing()
            assert decode_receipt(await call.read()) is Reception.REFUSED
            assert not bob.inbox.models

    run(steps())


def test_a_sender_that_stalls_is_cut_off_and_its_place_is_free_again(federation: Authority) -> None:
    async def steps() -> None:
        limits = replace(QUICK, call_s=0.2, min_bytes_per_s=1e9, receiving_bytes=10**6)
        async with hostile(federation, limits) as (channel, bob):
            stalled = deliver(channel, 10**6)
            await write_all(stalled, 1, bytes(1000))
            assert await stalled.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert bob.transport.traffic.refusals["slow"] == 1
            call = deliver(channel, 10**6)
            await write_all(call, 10, bytes(10**5))
            await call.done_writing()
            assert decode_receipt(await call.read()) is Reception.TAKEN

    run(steps())


def test_who_goes_on_sending_after_a_refusal_is_cut_off(federation: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pens.network.transport.grpc_server._REST_S", 0.2)

    async def steps() -> None:
        async with hostile(federation) as (channel, bob):
            call = deliver(channel, 10)
            with pytest.raises((aio.AioRpcError, asyncio.InvalidStateError)):
                await write_all(call, 10**6, bytes(1 << 16))
            assert not bob.inbox.models

    run(steps())


def test_one_model_of_a_sender_at_a_time_and_a_bounded_sum_of_all(federation: Authority) -> None:
    async def steps() -> None:
        limits = replace(QUICK, receiving_bytes=1000)
        async with hostile(federation, limits) as (channel, bob), running(federation, "alice") as (alice,):
            open_call = deliver(channel, 900)
            await started(open_call, bob)
            second = deliver(channel, 10)
            assert decode_receipt(await second.read()) is Reception.BUSY
            assert await alice.transport.send_model(bob.record, Parcel(1, bytes(200))) is Reception.BUSY
            assert await alice.transport.send_model(bob.record, Parcel(1, bytes(100))) is Reception.TAKEN
            open_call.cancel()
            while await alice.transport.send_model(bob.record, Parcel(1, bytes(901))) is Reception.BUSY:
                pass

    run(steps())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.binary(max_size=200), min_size=1, max_size=10))
def test_nonsense_in_every_call(federation: Authority, requests: list[bytes]) -> None:
    async def steps() -> None:
        async with hostile(federation) as (channel, bob):
            for request, method in product(requests, ("Introduce", "Exchange", "Nothing", "Deliver")):
                code = await channel.unary_unary(f"{SERVICE}/{method}")(request).code()
                assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE)
            assert not bob.inbox.models
            assert (await channel.unary_unary(f"{SERVICE}/Exchange")(encode_table(Table((bob.record,))))) == b""

    run(steps())


def test_a_compressed_message_is_not_unpacked(federation: Authority) -> None:
    async def steps() -> None:
        async with hostile(federation) as (channel, bob):
            request = encode_table(Table((bob.record,) * 1000))
            call = channel.unary_unary(f"{SERVICE}/Exchange")(request, compression=grpc.Compression.Gzip)
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert not bob.inbox.tables

    run(steps())


def test_a_member_has_a_bounded_number_of_calls_and_others_have_theirs(federation: Authority) -> None:
    async def steps() -> None:
        limits = replace(QUICK, calls_of_member=2)
        async with hostile(federation, limits) as (channel, bob), running(federation, "alice") as (alice,):
            first = deliver(channel, 10)
            await started(first, bob)
            async with hostile_channel(federation, bob.address) as more:
                second = deliver(more, 10)
                assert decode_receipt(await second.read()) is Reception.BUSY
                assert await deliver(more, 10).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert bob.transport.traffic.refusals["calls"] == 1
                assert (await alice.transport.gossip(bob.address, "bob", Table())).name == "bob"

    run(steps())


def test_a_message_above_the_bound_is_not_read(federation: Authority) -> None:
    async def steps() -> None:
        async with hostile(federation) as (channel, bob):
            with pytest.raises(aio.AioRpcError) as error:
                await channel.unary_unary(f"{SERVICE}/Exchange")(bytes(4 << 20))
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert not bob.inbox.tables

    run(steps())
