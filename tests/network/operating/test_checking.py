# SPDX-License-Identifier: Apache-2.0
"""`pens peer --check`: what fits is printed beside what does not, and nothing is written or changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from pens.command_line.main import main
from pens.network.certificates.authority import Authority
from pens.network.federation.loopback import free_ports
from pens.network.members.agreement import Agreement, Heard
from pens.network.operating.assembly import load_holding, trial_terms
from pens.network.operating.peer_command import dialling_of
from pens.network.operating.peer_config import read_peer_config
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import Address
from pens.network.transport.terms import Part, Terms
from tests.network.federations import NotingInbox, credentials, make_federation
from tests.network.operating.test_assembly import DATA

PEER = """
[peer]
name = "alice"
model = "mine.py:Net"
device = "cpu"
certificates = "certs/peers/alice"
bootstrap = ["127.0.0.1:{port}", "127.0.0.1:{closed}"]
[data]
source = "mine.py:small"
num_classes = 3
[engine]
compile = "never"
"""


@contextmanager
def bob_listens(authority: Authority, port: int, terms: Terms, heard: list[Heard]) -> Iterator[None]:
    """A member in another thread, as if on another machine."""
    started, stop = threading.Event(), threading.Event()

    async def live() -> None:
        transport = GrpcTransport(credentials(authority, "bob"), Address("127.0.0.1", port))
        await transport.start(NotingInbox(), Agreement(terms, heard.append))
        started.set()
        await asyncio.to_thread(stop.wait)
        await transport.stop(0)

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        stop.set()
        thread.join()


def checked(folder: Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(("peer", str(folder / "peer.toml"), "--check"))
    return int(ended.value.code or 0)


@pytest.mark.parametrize(("ways", "on_loopback"), [("", False), ("reachable = false", True)])
def test_who_cannot_be_called_is_where_the_members_are_that_it_calls_first(
    tmp_path: Path, ways: str, on_loopback: bool
) -> None:
    """Otherwise it listens at all addresses of its machine, and calls none of loopback but those in `bootstrap`."""
    text = PEER.format(port=7400, closed=7401).replace('name = "alice"', f'name = "alice"\n{ways}')
    (tmp_path / "peer.toml").write_text(text)
    dialling = dialling_of(read_peer_config(tmp_path / "peer.toml"))
    assert (dialling.why_not(ip_address("127.0.0.1")) is None) == on_loopback
    assert dialling.why_not(ip_address("169.254.169.254"))


def test_what_fits_and_what_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = make_federation(tmp_path / "certs", "alice", "bob")
    port, closed = free_ports(2)
    (tmp_path / "mine.py").write_text(DATA)
    (tmp_path / "peer.toml").write_text(PEER.format(port=port, closed=closed))
    config = read_peer_config(tmp_path / "peer.toml")
    own = trial_terms(config, load_holding(config))
    heard: list[Heard] = []
    with bob_listens(authority, port, replace(own, trial=False), heard):
        assert checked(tmp_path) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "bob fits" in told
    assert f"127.0.0.1:{closed} does not answer" in told
    assert heard == [Heard("alice", None, None, True)]
    other = replace(own, trial=False, parts=(Part.of("task", ["regression"]), Part.of("settings", ["x = 1"])))
    with bob_listens(authority, port, other, heard):
        assert checked(tmp_path) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "'classification' here, 'regression' there" in told
    assert "bob does NOT fit" in told
    assert heard[-1].why == "task: 'regression' here, 'classification' there"
    assert checked(tmp_path) == 2
    assert not (tmp_path / "state").exists()
