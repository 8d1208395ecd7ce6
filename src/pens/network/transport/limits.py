# SPDX-License-Identifier: Apache-2.0
"""How much a member takes from others, and how long it waits for them.

Everything that another member can make us hold or do has a bound here: the size of a message and of a model, the
models that one sender may send in a while, the bytes on their way in at any moment, the calls in progress, the time
each may take. Who meets a bound that passes hears BUSY and may come again; who breaks a rule is REFUSED.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pens.network.transport.interface import Reception


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a transport. Those of all members need not be equal, except for `piece_bytes`: nobody sends more."""

    max_model_bytes: int = 256 << 20
    piece_bytes: int = 512 << 10
    receiving_bytes: int = 512 << 20
    """Of models on their way in, all senders together."""
    models_per_s: float = 10.0
    """From one sender, in the long run …"""
    burst_models: int = 50
    """… and at once."""
    gossip_per_s: float = 20.0
    """Calls of one member that are no models, in the long run …"""
    burst_gossip: int = 100
    """… and at once."""
    calls: int = 256
    """In progress at the same time; those beyond are turned away. Of these …"""
    calls_of_member: int = 16
    """… one member may have so many."""
    incoming_connections: int = 512
    """Open at the same time, those included whose handshake is not over."""
    idle_s: float = 300.0
    """A connection without calls is closed after this time: a member that is revoked keeps none open."""
    connection_s: float = 3600.0
    """After this time a connection takes no new calls, and is made anew by whoever needs it."""
    call_s: float = 10.0
    """Deadline of a small call, and the time that a connection may take."""
    min_bytes_per_s: float = 128 << 10
    """A model has this much more time for its bytes; slower senders are cut off."""
    sends: int = 8
    """Models on their way out at the same time."""
    connections: int = 64
    """To other members, kept open."""
    attempts: int = 4
    backoff_s: float = 0.1
    max_backoff_s: float = 3.0
    keepalive_s: float = 20.0

    @property
    def message_bytes(self) -> int:
        """The largest message: a piece and its wrapping."""
        return self.piece_bytes + 1024

    def transfer_s(self, size_bytes: int) -> float:
        """Deadline of a model of this size."""
        return self.call_s + size_bytes / self.min_bytes_per_s


class RateLimit:
    """A bucket of tokens for each sender: `burst` at first, `per_s` new ones a second. Full buckets need no memory."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # sender → tokens, and when; oldest first

    def take(self, sender: str) -> bool:
        """Whether the sender had a token; it is gone now."""
        now = self._clock()
        self._forget_full(now)
        tokens, since = self._buckets.pop(sender, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - since) * self._per_s)
        granted = tokens >= 1
        self._buckets[sender] = (tokens - 1 if granted else tokens, now)
        return granted

    def _forget_full(self, now: float) -> None:
        while self._buckets:
            sender, (_, since) = next(iter(self._buckets.items()))
            if (now - since) * self._per_s < self._burst:
                return
            del self._buckets[sender]


class Intake:
    """What is on its way in: a bounded number of calls and one model of each sender, and a bounded sum of bytes."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._rate = RateLimit(limits.models_per_s, limits.burst_models, clock)
        self._gossip_rate = RateLimit(limits.gossip_per_s, limits.burst_gossip, clock)
        self._calls: Counter[str] = Counter()
        self._senders: set[str] = set()
        self.bytes_expected = 0

    @contextmanager
    def call(self, sender: str) -> Iterator[bool]:
        """One of the calls that a member may have in progress while it lasts; False if it has too many."""
        allowed = self._calls[sender] < self._limits.calls_of_member
        self._calls[sender] += 1
        try:
            yield allowed
        finally:
            self._calls[sender] -= 1
            if not self._calls[sender]:
                del self._calls[sender]

    def may_gossip(self, sender: str) -> bool:
        """Whether a member has not called too often."""
        return self._gossip_rate.take(sender)

    @contextmanager
    def turn(self, sender: str) -> Iterator[bool]:
        """The sender's only turn while it lasts; False if it has one already."""
        if sender in self._senders:
            yield False
            return
        self._senders.add(sender)
        try:
            yield True
        finally:
            self._senders.discard(sender)

    @contextmanager
    def space(self, size_bytes: int) -> Iterator[bool]:
        """Room for so many bytes while it lasts; False if there is none now."""
        if self.bytes_expected + size_bytes > self._limits.receiving_bytes:
            yield False
            return
        self.bytes_expected += size_bytes
        try:
            yield True
        finally:
            self.bytes_expected -= size_bytes

    def judge(self, sender: str, size_bytes: int) -> tuple[Reception, str]:
        """What the bounds say about a model that is announced, and why."""
        if not 0 < size_bytes <= self._limits.max_model_bytes:
            return Reception.REFUSED, "size"
        if not self._rate.take(sender):
            return Reception.REFUSED, "rate"
        return Reception.TAKEN, ""
