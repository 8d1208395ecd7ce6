# SPDX-License-Identifier: Apache-2.0
"""Models a second between two members over mutual TLS, against a bare gRPC stream of the same bytes; and bytes on the
wire.

PYTHONPATH=src python benchmarks/network.py

Both run in one process on loopback, and send the same pieces over TLS connections of the same type. The bare stream
writes bytes and discards them: it has no names, checks or bounds, and only one answer at the end. Rates are medians of
alternating repetitions. Bytes are counted at a TCP proxy between the two, in both directions, without the handshake (a
connection is kept), but with all of HTTP/2 and TLS.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import Credentials, load_credentials
from pens.network.certificates.names import ANY_MEMBER
from pens.network.transport.grpc_transport import GrpcTransport, Limits
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Table

import grpc  # isort: skip  # after grpc_transport, which prepares the environment
from grpc import aio  # isort: skip

SIZES = {"the paper's network, 73,418 parameters": 4 * 73_418, "10 MB": 10_000_000}
REPETITIONS = 9
LIMITS = Limits(models_per_s=1e9, burst_models=10**9)
LOOPBACK = Address("127.0.0.1", 0)


class Sink:
    """An inbox that takes everything and keeps nothing."""

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        return Reception.TAKEN

    async def gossip(self, sender: str, table: Table) -> Table:
        return Table()

    def wants(self, sender: str, size: int) -> Reception:
        return Reception.TAKEN


class BareStream:
    """The simplest transfer by gRPC: pieces in one direction, and one empty answer."""

    def __init__(self, server: Credentials, client: Credentials) -> None:
        self._server_side, self._client_side = server, client

    async def start(self) -> None:
        options = [("grpc.max_receive_message_length", LIMITS.message_bytes)]
        self._server = aio.server(options=options)
        handler = grpc.method_handlers_generic_handler(
            "bare", {"Stream": grpc.stream_unary_rpc_method_handler(self._drain)}
        )
        self._server.add_generic_rpc_handlers((handler,))
        own = self._server_side
        tls = grpc.ssl_server_credentials(
            [(own.key_pem, own.certificate_pem)], own.authority_pem, require_client_auth=True
        )
        port = self._server.add_secure_port("127.0.0.1:0", tls)
        await self._server.start()
        own = self._client_side
        tls = grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)
        self._channel = aio.secure_channel(
            f"127.0.0.1:{port}", tls, options=[("grpc.ssl_target_name_override", ANY_MEMBER)]
        )

    async def _drain(self, pieces: Any, context: Any) -> bytes:
        while await context.read() is not aio.EOF:
            pass
        return b""

    async def send(self, payload: bytes) -> None:
        call = self._channel.stream_unary("/bare/Stream")()
        for start in range(0, len(payload), LIMITS.piece_bytes):
            await call.write(payload[start : start + LIMITS.piece_bytes])
        await call.done_writing()
        await call

    async def stop(self) -> None:
        await self._channel.close()
        await self._server.stop(0)


class CountingProxy:
    """Passes bytes between two TCP ports and counts them."""

    def __init__(self, to: Address) -> None:
        self._to = to
        self.num_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(self._to.host, self._to.port)
        for source, drain in ((reader, onward_writer), (onward_reader, writer)):
            task = asyncio.create_task(self._pass(source, drain))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 18):
            self.num_bytes += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()


class Cost(NamedTuple):
    """The seconds that one transfer takes."""

    wall_s: float
    cpu_s: float


async def cost(send: Callable[[], Awaitable[object]], count: int) -> Cost:
    """The mean cost of some transfers, one after the other."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        await send()
    return Cost((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


async def compare_rates(folder: Path, name: str, size: int) -> None:
    server, client = (load_credentials(folder / "peers" / who) for who in ("server", "client"))
    bare = BareStream(server, client)
    await bare.start()
    there, here = (GrpcTransport(own, LOOPBACK, LIMITS) for own in (server, client))
    to = MemberRecord("server", await there.start(Sink()), 0, 0)
    await here.start(Sink())
    parcel = Parcel(1, bytes(size))

    async def ours() -> None:
        if await here.send_model(to, parcel) is not Reception.TAKEN:
            raise SystemExit("the receiver did not take a model: the measurement is void")

    async def theirs() -> None:
        await bare.send(parcel.payload)

    count = max(8, 60_000_000 // size)
    await cost(ours, 8), await cost(theirs, 8)
    pairs = [(await cost(ours, count), await cost(theirs, count)) for _ in range(REPETITIONS)]
    rate, bare_rate = (1 / statistics.median(one.wall_s for one in column) for column in zip(*pairs, strict=True))
    shares = sorted(bare_cost.wall_s / own.wall_s for own, bare_cost in pairs)
    cpu_share = statistics.median(bare_cost.cpu_s / own.cpu_s for own, bare_cost in pairs)
    print(
        f"{name}: {rate:.0f} models/s ({rate * size / 1e6:.0f} MB/s), bare stream {bare_rate:.0f}: "
        f"{statistics.median(shares):.0%} ({shares[0]:.0%} to {shares[-1]:.0%}); in CPU time {cpu_share:.0%}"
    )
    await here.stop(0)
    await there.stop(0)
    await bare.stop()


async def count_bytes(folder: Path, name: str, size: int) -> None:
    there, here = (
        GrpcTransport(load_credentials(folder / "peers" / who), LOOPBACK, LIMITS) for who in ("server", "client")
    )
    proxy = CountingProxy(await there.start(Sink()))
    to = MemberRecord("server", await proxy.start(), 0, 0)
    await here.start(Sink())
    await here.send_model(to, Parcel(0, b"x"))
    before, count = proxy.num_bytes, 20
    for version in range(count):
        await here.send_model(to, Parcel(version, bytes(size)))
    on_wire = (proxy.num_bytes - before) / count
    print(f"{name}: {on_wire:,.0f} bytes on the wire for {size:,} of payload: {on_wire / size - 1:+.2%}")
    await here.stop(0)
    await proxy.stop()
    await there.stop(0)


async def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        authority = Authority(folder)
        authority.create()
        for who in ("server", "client"):
            authority.issue(who)
        for name, size in SIZES.items():
            await compare_rates(folder, name, size)
        for name, size in SIZES.items():
            await count_bytes(folder, name, size)


if __name__ == "__main__":
    asyncio.run(main())
