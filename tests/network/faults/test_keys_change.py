# SPDX-License-Identifier: Apache-2.0
"""Certificates, an authority, a revocation list and settings change under real peers, and none is started again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pens.network.certificates.certificate import identity_of
from pens.network.certificates.credentials import MemberFiles
from pens.network.certificates.key_files import write_file
from tests.network.faults.harness import RealPeer, Site, running, wait_until

pytestmark = pytest.mark.slow


def files_of(site: Site, peer: RealPeer) -> MemberFiles:
    return MemberFiles(site.folder / "certs" / "peers" / peer.name)


def says(peer: RealPeer, words: str, times: int = 1) -> None:
    wait_until(lambda: peer.log.count(words) >= times, f"{words!r} in the log of {peer.name}")


def test_everything_changes_and_all_go_on(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, others=["mallory"])
    site.configure()
    with running(site):
        site.all_gossip()
        one, two, three = site.peers
        processes = [peer.process for peer in site.peers]

        # a certificate, half of it first
        own = files_of(site, one)
        key, certificate = own.key.read_bytes(), own.certificate.read_bytes()
        site.authority.issue(one.name, force=True)
        newer = own.key.read_bytes()
        write_file(own.key, key, 0o600)
        says(one, "certificates refused, those in use remain")
        assert one.health()["status"] == "degraded"
        assert "is not the key of" in one.health()["trouble"]
        site.all_advance()
        write_file(own.key, newer, 0o600)
        wait_until(lambda: one.health()["status"] == "healthy", "the new certificate in use")
        assert identity_of(certificate) != identity_of(own.certificate.read_bytes())
        site.all_advance()

        # settings, at once
        before = one.config.read_text()
        one.config.write_text(before.replace("[data]", 'log_level = "DEBUG"\n[data]').replace("0.2\n[eng", "0.3\n[eng"))
        assert one.process
        one.process.send_signal(signal.SIGHUP)
        says(one, '"level": "DEBUG"')
        says(one, "timing.interval cannot change while the peer runs: 0.2 remains in use")

        # a list that one member alone is given
        kept = {peer.me: files_of(site, peer).revoked.read_bytes() for peer in (two, three)}
        site.authority.revoke("mallory")
        newest = site.authority.revoked_file.read_bytes()
        for peer in (two, three):
            write_file(files_of(site, peer).revoked, kept[peer.me], 0o644)
        wait_until(
            lambda: all((peer.state / "revoked.pem").read_bytes() == newest for peer in site.peers),
            "the list everywhere",
        )
        assert files_of(site, two).revoked.read_bytes() == kept[1]

        # the authority
        site.authority.rotate()
        for peer in site.peers:
            says(peer, "authorities")
        site.all_advance()
        for peer in site.peers:
            serial = identity_of(site.authority.issue(peer.name, force=True).certificate.read_bytes()).serial
            says(peer, f"certificate {serial:x} until")
            site.all_advance()
        assert site.authority.finish_rotation(force=True) == []
        for peer in site.peers:
            says(peer, "authorities", 2)
        site.all_advance()
        assert [peer.process for peer in site.peers] == processes
        assert all(peer.alive() == 2 for peer in site.peers)
        assert not [peer.name for peer in site.peers if peer.refusals().get("authority")]
