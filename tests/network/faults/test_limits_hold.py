# SPDX-License-Identifier: Apache-2.0
"""Bounds that a hostile member runs into: calls, connections, rates; and what it cannot make the decoder allocate."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pens.network.certificates.authority import Authority
from pens.network.node.status import PeerCounts, Status
from pens.network.operating.peer_command import stuck_words
from pens.network.operating.sparingly import Sparingly
from pens.network.transport.interface import Table, TransportError
from tests.network.faults.hostile import SERVICE, channel_to, tell
from tests.network.federations import QUICK, credentials, make_federation, running


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_federation(tmp_path_factory.mktemp("certs"), "alice", "bob", "mallory")


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 60))


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_calls_without_their_message_use_up_one_members_calls_and_end(federation: Authority) -> None:
    """Eight connections full of such calls would be all the calls there are."""

    async def steps() -> None:
        limits = replace(QUICK, calls=64, calls_of_member=8, connections_of_member=8, call_s=2.0)
        async with running(federation, "bob", limits=limits) as (bob,), running(federation, "alice") as (alice,):
            refusals = bob.transport.traffic.refusals
            channels = [channel_to(bob.address, credentials(federation, "mallory")) for _ in range(8)]
            opened = [await channel.__aenter__() for channel in channels]
            calls = [channel.stream_unary(f"{SERVICE}/Exchange")() for channel in opened for _ in range(8)]
            await until(lambda: refusals["calls"] >= 56)
            assert (await alice.transport.gossip(bob.address, "bob", Table())).name == "bob"
            await until(lambda: refusals["slow"] >= 8)
            assert all([await call.code() for call in calls])
            assert await tell(opened[0], []) == "OK"
            for channel in channels:
                await channel.__aexit__(None, None, None)

    run(steps())


@pytest.mark.parametrize(("patience_s", "closed"), [(2.0, 30), (600.0, 22)])
def test_connections_have_a_bound_and_silent_ones_are_closed(
    federation: Authority, patience_s: float, closed: int
) -> None:
    """Those beyond the bound at once, the others when their handshake took too long."""

    async def steps() -> None:
        limits = replace(QUICK, incoming_connections=8, call_s=patience_s)
        async with running(federation, "bob", limits=limits) as (bob,):
            where = (bob.address.host, bob.address.port)
            sockets = [await asyncio.to_thread(socket.create_connection, where, 5) for _ in range(30)]
            ended = await asyncio.gather(
                *(asyncio.to_thread(_is_closed_within, s, 30.0 if closed == 30 else 1.0) for s in sockets)
            )
            assert sum(ended) == closed
            for s in sockets:
                s.close()
            while await tell_as(federation, bob.address) != "OK":  # once the server has seen that they are closed
                await asyncio.sleep(0.05)

    run(steps())


def _is_closed_within(s: socket.socket, seconds: float) -> bool:
    s.settimeout(seconds)
    try:
        while s.recv(1000):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


async def tell_as(federation: Authority, address: Any) -> str:
    async with channel_to(address, credentials(federation, "mallory")) as channel:
        return await tell(channel, [])


def test_who_gossips_too_often_is_turned_away_and_others_are_not(federation: Authority) -> None:
    async def steps() -> None:
        limits = replace(QUICK, gossip_per_s=1e-9, burst_gossip=5)
        async with running(federation, "bob", limits=limits) as (bob,), running(federation, "alice") as (alice,):
            async with channel_to(bob.address, credentials(federation, "mallory")) as channel:
                seen = [await tell(channel, []) for _ in range(8)]
            assert seen == ["OK"] * 5 + ["RESOURCE_EXHAUSTED"] * 3
            assert (await alice.transport.gossip(bob.address, "bob", Table())).name == "bob"
            assert bob.transport.traffic.refusals["rate"] == 3

    run(steps())


def test_a_transport_stops_while_it_connects(federation: Authority) -> None:
    async def steps() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            async with running(federation, "alice") as (alice,):
                address = replace(alice.address, port=silent.getsockname()[1])
                call = asyncio.create_task(alice.transport.gossip(address, None, Table()))
                accepted, _ = await asyncio.to_thread(silent.accept)
                with accepted:
                    await alice.transport.stop(0)
            call.cancel()
            with pytest.raises((TransportError, asyncio.CancelledError)):
                await call

    run(steps())


_DECODE = """
import resource, torch
from pens.errors import PayloadError
from pens.network.transport.codec import TensorShape, decode, encode, model_shape
model = {"w": torch.ones(300, 1000), "b": torch.ones(1000)}
expected, whole = model_shape(model), encode(model, "int8")
decode(whole, expected)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), used + (16 << 20)))
def framed(header):
    return len(header).to_bytes(8, "little") + header
bad = [b"", bytes(8), b"\\xff" * 5000, (2**62).to_bytes(8, "little") + whole[8:], framed(b"[" * 5000), whole[:-1],
       framed(b'{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'),
       framed(b'{"w":{"dtype":"F32","shape":' + b"9" * 4000 + b',"data_offsets":[0,1]}}'), whole + bytes(1000)]
for payload in bad * 200:
    try:
        decode(payload, expected)
    except PayloadError:
        continue
    raise SystemExit(f"taken: {payload[:50]!r}")
for _ in range(200):
    decode(whole, expected)
print("bounded")
"""


def test_the_decoder_lives_with_little_memory() -> None:
    """The address space is bounded by the system at 16 MB above what was in use: a larger request would fail."""
    found = subprocess.run([sys.executable, "-c", _DECODE], capture_output=True, text=True)
    assert found.stdout == "bounded\n", found.stderr[-2000:]


def record(line: int, message: str, at: float) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "x", "msg": message, "pathname": "file.py", "lineno": line})
    made.created = at
    return made


def test_words_of_the_senders_choice_do_not_fill_a_log() -> None:
    sparingly = Sparingly(per_minute=6, per_line=60)
    words = [record(1, f"refused: {'abcdefgh'[n % 8] * (1 + n // 8)}", n / 1000) for n in range(10_000)]
    assert sum(sparingly.filter(r) for r in words) == 60
    assert sparingly.filter(record(2, "something else", 10.0))


def test_a_clock_that_jumps_back_silences_nothing() -> None:
    sparingly = Sparingly(per_minute=1)
    assert [sparingly.filter(record(1, "x", at)) for at in (1e6, 1e6 + 1, 10.0, 11.0, 71.0)] == [True, False] * 2 + [
        True
    ]


def test_health_tells_of_a_loop_that_is_stuck() -> None:
    status = Status(
        "alice", "gossiping", 1, 1, False, False, (), {}, None, None, None, 0.0, None, PeerCounts(), 0, 0, {}, due=100.0
    )
    assert stuck_words(status, 101.0) is None
    assert "stuck" in str(stuck_words(status, 200.0))
