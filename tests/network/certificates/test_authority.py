# SPDX-License-Identifier: Apache-2.0
"""What the authority issues and revokes, who can read it, and the command that does it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from pens.command_line.main import main
from pens.errors import CertificateError
from pens.network.certificates.certificate import identity_of
from tests.network.federations import credentials, make_federation


def test_a_member_is_who_its_certificate_says(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "hospital-3.north_1")
    for name in ("alice", "hospital-3.north_1"):
        own = credentials(authority, name)
        assert own.identity.name == name
        assert identity_of(own.certificate_pem) == own.identity
        assert repr(own.key_pem) not in repr(own)


def test_what_the_certificates_are_good_for(tmp_path: Path) -> None:
    authority = make_federation(tmp_path)
    files = authority.issue("alice", ["10.0.0.7", "alice.example.org"])
    root = x509.load_pem_x509_certificate(files.authority.read_bytes())
    own = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    assert own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    san = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "alice.example.org" in san.get_values_for_type(x509.DNSName)
    assert "10.0.0.7" in map(str, san.get_values_for_type(x509.IPAddress))
    assert len(list(own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)) == 2
    now = datetime.now(UTC)
    assert timedelta(days=364) < own.not_valid_after_utc - now < timedelta(days=366)
    assert timedelta(days=3649) < root.not_valid_after_utc - now < timedelta(days=3651)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
def test_openssl_agrees(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "carol")
    authority.rotate()
    authority.issue("bob")
    authority.issue("dora")
    for name in ("carol", "dora"):
        authority.revoke(name)
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes((tmp_path / "authority.pem").read_bytes() + authority.revoked_file.read_bytes())

    def verify(name: str, purpose: str) -> subprocess.CompletedProcess[str]:
        command = ["openssl", "verify", "-x509_strict", "-crl_check", "-purpose", purpose, "-CAfile", str(trusted)]
        path = str(tmp_path / "peers" / name / "peer.pem")
        return subprocess.run([*command, path], capture_output=True, text=True, check=False)

    for purpose in ("sslserver", "sslclient"):
        for good, gone in (("alice", "carol"), ("bob", "dora")):  # of the old authority, and of the new one
            assert verify(good, purpose).returncode == 0, verify(good, purpose).stderr
            assert "certificate revoked" in verify(gone, purpose).stderr


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_keys_and_folders(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = tmp_path / "certs"
        make_federation(folder, "alice")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}
    assert all(mode == 0o600 for path, mode in modes.items() if path.suffix == ".key")
    assert all(mode == 0o700 for path, mode in modes.items() if path.is_dir())
    assert not [path for path in modes if path.name.startswith(".")]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CertificateError, match="--force"):
        authority.create()
    with pytest.raises(CertificateError, match="--force"):
        authority.issue("alice")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    first = credentials(authority, "alice").identity
    authority.issue("alice", force=True)
    assert credentials(authority, "alice").identity.serial != first.serial
    authority.create(force=True)
    assert authority.issued() == []


def test_revoking_a_name_revokes_all_its_certificates_and_a_new_one_is_good(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")
    authority.issue("alice", force=True)
    assert len(authority.revoke("alice")) == 2
    with pytest.raises(CertificateError, match="revoked"):
        credentials(authority, "alice")
    credentials(authority, "bob")
    authority.issue("alice", force=True)
    credentials(authority, "alice")
    states = [(entry.identity.name, entry.revoked) for entry in authority.issued()]
    assert sorted(states) == [("alice", False), ("alice", True), ("alice", True), ("bob", False)]
    with pytest.raises(CertificateError, match="alice, bob"):
        authority.revoke("dave")


def test_a_name_that_begins_with_another_name_is_another_member(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "north.clinic")
    authority.issue("north")
    assert [identity.name for identity in authority.revoke("north")] == ["north"]
    credentials(authority, "north.clinic")
    with pytest.raises(CertificateError, match="lower-case"):
        authority.revoke("/etc/*")


def pens(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def test_the_life_of_a_certificate_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ("--dir", str(tmp_path / "certs"))
    assert pens("certs", "issue", "alice", *folder) == 2
    assert "pens certs init" in capsys.readouterr().err
    assert pens("certs", "init", *folder, "--federation", "north") == 0
    assert pens("certs", "issue", "alice", "bob", "--host", "10.0.0.1", *folder) == 0
    assert pens("certs", "revoke", "bob", *folder) == 0
    capsys.readouterr()
    assert pens("certs", "show", *folder) == 0
    shown = capsys.readouterr().out
    assert [word in shown for word in ("alice", "good", "bob", "revoked", "north")] == [True] * 5
    for wrong in (["init"], ["issue", "alice"], ["issue", "Alice"], ["issue", "c", "--host", "a b"], ["revoke", "c"]):
        assert pens("certs", *wrong, *folder) == 2
        assert capsys.readouterr().err.startswith("error")
    assert pens("certs", "issue", "c", "--days", "0", *folder) == 2


@pytest.mark.parametrize(
    "host",
    [
        "bob.1a.serial.pens.internal",
        "bob.1a.serial.Pens.Internal",
        "member.PENS.INTERNAL",
        "member.pens.internal.",
        "pens.internal",
        "x\x1b[2J",
    ],
)
def test_no_host_has_the_ending_of_members_own_names(tmp_path: Path, host: str) -> None:
    """With such a certificate mallory could answer as bob: DNS names are compared without regard to case."""
    authority = make_federation(tmp_path)
    with pytest.raises(CertificateError, match="--host") as refused:
        authority.issue("mallory", [host])
    assert str(refused.value).isprintable()
    assert authority.issue("mallory", ["mypens.internal.example.org"])


def test_without_the_extra_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules.update(cryptography=None, grpc=None, google=None, prometheus_client=None); "
        "from pens.command_line.main import main; main(['certs', 'init'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'pens-fl[network]'" in done.stderr
