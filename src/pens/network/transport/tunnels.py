# SPDX-License-Identifier: Apache-2.0
"""Tunnels: the bytes of a connection, carried between two ends that cannot connect to each other.

Theory of operation. A member U that cannot be called opens a call `Attach` to a member R that can, and leaves it open.
When somebody wants to talk to U, R writes a ticket on it; U opens a call `Answer` with that ticket, and R joins it to
the call (`Reach`) of the other end, or to a connection of its own. Through such a tunnel the other end makes a usual
connection to U: TLS 1.3 (RFC 8446) in which both ends show certificates of the federation. That is what an HTTP proxy
does for CONNECT (RFC 9110, section 9.3.6), with the difference that both ends have called the one in the middle.

        S ── Reach ──▶ R ◀── Attach, Answer ── U
        └──────────── TLS 1.3, HTTP/2 ─────────┘

So R sees the names of S and U, sizes and times, and else ciphertext. It cannot read, make or change a byte without that
one end notices: TLS then ends the connection. What R can do is carry nothing, or carry it late.

Everything that others can make R hold has a bound: members attached, tunnels, tunnels of a pair, and bytes per minute
of a pair. A pair above its rate is slowed down.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from pens.errors import TransportError
from pens.network.transport.interface import TransportCounts
from pens.network.transport.outward import attached_address
from pens.network.transport.wire import TICKET_BYTES

CHUNK_BYTES = 1 << 16
_PAIRS = 4096  # whose rates are remembered
_WAITING = 16  # tickets that wait to be written to one member


class NoTunnel(TransportError):
    """There is no tunnel to a member now."""


@dataclass(frozen=True, slots=True)
class TunnelLimits:
    """What a member does for others at most."""

    attached: int = 128
    """Members that are attached at the same time."""
    tunnels: int = 64
    """Tunnels at the same time, this member's own included."""
    tunnels_of_pair: int = 4
    tunnels_of_member: int = 16
    """Tunnels that one member asked this one for."""
    bytes_per_minute: float = 64 << 20
    """What is carried for a pair of members as their relay, in both directions together."""
    answer_s: float = 10.0
    """Within which an attached member must answer."""
    idle_s: float = 60.0
    """A tunnel on which nothing moves is closed after this time."""


class End(Protocol):
    """One end of a tunnel."""

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write bytes, and wait until there is room for more."""
        ...

    def close(self) -> None:
        """Nobody uses this end any more."""
        ...


class Pace:
    """How long to wait so that no more than so many bytes per minute pass; a minute's worth may pass at once."""

    def __init__(self, bytes_per_minute: float, now: float) -> None:
        self._rate, self._most = bytes_per_minute / 60.0, bytes_per_minute
        self._left, self._since = bytes_per_minute, now

    def wait_s(self, size: int, now: float) -> float:
        """Count bytes that are about to pass, and return the seconds to wait before they do."""
        self._left = min(self._most, self._left + (now - self._since) * self._rate) - size
        self._since = now
        return max(0.0, -self._left / self._rate)


class Switchboard:
    """The members that are attached to this one, and the tunnels to them."""

    def __init__(
        self, own_name: str, relay: bool, limits: TunnelLimits, traffic: TransportCounts, clock: Callable[[], float]
    ) -> None:
        self._traffic = traffic
        self._own_name, self._relay, self._limits, self._clock = own_name, relay, limits, clock
        self._attached: dict[str, tuple[str, asyncio.Queue[bytes]]] = {}  # by host: the member's name, and its tickets
        self._asked: dict[bytes, tuple[str, asyncio.Future[End]]] = {}  # by ticket: who must answer
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._callers: Counter[str] = Counter()
        self._paces: OrderedDict[tuple[str, str], Pace] = OrderedDict()

    def is_attached(self, host: str) -> bool:
        """Whether the member of this host is attached to this one."""
        return host in self._attached

    @contextmanager
    def attached(self, name: str) -> Iterator[asyncio.Queue[bytes]]:
        """A member is attached while the block lasts: the tickets that it must be told.

        An empty ticket: it has attached itself anew, and this attachment is over.
        """
        host = attached_address(name).host
        if len(self._attached) >= self._limits.attached and host not in self._attached:
            raise NoTunnel(f"{self._limits.attached} members are attached to this one already")
        entry = (name, asyncio.Queue[bytes]())
        if host in self._attached:
            self._attached[host][1].put_nowait(b"")
        self._attached[host] = entry
        try:
            yield entry[1]
        finally:
            if self._attached.get(host) is entry:  # it may have attached itself anew
                del self._attached[host]

    @asynccontextmanager
    async def tunnel(self, caller: str, host: str) -> AsyncIterator[tuple[End, Callable[[int], Awaitable[None]]]]:
        """A tunnel to an attached member while the block lasts: its end, and what to await before bytes pass.

        `caller`: who wants it; this member itself, or, where this one is a relay, another.
        """
        name, tickets = self._find(caller, host)
        pair = (min(caller, name), max(caller, name))
        self._check_room(caller, pair)
        self._callers[caller] += 1
        self._pairs[pair] += 1
        end: End | None = None
        try:
            end = await self._answered(name, tickets)
            yield end, self._admit(pair)
        finally:
            if end:
                end.close()
            self._pairs = +(self._pairs - Counter((pair,)))
            self._callers = +(self._callers - Counter((caller,)))

    def _check_room(self, caller: str, pair: tuple[str, str]) -> None:
        limits = self._limits
        if self._pairs.total() >= limits.tunnels:
            raise NoTunnel(f"{limits.tunnels} tunnels go through this member already")
        if self._pairs[pair] >= limits.tunnels_of_pair or self._callers[caller] >= limits.tunnels_of_member:
            raise NoTunnel(f"there are too many tunnels between {' and '.join(pair)}, or of {caller}")

    def _find(self, caller: str, host: str) -> tuple[str, asyncio.Queue[bytes]]:
        if caller != self._own_name and not self._relay:
            raise NoTunnel("this member is no relay: relay = true in section [peer] makes it one")
        if host not in self._attached:
            raise NoTunnel("that member is not attached to this one")
        return self._attached[host]

    async def _answered(self, name: str, tickets: asyncio.Queue[bytes]) -> End:
        if tickets.qsize() >= _WAITING:
            raise NoTunnel(f"{name} does not answer")
        ticket, answer = secrets.token_bytes(TICKET_BYTES), asyncio.get_running_loop().create_future()
        self._asked[ticket] = (name, answer)
        try:
            tickets.put_nowait(ticket)
            async with asyncio.timeout(self._limits.answer_s):
                end: End = await answer
            return end
        except TimeoutError:
            raise NoTunnel(f"{name} does not answer") from None
        finally:
            self._asked.pop(ticket, None)

    def answer(self, member: str, ticket: bytes, end: End) -> None:
        """Join the end of an attached member to the tunnel that it was asked for. Tickets of others do not count."""
        wanted, answer = self._asked.get(ticket, ("", None))
        if answer is None or wanted != member or answer.done():
            raise NoTunnel("nobody waits for this ticket any more")
        answer.set_result(end)

    def _admit(self, pair: tuple[str, str]) -> Callable[[int], Awaitable[None]]:
        if self._own_name in pair:
            return _at_once
        pace = self._paces.pop(pair, None) or Pace(self._limits.bytes_per_minute, self._clock())
        self._paces[pair] = pace
        if len(self._paces) > _PAIRS:
            self._paces.popitem(last=False)

        async def admit(size: int) -> None:
            self._traffic.bytes_relayed += size
            await asyncio.sleep(pace.wait_s(size, self._clock()))

        return admit


async def _at_once(size: int) -> None:
    """Let bytes pass."""


async def splice(one: End, other: End, admit: Callable[[int], Awaitable[None]] = _at_once, idle_s: float = 60) -> None:
    """Carry bytes between two ends, in both directions, until one of them ends or nothing has moved for `idle_s`."""
    loop = asyncio.get_running_loop()
    moved = [loop.time()]

    async def carry(source: End, sink: End) -> None:
        while data := await source.read():
            moved[0] = loop.time()
            await admit(len(data))
            await sink.write(data)
            moved[0] = loop.time()

    async def watch() -> None:
        while (left := moved[0] + idle_s - loop.time()) > 0:
            await asyncio.sleep(left)

    tasks = [asyncio.ensure_future(c) for c in (carry(one, other), carry(other, one), watch())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
