# SPDX-License-Identifier: Apache-2.0
"""Members compare terms over real connections; versions of pens beside each other: the last one, and one to come."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.network.certificates.authority import Authority
from pens.network.members.agreement import Agreement, Heard
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Table, TransportError
from pens.network.transport.terms import Part, Terms
from pens.network.transport.versions import Range
from pens.network.transport.wire import WireError, decode_terms, encode_terms
from tests.network.federations import LOOPBACK, QUICK, NotingInbox, credentials, make_federation
from tests.network.old_member import message, old_member

from grpc import aio  # isort: skip  # after grpc_transport, which prepares the environment

TERMS = Terms(parts=(Part.of("outputs", ["well", "ill"]),), sends="int8", software="1.2")
OTHER = replace(TERMS, parts=(Part.of("outputs", ["ill", "well"]),))
FUTURE = replace(TERMS, versions=Range(8, 9))


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_federation(tmp_path_factory.mktemp("certs"), "alice", "bob")


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


class Member:
    """A member that compares terms."""

    def __init__(self, federation: Authority, name: str, terms: Terms) -> None:
        self.transport, self.inbox = GrpcTransport(credentials(federation, name), LOOPBACK, QUICK), NotingInbox()
        self.name, self.heard = name, list[Heard]()
        self.agreement = Agreement(terms, self.heard.append)
        self.record = MemberRecord(name, LOOPBACK, 1, 0)

    async def __aenter__(self) -> Member:
        address = await self.transport.start(self.inbox, self.agreement)
        self.record = replace(self.record, address=address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.stop(0)


def test_members_that_do_not_fit_both_know_why_and_send_no_byte_of_a_model(federation: Authority) -> None:
    async def steps() -> None:
        async with Member(federation, "alice", TERMS) as alice, Member(federation, "bob", OTHER) as bob:
            assert await alice.transport.send_model(bob.record, Parcel(1, b"x")) is Reception.OTHER_NETWORK
            assert alice.heard == [Heard("bob", "outputs: 'well' here, 'ill' there", None, False)]
            assert bob.heard == [Heard("alice", "outputs: 'ill' here, 'well' there", None, False)]
            assert (bob.inbox.models, alice.transport.traffic.bytes_out) == ([], 0)
            assert (await alice.transport.gossip(bob.record.address, "bob", Table())).name == "bob"

    run(steps())


def test_a_member_of_version_1_is_refused_in_words_in_both_directions(federation: Authority) -> None:
    """Its records are not signed, so that nobody would believe what it tells of members, itself included."""

    async def steps() -> None:
        async with Member(federation, "alice", TERMS) as alice, old_member(credentials(federation, "bob")) as bob:
            bobs = MemberRecord("bob", Address("127.0.0.1", bob.port), 1, 5)
            why = (
                "it understands version 1 of the protocol, this member version 2, and version 1 has no signed "
                "membership records: install a newer version of pens on its machine"
            )
            for call in (
                alice.transport.send_model(bobs, Parcel(1, b"a model")),
                alice.transport.gossip(bobs.address, "bob", Table((alice.record,))),
            ):
                with pytest.raises(TransportError, match=f"bob at .*: {why}"):
                    await call
            assert (bob.models, bob.tables) == ([], [])
            assert alice.heard == [Heard("bob", f"protocol: {why}", None, False)] * 2
            assert alice.agreement.versions("bob") == Range(1, 1)

            alices = alice.record.address, credentials(federation, "alice")
            header = message("Header", version=7, size=3).SerializeToString()
            with pytest.raises(aio.AioRpcError, match=f"refused bob: {why}"):
                await bob.call(*alices, "Exchange", message("Table", records=[bob.record]))
            piece = message("Piece", payload=b"abc")
            with pytest.raises((aio.AioRpcError, AssertionError), match=f"refused bob: {why}"):
                await bob.call(*alices, "Deliver", piece, metadata=(("pens-header-bin", header),))
            assert (alice.inbox.models, alice.inbox.tables) == ([], [])

    run(steps())


def test_an_unknown_version_is_refused_in_words_on_both_sides(federation: Authority) -> None:
    async def steps() -> None:
        async with Member(federation, "alice", TERMS) as alice, Member(federation, "bob", FUTURE) as bob:
            for call in (
                alice.transport.gossip(bob.record.address, "bob", Table()),
                alice.transport.send_model(bob.record, Parcel(1, b"x")),
            ):
                with pytest.raises(
                    TransportError, match=r"bob at .* understands versions 8 to 9 of the protocol, this"
                ):
                    await call
            with pytest.raises(
                TransportError, match=r"version 2 of the .* install a newer version of pens on its machine"
            ):
                await bob.transport.gossip(alice.record.address, "alice", Table())
            assert not any((alice.inbox.tables, bob.inbox.tables, alice.inbox.models, bob.inbox.models))
            assert alice.transport.traffic.refusals["protocol version"] == 2
            assert "install a newer version of pens on this machine" in str(alice.heard[0].why)

    run(steps())


def test_a_member_that_was_started_again_is_told_the_terms_anew(tmp_path: Path) -> None:
    """It would otherwise take a caller over a connection of before for one of version 1, and refuse it."""
    authority = make_federation(tmp_path, "alice", "bob")

    async def steps() -> None:
        async with Member(authority, "alice", TERMS) as alice, Member(authority, "bob", TERMS) as bob:
            assert await alice.transport.send_model(bob.record, Parcel(1, b"x")) is Reception.TAKEN
            bob.agreement._versions.clear()  # as if it had lived anew while gRPC connected again by itself
            assert await alice.transport.send_model(bob.record, Parcel(2, b"x")) is Reception.TAKEN
            assert (await alice.transport.gossip(bob.record.address, "bob", Table())).name == "bob"
            assert len(alice.heard) == 2

    run(steps())


def test_terms_survive_the_wire() -> None:
    assert decode_terms(encode_terms(TERMS)) == TERMS
    assert decode_terms(encode_terms(replace(FUTURE, trial=True))) == replace(FUTURE, trial=True)


@given(st.binary(max_size=300))
def test_any_bytes_are_terms_or_a_wire_error(data: bytes) -> None:
    try:
        terms = decode_terms(data)
    except WireError:
        return
    assert 0 < terms.versions.oldest <= terms.versions.newest


@pytest.mark.parametrize(
    "terms",
    [
        replace(TERMS, versions=Range(2, 1)),
        replace(TERMS, versions=Range(0, 1)),
        replace(TERMS, parts=TERMS.parts * 33),
        replace(TERMS, reads=("x",) * 17),
        replace(TERMS, parts=(Part("task", b"short", ()),)),
        replace(TERMS, software="x" * (1 << 19)),
    ],
)
def test_terms_out_of_bounds_are_refused(terms: Terms) -> None:
    with pytest.raises(WireError):
        decode_terms(encode_terms(terms))
