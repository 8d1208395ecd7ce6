# SPDX-License-Identifier: Apache-2.0
"""What gRPC's C core says when it turns somebody away, in words; and all the ways to be turned away, for real."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.errors import TransportError
from pens.network.certificates.names import ANY_MEMBER
from pens.network.transport.grpc_core import native_tls_settings, refusal_in, set_tls_1_3_only
from tests.network.federations import issue_expired, make_federation

HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


@given(st.text(st.characters(exclude_characters="\n"), min_size=1))
def test_any_line_may_come(line: str) -> None:
    assert refusal_in(line) is None
    assert refusal_in(f"ssl_transport_security.cc:1] Handshake failed with error X: {line}")


def test_grpc_imported_too_early_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in native_tls_settings().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "grpc", sys)
    set_tls_1_3_only()
    monkeypatch.setenv("GRPC_SSL_CIPHER_SUITES", "HIGH")
    with pytest.raises(TransportError, match="GRPC_SSL_CIPHER_SUITES=ECDHE-RSA"):
        set_tls_1_3_only()


@dataclass
class Listener:
    """A member in a process of its own, and the folders of those who come to it."""

    port: int
    errors: Iterator[str]
    """What the C core writes, line by line."""
    certs: Path
    process: subprocess.Popen[str]

    def why_refused(self) -> str:
        return next(reason for line in self.errors if (reason := refusal_in(line)))

    def knock(self, context: ssl.SSLContext | None, words: bytes = HTTP_2) -> bytes:
        """What a visitor hears who says `words`; nothing if it was turned away."""
        with suppress(ssl.SSLError, ConnectionError), ExitStack() as stack:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=30))
            if context:
                line = stack.enter_context(context.wrap_socket(line, server_hostname=ANY_MEMBER))
            line.sendall(words)
            return line.recv(1 << 16)
        return b""

    def visitor(self, folder: Path | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.certs / "ours" / "authority.pem")
        context.set_alpn_protocols(["h2"])
        if folder:
            context.load_cert_chain(folder / "peer.pem", folder / "peer.key")
        return context


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    certs = tmp_path_factory.mktemp("certs")
    make_federation(certs / "theirs", "alice")
    issue_expired(make_federation(certs / "ours", "alice", "bob"), "old")
    command = [sys.executable, str(Path(__file__).with_name("listener.py")), str(certs / "ours" / "peers" / "bob")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        assert process.stderr
        yield Listener(int(process.stdout.readline()), iter(process.stderr), certs, process)
        said, _ = process.communicate()  # closes its input, so that it ends
        assert said == "", "the inbox heard of a visitor"
        assert process.returncode == 0


def test_a_member_is_let_in_with_tls_1_3(member: Listener) -> None:
    context = member.visitor(member.certs / "ours" / "peers" / "alice")
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    assert member.knock(context)


def test_a_member_is_not_let_in_with_tls_1_2(member: Listener) -> None:
    context = member.visitor(member.certs / "ours" / "peers" / "alice")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert not member.knock(context)
    assert member.why_refused() == "not TLS 1.3"


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (None, "no certificate"),
        ("theirs/peers/alice", "certificate not trusted: unable to get local issuer certificate"),
        ("ours/peers/old", "certificate not trusted: certificate has expired"),
    ],
)
def test_no_or_another_or_an_old_certificate(member: Listener, who: str | None, why: str) -> None:
    assert not member.knock(member.visitor(member.certs / who if who else None))
    assert member.why_refused() == why


@pytest.mark.parametrize("words", [HTTP_2, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(255, 100, -1)) * 9])
def test_no_tls(member: Listener, words: bytes) -> None:
    assert not member.knock(None, words)
    assert member.why_refused()


def test_nonsense_over_good_tls_ends_the_connection_and_nothing_else(member: Listener) -> None:
    context = member.visitor(member.certs / "ours" / "peers" / "alice")
    member.knock(context, bytes(range(256)) * 64)
    assert member.knock(context), "others are still let in"
