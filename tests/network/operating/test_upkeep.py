# SPDX-License-Identifier: Apache-2.0
"""What a peer looks after while it runs: files that change, settings that may change, and what ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import load_credentials
from pens.network.members.certified import CertificateNotary
from pens.network.members.membership import Membership
from pens.network.members.rules import MembershipRules
from pens.network.node.parts import NodeRules
from pens.network.operating import upkeep as upkeep_module
from pens.network.operating.file_watch import FileWatch
from pens.network.operating.live_settings import CHANGEABLE, apply_settings, changes_between, merged
from pens.network.operating.peer_config import PeerConfig, PeerSection, read_peer_config
from pens.network.operating.upkeep import Upkeep, follow_hangups
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import Address, MemberRecord
from tests.network.federations import LOOPBACK, make_federation

FILE = """
preset = "digits"
[peer]
name = "alice"
bootstrap = ["b.example.org:7400"]
[data]
share = 0
"""
LIVE = {
    "bootstrap": '["c.example.org:7400"]',
    "burst_models": "7",
    "drop_s": "90.0",
    "expires_soon_days": "3.0",
    "gossip_s": "2.0",
    "linger_s": "60.0",
    "list_grace_days": "14.0",
    "log_level": '"DEBUG"',
    "max_held": "9",
    "models_per_s": "2.5",
    "suspect_s": "20.0",
    "wait_for": "3",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_federation(tmp_path / "certs", "alice", "bob")
    (tmp_path / "peer.toml").write_text(FILE)
    return tmp_path


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def config_of(folder: Path, more: str = "") -> PeerConfig:
    (folder / "peer.toml").write_text(FILE.replace("[data]", more + "\n[data]"))
    return read_peer_config(folder / "peer.toml")


def upkeep_of(folder: Path, now: datetime | None = None) -> Upkeep:
    watched = FileWatch([path := folder / "peer.toml"])
    own = load_credentials(folder / "certs" / "peers" / "alice")
    clock = lambda: now or datetime.now(UTC)  # noqa: E731
    return Upkeep(own, read_peer_config(path), lambda: read_peer_config(path), watched, clock)


def look_twice(it: Upkeep) -> None:
    """A change counts once the files stay as they are."""
    it.look()
    it.look()


def test_a_change_counts_once_and_only_when_the_files_stay_as_they_are(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1")
    watch = FileWatch([one, other])
    seen = [watch.has_changed()]
    other.write_text("half")
    seen.append(watch.has_changed())
    other.write_text("whole file")
    seen += [watch.has_changed(), watch.has_changed(), watch.has_changed()]
    one.unlink()
    seen += [watch.has_changed(), watch.has_changed()]
    one.write_text("1 again")
    one.unlink()
    seen += [watch.has_changed()]
    assert seen == [False, False, False, True, False, False, True, False]


def test_a_new_certificate_is_used_and_half_of_one_is_told_of_until_it_is_whole(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it, now = upkeep_of(folder), datetime.now(UTC)
    files = folder / "certs" / "peers" / "alice"
    first, old_key = it.credentials.identity.serial, (files / "peer.key").read_bytes()
    look_twice(it)
    assert not caplog.records
    Authority(folder / "certs").issue("alice", force=True)
    new_key = (files / "peer.key").read_bytes()
    (files / "peer.key").write_bytes(old_key)
    look_twice(it)
    assert it.credentials.identity.serial == first
    assert "certificates refused, those in use remain: " in str(it.degraded(now))
    assert "is not the key of" in str(it.degraded(now))
    (files / "peer.key").write_bytes(new_key)
    look_twice(it)
    assert it.credentials.identity.serial != first
    assert it.degraded(now) is None
    assert sum(record.levelname == "ERROR" for record in caplog.records) == 1


def test_settings_that_can_change_do_and_the_others_remain_and_are_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it, used = upkeep_of(folder), list[PeerConfig]()
    it.use = None
    it.reload()
    assert not caplog.records, "a peer that is still starting looks at its files later"
    it.use = used.append
    config_of(folder, 'log_level = "DEBUG"\nlisten = "0.0.0.0:7401"\nlinger_s = 60.0')
    with caplog.at_level(logging.INFO, "pens.network"):
        look_twice(it)
    (now,) = used
    assert (now.peer.log_level, now.peer.linger_s, now.peer.listen) == ("DEBUG", 60.0, "0.0.0.0:7400")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("peer.listen cannot change while the peer runs: '0.0.0.0:7400' remains in use until a")
    assert all(name in warning for name in CHANGEABLE)
    (folder / "peer.toml").write_text("[peer\n")
    it.reload()
    assert "settings refused, those in use remain: " in str(it.degraded(datetime.now(UTC)))
    config_of(folder, "wait_for = 4")
    it.reload()
    assert it.degraded(datetime.now(UTC)) is None
    assert (used[-1].peer.wait_for, used[-1].peer.log_level, len(used)) == (4, "INFO", 2)


def test_whatever_is_not_in_the_list_needs_a_restart(folder: Path) -> None:
    old = config_of(folder)
    new = read_peer_config(folder / "peer.toml", state=folder / "elsewhere")
    text = FILE.replace("share = 0", "share = 1") + "[timing]\ninterval = 5.0\n[training]\nlr = 0.5\n"
    (folder / "peer.toml").write_text(text)
    other = read_peer_config(folder / "peer.toml")
    assert set(changes_between(old, new).refused) == {"peer.state"}
    assert set(changes_between(old, other).refused) == {"data.share", "timing.interval", "training.lr"}
    assert not changes_between(old, other).applied
    assert merged(old, other) == old
    assert changes_between(old, old).refused == {}


def test_every_setting_that_can_change_changes_something(folder: Path) -> None:
    """The value of each, found again where it is used."""
    assert set(LIVE) == set(CHANGEABLE) <= set(PeerSection.model_fields)
    old = config_of(folder)
    new = config_of(folder, "\n".join(f"{name} = {value}" for name, value in LIVE.items()).replace("bootstrap", "#"))
    new = new.model_copy(update={"peer": new.peer.model_copy(update={"bootstrap": ("c.example.org:7400",)})})
    assert set(changes_between(old, new).applied) == {f"peer.{name}" for name in CHANGEABLE}
    own = load_credentials(folder / "certs" / "peers" / "alice")
    transport = GrpcTransport(own, LOOPBACK)
    notary = CertificateNotary(own)
    membership = Membership(MemberRecord("alice", Address("a", 1), 1, 0), 0, MembershipRules(), notary, lambda: 0.0)
    node: Any = SimpleNamespace(parts=SimpleNamespace(rules=NodeRules(outgoing=5), membership=membership))
    apply_settings(merged(old, new), node, transport, own)
    assert node.parts.rules == NodeRules(wait_for=3, linger_s=60.0, gossip_s=2.0, max_held=9, outgoing=5)
    assert membership._rules == replace(MembershipRules(), gossip_s=2.0, suspect_s=20.0, drop_s=90.0)
    assert membership._standing._rules is membership._callees._rules is membership._rules
    assert [target.address.host for target in membership.tick(0.0)] == ["c.example.org"]
    assert (transport._limits.models_per_s, transport._limits.burst_models) == (2.5, 7)
    assert own.list_grace == timedelta(days=14)
    assert logging.getLogger().level == logging.DEBUG
    assert Upkeep(own, new).soon_days == 3


def test_the_log_warns_and_health_is_degraded_before_something_ends_and_says_what_to_do(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate of 365 days, a list of 30: seen on the day before the list ends, and the day after each ends."""
    start = datetime.now(UTC)
    it = upkeep_of(folder)
    assert it.degraded(start) is it.trouble(start) is None
    assert sorted(kind for kind, _ in it.expiry(start)) == ["authority", "certificate", "revocation list"]
    assert it.expiry(start)["certificate", "alice"] == pytest.approx(365 * 86400, abs=60)
    day_29 = start + timedelta(days=29, minutes=1)
    assert "the revocation list of pens " in str(it.degraded(day_29))
    assert "in 24 hours: `pens certs refresh` at the authority" in str(it.degraded(day_29))
    assert it.degraded(start + timedelta(days=20)) is None, "seven days before, unless set otherwise"
    assert it.trouble(day_29 + timedelta(days=9)) is None, "an old list stops nobody"
    year = start + timedelta(days=366)
    assert str(it.trouble(year)).startswith("the certificate of alice ended at")
    assert "no restart is needed" in str(it.trouble(year))
    for moment, level in ((day_29, "WARNING"), (start + timedelta(days=31), "ERROR")):
        caplog.clear()
        look_twice(upkeep_of(folder, moment))
        (told,) = caplog.records
        assert (told.levelname, "revocation list" in told.getMessage()) == (level, True)


def test_a_revoked_certificate_and_lists_that_may_not_be_so_old_are_trouble(folder: Path) -> None:
    it, now = upkeep_of(folder), datetime.now(UTC)
    it.credentials.list_grace = timedelta(days=-31)
    assert str(it.trouble(now)).startswith("no revocation list is up to date, so no member is trusted: ")
    Authority(folder / "certs").revoke("alice")
    it.credentials.lists.receive(_newest_list(folder), it.credentials.material.authorities, "list")
    assert it.trouble(now) == "the certificate has been revoked: ask the federation's authority"


def _newest_list(folder: Path) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    return x509.load_pem_x509_crl((folder / "certs" / "revoked.pem").read_bytes()).public_bytes(Encoding.DER)


def test_a_failure_of_the_upkeep_is_logged_and_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it, looks = upkeep_of(folder), list[int]()

    def look() -> None:
        looks.append(1)
        raise RuntimeError("a fault")

    monkeypatch.setattr(it, "look", look)
    monkeypatch.setattr(upkeep_module, "LOOK_S", 0.0)

    async def live() -> None:
        running = asyncio.create_task(it.run())
        while len(looks) < 2:
            await asyncio.sleep(0)
        running.cancel()

    asyncio.run(live())
    assert "upkeep failed" in caplog.text


@pytest.mark.parametrize(("terminal", "later", "reloads"), [(False, False, 1), (True, True, 1), (True, False, 0)])
def test_a_hangup_reloads_unless_the_terminal_was_closed(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, later: bool, reloads: int
) -> None:
    seen: list[str] = []
    answers = iter((terminal, later))
    monkeypatch.setattr(upkeep_module, "_has_terminal", lambda: next(answers))
    it: Any = SimpleNamespace(reload=lambda: seen.append("reload"))

    async def live() -> None:
        follow_hangups(it, lambda: seen.append("stop"))
        os.kill(os.getpid(), signal.SIGHUP)
        while not seen:
            await asyncio.sleep(0)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    try:
        asyncio.run(live())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert seen == ["reload" if reloads else "stop"]
