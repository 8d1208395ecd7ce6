# SPDX-License-Identifier: Apache-2.0
"""A member with a good certificate and bad manners: what it sends, and how."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from pens.network.certificates.credentials import Credentials
from pens.network.certificates.names import ANY_MEMBER
from pens.network.members.certified import CertificateNotary
from pens.network.transport import grpc_transport  # noqa: F401
from pens.network.transport.interface import Address, MemberRecord, Reception, Table
from pens.network.transport.terms import Terms
from pens.network.transport.wire import (
    HEADER,
    Header,
    _varint,
    decode_receipt,
    encode_header,
    encode_piece,
    encode_table,
    encode_terms,
)

import grpc  # isort: skip  # after grpc_transport, which prepares the environment
from grpc import aio  # isort: skip

SERVICE = "/pens.v1.Member"
_PIECE = 1 << 19


@asynccontextmanager
async def channel_to(address: Address, credentials: Credentials) -> AsyncIterator[Any]:
    """A connection of its own."""
    tls = grpc.ssl_channel_credentials(credentials.authority_pem, credentials.key_pem, credentials.certificate_pem)
    options = [("grpc.ssl_target_name_override", ANY_MEMBER), ("grpc.use_local_subchannel_pool", 1)]
    async with aio.secure_channel(f"dns:///{address}", tls, options=options) as channel:
        yield channel


async def agree(channel: Any) -> None:
    """Tell terms that fit everybody: until then its calls are those of a member of version 1, and refused."""
    await channel.unary_unary(f"{SERVICE}/Agree")(encode_terms(Terms()), timeout=30)


async def deliver(channel: Any, payload: bytes, announced: int | None = None, version: int = 2) -> str:
    """What became of a model: a verdict's name, or gRPC's word."""
    size = len(payload) if announced is None else announced
    call = channel.stream_stream(f"{SERVICE}/Deliver")(
        metadata=((HEADER, encode_header(Header(version, size))),), timeout=30
    )
    try:
        for at in range(0, max(1, len(payload)), _PIECE):
            await call.write(encode_piece(memoryview(payload)[at : at + _PIECE]))
        await call.done_writing()
    except (aio.AioRpcError, asyncio.InvalidStateError):
        pass  # turned away before the end
    try:
        receipt = await call.read()
        return decode_receipt(receipt).name if receipt is not aio.EOF else str((await call.code()).name)
    except aio.AioRpcError as error:
        return str(error.code().name)


def broken_models(model: dict[str, Tensor]) -> dict[str, tuple[bytes, int | None]]:
    """Payloads that are none, and the sizes that are announced for them."""
    good = save(model)
    first = next(iter(model))
    noise = np.random.default_rng(0).bytes(len(good))
    return {
        "garbage": (noise, None),
        "empty": (b"", 0),
        "truncated": (good[: len(good) // 2], None),
        "cut off on the way": (good[: len(good) // 2], len(good)),
        "more than announced": (good + good, len(good)),
        "nan": (save({name: torch.full_like(t, torch.nan) for name, t in model.items()}), None),
        "infinite": (save({**model, first: torch.full_like(model[first], torch.inf)}), None),
        "another shape": (save({name: t[..., :1].contiguous() for name, t in model.items()}), None),
        "a tensor too many": (save({**model, "more": torch.zeros(3)}), None),
        "a tensor too few": (save({name: t for name, t in model.items() if name != first}), None),
        "doubles": (save({name: t.double() for name, t in model.items()}), None),
        "a header of many gigabytes": ((1 << 40).to_bytes(8, "little") + good[8:], None),
        "a header that nests": (_with_header(b"[" * 4000), None),
        "huge": (bytes(8 << 20), None),
        "said to be huge": (b"x", 1 << 50),
    }


def _with_header(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def lies(notary: CertificateNotary, members: Sequence[MemberRecord], evil: Address) -> list[list[MemberRecord]]:
    """Tables of a liar: invented members, others' addresses, huge numbers, and members that are said to have left. It
    signs with its own key, as if that were the others', or leaves their signatures as they are."""
    own = notary.sign(members[0]).serial
    invented = [MemberRecord(f"invented-{n}", members[0].address, 1, n, False, False, own, b"x") for n in range(100)]
    newer = [replace(m, incarnation=m.incarnation + 1) for m in members]
    false = [
        [replace(m, address=evil) for m in newer],
        [replace(m, address=evil, incarnation=(1 << 64) - 1, heartbeat=(1 << 64) - 1) for m in members],
        [replace(m, left=True) for m in newer],
        [replace(m, finished=True) for m in newer],
    ]
    signed = [[notary.sign(m) for m in table] for table in false]
    return [invented, [replace(m, serial=n) for n, m in enumerate(invented)], *false, *signed]


async def tell(channel: Any, records: Iterable[MemberRecord], certificates: tuple[bytes, ...] = ()) -> str:
    """Gossip; gRPC's word for how that went."""
    try:
        await channel.unary_unary(f"{SERVICE}/Exchange")(
            encode_table(Table(tuple(records), certificates=certificates)), timeout=30
        )
    except aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"


async def flood(address: Address, credentials: Credentials, payload: bytes, count: int) -> Counter[str]:
    """So many models and tables as fast as can be, over four connections."""
    table = [MemberRecord(f"flood-{n}", address, 1, 0, serial=n, signature=b"x") for n in range(128)]

    async def stream(number: int) -> Counter[str]:
        seen: Counter[str] = Counter()
        async with channel_to(address, credentials) as channel:
            for n in range(count // 4):
                version = 2 * (n * 4 + number)
                done = await (deliver(channel, payload, version=version) if n % 4 else tell(channel, table))
                seen[done] += 1
        return seen

    return sum(await asyncio.gather(*map(stream, range(4))), Counter())


@asynccontextmanager
async def dawdling(address: Address, credentials: Credentials, connections: int) -> AsyncIterator[None]:
    """Half-open connections, calls without their message, models that come byte by byte: while the block lasts."""
    async with asyncio.TaskGroup() as group:
        sockets = [socket.create_connection((address.host, address.port)) for _ in range(connections)]
        for s in sockets[: connections // 2]:
            s.sendall(b"\x16\x03\x01")  # the beginning of a handshake
        tasks = [group.create_task(_dawdle(address, credentials)) for _ in range(connections)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for s in sockets:
                s.close()


async def _dawdle(address: Address, credentials: Credentials) -> None:
    async with channel_to(address, credentials) as channel:
        exchange = channel.stream_unary(f"{SERVICE}/Exchange")
        calls = [exchange() for _ in range(8)]
        header = ((HEADER, encode_header(Header(2, 4000))),)
        calls += [channel.stream_stream(f"{SERVICE}/Deliver")(metadata=header) for _ in range(8)]
        while True:
            for call in calls[8:]:
                if not call.done():
                    await _write_a_byte(call)
            await asyncio.sleep(0.5)


async def _write_a_byte(call: Any) -> None:
    with suppress(aio.AioRpcError, asyncio.InvalidStateError):
        await call.write(encode_piece(memoryview(b"x")))


def hoards() -> dict[str, tuple[str, bytes]]:
    """Calls that are to fill a receiver's memory: the method, and a message of half a megabyte, the most it reads."""
    size = 510_000
    return {
        "a long name": ("Exchange", encode_table(Table((MemberRecord("a" * size, Address("h", 1), 0, 0),)))),
        "an escape of a long name": (
            "Exchange",
            encode_table(Table((MemberRecord("\x1b" * size, Address("h", 1), 0, 0),))),
        ),
        "empty records": ("Exchange", b"\x0a\x00" * (size // 2)),
        "bytes of later versions": ("Exchange", b"\x7a" + _varint(size) + bytes(size)),
        "pieces of a model": ("Deliver", encode_piece(memoryview(bytes(size)))),
    }


async def hoard(
    address: Address, credentials: Credentials, connections: int, calls: int, what: str, seconds: float
) -> Counter[str]:
    """Over so many connections so many calls at a time, again and again; gRPC's words for how they went."""
    method, message = hoards()[what]
    end = asyncio.get_running_loop().time() + seconds
    header = ((HEADER, encode_header(Header(2, len(message)))),) if method == "Deliver" else ()

    async def go_on(channel: Any) -> Counter[str]:
        seen: Counter[str] = Counter()
        while not seen or asyncio.get_running_loop().time() < end:
            call = channel.stream_stream(f"{SERVICE}/{method}")(metadata=header, timeout=min(10.0, seconds))
            with suppress(aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(message)
                await call.read()
            seen[str((await call.code()).name) if call.done() else "OPEN"] += 1
            call.cancel()
        return seen

    async def connect() -> Counter[str]:
        async with channel_to(address, credentials) as channel:
            return sum(await asyncio.gather(*(go_on(channel) for _ in range(calls))), Counter())

    return sum(await asyncio.gather(*(connect() for _ in range(connections))), Counter())


TAKEN = Reception.TAKEN.name
