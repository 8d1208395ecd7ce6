# SPDX-License-Identifier: Apache-2.0
"""How much a member accepts from others, and how long it waits for them.

Everything that another member can make this one hold or do has a bound here: the size of a message and of a model, the
models that one sender may send per second, the bytes being received at any moment, the calls in progress, and the time
that each may take. A sender that meets a temporary bound is told BUSY and may try again; one that breaks a rule is
REFUSED.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pens.network.transport.interface import Reception


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a transport. Members may choose different ones, except for `piece_bytes`, the size of what is sent."""

    max_model_bytes: int = 256 << 20
    piece_bytes: int = 512 << 10
    receiving_bytes: int = 512 << 20
    """Bytes of models that are being received, from all senders together."""
    models_per_s: float = 10.0
    """Models that one sender may send, on average …"""
    burst_models: int = 50
    """… and in a burst."""
    gossip_per_s: float = 20.0
    """Calls that one member may make besides models, on average …"""
    burst_gossip: int = 100
    """… and in a burst."""
    calls: int = 256
    """Calls in progress at the same time; further ones are turned away. Of these …"""
    calls_of_member: int = 16
    """… one member may have this many."""
    bytes_per_minute: int = 1_024_000_000
    """Bytes that one member may send over all of its connections, in a burst or spread; further ones wait."""
    incoming_connections: int = 512
    """Connections open at the same time, including those whose handshake is not complete. Of these …"""
    connections_of_member: int = 4
    """… one member may have this many, …"""
    connections_of_host: int = 64
    """… one address this many over which no member has called yet, …"""
    handshakes_per_s: float = 50.0
    """… and make this many anew per second, on average …"""
    burst_handshakes: int = 500
    """… and in a burst."""
    stranger_bytes: int = 64 << 10
    """Bytes that are read of a connection before its first call."""
    idle_s: float = 300.0
    """A connection without calls is closed after this time, so that a revoked member keeps none open."""
    connection_s: float = 3600.0
    """After this time a connection accepts no new calls; a caller that needs it makes a new one."""
    lists_s: float = 30.0
    """Seconds between two calls in which this member passes on revocation lists."""
    call_s: float = 10.0
    """Deadline of a small call, and of making a connection."""
    min_bytes_per_s: float = 128 << 10
    """The deadline of a model grows with its size at this rate; slower senders are cut off."""
    log_bytes_per_minute: int = 64 << 10
    """Bytes of log that each place in the code may write, and …"""
    log_lines_of_member: int = 60
    """… lines …"""
    log_bytes_of_member: int = 32 << 10
    """… and bytes that are about one member."""
    sends: int = 8
    """Models being sent at the same time, and …"""
    slow_sends: int = 2
    """… those to members that took their latest model too slowly, or not at all."""
    connections: int = 64
    """Connections to other members that are kept open."""
    attempts: int = 4
    backoff_s: float = 0.1
    max_backoff_s: float = 3.0
    keepalive_s: float = 20.0

    @property
    def known_connections(self) -> int:
        """Connections of all members together: an eighth of all are left to those who have not called yet."""
        return max(1, self.incoming_connections - max(1, self.incoming_connections // 8))

    @property
    def message_bytes(self) -> int:
        """The largest message: a piece and what protobuf adds to it."""
        return self.piece_bytes + 1024

    def transfer_s(self, size_bytes: int) -> float:
        """Deadline of a transfer of this size."""
        return self.call_s + size_bytes / self.min_bytes_per_s


class RateLimit:
    """A bucket of tokens for each sender: `burst` at first, `per_s` more each second. Full buckets need no memory."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # sender → tokens, and when; oldest first

    def change(self, per_s: float, burst: int) -> None:
        """Use another rate from now on."""
        self._per_s, self._burst = per_s, burst

    def take(self, sender: str) -> bool:
        """Take a token of the sender; False if it has none."""
        tokens = self._tokens(sender)
        granted = tokens >= 1
        self._buckets[sender] = (tokens - 1 if granted else tokens, self._clock())
        return granted

    def spend(self, sender: str, amount: float) -> float:
        """Take so many tokens of the sender, also those that it does not have yet; seconds until it has no debt."""
        tokens = self._tokens(sender) - amount
        self._buckets[sender] = (tokens, self._clock())
        return max(0.0, -tokens / self._per_s)

    def _tokens(self, sender: str) -> float:
        """What the sender has now; its bucket is taken out."""
        now = self._clock()
        self._forget_full(now)
        tokens, since = self._buckets.pop(sender, (float(self._burst), now))
        return min(float(self._burst), tokens + (now - since) * self._per_s)

    def _forget_full(self, now: float) -> None:
        while self._buckets:
            sender, (tokens, since) = next(iter(self._buckets.items()))
            if tokens + (now - since) * self._per_s < self._burst:
                return
            del self._buckets[sender]


class Intake:
    """What is being received: a bounded number of calls and one model of each sender, and a bounded sum of bytes."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._rate = RateLimit(limits.models_per_s, limits.burst_models, clock)
        self._gossip_rate = RateLimit(limits.gossip_per_s, limits.burst_gossip, clock)
        self._calls: Counter[str] = Counter()
        self._senders: set[str] = set()
        self.bytes_expected = 0

    def change(self, limits: Limits) -> None:
        """Use other limits from now on."""
        self._limits = limits
        self._rate.change(limits.models_per_s, limits.burst_models)
        self._gossip_rate.change(limits.gossip_per_s, limits.burst_gossip)

    @contextmanager
    def call(self, sender: str) -> Iterator[bool]:
        """Count one call of a member while the block lasts; False if the member has too many in progress."""
        allowed = self._calls[sender] < self._limits.calls_of_member
        self._calls[sender] += 1
        try:
            yield allowed
        finally:
            self._calls[sender] -= 1
            if not self._calls[sender]:
                del self._calls[sender]

    def may_gossip(self, sender: str) -> bool:
        """Whether the rate limit allows another call of this member."""
        return self._gossip_rate.take(sender)

    @contextmanager
    def turn(self, sender: str) -> Iterator[bool]:
        """Receive one model of the sender while the block lasts; False if another of its models is being received."""
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
        """Reserve this many bytes while the block lasts; False if too many are being received."""
        if self.bytes_expected + size_bytes > self._limits.receiving_bytes:
            yield False
            return
        self.bytes_expected += size_bytes
        try:
            yield True
        finally:
            self.bytes_expected -= size_bytes

    def judge(self, sender: str, size_bytes: int) -> tuple[Reception, str]:
        """Whether the bounds allow a model of this size now, and otherwise the reason."""
        if not 0 < size_bytes <= self._limits.max_model_bytes:
            return Reception.REFUSED, "size"
        if not self._rate.take(sender):
            return Reception.REFUSED, "rate"
        return Reception.TAKEN, ""
