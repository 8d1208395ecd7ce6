# SPDX-License-Identifier: Apache-2.0
"""Connections are counted from the first byte, belong to a member from its first call, and pay for what they send."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from pens.network.transport.entrance import Entrance
from pens.network.transport.interface import TransportCounts
from pens.network.transport.limits import Limits
from pens.network.transport.relay import Relay

LIMITS = Limits(
    connections_of_member=2,
    connections_of_host=3,
    handshakes_per_s=1.0,
    burst_handshakes=5,
    stranger_bytes=1000,
    bytes_per_minute=60_000,
)


@dataclass(eq=False)
class FakeRelay:
    """A connection without sockets."""

    host: str
    port: int
    events: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.host}:1"

    def abort(self) -> None:
        self.events.append("closed")

    def meet(self) -> None:
        self.events.append("met")


class Street:
    """An entrance, and connections that come to it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.counts = TransportCounts()
        self.entrance = Entrance(LIMITS, self.counts, lambda: self.now)

    def come(self, host: str, port: int) -> Any:
        relay = FakeRelay(host, port)
        self.entrance.arrive(cast(Relay, relay))
        return relay


def within(steps: Callable[[Street], None]) -> None:
    async def run() -> None:
        steps(Street())

    asyncio.run(run())


def test_a_stranger_may_send_little_until_it_calls() -> None:
    def steps(street: Street) -> None:
        relay = street.come("192.0.2.1", 7)
        assert street.entrance.came(relay, 999) == 0
        assert street.entrance.came(relay, 1) == math.inf
        assert street.entrance.recognise("ipv4:127.0.0.1:7", "alice")
        assert relay.events == ["met"]
        assert street.entrance.came(relay, 1000) == 0

    within(steps)


def test_a_member_pays_for_the_bytes_of_all_its_connections() -> None:
    """A minute's 60,000 bytes at once, and then 1,000 a second."""

    def steps(street: Street) -> None:
        relays = [street.come("192.0.2.1", port) for port in (1, 2, 3)]
        for port, name in ((1, "mallory"), (2, "mallory"), (3, "alice")):
            street.entrance.recognise(f"ipv4:127.0.0.1:{port}", name)
        assert street.entrance.came(relays[0], 50_000) == 0
        assert street.entrance.came(relays[1], 15_000) == 5
        assert street.entrance.came(relays[2], 50_000) == 0
        street.now = 5
        assert street.entrance.came(relays[0], 1000) == 1

    within(steps)


def test_who_connects_too_often_is_turned_away_and_others_are_not() -> None:
    def steps(street: Street) -> None:
        relays = [FakeRelay("192.0.2.1", port) for port in range(8)]
        assert [street.entrance.arrive(cast(Relay, r)) for r in relays] == [True] * 5 + [False] * 3
        assert street.entrance.arrive(cast(Relay, FakeRelay("192.0.2.2", 9)))
        assert [r.events for r in relays] == [["closed"]] * 2 + [[]] * 6  # of those that may stay, three do
        assert street.counts.refusals["connections"] == 5

    within(steps)


def test_a_call_that_did_not_come_in_here_is_not_recognised() -> None:
    def steps(street: Street) -> None:
        street.come("192.0.2.1", 7)
        assert not street.entrance.recognise("ipv4:127.0.0.1:8", "alice")
        assert not street.entrance.recognise("unix:/x", "alice")
        assert street.entrance.shown("ipv4:127.0.0.1:7") == "192.0.2.1:1"
        assert street.entrance.shown("ipv4:127.0.0.1:8") == "ipv4:127.0.0.1:8"

    within(steps)


def test_too_many_connections_of_a_member_are_closed() -> None:
    def steps(street: Street) -> None:
        relays = [street.come("192.0.2.1", port) for port in (1, 2, 3)]
        for street.now, port in ((1.0, 1), (2.0, 2), (3.0, 3)):
            assert street.entrance.recognise(f"ipv4:127.0.0.1:{port}", "mallory")
        assert [r.events for r in relays] == [["met", "closed"], ["met"], ["met"]]
        assert not street.entrance.recognise("ipv4:127.0.0.1:1", "mallory")

    within(steps)
