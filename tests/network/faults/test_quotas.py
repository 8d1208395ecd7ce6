# SPDX-License-Identifier: Apache-2.0
"""One certificate against the quotas that each has: connections, calls, memory, lines of log, turns of the sender."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pens.network.certificates.authority import Authority
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Table, TransportError
from pens.network.transport.limits import Limits
from pens.network.transport.wire import encode_claim
from tests.network.faults.harness import Site, memory_bytes
from tests.network.faults.harness import running as site_running
from tests.network.faults.hostile import SERVICE, channel_to, hoard, hoards, tell
from tests.network.federations import QUICK, credentials, make_federation, running
from tests.network.transport.test_grpc_transport import listening

import grpc  # isort: skip  # after the transport, which prepares the environment
from grpc import aio  # isort: skip

MAY_GROW = 256 << 20
"""What SECURITY.md says one certificate can make a peer hold beyond what it needs."""
SLOW = ("slow-1", "slow-2")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_federation(tmp_path_factory.mktemp("certs"), "alice", "bob", "mallory", *SLOW)


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


def test_one_certificate_cannot_hold_the_connections(federation: Authority) -> None:
    """Of sixteen connections of one certificate four stay open, and a newcomer gets in at once."""

    async def steps() -> None:
        limits = replace(QUICK, incoming_connections=8, connections_of_member=4)
        async with (
            running(federation, "bob", limits=limits) as (bob,),
            running(federation, "alice") as (alice,),
            AsyncExitStack() as stack,
        ):
            mallory = credentials(federation, "mallory")
            for _ in range(16):
                assert await tell(await stack.enter_async_context(channel_to(bob.address, mallory)), []) == "OK"
            assert bob.transport.traffic.refusals["connections"] == 12
            assert (await alice.transport.gossip(bob.address, "bob", Table())).name == "bob"
            assert bob.transport.traffic.refusals["connections"] == 12

    run(steps())


def test_answers_that_are_not_taken_end_the_connection(federation: Authority) -> None:
    """A caller that grants no window for the answer would hold its call until the connection is an hour old."""

    async def steps() -> None:
        async with running(federation, "bob", limits=replace(QUICK, call_s=0.3)) as (bob,):
            long = MemberRecord("m" + "x" * 40, bob.address, 1, 1, signature=b"x" * 700)
            bob.inbox.answer = Table((long,) * 128)
            own = credentials(federation, "mallory")
            tls = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
            options = [("grpc.ssl_target_name_override", "member.pens.internal"), ("grpc.http2.bdp_probe", 0)]
            async with aio.secure_channel(str(bob.address), tls, options=options) as channel:
                call = channel.stream_stream(f"{SERVICE}/Exchange")()
                await call.write(b"")
                await call.done_writing()
                while not bob.transport.traffic.refusals["slow"]:
                    await asyncio.sleep(0.02)
                assert await call.code() is grpc.StatusCode.UNAVAILABLE

    run(steps())


def test_slow_receivers_delay_each_other_and_nobody_else(federation: Authority) -> None:
    async def steps() -> None:
        limits = replace(QUICK, sends=2, slow_sends=1, call_s=0.3, min_bytes_per_s=1e9)
        async with running(federation, "alice", limits=limits) as (alice,), running(federation, "bob", *SLOW) as others:
            bob, *slow = others
            for member in slow:
                member.inbox.take_model = _never  # type: ignore[method-assign]
            parcel = Parcel(1, b"x")
            for _ in range(2):
                sends = [asyncio.create_task(alice.transport.send_model(m.record, parcel)) for m in slow]
                await asyncio.sleep(0)
                assert await alice.transport.send_model(bob.record, parcel) is Reception.TAKEN
                ended = [send.done() for send in sends]
                for send in sends:
                    with pytest.raises(TransportError, match=r"too slowly|Deadline"):
                        await send
            assert ended == [False, False], "the second time, the turns of others were free"

    run(steps())


def test_a_receiver_that_stalls_is_left_long_before_the_deadline_of_a_large_model(federation: Authority) -> None:
    """50 MB may take 500 s at the lowest rate, but no piece of 16 kB more than half a second."""

    async def ignore(requests: Any, context: Any) -> None:
        await asyncio.sleep(60)

    async def claim(request: bytes, context: Any) -> bytes:
        return encode_claim(own.identity.name, own.identity.serial)

    own = credentials(federation, "mallory")
    methods = {
        "Introduce": grpc.unary_unary_rpc_method_handler(claim),
        "Deliver": grpc.stream_stream_rpc_method_handler(ignore),
    }

    async def steps() -> None:
        limits = replace(QUICK, call_s=0.3, min_bytes_per_s=1e5, piece_bytes=1 << 14)
        async with listening(own, methods) as address, running(federation, "alice", limits=limits) as (alice,):
            with pytest.raises(TransportError, match="mallory takes or answers models too slowly"):
                await alice.transport.send_model(MemberRecord("mallory", address, 1, 1), Parcel(1, bytes(50_000_000)))

    run(steps())


# --- memory -----------------------------------------------------------------------------------------------------------


class Watch:
    """The most memory that a process held while the block lasted, beyond what it held before."""

    def __init__(self, memory_bytes: Callable[[], int]) -> None:
        self._memory_bytes, self._over = memory_bytes, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._before = self._most = self._memory_bytes()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self._most = max(self._most, self._memory_bytes())

    @property
    def grew(self) -> int:
        return self._most - self._before


def test_one_certificate_fills_little_memory(federation: Authority) -> None:
    """The cheap form of the test below: a member without a node, a moment of three attacks."""
    listener = [sys.executable, "-m", "tests.network.transport.listener", str(federation.folder / "peers" / "bob")]
    with subprocess.Popen(listener, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bob:
        assert bob.stdout
        address = Address("127.0.0.1", int(bob.stdout.readline()))
        with Watch(lambda: memory_bytes(bob.pid)) as watch:
            for what in ("a long name", "empty records", "pieces of a model"):
                seen = asyncio.run(hoard(address, credentials(federation, "mallory"), 16, 16, what, 0.25))
                assert seen.total() > 16, "the attack took place"
        bob.communicate()
    assert watch.grew < MAY_GROW


@pytest.mark.slow
def test_memory_and_log_are_bounded_under_every_attack(tmp_path: Path) -> None:
    site = Site(tmp_path, 2, ["mallory"])
    site.configure()
    with site_running(site):
        site.all_gossip()
        target, begun, logged = site.peers[0], time.monotonic(), site.peers[0].log_bytes
        with Watch(target.memory_bytes) as watch:
            for connections in (1, 300):
                for what in hoards():
                    attack = hoard(target.address, site.credentials("mallory"), connections, 16, what, 5)
                    seen = asyncio.run(attack)
                    print(f"{what} × {connections}: {dict(seen)}, so far {watch.grew >> 20} MB", flush=True)
                    assert seen.total() > 50, "the attack took place"
        minutes = 2 + (time.monotonic() - begun) / 60
        print(f"{target.memory_bytes() >> 20} MB in all, {target.log_bytes - logged} bytes of log in {minutes:.1f} min")
        assert watch.grew < MAY_GROW
        assert target.log_bytes - logged < minutes * Limits().log_bytes_of_member + 8000  # and some lines of its own
        site.all_advance()


async def _never(sender: str, parcel: Parcel) -> Reception:
    return await asyncio.Future()
