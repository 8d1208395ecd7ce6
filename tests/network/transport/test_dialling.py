# SPDX-License-Identifier: Apache-2.0
"""Which addresses are called, and which are not, whoever names them and however they are written."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import pytest

from pens.network.transport.dialling import Dialling, is_host
from pens.network.transport.interface import Address, TransportError

NAMES = {"good.example": ["192.0.2.7"], "evil.example": ["169.254.169.254", "127.0.0.1"], "both": ["::1", "192.0.2.8"]}


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        return [(0, 0, 0, "", (ip, 0)) for ip in NAMES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def called(dialling: Dialling, host: str) -> list[str]:
    return [str(ip) for ip in asyncio.run(dialling.resolve(Address(host, 7400)))]


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "fe80::1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "255.255.255.255",
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::ffff:127.0.0.1",
        "evil.example",
    ],
)
def test_never_called(host: str) -> None:
    with pytest.raises(TransportError, match="is not called"):
        called(Dialling("192.0.2.1"), host)


@pytest.mark.parametrize(
    "host",
    ["2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "1.2.3", "a.0x7f", "fe80::1%eth0", "", "a b"],
)
def test_other_notations_are_no_hosts(host: str) -> None:
    assert not is_host(host)
    with pytest.raises(TransportError, match="neither a DNS name nor"):
        called(Dialling("192.0.2.1"), host)


@pytest.mark.parametrize("host", ["a", "a.example.org", "1a.2b", "3.example", "10.0.0.1", "::1", "2001:db8::1"])
def test_names_and_usual_addresses_are_hosts(host: str) -> None:
    assert is_host(host)


def test_names_are_resolved_before_they_are_judged() -> None:
    assert called(Dialling("192.0.2.1"), "good.example") == ["192.0.2.7"]
    assert called(Dialling("192.0.2.1"), "both") == ["192.0.2.8"]


@pytest.mark.parametrize("own", ["127.0.0.1", "::1", "localhost", "peer.localhost."])
def test_who_is_on_loopback_calls_loopback(own: str) -> None:
    assert called(Dialling(own), "127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(TransportError):
        called(Dialling(own), "169.254.169.254")


def test_only_given_networks_are_called_but_for_bootstrap_addresses() -> None:
    networks = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8::/32")]
    dialling = Dialling("10.0.0.1", networks, [Address("127.0.0.1", 7400), Address("good.example", 7400)])
    assert [called(dialling, host) for host in ("10.1.2.3", "2001:db8::5", "::ffff:10.1.2.3")] == [
        ["10.1.2.3"],
        ["2001:db8::5"],
        ["::ffff:a01:203"],
    ]
    for host in ("192.0.2.9", "2001:db9::5", "both"):
        with pytest.raises(TransportError, match=r"in none of peer\.networks"):
            called(dialling, host)
    assert called(dialling, "127.0.0.1") == ["127.0.0.1"]
    assert called(dialling, "good.example") == ["192.0.2.7"]
    with pytest.raises(TransportError):
        asyncio.run(dialling.resolve(Address("127.0.0.1", 9400)))


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1", "localhost", "a.localhost", "::1", "2852039166"])
def test_what_an_address_itself_tells_is_checked_where_a_proxy_resolves_names(host: str) -> None:
    with pytest.raises(TransportError, match="not called"):
        Dialling("192.0.2.1").check_unresolved(Address(host, 7400))


def test_a_proxy_is_asked_for_names_that_this_member_does_not_know() -> None:
    here, known = ipaddress.ip_network("10.0.0.0/8"), Address("b.example", 7400)
    for name in ("unknown.example", "evil.example", "10.0.0.1", "192.0.2.7"):
        Dialling("192.0.2.1").check_unresolved(Address(name, 7400))
    Dialling("127.0.0.1").check_unresolved(Address("localhost", 7400))
    bounded = Dialling("192.0.2.1", [here], [known])
    for allowed in (known, Address("10.0.0.1", 7400)):
        bounded.check_unresolved(allowed)
    for refused, why in (("b.example", "only the proxy resolves"), ("192.0.2.7", "in none of peer.networks")):
        with pytest.raises(TransportError, match=why):
            bounded.check_unresolved(Address(refused, 7401))
